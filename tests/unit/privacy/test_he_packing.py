"""Coefficients take exactly their bits, and SEAL's streams are rebuilt byte for byte."""

from __future__ import annotations

import os

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import ConfigurationError, MalformedMessage
from privacy.secagg.he.framing import Form
from privacy.secagg.he.packing import pack, unpack
from privacy.secagg.he.parameters import PARAMETERS
from privacy.secagg.he.seal_form import SealForm


@given(st.sampled_from([8, 20, 36, 40, 54, 57]), st.integers(1, 6), st.data())
def test_packing_is_the_integers_written_side_by_side(bits: int, groups: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=8 * groups, max_size=8 * groups))
    whole = sum(value << (bits * place) for place, value in enumerate(values))
    packed = pack(np.array(values, dtype=np.uint64), bits)
    assert packed == whole.to_bytes(bits * groups, "little")
    assert unpack(packed, bits, 1 << bits).tolist() == values


def test_a_coefficient_that_is_not_below_the_modulus_is_refused() -> None:
    assert unpack(pack(np.array([6, 0], dtype=np.uint64), 36), 36, 7).tolist() == [6, 0]
    with pytest.raises(MalformedMessage, match="not below the modulus"):
        unpack(pack(np.array([0, 7], dtype=np.uint64), 36), 36, 7)


def test_widths_that_do_not_fit_a_word_are_refused() -> None:
    for bits in (0, 58):
        with pytest.raises(ValueError, match="bits: expected 1 to 57"):
            pack(np.zeros(8, dtype=np.uint64), bits)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("form", Form)
def test_a_stream_in_another_form_than_the_known_one_is_refused(name: str, form: Form) -> None:
    """What SEAL writes is compared whole: a release that adds or moves a field stops here, aloud."""
    row = PARAMETERS[name]
    seal_form = SealForm(row, (1, 2, 3, 4), 1.0)
    coefficients = np.arange(row.degree * form.value[1], dtype=np.uint64)
    stream = seal_form.stream(form, coefficients, os.urandom(form.value[0]))
    header, content = stream[:16], stream[16:]
    again, seed = seal_form.parse(form, header + zstandard.compress(content))
    assert np.array_equal(again, coefficients)
    assert seal_form.stream(form, again, seed) == stream
    for wrong in (content[:-1], content + b"\0", b"\7" + content[1:], content[:40] + b"\7" + content[41:]):
        with pytest.raises(ConfigurationError, match=r"install tenseal 0\.3\.18"):
            seal_form.parse(form, header + zstandard.compress(wrong))
