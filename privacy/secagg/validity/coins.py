"""Public coins that no party could know or steer when the silos committed: commit, then reveal.

Each server commits to 32 random bytes and reveals them only after it holds every commitment (Blum 1981). A
coin is bound to context, step and ``frozen``, the digest of all that was committed before the toss
(step 1: the shares' manifests; step 2: the proofs' manifests). One honest server makes it uniform; a
server that will not reveal can stop the round, not bend it.

Coins derived from the shares themselves (Fiat–Shamir) are refused on purpose: a silo could try 2^40 vectors
at home until one passes, whereas here it has one try, before witnesses, under its own name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from privacy.errors import OutOfOrder, Unprocessable
from privacy.ids import Context, Digest, ServerId
from privacy.secagg.keystream import derive_key
from privacy.secagg.validity.sharing import field_stream

COIN_BYTES = 32
Step = Literal[1, 2]
"""1: projections, after all shares are fixed. 2: evaluation points, after all witnesses are fixed."""


@dataclass(frozen=True)
class Toss:
    """Which coin is tossed, by whom, over what."""

    context: Context
    step: Step
    frozen: Digest
    """Digest of all that is fixed before this toss; without it the coin would be worth nothing."""
    servers: tuple[ServerId, ...]

    def __post_init__(self) -> None:
        if len(self.servers) < 2 or len(set(self.servers)) != len(self.servers):
            raise Unprocessable("coin: expected at least two distinct share servers")


@dataclass(frozen=True)
class Coin:
    """A tossed coin; public, and the same to all."""

    toss: Toss
    seed: bytes

    @property
    def digest(self) -> Digest:
        """How a witness names the coin that it answers."""
        return Digest(hashlib.sha256(b"sealsum/validity/coin-name/v1\x00" + self.seed).hexdigest())

    def key(self, purpose: str) -> bytes:
        """A keystream key for one purpose."""
        return derive_key(self.seed, b"sealsum/validity/coin-key/v1\x00" + purpose.encode())

    def points(self, purpose: str, count: int) -> list[int]:
        """``count`` uniform field elements for one purpose."""
        return [int(element) for element in field_stream(self.key(purpose), 0, count)]


class CoinHalf:
    """One server's part in one toss: it never reveals before it holds every commitment."""

    def __init__(self, toss: Toss, me: ServerId) -> None:
        self._hold(toss, me, os.urandom(COIN_BYTES))

    def _hold(self, toss: Toss, me: ServerId, value: bytes) -> None:
        self.toss = toss
        self._me = me
        self._value = value
        self.commitment = commitment_to(toss, me, value)

    @classmethod
    def stored(cls, toss: Toss, me: ServerId, value: bytes) -> CoinHalf:
        """The half that drew ``value`` before, and stored it (``to_store``) before it gave its commitment."""
        half = cls.__new__(cls)
        half._hold(toss, me, value)
        return half

    @property
    def to_store(self) -> bytes:
        """What a restart must not lose: a second value for one toss would be a second coin."""
        return self._value

    def reveal(self, commitments: Mapping[ServerId, Digest]) -> bytes:
        """My value, once all servers are bound to theirs.

        Raises:
            OutOfOrder: a commitment is missing, or mine is not the one I gave.
        """
        _require_all(self.toss, commitments)
        if commitments[self._me] != self.commitment:
            raise OutOfOrder(f"coin: the commitment in the name of {self._me} is not the one it gave")
        return self._value


@dataclass(frozen=True)
class Reveals:
    """What all servers said in one toss."""

    commitments: Mapping[ServerId, Digest]
    values: Mapping[ServerId, bytes] = field(repr=False)


def settle(toss: Toss, reveals: Reveals) -> Coin:
    """The coin of a toss. Silos compute it themselves too, so that no single server can hand them one.

    (1) Every server committed; (2) every server revealed, in full; (3) each value is the committed one.

    Raises:
        OutOfOrder: (1), (2). Unprocessable: (3), naming the server.
    """
    _require_all(toss, reveals.commitments)  # (1)
    for server in toss.servers:
        value = reveals.values.get(server)
        if value is None or len(value) != COIN_BYTES:  # (2)
            raise OutOfOrder(f"coin: expected {COIN_BYTES} bytes revealed by {server}; the toss is not over")
        if not hmac.compare_digest(commitment_to(toss, server, value), reveals.commitments[server]):  # (3)
            raise Unprocessable(f"coin: {server} revealed another value than it committed to")
    running = hashlib.sha256(_prefix("coin", toss))
    for server in sorted(toss.servers):
        running.update(server.encode() + b"\x00" + reveals.values[server])
    return Coin(toss, running.digest())


def commitment_to(toss: Toss, server: ServerId, value: bytes) -> Digest:
    """SHA-256 over the toss, the server and its 32 bytes: hiding, as the value has 256 random bits."""
    return Digest(hashlib.sha256(_prefix("commitment", toss) + server.encode() + b"\x00" + value).hexdigest())


def _prefix(purpose: str, toss: Toss) -> bytes:
    return b"\x00".join(
        [
            b"sealsum/validity/toss/v1",
            purpose.encode(),
            bytes.fromhex(toss.context),
            str(toss.step).encode(),
            bytes.fromhex(toss.frozen),
            b"",
        ]
    )


def _require_all(toss: Toss, commitments: Mapping[ServerId, Digest]) -> None:
    missing = sorted(set(toss.servers) ^ set(commitments))
    if missing:
        raise OutOfOrder(f"coin: expected a commitment of each share server; differing: {', '.join(missing)}")
