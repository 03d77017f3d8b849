"""Attacks on rounds with validity through the real servers: each is named, and no sum is ever a wrong one.

Silos that lie about their updates, servers that lie about silos, an aggregator that lies to either.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from aggregator.share_server.checking import Checking
from aggregator.tables import coins, seeds
from privacy.canonical import sha256_hex
from privacy.ids import Digest
from privacy.secagg.validity.encoding import from_ring
from privacy.secagg.validity.field import MODULUS, to_bytes
from privacy.secagg.validity.messages import CoinCommitment, CoinReveal, ProofManifest
from privacy.secagg.validity.terms import ValidityTerms
from privacy.wire.envelope import Envelope
from privacy.wire.messages import AcceptedSet
from tests.aggregator_world import on_loop
from tests.validity_cohort import at_the_bound, toss
from tests.validity_world import NORM_BOUND, ProvingSilo, ValidityWorld, oracle, world

PARAMETERS = 60
TERMS = ValidityTerms(dimension=PARAMETERS, norm_bound=NORM_BOUND, scale_bits=20)
B, S = TERMS.encoded_bound, TERMS.weight_scale
HALF = (MODULUS - 1) // 2


def vector(*coordinates: int, weight: int = S) -> list[int]:
    return [*coordinates, *[0] * (PARAMETERS - len(coordinates)), weight]


def ten_times() -> list[int]:
    exact = at_the_bound(TERMS, np.random.default_rng(3))
    return [*(10 * int(value) for value in exact[:-1]), S]


def assert_left_out(outcome: Any, silos: list[ProvingSilo], cheat: str, rule: str) -> None:
    """The cheat is named with the check that failed, and the sum is the one of the others."""
    assert outcome.refused == {cheat: [rule]}
    assert outcome.view["state"] == "finished", outcome.view["reason"]
    others = [silo for silo in silos if silo.name != cheat]
    np.testing.assert_array_equal(outcome.model, oracle(others).astype(np.float32))
    assert all(cheat not in result.survivors for silo in silos for result in silo.results)


# --- silos that share what is out of bounds ---


@on_loop
async def test_a_cheats_tools_pass_with_an_honest_vector(tmp_path: Path) -> None:
    """Otherwise the refusals below would show nothing."""
    here = world(tmp_path)
    silos = here.silos(silo_2={"encoded": vector(B // 2)})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert outcome.refused == {}
    assert "silo-2" in silos[0].results[0].survivors


@pytest.mark.parametrize(
    ("encoded", "rule"),
    [
        (ten_times(), "validity.squares"),
        (vector(B, 1), "validity.squares"),
        (vector(10 * B), "validity.squares"),
        (vector(HALF, HALF, HALF, HALF), "validity.projections"),
        (vector(B // 2, weight=2 * S), "validity.weight"),
        (vector(B // 2, weight=MODULUS - S), "validity.weight"),
    ],
    ids=["ten-times", "one-unit", "spike", "wraps-around", "weight-two", "weight-minus-one"],
)
@on_loop
async def test_an_update_out_of_bounds_is_left_out_by_name(
    tmp_path: Path, encoded: list[int], rule: str
) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_2={"encoded": encoded})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert_left_out(outcome, silos, "silo-2", rule)
    for server in here.servers.values():  # each found out by itself
        refused = [body for kind, body in here.log_of(server.store) if kind == "update_refused"]
        assert [(body["silo"], body["rules"]) for body in refused] == [("silo-2", [rule])]


# --- silos that prove what is not so ---


def resigned(here: ValidityWorld, proof: Envelope, **changes: Any) -> Envelope:
    """The proof's manifest with other words, signed by the silo all the same."""
    message = ProofManifest.model_validate_json(proof.body).model_copy(update=changes)
    return here.federation.sign(message, "validity_proof", proof.context, proof.sender)  # type: ignore[arg-type]


@on_loop
async def test_a_tampered_witness_fails_its_checks(tmp_path: Path) -> None:
    here = world(tmp_path)

    def tamper(witness: bytes, proof: Envelope) -> tuple[bytes, Envelope]:
        altered = bytes([witness[0] ^ 1]) + witness[1:]
        return altered, resigned(here, proof, witness=sha256_hex(altered))

    silos = here.silos(silo_2={"tamper": tamper})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert outcome.refused["silo-2"][0] in ("validity.bits", "validity.squares", "validity.norm")
    assert_left_out(outcome, silos, "silo-2", outcome.refused["silo-2"][0])


@on_loop
async def test_a_witness_that_answered_another_coin_fails_its_checks(tmp_path: Path) -> None:
    """It signs that it answers this coin; what it made answers another, which it chose itself."""
    here = world(tmp_path)
    rest: dict[str, Any] = {}

    def tamper(witness: bytes, proof: Envelope) -> tuple[bytes, Envelope]:
        stale = rest["witness"]
        return stale, resigned(here, proof, witness=sha256_hex(stale))

    def before() -> None:
        half = rest["silo"].half._half
        rest["witness"] = _proof_under_own_coin(half, rest["silo"])

    silos = here.silos(silo_2={"tamper": tamper, "before_conclude": before})
    rest["silo"] = silos[1]
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert_left_out(outcome, silos, "silo-2", outcome.refused["silo-2"][0])


def _proof_under_own_coin(half: Any, silo: ProvingSilo) -> bytes:
    """A whole proof by a copy of the silo's half, under a coin that all servers did not toss."""
    own = copy(half)
    own._squares = deepcopy(half._squares)
    servers = tuple(half.sealed_seeds)
    own.open_coin(toss(1, b"chosen at home", servers, half._binding.context))
    assert silo.drawn is not None
    own.project(0, from_ring(silo.drawn))
    return to_bytes(own.prove())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"coin": Digest("ab" * 32)}, "answers another coin"),
        ({"shares": Digest("ab" * 32)}, "other shares"),
        ({"silo": "silo-3"}, "expected one of silo-2"),
        ({"witness": Digest("ab" * 32)}, "not the one the manifest names"),
    ],
    ids=["coin", "shares", "silo", "witness"],
)
@on_loop
async def test_a_proof_about_something_else_is_refused_and_its_silo_a_dropout(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    here = world(tmp_path)

    def tamper(witness: bytes, proof: Envelope) -> tuple[bytes, Envelope]:
        return witness, resigned(here, proof, **changes)

    silos = here.silos(silo_2={"tamper": tamper})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert [why in str(fault) for fault in silos[1].faults] == [True]
    assert_left_out(outcome, silos, "silo-2", "validity.not_proven")


@on_loop
async def test_the_desk_believes_no_proof_about_something_else_and_the_first_servers_word_counts(
    tmp_path: Path,
) -> None:
    here = world(tmp_path)
    silos = here.silos(silo_2={"at_desk": lambda proof: resigned(here, proof, coin=Digest("ab" * 32))})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert ["answers another coin" in str(fault) for fault in silos[1].faults] == [True]
    assert outcome.refused == {}
    assert silos[0].results[0].survivors == tuple(silo.name for silo in silos)


@on_loop
async def test_a_witness_of_no_field_elements_costs_its_own_silo_only(tmp_path: Path) -> None:
    here = world(tmp_path)

    def tamper(witness: bytes, proof: Envelope) -> tuple[bytes, Envelope]:
        altered = b"\xff" * 8 + witness[8:]
        return altered, resigned(here, proof, witness=sha256_hex(altered))

    silos = here.silos(silo_2={"tamper": tamper})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert ["below 2^64" in str(fault) for fault in silos[1].faults] == [True]
    assert_left_out(outcome, silos, "silo-2", "validity.not_proven")


# --- servers that lie about silos ---


def lying(monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes], about: str = "silo-3") -> None:
    """The second server says something else about one silo than it found."""
    honest = Checking._compute

    def compute(self: Checking, plan: Any, coins: Any, manifest: Any, proof: Any, sealed: bytes) -> bytes:
        raw = honest(self, plan, coins, manifest, proof, sealed)
        return change(raw) if (self._state.me, manifest.silo) == ("server-1", about) else raw

    monkeypatch.setattr(Checking, "_compute", compute)


@on_loop
async def test_a_server_that_lies_about_a_silo_excludes_it_and_the_sum_is_that_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not promised: that an honest silo stays in. What is: never a wrong sum."""
    here = world(tmp_path)
    lying(monkeypatch, lambda raw: bytes([raw[0] ^ 1]) + raw[1:])
    silos = here.silos()
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert_left_out(outcome, silos, "silo-3", "validity.squares")


@on_loop
async def test_a_check_that_is_no_check_ends_the_round_by_its_servers_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(tmp_path)
    lying(monkeypatch, lambda raw: b"\xff" * len(raw))
    silos = here.silos()
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert (outcome.view["state"], outcome.view["openings"]) == ("failed", 0)
    assert "check of silo-3 by server-1" in outcome.view["reason"]


# --- an aggregator that lies to silos ---


def lies(
    here: ValidityWorld,
) -> dict[str, tuple[Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]], str]]:
    """What a silo may be shown in place of its inbox, and what it says to that."""

    def without(kind: str) -> Callable[[tuple[Envelope, ...]], tuple[Envelope, ...]]:
        return lambda inbox: tuple(
            one for one in inbox if not (one.kind == kind and one.sender == "server-1")
        )

    def forgotten(inbox: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        """A colluding server signs another accepted set, without this silo."""
        mine = next(one for one in inbox if one.kind == "accepted" and one.sender == "server-1")
        accepted = AcceptedSet.model_validate_json(mine.body)
        fewer = {silo: digest for silo, digest in accepted.manifests.items() if silo != "silo-2"}
        other = accepted.model_copy(update={"manifests": fewer})
        signed = here.federation.sign(other, "accepted", mine.context, "server-1")  # type: ignore[arg-type]
        return tuple(signed if one == mine else one for one in inbox)

    def other_value(inbox: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        """A colluding server reveals what it did not commit to."""
        mine = next(one for one in inbox if one.kind == "coin1_reveal" and one.sender == "server-1")
        return tuple(_with(here, one, value="ab" * 32) if one == mine else one for one in inbox)

    def second_step(inbox: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        return tuple(_with(here, one, step=2) if one.kind == "coin1_reveal" else one for one in inbox)

    def altered(inbox: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        """The aggregator's own value in a server's name."""
        return tuple(
            one.model_copy(update={"body": one.body.replace('"step":1', '"step":2')})
            if one.kind == "coin1_reveal"
            else one
            for one in inbox
        )

    def by_itself(inbox: tuple[Envelope, ...]) -> tuple[Envelope, ...]:
        mine = next(one for one in inbox if one.kind == "coin1_commitment" and one.sender == "server-1")
        return tuple(_with(here, one, sender="aggregator") if one == mine else one for one in inbox)

    return {
        "no-reveal": (without("coin1_reveal"), "missing: server-1"),
        "no-commitment": (without("coin1_commitment"), "missing: server-1"),
        "no-accepted-set": (without("accepted"), "missing: server-1"),
        "twice": (lambda inbox: (*inbox, inbox[0]), "is there twice"),
        "without-this-silo": (forgotten, "not bound to the shares of this silo"),
        "another-value": (other_value, "revealed another value"),
        "another-step": (second_step, "speaks of another toss"),
        "altered": (altered, "signature"),
        "signed-by-the-aggregator": (by_itself, "from a share server in its own name"),
    }


def _with(here: ValidityWorld, envelope: Envelope, sender: str = "", **changes: Any) -> Envelope:
    """The same message with other words, signed by its sender (who colludes), or by another."""
    model = CoinReveal if envelope.kind.endswith("reveal") else CoinCommitment
    message = model.model_validate({**json.loads(envelope.body), **changes})
    return here.federation.sign(message, envelope.kind, envelope.context, sender or envelope.sender)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "lie",
    [
        "no-reveal",
        "no-commitment",
        "no-accepted-set",
        "twice",
        "without-this-silo",
        "another-value",
        "another-step",
        "altered",
        "signed-by-the-aggregator",
    ],
)
@on_loop
async def test_a_silo_answers_no_coin_but_the_one_that_all_servers_tossed_over_its_shares(
    tmp_path: Path, lie: str
) -> None:
    here = world(tmp_path)
    shown, why = lies(here)[lie]
    silos = here.silos(silo_2={"shown": shown})
    outcome = await here.run_job(here.spec(PARAMETERS), silos)
    assert [why in str(fault) for fault in silos[1].faults] == [True], silos[1].faults
    assert not [path for name, _, path in here.calls if name == "silo-2" and path.endswith("/witness")]
    assert_left_out(outcome, silos, "silo-2", "validity.not_proven")


# --- nobody learns what need not be known ---


@on_loop
async def test_no_witness_and_no_share_passes_the_aggregator(tmp_path: Path) -> None:
    here = world(tmp_path)
    seen: list[bytes] = []

    def keep(witness: bytes, proof: Envelope) -> tuple[bytes, Envelope]:
        seen.append(witness)
        return witness, proof

    silos = here.silos(**{f"silo_{n}": {"tamper": keep} for n in range(1, 5)})
    await here.run_job(here.spec(PARAMETERS), silos)
    held = [path.read_bytes() for path in (tmp_path / "aggregator").rglob("*") if path.is_file()]
    assert len(seen) == 4
    for witness in seen:
        assert not any(witness[:64] in raw for raw in held)
        assert hashlib.sha256(witness).hexdigest().encode() in b"".join(held)  # its manifest is evidence


@on_loop
async def test_when_the_round_has_ended_servers_hold_no_part_witness_check_or_value(tmp_path: Path) -> None:
    here = world(tmp_path)
    silos = here.silos()
    await here.run_job(here.spec(PARAMETERS), silos)
    for server in ("server-0", "server-1"):
        left = [path for path in (tmp_path / server / "parts").rglob("*") if path.is_file()]
        assert left == []
        with here.servers[server].store.read() as view:
            for table in (coins, seeds):
                assert view.connection.execute(select(func.count()).select_from(table)).scalar_one() == 0
