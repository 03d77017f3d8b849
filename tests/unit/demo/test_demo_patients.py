"""The demo's data travel with it, and the held-out third is really held out."""

from __future__ import annotations

from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealsum.demo.patients import HOSPITALS, Hospital, patients_of
from sealsum.demo.split import split_patients

COUNTS = {"cleveland": 303, "hungary": 294, "switzerland": 123, "va-long-beach": 200}


def test_the_package_carries_all_920_patients_with_their_attribution() -> None:
    assert {hospital.silo: len(patients_of(hospital).rows) for hospital in HOSPITALS} == COUNTS
    folder = resources.files("sealsum.demo") / "data"
    assert "10.24432/C52P4X" in (folder / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in (folder / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("hospital", HOSPITALS, ids=lambda hospital: hospital.silo)
def test_every_row_is_as_wide_as_its_header_and_each_patient_is_there_once(hospital: Hospital) -> None:
    table = patients_of(hospital)
    assert {len(row) for row in table.rows} == {len(table.columns)}
    assert len({row[0] for row in table.rows}) == len(table.rows)


@given(seed=st.integers(0, 2**31), index=st.integers(0, 3))
def test_a_patient_is_either_trained_on_or_held_out_never_both(seed: int, index: int) -> None:
    table = patients_of(HOSPITALS[index])
    split = split_patients(HOSPITALS[index], table, seed)
    assert sorted(split.training.rows + split.held_out.rows) == sorted(table.rows)
    assert not set(split.training.rows) & set(split.held_out.rows)


@given(seed=st.integers(0, 2**31), index=st.integers(0, 3))
def test_a_third_of_the_sick_and_a_third_of_the_healthy_are_held_out(seed: int, index: int) -> None:
    table = patients_of(HOSPITALS[index])
    split = split_patients(HOSPITALS[index], table, seed)
    for sick in (True, False):
        everyone = sum(table.sick(row) is sick for row in table.rows)
        held_out = sum(table.sick(row) is sick for row in split.held_out.rows)
        assert held_out == round(everyone / 3)


def test_the_same_seed_holds_out_the_same_patients_and_another_seed_others() -> None:
    table = patients_of(HOSPITALS[0])
    assert split_patients(HOSPITALS[0], table, 1) == split_patients(HOSPITALS[0], table, 1)
    assert split_patients(HOSPITALS[0], table, 1) != split_patients(HOSPITALS[0], table, 2)
