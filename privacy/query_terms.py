"""What a query asks of each patient, in public terms: statistics of a data set, or metrics of one model.

A query is one Gaussian mechanism: each patient adds one vector of norm at most C to the sum, which is opened
once, under noise. The vector is cut into blocks, one a statistic or metric; ``share`` says how much of the
squared norm each block gets, relative to the others (``privacy.query_blocks``). Knows no data and no model.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal, Self, TypeAlias, get_args

from pydantic import Field, model_validator

from privacy.canonical import Frozen, Real
from privacy.ids import HexDigest
from privacy.labels import Column
from privacy.model_terms import ModelTerms

Share = Annotated[Real, Field(ge=1e-6, le=1000)]
Threshold = Annotated[Real, Field(gt=0, lt=1)]
MetricName: TypeAlias = Literal[
    "accuracy", "auc", "calibration", "concordance", "confusion", "dice", "error", "loss", "silo_accuracy"
]
METRIC_NAMES: Final[tuple[MetricName, ...]] = get_args(MetricName)
"""Every metric that can be released under DP; ``accuracy`` and ``loss`` of training steps as well."""
MAX_ASKED: Final = 500


class _Asked(Frozen):
    share: Share = 1.0
    """Of the squared norm, relative to the query's other statistics or metrics."""


class CountStatistic(_Asked):
    """How many patients there are."""

    kind: Literal["count"] = "count"


class LabelStatistic(_Asked):
    """How many patients have each label."""

    kind: Literal["label"] = "label"


class MeanStatistic(_Asked):
    """Of a numeric column: how many values there are, their sum and mean. Values count within the range."""

    kind: Literal["mean"] = "mean"
    column: Column


class VarianceStatistic(_Asked):
    """As ``mean``, and the variance."""

    kind: Literal["variance"] = "variance"
    column: Column


class HistogramStatistic(_Asked):
    """How many patients fall into each bin or category, "missing" being one; quantiles follow from it."""

    kind: Literal["histogram"] = "histogram"
    column: Column
    cuts: Annotated[tuple[Real, ...], Field(max_length=1000)] = ()
    """Numeric columns: ascending, strictly within the column's public range. A value at a cut is above it."""
    by_label: bool = False
    """One histogram for each label, at the same price."""

    @model_validator(mode="after")
    def _cuts_ascend(self) -> Self:
        if any(one >= other for one, other in pairwise(self.cuts)):
            raise ValueError(f"statistics: cuts of {self.column}: expected ascending numbers")
        return self


class LabelSkewStatistic(_Asked):
    """How differently labels are spread: Σ p_k and Σ H(p_k) over the silos' own shares p_k."""

    kind: Literal["label_skew"] = "label_skew"
    least: Annotated[int, Field(ge=2, le=10**9)]
    """A silo with fewer patients is filled up to so many, evenly over the classes: what one patient moves p_k
    and H(p_k) by falls with it. At most ``limits.min_records`` of the silos, so that none is filled up."""


class SizeSkewStatistic(_Asked):
    """How differently many patients silos have: Σ n_k and Σ n_k²."""

    kind: Literal["size_skew"] = "size_skew"
    most: Annotated[int, Field(ge=1, le=10**9)]
    """Public; a silo with more patients counts as one with so many."""


class ColumnSkewStatistic(_Asked):
    """How much of a column's variance lies between silos, what is missing, and what is at the range's ends.

    Beside the sums of ``variance`` it takes Σ_k S_k²/n_k of each silo's own sum and count.
    """

    kind: Literal["column_skew"] = "column_skew"
    column: Column


Skew: TypeAlias = LabelSkewStatistic | SizeSkewStatistic | ColumnSkewStatistic
"""Statistics of silos: a term that each silo computes from all of its patients, not a sum over them."""
SKEWS: Final = (LabelSkewStatistic, SizeSkewStatistic, ColumnSkewStatistic)
Statistic = Annotated[
    CountStatistic | LabelStatistic | MeanStatistic | VarianceStatistic | HistogramStatistic | Skew,
    Field(discriminator="kind"),
]


class StatisticsTerms(Frozen):
    """A request for statistics of the job's data set."""

    kind: Literal["statistics"] = "statistics"
    statistics: Annotated[tuple[Statistic, ...], Field(min_length=1, max_length=MAX_ASKED)]


class LossMetric(_Asked):
    """Mean of the loss that models are trained on, each record's within [0, cap]."""

    kind: Literal["loss"] = "loss"
    cap: Annotated[Real, Field(gt=0, le=100)] = 4.0


class AccuracyMetric(_Asked):
    """Part of the records whose label is predicted: 1 where the probability reaches ``threshold``."""

    kind: Literal["accuracy"] = "accuracy"
    threshold: Threshold = 0.5


class ConfusionMetric(_Asked):
    """How many records of each label are predicted as each label."""

    kind: Literal["confusion"] = "confusion"
    threshold: Threshold = 0.5


class AucMetric(_Asked):
    """Area under the ROC curve, from one histogram of logits for each label."""

    kind: Literal["auc"] = "auc"
    bins: Annotated[int, Field(ge=2, le=1000)] = 40
    reach: Annotated[Real, Field(gt=0, le=100)] = 4.0
    """Bins are equally wide over logits from −reach to reach; what is beyond falls into the outer ones."""


class CalibrationMetric(_Asked):
    """Predicted against observed frequency, in equally wide bins of the predicted probability."""

    kind: Literal["calibration"] = "calibration"
    bins: Annotated[int, Field(ge=2, le=100)] = 10


class SiloAccuracyMetric(_Asked):
    """How unequally silos are served: mean and variance of their own accuracies, and the part of them under a
    threshold. A statistic of silos, as ``Skew``."""

    kind: Literal["silo_accuracy"] = "silo_accuracy"
    least: Annotated[int, Field(ge=2, le=10**9)]
    """A silo with fewer records in the data set is filled up to so many, half of them right."""
    threshold: Threshold = 0.7
    width: Annotated[Real, Field(gt=0, le=1)] = 0.1
    """A silo counts as under the threshold from half a width below it, and in part up to half above: without
    this one patient could turn a whole silo."""


class ErrorMetric(_Asked):
    """Of a predicted number: mean absolute error, and the root of the mean squared error."""

    kind: Literal["error"] = "error"
    cap: Annotated[Real, Field(gt=0, le=1)] = 1.0
    """As part of the label's public range; a larger error counts as this."""


class DiceMetric(_Asked):
    """Of a predicted mask: the mean over records of 2·|P ∩ Y| / (|P| + |Y|), each a number in [0, 1]."""

    kind: Literal["dice"] = "dice"
    threshold: Threshold = 0.5


class ConcordanceMetric(_Asked):
    """Of survival times: Harrell's C over all silos, from one histogram of times, events and log-hazards.

    Times that share a bin are not compared, and log-hazards that share one count half.
    """

    kind: Literal["concordance"] = "concordance"
    time_bins: Annotated[int, Field(ge=2, le=100)] = 10
    """Equally wide up to the label's horizon; one more holds who lived past it."""
    bins: Annotated[int, Field(ge=2, le=200)] = 20
    reach: Annotated[Real, Field(gt=0, le=100)] = 4.0
    """Bins are equally wide over log-hazards from −reach to reach; beyond fall into the outer ones."""


Metric = Annotated[
    LossMetric
    | AccuracyMetric
    | ConfusionMetric
    | AucMetric
    | CalibrationMetric
    | ErrorMetric
    | DiceMetric
    | ConcordanceMetric
    | SiloAccuracyMetric,
    Field(discriminator="kind"),
]


class EvaluationTerms(Frozen):
    """A request for metrics of one model on the job's data set."""

    kind: Literal["evaluation"] = "evaluation"
    model: ModelTerms
    weights: HexDigest
    """Digest of the model's weights; each silo hashes the bytes it received itself."""
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1, max_length=len(METRIC_NAMES))]

    @model_validator(mode="after")
    def _each_metric_once(self) -> Self:
        if len(set(self.names)) != len(self.metrics):
            raise ValueError("metrics: expected each at most once")
        return self

    @property
    def names(self) -> tuple[MetricName, ...]:
        """What a threat model has to list under ``release.metrics.names``."""
        return tuple(metric.kind for metric in self.metrics)


QueryTerms = Annotated[StatisticsTerms | EvaluationTerms, Field(discriminator="kind")]
