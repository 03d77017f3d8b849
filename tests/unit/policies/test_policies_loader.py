"""The loader: every contradiction is refused by its own rule, and all of them at once."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from policies.profiles import PROFILES, profile_text
from policies.rules_loader import LOADER_RULES, LoaderRule
from policies.schema import ThreatModel
from privacy.errors import ConfigurationError
from privacy.secagg.catalogue import SCHEMES
from tests.unit.policies.policies_terms import ABSENT, bent, bent_policy, findings_of, rules_of, unjudged

CURIOUS = {"assume.aggregator": {"behaviour": "honest_but_curious", "colludes_with_silos": 0}}
NO_DP = {
    **CURIOUS,
    "require.dp": "none",
    "assume.recipient.kind": "silos",
    "release.model.to": "silos",
    "assume.network.tls_inspection": False,
}

CONTRADICTIONS: dict[str, dict[str, object]] = {
    "audit_on_real_data": {"mode": "audit"},
    "trusted_aggregator_colludes": {"assume.aggregator.behaviour": "trusted"},
    "share_servers_missing": {"assume.share_servers": ABSENT},
    "collusion_reaches_all_servers": {"assume.share_servers.max_colluding": 2},
    "one_operator_for_servers": {"assume.share_servers.distinct_operators": False},
    "one_entity_for_silos": {"assume.silos.distinct_legal_entities": False},
    "minimum_below_collusion": {"assume.silos.max_colluding": 2},
    "access_not_limited": {"assume.recipient.access": "black_box"},
    "release_beyond_recipient": {"assume.recipient.kind": "silos"},
    "open_threat_unnamed": {"assume.out_of_scope": ["silo_poisoning"]},
    "poisoning_unchecked": {"assume.out_of_scope": ["silo_host_compromise"]},
    "scheme_missing": {"require.secagg.scheme": "none"},
    "dp_model_unavailable": {"require.dp.model": "central"},
    "epsilon_fallback_idle": {"limits.epsilon_fallback": {"round": 1, "job": 3, "lifetime": 8}},
    "epsilon_fallback_caps": {
        "require.dp.model": "distributed",
        "limits.epsilon_fallback": {"round": 1, "job": 2.9, "lifetime": 8},
    },
    "dp_adjacency_unavailable": {"require.dp.adjacency": "replace_one"},
    "dp_sampling_unavailable": {"require.dp.sampling": "shuffle"},
    "dp_accountant_unavailable": {"require.dp.accountant": "gdp"},
    "dp_secure_rng_unavailable": {"require.dp.secure_rng": False},
    "public_model_without_dp": {
        "data_class": "synthetic",
        "require.dp": "none",
        "assume.recipient.kind": "public",
    },
    "external_model_without_dp": {**NO_DP, "assume.recipient.kind": "external"},
    "malicious_aggregator_without_dp": {**NO_DP, "assume.aggregator.behaviour": "malicious"},
    "inspected_network_without_dp": {**NO_DP, "assume.network.tls_inspection": True},
    "unit_below_patient": {"require.dp.unit": "record"},
    "algorithm_unknown": {"allow.algorithms": ["fedprox"]},
    "metrics_not_chargeable": {"release.metrics.dp": "charged"},
    "metrics_uncharged": {"release.metrics.dp": "none"},
    "epsilon_caps_disordered": {"limits.epsilon.round": 4},
    "delta_too_large": {"limits.delta_max": "0.01"},
    "weight_share_unreachable": {"limits.max_weight_share": 0.3},
    "witnesses_may_all_collude": {"evidence": {"witnesses_min": 1}},
    "witnesses_beyond_cohort": {"evidence": {"witnesses_min": 4}},
    "uncopied_on_real_data": {"evidence.fail_closed": False},
    "approvers_replaced_by_rule": {"require.approvals.n": 2},
    "approvers_beyond_roles": {"require.approvals": {"n": 3, "roles": ["data_steward", "dpo"]}},
}
"""Rule → one change to an honest threat model that this rule alone refuses."""


@pytest.mark.parametrize("rule", CONTRADICTIONS)
def test_each_contradiction_is_refused_by_its_own_rule_alone(rule: str) -> None:
    assert rules_of(bent(CONTRADICTIONS[rule])) == [rule]


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "krum", "multi_krum", "server_clipping"])
def test_algorithms_that_need_plaintext_are_refused_by_name(name: str) -> None:
    (finding,) = findings_of(bent({"allow.algorithms": ["fedavg", name]}))
    assert (finding.rule, finding.got) == ("algorithm_needs_plaintext", name)
    assert "hides from the server" in finding.sentence


def test_a_scheme_that_nobody_carries_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    text = bent({"require.secagg.scheme": "ckks"})
    monkeypatch.delitem(SCHEMES, "ckks")
    (finding, *_) = findings_of(text)
    assert (finding.rule, finding.got) == ("scheme_unavailable", "ckks")
    assert "does not implement the scheme ckks" in finding.sentence


def test_named_metrics_are_refused_even_when_they_are_said_to_be_withheld() -> None:
    assert rules_of(bent({"release.metrics.names": ["auc"]})) == ["metrics_uncharged"]


@lru_cache(maxsize=1)
def _cases() -> tuple[ThreatModel, ...]:
    """Every contradiction above as a model, unjudged."""
    changes = [
        {},
        *CONTRADICTIONS.values(),
        {"allow.algorithms": ["median"]},
        {"require.secagg.scheme": "ckks"},
        {"require.secagg.scheme": "ckks", "require.validity": "range", "limits.max_dropouts": 2},
        {"require.secagg.scheme": "pairwise", "limits.max_dropouts": 2},
        {"require.secagg.scheme": "threshold_ckks"},
    ]
    return tuple(unjudged(bent(change)) for change in changes)


@pytest.mark.parametrize("rule", LOADER_RULES, ids=lambda rule: rule.check.__name__)
def test_no_loader_rule_is_idle(rule: LoaderRule) -> None:
    assert any(list(rule.check(model)) for model in _cases())


class _Watched:
    """A model that notes which of its plain fields are read, as dotted paths."""

    def __init__(self, model: BaseModel, path: str, read: set[str]) -> None:
        self._model, self._path, self._read = model, path, read

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._model, name)
        path = f"{self._path}.{name}".strip(".")
        if isinstance(value, BaseModel):
            return _Watched(value, path, self._read)
        self._read.add(path)
        return value


@pytest.mark.parametrize("rule", LOADER_RULES, ids=lambda rule: rule.check.__name__)
def test_a_rule_declares_every_field_that_it_reads(rule: LoaderRule) -> None:
    """Else it would judge a default in the place of a field that did not parse."""
    read: set[str] = set()
    for model in _cases():
        list(rule.check(_Watched(model, "", read)))  # type: ignore[arg-type]  # stands in for the model
    undeclared = {
        path
        for path in read
        if not any(f"{path}.".startswith(f"spec.{declared}.") for declared in rule.reads)
    }
    assert read
    assert not undeclared


def test_patient_data_without_dp_load_only_among_institutions_that_trust_the_aggregator() -> None:
    assert bent_policy(NO_DP).model.spec.require.dp is None


def test_minimum_counts_the_larger_of_both_collusions() -> None:
    changes = {"assume.aggregator.colludes_with_silos": 2, "limits.min_silos_open": 3}
    assert rules_of(bent(changes)) == ["minimum_below_collusion"]
    assert rules_of(bent({**changes, "limits.min_silos_open": 4})) == []


def test_all_faults_are_reported_at_once() -> None:
    text = bent(
        {
            "assume.share_servers.max_colluding": 2,
            "limits.epsilon.job": "many",
            "limits.min_records": ABSENT,
            "limits.roundsmax": 3,
            "retention.updates": "24h",
            "release.metrics.dp": "charged",
            "/kind": ABSENT,
        }
    )
    assert sorted(rules_of(text + "metadata: {}\n")) == sorted(
        [
            "yaml.duplicate_key",
            "schema.missing_field",  # kind
            "schema.missing_field",  # metadata.name, of the second metadata
            "schema.missing_field",  # metadata.version
            "schema.bad_value",
            "schema.unknown_field",
            "schema.not_enforced",
            "collusion_reaches_all_servers",
            "metrics_not_chargeable",
        ]
    )


def test_a_field_that_does_not_parse_is_told_once_and_no_rule_judges_its_default() -> None:
    """max_colluding 2 needs a minimum of four; a default of five must not hide nor three repeat the fault."""
    text = bent({"assume.silos.max_colluding": 2, "limits.min_silos_open": "three"})
    assert rules_of(text) == ["schema.bad_value"]
    assert rules_of(bent({"require.dp.unit": "person", "assume.recipient.kind": "public"})) == [
        "schema.bad_value"
    ]


def test_share_servers_with_a_fault_are_told_once_and_not_taken_for_absent() -> None:
    assert rules_of(bent({"assume.share_servers.count": "two"})) == ["schema.bad_value"]
    assert rules_of(bent({"assume.share_servers.count": ABSENT})) == ["schema.missing_field"]


def test_no_share_servers_are_put_in_the_place_of_none_when_another_field_is_faulty() -> None:
    """Stand-ins fill what did not parse; a group that is rightly absent stays absent."""
    rules = rules_of(bent({"assume.share_servers": ABSENT, "limits.min_records": "few"}))
    assert sorted(rules) == ["schema.bad_value", "share_servers_missing"]


def test_unknown_fields_are_named_with_the_nearest_known_one() -> None:
    (finding,) = findings_of(bent({"limits.min_silo_open": 3}))
    assert finding.rule == "schema.unknown_field"
    assert "spec.limits.min_silo_open" in finding.sentence
    assert "write min_silos_open" in finding.remedy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("require.attestation", ["sev_snp"]),
        ("require.cert_max_ttl", "24h"),
        ("retention.updates", "24h"),
        ("retention.updates_hours", 24),
        ("retention.evidence", "6y"),
        ("release.model.approvals", {"n": 2}),
        ("release.metrics.min_cohort", 5),
    ],
)
def test_what_nothing_enforces_is_refused_and_not_ignored(path: str, value: object) -> None:
    (finding,) = findings_of(bent({path: value}))
    assert finding.rule == "schema.not_enforced"
    assert path.strip("/") in finding.sentence


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("limits.min_silos_open", True),
        ("limits.min_silos_open", "010"),
        ("limits.min_silos_open", 1),
        ("limits.min_silos_open", "3.0"),
        ("assume.network.tls_inspection", "yes"),
        ("assume.network.tls_inspection", 1),
        ("limits.delta_max", ".nan"),
        ("limits.delta_max", 0),
        ("limits.epsilon.job", ".inf"),
        ("limits.epsilon.lifetime", 101),
        ("limits.clip_l2_max", -1),
        ("limits.upload_bytes_max", "64MB"),
        ("allow.algorithms", "fedavg"),
        ("allow.architectures", "all"),
        ("allow.architectures", ["sha256:12"]),
        ("require.dp", None),
        ("require.dp", ""),
        ("require.dp", False),
        ("data_class", "genomic"),
        ("require.approvals.n", 0),
        ("require.approvals.n", 4),
        ("require.approvals.roles", []),
        ("require.approvals.roles", ["dpo", "dpo"]),
        ("require.approvals.roles", ["auditor"]),
        ("require.approvals.automatic", True),
        ("evidence", {"witnesses_min": 0}),
        ("evidence", {"sinks_min": 3}),
        ("evidence", {"fail_closed": "yes"}),
        ("retention.evidence_days", 0),
        ("/apiVersion", "sealsum/v2"),
        ("/metadata.extends", "sha256:00"),
        ("/metadata.extends", "demo-hospitals"),
    ],
)
def test_a_value_of_another_form_is_refused(path: str, value: object) -> None:
    assert rules_of(bent({path: value})) == ["schema.bad_value"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nothing"),
        ("[]", "[]"),
        ("spec: &a {}\nmetadata: *a", "aliases"),
        ("spec: !!python/object/apply:os.system ['id']", "tags"),
        ("spec: !!int 010", "tags"),
        ("[" * 3000, "12 levels"),
        ("a: 1\n---\na: 2", "another document"),
        ("? [a]\n: 1", "plain word as a key"),
        ("a: [1", "line"),
        ("a: \x00", "special characters"),
        ("#" * 65537, "65537 bytes"),
    ],
)
def test_text_that_is_not_one_plain_document_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        load_threat_model(text)
    assert any(problem in finding.got for finding in refused.value.findings)


def test_aliases_cannot_blow_up_memory() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    assert rules_of(bomb) == ["yaml.unreadable"]


@given(st.text(max_size=300))
def test_any_text_loads_or_is_refused_with_findings(text: str) -> None:
    with pytest.raises(PolicyInvalid, match="refused by"):
        load_threat_model(text)


def test_the_digest_can_be_recomputed_without_a_yaml_parser() -> None:
    text = profile_text("demo-hospitals")
    expected = hashlib.sha256(b"sealsum/policy/v1\x00" + text.encode()).hexdigest()
    assert load_threat_model(text).digest == expected


def test_a_comment_changes_the_digest() -> None:
    text = profile_text("demo-hospitals")
    assert load_threat_model(text + "# x\n").digest != load_threat_model(text).digest


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_loads_and_says_its_own_name(name: str) -> None:
    text = profile_text(name)
    assert load_threat_model(text).model.metadata.name == name
    assert "# " in text, "a profile gives its rationale in comments"


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="demo-hospitals"):
        profile_text("lenient")


def test_defaults_are_the_strict_choice() -> None:
    """The shortest policy file: whoever changes a default here changes what is promised under v1."""
    model = ThreatModel.model_validate(
        {
            "apiVersion": "sealsum/v1",
            "kind": "ThreatModel",
            "metadata": {"name": "x", "version": 1},
            "spec": {"data_class": "patient", "assume": {"share_servers": {"count": 2, "max_colluding": 1}}},
        }
    )
    spec = model.spec.model_dump(mode="json")
    assert spec["mode"] == "enforce"
    assert spec["assume"]["aggregator"] == {"behaviour": "malicious", "colludes_with_silos": 2}
    assert spec["assume"]["share_servers"]["distinct_operators"] is True
    assert spec["assume"]["silos"] == {
        "max_colluding": 2,
        "max_poisoning": 1,
        "distinct_legal_entities": True,
    }
    assert spec["assume"]["recipient"] == {"kind": "public", "access": "white_box"}
    assert spec["assume"]["network"] == {"tls_inspection": True}
    assert spec["assume"]["out_of_scope"] == []
    assert spec["require"]["secagg"] == {"scheme": "additive"}
    assert spec["require"]["dp"]["unit"] == "patient"
    assert spec["limits"]["min_silos_open"] == 5
    assert spec["limits"]["max_dropouts"] == 0
    assert spec["limits"]["epsilon"] == {"round": "0.3", "job": "1.0", "lifetime": "1.0"}
    assert spec["require"]["approvals"] == {
        "n": 1,
        "roles": ["data_steward", "dpo"],
        "automatic": "refused",
    }
    assert spec["allow"] == {"algorithms": [], "architectures": []}
    assert spec["release"] == {
        "metrics": {"names": [], "dp": "withheld"},
        "model": {"to": "silos", "when": "job_end"},
    }
    assert spec["evidence"] == {"witnesses_min": None, "sinks_min": 1, "fail_closed": True}
    assert spec["retention"] == {"evidence_days": 2190}


@given(minimum=st.integers(2, 1000), colluding=st.integers(0, 998))
def test_witnesses_left_out_are_a_majority_that_cannot_all_collude_and_can_be_had(
    minimum: int, colluding: int
) -> None:
    minimum = max(minimum, colluding + 2)
    spec = unjudged(
        bent(
            {
                "limits.min_silos_open": minimum,
                "assume.silos.max_colluding": colluding,
            }
        )
    ).spec
    assert max(minimum / 2, colluding) < spec.witnesses_needed <= minimum


def test_a_policy_invalid_reads_as_a_list_of_what_to_do() -> None:
    with pytest.raises(PolicyInvalid) as refused:
        load_threat_model(bent({"mode": "audit", "limits.epsilon.round": 4}))
    text = str(refused.value)
    assert text.startswith("threat model: refused by 2 rules")
    assert "expected" in text
    assert "to do     write mode: enforce" in text
    assert refused.value.exit_code == 78
