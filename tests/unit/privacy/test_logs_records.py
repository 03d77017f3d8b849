"""Records commit to their fields: readable in full or in part, and never changeable."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.errors import LedgerDamaged
from privacy.transparency.leaf import (
    Disclosed,
    Record,
    Redacted,
    new_record,
    parse_record,
    records_in_order,
)

ORIGIN = "sealsum/fed/log/aggregator"
AT = "2026-01-02T03:04:05.678Z"


def record(seq: int = 0, **body: Any) -> Record:
    return new_record(seq, AT, "round_offered", body, os.urandom(16 * len(body)))


def test_the_bytes_of_a_record_and_of_its_leaf_are_these() -> None:
    one = new_record(7, AT, "job_ended", {"job": "j", "state": None}, bytes(range(32)))
    salts = bytes(range(16)), bytes(range(16, 32))
    assert one.line() == (
        b'{"at":"2026-01-02T03:04:05.678Z","fields":{"job":{"salt":"000102030405060708090a0b0c0d0e0f","value":"j"},'
        b'"state":{"salt":"101112131415161718191a1b1c1d1e1f","value":null}},"kind":"job_ended","seq":7}'
    )
    job = hashlib.sha256(b"sealsum/log-field/v1\x00" + salts[0] + b'{"name":"job","value":"j"}').hexdigest()
    state = hashlib.sha256(
        b"sealsum/log-field/v1\x00" + salts[1] + b'{"name":"state","value":null}'
    ).hexdigest()
    assert (
        one.leaf(ORIGIN)
        == (
            f'{{"at":"{AT}","fields":{{"job":"{job}","state":"{state}"}},"kind":"job_ended",'
            f'"origin":"{ORIGIN}","seq":7}}'
        ).encode()
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
bodies = st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True), values, max_size=4)


@given(bodies, st.data())
def test_redaction_keeps_the_leaf_and_hides_the_values(body: dict[str, Any], data: st.DataObject) -> None:
    one = record(**body)
    keep = data.draw(st.sets(st.sampled_from(sorted(body)))) if body else set()
    redacted = one.redact(keep)
    assert redacted.leaf(ORIGIN) == one.leaf(ORIGIN)
    assert redacted.body == {name: value for name, value in body.items() if name in keep}
    assert redacted.redact(keep) == redacted
    for name, field in redacted.fields.items():
        assert isinstance(field, Disclosed if name in keep else Redacted)
    assert parse_record(redacted.line()) == redacted
    assert parse_record(one.line()).leaf(ORIGIN) == one.leaf(ORIGIN)


@given(bodies, values)
def test_another_value_salt_name_kind_time_place_or_log_is_another_leaf(
    body: dict[str, Any], value: Any
) -> None:
    one = record(**body)
    others = [
        one.model_copy(update={"seq": 1}),
        one.model_copy(update={"at": "2026-01-02T03:04:05.679Z"}),
        one.model_copy(update={"kind": "round_aborted"}),
        one.model_copy(update={"fields": {**one.fields, "further": Redacted(digest="0" * 64)}}),  # type: ignore[arg-type]
    ]
    for name, field in one.fields.items():
        assert isinstance(field, Disclosed)
        if json.dumps(field.value, sort_keys=True) != json.dumps(value, sort_keys=True):
            others.append(
                one.model_copy(
                    update={"fields": one.fields | {name: Disclosed(salt=field.salt, value=value)}}
                )
            )
        others.append(
            one.model_copy(
                update={"fields": one.fields | {name: Disclosed(salt="0" * 32, value=field.value)}}
            )
        )
        rest = {other: kept for other, kept in one.fields.items() if other != name}
        others += [
            one.model_copy(update={"fields": rest}),
            one.model_copy(update={"fields": rest | {f"{name}_": field}}),
        ]
    assert all(other.leaf(ORIGIN) != one.leaf(ORIGIN) for other in others)
    assert one.leaf(f"{ORIGIN}-2") != one.leaf(ORIGIN)


def test_one_value_has_two_commitments() -> None:
    first, second = record(silo="a").leaf(ORIGIN), record(silo="a").leaf(ORIGIN)
    assert first != second, "a salt repeated: a redacted field could be guessed"


def test_salts_do_not_print() -> None:
    one = record(silo="a")
    field = one.fields["silo"]
    assert isinstance(field, Disclosed)
    assert field.salt not in repr(one)


def test_what_is_no_record_is_refused() -> None:
    line = record(silo="a").line()
    for bad in (
        b"",
        b"{}",
        line + b" ",
        line.replace(b'"seq":0', b'"seq":-1'),
        line.replace(b"silo", b"Silo"),
    ):
        with pytest.raises(LedgerDamaged, match="log: expected a record"):
            parse_record(bad)
    with pytest.raises(ValueError, match="expected 16 bytes for each of 1 fields"):
        new_record(0, AT, "started", {"party": "p"}, bytes(15))


def test_records_out_of_their_place_are_refused() -> None:
    lines = [record(seq, n=seq).line() for seq in range(4)]
    assert [one.seq for one in records_in_order(lines, ORIGIN)] == [0, 1, 2, 3]
    for bad in (lines[1:], [lines[0], lines[2]], [lines[0], lines[0]], [lines[1], lines[0]]):
        with pytest.raises(LedgerDamaged, match="expected entry"):
            list(records_in_order(bad, ORIGIN))
