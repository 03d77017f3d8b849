"""Whole evidence packs for tests: a federation's rounds, logs and ledgers, made as its parties make them.

An honest pack comes from ``honest_records(...).pack(...)``; a test misbehaves by altering the records, or
by rebuilding a pack around changed files with ``resigned``: what its dishonest signer could do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sealsum_verify.archive import read_archive, write_archive

from policies.loader import load_threat_model
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY, Entry, Head, next_entry
from privacy.dp.events import fallback_event, round_event
from privacy.identity import SigningKey
from privacy.ids import PartyId, ServerId, SiloId
from privacy.keystore import FederationPin, Identity
from privacy.plan import JobSpec, RoundPlan
from privacy.wire.messages import Refusal, RoundResult, SurvivorSet, survivors_digest
from sealsum.evidence import build_pack
from tests.evidence_schemes import Protocol, RoundMessages, federation_for, job_terms, model_of, plan_terms
from tests.federation import Federation
from tests.log_book import LogBook

AT = "2026-01-02T03:04:05Z"


@dataclass
class Chain:
    """A ledger while it is written."""

    origin: str
    key: SigningKey
    entries: list[Entry] = field(default_factory=list)

    @property
    def head(self) -> Head:
        return self.entries[-1].head if self.entries else EMPTY

    def add(self, kind: str, **body: Any) -> Entry:
        entry = next_entry(self.head, self.origin, AT, kind, body, self.key)
        self.entries.append(entry)
        return entry

    def lines(self) -> bytes:
        return b"".join(canonical_bytes(entry) + b"\n" for entry in self.entries)


class Records:
    """Everything that one job leaves behind at all parties."""

    def __init__(self, federation: Federation, job: JobSpec) -> None:
        self.federation = federation
        self.job = job
        self.job_envelope = federation.sign_job(job)
        name = federation.name
        servers = ["aggregator", *federation.charter.share_servers]
        self.logs = {party: LogBook(name, party, federation.key(party)) for party in servers}
        self.ledgers = {
            silo: Chain(f"{name}/ledger/{silo}/{job.dataset}", federation.key(silo))
            for silo in federation.charter.silos
        }
        self.rounds: list[dict[str, Any]] = []
        self.model = job.initial_model
        for log in self.logs.values():
            log.add("started", party=log.party)
        self.logs["aggregator"].add("job_accepted", job=job.job, digest=job.digest)
        for ledger in self.ledgers.values():
            ledger.add(
                "open",
                format=2,
                dataset=job.dataset,
                unit=job.dp.unit if job.dp else "patient",
                adjacency="add_remove",
                patient_id="patient",
                epsilon={"round": "1.0", "job": "3.0", "lifetime": "8.0", "period": None, "fallback": None},
                delta_max="0.0001",
                period_days=None,
                filter=None,
            )

    def plan(self, number: int, **changes: Any) -> RoundPlan:
        terms = plan_terms(self.job, len(self.federation.charter.silos))
        changes = {"session": f"{number:032x}", "model": self.model} | terms | changes
        return self.federation.plan(self.job, number, **changes)

    def reserve(self, plan: RoundPlan, silo: str, **changes: Any) -> None:
        """The silo's ledger entries of one round."""
        ledger = self.ledgers[SiloId(PartyId(silo))]
        if plan.dp is not None:
            log = self.logs["aggregator"]
            log_head = log.head_at(len(log.entries) - 1).model_dump(mode="json")
            own = fallback_event(plan.dp, plan.training)
            body = {
                "job": plan.job,
                "job_digest": plan.job_digest,
                "dataset": self.job.dataset,
                "first_round": plan.round,
                "last_round": plan.round,
                "event": round_event(plan.dp, plan.training).model_dump(mode="json"),
                "fallback": own and own.model_dump(mode="json"),
                "delta": plan.dp.model_dump(mode="json")["delta"],
                "log_head": log_head,
            }
            ledger.add("reserve", **body | changes)
            ledger.add(
                "begin",
                job_digest=plan.job_digest,
                context=plan.context,
                round=plan.round,
                log_head=log_head,
            )

    def add_round(
        self,
        number: int,
        *,
        absent: Sequence[str] = (),
        refusing: Sequence[str] = (),
        outcome: str = "opened",
        opening: bool = True,
        job_state: str = "running",
        reserving: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        failing: Sequence[str] = (),
        silent: Sequence[str] = (),
        **changes: Any,
    ) -> RoundPlan:
        """One round as honest parties run it; ``reserving`` alters what a silo writes into its ledger.

        ``failing`` silos' proofs of validity fail, ``silent`` ones' never come.
        """
        federation, log = self.federation, self.logs["aggregator"]
        plan = self.plan(number, **changes)
        ctx = plan.context
        view = log.offer()
        offer = federation.offer(plan, self.job_envelope, log=view)
        log.add("round_offered", context=ctx, job=plan.job, round=number, cohort=list(plan.silos))
        for slot in plan.servers:
            self.logs[slot.server].add("round_admitted", context=ctx, job=plan.job, round=number)
        heads: dict[SiloId, Head] = {}
        for silo in plan.silos:
            if silo in absent or silo in refusing:
                continue
            self.reserve(plan, silo, **reserving.get(silo, {}))
            heads[silo] = self.ledgers[silo].head
        messages = RoundMessages(federation, plan, heads, opening, failing, silent)
        manifests = messages.manifests
        needed = load_threat_model(federation.charter.policy_text).model.spec.witnesses_needed
        if len(manifests) >= needed and log.offered is not None:
            log.cosign(log.offered, [(silo, federation.key(silo)) for silo in manifests])
        for silo in manifests:
            for server in messages.servers or ("aggregator",):
                self.logs[server].add("update_accepted", context=ctx, silo=silo)
            if plan.dp is not None:
                self.ledgers[silo].add(
                    "settle",
                    job_digest=plan.job_digest,
                    first_round=number,
                    last_round=reserving.get(silo, {}).get("last_round", number),
                    begun=1,
                    steps=plan.training.local_steps,
                )
        summed: tuple[SiloId, ...] = ()
        if opening:
            agreed = SurvivorSet.model_validate_json(messages.sections["survivors"][0].body)
            summed, digest = agreed.survivors, survivors_digest(agreed)
            for server in messages.servers:
                self.logs[server].add("share_released", context=ctx, survivors=digest)
            log.add("sum_opened", context=ctx, survivors=list(summed), digest=digest)
        opened = outcome == "opened"
        model_out = model_of(number) if opened else None
        result = RoundResult(
            outcome=outcome,
            reason="as tests ask",
            survivors=summed if opened else (),
            model_in=plan.model,
            model_out=model_out,
            openings=int(opening),
            job_state=job_state,
        )
        log.add(*(("model_published",) if opened else ("round_aborted",)), context=ctx, model=model_out)
        if job_state != "running":
            log.add("job_ended", job=plan.job, state=job_state, reason="")
        refusals = {
            silo: federation.sign(
                Refusal(
                    silo=SiloId(PartyId(silo)),
                    rule="budget.job",
                    sentence="s",
                    expected="e",
                    got="g",
                    remedy="r",
                ),
                "refusal",
                ctx,
                silo,
            )
            for silo in refusing
        }
        self.rounds.append(
            {
                "offer": offer,
                **messages.sections,
                "refusals": refusals,
                "result": federation.sign(result, "result", ctx, "aggregator"),
            }
        )
        self.model = model_out or self.model
        return plan

    def evidence(self) -> dict[str, Any]:
        """What the aggregator answers, as parsed JSON."""
        document = {
            "charter": self.federation.endorsed_charter,
            "job": self.job_envelope,
            "rounds": self.rounds,
            "log": self.logs["aggregator"].entries,
            "checkpoint": self.logs["aggregator"].served().checkpoint,
            "witnessed": self.logs["aggregator"].served().witnessed,
        }
        plain: dict[str, Any] = json.loads(
            json.dumps(document, default=lambda model: model.model_dump(mode="json"))
        )
        return plain

    def pack(self, signer: str = "researcher") -> bytes:
        """The pack that an honest exporter makes of these records."""
        servers = {ServerId(PartyId(p)): c.served() for p, c in self.logs.items() if p != "aggregator"}
        books = {silo: ledger.lines() for silo, ledger in self.ledgers.items()}
        return build_pack(self.evidence(), servers, books, self.identity(signer), AT)

    def pack_over(self, base: bytes) -> bytes:
        """The pack of a dishonest exporter: these records laid over an earlier, honest pack of the job."""
        books = {f"dp/ledger/{silo}.jsonl": ledger.lines() for silo, ledger in self.ledgers.items()}
        logs = {
            name: raw
            for party, log in self.logs.items()
            for name, raw in log.served().files(PartyId(party)).items()
        }
        rounds = {
            f"rounds/{number:04d}.json": canonical_bytes(round_)
            for number, round_ in enumerate(self.evidence()["rounds"], 1)
        }
        return resigned({**files_of(base), **books, **logs, **rounds}, self)

    def identity(self, party: str) -> Identity:
        """A member's identity without a directory: the builder only signs."""
        member = self.federation.parties[party].member
        officers = self.federation.officers.digest
        pin = FederationPin(
            federation=self.federation.name, party=member.id, role=member.role, officers=officers
        )
        return Identity(Path("/nonexistent"), pin, self.federation.key(party), None)


def started_records(protocol: Protocol = "additive", rounds: int = 2, **job: Any) -> Records:
    """A job that has been accepted."""
    federation = federation_for(protocol)
    return Records(federation, federation.job_spec(**{"rounds": rounds} | job_terms(protocol) | job))


def honest_records(rounds: int = 2, protocol: Protocol = "additive", **job: Any) -> Records:
    """A finished job of some rounds in which every silo took part."""
    records = started_records(protocol, rounds, **job)
    for number in range(1, rounds + 1):
        records.add_round(number, job_state="finished" if number == rounds else "running")
    return records


@cache
def _shared(protocol: Protocol) -> tuple[Records, bytes]:
    records = honest_records(protocol=protocol)
    return records, records.pack()


def shared_records(protocol: Protocol = "additive") -> Records:
    """One finished job, for tests that alter only copies."""
    return _shared(protocol)[0]


def shared_pack(protocol: Protocol = "additive") -> bytes:
    """Its pack."""
    return _shared(protocol)[1]


def files_of(pack: bytes) -> dict[str, bytes]:
    """Contents by name."""
    return dict(read_archive(pack))


def resigned(files: Mapping[str, bytes], records: Records, signer: str = "researcher") -> bytes:
    """What an insider can make of changed files: a new manifest under a key of her own."""
    listed = {name: raw for name, raw in files.items() if name not in ("manifest.json", "manifest.sig")}
    manifest = json.loads(files["manifest.json"]) | {
        "files": {name: sha256_hex(raw) for name, raw in listed.items()},
        "signer": signer,
    }
    raw = canonical_bytes(manifest)
    signature = records.federation.key(signer).sign(b"sealsum/pack/v1\x00" + raw).hex().encode()
    return write_archive({**listed, "manifest.json": raw, "manifest.sig": signature})


def edited(files: Mapping[str, bytes], name: str, edit: Callable[[Any], Any]) -> dict[str, bytes]:
    """The files with one JSON document changed; ``edit`` changes it in place or returns another."""
    document = json.loads(files[name])
    changed = edit(document)
    return {**files, name: canonical_bytes(document if changed is None else changed)}
