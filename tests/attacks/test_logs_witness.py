"""What silos as witnesses catch: rewritten, cut, forked logs, and cosignatures that are none."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from policies.findings import PolicyRefusal
from privacy.canonical import canonical_bytes
from privacy.errors import SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.keystore import load_identity
from privacy.transparency.checkpoint import (
    LogHead,
    NoteSignature,
    cosign,
    parse_checkpoint,
    parse_signature_line,
    witness_name,
)
from privacy.transparency.witnessing import OfferedLog, ProvenConsistency
from silo_agent.witness import Witness
from tests.federation import Federation
from tests.log_book import LogBook

ENOUGH = 2
AGGREGATOR = PartyId("aggregator")


@dataclass
class Ledgers:
    """What a silo's ledgers have seen of the log."""

    heads: tuple[LogHead, ...] = ()

    def heads_seen(self) -> dict[str, tuple[LogHead, ...]]:
        return {"heart": self.heads}


@dataclass
class Wire:
    """The aggregator as a silo reaches it: one face of its log."""

    book: LogBook
    cosigned: list[dict[str, Any]] = field(default_factory=list)

    def post_json(self, _path: str, document: dict[str, Any]) -> bytes:
        self.cosigned.append(document)
        return b""

    def get_bytes(self, _path: str, *, limit: int, params: dict[str, str]) -> bytes:
        first, second = int(params["from"]), int(params["to"])
        proof = self.book.consistency(first, second)
        return canonical_bytes(ProvenConsistency(first=first, second=second, proof=proof))


class Town:
    """One federation, its aggregator's log, and its silos as witnesses."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.federation = Federation()
        self.book = LogBook("trial", "aggregator", self.federation.key("aggregator"))
        self.book.federation = self.federation.name
        self.book.add("started", party="aggregator")
        self.silos = {silo: self.witness(silo) for silo in self.federation.charter.silos}

    def witness(self, silo: str, ledgers: Ledgers | None = None) -> Witness:
        directory = self.root / silo
        known = (directory / "identity.key").exists()
        identity = load_identity(directory) if known else self.federation.identity(silo, directory)
        return Witness(directory, identity, ledgers or Ledgers())  # type: ignore[arg-type] # only this is asked

    def judge(self, silo: str, offered: OfferedLog, book: LogBook | None = None) -> Wire:
        """One silo's part of a round: it judges the view, and cosigns."""
        wire = Wire(book or self.book)
        witness = self.silos[PartyId(silo)]
        try:
            sighting = witness.judge(offered, AGGREGATOR, self.federation.charter, ENOUGH, wire)  # type: ignore[arg-type]
        except PolicyRefusal as refusal:
            refusal.__notes__ = [str(len(wire.cosigned))]
            raise
        witness.attest(sighting, wire, durably=True)  # type: ignore[arg-type]
        return wire

    def round(self, silos: Sequence[str], book: LogBook | None = None) -> None:
        """An offer to these silos, who take part; then the log grows."""
        face = book or self.book
        offered = face.offer()
        lines = [self.judge(silo, offered, face).cosigned[0]["cosignature"] for silo in silos]
        if len(lines) >= ENOUGH:
            checkpoint = parse_checkpoint(offered.checkpoint)
            face.witnessed = checkpoint.with_cosignatures([parse_signature_line(line) for line in lines])
        face.add("round_offered", context="c" * 64, round=len(face.entries))
        face.add("model_published", context="c" * 64)

    def refused(self, silo: str, offered: OfferedLog, book: LogBook | None = None) -> str:
        with pytest.raises(PolicyRefusal) as refusal:
            self.judge(silo, offered, book)
        rule: str = refusal.value.findings[0].rule
        kinds = [line for line in self.silos[PartyId(silo)].log.lines() if b"witness_refused" in line]
        assert kinds, "the silo's own log says nothing of it"
        return rule


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


EVERYBODY = ("silo-1", "silo-2", "silo-3")


def copy_of(book: LogBook, size: int | None = None) -> LogBook:
    copied = book.beginning(len(book.entries) if size is None else size)
    copied.witnessed, copied.offered = book.witnessed, book.offered
    return copied


def test_an_honest_log_is_witnessed_round_after_round(town: Town) -> None:
    for _ in range(6):
        town.round(EVERYBODY)


def test_a_silo_that_was_away_asks_for_its_own_proof(town: Town) -> None:
    town.round(EVERYBODY)
    for _ in range(3):
        town.round(EVERYBODY[:2])
    town.round(EVERYBODY)


def test_a_rewritten_history_is_refused(town: Town) -> None:
    for _ in range(2):
        town.round(EVERYBODY)
    for change in (
        lambda kind, body: {**body, "party": "another"} if kind == "started" else body,
        lambda kind, body: {**body, "round": 99} if body.get("round") == 1 else body,
    ):
        rewritten = town.book.rewritten(change)
        rewritten.add("job_ended", job="heart")
        rewritten.offered = town.book.offered
        assert town.refused("silo-1", rewritten.offer(), rewritten) == "witness.inconsistent"


def test_a_dropped_or_reordered_entry_is_refused(town: Town) -> None:
    for _ in range(2):
        town.round(EVERYBODY)
    honest = town.book.entries
    for order in (honest[:1] + honest[2:], [honest[0], honest[2], honest[1], *honest[3:]]):
        face = LogBook(town.book.federation, "aggregator", town.book.key)
        for place, entry in enumerate(order):
            face.put(entry.model_copy(update={"seq": place}))
        for _ in range(3):
            face.add("job_ended", job="heart")
        face.offered = town.book.offered
        assert town.refused("silo-2", face.offer(), face) == "witness.inconsistent"


def test_a_rolled_back_log_is_refused_also_once_it_has_grown_again(town: Town) -> None:
    for _ in range(3):
        town.round(EVERYBODY)
    restored = town.book.beginning(3)
    assert town.refused("silo-1", restored.offer(), restored) == "witness.rolled_back"
    while len(restored.entries) < 12:
        restored.add("job_ended", job="another")
    assert town.refused("silo-1", restored.offer(), restored) == "witness.inconsistent"
    same = town.book.head.size - 2  # what silo-1 saw last
    assert town.refused("silo-1", restored.beginning(same).offer()) == "witness.split_view"


def test_two_faces_cannot_both_go_on(town: Town) -> None:
    """One federation, one past; from here on silo-3 alone is shown another log."""
    for _ in range(3):
        town.round(EVERYBODY)
    other = copy_of(town.book)
    other.add("job_ended", job="hidden")
    for _ in range(2):  # what silo-3 cosigned two offers ago is from before the fork
        town.round(EVERYBODY[:2])
        town.round(("silo-3",), other)
    town.round(EVERYBODY[:2])  # these two are enough for their face
    offered = other.offer()
    assert town.refused("silo-3", offered, other) == "witness.too_few"
    # Nor does the other face's quorum help.
    borrowed = offered.model_copy(
        update={"witnessed": town.book.witnessed.note() if town.book.witnessed else None}
    )
    assert town.refused("silo-3", borrowed, other) == "witness.split_view"


def test_a_silo_shown_another_log_from_the_very_first_offer_stops_at_the_third(town: Town) -> None:
    other = LogBook(town.book.federation, "aggregator", town.book.key)
    other.add("started", party="aggregator")
    for _ in range(2):
        town.round(("silo-1", "silo-2"))
        town.round(("silo-3",), other)
    assert town.refused("silo-3", other.offer(), other) == "witness.too_few"


def test_a_log_that_seems_to_stand_still_does_not_escape_the_others(town: Town) -> None:
    """Shown the very same checkpoint again and again, a silo would never learn what the others see."""
    offered = town.book.offer()
    for _ in range(2):
        town.judge("silo-1", offered)
    assert town.refused("silo-1", offered) == "witness.too_few"


def test_too_few_is_said_and_cosigned_so_that_the_next_offer_may_go_on(town: Town) -> None:
    for _ in range(3):
        town.round(EVERYBODY)
    for _ in range(2):
        town.round(("silo-1",))  # the others were away
    offered = town.book.offer()
    lines = []
    for silo in ("silo-1", "silo-2"):
        wire = Wire(town.book)
        witness = town.silos[PartyId(silo)]
        if silo == "silo-1":
            with pytest.raises(PolicyRefusal, match="Too few silos have cosigned"):
                witness.judge(offered, AGGREGATOR, town.federation.charter, ENOUGH, wire)  # type: ignore[arg-type]
        else:
            wire = town.judge(silo, offered)
        lines.append(wire.cosigned[0]["cosignature"])
    checkpoint = parse_checkpoint(offered.checkpoint)
    town.book.witnessed = checkpoint.with_cosignatures([parse_signature_line(line) for line in lines])
    town.book.add("round_aborted", context="c" * 64)
    town.round(EVERYBODY[:2])


def test_forged_and_strange_cosignatures_do_not_count(town: Town) -> None:
    for _ in range(3):
        town.round(EVERYBODY)
    offered = town.book.offer()
    checkpoint = parse_checkpoint(offered.checkpoint)
    name = witness_name(town.federation.name, PartyId("silo-2"))
    honest = cosign(checkpoint, name, town.federation.key("silo-2"), 1)
    forged = NoteSignature(name, honest.key_id, honest.signature[:-1] + bytes([honest.signature[-1] ^ 1]))
    stranger = cosign(checkpoint, name, SigningKey.generate(), 1)
    twice = cosign(checkpoint, name, town.federation.key("silo-2"), 2)

    def shown(*lines: NoteSignature) -> OfferedLog:
        note = checkpoint.with_cosignatures(lines).note()
        return offered.model_copy(update={"witnessed": note, "witnessed_consistency": ()})

    with pytest.raises(SignatureRejected):
        town.judge("silo-1", shown(honest, forged))
    assert town.refused("silo-1", shown(honest, stranger)) == "witness.too_few"
    assert town.refused("silo-1", shown(honest, twice)) == "witness.too_few"


def test_a_cosignature_of_an_older_checkpoint_is_no_cosignature_of_this_one(town: Town) -> None:
    for _ in range(3):
        town.round(EVERYBODY)
    assert town.book.witnessed is not None
    old = [line for line in town.book.witnessed.signatures if "/witness/" in line.name]
    offered = town.book.offer()
    replayed = parse_checkpoint(offered.checkpoint).with_cosignatures(old).note()
    with pytest.raises(SignatureRejected, match="not over these bytes"):
        town.judge("silo-1", offered.model_copy(update={"witnessed": replayed, "witnessed_consistency": ()}))


def test_an_old_quorum_is_not_shown_for_ever(town: Town) -> None:
    for _ in range(2):
        town.round(EVERYBODY)
    old = town.book.witnessed
    town.round(EVERYBODY)
    town.round(EVERYBODY)
    town.book.witnessed = old
    assert town.refused("silo-1", town.book.offer()) == "witness.too_few"


@pytest.mark.parametrize("in_ledger", [False, True])
def test_a_restart_forgets_nothing(town: Town, in_ledger: bool) -> None:
    """What is not in ``witness.json`` is in the ledger: a round under DP writes it once."""
    for _ in range(2):
        town.round(EVERYBODY)
    silo = town.silos[PartyId("silo-1")]
    silo.close()
    ledgers = Ledgers()
    if in_ledger:
        before = (town.root / "silo-1" / "witness.json").read_bytes()
        town.silos[PartyId("silo-1")] = silo = town.witness("silo-1")
        offered = town.book.offer()
        wire = Wire(town.book)
        sighting = silo.judge(offered, AGGREGATOR, town.federation.charter, ENOUGH, wire)  # type: ignore[arg-type]
        silo.attest(sighting, wire, durably=False)  # type: ignore[arg-type]
        assert (town.root / "silo-1" / "witness.json").read_bytes() == before
        ledgers = Ledgers((sighting.checkpoint.head,))
        silo.close()
    last = town.book.head.size if in_ledger else town.book.head.size - 2
    town.silos[PartyId("silo-1")] = town.witness("silo-1", ledgers)
    cut = town.book.beginning(last - 1)
    assert town.refused("silo-1", cut.offer()) == "witness.rolled_back"


def test_only_the_aggregators_own_signature_makes_a_checkpoint(town: Town) -> None:
    offered = town.book.offer()
    raw = base64.b64encode(bytes(68)).decode()
    note = offered.checkpoint.split("\n\n")[0] + f"\n\n— {town.book.origin} {raw}\n"
    with pytest.raises(SignatureRejected, match="owner's key"):
        town.judge("silo-1", offered.model_copy(update={"checkpoint": note}))
