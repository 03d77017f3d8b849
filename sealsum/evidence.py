"""Builds the evidence pack of a job: what was signed, logged and charged, in one file that verifies offline.

Adds nothing of its own but the claim, the texts for people and one signature. Knows no network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from privacy.canonical import Frozen, canonical_bytes, sha256_hex
from privacy.chain import Entry, parse_entry, verify_entries
from privacy.errors import MalformedMessage, OutOfOrder
from privacy.ids import JobName, PartyId, ServerId, SiloId, SiloName
from privacy.keystore import Identity
from privacy.plan import JobSpec
from privacy.roster import Charter
from privacy.transparency.checkpoint import Note
from privacy.transparency.leaf import Record
from privacy.wire.charter import EndorsedCharter, open_charter
from privacy.wire.envelope import Envelope, open_envelope
from privacy.wire.messages import MAX_BYTES, RoundOffer
from sealsum.evidence_archive import canonical_zip
from sealsum.evidence_attack import ENTRY as ATTACKS_ENTRY
from sealsum.evidence_attack import checked_results
from sealsum.evidence_claim import dp_claim
from sealsum.evidence_guide import guide
from sealsum.evidence_redaction import redacted, redacted_before, wished
from sealsum.evidence_replay import accountant_replay
from sealsum.evidence_silos import HandedOver, all_ledgers, read_handover
from sealsum.evidence_software import bill_of_materials, versions
from sealsum.report.content import Collected, report_of
from sealsum.report.html import html_report
from sealsum.report.pdf import pdf_report
from sealsum.served_log import ServedLog

PACK = "sealsum-evidence/1"
PREVIOUS = "who/previous.json"
VOUCHED = "tests/vouched.json"
_SIGN_LABEL = b"sealsum/pack/v1\x00"


class RoundEvidence(Frozen):
    """The signed messages of one round, as the aggregator kept them; sections of other schemes are empty."""

    offer: Envelope
    manifests: dict[SiloName, Envelope]
    refusals: dict[SiloName, Envelope]
    accepted: tuple[Envelope, ...]
    survivors: tuple[Envelope, ...]
    openings: tuple[Envelope, ...]
    keys: dict[SiloName, Envelope]
    """pairwise: each silo's keys of the round. threshold_*: its commitment to a key share."""
    consistency: dict[SiloName, Envelope]
    """pairwise: survivors' signatures on the survivors."""
    sum: tuple[Envelope, ...]
    """bfv, ckks, threshold_*: the aggregator's one sum of ciphertexts."""
    opened: dict[SiloName, Envelope]
    """bfv, ckks: what survivors say that it decrypts to, by digest. threshold_*: who helped to open it."""
    coins: tuple[Envelope, ...]
    """validity: commitments and reveals of both tosses."""
    proofs: dict[SiloName, Envelope]
    verdicts: tuple[Envelope, ...]
    result: Envelope


class JobEvidence(Frozen):
    """What ``GET /v1/jobs/{job}/evidence`` answers."""

    charter: EndorsedCharter
    previous: EndorsedCharter | None = None
    """The charter that this one replaced, if this aggregator has run under it."""
    job: Envelope
    rounds: tuple[RoundEvidence, ...]
    attacks: tuple[Envelope, ...] = ()
    """Results of attacks on the job, as members signed them."""
    log: tuple[Record, ...]
    checkpoint: Note
    """The aggregator's, over exactly these entries."""
    witnessed: Note | None


class _Manifest(Frozen):
    """``manifest.json``: which files there are, and who vouches for the collection."""

    pack: str
    federation: str
    job: JobName
    created_at: str
    signer: PartyId
    files: dict[str, str]


def build_pack(
    evidence: Mapping[str, Any],
    server_logs: Mapping[ServerId, ServedLog],
    ledgers: Mapping[SiloId, bytes],
    signer: Identity,
    created_at: str,
    attack_results: bytes | None = None,
    handovers: Iterable[bytes] = (),
    redact: Collection[str] = (),
) -> bytes:
    """The pack as canonical ZIP bytes; the same arguments give the same bytes.

    Args:
        evidence: the aggregator's answer.
        server_logs: each share server's log and checkpoints.
        ledgers: the ledgers of the silos that took part, one entry a line.
        signer: the member of the federation who vouches for the collection.
        created_at: RFC 3339, UTC.
        handovers: files of ``sealsum silo export``; a silo's ledger need not come besides.
        redact: what to leave out, as ``sealsum audit redact`` takes it.
        attack_results: what ``sealsum audit attack`` wrote, if it is to go along; no verifier believes it.

    Raises:
        MalformedMessage: the answer is not evidence. SignatureRejected: charter or job are not signed by
            whom they should. LedgerDamaged: a ledger does not verify. NotAllowed: a party is unknown.
        OutOfOrder: a round of the job is open, so its story is not whole yet.
    """
    found = _read(evidence)
    charter = open_charter(found.charter, signer.pin.officers, signer.pin.federation).charter
    job = _open_job(found.job, charter)
    _refuse_open_rounds(found, job)
    handed = [read_handover(raw, charter) for raw in handovers]
    ledgers = all_ledgers(ledgers, handed)
    entries = {silo: tuple(_ledger(charter, job, silo, raw)) for silo, raw in ledgers.items()}
    (aggregator,) = (member.id for member in charter.with_role("aggregator"))
    attacks = None if attack_results is None else checked_results(attack_results)
    files: dict[str, bytes] = {
        **({} if attack_results is None else {ATTACKS_ENTRY: attack_results}),
        "who/charter.json": canonical_bytes(found.charter.charter),
        "who/officers.json": canonical_bytes([one.model_dump(mode="json") for one in found.charter.officers]),
        **({} if not found.attacks else {VOUCHED: canonical_bytes(_plain(found.attacks))}),
        **({} if found.previous is None else {PREVIOUS: canonical_bytes(found.previous.charter)}),
        "policy/policy.yaml": charter.policy_text.encode(),
        "job/job.json": canonical_bytes(found.job),
        "data/card.json": canonical_bytes(_card(job, handed)),
        "dp/claim.json": canonical_bytes(dp_claim(job, entries, attacks)),
        "dp/accountant-replay.json": canonical_bytes(accountant_replay(job, entries)),
        "software/versions.json": canonical_bytes(versions()),
        "software/sbom.cdx.json": canonical_bytes(bill_of_materials(created_at)),
        "VERIFY.md": guide(signer.pin.federation, charter.officers).encode(),
        **ServedLog(
            b"".join(record.line() + b"\n" for record in found.log), found.checkpoint, found.witnessed
        ).files(aggregator),
        **{name: raw for server, log in server_logs.items() for name, raw in log.files(server).items()},
        **{f"silos/{one.silo}.json": one.document for one in handed},
        **{name: raw for one in handed for name, raw in one.log.files(one.silo).items()},
        **{f"dp/ledger/{silo}.jsonl": raw for silo, raw in ledgers.items()},
        **{_round_name(round_, charter): canonical_bytes(round_) for round_ in found.rounds},
    }
    gone = redacted_before(files, "redacted by the log's owner when another job's evidence had expired")
    files["REDACTIONS.json"] = canonical_bytes({"redactions": gone})
    wish = wished(redact)
    if wish.fields or wish.silos:
        files = redacted(files, wish, "left out at export")
    collected = Collected(signer.pin.party, created_at, f"--officers {charter.officers}")
    return sealed_pack(with_report(files, collected), signer, job.job, created_at)


def with_report(files: Mapping[str, bytes], collected: Collected) -> dict[str, bytes]:
    """The files, and the report that is written from them."""
    report = report_of(files, collected)
    return {**files, "report.html": html_report(report), "report.pdf": pdf_report(report)}


def sealed_pack(files: Mapping[str, bytes], signer: Identity, job: JobName, created_at: str) -> bytes:
    """The canonical ZIP of these files, with a manifest that ``signer`` vouches for."""
    manifest = canonical_bytes(
        _Manifest(
            pack=PACK,
            federation=signer.pin.federation,
            job=job,
            created_at=created_at,
            signer=signer.pin.party,
            files={name: sha256_hex(content) for name, content in files.items()},
        )
    )
    signature = signer.signing.sign(_SIGN_LABEL + manifest).hex().encode()
    return canonical_zip({**files, "manifest.json": manifest, "manifest.sig": signature})


def _plain(envelopes: Iterable[Envelope]) -> list[Any]:
    return [one.model_dump(mode="json") for one in envelopes]


def _read(evidence: Mapping[str, Any]) -> JobEvidence:
    try:
        return JobEvidence.model_validate(dict(evidence))
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(step) for step in fault["loc"])
        raise MalformedMessage(f"evidence: {where}: {fault['msg']}") from error


def _refuse_open_rounds(found: JobEvidence, job: JobSpec) -> None:
    ended = {round_.offer.context for round_ in found.rounds}
    for entry in found.log:
        ours = entry.kind == "round_offered" and entry.body.get("job") == job.job
        if ours and entry.body.get("context") not in ended:
            raise OutOfOrder(
                f"evidence: round {entry.body.get('round')} is open; export again when the job has ended"
            )


def _open_job(envelope: Envelope, charter: Charter) -> JobSpec:
    return open_envelope(
        envelope,
        JobSpec,
        kind="job",
        context=charter.digest,
        verify_key_of=lambda party: charter.member(party).verify_key,
        max_bytes=MAX_BYTES["job"],
    ).message


def _round_name(round_: RoundEvidence, charter: Charter) -> str:
    offer = open_envelope(
        round_.offer,
        RoundOffer,
        kind="offer",
        context=None,  # only the round's number is read here; the verifier compares the context
        verify_key_of=lambda party: charter.member(party).verify_key,
        max_bytes=MAX_BYTES["offer"],
    ).message
    return f"rounds/{offer.plan.round:04d}.json"


def _ledger(charter: Charter, job: JobSpec, silo: SiloId, raw: bytes) -> Iterator[Entry]:
    origin = f"{charter.federation}/ledger/{silo}/{job.dataset}"
    lines = (parse_entry(line) for line in raw.splitlines())
    return verify_entries(lines, origin, charter.member(silo).verify_key, may_lose=True)


def _card(job: JobSpec, handed: Iterable[HandedOver]) -> dict[str, Any]:
    """The dataset card: what the job says about the data, publicly, and what silos have registered it for."""
    return {
        "dataset": job.dataset,
        "purpose": job.purpose,
        "schema": job.data.digest,
        "columns": [feature.column for feature in job.data.features],
        "label": job.data.label.model_dump(mode="json"),
        "registered": {one.silo: one.registered for one in handed if one.registered is not None},
    }
