"""Sums of silos' terms say what plain computation on all silos' tables says, and the noise is told."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from policies.loader import load_threat_model
from policies.rules_plan import limit_findings
from privacy.errors import ConfigurationError
from privacy.query_blocks import blocks_of
from privacy.query_terms import (
    ColumnSkewStatistic,
    LabelSkewStatistic,
    SizeSkewStatistic,
    Statistic,
    StatisticsTerms,
)
from sealsum.queries.answer import read_answer
from sealsum.queries.file import NoiseRequest
from sealsum.queries.skews import of_sums, read_skew
from sealsum.queries.table import answer_table
from silo_agent.algorithms import dp_query
from silo_agent.data.records import Records
from silo_agent.queries.statistics import statistics_sums
from tests.federation import Federation
from tests.query_cohort import ALLOWED, SMALL, answered, asked, opened

SKEWS: tuple[Statistic, ...] = (
    LabelSkewStatistic(least=100),
    SizeSkewStatistic(most=1000),
    ColumnSkewStatistic(column="age"),
    ColumnSkewStatistic(column="sex"),
    ColumnSkewStatistic(column="pressure"),
)
QUERY = StatisticsTerms(statistics=SKEWS)


def _cohort() -> list[Records]:
    """Columns: age and its indicator, sex f, m and missing, pressure and its indicator."""
    random = np.random.default_rng(5)
    cohort = []
    for silo, count in enumerate((120, 300, 450, 800)):
        features = np.zeros((count, 7), dtype=np.float32)
        features[:, 0] = np.clip(random.normal(0.25 * silo, 0.4, count), -1, 1)
        features[
            np.arange(count), 2 + random.choice(3, count, p=[0.6 - 0.15 * silo, 0.35 + 0.15 * silo, 0.05])
        ] = 1
        features[:, 6] = random.random(count) < (0.9 if silo == 3 else 0.1)
        cohort.append(Records(features, (random.random(count) < 0.2 + 0.2 * silo).astype(np.float32)))
    return cohort


def _shared_variance(silos: list[np.ndarray]) -> float:  # type: ignore[type-arg]
    every = np.concatenate(silos)
    between = sum(len(one) * np.square(one.mean(0) - every.mean(0)).sum() for one in silos)
    return float(between / np.square(every - every.mean(0)).sum())


def test_exact_sums_say_what_plain_computation_says() -> None:
    cohort = _cohort()
    sums = [
        np.sum(parts, axis=0)
        for parts in zip(*(statistics_sums(QUERY, SMALL, one) for one in cohort), strict=True)
    ]
    label, size, age, sex, pressure = (
        read_skew(asked, SMALL, block.reshape(spec.spec.shape), 0.0, 4)  # type: ignore[arg-type]
        for asked, block, spec in zip(SKEWS, sums, blocks_of(QUERY, SMALL), strict=True)
    )
    chances = np.array([[1 - one.labels.mean(), one.labels.mean()] for one in cohort], dtype=float)
    mean = chances.mean(0)
    plain = (-(mean @ np.log(mean)) + np.mean([(one @ np.log(one)) for one in chances])) / np.log(4)
    assert label["divergence"]["estimate"] == pytest.approx(plain, rel=1e-5)
    # Of two silos it is SciPy's, squared, over log 2.
    pair = StatisticsTerms(statistics=(LabelSkewStatistic(least=2),))
    both = np.sum([statistics_sums(pair, SMALL, one)[0] for one in cohort[:2]], axis=0)
    (asked_pair,) = pair.statistics
    of_two = read_skew(asked_pair, SMALL, both, 0.0, 2)["divergence"]["estimate"]  # type: ignore[arg-type]
    assert of_two == pytest.approx(jensenshannon(*chances[:2]) ** 2 / np.log(2), rel=1e-5)
    sizes = np.array([len(one) for one in cohort])
    assert size["variation"]["estimate"] == pytest.approx(sizes.std() / sizes.mean(), rel=1e-5)
    assert age["between"]["estimate"] == pytest.approx(
        _shared_variance([one.features[:, :1] for one in cohort]), rel=1e-4
    )
    assert sex["between"]["estimate"] == pytest.approx(
        _shared_variance([one.features[:, 2:5] for one in cohort]), rel=1e-4
    )
    assert pressure["missing_between"]["estimate"] == pytest.approx(
        _shared_variance([one.features[:, 6:] for one in cohort]), rel=1e-4
    )
    assert pressure["missing"]["estimate"] == pytest.approx(
        np.concatenate([one.features[:, 6] for one in cohort]).mean(), rel=1e-5
    )
    everybody = np.concatenate([one.features[:, 0] for one in cohort])
    assert age["at_ends"]["estimate"] == pytest.approx((np.abs(everybody) >= 1).mean(), rel=1e-5)


def test_silos_that_share_no_class_diverge_by_one_and_alike_ones_by_none() -> None:
    one, other = (
        Records(np.zeros((200, 7), dtype=np.float32), np.full(200, label, np.float32)) for label in (0, 1)
    )
    query = StatisticsTerms(statistics=(LabelSkewStatistic(least=100),))
    (skew,) = query.statistics
    for silos, expected in (([one, other], 1.0), ([one, one], 0.0)):
        sums = np.sum([statistics_sums(query, SMALL, silo)[0] for silo in silos], axis=0)
        read = read_skew(skew, SMALL, sums, 0.0, 2)  # type: ignore[arg-type]
        assert read["divergence"]["estimate"] == pytest.approx(expected, abs=1e-9)


def test_intervals_of_noisy_sums_hold_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over repetitions of the noise, by a silo's own half: 95 % of intervals hold what no noise would say."""
    cohort = _cohort()
    federation = Federation(policy_text=ALLOWED)
    noise = NoiseRequest(unit="patient", noise_multiplier=0.5, delta=1e-5)
    job = asked(federation, QUERY, dp=noise, min_silos=4)
    random = np.random.default_rng(0)
    monkeypatch.setattr(dp_query, "gaussian", lambda count, deviation: np.zeros(count))
    exact = [answered(job, one) for one in cohort]
    assert job.dp is not None
    deviation = 0.5 * 2.0**job.vector.scale_bits * job.dp.clip_l2
    truth = read_answer(job, opened(job, exact), 4)["statistics"]
    names = [(0, "divergence"), (1, "variation"), (2, "between"), (3, "between"), (4, "missing_between")]
    held = dict.fromkeys(names, 0)
    for _ in range(200):
        noisy = [one + np.rint(random.normal(0, deviation, len(one))) for one in exact]
        for place, name in names:
            low, high = read_answer(job, opened(job, noisy), 4)["statistics"][place][name]["interval_95"]
            held[place, name] += low <= truth[place][name]["estimate"] <= high
    assert all(180 <= count <= 199 for count in held.values()), held
    assert "label skew" in str(
        [list(column.cells) for column in answer_table(read_answer(job, opened(job, exact), 4)).columns]
    )


def test_slopes_by_differences_are_those_of_the_figure() -> None:
    read = of_sums(lambda v: float(v[0] ** 2 * v[1]), np.array([3.0, 2.0]), 0.1)
    assert read.standard_error == pytest.approx(0.1 * np.hypot(12, 9), rel=1e-6)


def test_statistics_of_three_silos_are_refused() -> None:
    """From sum and sum of squares of three, a silo that takes its own away knows the other two."""
    federation = Federation(policy_text=ALLOWED)
    policy = load_threat_model(ALLOWED)
    for least, refused in ((3, True), (4, False)):
        plan = federation.plan(asked(federation, QUERY, min_silos=least))
        rules = [finding.rule for finding in limit_findings(policy, plan, federation.charter)]
        assert ("skews_of_few_silos" in rules) == refused


@pytest.mark.parametrize("statistic", [LabelSkewStatistic(least=5000), SizeSkewStatistic(most=5000)])
def test_more_patients_than_any_silo_has_are_refused(statistic: Statistic) -> None:
    with pytest.raises((ConfigurationError, ValueError), match="patients_at_most"):
        asked(Federation(policy_text=ALLOWED), StatisticsTerms(statistics=(statistic,)))
