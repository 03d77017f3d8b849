"""Every field of a threat model changes something: a refusal, a gate's answer, or what is said of it.

Walks the schema by reflection: a field without an entry here fails, and so does one that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policies.explain import explain
from policies.fields import fields
from policies.findings import PolicyRefusal
from policies.gates import admit_plan, check_reader, check_survivors
from policies.loader import LoadedPolicy, load_threat_model, policy_digest
from policies.profiles import profile_text
from privacy.ids import PartyId, ServerId
from privacy.plan import ValidityClaim
from privacy.wire.messages import SurvivorSet
from silo_agent.approvals.standing import requirement_of
from tests.attacks.test_evidence_attack_gate import attacked_job, result_of
from tests.unit.policies.policies_terms import ABSENT, altered, bent, findings_of, honest_round

CURIOUS = {"behaviour": "honest_but_curious", "colludes_with_silos": 0}
Changes = dict[str, object]


def loading(text: str) -> object:
    """Which rules refuse the text, and which fields."""
    return [(finding.rule, finding.sentence) for finding in findings_of(text)]


def offering(text: str) -> object:
    """What the gate of an honest offer answers: refused by whom and what, or tolerated."""
    return _offered(load_threat_model(text))


def proving(text: str) -> object:
    """The same, of a plan whose silos prove a norm of at most 0.5."""
    return _offered(load_threat_model(text), validity=ValidityClaim(norm_bound=0.5))


def using_two_records(text: str) -> object:
    """The same, of a plan that uses two records of each patient."""
    dp = honest_round().job.dp
    assert dp is not None
    return _offered(load_threat_model(text), dp=altered(dp, records_per_unit=2))


def _offered(policy: LoadedPolicy, **plan: Any) -> object:
    here = honest_round()
    charter = altered(here.charter, policy=policy.digest, policy_text=policy.text)
    job = altered(here.job, charter=charter.digest, **plan)
    offered = altered(here.plan, charter=charter.digest, policy=policy.digest, job_digest=job.digest, **plan)
    signed = here.federation.sign(job, "job", charter.digest, "researcher")
    offer = here.federation.offer(offered, signed)
    try:
        admitted = admit_plan(
            [policy], _verified(offer, here.offer(offered).message), _verified(signed, job), charter
        )
    except PolicyRefusal as refusal:
        return [(finding.rule, finding.expected) for finding in refusal.findings]
    return [f"tolerated {finding.rule}" for finding in admitted.tolerated]


def _verified(envelope: Any, message: Any) -> Any:
    from_here = honest_round().offer()
    return type(from_here)(message, envelope.sender, envelope.context, envelope)


def opening(text: str) -> object:
    """Whether three of four invited silos may be summed."""
    here = honest_round()
    policy = load_threat_model(text)
    admitted = admit_plan([here.policy], here.offer(), here.signed_job(), here.charter)
    relabelled = LoadedPolicy(policy.model, policy.text, here.policy.digest)
    three = SurvivorSet(
        server=ServerId(PartyId("server-0")), survivors=here.plan.silos[:3], manifests=("ab" * 32,) * 3
    )
    try:
        check_survivors(admitted, three, here.charter, relabelled)
    except PolicyRefusal as refusal:
        return [finding.rule for finding in refusal.findings]
    return "opened"


def reading(text: str) -> object:
    """Whether a researcher of a university reads the model of a job, running and ended."""
    here = honest_round()
    policy, researcher = load_threat_model(text), here.charter.member(PartyId("researcher"))
    answers = []
    for ended in (False, True):
        try:
            check_reader(policy, here.charter, researcher, ended)
            answers.append("read")
        except PolicyRefusal as refusal:
            answers.append(refusal.findings[0].rule)
    return answers


def attacked(text: str) -> object:
    """Whether a researcher reads a model on which a silo has tried the quick attacks, ten days ago."""
    here = honest_round()
    policy, researcher = load_threat_model(text), here.charter.member(PartyId("researcher"))
    now = datetime(2026, 6, 30, tzinfo=UTC)
    job = attacked_job(now, result_of("silo-1", now - timedelta(days=10)))
    try:
        check_reader(policy, here.charter, researcher, True, (job,))
    except PolicyRefusal as refusal:
        return [finding.rule for finding in refusal.findings]
    return "read"


def approving(text: str) -> object:
    """What a silo asks of its people before it takes part."""
    return requirement_of([load_threat_model(text)])


def saying(text: str) -> object:
    """Every sentence, and what it rests on."""
    return str(explain(load_threat_model(text).model))


@dataclass(frozen=True)
class Case:
    """Two threat models that differ in one line, and what answers them differently."""

    path: str
    asked: Callable[[str], object]
    value: object
    other: object
    beside: Changes = field(default_factory=dict)
    """Lines that both have."""


STRICT = f"sha256:{policy_digest(profile_text('cross-hospital-strict'))}"
NO_DP = {"require.dp": "none", "assume.aggregator": CURIOUS, "release.model.to": "silos"}
SHARED_NOISE = {"require.dp.model": "distributed"}
CASES = (
    Case("apiVersion", loading, "sealsum/v1", "sealsum/v2"),
    Case("kind", loading, "ThreatModel", "RiskModel"),
    Case("metadata.name", offering, "one", "two", {"limits.rounds_max": 1}),  # a refusal names it
    Case("metadata.version", offering, 1, 2, {"limits.rounds_max": 1}),
    Case("metadata.extends", loading, ABSENT, STRICT),
    Case("mode", offering, "enforce", "audit", {"data_class": "synthetic", "limits.rounds_max": 1}),
    Case("data_class", loading, "patient", "financial", {"require.dp.unit": "record"}),
    Case("assume.aggregator.behaviour", loading, "malicious", "trusted"),
    Case("assume.aggregator.colludes_with_silos", loading, 1, 2),
    Case("assume.share_servers", loading, {"count": 2, "max_colluding": 1}, ABSENT),
    Case("assume.share_servers.count", offering, 2, 3),
    Case("assume.share_servers.max_colluding", loading, 1, 2),
    Case("assume.share_servers.distinct_operators", loading, True, False),
    Case("assume.silos.max_colluding", loading, 1, 2),
    Case("assume.silos.max_poisoning", loading, 0, 1, {"assume.out_of_scope": ["silo_host_compromise"]}),
    Case("assume.silos.distinct_legal_entities", loading, True, False),
    Case("assume.recipient.kind", loading, "external", "silos"),
    Case("assume.recipient.access", loading, "white_box", "black_box"),
    Case(
        "assume.network.tls_inspection",
        loading,
        True,
        False,
        {**NO_DP, "assume.recipient.kind": "silos"},
    ),
    Case("assume.out_of_scope", loading, ["silo_host_compromise", "silo_poisoning"], ["silo_poisoning"]),
    Case("require.secagg.scheme", loading, "additive", "pairwise"),
    Case("require.dp", loading, {"unit": "patient"}, "none"),
    Case("require.dp.model", loading, "local", "central"),
    Case("require.dp.unit", loading, "patient", "record"),
    Case("require.dp.max_records_per_unit", using_two_records, 1, 2),
    Case("require.dp.adjacency", loading, "add_remove", "replace_one"),
    Case("require.dp.sampling", loading, "poisson", "shuffle"),
    Case("require.dp.accountant", loading, "pld", "gdp"),
    Case("require.dp.secure_rng", loading, True, False),
    Case("require.validity", offering, "none", "l2_bound"),
    Case("require.approvals.n", approving, 1, 2, {"require.approvals.automatic": "refused"}),
    Case("require.approvals.roles", approving, ["dpo"], ["dpo", "security"]),
    Case("require.approvals.automatic", approving, "allowed", "refused"),
    Case("require.attack_suite", attacked, "quick", "full"),
    Case("require.attack_suite_days", attacked, 30, 5, {"require.attack_suite": "quick"}),
    Case("limits.min_silos_open", opening, 3, 4),
    Case("limits.max_dropouts", opening, 1, 0),
    Case("limits.max_weight_share", loading, 0.4, 0.3),
    Case("limits.epsilon.round", offering, 1.0, 0.0001),
    Case("limits.epsilon.job", offering, 3.0, 0.0001, {"limits.epsilon.round": 0.0001}),
    Case("limits.epsilon.lifetime", loading, 8.0, 2.0),
    Case("limits.epsilon_fallback", loading, ABSENT, {"round": 1, "job": 3, "lifetime": 8}),
    *(
        Case(
            f"limits.epsilon_fallback.{name}",
            loading,
            caps[name],
            low,
            {**SHARED_NOISE, "limits.epsilon_fallback": caps},
        )
        for caps in ({"round": 2, "job": 4, "lifetime": 9},)
        for name, low in (("round", 0.5), ("job", 2.5), ("lifetime", 7.0))
    ),
    Case("limits.delta_max", offering, 1e-4, 1e-7),
    Case("limits.clip_l2_max", offering, 1.0, 0.5),
    Case("limits.update_norm_max", proving, 1.0, 0.1, {"require.validity": "l2_bound"}),
    Case("limits.min_records", loading, 50, 5000),
    Case("limits.upload_bytes_max", offering, "64MiB", "8B"),
    Case("limits.rounds_max", offering, 100, 1),
    Case("allow.algorithms", offering, ["dp_fedavg"], ["dp_fedsgd"]),
    Case("allow.architectures", offering, "any", []),
    Case("release.metrics.names", loading, ["loss"], ["age"], {"release.metrics.dp": "charged"}),
    Case("release.metrics.dp", loading, "withheld", "none"),
    Case("release.model.to", reading, "researchers", "silos"),
    Case("release.model.when", reading, "job_end", "every_round"),
    Case("evidence.witnesses_min", loading, 2, 1),
    Case("evidence.sinks_min", saying, 1, 2),
    Case("evidence.fail_closed", loading, True, False),
    Case("retention.evidence_days", saying, 30, 3650),
)


def test_every_field_of_the_schema_has_a_case() -> None:
    assert [case.path for case in CASES] == [one.path for one in fields()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_the_field_changes_what_happens(case: Case) -> None:
    outside = case.path.startswith(("apiVersion", "kind", "metadata"))
    path = f"/{case.path}" if outside else case.path
    one, other = (_text({**case.beside, path: value}) for value in (case.value, case.other))
    assert case.asked(one) != case.asked(other)


def _text(changes: Changes) -> str:
    kept = {path: value for path, value in changes.items() if value is not ABSENT}
    gone = {path: value for path, value in changes.items() if value is ABSENT and "share_servers" in path}
    return bent({**kept, **gone})  # the other fields that may be left out are, in the profile
