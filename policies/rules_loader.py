"""What a threat model may not say: contradictions, and promises that this release cannot keep.

Each rule is a pure function over a whole model and stands in ``LOADER_RULES`` beside the fields it
reads: the loader skips a rule when one of its fields did not parse, so that one fault is not told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import get_args

from policies.assumption import colluding_silos
from policies.findings import Finding
from policies.rules_assumed import (
    joint_key_little_flooded,
    one_key_at_all_silos,
    share_servers_with_additive_only,
    threshold_reachable,
    validity_available,
)
from policies.rules_available import (
    dp_as_implemented,
    model_beyond_recipient,
    models_are_white_box,
    scheme_available,
)
from policies.rules_dp import (
    delta_below_one_in_records,
    epsilon_caps_nest,
    fallback_caps_are_used,
    fallback_caps_hold_epsilon,
    no_dp_only_among_friends,
    patients_are_the_unit,
)
from policies.rules_evidence import (
    approvers_have_roles,
    open_failure_only_for_synthetic,
    several_approvers_are_people,
    witnesses_outnumber_colluders,
    witnesses_reachable,
)
from policies.rules_queries import metrics_are_charged_or_withheld
from policies.schema import ThreatModel
from privacy.plan import TrainingTerms


def collusion_below_all_servers(model: ThreatModel) -> Iterator[Finding]:
    """All k shares together are the update: Σ shares = x (``privacy/secagg/additive.py``)."""
    servers = model.spec.assume.share_servers
    if servers is not None and servers.max_colluding >= servers.count:
        yield Finding(
            "collusion_reaches_all_servers",
            "share servers that all collude add their shares up and read every silo's update",
            f"assume.share_servers.max_colluding of at most {servers.count - 1}",
            f"{servers.max_colluding} of {servers.count}",
            "add share servers under further operators, or assume fewer colluding ones",
        )


def one_operator_is_one_colluder(model: ThreatModel) -> Iterator[Finding]:
    """Servers of one operator collude or are honest together."""
    servers = model.spec.assume.share_servers
    if servers is None or servers.distinct_operators:
        return
    behaviour = model.spec.assume.aggregator.behaviour
    if servers.max_colluding > 0 or behaviour == "malicious":
        yield Finding(
            "one_operator_for_servers",
            "an operator that runs several share servers and colludes puts the shares together",
            "distinct_operators: true, or max_colluding: 0 under an aggregator that is not malicious",
            f"distinct_operators: false, max_colluding: {servers.max_colluding}, aggregator {behaviour}",
            "run each share server under another operator",
        )


def one_entity_is_one_colluder(model: ThreatModel) -> Iterator[Finding]:
    """Silos of one institution know each other's data: counting them as strangers hides nobody."""
    silos = model.spec.assume.silos
    if silos.distinct_legal_entities:
        return
    colluding = colluding_silos(model.spec)
    if colluding > 0 or model.spec.assume.aggregator.behaviour == "malicious":
        yield Finding(
            "one_entity_for_silos",
            "silos of one institution count once against colluders and a malicious aggregator",
            "distinct_legal_entities: true, or no colluding silos and an aggregator that is not malicious",
            f"distinct_legal_entities: false, {colluding} colluding, "
            f"aggregator {model.spec.assume.aggregator.behaviour}",
            "count legal entities, or state that all silos belong to one institution that trusts itself",
        )


def minimum_above_collusion(model: ThreatModel) -> Iterator[Finding]:
    """c colluders subtract their own updates from the sum: of c + 1 silos one is left in the open."""
    need = colluding_silos(model.spec) + 2
    minimum = model.spec.limits.min_silos_open
    if minimum < need:
        yield Finding(
            "minimum_below_collusion",
            "colluding silos subtract their own updates from the sum; at least two honest ones must remain",
            f"limits.min_silos_open of at least {need} (colluding silos + 2)",
            str(minimum),
            f"raise limits.min_silos_open to {need}, or assume fewer colluding silos",
        )


def trusted_means_trusted(model: ThreatModel) -> Iterator[Finding]:
    """A trusted party that colludes is a contradiction that a reader would resolve wrongly."""
    aggregator = model.spec.assume.aggregator
    if aggregator.behaviour == "trusted" and aggregator.colludes_with_silos > 0:
        yield Finding(
            "trusted_aggregator_colludes",
            "a trusted aggregator does not collude",
            "assume.aggregator.colludes_with_silos: 0",
            str(aggregator.colludes_with_silos),
            "write behaviour: honest_but_curious or malicious, or colludes_with_silos: 0",
        )


_NEEDS_PLAINTEXT = {
    "median": "a median",
    "trimmed_mean": "a trimmed mean",
    "krum": "Krum",
    "multi_krum": "Krum",
    "server_clipping": "clipping at the server",
}
_ALGORITHMS: tuple[str, ...] = get_args(TrainingTerms.model_fields["algorithm"].annotation)


def algorithms_need_only_the_sum(model: ThreatModel) -> Iterator[Finding]:
    """Robust rules look at single updates; together with secure aggregation their protection is void."""
    for name in model.spec.allow.algorithms:
        if name in _NEEDS_PLAINTEXT:
            yield Finding(
                "algorithm_needs_plaintext",
                f"{_NEEDS_PLAINTEXT[name]} compares single updates, which secure aggregation hides from the "
                "server",
                f"algorithms that need only the sum: {', '.join(_ALGORITHMS)}",
                name,
                f"remove {name} from allow.algorithms; updates are clipped at the silo, per record",
            )
        elif name not in _ALGORITHMS:
            yield Finding(
                "algorithm_unknown",
                "this release has no such algorithm, so allowing it allows nobody knows what",
                ", ".join(_ALGORITHMS),
                name,
                f"remove {name} from allow.algorithms",
            )


def audit_only_for_synthetic(model: ThreatModel) -> Iterator[Finding]:
    """A mode that only notes breaches is for trying things out."""
    if model.spec.mode == "audit" and model.spec.data_class != "synthetic":
        yield Finding(
            "audit_on_real_data",
            "mode audit lets a plan pass its limits and only records that it did",
            "mode: enforce, or data_class: synthetic",
            f"mode: audit, data_class: {model.spec.data_class}",
            "write mode: enforce",
        )


def weight_share_reachable(model: ThreatModel) -> Iterator[Finding]:
    """n silos of equal weight hold 1/n each: a smaller cap than that refuses every smallest cohort."""
    limits = model.spec.limits
    if limits.max_weight_share * limits.min_silos_open < 1:
        yield Finding(
            "weight_share_unreachable",
            f"{limits.min_silos_open} silos of equal weight hold more than the largest share allowed",
            f"max_weight_share of at least {1 / limits.min_silos_open:.3g}, or a larger min_silos_open",
            f"{limits.max_weight_share:g}",
            "raise limits.min_silos_open or limits.max_weight_share",
        )


def open_threats_are_named(model: ThreatModel) -> Iterator[Finding]:
    """Silence would read as a promise: what nothing here stops must be written down as open."""
    assume = model.spec.assume
    if "silo_host_compromise" not in assume.out_of_scope:
        yield Finding(
            "open_threat_unnamed",
            "whoever controls a silo's machine reads its data; nothing in a protocol stops that",
            "assume.out_of_scope to contain silo_host_compromise",
            f"[{', '.join(assume.out_of_scope)}]",
            "add silo_host_compromise to assume.out_of_scope",
        )
    if assume.silos.max_poisoning > 0 and "silo_poisoning" not in assume.out_of_scope:
        yield from _poisoning_left_open(model)


def _poisoning_left_open(model: ThreatModel) -> Iterator[Finding]:
    """Checks inside shares bound a poisoned update only while *every* share server checks honestly."""
    validity, servers = model.spec.require.validity, model.spec.assume.share_servers
    why = "a poisoning silo may share any vector: nothing checks updates inside their shares"
    if validity != "none" and servers is not None:
        if servers.max_colluding == 0:
            return
        why = "a share server that colludes with a poisoning silo passes its update: all must check honestly"
    yield Finding(
        "poisoning_unchecked",
        why,
        "assume.silos.max_poisoning: 0, or silo_poisoning in assume.out_of_scope",
        f"max_poisoning: {model.spec.assume.silos.max_poisoning}, validity: {validity}, out_of_scope: "
        f"[{', '.join(model.spec.assume.out_of_scope)}]",
        "add silo_poisoning to assume.out_of_scope, so that readers know that it is open",
    )


@dataclass(frozen=True)
class LoaderRule:
    """A rule, and the fields (paths below ``spec``) that it judges by."""

    check: Callable[[ThreatModel], Iterator[Finding]]
    reads: tuple[str, ...]


_BEHAVIOUR = "assume.aggregator.behaviour"
_COLLUDING = ("assume.aggregator.colludes_with_silos", "assume.silos.max_colluding")
_RECIPIENT = "assume.recipient.kind"

LOADER_RULES: tuple[LoaderRule, ...] = (
    LoaderRule(audit_only_for_synthetic, ("mode", "data_class")),
    LoaderRule(trusted_means_trusted, (_BEHAVIOUR, _COLLUDING[0])),
    LoaderRule(share_servers_with_additive_only, ("assume.share_servers", "require.secagg")),
    LoaderRule(collusion_below_all_servers, ("assume.share_servers",)),
    LoaderRule(one_operator_is_one_colluder, ("assume.share_servers", _BEHAVIOUR)),
    LoaderRule(one_entity_is_one_colluder, ("assume.silos", _COLLUDING[0], _BEHAVIOUR)),
    LoaderRule(minimum_above_collusion, ("limits.min_silos_open", *_COLLUDING)),
    LoaderRule(models_are_white_box, ("assume.recipient.access",)),
    LoaderRule(model_beyond_recipient, (_RECIPIENT, "release.model.to")),
    LoaderRule(
        open_threats_are_named,
        (
            "assume.out_of_scope",
            "assume.silos.max_poisoning",
            "require.validity",
            "assume.share_servers",
        ),
    ),
    LoaderRule(scheme_available, ("require.secagg",)),
    LoaderRule(one_key_at_all_silos, ("require.secagg", _BEHAVIOUR, *_COLLUDING, _RECIPIENT)),
    LoaderRule(joint_key_little_flooded, ("require.secagg", _BEHAVIOUR, *_COLLUDING)),
    LoaderRule(
        threshold_reachable,
        ("require.secagg", _BEHAVIOUR, *_COLLUDING, "limits.min_silos_open", "limits.max_dropouts"),
    ),
    LoaderRule(validity_available, ("require.validity", "require.secagg")),
    LoaderRule(dp_as_implemented, ("require.dp",)),
    LoaderRule(
        no_dp_only_among_friends,
        ("require.dp", "data_class", _RECIPIENT, _BEHAVIOUR, "assume.network.tls_inspection"),
    ),
    LoaderRule(patients_are_the_unit, ("require.dp", "data_class")),
    LoaderRule(algorithms_need_only_the_sum, ("allow.algorithms",)),
    LoaderRule(metrics_are_charged_or_withheld, ("release.metrics", "require.dp")),
    LoaderRule(epsilon_caps_nest, ("limits.epsilon",)),
    LoaderRule(fallback_caps_hold_epsilon, ("limits.epsilon", "limits.epsilon_fallback")),
    LoaderRule(fallback_caps_are_used, ("limits.epsilon_fallback", "require.dp")),
    LoaderRule(delta_below_one_in_records, ("limits.delta_max", "limits.min_records", "require.dp")),
    LoaderRule(weight_share_reachable, ("limits.max_weight_share", "limits.min_silos_open")),
    LoaderRule(several_approvers_are_people, ("require.approvals",)),
    LoaderRule(approvers_have_roles, ("require.approvals",)),
    LoaderRule(witnesses_outnumber_colluders, ("evidence.witnesses_min", *_COLLUDING)),
    LoaderRule(witnesses_reachable, ("evidence.witnesses_min", "limits.min_silos_open")),
    LoaderRule(open_failure_only_for_synthetic, ("evidence.fail_closed", "data_class")),
)
"""Every rule of the loader, in the order of the file it judges."""
