"""Attacks by augmentation: k views of a record must never count as k records, nor pull more than one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.fixed_features import OrientedGradients, Views
from privacy.plan import JobSpec
from privacy.schema import DataSchema, Label, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.engine import private_sum
from silo_agent.engines.opacus_hooks import OpacusHooks
from silo_agent.features.catalogue import fixed_features
from silo_agent.features.views import views_of
from tests.unit.policies.policies_terms import honest_round
from tests.unit.silo_agent.engine_models import KINDS, build, records_for

SIDE = 4
VIEWS = Views(rows=SIDE, columns=SIDE, shift=1, mirror=True)


def _schema(**fields: object) -> DataSchema:
    pixels = [
        NumericFeature(column=f"p{place}", low=0, high=1, impute=0).model_dump() for place in range(SIDE**2)
    ]
    return DataSchema.model_validate(
        {
            "features": pixels,
            "label": Label(column="y", threshold=0).model_dump(),
            "patient_id": "id",
            **fields,
        }
    )


def _table(folder: Path, rows: int, patients: int | None = None) -> Path:
    random = np.random.default_rng(0)
    lines = ["id,y," + ",".join(f"p{place}" for place in range(SIDE**2))]
    for row in range(rows):
        cells = ",".join(f"{value:.3f}" for value in random.random(SIDE**2))
        lines.append(f"patient{row % (patients or rows)},{row % 2},{cells}")
    path = folder / "images.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_views_are_the_image_its_four_shifts_and_their_mirrors() -> None:
    image = np.full((SIDE, SIDE), -1, dtype=np.float32)
    image[1, 1] = 1
    made = views_of(VIEWS, image.reshape(1, -1)).reshape(VIEWS.count, SIDE, SIDE)
    bright = {tuple(np.argwhere(view > 0)[0].tolist()) for view in made}
    assert VIEWS.count == len(made) == 10
    assert np.array_equal(made[0], image)
    assert bright == {(1, 1), (0, 1), (2, 1), (1, 0), (1, 2), (2, 2), (0, 2), (1, 3)}
    assert all((view == -1).sum() == SIDE**2 - 1 for view in made)


@pytest.mark.parametrize("most", [1, 3])
def test_views_are_no_records_and_no_patients(tmp_path: Path, most: int) -> None:
    path = _table(tmp_path, 12, 12 if most == 1 else 4)
    plain = read_csv_table(path, _schema(), "patient", most)
    seen = read_csv_table(path, _schema(views=VIEWS.model_dump()), "patient", most)
    assert seen.unit_count == plain.unit_count == (12 if most == 1 else 4)
    assert len(seen) == 12 * VIEWS.count
    np.testing.assert_array_equal(seen.features[:: VIEWS.count], plain.features)


def test_the_transform_sees_each_view(tmp_path: Path) -> None:
    transform = OrientedGradients(rows=SIDE, columns=SIDE, cells=2)
    path = _table(tmp_path, 3)
    seen = read_csv_table(path, _schema(views=VIEWS.model_dump(), transform=transform.model_dump()), "record")
    pixels = read_csv_table(path, _schema(views=VIEWS.model_dump()), "record")
    np.testing.assert_array_equal(seen.features, fixed_features(transform, pixels.features))


@pytest.mark.parametrize("engine", [BookKeeping, OpacusHooks])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), views=st.integers(1, 6), clip=st.floats(1e-3, 10))
def test_a_records_gradient_is_the_mean_of_its_views_clipped_once(
    engine: type[BookKeeping] | type[OpacusHooks], seed: int, views: int, clip: float
) -> None:
    kind = KINDS["mlp"]
    rows = records_for(kind, 3 * views, seed)
    owned = Records(rows.features, rows.labels, units=np.repeat(np.arange(3), views), views=views)
    made = engine(build(kind, seed))
    got = private_sum(made, owned, np.arange(3), clip)
    tight = clip * (1 - made.sum_rounding)
    expected = np.zeros_like(got)
    for unit in range(3):
        of_unit = np.arange(unit * views, (unit + 1) * views)
        # Unclipped, each row by itself.
        mean = np.mean(
            [made.clipped_sum(rows, of_unit[view : view + 1], 1e9) for view in range(views)], axis=0
        )
        expected += mean * min(1.0, tight / np.linalg.norm(mean))
    assert np.linalg.norm(got - expected) <= 1e-8 * max(np.linalg.norm(expected), 1e-6)


@pytest.mark.parametrize("views", [1, 5, 40])
def test_however_many_views_a_record_moves_the_sum_by_at_most_c(views: int) -> None:
    """The attack: aligned views. Were each clipped by itself, forty would move the sum by 40 · C."""
    kind = KINDS["mlp"]
    others = records_for(kind, 4, 1)
    heavy = 5 * np.ones((1, kind.inputs), np.float32)
    features = np.repeat(np.concatenate([others.features, heavy]), views, axis=0)
    labels = np.repeat(np.concatenate([others.labels, np.ones(1, np.float32)]), views)
    owned = Records(features, labels, units=np.repeat(np.arange(5), views), views=views)
    engine = BookKeeping(build(kind, 1))
    moved = private_sum(engine, owned, np.arange(5), 1e-3) - private_sum(engine, owned, np.arange(4), 1e-3)
    assert np.linalg.norm(moved) <= 1e-3
    apart = engine.clipped_sum(Records(features, labels), np.arange(5 * views), 1e-3)
    without = engine.clipped_sum(Records(features, labels), np.arange(4 * views), 1e-3)
    assert np.linalg.norm(apart - without) > 0.9 * views * 1e-3


def test_views_of_other_pixels_than_the_columns_are_refused() -> None:
    with pytest.raises(ValidationError, match="views: expected 64 coordinates, one a pixel of 8 × 8, got 16"):
        _schema(views={"rows": 8, "columns": 8, "shift": 1})


def test_no_views_at_all_are_refused_and_a_schema_without_is_spelt_as_before() -> None:
    with pytest.raises(ValidationError, match="views: expected a shift, or mirror: true"):
        _schema(views={"rows": SIDE, "columns": SIDE})
    assert "views" not in _schema().model_dump(mode="json")


def test_a_job_without_dp_takes_no_views() -> None:
    """Its silos would weigh, and count, rows that are no records."""
    job = honest_round().job
    width = job.data.columns_width
    columns = [
        NumericFeature(column=f"q{place}", low=0, high=1, impute=0).model_dump() for place in range(16)
    ]
    assert width > 0
    tree = job.model_dump(mode="json")
    tree["data"]["features"] = columns
    tree["data"]["views"] = {"rows": 4, "columns": 4, "shift": 1}
    tree["training"] |= {"algorithm": "fedavg"}
    tree["dp"] = None
    with pytest.raises(ValidationError, match=r"data\.views: expected none with fedavg"):
        JobSpec.model_validate_json(json.dumps(tree))
