"""One value has one byte string, and nothing else is accepted for it."""

from __future__ import annotations

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from privacy.canonical import Frozen, Real, canonical_bytes, parse_canonical
from privacy.errors import MalformedMessage
from tests.federation import Federation

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abcXYZ_09", max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", max_size=3), plain, max_size=4))
def test_what_was_encoded_decodes_to_itself(value: dict[str, object]) -> None:
    assert parse_canonical(canonical_bytes(value), 1 << 20) == value


@given(st.dictionaries(st.text("abcXYZ_09", max_size=5), plain, max_size=4))
def test_an_auditor_without_our_library_rebuilds_the_same_bytes(value: dict[str, object]) -> None:
    independent = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical_bytes(value) == independent


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), plain, max_size=4))
def test_the_bytes_are_those_of_the_rfc_8785_library_whatever_the_keys(value: dict[str, object]) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)  # type: ignore[arg-type] # plain JSON


@pytest.mark.parametrize(
    "raw", [b'{"a": 1}', b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a":1.0}', b'{"a":1e0}', b"[1,]", b"\xff"]
)
def test_another_spelling_of_a_message_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedMessage, match="expected canonical JSON"):
        parse_canonical(raw, 1 << 20)


def test_a_message_over_its_cap_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(MalformedMessage, match="expected at most 4 bytes, got 5"):
        parse_canonical(b"[[[[[", 4)


def test_deep_nesting_is_refused_not_crashed_on() -> None:
    with pytest.raises(MalformedMessage):
        parse_canonical(b"[" * 100_000 + b"]" * 100_000, 1 << 20)


class _Holder(Frozen):
    value: Real


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_real_travels_exactly(number: float) -> None:
    again = _Holder.model_validate(json.loads(canonical_bytes(_Holder(value=number))))
    assert again.value == number


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "one", "", True, None])
def test_a_real_is_a_finite_decimal_string(text: object) -> None:
    with pytest.raises(ValueError, match=r"expected a (finite number|decimal string)"):
        _Holder.model_validate({"value": text})


def test_a_float_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="a float has no canonical form"):
        canonical_bytes({"a": [0.5]})


def test_what_has_no_canonical_form_is_refused_under_any_key() -> None:
    for value in ({"é": 0.5}, {"é": {"b": [0.5]}}, {"a": "b", "é": "c", "d": 0.5}, [{"é": 1}, 0.5]):
        with pytest.raises(ValueError, match="a float has no canonical form"):
            canonical_bytes(value)


def test_a_copy_with_another_field_has_another_digest_though_the_first_was_asked_for_before() -> None:
    schema = Federation().job_spec().data
    before = schema.digest
    copied = schema.model_copy(update={"patient_id": "row"})
    assert copied.digest != before == schema.digest
    assert copied.digest == type(schema).model_validate(copied.model_dump()).digest
