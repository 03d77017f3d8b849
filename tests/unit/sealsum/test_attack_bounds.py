"""What guesses about canaries show: published values, known distributions, and error rates that are kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sealsum.attack.bounds import (
    MOST_MU,
    Scores,
    area_deviation,
    area_under_curve,
    correct_guesses,
    found_at,
    gaussian_mu,
    one_run_epsilon,
    one_run_p_value,
    share_at_least,
)


def _gaussian_scores(count: int, mu: float, seed: int, deviation: float = 1.0) -> Scores:
    random = np.random.default_rng(seed)
    included = random.random(count) < 0.5
    return Scores(included, deviation * (mu * included + random.standard_normal(count)))


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "published"),
    [
        (100, 100, 75, 0.0, 0.702),
        (100, 100, 75, 1e-4, 0.699),
        (1000, 100, 75, 1e-4, 0.673),
        (100_000, 1510, 1439, 1e-5, 2.675),
    ],
)
def test_one_run_bounds_are_those_of_the_paper(
    canaries: int, guesses: int, correct: int, delta: float, published: float
) -> None:
    """Steinke, Nasr, Jagielski 2023, Appendix D and section 7, to the last printed digit."""
    assert one_run_epsilon(canaries, guesses, correct, 0.05, delta) == pytest.approx(published, abs=1e-3)


def test_the_one_run_p_value_is_that_of_the_paper() -> None:
    assert one_run_p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.553, abs=5e-4)


@pytest.mark.parametrize("guesses", [16, 1000])
def test_without_a_miss_and_delta_the_one_run_bound_has_a_closed_form(guesses: int) -> None:
    closed = -math.log(0.05 ** (-1 / guesses) - 1)
    assert one_run_epsilon(guesses, guesses, guesses, 0.05, 0.0) == pytest.approx(closed, rel=1e-9)


def test_the_slack_of_delta_is_the_largest_over_all_shifts() -> None:
    """Against the formula of Corollary 5.4 spelt out, shift by shift."""
    canaries, guesses, correct, epsilon, delta = 300, 40, 31, 0.7, 1e-3
    luck = math.exp(epsilon) / (math.exp(epsilon) + 1)
    tail = [float(stats.binom.sf(least - 1, guesses, luck)) for least in range(guesses + 1)]
    slack = max((tail[correct - shift] - tail[correct]) / shift for shift in range(1, correct + 1))
    expected = tail[correct] + 2 * canaries * delta * slack
    assert one_run_p_value(canaries, guesses, correct, epsilon, delta) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=30)
@given(
    guesses=st.integers(2, 300),
    share=st.floats(0.0, 1.0),
    more=st.integers(0, 500),
    delta=st.sampled_from([0.0, 1e-6, 1e-3]),
)
def test_more_right_guesses_never_show_less(guesses: int, share: float, more: int, delta: float) -> None:
    correct = int(share * (guesses - 1))
    bounds = [
        one_run_epsilon(guesses + more, guesses, right, 0.05, delta) for right in (correct, correct + 1)
    ]
    assert bounds[0] <= bounds[1] + 1e-9
    assert one_run_epsilon(guesses + more, guesses, correct, 0.01, delta) <= bounds[0] + 1e-9


def test_the_one_run_bound_exceeds_the_true_epsilon_as_rarely_as_stated() -> None:
    """Randomized response is the worst mechanism: each guess is right with probability e^ε/(e^ε + 1)."""
    epsilon, guesses, runs, error = 1.0, 200, 2000, 0.05
    right = np.random.default_rng(5).binomial(guesses, 1 / (1 + math.exp(-epsilon)), runs)
    bound = {int(value): one_run_epsilon(guesses, guesses, int(value), error, 0.0) for value in set(right)}
    exceeded = sum(bound[int(value)] > epsilon for value in right)
    assert exceeded <= stats.binom.ppf(1 - 1e-6, runs, error)


def test_mu_of_a_known_gaussian_is_found_from_below() -> None:
    bound = gaussian_mu(_gaussian_scores(40_000, 1.0, seed=1, deviation=7.0), 1e-5)
    assert bound.estimate == pytest.approx(1.0, abs=0.05)
    assert 0.9 < bound.at_least < 1.0


def test_the_gaussian_bound_exceeds_the_true_mu_as_rarely_as_stated() -> None:
    runs, error = 1000, 0.1
    exceeded = sum(
        gaussian_mu(_gaussian_scores(200, 1.5, seed), error).at_least > 1.5 for seed in range(runs)
    )
    assert exceeded <= stats.binom.ppf(1 - 1e-6, runs, error)


def test_scores_without_any_noise_count_as_the_largest_mu() -> None:
    included = np.arange(1000) % 2 == 0
    assert gaussian_mu(Scores(included, included.astype(float)), 1e-5).estimate == MOST_MU


def test_scores_that_say_nothing_show_nothing() -> None:
    assert gaussian_mu(Scores(np.arange(1000) % 2 == 0, np.zeros(1000)), 1e-5).at_least < 0


def test_half_of_the_guesses_are_the_highest_and_half_the_lowest_scores() -> None:
    scores = Scores(
        np.array([True, False, True, False, True, False]), np.array([9.0, 8.0, 5.0, 4.0, 1.0, 0.0])
    )
    assert correct_guesses(scores, 2) == 2
    assert correct_guesses(scores, 4) == 2
    assert correct_guesses(scores, 6) == 4


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    random = np.random.default_rng(2)
    members, others = random.integers(0, 9, 40) + 1.0, random.integers(0, 9, 60).astype(float)
    pairs = (members[:, None] > others).mean() + (members[:, None] == others).mean() / 2
    assert area_under_curve(members, others) == pytest.approx(pairs, rel=1e-12)


def test_the_deviation_of_an_area_is_what_repetition_shows() -> None:
    random = np.random.default_rng(3)
    areas = [
        area_under_curve(random.standard_normal(60) + 0.5, random.standard_normal(200)) for _ in range(800)
    ]
    assert area_deviation(float(np.mean(areas)), 60, 200) == pytest.approx(np.std(areas), rel=0.12)


def test_the_threshold_lets_no_more_false_alarms_through_than_stated() -> None:
    others = np.arange(2000.0)
    assert found_at(np.array([1996.5, 1997.5, 1999.5]), others, 0.001) == 2
    assert (others > 1997.0).sum() == 2


def test_a_share_is_bounded_as_by_clopper_and_pearson() -> None:
    least = share_at_least(7, 128, 1e-3)
    assert stats.binom.sf(6, 128, least) == pytest.approx(1e-3, rel=1e-6)
    assert share_at_least(0, 128, 1e-3) == 0.0
