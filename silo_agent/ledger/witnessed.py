"""Whether this silo's ledgers hold every entry that others have seen of them: no file of its own can tell.

A ledger that was restored with all its files, or a cloned machine, looks whole from inside. Every manifest
names the ledger's head, and each server keeps the furthest; here they are opened and looked up. Knows no
network. A server can hide a head, so all are asked (docs/operating.md says what remains).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from policies.rules_submission import manifest_type
from privacy.chain import Head
from privacy.errors import LedgerDamaged, PeerFault, Unprocessable
from privacy.ids import PartyId, SiloId
from privacy.plan import JobSpec
from privacy.wire.envelope import open_envelope
from privacy.wire.ledger_heads import WitnessedHead, WitnessedHeads
from privacy.wire.messages import RoundOffer

_MANIFEST_BYTES_MAX = 8 << 20


@dataclass(frozen=True)
class Witness:
    """A head of one of this silo's ledgers, and which server has seen it."""

    server: PartyId
    dataset: str
    head: Head


def open_witnessed(
    answers: Mapping[PartyId, WitnessedHeads], silo: SiloId, verify_key: str
) -> tuple[Witness, ...]:
    """Believe what servers show of this silo's heads, each after these checks:

    (1) the manifest is bound to the plan inside the offer, and the plan to the job inside it, which names the
    dataset; (2) this silo's own key signed the manifest.

    Raises:
        LedgerDamaged: (2) another key did, under this silo's name. Unprocessable: (1).
    """
    return tuple(
        _open(server, one, silo, verify_key) for server, answer in answers.items() for one in answer.heads
    )


def _open(server: PartyId, shown: WitnessedHead, silo: SiloId, verify_key: str) -> Witness:
    # (1)
    try:
        plan = RoundOffer.model_validate_json(shown.offer.body).plan
        job = JobSpec.model_validate_json(RoundOffer.model_validate_json(shown.offer.body).job.body)
    except ValidationError as error:
        raise Unprocessable(f"ledger heads of {server}: expected an offer with its job") from error
    if plan.context != shown.manifest.context or plan.job_digest != job.digest:
        raise Unprocessable(f"ledger heads of {server}: expected the offer that its manifest answers")
    # (2)
    try:
        opened = open_envelope(
            shown.manifest,
            manifest_type(plan),
            kind=shown.manifest.kind,
            context=plan.context,
            verify_key_of=lambda _sender: verify_key,
            max_bytes=_MANIFEST_BYTES_MAX,
        )
    except PeerFault as error:
        raise LedgerDamaged(
            f"ledger of {job.dataset!r}: {server} shows a manifest of {silo} that this silo's key did "
            f"not sign ({error}); either {server} is at fault, or {silo} was enrolled anew under an old "
            "name: restore the old identity and ledger, or have the officers enrol it under a new name"
        ) from error
    if opened.message.silo != silo or opened.sender != silo:
        raise Unprocessable(f"ledger heads of {server}: expected manifests of {silo}")
    return Witness(server, job.dataset, opened.message.ledger_head)


def lacking(path: object, dataset: str, own: Head, seen: Witness) -> LedgerDamaged:
    """What to say, and to do, where a ledger lacks an entry that a server has seen."""
    return LedgerDamaged(
        f"{path}: dataset {dataset!r}: expected entry {seen.head.seq} ({seen.head.hash[:16]}…), which "
        f"{seen.server} has seen signed by this silo; got a ledger that ends at entry {own.seq} "
        f"({own.hash[:16]}…). It was restored from an older copy, or another copy of this silo is in use. "
        f"Stop every other copy; then sealsum silo ledger restore --dataset {dataset} --from FILE (a ledger "
        "export or an evidence pack), or, if the entries are lost for good, sealsum silo ledger write-off "
        f"--dataset {dataset} --yes"
    )


def unregistered(seen: Witness) -> LedgerDamaged:
    """What to say, and to do, where a dataset that has spent is registered no more: renamed, it would spend
    its budget twice."""
    return LedgerDamaged(
        f"datasets: expected {seen.dataset}, of whose ledger {seen.server} has seen entry {seen.head.seq} "
        "signed by this silo; got no dataset of that name. Register it again under its old name, which its "
        "budget goes by; or, if its patients are in no other dataset here, name it under retired_datasets"
    )
