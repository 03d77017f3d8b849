"""A job's evidence: every signed message of its rounds, verbatim, and the log, as one streamed document.

{"charter": …, "job": …, "rounds": [{"offer", "manifests", "refusals", "accepted", "survivors",
 "openings", "result"}], "log": […]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from aggregator.job_rows import charter_envelope, job_row, rounds_of
from aggregator.state import AggregatorState
from aggregator.store import Reader
from privacy.canonical import canonical_bytes
from privacy.ids import Context, Digest, JobId
from privacy.wire.envelope import Envelope, MessageKind


def job_evidence(state: AggregatorState, job: JobId) -> Iterator[bytes]:
    """JSON in pieces, one round at a time.

    Raises:
        NotFound: no such job; raised before the first piece.
    """
    with state.store.read() as view:
        row = job_row(view, job)
        contexts = [Context(Digest(stored.ctx)) for stored in rounds_of(view, job)]
        # Not the one in force now: the job was signed under its own.
        charter = charter_envelope(view, row.spec.charter) or state.held.envelope
    return _pieces(state, charter, row.envelope, contexts)


def _pieces(
    state: AggregatorState, charter: Envelope, job: Envelope, contexts: list[Context]
) -> Iterator[bytes]:
    yield b'{"charter":' + canonical_bytes(charter)
    yield b',"job":' + canonical_bytes(job) + b',"rounds":['
    written = 0
    for ctx in contexts:
        with state.store.read() as view:
            messages = _round(view, ctx)
        if messages["result"] is not None:  # an open round is not evidence yet
            yield (b"," if written else b"") + json.dumps(messages, separators=(",", ":")).encode()
            written += 1
    yield b'],"log":['
    with state.store.read() as view:
        for number, line in enumerate(state.store.log.lines(view.connection)):
            yield (b"," if number else b"") + line
    yield b"]}"


def _round(view: Reader, ctx: Context) -> dict[str, Any]:
    def by_party(kind: MessageKind) -> dict[str, Any]:
        return {party: sent.model_dump(mode="json") for party, sent in view.messages(ctx, kind).items()}

    return {
        "offer": next(iter(by_party("offer").values()), None),
        "manifests": by_party("manifest"),
        "refusals": by_party("refusal"),
        "accepted": list(by_party("accepted").values()),
        "survivors": list(by_party("survivors").values()),
        "openings": list(by_party("opening").values()),
        "result": next(iter(by_party("result").values()), None),
    }
