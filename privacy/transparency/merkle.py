"""The Merkle tree of RFC 9162, section 2.1: roots, inclusion proofs and consistency proofs.

Appending entry n completes the subtrees that end with it: one of each size 1, 2, 4, … 2^t, where 2^t is
the largest power of two that divides n + 1. Whoever stores these hashes with the entry can later look up
any complete subtree in one read, so a proof costs O(log n) of them. Knows no records and no signatures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from privacy.errors import ProofRejected

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()

NodeOf = Callable[[int, int], bytes]
"""(level, index) → the hash of the complete subtree over leaves [index · 2^level, (index + 1) · 2^level)."""


def leaf_hash(leaf: bytes) -> bytes:
    """SHA-256(0x00 ‖ leaf)."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 ‖ left ‖ right); the other first byte keeps an inner node from passing as a leaf."""
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True)
class Frontier:
    """What it takes to append: how many leaves there are, and their largest complete subtrees, in order."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def append(self, leaf: bytes) -> tuple[Frontier, tuple[bytes, ...]]:
        """Add a leaf's *hash*; returns the next frontier, and the subtrees this leaf completes by level."""
        completed = [leaf]
        peaks = list(self.peaks)
        size = self.size
        while size & 1:
            completed.append(node_hash(peaks.pop(), completed[-1]))
            size >>= 1
        return Frontier(self.size + 1, (*peaks, completed[-1])), tuple(completed)

    @property
    def root(self) -> bytes:
        """MTH over all leaves."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def place_of(level: int, index: int) -> int:
    """The entry that completed a subtree: with it the subtree's hash is stored."""
    return ((index + 1) << level) - 1


def root_at(size: int, node: NodeOf) -> bytes:
    """MTH over the first ``size`` leaves."""
    return _range(0, size, node) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, node: NodeOf) -> tuple[bytes, ...]:
    """PATH(index, D[size]) of RFC 9162, section 2.1.3.1.

    Raises:
        ValueError: there is no such leaf in a tree of that size.
    """
    if not 0 <= index < size:
        raise ValueError(f"inclusion proof: expected an entry below {size}, got {index}")
    proof: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            proof.append(_range(middle, high, node))
            high = middle
        else:
            proof.append(_range(low, middle, node))
            low = middle
    return tuple(reversed(proof))


def consistency_proof(first: int, second: int, node: NodeOf) -> tuple[bytes, ...]:
    """PROOF(first, D[second]) of RFC 9162, section 2.1.4.1; empty between a tree and itself or the empty one.

    Raises:
        ValueError: not 0 ≤ first ≤ second.
    """
    if not 0 <= first <= second:
        raise ValueError(f"consistency proof: expected 0 ≤ from ≤ to, got from {first} to {second}")
    if first in (0, second):
        return ()
    proof: list[bytes] = []
    low, high = 0, second
    while first < high:  # SUBPROOF, along the right edge of the first tree
        middle = low + _split(high - low)
        if first <= middle:
            proof.append(_range(middle, high, node))
            high = middle
        else:
            proof.append(_range(low, middle, node))
            low = middle
    if low > 0:
        proof.append(_range(low, high, node))
    return tuple(reversed(proof))


def root_from_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes:
    """The root of a tree of ``size`` with this leaf hash at ``index`` (RFC 9162, section 2.1.3.2).

    Raises:
        ProofRejected: the proof has not as many hashes as such a tree asks for.
    """
    if not 0 <= index < size:
        raise ProofRejected(f"inclusion proof: expected an entry below {size}, got {index}")
    at, last, root = index, size - 1, leaf
    for hash_ in proof:
        if last == 0:
            raise ProofRejected("inclusion proof: it is too long for a tree of this size")
        if at & 1 or at == last:
            root = node_hash(hash_, root)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            root = node_hash(root, hash_)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise ProofRejected("inclusion proof: it is too short for a tree of this size")
    return root


def verify_inclusion(index: int, size: int, leaf: bytes, root: bytes, proof: Sequence[bytes]) -> None:
    """Check that the tree of ``size`` under ``root`` holds this leaf hash at ``index``.

    Raises:
        ProofRejected: it is not shown.
    """
    if root_from_inclusion(index, size, leaf, proof) != root:
        raise ProofRejected(f"inclusion proof: entry {index} is not under this root of {size} entries")


def verify_consistency(
    first: int, first_root: bytes, second: int, second_root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that the second tree begins with all of the first (RFC 9162, section 2.1.4.2).

    Raises:
        ProofRejected: it is not shown.
    """
    if not 0 <= first <= second:
        raise ProofRejected(f"consistency proof: expected 0 ≤ from ≤ to, got from {first} to {second}")
    if first in (0, second):
        if proof:
            raise ProofRejected("consistency proof: expected none between a tree and itself or the empty one")
        if first_root != (EMPTY_ROOT if first == 0 else second_root):
            raise ProofRejected(f"consistency proof: two roots of one size, {first}")
        return
    # (1) a first tree that is one complete subtree is the proof's first hash, left out
    path = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    if not path:
        raise ProofRejected("consistency proof: it is empty")
    at, last = first - 1, second - 1
    while at & 1:  # (2)
        at, last = at >> 1, last >> 1
    old = new = path[0]
    for hash_ in path[1:]:  # (3)
        if last == 0:
            raise ProofRejected("consistency proof: it is too long for trees of these sizes")
        if at & 1 or at == last:
            old, new = node_hash(hash_, old), node_hash(hash_, new)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            new = node_hash(new, hash_)
        at, last = at >> 1, last >> 1
    if last != 0:
        raise ProofRejected("consistency proof: it is too short for trees of these sizes")
    if old != first_root or new != second_root:  # (4)
        raise ProofRejected(f"consistency proof: {second} entries do not begin with those {first}")


def _split(leaves: int) -> int:
    """The largest power of two below ``leaves`` ≥ 2."""
    return 1 << (leaves - 1).bit_length() - 1


def _range(low: int, high: int, node: NodeOf) -> bytes:
    """MTH over leaves [low, high), where ``low`` is a multiple of the next power of two."""
    leaves = high - low
    if leaves & (leaves - 1) == 0:
        level = leaves.bit_length() - 1
        return node(level, low >> level)
    middle = low + _split(leaves)
    return node_hash(_range(low, middle, node), _range(middle, high, node))
