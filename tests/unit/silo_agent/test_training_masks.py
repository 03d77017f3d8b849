"""Masks that lie in a folder beside the pictures: padded and resized alike, and nothing of them guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from privacy.errors import ConfigurationError
from privacy.labels import MaskLabel
from privacy.schema import DataSchema, NumericFeature
from silo_agent.data.masks import mask_names
from silo_agent.data.pictures import picture_columns, read_pictures
from silo_agent.data.sources import assert_readable, state_of
from silo_agent.dataset_settings import DatasetSettings, PictureSource
from silo_agent.registration import registration_digest

SIDE = 8
RIGHT = np.zeros((16, 16), dtype=np.uint8)
RIGHT[:, 8:] = 255
"""A picture whose right half is bright."""


def pixels(side: int = SIDE) -> tuple[NumericFeature, ...]:
    return tuple(NumericFeature(column=f"pixel_{n}", low=0, high=255, impute=0) for n in range(side**2))


def schema(side: int = SIDE) -> DataSchema:
    return DataSchema(
        features=pixels(side), label=MaskLabel(pixels=tuple(mask_names(side))), patient_id="patient"
    )


def saved(path: Path, values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(path)
    return path


def dataset(directory: Path, **pictures: Any) -> DatasetSettings:
    source = PictureSource(side=SIDE, masks=directory / "masks", **pictures)
    return DatasetSettings(
        adapter="images", path=directory / "pictures", purpose=("p",), patient_id="patient", pictures=source
    )


def test_each_picture_has_the_mask_of_its_name(tmp_path: Path) -> None:
    saved(tmp_path / "pictures" / "ann" / "1.jpeg", RIGHT)
    saved(tmp_path / "pictures" / "bob" / "1.png", 255 - RIGHT)
    saved(tmp_path / "masks" / "ann" / "1.png", RIGHT)
    saved(tmp_path / "masks" / "bob" / "1.tiff", (RIGHT == 0).astype(np.uint8))
    registered = dataset(tmp_path)
    assert picture_columns(registered) == [
        "patient",
        *(f"pixel_{n}" for n in range(SIDE**2)),
        *mask_names(SIDE),
    ]
    records = read_pictures(registered, schema(), "patient")
    assert (records.patients, records.kind) == (("ann", "bob"), "mask")
    half = np.tile(np.repeat([0.0, 1.0], SIDE // 2), SIDE)
    np.testing.assert_array_equal(records.labels, [half, 1 - half])
    np.testing.assert_array_equal(records.features > 0, records.labels == 1)


def test_a_mask_is_padded_as_its_picture_is_and_cut_at_half_a_pixel(tmp_path: Path) -> None:
    saved(tmp_path / "pictures" / "ann" / "1.png", np.full((16, 8), 9))
    mask = np.zeros((16, 8))
    mask[0, 0:2], mask[0:2, 4:6], mask[15, 7] = 1, 1, 1  # half of a pixel, a whole one, a quarter
    saved(tmp_path / "masks" / "ann" / "1.png", mask)
    (labels,) = read_pictures(dataset(tmp_path), schema(), "patient").labels.reshape(-1, SIDE, SIDE)
    assert {(int(y), int(x)) for y, x in np.argwhere(labels)} == {(0, 2), (0, 4)}


def test_a_table_may_name_pictures_that_have_masks(tmp_path: Path) -> None:
    saved(tmp_path / "pictures" / "deep" / "a.png", RIGHT)
    saved(tmp_path / "masks" / "deep" / "a.png", RIGHT)
    (tmp_path / "told.csv").write_text("file,patient\ndeep/a.png,ann\n")
    records = read_pictures(dataset(tmp_path, table=tmp_path / "told.csv"), schema(), "patient")
    assert records.labels.sum() == SIDE**2 / 2


@pytest.mark.parametrize(
    ("name", "mask", "told"),
    [
        ("2.png", RIGHT, r"file 1: expected one mask in .* under the picture's name .*, got 0"),
        ("1.png", RIGHT[:8], "expected a mask of the picture's own size, got another"),
        ("1.png", np.arange(256).reshape(16, 16), "expected a mask of 0 and one other value, got several"),
        ("1.jpeg", RIGHT, "got 0"),
    ],
)
def test_what_is_no_mask_of_the_picture_is_refused(tmp_path: Path, name: str, mask: Any, told: str) -> None:
    saved(tmp_path / "pictures" / "SECRET" / "1.png", RIGHT)
    saved(tmp_path / "masks" / "SECRET" / name, mask)
    with pytest.raises(ConfigurationError, match=told) as caught:
        read_pictures(dataset(tmp_path), schema(), "patient")
    assert "SECRET" not in str(caught.value)


def test_two_masks_a_link_out_of_the_folder_and_a_picture_with_a_class_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "pictures" / "ann" / "1.png", RIGHT)
    saved(tmp_path / "masks" / "ann" / "1.png", RIGHT)
    second = saved(tmp_path / "masks" / "ann" / "1.bmp", RIGHT)
    with pytest.raises(ConfigurationError, match="got 2"):
        read_pictures(dataset(tmp_path), schema(), "patient")
    second.unlink()
    (tmp_path / "masks" / "ann" / "1.png").unlink()
    (tmp_path / "masks" / "ann" / "1.png").symlink_to(saved(tmp_path / "other.png", RIGHT))
    with pytest.raises(ConfigurationError, match="got a link out of it"):
        read_pictures(dataset(tmp_path), schema(), "patient")
    saved(tmp_path / "pictures" / "aa" / "bob" / "1.png", RIGHT)
    with pytest.raises(ConfigurationError, match="expected it in PATIENT/"):
        read_pictures(dataset(tmp_path), schema(), "patient")


def test_another_folder_of_masks_is_another_dataset_and_a_changed_mask_is_seen(tmp_path: Path) -> None:
    saved(tmp_path / "pictures" / "ann" / "1.png", RIGHT)
    with pytest.raises(ConfigurationError, match="masks: cannot be read"):
        assert_readable(dataset(tmp_path))
    saved(tmp_path / "masks" / "ann" / "1.png", RIGHT)
    registered = dataset(tmp_path)
    assert_readable(registered)
    before = state_of(registered)
    saved(tmp_path / "masks" / "ann" / "2.png", RIGHT)
    assert state_of(registered) != before
    assert registered.pictures is not None
    without = registered.model_copy(
        update={"pictures": registered.pictures.model_copy(update={"masks": None})}
    )
    assert registration_digest("a", without) != registration_digest("a", registered)
    plain = DatasetSettings.model_validate({**without.model_dump(), "pictures": {"side": SIDE}})
    assert registration_digest("a", without) == registration_digest("a", plain)
