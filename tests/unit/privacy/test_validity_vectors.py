"""The exact bytes: what another implementation has to reproduce, and what it has to refuse."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from privacy.errors import MalformedMessage
from privacy.ids import Context, Digest, ServerId, SiloId
from privacy.secagg.validity.coins import Coin, Reveals, Toss, commitment_to, settle
from privacy.secagg.validity.field import to_bytes
from privacy.secagg.validity.projection import weights
from privacy.secagg.validity.server import CheckShare, ValidityServerHalf
from privacy.secagg.validity.sharing import Binding, SeedShares, field_stream
from privacy.secagg.validity.terms import ValidityTerms
from privacy.secagg.validity.witness import witness_length

VECTORS = Path(__file__).parents[2] / "vectors"
GOLDEN: dict[str, Any] = json.loads((VECTORS / "validity.json").read_text())
BAD: dict[str, Any] = json.loads((VECTORS / "bad_validity_check.json").read_text())
TERMS = ValidityTerms.model_validate(GOLDEN["terms"])
SERVERS = tuple(ServerId(name) for name in GOLDEN["servers"])
BINDING = Binding(
    Context(Digest(GOLDEN["context"])), TERMS.digest, Digest(GOLDEN["model"]), SiloId(GOLDEN["silo"])
)
A = SeedShares(SERVERS[0], BINDING, bytes(range(32, 64)))
B = SeedShares(SERVERS[1], BINDING, bytes(range(32)))


def coin(vector: dict[str, Any]) -> Coin:
    toss = Toss(BINDING.context, vector["step"], Digest(vector["frozen"]), SERVERS)
    values = {s: bytes.fromhex(value) for s, value in zip(SERVERS, vector["values"], strict=True)}
    commitments = dict(zip(SERVERS, vector["commitments"], strict=True))
    assert commitments == {server: commitment_to(toss, server, value) for server, value in values.items()}
    return settle(toss, Reveals(commitments, values))


COINS = (coin(GOLDEN["tosses"][0]), coin(GOLDEN["tosses"][1]))


def test_terms_lead_to_these_sizes_and_this_digest() -> None:
    assert TERMS.digest == GOLDEN["terms_digest"]
    for name in ("encoded_bound", "columns", "rows", "domain", "bit_count"):
        assert getattr(TERMS, name) == GOLDEN[name]
    assert witness_length(TERMS) == GOLDEN["witness_length"]


@pytest.mark.parametrize("place", [0, 1])
def test_reveals_lead_to_these_coins(place: int) -> None:
    assert COINS[place].seed.hex() == GOLDEN["tosses"][place]["coin"]
    assert COINS[place].digest == GOLDEN["tosses"][place]["coin_digest"]


def test_a_seed_expands_to_these_shares() -> None:
    assert to_bytes(B.vector(0, 4)).hex() == GOLDEN["vector_mask"]
    u, w = B.blinds(0, TERMS.rows)
    assert to_bytes(u[:2]).hex() == GOLDEN["blind_u"]
    assert to_bytes(w[:2]).hex() == GOLDEN["blind_w"]
    assert to_bytes(B.witness(COINS[0].digest, 4)).hex() == GOLDEN["witness_mask"]


def test_coins_expand_to_these_weights_and_points() -> None:
    assert weights(COINS[0], TERMS.projections, 2).tolist() == GOLDEN["weights_of_coordinates_0_and_1"]
    assert [str(point) for point in COINS[1].points("squares", 2)] == GOLDEN["points"]["squares"]
    assert str(COINS[1].points("bits", 1)[0]) == GOLDEN["points"]["bits"]


def test_shares_lead_to_these_messages() -> None:
    a = ValidityServerHalf(TERMS, A, COINS, first=True)
    a.absorb(0, field_stream(bytes([5]) * 32, 0, TERMS.vector_length))
    b = ValidityServerHalf(TERMS, B, COINS, first=False)
    b.absorb(0)
    for name, message in (
        ("message_a", a.message(field_stream(bytes([6]) * 32, 0, witness_length(TERMS)))),
        ("message_b", b.message()),
    ):
        raw = message.to_bytes()
        assert raw[-48:].hex() == GOLDEN[f"{name}_scalars"]
        assert hashlib.sha256(raw).hexdigest() == GOLDEN[name]


@pytest.mark.parametrize("case", BAD["cases"], ids=lambda case: case["name"])
def test_a_bad_message_is_refused(case: dict[str, str]) -> None:
    terms = ValidityTerms(dimension=BAD["dimension"], norm_bound=1.0, scale_bits=20)
    assert terms.rows == 1
    with pytest.raises(MalformedMessage, match="field elements"):
        CheckShare.from_bytes(bytes.fromhex(case["hex"]), SERVERS[0], terms)
