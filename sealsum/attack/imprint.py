"""A malicious model that imprints records on rows of its first layer (Fowl et al. 2022, arXiv 2110.13057).

All rows measure an image's mean brightness against thresholds of their own, so steeply that a record moves
only the rows whose threshold it is near: ∂L/∂W_j : ∂L/∂b_j is that record, even in a sum over silos. The
attacker is a coordinator who chooses *weights*: architecture and shapes are those of the built-in ``mlp``, so
a policy that allows the architecture allows this model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.plan import DpTerms
from privacy.update import flatten
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
from sealsum.attack.images import (
    PIXELS,
    VECTOR,
    Images,
    features_of,
    image_model,
    pixels_of,
    psnr,
    records_of,
    squares,
    synthetic_images,
)
from sealsum.attack.outcome import Findings, Outcome, Strip
from sealsum.simulator.federation import Federation
from silo_agent.models.adapters import ADAPTERS

RECOGNISABLE: Final = 25.0
"""dB of PSNR from which a record counts as recovered."""
SUCCESS: Final = 0.05
"""Share of records."""
CLIP: Final = 1.0
CLAIMED_NOISE: Final = 1.0
"""σ of a step from which failure is claimed: its ε is 4.4."""
ROWS: Final = 1024
_STEEPNESS: Final = 4000.0
_RECORDS: Final = 50
"""At each silo."""
_SEED, _PUBLIC_SEED = 1, 99
_SHOWN: Final = 16
_SILOS: Final = 4


def audit_imprint(effort: Effort) -> Findings:
    """One silo in the clear, four under a secure sum, and the same with noise."""
    images = synthetic_images(_RECORDS * _SILOS, _SEED)
    arms: list[tuple[str, bool, int, DpTerms]] = [
        ("one silo in the clear", False, 1, private_step(NO_NOISE, NO_CLIP, 1)),
        ("secure sum of four silos alone", False, _SILOS, private_step(NO_NOISE, NO_CLIP, _SILOS)),
        ("secure sum of four, clip 1, σ = 0.001", False, _SILOS, private_step(1e-3, CLIP, _SILOS)),
    ]
    arms += [
        (f"secure sum of four, clip 1, σ = {noise:g}", True, _SILOS, private_step(noise, CLIP, _SILOS))
        for noise in effort.noise_levels
        if noise >= CLAIMED_NOISE
    ]
    outcomes, strips = [], [Strip("originals", squares(images.pixels[:_SHOWN]))]
    for protection, protected, silos, dp in arms:
        victims = Images(images.pixels[: silos * _RECORDS], images.labels[: silos * _RECORDS])
        guess, ratios = imprinted(victims, silos, dp)
        recovered = float(np.mean(ratios >= RECOGNISABLE))
        outcomes.append(
            Outcome(
                attack="imprint model",
                protection=protection,
                protected=protected,
                succeeded=recovered >= SUCCESS,
                measured=f"{100 * recovered:.1f} % of records",
                expected=f"below {100 * SUCCESS:g} % at {RECOGNISABLE:g} dB or more, with noise",
                figures={
                    "share_recovered": recovered,
                    "median_psnr_db": float(np.median(ratios)),
                    "records": len(victims),
                    "sigma": dp.noise_multiplier if dp.noise_multiplier > NO_NOISE else 0.0,
                },
            )
        )
        strips.append(Strip(f"{protection}: {100 * recovered:.1f} %", squares(guess[:_SHOWN])))
    return Findings(tuple(outcomes), tuple(strips))


def imprinted(victims: Images, silos: int, dp: DpTerms) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each victim the nearest candidate, float64[n, 64], and its PSNR, float64[n]."""
    start = malicious_start()
    homes = names(silos)
    federation = Federation(
        step_terms(image_model(ROWS), dp, VECTOR),
        ADAPTERS["mlp"],
        {
            silo: records_of(victims, slice(place * _RECORDS, (place + 1) * _RECORDS))
            for place, silo in enumerate(homes)
        },
    )
    if silos == 1:
        gradient = -in_the_clear(federation.update_of(homes[0], start), VECTOR)
    else:
        gradient = opened_gradient(federation, start)
    found = candidates(gradient)
    ratios = np.stack([psnr(found, victim[None, :])[:, 0] for victim in victims.pixels])
    return found[ratios.argmax(axis=1)], ratios.max(axis=1)


def malicious_start() -> NDArray[np.float32]:
    """Row j of the first layer is tanh(β · (mean − q_j)) for quantiles q_j of public images: float32[d]."""
    model = image_model(ROWS)
    means = features_of(synthetic_images(4 * ROWS, _PUBLIC_SEED).pixels).mean(axis=1)
    thresholds = np.quantile(means, (np.arange(ROWS) + 0.5) / ROWS)
    # Signs by turns keep the logit near 0, so that every record has a gradient.
    signs = np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    weights = (
        np.full((ROWS, PIXELS), _STEEPNESS / PIXELS),
        -_STEEPNESS * thresholds,
        signs[None, :],
        np.zeros(1),
    )
    return flatten(
        model,
        {spec.name: tensor.astype(np.float32) for spec, tensor in zip(model.layout, weights, strict=True)},
    )


def candidates(gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """One image for each row that was moved at all: float64[rows, 64]."""
    weights = gradient[: ROWS * PIXELS].reshape(ROWS, PIXELS)
    biases = gradient[ROWS * PIXELS : ROWS * (PIXELS + 1)]
    moved = biases != 0
    return pixels_of(weights[moved] / biases[moved, None])
