"""The Merkle tree against Certificate Transparency's vectors, and against RFC 9162 word for word."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import ProofRejected
from privacy.transparency.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    place_of,
    root_at,
    root_from_inclusion,
    verify_consistency,
    verify_inclusion,
)

# google/certificate-transparency, merkle_tree_test: leaves, and the root after each of them.
LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
    )
]  # fmt: skip
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def mth(leaves: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, word for word."""
    n = len(leaves)
    if n == 0:
        return hashlib.sha256(b"").digest()
    if n == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    k = max(1 << i for i in range(n.bit_length()) if 1 << i < n)
    return hashlib.sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    """Section 2.1.3.1."""
    n = len(leaves)
    if n == 1:
        return []
    k = max(1 << i for i in range(n.bit_length()) if 1 << i < n)
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """Section 2.1.4.1."""
    n = len(leaves)
    if m == n:
        return [] if whole else [mth(leaves)]
    k = max(1 << i for i in range(n.bit_length()) if 1 << i < n)
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


class Stored:
    """Nodes kept with the entry that completed them, as servers keep them."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.rows: list[tuple[bytes, ...]] = []
        self.frontier = Frontier()
        self.reads = 0
        for leaf in leaves:
            self.frontier, completed = self.frontier.append(leaf_hash(leaf))
            self.rows.append(completed)

    def node(self, level: int, index: int) -> bytes:
        self.reads += 1
        return self.rows[place_of(level, index)][level]


def test_roots_are_those_of_certificate_transparency() -> None:
    assert Frontier().root == EMPTY_ROOT == mth([])
    assert [Stored(LEAVES[: n + 1]).frontier.root.hex() for n in range(8)] == ROOTS


def test_proofs_are_those_of_certificate_transparency() -> None:
    stored = Stored(LEAVES)
    assert [one.hex() for one in inclusion_proof(5, 8, stored.node)] == [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    assert [one.hex() for one in consistency_proof(6, 8, stored.node)] == [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]


@pytest.mark.parametrize("size", range(1, 34))
def test_stored_nodes_give_the_very_proofs_of_the_rfc(size: int) -> None:
    leaves = [bytes([n]) for n in range(size)]
    stored = Stored(leaves)
    for first in range(size + 1):
        assert root_at(first, stored.node) == mth(leaves[:first])
        expected = subproof(first, leaves, True) if first else []
        assert list(consistency_proof(first, size, stored.node)) == expected
        verify_consistency(first, mth(leaves[:first]), size, mth(leaves), expected)
    for index in range(size):
        proof = inclusion_proof(index, size, stored.node)
        assert list(proof) == path(index, leaves)
        verify_inclusion(index, size, leaf_hash(leaves[index]), mth(leaves), proof)


@given(st.integers(1, 3000), st.data())
def test_a_proof_reads_few_nodes(size: int, data: st.DataObject) -> None:
    stored = Stored([n.to_bytes(2, "big") for n in range(size)])
    first = data.draw(st.integers(1, size))
    proofs = consistency_proof(first, size, stored.node), inclusion_proof(first - 1, size, stored.node)
    assert max(map(len, proofs)) <= size.bit_length() + 1
    assert stored.reads <= 2 * (2 * size.bit_length() + 1)


@given(st.integers(1, 200), st.data())
def test_no_proof_shows_a_rewritten_history(size: int, data: st.DataObject) -> None:
    leaves = [n.to_bytes(2, "big") for n in range(size)]
    first = data.draw(st.integers(1, size))
    changed = data.draw(st.integers(0, first - 1))
    other = [*leaves[:changed], b"another", *leaves[changed + 1 :]]
    for proof in (consistency_proof(first, size, Stored(kept).node) for kept in (leaves, other)):
        with pytest.raises(ProofRejected):
            verify_consistency(first, mth(leaves[:first]), size, mth(other), proof)


@given(st.integers(1, 200), st.data())
def test_a_proof_is_refused_once_anything_of_it_changes(size: int, data: st.DataObject) -> None:
    leaves = [n.to_bytes(2, "big") for n in range(size)]
    stored = Stored(leaves)
    first = data.draw(st.integers(1, size))
    proof = list(consistency_proof(first, size, stored.node))
    longer = [*proof, proof[0] if proof else bytes(32)]
    shorter = proof[:-1]
    for bad in (longer, *([shorter, [bytes(32), *proof[1:]]] if proof else [])):
        with pytest.raises(ProofRejected):
            verify_consistency(first, mth(leaves[:first]), size, mth(leaves), bad)
    included = list(inclusion_proof(first - 1, size, stored.node))
    with pytest.raises(ProofRejected):
        verify_inclusion(first - 1, size, leaf_hash(b"another"), mth(leaves), included)
    with pytest.raises(ProofRejected):
        root_from_inclusion(first - 1, size, leaf_hash(leaves[first - 1]), [*included, bytes(32)])


def test_what_is_not_there_has_no_proof() -> None:
    stored = Stored(LEAVES)
    with pytest.raises(ValueError, match="expected an entry below 8, got 8"):
        inclusion_proof(8, 8, stored.node)
    with pytest.raises(ValueError, match="got from 5 to 4"):
        consistency_proof(5, 4, stored.node)
    with pytest.raises(ProofRejected, match="got from 5 to 4"):
        verify_consistency(5, EMPTY_ROOT, 4, EMPTY_ROOT, ())
    with pytest.raises(ProofRejected, match="expected none"):
        verify_consistency(8, stored.frontier.root, 8, stored.frontier.root, [bytes(32)])
    with pytest.raises(ProofRejected, match="two roots of one size"):
        verify_consistency(8, stored.frontier.root, 8, bytes(32), ())
