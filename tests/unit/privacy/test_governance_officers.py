"""Officers: m of n, distinct, of several institutions; each version endorsed by itself and the one before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.errors import Conflict, OutOfOrder, SignatureRejected
from privacy.identity import SigningKey
from privacy.ids import PartyId
from privacy.officers import (
    Endorsed,
    Officer,
    Officers,
    check_endorsed,
    follow_officers,
    unsigned,
)

KEYS = {name: SigningKey.generate() for name in ("ada", "ben", "cleo", "dora", "emil")}


def officers(
    names: str = "ada ben cleo", threshold: int = 2, version: int = 1, **changes: object
) -> Officers:
    listed = [
        {"name": name, "legal_entity": f"Hospital of {name}", "verify_key": KEYS[name].verify_key}
        for name in names.split()
    ]
    terms = {"federation": "cardio", "version": version, "threshold": threshold, "officers": listed}
    return Officers.model_validate(terms | changes)


def signed(document: Officers, by: str) -> Endorsed:
    endorsed = unsigned(document, "officers", "cardio")
    for name in by.split():
        endorsed = endorsed.signed_by(PartyId(name), KEYS[name])
    return endorsed


@given(st.sets(st.sampled_from(sorted(KEYS)), min_size=0), st.integers(1, 5))
def test_a_document_holds_exactly_if_the_threshold_of_its_officers_signed(
    by: set[str], threshold: int
) -> None:
    named = officers("ada ben cleo dora emil", threshold, one_institution="allowed")
    endorsed = signed(named, " ".join(sorted(by)))
    if len(by) >= threshold:
        check_endorsed(endorsed, "officers", "cardio", [named])
    else:
        with pytest.raises(SignatureRejected, match=f"got {len(by)}; ask one of"):
            check_endorsed(endorsed, "officers", "cardio", [named])


def test_who_is_missing_is_named() -> None:
    with pytest.raises(
        SignatureRejected, match=r"signatures of 2 of 3 officers.*got 1; ask one of ben, cleo"
    ):
        check_endorsed(signed(officers(), "ada"), "officers", "cardio", [officers()])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": 4}, "threshold: expected at most 3"),
        ({"threshold": 0}, "greater than or equal to 1"),
        ({"threshold": 1}, "one institution alone can change the policy"),
        ({"officers": []}, "at least 1"),
        ({"one_institution": "yes"}, "refused"),
    ],
)
def test_officers_that_cannot_rule_soundly_are_no_document(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        officers(**changes)  # type: ignore[arg-type] # the point


def test_one_institution_with_enough_officers_is_said_or_refused() -> None:
    both = [
        {"name": name, "legal_entity": entity, "verify_key": KEYS[name].verify_key}
        for name, entity in (("ada", "St. Mary"), ("ben", "st.  mary"), ("cleo", "County"))
    ]
    with pytest.raises(ValidationError, match=r"st\. mary has 2 or more of them"):
        officers(officers=both)
    assert officers(officers=both, one_institution="allowed").rule_alone == ("st. mary",)
    assert officers(officers=both, threshold=3).rule_alone == ()


def test_a_name_or_a_key_appears_once() -> None:
    ada = Officer(name=PartyId("ada"), legal_entity="A", verify_key=KEYS["ada"].verify_key)
    again = ada.model_copy(update={"name": PartyId("ada-2"), "legal_entity": "B"})
    with pytest.raises(ValidationError, match="distinct names and distinct keys"):
        Officers(federation="cardio", version=1, threshold=2, officers=(ada, again))


def test_new_officers_count_once_the_thresholds_of_both_sets_have_signed() -> None:
    first, second = officers(), officers("cleo dora emil", version=2)
    one = signed(first, "ada ben")
    for by, missing in (
        ("ada ben", "version 2"),
        ("dora emil", "version 1"),
        ("ada cleo", "version 2"),
        ("cleo dora", "version 1"),
    ):
        with pytest.raises(SignatureRejected, match=missing):
            follow_officers([one, signed(second, by)], first.digest, "cardio")
    chain = [one, signed(second, "ada cleo dora")]
    assert follow_officers(chain, first.digest, "cardio") == (first, second)
    assert follow_officers(chain, second.digest, "cardio") == (first, second)


def test_versions_start_at_one_and_leave_none_out() -> None:
    first, third = officers(), officers("ada ben dora", version=3)
    with pytest.raises(OutOfOrder, match="expected 2, got 3"):
        follow_officers([signed(first, "ada ben"), signed(third, "ada ben")], first.digest, "cardio")
    with pytest.raises(OutOfOrder, match="expected 1, got 3"):
        follow_officers([signed(third, "ada ben")], third.digest, "cardio")


def test_an_officers_new_key_comes_under_a_new_name() -> None:
    first = officers()
    moved = [
        officer.model_dump() | ({"verify_key": KEYS["emil"].verify_key} if officer.name == "ben" else {})
        for officer in first.officers
    ]
    second = officers(officers=moved, version=2)
    with pytest.raises(Conflict, match=r"ben had another key in version 1.*ben-2"):
        follow_officers([signed(first, "ada ben"), signed(second, "ada cleo")], first.digest, "cardio")
