"""Decisions about jobs: only the key that is named signed them, and each has one spelling."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from privacy.approval import JobApproval, SignedApproval, instant, open_approval, sign_approval
from privacy.approval import _signed_bytes as signed_bytes
from privacy.canonical import canonical_bytes
from privacy.errors import MalformedMessage, SignatureRejected
from privacy.identity import SigningKey
from privacy.people import Person

KEY = SigningKey.generate()


def approval(**changes: Any) -> JobApproval:
    fields: dict[str, Any] = {
        "federation": "testfed",
        "silo": "silo-1",
        "job": "heart",
        "job_digest": "a" * 64,
        "algorithm": "dp_fedavg",
        "architecture": "b" * 64,
        "dataset": "cardio",
        "registration": "d" * 64,
        "data_schema": "c" * 64,
        "recipient": "silos",
        "noise_multiplier": 4.0,
        "epsilon_job": 1.5,
        "delta": 1e-5,
        "rounds_max": 2,
        "decision": "approve",
        "by": "ada",
        "role": "dpo",
        "at": "2026-11-30T09:00:00Z",
        "expires_at": "2026-12-30T09:00:00Z",
    }
    return JobApproval(**{**fields, **changes})


def test_a_decision_reads_back_as_it_was_signed() -> None:
    assert open_approval(sign_approval(approval(), KEY)) == approval()


@given(st.data())
def test_a_decision_with_any_other_byte_does_not_hold(data: st.DataObject) -> None:
    signed = sign_approval(approval(), KEY)
    place = data.draw(st.integers(0, len(signed.body) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda c: c != signed.body[place]))
    altered = signed.model_copy(update={"body": signed.body[:place] + other + signed.body[place + 1 :]})
    with pytest.raises(SignatureRejected):
        open_approval(altered)


def test_another_key_named_beside_the_signature_does_not_hold() -> None:
    other = SigningKey.generate().verify_key
    with pytest.raises(SignatureRejected):
        open_approval(sign_approval(approval(), KEY).model_copy(update={"verify_key": other}))


def test_a_second_spelling_of_a_decision_is_refused_though_its_key_signed_it() -> None:
    fields = json.loads(canonical_bytes(approval()))
    del fields["reason"]
    body = canonical_bytes(fields)
    good = sign_approval(approval(), KEY)
    signed = good.model_copy(update={"body": body.decode(), "signature": KEY.sign(signed_bytes(body)).hex()})
    with pytest.raises(MalformedMessage, match="one spelling"):
        open_approval(SignedApproval.model_validate(signed.model_dump()))


def test_moments_are_utc_in_whole_seconds() -> None:
    assert instant(datetime(2026, 11, 30, 9, 5, 37, 999999, tzinfo=UTC)) == "2026-11-30T09:05:37Z"


@pytest.mark.parametrize("roles", [[], ["dpo", "dpo"], ["root"]])
def test_a_person_has_known_roles_each_once(roles: list[str]) -> None:
    with pytest.raises(ValidationError):
        Person(roles=tuple(roles), verify_key=KEY.verify_key)  # type: ignore[arg-type]  # wrong on purpose
