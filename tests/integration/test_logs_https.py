"""A server's log over its API: checkpoints, proofs, redaction, and which cosignatures are taken."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from privacy.canonical import canonical_bytes
from privacy.errors import LedgerDamaged
from privacy.ids import Digest, PartyId
from privacy.transparency.checkpoint import (
    Checkpoint,
    LogHead,
    cosign,
    log_origin,
    open_checkpoint,
    sign_checkpoint,
    witness_name,
    witnesses_of,
)
from privacy.transparency.leaf import Redacted, parse_record
from privacy.transparency.merkle import verify_consistency, verify_inclusion
from privacy.transparency.witnessing import ProvenConsistency, ProvenInclusion, ServedCheckpoint
from tests.aggregator_world import World, on_loop

SERVER = "server-0"


class Log:
    """One share server's log, with some entries of two silos."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.store = self.world.servers[SERVER].store
        for silo in ("silo-1", "silo-2", "silo-1"):
            self.add(silo)

    def add(self, silo: str) -> None:
        with self.store.write() as transaction:
            transaction.record("update_refused", context="c" * 64, silo=silo, rules=["submission.late"])

    async def get(self, path: str, party: str = "silo-1", **params: int) -> httpx.Response:
        named = {name.rstrip("_"): str(value) for name, value in params.items()}
        return await self.world.as_party(party, SERVER).get(path, params=named)

    async def checkpoint(self) -> Checkpoint:
        served = ServedCheckpoint.model_validate_json((await self.get("/v1/log/checkpoint")).content)
        key = self.world.federation.key(SERVER).verify_key
        return open_checkpoint(served.checkpoint, self.origin, key)

    @property
    def origin(self) -> str:
        return log_origin(self.world.federation.name, PartyId(SERVER))

    async def cosign(
        self,
        silo: str,
        checkpoint: Checkpoint,
        own: LogHead | None = None,
        size: int | None = None,
        key: str = "",
    ) -> httpx.Response:
        federation = self.world.federation
        line = cosign(
            checkpoint, witness_name(federation.name, PartyId(silo)), federation.key(key or silo), 1
        ).line()
        origin = log_origin(federation.name, PartyId(silo))
        note = None if own is None else sign_checkpoint(origin, own, federation.key(silo)).note()
        document = {"size": checkpoint.head.size if size is None else size, "cosignature": line, "own": note}
        return await self.world.as_party(silo, SERVER).post(
            "/v1/log/cosignatures", content=canonical_bytes(document)
        )


@on_loop
async def test_every_entry_is_proven_and_every_prefix_extended(tmp_path: Path) -> None:
    log = Log(tmp_path)
    head = (await log.checkpoint()).head
    lines = (await log.get("/v1/log", "researcher")).content.splitlines()
    assert len(lines) == head.size
    root = bytes.fromhex(head.root)
    for seq, line in enumerate(lines):
        shown = await log.get("/v1/log/inclusion", seq=seq, size=head.size)
        proven = ProvenInclusion.model_validate_json(shown.content)
        leaf = parse_record(line).leaf_hash(log.origin)
        assert proven.leaf_hash == leaf.hex()
        verify_inclusion(seq, head.size, leaf, root, [bytes.fromhex(one) for one in proven.proof])
    for _ in range(5):
        log.add("silo-2")
    later = (await log.checkpoint()).head
    shown = await log.get("/v1/log/consistency", from_=head.size, to=later.size)
    proof = [bytes.fromhex(one) for one in ProvenConsistency.model_validate_json(shown.content).proof]
    verify_consistency(head.size, root, later.size, bytes.fromhex(later.root), proof)
    for path, params in (
        ("/v1/log/inclusion", {"seq": later.size, "size": later.size}),
        ("/v1/log/inclusion", {"seq": 0, "size": later.size + 1}),
        ("/v1/log/consistency", {"from_": 2, "to": later.size + 1}),
    ):
        assert (await log.get(path, **params)).status_code == 404


@on_loop
async def test_a_silo_reads_what_is_about_it_and_the_leaves_stay_the_same(tmp_path: Path) -> None:
    log = Log(tmp_path)
    whole = [parse_record(line) for line in (await log.get("/v1/log", "researcher")).content.splitlines()]
    shown = [parse_record(line) for line in (await log.get("/v1/log")).content.splitlines()]
    assert [one.leaf(log.origin) for one in shown] == [one.leaf(log.origin) for one in whole]
    _started, own, others, _ = shown
    assert own.body["silo"] == "silo-1"
    assert others.body == {"context": "c" * 64}
    assert isinstance(others.fields["silo"], Redacted)
    assert len((await log.get("/v1/log", size=2)).content.splitlines()) == 2


@on_loop
async def test_cosignatures_are_taken_from_whom_they_are_and_stored(tmp_path: Path) -> None:
    log = Log(tmp_path)
    checkpoint = await log.checkpoint()
    own = LogHead(size=5, root=Digest("ab" * 32))
    assert (await log.cosign("silo-1", checkpoint, key="silo-2")).status_code == 401
    assert (await log.cosign("silo-1", checkpoint, size=99)).status_code == 404
    for silo in ("silo-1", "silo-2", "silo-3"):
        assert (await log.cosign(silo, checkpoint, own)).status_code == 202
    served = ServedCheckpoint.model_validate_json((await log.get("/v1/log/checkpoint")).content)
    assert served.witnessed is not None
    federation = log.world.federation
    keys = {PartyId(silo): federation.key(silo).verify_key for silo in federation.charter.silos}
    witnessed = open_checkpoint(served.witnessed, log.origin, federation.key(SERVER).verify_key)
    assert witnesses_of(witnessed, federation.name, keys) == {"silo-1", "silo-2", "silo-3"}
    entries = [parse_record(line) for line in (await log.get("/v1/log", "researcher")).content.splitlines()]
    assert [one.body["silo"] for one in entries if one.kind == "silo_log_seen"] == [
        "silo-1",
        "silo-2",
        "silo-3",
    ]
    # It outlives the process.
    again = log.world.start_server(SERVER)
    with again.store.read() as view:
        kept = again.store.log.kept_checkpoint(view.connection, "witnessed")
    assert kept == witnessed


@pytest.mark.parametrize(
    "head", [LogHead(size=4, root=Digest("ab" * 32)), LogHead(size=5, root=Digest("cd" * 32))]
)
@on_loop
async def test_a_silos_own_log_that_goes_back_or_forks_is_refused(tmp_path: Path, head: LogHead) -> None:
    log = Log(tmp_path)
    checkpoint = await log.checkpoint()
    assert (
        await log.cosign("silo-1", checkpoint, LogHead(size=5, root=Digest("ab" * 32)))
    ).status_code == 202
    refused = await log.cosign("silo-1", checkpoint, head)
    assert refused.status_code == 409
    assert "expected it to extend its 5 entries" in refused.text


@on_loop
async def test_a_database_with_other_entries_than_were_signed_does_not_start(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with log.store.write() as transaction:
        log.store.log.keep_checkpoint(transaction.connection, log.store.log.checkpoint())
    for statement, says in (
        ("DELETE FROM log_entries WHERE seq = 3", "expected the 4 entries that we signed"),
        (
            "UPDATE log_entries SET line = (SELECT line FROM log_entries WHERE seq = 1) WHERE seq = 2",
            "got entry 2",
        ),
    ):
        with log.store.write() as transaction:
            transaction.connection.exec_driver_sql(statement)
        with pytest.raises(LedgerDamaged, match=says):
            log.world.start_server(SERVER)
