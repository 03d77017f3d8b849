"""A server's log over HTTP: entries as far as a reader may read them, checkpoints, proofs, cosignatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final

from fastapi import FastAPI, Query, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from aggregator.operators.callers import Identified
from aggregator.store import Store
from aggregator.web_body import parsed, read_body
from aggregator.web_common import AnyoneCalling, Caller
from aggregator.witnesses import Witnesses
from privacy.canonical import canonical_bytes, parse_canonical
from privacy.ids import PartyId
from privacy.roster import Member
from privacy.transparency.leaf import Record, parse_record
from privacy.transparency.witnessing import Cosigned, ProvenConsistency, ProvenInclusion

COSIGNED_BYTES_MAX: Final = 1 << 18
OPEN_FIELDS: Final = frozenset({"job", "context", "round", "charter", "model", "size", "root"})
"""What a silo may read of every entry; the rest names other silos, reasons and survivors."""

Size = Annotated[int | None, Query(ge=0, lt=1 << 53)]
Count = Annotated[int, Query(ge=0)]
From = Annotated[int, Query(ge=0, alias="from")]


def add_log_routes(
    app: FastAPI, store: Store, witnesses: Witnesses, between_rounds: Callable[[], bool]
) -> None:
    """``between_rounds``: no transaction of a round is to come that would store what witnesses sent."""

    @app.get("/v1/log")
    async def log(reader: AnyoneCalling, size: Size = None) -> StreamingResponse:
        return StreamingResponse(_lines(store, reader, size), media_type="application/jsonl")

    @app.get("/v1/log/checkpoint")
    async def checkpoint() -> Response:
        return _json(witnesses.served())

    @app.get("/v1/log/consistency")
    async def consistency(first: From, to: Count) -> Response:
        with store.read() as view:
            proof = store.log.consistency(view.connection, first, to)
        return _json(ProvenConsistency(first=first, second=to, proof=proof))

    @app.get("/v1/log/inclusion")
    async def inclusion(seq: Count, size: Count) -> Response:
        with store.read() as view:
            leaf, proof = store.log.inclusion(view.connection, seq, size)
        return _json(ProvenInclusion(seq=seq, size=size, leaf_hash=leaf, proof=proof))

    @app.post("/v1/log/cosignatures")
    async def cosignature(request: Request, silo: Caller) -> Response:
        raw = await read_body(request, COSIGNED_BYTES_MAX)
        in_turn = witnesses.take(silo.id, parsed(Cosigned, parse_canonical(raw, COSIGNED_BYTES_MAX)))
        # Each write makes a longer log to cosign: beyond the quota it waits for a round's own transaction.
        if between_rounds() and store.refusals.take(f"cosignature {silo.id}") is not None:
            with store.write() as transaction:
                witnesses.store(transaction)
        return Response(canonical_bytes(in_turn), status_code=202, media_type="application/json")


def readable_by(record: Record, silo: PartyId) -> Record:
    """An entry as a silo may read it: whole if it is about this silo, else its open fields."""
    return record if record.body.get("silo") == silo else record.redact(OPEN_FIELDS)


def _lines(store: Store, reader: Identified, size: int | None) -> Iterator[bytes]:
    silo = reader.id if isinstance(reader, Member) and reader.role == "silo" else None
    with store.read() as view:
        for line in store.log.lines(view.connection, size):
            shown = line if silo is None else readable_by(parse_record(line), silo).line()
            yield shown + b"\n"


def _json(document: BaseModel) -> Response:
    return Response(canonical_bytes(document), media_type="application/json")
