"""Silos' own logs, witnessed by servers in turn: one that forks or goes back gets no cosignature anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aggregator.assembly import Aggregator
from privacy.canonical import canonical_bytes
from privacy.errors import ProofRejected, SignatureRejected
from privacy.ids import PartyId
from privacy.keystore import load_identity
from privacy.transparency.checkpoint import (
    LogHead,
    log_origin,
    open_checkpoint,
    sign_checkpoint,
    witnesses_of,
)
from privacy.transparency.witnessing import Cosigned, ServedCheckpoint, assert_extends
from silo_agent.own_log_witnessed import keep_cosignature, kept_note, proof_since
from silo_agent.witness import Witness
from tests.aggregator_world import World

SILO, AGGREGATOR = PartyId("silo-1"), PartyId("aggregator")


class Wire:
    """The aggregator's witnesses as the silo's agent reaches them."""

    def __init__(self, aggregator: Aggregator) -> None:
        self.witnesses = aggregator.state.witnesses
        self.log, self.store = aggregator.state.store.log, aggregator.state.store
        self.calls = 0

    def post_json(self, _path: str, document: dict[str, Any]) -> bytes:
        self.calls += 1
        return canonical_bytes(self.witnesses.take(SILO, Cosigned.model_validate(document)))

    def get_bytes(self, path: str, *, limit: int, params: dict[str, str] | None = None) -> bytes:
        if path == "/v1/log/checkpoint":
            return canonical_bytes(self.witnesses.served())
        assert params is not None
        with self.store.read() as view:
            first, second = int(params["from"]), int(params["to"])
            proof = self.log.consistency(view.connection, first, second)
        return canonical_bytes({"first": first, "second": second, "proof": list(proof)})


class Ledgers:
    def heads_seen(self) -> dict[str, tuple[LogHead, ...]]:
        return {}


class Town:
    """One aggregator and one silo's witness."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = World(root)
        self.charter = self.world.federation.charter
        self.aggregator = self.world.build_aggregator()
        self.wire = Wire(self.aggregator)
        self.identity = self.world.federation.identity(SILO, root / SILO)
        self.witness = self.start()

    def start(self) -> Witness:
        identity = load_identity(self.root / SILO)
        return Witness(self.root / SILO, identity, Ledgers())  # type: ignore[arg-type] # only this is asked

    def visit(self) -> frozenset[PartyId]:
        """Who has cosigned the silo's log as it stands now, by what lies at the silo."""
        self.witness.visit(AGGREGATOR, self.charter, self.wire)  # type: ignore[arg-type] # in memory
        note = kept_note(self.witness.log.directory)
        if note is None or note.head != self.witness.log.head:
            return frozenset()
        key = self.charter.member(AGGREGATOR).verify_key
        return witnesses_of(note, self.charter.federation, {AGGREGATOR: key})

    def close(self) -> None:
        self.witness.close()
        self.aggregator.state.store.close()


@pytest.fixture
def town(tmp_path: Path) -> Any:
    here = Town(tmp_path)
    yield here
    here.close()


def test_a_silos_log_is_cosigned_as_it_grows_and_after_a_restart_of_either(town: Town) -> None:
    assert town.visit() == {AGGREGATOR}
    town.witness.log.record("round_refused", {"rule": "one"})
    town.witness.log.record("round_refused", {"rule": "two"})
    assert town.visit() == {AGGREGATOR}
    town.witness.close()
    town.witness = town.start()  # it begins with an entry, and does not know what the server saw last
    calls = town.wire.calls
    assert town.visit() == {AGGREGATOR}
    assert town.wire.calls == calls + 2
    with town.aggregator.state.store.write() as transaction:
        town.aggregator.state.witnesses.store(transaction)
    town.aggregator.state.store.close()
    town.aggregator = town.world.build_aggregator()
    town.wire = Wire(town.aggregator)
    town.witness.log.record("round_refused", {"rule": "three"})
    assert town.visit() == {AGGREGATOR}


def test_a_silo_that_rewrote_its_log_gets_no_cosignature_on_it(town: Town) -> None:
    assert town.visit() == {AGGREGATOR}
    town.witness.log.record("round_refused", {"rule": "one"})
    town.visit()
    seen = town.witness.log.head
    key, origin = town.identity.signing, log_origin(town.charter.federation, SILO)
    forked = sign_checkpoint(origin, LogHead(size=seen.size + 1, root="ab" * 32), key)
    cosigned = _cosigned(town, forked.note())
    refused = town.wire.witnesses.take(SILO, cosigned.model_copy(update={"own_since": None}))
    assert refused.cosignature is None
    assert refused.since == seen
    # What was not shown to continue is not gone on from: neither by itself nor with a proof of nothing.
    further = sign_checkpoint(origin, LogHead(size=seen.size + 2, root="cd" * 32), key)
    from_fork = {"own_since": forked.head, "own_consistency": ("ab" * 32,)}
    lying = _cosigned(town, further.note()).model_copy(update=from_fork)
    assert town.wire.witnesses.take(SILO, lying).since == seen
    with pytest.raises(ProofRejected):
        town.wire.witnesses.take(SILO, lying.model_copy(update={"own_since": seen}))


def _cosigned(town: Town, own: str) -> Cosigned:
    """A cosignature of the silo on the aggregator's log, with that checkpoint of its own."""
    sent: list[dict[str, Any]] = []

    class Listening(Wire):
        def post_json(self, _path: str, document: dict[str, Any]) -> bytes:
            sent.append(document)
            return b"{}"

    town.witness.visit(AGGREGATOR, town.charter, Listening(town.aggregator))  # type: ignore[arg-type] # in memory
    return Cosigned.model_validate({**sent[-1], "own": own})


def test_a_server_learns_roots_and_no_entry(town: Town) -> None:
    town.visit()
    town.witness.log.record("job_approved", {"by": "dr-weiss", "job_digest": "ab" * 32})
    sent: list[bytes] = []

    class Listening(Wire):
        def post_json(self, path: str, document: dict[str, Any]) -> bytes:
            sent.append(canonical_bytes(document))
            return super().post_json(path, document)

    town.wire = Listening(town.aggregator)
    assert town.visit() == {AGGREGATOR}
    assert b"dr-weiss" not in b"".join(sent)
    assert b"job_approved" not in b"".join(sent)


def test_a_signature_that_is_not_the_servers_is_not_kept(town: Town) -> None:
    town.visit()
    own, stranger = town.witness.log.checkpoint(), town.world.federation.key("silo-2")
    shown = ServedCheckpoint.model_validate_json(town.wire.get_bytes("/v1/log/checkpoint", limit=1))
    key = town.charter.member(AGGREGATOR).verify_key
    origin = log_origin(town.charter.federation, AGGREGATOR)
    other = open_checkpoint(shown.checkpoint, origin, key)
    line = town.aggregator.state.store.log.cosign(other, 1).line()
    name = f"sealsum/{town.charter.federation}/witness/{AGGREGATOR}"
    for verify_key in (key, stranger.verify_key):
        with pytest.raises(SignatureRejected):
            keep_cosignature(town.witness.log.directory, own, line, name, verify_key)


def test_the_proof_between_any_two_heads_of_a_silos_log_holds(town: Town) -> None:
    log = town.witness.log
    heads = [log.head]
    for number in range(9):
        log.record("round_refused", {"rule": f"r{number}"})
        heads.append(log.head)
    for place, first in enumerate(heads):
        for later in heads[place:]:
            assert_extends(later, first, proof_since(log, first, later))
