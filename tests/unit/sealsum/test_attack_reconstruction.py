"""Reconstruction: exact where it can be exact, matched by the best assignment, and nothing from noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from privacy.update import split_tensors
from sealsum.attack.cohort import NO_CLIP, NO_NOISE, private_step
from sealsum.attack.gradient_matching import Target, _summed_gradient, from_one_record
from sealsum.attack.images import (
    Images,
    honest_start,
    image_model,
    matched,
    mean_image_psnr,
    psnr,
    records_of,
    synthetic_images,
)
from sealsum.attack.imprint import imprinted
from sealsum.attack.inversion import _seen
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.models.adapters import ADAPTERS, build_model


def test_images_are_the_same_everywhere_and_differ_by_seed() -> None:
    assert np.array_equal(synthetic_images(5, 1).pixels, synthetic_images(9, 1).pixels[:5])
    assert not np.array_equal(synthetic_images(5, 1).pixels, synthetic_images(5, 2).pixels)


def test_psnr_is_minus_ten_times_the_logarithm_of_the_mean_square() -> None:
    truth = np.zeros((1, 64))
    assert psnr(truth + 0.1, truth)[0, 0] == pytest.approx(20.0)
    assert psnr(truth, truth)[0, 0] == pytest.approx(120.0)


def test_guesses_are_matched_to_originals_whatever_their_order() -> None:
    truth = synthetic_images(6, 4).pixels
    guess, ratio = matched(truth[[3, 0, 5, 1, 2, 4]], truth)
    assert np.array_equal(guess, truth)
    assert ratio == pytest.approx(120.0)


@pytest.mark.parametrize("clip", [0.5, 1e4])
def test_the_attacker_computes_the_gradient_that_silos_compute(clip: float) -> None:
    """His formula, written out to be differentiated again, against the engine that silos train with."""
    images, model = synthetic_images(7, 3), image_model(16)
    start, records = honest_start(model), records_of(images, slice(0, 7))
    engine = OpacusHooks(build_model(ADAPTERS["mlp"], model, start))
    tensors = [torch.from_numpy(tensor).double() for tensor in split_tensors(model, start).values()]
    features, labels = torch.from_numpy(records.features).double(), torch.from_numpy(images.labels).double()
    mine = _summed_gradient(tensors, features, labels, clip).numpy()
    assert mine == pytest.approx(engine.clipped_sum(records, np.arange(7), clip), rel=1e-4, abs=1e-5)


def test_one_gradient_in_the_clear_gives_its_image_away_and_noise_takes_it_back() -> None:
    images, model = synthetic_images(1, 1), image_model(128)
    start, ratios = honest_start(model), []
    for dp in (private_step(NO_NOISE, NO_CLIP, 1), private_step(1.0, 1.0, 1)):
        guess = from_one_record(Target(model, start, dp.clip_l2, images.labels), _seen(images, 1, dp, start))
        ratios.append(matched(guess, images.pixels)[1])
    assert ratios[0] > 60
    assert ratios[1] < mean_image_psnr(images.pixels, 99)


def test_an_imprint_model_reads_records_out_of_a_secure_sum_of_four_but_not_out_of_noise() -> None:
    victims = synthetic_images(200, 1)
    _, bare = imprinted(victims, 4, private_step(NO_NOISE, NO_CLIP, 4))
    _, noisy = imprinted(victims, 4, private_step(1.0, 1.0, 4))
    assert np.mean(bare >= 25) > 0.5
    assert np.mean(noisy >= 25) == 0.0


def test_an_imprint_model_is_one_that_an_architecture_allow_list_lets_through() -> None:
    """The attack chooses weights only: adapter, sizes and layout are the built-in ones."""
    model = image_model(1024)
    assert model.architecture == image_model(1024).architecture
    assert model.layout == ADAPTERS["mlp"].layout(model)
    assert len(Images(np.zeros((2, 64)), np.zeros(2, dtype=np.float32))) == 2
