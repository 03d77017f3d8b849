"""Unit claims: a patient's records are drawn together, summed, and clipped as one, in every engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.findings import PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.plan import DpTerms
from privacy.schema import DataSchema, Label, NumericFeature
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.records import Records, assert_enough
from silo_agent.engines.book_keeping import BookKeeping
from silo_agent.engines.opacus_ghost import OpacusGhost
from silo_agent.engines.opacus_hooks import OpacusHooks
from tests.unit.silo_agent.engine_models import KINDS, build, clipped_one_by_one, records_for

OWNERS = np.array([2, 0, 1, 2, 2, 0, 3, 4, 4, 2], dtype=np.int64)
PAIRS = [(engine, kind) for engine in (BookKeeping, OpacusHooks) for kind in KINDS]
PAIRS.remove((OpacusHooks, "padded_embedding"))  # see test_engines_agreement.py


@pytest.mark.parametrize(("engine", "kind"), PAIRS)
@pytest.mark.parametrize("clip", [0.05, 1e6], ids=["all clipped", "none"])
def test_a_patients_gradients_are_summed_and_then_clipped(
    engine: type[BookKeeping | OpacusHooks], kind: str, clip: float
) -> None:
    module, records = build(KINDS[kind], 8), records_for(KINDS[kind], len(OWNERS), 8, OWNERS)
    sample = np.array([0, 2, 3])
    expected = clipped_one_by_one(module, records, sample, clip)
    got = engine(module).clipped_sum(records, sample, clip)
    assert np.linalg.norm(got - expected) <= 1e-9 * np.linalg.norm(expected)


def test_ghost_clipping_refuses_patients_with_several_records() -> None:
    module, records = build(KINDS["mlp"], 0), records_for(KINDS["mlp"], len(OWNERS), 0, OWNERS)
    with pytest.raises(ConfigurationError, match="one record a unit"):
        OpacusGhost(module).clipped_sum(records, np.array([0]), 1.0)


@pytest.mark.parametrize("engine", [BookKeeping, OpacusHooks])
def test_one_record_that_is_not_finite_takes_its_whole_patient_out(
    engine: type[BookKeeping | OpacusHooks],
) -> None:
    module, records = build(KINDS["mlp"], 3), records_for(KINDS["mlp"], len(OWNERS), 3, OWNERS)
    records.features[3, 0] = np.nan  # of patient 2
    expected = clipped_one_by_one(module, records, np.array([0, 1, 3, 4]), 0.4)
    got = engine(module).clipped_sum(records, np.arange(5), 0.4)
    np.testing.assert_allclose(got, expected, atol=1e-12)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.sets(st.integers(0, 8)))
def test_blocks_hold_each_sampled_units_records_once_and_no_others(
    owners: list[int], drawn: set[int]
) -> None:
    units = np.unique(np.array(owners), return_inverse=True)[1].astype(np.int64)
    records = Records(np.zeros((len(units), 1), np.float32), np.zeros(len(units), np.float32), units=units)
    sample = np.array(sorted(drawn & set(units.tolist())), dtype=np.intp)
    seen = []
    for rows in records.in_equal_shares(sample):
        assert all(len(set(units[row])) == 1 for row in rows)
        seen += rows.ravel().tolist()
    assert sorted(seen) == np.flatnonzero(np.isin(units, sample)).tolist()
    assert records.unit_count == len(set(owners))


@pytest.mark.parametrize("units", [[0, 2], [0, 1, 1], [-1, 0]])
def test_units_that_do_not_tell_each_records_owner_are_refused(units: list[int]) -> None:
    with pytest.raises(ConfigurationError, match=r"records\.units"):
        Records(np.zeros((2, 1), np.float32), np.zeros(2, np.float32), units=np.array(units, dtype=np.int64))


SCHEMA = DataSchema(
    features=(NumericFeature(column="age", low=0, high=100, impute=50),),
    label=Label(column="ill", threshold=0),
    patient_id="id",
)
TABLE = "id,age,ill\nb,0,0\na,10,1\nb,20,1\nb,30,0\nc,40,0\na,50,1\n"


def _read(tmp_path: Path, most: int, table: str = TABLE) -> Records:
    path = tmp_path / "table.csv"
    path.write_text(table)
    return read_csv_table(path, SCHEMA, "patient", most)


def test_the_first_records_of_a_patient_are_used_and_the_rest_is_not(tmp_path: Path) -> None:
    records = _read(tmp_path, 2)
    assert records.patients == ("b", "a", "b", "c", "a")
    assert records.units is not None
    assert records.units.tolist() == [0, 1, 0, 2, 1]
    np.testing.assert_allclose(records.features[:, 0], [-1.0, -0.8, -0.6, -0.2, 0.0], atol=1e-6)


def test_which_records_are_used_does_not_depend_on_other_patients(tmp_path: Path) -> None:
    without = "\n".join(line for line in TABLE.splitlines() if not line.startswith("b"))
    whole, fewer = _read(tmp_path, 2), _read(tmp_path, 2, without)
    kept = [row for row, patient in enumerate(whole.patients) if patient != "b"]
    np.testing.assert_array_equal(whole.features[kept], fewer.features)


def test_with_one_record_a_patient_a_second_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"row 4, column id: .* or sign dp\.records_per_unit"):
        _read(tmp_path, 1)


def test_a_minimum_counts_patients_not_records(tmp_path: Path) -> None:
    records = _read(tmp_path, 3)
    assert len(records) == 6
    assert_enough(records, 3)
    with pytest.raises(PolicyRefusal, match="fewer"):
        assert_enough(records, 4)


def test_records_as_units_are_one_each() -> None:
    with pytest.raises(ValueError, match="records_per_unit: expected 1 with unit record"):
        DpTerms(
            unit="record",
            records_per_unit=2,
            sample_rate=1,
            noise_multiplier=1,
            clip_l2=1,
            normaliser=1,
            delta=1e-6,
        )


def test_one_record_a_unit_is_not_spelled_so_plans_of_before_keep_their_digests() -> None:
    terms = {"sample_rate": 1, "noise_multiplier": 1, "clip_l2": 1, "normaliser": 1, "delta": 1e-6}
    assert "records_per_unit" not in DpTerms(unit="patient", **terms).model_dump()  # type: ignore[arg-type]  # numbers
    assert DpTerms(unit="patient", records_per_unit=3, **terms).model_dump()["records_per_unit"] == 3  # type: ignore[arg-type]  # numbers
