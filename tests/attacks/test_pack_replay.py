"""A replay or a claim that says other than the ledgers is named, whoever signed the pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sealsum_verify.verify import verify_pack

from tests.evidence_pack import edited, files_of, resigned, shared_pack, shared_records

REPLAY, CLAIM = "dp/accountant-replay.json", "dp/claim.json"


def _first(document: Any) -> Any:
    return document["silos"]["silo-1"]["blocks"][0]


def _last(document: Any) -> Any:
    return document["silos"]["silo-1"]["blocks"][-1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["silos"].pop("silo-1"), "expected the silos whose ledgers reserved"),
        (lambda d: _first(d)["after"].update(epsilon="0.0100"), "the least it can be"),
        (lambda d: _first(d)["after"].update(epsilon="9.0000"), "above the bound"),
        (lambda d: _first(d)["event"].update(noise_multiplier="40.0"), "not the reservations of its ledger"),
        (lambda d: _first(d).update(at="2026-01-01T00:00:00Z"), "not the reservations of its ledger"),
        (lambda d: d["silos"]["silo-1"]["blocks"].pop(), "not the reservations of its ledger"),
        (lambda d: d["silos"]["silo-1"]["blocks"].reverse(), "not the reservations of its ledger"),
        (
            lambda d: _last(d)["after"].update(epsilon="0.1999"),
            "it does not end with what dp/claim.json claims",
        ),
        (lambda d: _first(d)["after"].update(rounds=2), "its ledger has 1 rounds"),
        (lambda d: d["silos"]["silo-1"]["caps"]["epsilon"].update(job="9.0"), "other caps than its ledger's"),
    ],
)
def test_a_replay_that_is_not_the_ledgers_is_named(edit: Callable[[Any], Any], message: str) -> None:
    changed = edited(files_of(shared_pack()), REPLAY, lambda document: edit(document) and None)
    fault = verify_pack(resigned(changed, shared_records())).fault
    assert fault is not None
    assert fault.entry == REPLAY
    assert message in fault.sentence


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d["silos"]["silo-1"].update(mu="1.0000"), "mu is not"),
        (
            lambda d: d.update(
                empirical={
                    "entry": "tests/attack.json",
                    "attack": "canaries",
                    "protection": "all",
                    "epsilon_at_least": "0.0100",
                    "epsilon_claimed_there": "4.3800",
                }
            ),
            "empirical: not what tests/attack.json says",
        ),
    ],
)
def test_a_claim_of_what_nobody_computed_is_named(edit: Callable[[Any], Any], message: str) -> None:
    changed = edited(files_of(shared_pack()), CLAIM, lambda document: edit(document) and None)
    fault = verify_pack(resigned(changed, shared_records())).fault
    assert fault is not None
    assert fault.entry == CLAIM
    assert message in fault.sentence
