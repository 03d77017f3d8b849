"""May these numbers about data or a model leave the silos? Statistics, metrics of models and of training.

Each is noised and charged to a ledger like a training round; a threat model says besides which algorithms run
and, name by name, which metrics are released.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.assumption import colluding_silos
from policies.findings import Finding
from policies.schema import Spec, ThreatModel
from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import JobSpec, RoundPlan
from privacy.query_blocks import answer_terms
from privacy.query_skews import LEAST_HONEST
from privacy.query_terms import METRIC_NAMES, SKEWS, EvaluationTerms, SiloAccuracyMetric, StatisticsTerms
from privacy.roster import Charter


def metrics_are_charged_or_withheld(model: ThreatModel) -> Iterator[Finding]:
    """A metric is computed from patients; uncharged, it leaks outside the claim."""
    metrics = model.spec.release.metrics
    got = f"names: [{', '.join(metrics.names)}], dp: {metrics.dp}"
    if metrics.dp == "charged":
        unknown = sorted(set(metrics.names) - set(METRIC_NAMES))
        if unknown or not metrics.names or model.spec.require.dp is None:
            yield Finding(
                "metrics_not_chargeable",
                "a charged metric has a mechanism in this release, a ledger to charge, and a name here",
                f"release.metrics.names among {', '.join(METRIC_NAMES)}, and require.dp",
                got + (", without require.dp" if model.spec.require.dp is None else ""),
                "list the metrics to be released, or write {names: [], dp: withheld}",
            )
    elif metrics.dp == "none" or metrics.names:
        yield Finding(
            "metrics_uncharged",
            "released metrics that are neither charged nor withheld leak outside the privacy claim",
            "release.metrics: {names: [], dp: withheld}, or {names: [loss, …], dp: charged}",
            got,
            "write dp: charged, or remove the names and write dp: withheld",
        )


def metrics_released_by_name(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """Every metric of an evaluation, and of training steps, stands in the threat model by its name."""
    release = spec.release.metrics
    listed = release.names if release.dp == "charged" else ()
    for name in _metrics_of(plan):
        if name not in listed:
            yield Finding(
                "metric_withheld",
                "the threat model does not release this metric",
                f"one of [{', '.join(listed)}] (release.metrics, dp: {release.dp})",
                name,
                f"leave {name} out of the job, or agree on release.metrics with it and dp: charged",
            )


def skews_are_of_enough_silos(spec: Spec, plan: RoundPlan, charter: Charter) -> Iterator[Finding]:
    """A sum and a sum of squares over two unknown silos say what each of them is.

    Noise is made for one patient, not for a silo's size or shares. A silo, or those that collude, take their
    own
    terms away from the sums: what is left must be of three silos or more.
    """
    if plan.query is None:
        return
    asked = plan.query.statistics if isinstance(plan.query, StatisticsTerms) else plan.query.metrics
    skews = sorted({one.kind for one in asked if isinstance(one, (*SKEWS, SiloAccuracyMetric))})
    least = max(1, colluding_silos(spec)) + LEAST_HONEST
    if skews and plan.min_survivors < least:
        yield Finding(
            "skews_of_few_silos",
            "so few silos can be told apart by a statistic of silos and what some know of themselves",
            f"min_survivors of at least {least} ({LEAST_HONEST} beside those that pool what they know)",
            f"{plan.min_survivors}, with {', '.join(skews)}",
            f"raise the query's min_silos to {least}, or leave {', '.join(skews)} out",
        )


def _metrics_of(plan: RoundPlan) -> list[str]:
    asked = plan.query.names if isinstance(plan.query, EvaluationTerms) else ()
    training = plan.dp.metrics.names if plan.dp is not None and plan.dp.metrics is not None else ()
    return [*asked, *training]


def judged_architecture(plan: RoundPlan) -> Digest | None:
    """The architecture that a silo runs on its records, which a threat model has to list.

    An evaluation runs the model that it names, not its own vector of answers; statistics run none.
    """
    if isinstance(plan.query, StatisticsTerms):
        return None
    return plan.query.model.architecture if plan.query is not None else plan.architecture


def answers_fit_the_query(job: JobSpec) -> Iterator[Finding]:
    """The vector that is opened has exactly the blocks that the query asks for, in its order.

    With other terms in that place, silos and readers would not mean the same by a coordinate.
    """
    query = job.query
    if query is None:
        return
    remedy = "sign the job as `sealsum query submit` writes it"
    try:
        expected = answer_terms(query, job.data)
    except Unprocessable as fault:
        why = "the query cannot be asked of this data schema"
        yield Finding("query_schema", why, "columns, cuts and labels of the schema", str(fault), remedy)
        return
    if job.model != expected:
        yield Finding(
            "query_answers",
            "the job's model is not the vector of answers to its query",
            f"architecture {expected.architecture}",
            job.model.architecture,
            remedy,
        )
    if isinstance(query, EvaluationTerms) and query.model.inputs != job.data.width:
        yield Finding(
            "query_inputs",
            "the evaluated model reads other features than the job's data schema gives",
            f"query.model.inputs {job.data.width} (the width of data)",
            str(query.model.inputs),
            "evaluate the model on the schema that it was trained on",
        )
