"""Does a round's plan stay within a threat model? One small rule for each limit.

ε is computed here from the plan's own terms (``privacy.dp``), not taken from anybody's claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from policies.findings import Finding
from policies.institutions import distinct_entities
from policies.loader import LoadedPolicy
from policies.rules_binding import binding_findings
from policies.rules_epsilon import epsilon_within_caps
from policies.rules_metrics import (
    further_vectors_are_charged,
    metrics_on_a_sound_grid,
)
from policies.rules_noise import noise_on_a_sound_grid, shares_of_honest_silos
from policies.rules_queries import judged_architecture, metrics_released_by_name, skews_are_of_enough_silos
from policies.rules_release import mean_updates_stay_with_models
from policies.rules_scheme import (
    cohort_within_scheme,
    enough_share_servers,
    operators_differ,
    parameters_allow_listed,
    scheme_as_required,
    threshold_withstands,
)
from policies.rules_selection import cohort_is_drawn
from policies.rules_validity import validity_as_required, validity_terms_sound
from policies.rules_weights import weights_reveal_nothing
from policies.schema import Spec
from policies.upload_size import upload_bytes
from privacy.errors import Unprocessable
from privacy.plan import JobSpec, RoundPlan
from privacy.roster import Charter
from privacy.secagg.vectors import vectors_of


def plan_findings(policy: LoadedPolicy, plan: RoundPlan, job: JobSpec, charter: Charter) -> list[Finding]:
    """Everything that is wrong with a plan: its binding to job and charter, and one threat model's limits."""
    return [
        *binding_findings(plan, job, charter),
        *cohort_is_drawn(policy, plan, job, charter),
        *limit_findings(policy, plan, charter),
    ]


def limit_findings(policy: LoadedPolicy, plan: RoundPlan, charter: Charter) -> list[Finding]:
    """Every requirement and limit of one threat model that ``plan`` does not keep."""
    spec = policy.model.spec
    return [finding for rule in PLAN_RULES for finding in rule(spec, plan, charter)]


def minimum_of_survivors(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """The fewer are summed, the more the sum says of each."""
    minimum = spec.limits.min_silos_open
    if plan.min_survivors < minimum:
        yield Finding(
            "min_survivors",
            "the plan would open a sum of fewer silos than the threat model allows",
            f"min_survivors of at least {minimum}",
            str(plan.min_survivors),
            "raise the job's min_silos",
        )
    if plan.min_survivors > len(plan.cohort):
        yield Finding(
            "min_survivors_reachable",
            "the cohort is smaller than its own minimum, so the round could only cost budget",
            f"a cohort of at least {plan.min_survivors}",
            f"{len(plan.cohort)} silos",
            "wait for more silos",
        )


def dropouts_limited(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """An aggregator that may drop silos chooses whose sum it sees."""
    floor = len(plan.cohort) - spec.limits.max_dropouts
    if plan.min_survivors < floor:
        yield Finding(
            "max_dropouts",
            "whoever may drop silos at will chooses which sum is opened",
            f"min_survivors of at least {floor} ({len(plan.cohort)} invited − {spec.limits.max_dropouts})",
            str(plan.min_survivors),
            "raise min_survivors, or invite fewer silos",
        )


def institutions_in_cohort(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Ten silos of one hospital are one hospital."""
    if not spec.assume.silos.distinct_legal_entities:
        return
    entities = distinct_entities(charter, plan.silos)
    if entities < spec.limits.min_silos_open:
        yield Finding(
            "legal_entities",
            "the cohort's silos belong to too few institutions to hide one among them",
            f"at least {spec.limits.min_silos_open} legal entities",
            str(entities),
            "invite silos of further institutions",
        )


def algorithm_listed(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Nothing is allowed unless listed."""
    if plan.training.algorithm not in spec.allow.algorithms:
        yield Finding(
            "algorithm",
            "the threat model does not list this algorithm",
            f"one of [{', '.join(spec.allow.algorithms)}]",
            plan.training.algorithm,
            "sign the job with a listed algorithm, or list this one under allow.algorithms",
        )


def architecture_listed(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """A crafted architecture imprints records (Fowl et al. 2022), so silos list what they run."""
    listed = spec.allow.architectures
    architecture = judged_architecture(plan)
    if architecture is None:
        return
    if "any" not in listed and f"sha256:{architecture}" not in listed:
        yield Finding(
            "architecture",
            "the threat model does not list this model architecture",
            f"one of [{', '.join(listed)}]",
            f"sha256:{architecture}",
            "review the architecture and add its digest to allow.architectures",
        )


def dp_as_required(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """The plan brings the mechanism, its unit and its adjacency."""
    required = spec.require.dp
    if required is None:
        return
    if plan.dp is None:
        yield Finding(
            "dp_missing",
            "the threat model requires differential privacy",
            f"dp terms with unit {required.unit}",
            "no dp terms",
            "sign the job with dp terms",
        )
        return
    if plan.dp.records_per_unit > required.max_records_per_unit:
        yield Finding(
            "dp_records_per_unit",
            "the plan uses more records of one unit than the threat model allows",
            f"dp.records_per_unit of at most {required.max_records_per_unit}",
            str(plan.dp.records_per_unit),
            "sign the job with fewer records a unit",
        )
    if required.unit == "patient" and plan.dp.unit != "patient":
        yield Finding(
            "dp_unit",
            "the plan protects single records, and a patient may have several",
            f"dp.unit {required.unit}",
            plan.dp.unit,
            "sign the job with the required unit",
        )
    if required.model == "local" and plan.dp.model != "local":
        # The other way round the plan is the stricter one: whoever sees the sum learns no more than promised.
        yield Finding(
            "dp_model",
            "with distributed noise a single update is protected by its silo's share of it only",
            f"dp.model {required.model}",
            plan.dp.model,
            "sign the job with model: local (every silo adds all of the noise)",
        )
    terms = (
        ("adjacency", required.adjacency, plan.dp.adjacency),
        ("sampling", required.sampling, plan.dp.sampling),
    )
    for field, expected, got in terms:
        if got != expected:
            yield Finding(
                f"dp_{field}",
                f"the plan's dp.{field} is not the required one",
                expected,
                got,
                "sign the job with the required terms",
            )


def dp_within_limits(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Clip and δ, whether the threat model requires DP or the job brought it by itself."""
    if plan.dp is None:
        return
    terms = (
        ("clip_l2", spec.limits.clip_l2_max, plan.dp.clip_l2),
        ("delta", spec.limits.delta_max, plan.dp.delta),
    )
    for field, most, got in terms:
        if got > most:
            yield Finding(
                f"dp_{field}",
                f"the plan's {field} is looser than the threat model allows",
                f"dp.{field} of at most {most:g}",
                f"{got:g}",
                f"sign the job with a smaller dp.{field}",
            )


def ring_holds_the_sum(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """A sum that wraps around the ring is a wrong model that nobody notices."""
    try:
        vectors_of(plan).assert_fit(len(plan.cohort))
    except Unprocessable as overflow:
        yield Finding(
            "ring",
            "the sum of the whole cohort could wrap around the ring Z_2^32",
            "cohort × coordinate_bound × 2^scale_bits below 2^31",
            str(overflow),
            "sign the job with fewer scale_bits or a smaller coordinate_bound",
        )


def upload_within_limit(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Bytes of one silo's vectors in one round, as shares, masked or as ciphertexts."""
    size = upload_bytes(plan)
    if size > spec.limits.upload_bytes_max:
        yield Finding(
            "upload_bytes",
            "the model is too large for what a silo agreed to upload each round",
            f"at most {spec.limits.upload_bytes_max} bytes",
            f"{size} bytes ({plan.coordinates} parameters, a weight and {len(plan.further)} further vectors "
            f"by {plan.scheme})",
            "train a smaller model, or raise limits.upload_bytes_max",
        )


def rounds_within_limit(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """The whole job is judged at its first round."""
    if plan.rounds > spec.limits.rounds_max:
        yield Finding(
            "rounds",
            "the job has more rounds than the threat model allows",
            f"at most {spec.limits.rounds_max} rounds",
            str(plan.rounds),
            "sign the job with fewer rounds",
        )


PlanRule = Callable[[Spec, RoundPlan, Charter], Iterator[Finding]]
PLAN_RULES: tuple[PlanRule, ...] = (
    scheme_as_required,
    cohort_within_scheme,
    threshold_withstands,
    parameters_allow_listed,
    validity_as_required,
    enough_share_servers,
    operators_differ,
    minimum_of_survivors,
    dropouts_limited,
    institutions_in_cohort,
    algorithm_listed,
    architecture_listed,
    metrics_released_by_name,
    skews_are_of_enough_silos,
    dp_as_required,
    dp_within_limits,
    epsilon_within_caps,
    shares_of_honest_silos,
    noise_on_a_sound_grid,
    further_vectors_are_charged,
    mean_updates_stay_with_models,
    metrics_on_a_sound_grid,
    weights_reveal_nothing,
    ring_holds_the_sum,
    validity_terms_sound,
    upload_within_limit,
    rounds_within_limit,
)
"""Every limit of a threat model that a plan is held against."""
