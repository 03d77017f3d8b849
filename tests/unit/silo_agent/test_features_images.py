"""Fixed features of images: what the formulas say, and nothing of any other record."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.signal import convolve2d

from privacy.fixed_features import FixedFeatures, OrientedGradients, Scattering
from privacy.schema import ClassLabel, DataSchema, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.features.catalogue import fixed_features
from silo_agent.features.oriented import oriented_gradients
from silo_agent.features.scattering import channels, padded, positions, scattering


def images(count: int, height: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).uniform(0, 1, (count, height, width)).astype(np.float32)


def morlet(scale: int, angle: float, slant: float, reach: int) -> NDArray[np.complex128]:
    """The wavelet of the definition on a window so large that its tails do not matter."""
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    deviation, frequency = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * deviation**2))
    wave = envelope * np.exp(1j * frequency * along)
    return (wave - wave.sum() / envelope.sum() * envelope) * slant / (2 * np.pi * deviation**2)


def by_the_definition(image: NDArray[np.float32], orientations: int) -> NDArray[np.float64]:
    """Every map at full resolution, by convolution in space around a periodic border."""
    size, reach = padded(image.shape[0]), 2 * padded(image.shape[0])
    extended = np.pad(image.astype(np.float64), (0, size - image.shape[0]), mode="symmetric")

    def around(values: NDArray[np.float64], kernel: NDArray[np.complex128]) -> NDArray[np.complex128]:
        return convolve2d(np.tile(values, (5, 5)), kernel, mode="same")[
            2 * size : 3 * size, 2 * size : 3 * size
        ]

    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    gaussian = np.exp(-(x**2 + y**2) / (2 * 1.6**2)).astype(complex)
    slant = 4 / orientations
    banks = [
        [morlet(j, np.pi * number / orientations, slant, reach) for number in range(orientations)]
        for j in range(2)
    ]
    fine = [np.abs(around(extended, wavelet)) for wavelet in banks[0]]
    coarse = [np.abs(around(extended, wavelet)) for wavelet in banks[1]]
    second = [np.abs(around(modulus, wavelet)) for modulus in fine for wavelet in banks[1]]
    last = positions(image.shape[0]) * 4
    maps = [around(one, gaussian / gaussian.sum()).real[:last:4, :last:4] for one in (extended, *fine)]
    # The library averages what is subsampled by two already.
    halved = np.exp(-((2 * np.mgrid[-size : size + 1]) ** 2) / (2 * 1.6**2))
    window = np.outer(halved, halved) / halved.sum() ** 2
    for one in (*coarse, *second):
        small = np.tile(one[::2, ::2], (9, 9))
        whole = convolve2d(small, window, mode="same")[2 * size : 5 * size // 2, 2 * size : 5 * size // 2]
        maps.append(whole[: last // 2 : 2, : last // 2 : 2])
    return np.array(maps)


@pytest.mark.slow
def test_scattering_is_what_its_definition_says() -> None:
    image = images(1, 8, 8)
    got = scattering(image, 2)
    assert got.shape == (1, channels(2), 2, 2)
    assert np.allclose(got[0], by_the_definition(image[0], 2), atol=1e-5)


def test_a_flat_image_has_no_waves() -> None:
    got = scattering(np.full((1, 28, 28), 0.7, dtype=np.float32), 8)
    assert got.shape == (1, 81, 7, 7)
    assert np.allclose(got[0, 0], 0.7, atol=1e-5)
    assert np.all(np.abs(got[0, 1:]) < 1e-5)


def test_a_stroke_answers_most_to_the_wave_across_it() -> None:
    stripes = np.zeros((1, 28, 28), dtype=np.float32)
    stripes[:, :, ::3] = 1.0
    first = scattering(stripes, 8)[0, 1:9].mean((1, 2))
    assert np.argmax(first) == 0
    assert np.argmax(scattering(stripes.transpose(0, 2, 1), 8)[0, 1:9].mean((1, 2))) == 4


@pytest.mark.parametrize("extent", [(8, 8), (28, 28), (30, 17)])
def test_each_record_has_its_features_from_itself_alone(extent: tuple[int, int]) -> None:
    several = images(21, *extent)
    assert np.allclose(scattering(several, 4)[7:8], scattering(several[7:8], 4), atol=1e-6)
    assert np.array_equal(oriented_gradients(several, 8, 4)[7:8], oriented_gradients(several[7:8], 8, 4))


def test_gradients_share_their_length_between_directions_and_cells() -> None:
    ramp = np.tile(np.arange(8, dtype=np.float32), (1, 8, 1)) / 8
    maps = oriented_gradients(ramp, 8, 1)[0, :, 0, 0]
    # Left of the last column the slope is 1/8 to the right; the border is black.
    assert np.argmax(maps) == 0
    assert maps.sum() > 0
    assert np.allclose(oriented_gradients(np.zeros((1, 8, 8), np.float32), 8, 4), 0)


def test_turning_an_image_turns_the_directions() -> None:
    image = images(1, 8, 8)
    turned = np.rot90(image, axes=(1, 2)).copy()
    here = oriented_gradients(image, 8, 4)
    there = oriented_gradients(turned, 8, 4)
    # Counterclockwise on the page, where y points down: direction k becomes k − 2 of 8.
    assert np.allclose(there, np.rot90(np.roll(here, -2, axis=1), axes=(2, 3)), atol=1e-6)


def pixels(count: int, extent: int) -> NDArray[np.float32]:
    return images(count, 1, extent * extent)[:, 0] * 2 - 1


@pytest.mark.parametrize(
    "terms",
    [
        OrientedGradients(rows=8, columns=8),
        Scattering(rows=8, columns=8),
        Scattering(rows=28, columns=28, orientations=4),
    ],
)
def test_a_transform_gives_as_many_coordinates_as_its_terms_say(terms: FixedFeatures) -> None:
    given = fixed_features(terms, pixels(5, terms.rows))
    assert given.shape == (5, terms.outputs)
    assert given.dtype == np.float32
    assert np.array_equal(given[3:4], fixed_features(terms, pixels(5, terms.rows)[3:4]))


def test_no_image_is_louder_than_another() -> None:
    """A gradient's norm, and so what clipping leaves of it, should not hang on the brightness of a scan."""
    faint = (pixels(3, 8) + 1) * 0.5 - 1
    for terms in (OrientedGradients(rows=8, columns=8), Scattering(rows=8, columns=8)):
        assert np.allclose(fixed_features(terms, pixels(3, 8)), fixed_features(terms, faint), atol=0.05)


@pytest.mark.parametrize("terms", [OrientedGradients(rows=8, columns=8), Scattering(rows=8, columns=8)])
def test_a_black_image_is_no_fault(terms: FixedFeatures) -> None:
    assert np.all(np.isfinite(fixed_features(terms, np.full((1, 64), -1, dtype=np.float32))))


def schema(**changes: object) -> DataSchema:
    columns = [NumericFeature(column=f"p{number}", low=0, high=16, impute=0) for number in range(64)]
    fields = {
        "features": columns,
        "label": ClassLabel(column="digit", categories=tuple("0123456789")),
        "patient_id": "id",
        "transform": OrientedGradients(rows=8, columns=8),
    }
    return DataSchema.model_validate({**fields, **changes})


def test_a_silo_reads_a_table_of_pixels_through_the_transform_that_the_job_names(tmp_path: Path) -> None:
    values = np.random.default_rng(2).integers(0, 17, (3, 64))
    lines = [",".join(["id", *(f"p{number}" for number in range(64)), "digit"])]
    lines += [f"r{row},{','.join(map(str, values[row]))},{row}" for row in range(3)]
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    records = read_csv_table(tmp_path / "t.csv", schema(), "patient")
    expected = fixed_features(OrientedGradients(rows=8, columns=8), (values / 8 - 1).astype(np.float32))
    assert schema().width == 128
    assert np.allclose(records.features, expected, atol=1e-6)
    assert records.labels.tolist() == [0, 1, 2]


def test_a_transform_of_other_pixels_than_the_columns_is_refused() -> None:
    with pytest.raises(
        ValidationError, match="transform: expected 784 coordinates, one a pixel of 28 × 28, got 64"
    ):
        schema(transform=Scattering(rows=28, columns=28))


def test_a_schema_without_a_transform_is_spelt_as_before() -> None:
    """Digests of the jobs and datasets that exist depend on it."""
    assert "transform" not in schema(transform=None).model_dump(mode="json")
