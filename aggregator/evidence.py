"""A job's evidence: the signed messages of its rounds, verbatim, and the log, as one streamed document.

{"charter": …, "previous": the charter before it or null, "job": …,
 "rounds": [{"offer", "manifests", …, "result"}], "attacks": [envelopes], "log": […], "checkpoint": …,
 "witnessed": …}

Every round has every section, whatever its scheme; those of other schemes are empty. What could open an
update, or is sealed to one party, is not evidence: no shares, unmasking shares, wrapped keys or partial
decryptions. What is signed of a partial decryption are its digests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from aggregator.attack_results import believed, results_of
from aggregator.job_rows import endorsed_charter, job_row, rounds_of
from aggregator.retention import assert_not_expired
from aggregator.state import AggregatorState
from aggregator.store import Reader
from privacy.canonical import canonical_bytes
from privacy.ids import Context, Digest, JobId, PartyId
from privacy.officers import read_body
from privacy.roster import Charter
from privacy.transparency.checkpoint import parse_checkpoint
from privacy.wire.charter import EndorsedCharter
from privacy.wire.envelope import Envelope, MessageKind

_BY_SILO: Mapping[str, tuple[MessageKind, ...]] = {
    "manifests": (
        "manifest",
        "pairwise_masked",
        "he_manifest",
        "validity_manifest",
        "threshold_manifest",
    ),
    "refusals": ("refusal",),
    "keys": ("pairwise_keys", "threshold_commit"),
    "consistency": ("pairwise_consistency",),
    "opened": ("he_opened", "threshold_partial"),
    "proofs": ("validity_proof",),
}
"""Section → the kinds of message in it, by silo; a scheme has one kind of manifest."""
_BY_SERVER: Mapping[str, tuple[MessageKind, ...]] = {
    "accepted": ("accepted",),
    "survivors": ("survivors",),
    "openings": ("opening",),
    "sum": ("he_sum", "threshold_sum"),
    "coins": ("coin1_commitment", "coin1_reveal", "coin2_commitment", "coin2_reveal"),
    "verdicts": ("validity_verdict",),
}
"""Section → the kinds of message in it, as a list: of share servers, or of the aggregator."""


def job_evidence(state: AggregatorState, job: JobId) -> Iterator[bytes]:
    """JSON in pieces, one round at a time.

    Raises:
        NotFound: no such job; OutOfOrder: it has expired; raised before the first piece.
    """
    with state.store.read() as view:
        row = job_row(view, job)
        assert_not_expired(view, job)
        contexts = [Context(Digest(stored.ctx)) for stored in rounds_of(view, job)]
        # Not the one in force now: the job was signed under its own.
        charter = endorsed_charter(view, row.spec.charter) or state.held.endorsed
        before = read_body(charter.charter, Charter).previous
        previous = None if before is None else endorsed_charter(view, Digest(before))
    return _pieces(state, charter, previous, row.envelope, row.spec.digest, contexts)


def _pieces(
    state: AggregatorState,
    charter: EndorsedCharter,
    previous: EndorsedCharter | None,
    job: Envelope,
    digest: Digest,
    contexts: list[Context],
) -> Iterator[bytes]:
    yield b'{"charter":' + canonical_bytes(charter)
    yield b',"previous":' + (b"null" if previous is None else canonical_bytes(previous))
    yield b',"job":' + canonical_bytes(job) + b',"rounds":['
    written = 0
    for ctx in contexts:
        with state.store.read() as view:
            messages = _round(view, ctx)
        if messages["result"] is not None:  # an open round is not evidence yet
            yield (b"," if written else b"") + json.dumps(messages, separators=(",", ":")).encode()
            written += 1
    with state.store.read() as view:
        signed = results_of(view, digest)
    # A pack is read by the job's own roster: one result by who enrolled later would fail all of it.
    attacks = believed(read_body(charter.charter, Charter), digest, signed)
    yield b'],"attacks":' + canonical_bytes([one.envelope.model_dump(mode="json") for one in attacks])
    yield b',"log":['
    served = state.witnesses.served()
    size = parse_checkpoint(served.checkpoint).head.size  # the log itself may have grown since
    with state.store.read() as view:
        for number, line in enumerate(state.store.log.lines(view.connection, size)):
            yield (b"," if number else b"") + line
    yield b"]," + canonical_bytes(served)[1:]  # "checkpoint" over exactly these entries, "witnessed"


def _round(view: Reader, ctx: Context) -> dict[str, Any]:
    def sent(kind: MessageKind) -> dict[PartyId, Any]:
        return {party: one.model_dump(mode="json") for party, one in view.messages(ctx, kind).items()}

    return {
        "offer": next(iter(sent("offer").values()), None),
        **{
            section: {party: one for kind in kinds for party, one in sent(kind).items()}
            for section, kinds in _BY_SILO.items()
        },
        **{
            section: [one for kind in kinds for one in sent(kind).values()]
            for section, kinds in _BY_SERVER.items()
        },
        "result": next(iter(sent("result").values()), None),
    }
