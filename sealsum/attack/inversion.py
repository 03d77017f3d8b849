"""Can images be read out of a gradient? In the clear, in a secure sum of few, and under noise."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.plan import DpTerms
from sealsum.attack.cohort import (
    NO_CLIP,
    NO_NOISE,
    in_the_clear,
    names,
    opened_gradient,
    private_step,
    step_terms,
)
from sealsum.attack.effort import Effort
from sealsum.attack.gradient_matching import Target, from_one_record, from_sum
from sealsum.attack.images import (
    VECTOR,
    Images,
    honest_start,
    image_model,
    matched,
    mean_image_psnr,
    records_of,
    squares,
    synthetic_images,
)
from sealsum.attack.outcome import Findings, Outcome, Strip
from sealsum.simulator.federation import Federation
from silo_agent.models.adapters import ADAPTERS

RECOGNISABLE: Final = 20.0
"""dB of PSNR from which an image counts as reconstructed: at 20 dB pixels are off by a tenth."""
CLIP: Final = 1.0
_HIDDEN: Final = 128
_SEED, _PUBLIC_SEED = 1, 99
_SILOS: Final = 4


def audit_inversion(effort: Effort) -> Findings:
    """One image in the clear, then 4 and 16 in the sum of four silos; each without and with noise."""
    images = synthetic_images(16, _SEED)
    outcomes: list[Outcome] = []
    strips = [Strip("originals", squares(images.pixels))]
    for count in (1, 4, 16):
        for noise in (None, *effort.noise_levels):
            guess, ratio = _attack(images, count, noise, effort.matching_steps)
            outcomes.append(_outcome(images, count, noise, ratio))
            strips.append(Strip(f"{_where(count)}, {_noise(noise)}: {ratio:.1f} dB", squares(guess)))
    return Findings(tuple(outcomes), tuple(strips))


def _attack(images: Images, count: int, noise: float | None, steps: int) -> tuple[NDArray[np.float64], float]:
    """The best pixels found, in the originals' order, and their mean PSNR."""
    model = image_model(_HIDDEN)
    start = honest_start(model)
    dp = _terms(noise, count)
    gradient = _seen(images, count, dp, start)
    target = Target(model, start, dp.clip_l2, images.labels[:count])
    guess = from_one_record(target, gradient) if count == 1 else from_sum(target, gradient, steps)
    return matched(guess, images.pixels[:count])


def _seen(images: Images, count: int, dp: DpTerms, start: NDArray[np.float32]) -> NDArray[np.float64]:
    """The gradient of one silo in the clear, or the one that is opened of four."""
    silos = names(1 if count == 1 else _SILOS)
    each = count // len(silos)
    federation = Federation(
        step_terms(image_model(_HIDDEN), dp, VECTOR),
        ADAPTERS["mlp"],
        {
            silo: records_of(images, slice(place * each, (place + 1) * each))
            for place, silo in enumerate(silos)
        },
    )
    if count > 1:
        return opened_gradient(federation, start)
    return -in_the_clear(federation.update_of(silos[0], start), VECTOR)


def _terms(noise: float | None, count: int) -> DpTerms:
    """No clip and no noise, or both; one silo in the clear adds all of the noise itself."""
    shares = 1 if count == 1 else _SILOS
    if noise is None:
        return private_step(NO_NOISE, NO_CLIP, shares)
    return private_step(noise, CLIP, shares)


def _outcome(images: Images, count: int, noise: float | None, ratio: float) -> Outcome:
    baseline = mean_image_psnr(images.pixels[:count], _PUBLIC_SEED)
    return Outcome(
        attack=f"reconstruction, {_where(count)}",
        protection=_noise(noise),
        protected=noise is not None,
        succeeded=ratio >= RECOGNISABLE,
        measured=f"{ratio:.1f} dB",
        expected=f"recognisable from {RECOGNISABLE:g} dB; the mean image has {baseline:.1f} dB",
        figures={"psnr_db": ratio, "mean_image_psnr_db": baseline, "records": count, "sigma": noise or 0.0},
    )


def _where(count: int) -> str:
    return "one gradient in the clear" if count == 1 else f"secure sum of {count} images"


def _noise(noise: float | None) -> str:
    return "no clip, no noise" if noise is None else f"clip {CLIP:g}, σ = {noise:g}"
