"""Three rows, at 128 bits, with room for the noise of the largest cohort; nothing else is taken."""

from __future__ import annotations

import pytest
import tenseal.sealapi as sealapi
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import ConfigurationError, Unprocessable
from privacy.plan import VectorTerms
from privacy.secagg.he import door, parameters
from privacy.secagg.he.parameters import (
    MAX_CONTRIBUTORS,
    PARAMETERS,
    HeParameters,
    assert_available,
    assert_fits,
    largest_element,
    parameters_named,
)

WEAK = [
    HeParameters("weak", "bfv", 1024, sealapi.CoeffModulus.Create(2048, [40])[0].value(), 12289),
    HeParameters("weak", "ckks", 2048, sealapi.CoeffModulus.Create(2048, [58])[0].value(), 0),
]


@pytest.mark.parametrize("name", ["", "bfv", "ckks-8192-60", "bfv-1024-27", "BFV-2048-40"])
def test_parameters_that_are_not_listed_are_refused(name: str) -> None:
    with pytest.raises(Unprocessable, match=r"he\.parameters: expected one of bfv-2048-40"):
        parameters_named(name)


@pytest.mark.parametrize("weak", WEAK, ids=["degree too small", "modulus too large"])
def test_seal_itself_refuses_parameters_below_128_bits(weak: HeParameters) -> None:
    with pytest.raises(ConfigurationError, match="SEAL refuses weak: invalid_parameters_insecure"):
        door.generate_secret(weak)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_pinned_primes_are_those_seal_would_choose(name: str) -> None:
    row = parameters_named(name)
    bits = row.modulus.bit_length()
    assert f"{row.scheme}-{row.degree}-{bits}" == name
    assert bits <= sealapi.CoeffModulus.MaxBitCount(row.degree, sealapi.SEC_LEVEL_TYPE.TC128)
    assert sealapi.CoeffModulus.Create(row.degree, [bits])[0].value() == row.modulus
    if row.scheme == "bfv":
        plain = sealapi.PlainModulus.Batching(row.degree, row.plain_modulus.bit_length())
        assert plain.value() == row.plain_modulus


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_row_carries_the_largest_cohort_and_no_larger(name: str) -> None:
    row = PARAMETERS[name]
    assert row.largest_sum(MAX_CONTRIBUTORS) > 100 * MAX_CONTRIBUTORS
    for cohort in (0, MAX_CONTRIBUTORS + 1):
        with pytest.raises(Unprocessable, match="cohort: expected 1 to 1000"):
            row.largest_sum(cohort)


def test_a_plaintext_modulus_that_leaves_no_room_for_noise_is_refused() -> None:
    tight = HeParameters("tight", "bfv", 2048, PARAMETERS["bfv-2048-40"].modulus, 1 << 30)
    assert tight.largest_sum(10) == (1 << 29) - 1
    with pytest.raises(Unprocessable, match="more noise than tight carries"):
        tight.largest_sum(24)


@given(st.sampled_from(list(PARAMETERS)), st.integers(1, MAX_CONTRIBUTORS))
def test_terms_fit_exactly_up_to_the_largest_sum(name: str, cohort: int) -> None:
    row = PARAMETERS[name]
    room = row.largest_sum(cohort) // cohort
    bits = 30
    while largest_element(VectorTerms(coordinate_bound=1.0, scale_bits=bits)) > room:
        bits -= 1
    assert_fits(row, VectorTerms(coordinate_bound=1.0, scale_bits=bits), cohort)
    if bits < 30:
        with pytest.raises(Unprocessable, match="the largest sum of"):
            assert_fits(row, VectorTerms(coordinate_bound=1.0, scale_bits=bits + 1), cohort)


@given(st.integers(1, MAX_CONTRIBUTORS))
def test_half_a_grid_step_of_ckks_is_ten_to_twenty_deviations(cohort: int) -> None:
    row = PARAMETERS["ckks-4096-36"]
    deviation = (cohort * 2048 * (10.5 + 1 / 12)) ** 0.5
    assert 10 <= 2.0 ** row.scale_bits(cohort) / 2 / deviation <= 20


def test_without_tenseal_the_mode_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_available()
    monkeypatch.setattr(parameters, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'sealsum\[he\]'"):
        assert_available()
