"""A whole federation in memory for tests: real keys, a real CA, a signed charter, jobs, plans and updates.

Everything it makes is what production would accept; a test misbehaves by altering what it returns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import serialization
from numpy.typing import NDArray
from pydantic import BaseModel

import policies
from privacy.canonical import canonical_bytes, sha256_hex
from privacy.chain import EMPTY, Head
from privacy.identity import SealingKey, SigningKey
from privacy.ids import Digest, PartyId, ServerId, SiloId
from privacy.keystore import FederationPin, Identity, write_secret
from privacy.officers import Officer, Officers, unsigned
from privacy.plan import (
    CohortMember,
    DpTerms,
    JobSpec,
    ModelTerms,
    RoundPlan,
    ServerSlot,
    TensorSpec,
    TrainingTerms,
    VectorTerms,
)
from privacy.roster import SEALED_TO, Charter, Member, Role
from privacy.schema import DataSchema, Label, NumericFeature
from privacy.secagg.additive import AdditiveSiloHalf, Ring, ring_to_bytes
from privacy.secagg.encoding import encode, encode_weight
from privacy.secagg.keystream import Dither
from privacy.secagg.parts import stretches
from privacy.sent import count_sent
from privacy.transparency.checkpoint import (
    EMPTY_LOG,
    LogHead,
    cosign,
    log_origin,
    sign_checkpoint,
    witness_name,
)
from privacy.transparency.witnessing import OfferedLog, offered_alone
from privacy.update import model_bytes, model_digest
from privacy.wire.charter import EndorsedCharter
from privacy.wire.envelope import Envelope, MessageKind, sign_message
from privacy.wire.messages import RoundOffer, ShareManifest
from tests.authority import CertificateAuthority

AGGREGATOR = PartyId("aggregator")
RESEARCHER = PartyId("researcher")
SESSION = "00112233445566778899aabbccddeeff"


def demo_policy_text(scheme: str = "additive") -> str:
    """The profile for four hospitals that sum by this scheme, as it lies on disk."""
    name = "demo-hospitals" if scheme == "additive" else f"demo-{scheme.replace('_', '-')}"
    return (Path(policies.__file__).parent / "profiles" / f"{name}.yaml").read_text("utf-8")


def policy_digest(text: str) -> Digest:
    """Digest of a threat model's text, as a charter pins it."""
    return sha256_hex(b"sealsum/policy/v1\x00" + text.encode())


@dataclass(frozen=True)
class Party:
    """One enrolled party with its private keys."""

    member: Member
    signing: SigningKey
    sealing: SealingKey | None

    @property
    def id(self) -> PartyId:
        return self.member.id


@dataclass(frozen=True)
class SharedUpdate:
    """What a silo sends in one round: parts for slot 0, sealed seeds for the others, the signed manifest."""

    silo: SiloId
    encoded: Ring
    parts: tuple[bytes, ...]
    sealed_seeds: dict[ServerId, bytes]
    manifest: ShareManifest
    envelope: Envelope


class Federation:
    """Parties ``silo-1…n``, ``server-0…k-1``, ``aggregator`` and ``researcher`` under one charter."""

    def __init__(
        self,
        silos: int = 4,
        servers: int = 2,
        policy_text: str | None = None,
        name: str = "testfed",
        urls: Mapping[str, str] | None = None,
        epoch: int = 1,
    ) -> None:
        """``urls`` maps server parties to where they listen; default ``https://<party>.test``."""
        self.name = name
        self.epoch = epoch
        self.policy_text = demo_policy_text() if policy_text is None else policy_text
        self.officer_keys = {PartyId(f"officer-{number}"): SigningKey.generate() for number in (1, 2, 3)}
        self.officers = Officers(
            federation=name,
            version=1,
            threshold=2,
            officers=tuple(
                Officer(name=officer, legal_entity=f"Hospital {officer[-1]}", verify_key=key.verify_key)
                for officer, key in self.officer_keys.items()
            ),
        )
        self.ca = CertificateAuthority(name)
        self._urls = dict(urls or {})
        self.parties: dict[str, Party] = {}
        for number in range(1, silos + 1):
            self._add(f"silo-{number}", "silo", f"Hospital {number}")
        for number in range(servers):
            self._add(f"server-{number}", "share_server", f"Operator {number}")
        self._add("aggregator", "aggregator", "Consortium")
        self._add("researcher", "researcher", "University")
        self.charter = self._make_charter()
        self.endorsed_charter = self.endorse(self.charter)

    # --- who ---

    def _add(self, name: str, role: Role, entity: str) -> None:
        signing = SigningKey.generate()
        sealing = SealingKey.generate() if role in SEALED_TO else None
        serves = role in ("aggregator", "share_server")
        member = Member(
            id=PartyId(name),
            role=role,
            legal_entity=entity,
            operator=entity,
            verify_key=signing.verify_key,
            sealing_key=sealing.public_hex if sealing else "",
            url=self._urls.get(name, f"https://{name}.test") if serves else "",
        )
        self.parties[name] = Party(member, signing, sealing)

    def _make_charter(self) -> Charter:
        members = tuple(self.parties[name].member for name in sorted(self.parties))
        return Charter(
            federation=self.name,
            epoch=self.epoch,
            previous=None if self.epoch == 1 else Digest("0" * 64),
            officers=self.officers.digest,
            members=members,
            policy=policy_digest(self.policy_text),
            policy_text=self.policy_text,
        )

    def endorse(self, charter: Charter, by: Sequence[str] = ("officer-1", "officer-2")) -> EndorsedCharter:
        """A charter under the signatures of these officers; the officers' own document is signed by all."""
        officers = unsigned(self.officers, "officers", self.name)
        endorsed = unsigned(charter, "charter", self.name)
        for officer, key in self.officer_keys.items():
            officers = officers.signed_by(officer, key)
        for name in by:
            endorsed = endorsed.signed_by(PartyId(name), self.officer_keys[PartyId(name)])
        return EndorsedCharter(officers=(officers,), charter=endorsed)

    def next_charter(self, **changes: Any) -> Charter:
        """The charter of the next epoch, in order but for what a test changes."""
        follows = {"epoch": self.charter.epoch + 1, "previous": self.charter.digest}
        return Charter.model_validate(self.charter.model_dump() | follows | changes)

    def key(self, party: str) -> SigningKey:
        """A party's signing key."""
        return self.parties[party].signing

    def sign(self, message: BaseModel, kind: MessageKind, context: Digest, sender: str) -> Envelope:
        """Sign a message as any party."""
        return sign_message(message, kind, context, PartyId(sender), self.key(sender))

    # --- what ---

    def model_terms(self, parameters: int = 3) -> ModelTerms:
        """A logistic model of any size over two features."""
        layout = (
            TensorSpec(name="weight", shape=(parameters - 1,)),
            TensorSpec(name="bias", shape=(1,)),
        )
        return ModelTerms(adapter="logistic", inputs=2, layout=layout)

    def initial_model(self, parameters: int = 3) -> bytes:
        """Raw bytes of the zero model."""
        return model_bytes(np.zeros(parameters, dtype=np.float32))

    def job_spec(self, parameters: int = 3, **changes: Any) -> JobSpec:
        """A small DP job that the demo profile admits; ``changes`` replaces fields."""
        model = self.model_terms(parameters)
        fields: dict[str, Any] = {
            "job": "heart",
            "federation": self.name,
            "charter": self.charter.digest,
            "purpose": "test",
            "dataset": "cardio",
            "data": DataSchema(
                features=(
                    NumericFeature(column="age", low=0, high=100, impute=50),
                    NumericFeature(column="pressure", low=0, high=300, impute=120),
                ),
                label=Label(column="num", threshold=0),
                patient_id="patient",
            ),
            "model": model,
            "initial_model": model_digest(model, [self.initial_model(parameters)]),
            "training": TrainingTerms(
                algorithm="dp_fedavg", local_steps=2, learning_rate=0.5, server_learning_rate=1.0
            ),
            "dp": DpTerms(
                unit="patient",
                sample_rate=0.1,
                noise_multiplier=4.0,
                clip_l2=1.0,
                normaliser=20.0,
                delta=1e-5,
            ),
            "rounds": 2,
            "vector": VectorTerms(coordinate_bound=4.0, scale_bits=20),
            "min_silos": 3,
            "round_deadline_s": 30,
        }
        return JobSpec(**{**fields, **changes})

    def sign_job(self, job: JobSpec, sender: str = "researcher") -> Envelope:
        """The job as a researcher submits it."""
        return self.sign(job, "job", self.charter.digest, sender)

    def plan(
        self, job: JobSpec, round_number: int = 1, silos: Sequence[str] | None = None, **changes: Any
    ) -> RoundPlan:
        """An honest plan of that job; ``changes`` replaces fields."""
        invited = self.charter.silos if silos is None else silos
        fields: dict[str, Any] = {
            "session": SESSION,
            "federation": self.name,
            "charter": self.charter.digest,
            "roster_epoch": self.epoch,
            "policy": self.charter.policy,
            "job": job.job,
            "job_digest": job.digest,
            "round": round_number,
            "rounds": job.rounds,
            "scheme": job.scheme,
            "architecture": job.model.architecture,
            "model": job.initial_model,
            "parameters": job.model.parameters,
            "sent": count_sent(job.training, job.model, round_number),
            "cohort": tuple(
                CohortMember(silo=SiloId(PartyId(silo)), verify_key=self.key(silo).verify_key)
                for silo in sorted(invited)
            ),
            "servers": tuple(
                ServerSlot(server=server, verify_key=self.key(server).verify_key)
                for server in self.charter.share_servers
            ),
            "training": job.training,
            "dp": job.dp,
            "vector": job.vector,
            "further": job.further,
            "query": job.query,
            "min_survivors": job.min_silos,
            "deadline_s": job.round_deadline_s,
        }
        return RoundPlan(**{**fields, **changes})

    def offered_log(self, head: LogHead = EMPTY_LOG) -> OfferedLog:
        """The aggregator's log with this head, which every silo has cosigned."""
        checkpoint = sign_checkpoint(
            log_origin(self.name, PartyId("aggregator")), head, self.key("aggregator")
        )
        signatures = [
            cosign(checkpoint, witness_name(self.name, silo), self.key(silo), 1_700_000_000)
            for silo in self.charter.silos
        ]
        witnessed = checkpoint.with_cosignatures(signatures).note()
        return offered_alone(checkpoint).model_copy(update={"witnessed": witnessed})

    def offer(
        self,
        plan: RoundPlan,
        job: Envelope,
        log_head: LogHead = EMPTY_LOG,
        sender: str = "aggregator",
        log: OfferedLog | None = None,
    ) -> Envelope:
        """The plan as the aggregator offers it."""
        message = RoundOffer(plan=plan, job=job, log=log or self.offered_log(log_head))
        return self.sign(message, "offer", plan.context, sender)

    def share(
        self,
        plan: RoundPlan,
        silo: str,
        update: NDArray[np.float32] | None = None,
        weight: float = 1.0,
        ledger_head: Head = EMPTY,
    ) -> SharedUpdate:
        """Encode, share and sign one silo's update (default: zeros), as an honest silo does."""
        values = np.zeros(plan.coordinates, dtype=np.float32) if update is None else update
        dither = Dither().at(0, plan.coordinates)
        encoded = np.concatenate(
            [encode(values, weight, plan.vector, dither), encode_weight(weight, plan.vector)]
        )
        silo_id = SiloId(PartyId(silo))
        seed_servers = {
            slot.server: self.charter.member(slot.server).sealing_key for slot in plan.servers[1:]
        }
        half = AdditiveSiloHalf(plan.context, plan.model, silo_id, seed_servers)
        parts = tuple(
            ring_to_bytes(half.share(s.start, encoded[s.start : s.start + s.length]))
            for s in stretches(plan.vector_length)
        )
        manifest = ShareManifest(
            silo=silo_id,
            model=plan.model,
            vector_length=plan.vector_length,
            parts=tuple(sha256_hex(part) for part in parts),
            seeds={server: sha256_hex(sealed) for server, sealed in half.sealed_seeds.items()},
            ledger_head=ledger_head,
        )
        envelope = self.sign(manifest, "manifest", plan.context, silo)
        return SharedUpdate(silo_id, encoded, parts, half.sealed_seeds, manifest, envelope)

    def certificate_der(self, party: str, key: SigningKey | None = None) -> bytes:
        """A leaf of the CA for the party's key (or for another key under its name), as TLS shows it."""
        url = self.parties[party].member.url if party in self.parties else ""
        public = (key or self.key(party)).private.public_key()
        return self.ca.leaf(party, public, url).public_bytes(serialization.Encoding.DER)

    def identity(self, party: str, directory: Path) -> Identity:
        """Write an identity directory as enrolment does, with the charter in it, and load it."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = self.parties[party]
        pin = FederationPin(
            federation=self.name,
            party=entry.id,
            role=entry.member.role,
            officers=self.officers.digest,
        )
        write_secret(directory / "identity.key", entry.signing.to_pem())
        if entry.sealing is not None:
            write_secret(directory / "sealing.key", entry.sealing.to_bytes())
        pem = serialization.Encoding.PEM
        leaf = self.ca.leaf(party, entry.signing.private.public_key(), entry.member.url)
        (directory / "identity.pem").write_bytes(leaf.public_bytes(pem))
        (directory / "ca.pem").write_bytes(self.ca.certificate.public_bytes(pem))
        (directory / "federation.json").write_text(json.dumps(pin.model_dump(mode="json")))
        (directory / "charter.json").write_bytes(canonical_bytes(self.endorsed_charter))
        return Identity(directory, pin, entry.signing, entry.sealing)
