"""Norms of sums of outer products from their Gram matrices: never too short, whatever rounds.

‖Σ_t δ_t a_tᵀ‖² = Σ_ts (a_t·a_s)(δ_t·δ_s). The Gram matrices are products in the precision of the factors, and
what their rounding may hide is added. With u the unit roundoff, and L = Σ_t ‖a_t‖‖δ_t‖:

- an inner product of D terms, added up in stretches of 128 and then stretch by stretch, errs by at most
  γ_n·‖a_t‖‖a_s‖, γ_n = n·u/(1 − n·u), n = 128 + ⌈D/128⌉, in whatever order a kernel adds (Higham 2002, §3.1
  and §4.2), and by D·ω where terms are too small for the format, ω its least normal number;
- with A and Δ the matrices as computed, AΔ is off by γ_a·‖a_t‖‖a_s‖·|Δ_ts| + γ_δ·‖δ_t‖‖δ_s‖·|A_ts| and the
  product of both errors at most, which is summed and added. Long vectors are nearly orthogonal: off the
  diagonal |Δ_ts| and |A_ts| are far below the lengths' products;
- 1/64 of it more for terms of second order and for the float64 in which products are summed.

In float32 that is at most some 2·10⁻⁵ of L². Where terms cancel so far that it would show, a unit's matrices
are computed again in float64. Knows no layer and no clip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

_STRETCH: Final = 128
_ELEMENTS: Final = 1 << 17
"""Of Gram matrices that are worked on at once."""
_SECOND_ORDER: Final = 1 + 2.0**-6
_DOUBTFUL: Final = 2.0**-10
"""Part of a squared norm that the bound may add before float64 is asked."""
_NOTHING: Final = 2.0**-60
"""Doubts so small are let stand: those of records of zeros, say, which fill a pass up."""
MOST_CANCELLED: Final = 256.0
"""A unit whose terms cancel to less than this part of their lengths is taken to be so long all the same: the
error of a sum over units grows with its terms, and this bounds them by what is clipped."""


def gram_squares(inputs: torch.Tensor, outputs: torch.Tensor, slack: float) -> torch.Tensor:
    """Σ over groups of (‖Σ_t δ_t a_tᵀ‖ + slack · L)², each norm an upper bound: float64[U].

    Of a group at least (L / MOST_CANCELLED)².

    Args:
        inputs: a, [U, R, D, T].
        outputs: δ, [U, R, P, T].
    """
    units, groups, _, positions = inputs.shape
    squares = torch.empty(units, dtype=torch.float64, device=inputs.device)
    for one in _equal_blocks(units, groups * positions**2):
        squares[one], doubtful = _block(inputs[one], outputs[one], slack)
        if inputs.dtype == torch.float64:
            continue
        for unit in (doubtful.nonzero().flatten() + one.start).tolist():
            alone = slice(unit, unit + 1)
            squares[alone], _ = _block(inputs[alone].double(), outputs[alone].double(), slack)
    return squares


def _block(inputs: torch.Tensor, outputs: torch.Tensor, slack: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Squares, and which units' norms are mostly doubt: float64[U], bool[U]."""
    left, lengths, lost = _matrix(inputs)
    right, heights, missed = _matrix(outputs)
    total = (lengths * heights).sum(-1)
    unit_roundoff = torch.finfo(inputs.dtype).eps / 2
    of_left, of_right = ((_terms(factors) + 1) * unit_roundoff for factors in (inputs, outputs))
    doubt = of_left * _seen_by(right, lengths) + of_right * _seen_by(left, heights)
    doubt += of_left * of_right * total.square()
    doubt += missed * lengths.sum(-1).square() + lost * heights.sum(-1).square()
    doubt *= _SECOND_ORDER
    products = left.double().mul_(right.double()).sum((-1, -2))
    # Rounding may take a sum that is zero below it, by less than the doubt covers. NaN stays NaN.
    norms = (products.clamp(min=0.0) + doubt).sqrt_()
    squares = torch.maximum(norms + slack * total, total / MOST_CANCELLED).square().sum(-1)
    return squares, (doubt > (_DOUBTFUL * products).clamp(min=_NOTHING)).any(-1)


def _seen_by(matrix: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Σ_ts l_t |M_ts| l_s: float64[U, R]."""
    along = matrix.abs().double() @ lengths.unsqueeze(-1)
    return (along.squeeze(-1) * lengths).sum(-1)


def _matrix(factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Inner products [U, R, T, T], lengths that are not too short float64[U, R, T], and D·ω."""
    width = factors.shape[2]
    parts = (factors[:, :, start : start + _STRETCH] for start in range(0, width, _STRETCH))
    grams = (part.transpose(-1, -2) @ part for part in parts)
    matrix = next(grams)
    for gram in grams:
        matrix += gram
    format_of = torch.finfo(factors.dtype)
    lost = 2 * width * format_of.tiny
    squares = matrix.diagonal(dim1=-2, dim2=-1).double()
    return matrix, ((squares + lost) * (1 + _terms(factors) * format_of.eps)).sqrt_(), lost


def _terms(factors: torch.Tensor) -> int:
    """n of the module's docstring."""
    width = factors.shape[2]
    return min(width, _STRETCH) + -(-width // _STRETCH)


def _equal_blocks(count: int, elements: int) -> Iterator[slice]:
    """Stretches of units, all of one length: kernels choose by it in which order they add.

    The last begins early and computes some units again, to the same bits.
    """
    size = min(count, max(1, _ELEMENTS // elements))
    for start in range(0, count, size):
        yield slice(min(start, count - size), min(start, count - size) + size)
