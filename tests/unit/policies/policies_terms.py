"""Threat models and rounds for the tests of ``policies``: honest ones, and ways to bend them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from policies.findings import Finding, PolicyInvalid
from policies.loader import LoadedPolicy, load_threat_model
from policies.planning import SESSION_BYTES, plan_round
from policies.profiles import profile_text
from policies.schema import ThreatModel
from privacy.plan import JobSpec, RoundPlan, VectorTerms
from privacy.roster import Charter
from privacy.wire.envelope import Envelope, Verified
from privacy.wire.messages import RoundOffer, SurvivorSet
from tests.federation import Federation, demo_policy_text

M = TypeVar("M", bound=BaseModel)
ABSENT = object()
"""As a value: takes the line out, so that the default counts."""


def bent(changes: dict[str, object], profile: str = "demo-hospitals") -> str:
    """A profile's text with some dotted paths below ``spec`` (or ``/`` for the root) set to other values."""
    return bent_text(profile_text(profile), changes)


def bent_demo(scheme: str, changes: dict[str, object]) -> str:
    """The demonstration's threat model for a scheme, bent."""
    return bent_text(demo_policy_text(scheme), changes)


def bent_text(text: str, changes: dict[str, object]) -> str:
    """Any threat model's text, bent."""
    tree: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    for path, value in changes.items():
        node: dict[str, Any] = tree if path.startswith("/") else tree["spec"]
        *above, last = path.removeprefix("/").split(".")
        for step in above:
            node = node.setdefault(step, {})
        if value is ABSENT:
            del node[last]
        else:
            node[last] = copy.deepcopy(value)
    return yaml.safe_dump(tree)


def bent_policy(changes: dict[str, object], profile: str = "demo-hospitals") -> LoadedPolicy:
    """The same, loaded."""
    return load_threat_model(bent(changes, profile))


def unjudged(text: str) -> ThreatModel:
    """A threat model, whatever the loader's rules would say of it."""
    return ThreatModel.model_validate(yaml.safe_load(text))


def altered(original: M, /, **changes: Any) -> M:
    """A copy with other fields, unvalidated, as a forger would write it; digests are computed afresh."""
    copied = original.model_copy(update=changes)
    for name in set(copied.__dict__) - set(type(original).model_fields):
        del copied.__dict__[name]  # cached digests of the original
    return copied


def rules_of(text: str) -> list[str]:
    """Names of the rules that refuse a policy's text; empty when it loads."""
    return [finding.rule for finding in findings_of(text)]


def findings_of(text: str) -> tuple[Finding, ...]:
    """What refuses a policy's text."""
    try:
        load_threat_model(text)
    except PolicyInvalid as invalid:
        return invalid.findings
    return ()


@dataclass(frozen=True)
class Round:
    """One honest round of one honest job, and who can sign for it."""

    federation: Federation
    policy: LoadedPolicy
    job: JobSpec
    plan: RoundPlan

    @property
    def charter(self) -> Charter:
        return self.federation.charter

    def signed_job(self, job: JobSpec | None = None, sender: str = "researcher") -> Verified[JobSpec]:
        return verified(self.federation.sign_job(job or self.job, sender), job or self.job)

    def offer(self, plan: RoundPlan | None = None, sender: str = "aggregator") -> Verified[RoundOffer]:
        offered = plan or self.plan
        envelope = self.federation.offer(offered, self.federation.sign_job(self.job), sender=sender)
        return verified(envelope, RoundOffer.model_validate_json(envelope.body))

    def survivors(self, *silos: str, servers: tuple[str, ...] | None = None) -> list[Verified[SurvivorSet]]:
        """The set as each server signs it; manifests are made-up digests, the same at each."""
        names = servers if servers is not None else tuple(self.charter.share_servers)
        return [self.survivor_set(name, silos) for name in names]

    def survivor_set(self, server: str, silos: tuple[str, ...], **changes: Any) -> Verified[SurvivorSet]:
        fields: dict[str, Any] = {
            "server": server,
            "survivors": silos,
            "manifests": ("ab" * 32,) * len(silos),
            **changes,
        }
        message = SurvivorSet(**fields)
        return verified(self.federation.sign(message, "survivors", self.plan.context, server), message)


def verified(envelope: Envelope, message: Any) -> Verified[Any]:
    """What ``open_envelope`` returns once it has checked the signature."""
    return Verified(message, envelope.sender, envelope.context, envelope)


@lru_cache(maxsize=32)
def honest_round(text: str | None = None, silos: int = 4, servers: int = 2) -> Round:
    """A round that every rule admits, under the demonstration's threat model or another."""
    federation = Federation(silos=silos, servers=servers, policy_text=text)
    job = federation.job_spec()
    policy = load_threat_model(federation.policy_text)
    return Round(federation, policy, job, federation.plan(job))


DEMO_VECTOR = VectorTerms(coordinate_bound=4.0, scale_bits=16)
"""Fits every scheme for four silos, and a few more."""


@lru_cache(maxsize=32)
def planned_round(scheme: str, silos: int = 4, **job: Any) -> Round:
    """A round as the aggregator itself plans it, under the demonstration's threat model for a scheme."""
    servers = 2 if scheme == "additive" else 0
    federation = Federation(silos=silos, servers=servers, policy_text=demo_policy_text(scheme))
    asked = federation.job_spec(**{"scheme": scheme, "vector": DEMO_VECTOR, **job})
    policy = load_threat_model(federation.policy_text)
    plan = plan_round(
        asked,
        federation.charter,
        policy,
        silos=federation.charter.silos,
        number=1,
        model=asked.initial_model,
        session=bytes(SESSION_BYTES),
    )
    return Round(federation, policy, asked, plan)
