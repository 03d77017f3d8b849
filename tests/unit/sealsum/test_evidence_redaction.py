"""What is taken out of a pack is gone, listed, and harms no proof; what proofs need cannot be taken out."""

from __future__ import annotations

import json
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.canonical import canonical_bytes
from privacy.errors import ConfigurationError
from privacy.transparency.leaf import new_record, parse_record
from sealsum.evidence_redaction import NEEDED, redacted, wished

LOG, ORIGIN = "log/aggregator.jsonl", "sealsum/demo/log/aggregator"


def files(*bodies: dict[str, str]) -> dict[str, bytes]:
    lines = [
        new_record(
            seq, "2026-01-02T03:04:05Z", "request_refused", body, secrets.token_bytes(16 * len(body))
        ).line()
        for seq, body in enumerate(bodies)
    ]
    return {
        LOG: b"".join(line + b"\n" for line in lines),
        "silos/north.json": b'{"body":{"people":{"ada":{}}}}',
        "data/card.json": canonical_bytes({"registered": {"north": {"legal_basis": "consent"}}}),
        "REDACTIONS.json": canonical_bytes({"redactions": []}),
    }


def leaves(raw: bytes) -> list[bytes]:
    return [parse_record(line).leaf_hash(ORIGIN) for line in raw.splitlines()]


WORDS = st.dictionaries(
    st.sampled_from(["reason", "party", "rule", "context"]), st.text(max_size=9), min_size=1
)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_every_leaf_of_the_tree_stays_and_the_value_is_gone(bodies: list[dict[str, str]]) -> None:
    before = files(*bodies)
    if not any("reason" in body for body in bodies):
        return
    after = redacted(before, wished(["log:reason"]), "a trial")
    assert leaves(after[LOG]) == leaves(before[LOG])
    assert all("reason" not in parse_record(line).body for line in after[LOG].splitlines())
    kept = [{k: v for k, v in body.items() if k != "reason"} for body in bodies]
    assert [parse_record(line).body for line in after[LOG].splitlines()] == kept
    (row,) = json.loads(after["REDACTIONS.json"])["redactions"]
    assert (row["entry"], row["field"], row["reason"]) == (LOG, "reason", "a trial")
    assert row["count"] == sum("reason" in body for body in bodies)


def test_redacting_twice_lists_both_and_counts_on() -> None:
    once = redacted(files({"reason": "a", "party": "x"}), wished(["log:reason"]), "")
    twice = redacted(once, wished(["log:party", "silo:north"]), "")
    listed = json.loads(twice["REDACTIONS.json"])["redactions"]
    assert [(row["entry"], row["field"], row["count"]) for row in listed] == [
        (LOG, "party", 1),
        (LOG, "reason", 1),
        ("silos/north.json", "*", 1),
    ]
    assert b"ada" not in b"".join(twice.values())


@pytest.mark.parametrize("field", sorted(NEEDED))
def test_what_the_verifier_follows_rounds_by_cannot_go(field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"log:{field} cannot be redacted"):
        wished([f"log:{field}"])


@pytest.mark.parametrize("word", ["reason", "log:", "log:Reason", "silo:", "dp:claim", "log:a:b"])
def test_what_is_neither_a_field_nor_a_silo_is_refused(word: str) -> None:
    with pytest.raises(ConfigurationError, match="expected log:FIELD"):
        wished([word])


@pytest.mark.parametrize("word", ["log:never", "silo:south"])
def test_what_is_not_there_cannot_be_taken_out(word: str) -> None:
    with pytest.raises(ConfigurationError, match=word.partition(":")[2]):
        redacted(files({"reason": "a"}), wished([word]), "")
