"""What one patient can move a statistic *of silos* by: how differently labels, columns and sizes are spread.

Such a statistic sums over silos a term that each computes from all of its own patients, such as the entropy
of its labels. A patient is at one silo, so only that silo's term moves, by at most the bound given here; the
sum is then released by the same Gaussian mechanism as any other block (``privacy.query_blocks``).

The proofs follow a term along the straight path on which a patient's shares s = ‖a‖₁ ≤ 1 are added to a
silo's counts, where every mean stays within its range. DP protects patients, not silos: what the sums say of
a single silo is limited by how many silos are in them (``policies.rules_queries``). Knows no data.
"""

from __future__ import annotations

import math

from privacy.schema import CategoricalFeature, Feature

Shape = tuple[int, ...]
LEAST_HONEST = 3
"""Silos whose terms must stay unknown together: with two, sum and sum of squares would say which is which."""
NUMERIC_SUMS = 7
"""Of a numeric column: present, Σx, Σx², Σ_k S²/n, missing, Σ_k M²/N, at the ends of the range."""


def label_skew_form(least: int, classes: int) -> tuple[Shape, float]:
    """(p_1 … p_C, β H(p) / log C), and by how much one patient moves it.

    p = (c + (m − n)⁺ u) / max(n, m), with u even over the classes. Along the path p moves by (a − s·p)/n or
    (a − s·u)/m, of norm at most √2/m. Before and after, p mixes one distribution with weight 1 − λ and
    another with weight λ ≤ 1/m, and (1 − λ)H(r) + λH(q) ≤ H ≤ (1 − λ)H(r) + λH(q) + h(λ) (Cover, Thomas,
    *Elements of Information Theory*, section 2.7), so H moves by at most log C / m + h(1/m).
    """
    shares, entropy = _label_bounds(least, classes)
    return (classes + 1,), math.hypot(shares, entropy_scale(least, classes) * entropy)


def entropy_scale(least: int, classes: int) -> float:
    """β: shares and entropy are moved by amounts that differ, and are to be as exact as each other allows."""
    shares, entropy = _label_bounds(least, classes)
    return math.sqrt(shares / entropy)


def size_skew_form(most: int) -> tuple[Shape, float]:
    """(n/N, (n/N)²) with n counted up to N: (n + 1)² − n² ≤ 2N − 1."""
    return (2,), math.sqrt(5.0) / most


def column_skew_form(feature: Feature) -> tuple[Shape, float]:
    """The sums of a column and the terms that square them, and by how much one patient moves them.

    S²/n moves along the path by 2μ·s₁ − μ²·s₀ with μ = S/n. A number in [−1, 1] that is there moves it by −3
    to 1, beside 1 each for how many there are, Σx, Σx² and whether it is at an end; M²/N of what is missing
    moves
    by at most 1: √14 in all, and √2 for a missing one. Of categories, one count moves by 1 and the terms
    c_j²/N by (2μ_j − μ_j²)² + Σ μ_i⁴ ≤ 1, squared and summed: √2.
    """
    if isinstance(feature, CategoricalFeature):
        return (2, len(feature.categories) + 1), math.sqrt(2.0)
    return (NUMERIC_SUMS,), math.sqrt(14.0)


def silo_accuracy_form(least: int) -> tuple[Shape, float]:
    """(m, m², width · r): the silo's accuracy, its square, and how far it is under a threshold, r in [0, 1].

    m = (right + (L − n)⁺ / 2) / max(n, L) moves along the path by at most 1/L, m² by twice that, and width ·
    r,
    a ramp of slope 1, by no more than m: √6/L.
    """
    return (3,), math.sqrt(6.0) / least


def _label_bounds(least: int, classes: int) -> tuple[float, float]:
    """What one patient moves p by, in L2, and H(p) / log C."""
    rare = 1.0 / least
    surprise = -rare * math.log(rare) - (1.0 - rare) * math.log1p(-rare)
    return math.sqrt(2.0) * rare, rare + surprise / math.log(classes)
