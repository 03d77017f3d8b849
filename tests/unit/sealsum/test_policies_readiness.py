"""``sealsum readiness``: two "no" advise against, one is named, and its numbers are the measured ones."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sealsum.readiness import Situation, advise
from sealsum.readiness_command import readiness

ROOT = Path(__file__).parents[3]
FITS = Situation(
    data_may_move="no",
    gain_over_local="yes",
    label_skew="strong",
    institutions=5,
    records=5000,
    latency="days",
    team="yes",
    network="yes",
    one_schema="yes",
)
AGAINST: dict[str, Any] = {
    "data_may_move": "yes",
    "gain_over_local": "no",
    "institutions": 2,
    "records": 100,
    "latency": "interactive",
    "team": "no",
    "network": "no",
    "one_schema": "no",
}
RISKS: dict[str, Any] = {
    "gain_over_local": "unknown",
    "label_skew": "one_label_each",
    "institutions": 3,
    "records": 300,
    "latency": "minutes",
}


def test_where_everything_fits_the_next_command_is_named() -> None:
    advice = advise(FITS)
    assert (advice.conclusion, {answer.verdict for answer in advice.answers}) == ("go on", {"fits"})
    assert "sealsum policy init" in advice.sentence


@pytest.mark.parametrize("field", AGAINST)
def test_one_no_is_named_with_its_reason(field: str) -> None:
    advice = advise(replace(FITS, **{field: AGAINST[field]}))
    (against,) = [answer for answer in advice.answers if answer.verdict == "no"]
    assert advice.conclusion == "one risk"
    assert against.question in advice.sentence
    assert against.reason in advice.sentence


@pytest.mark.parametrize("pair", list(itertools.combinations(AGAINST, 2)))
def test_any_two_no_advise_against_and_name_both(pair: tuple[str, str]) -> None:
    advice = advise(replace(FITS, **{field: AGAINST[field] for field in pair}))
    against = [answer for answer in advice.answers if answer.verdict == "no"]
    assert (advice.conclusion, len(against)) == ("advise against", 2)
    assert all(answer.question in advice.sentence for answer in against)


@pytest.mark.parametrize("field", RISKS)
def test_a_risk_is_watched_and_stops_nobody(field: str) -> None:
    advice = advise(replace(FITS, **{field: RISKS[field]}))
    (risk,) = [answer for answer in advice.answers if answer.verdict == "risk"]
    assert advice.conclusion == "go on"
    assert risk.question in advice.sentence


def test_its_numbers_are_the_measured_ones() -> None:
    recipes = (ROOT / "docs/recipes.md").read_text("utf-8")
    reasons = " ".join(
        answer.reason
        for skew in ("strong", "mild")
        for answer in advise(replace(FITS, label_skew=skew)).answers
    )
    rows = {line.split("|")[1].strip(): line for line in recipes.splitlines() if line.startswith("| ")}
    at_three = {name: row.split("|")[3].strip() for name, row in rows.items() if row.count("|") == 5}
    assert at_three["`dp_fedsgd`, IID"].startswith("97.2")
    assert at_three["`dp_fedsgd`, label skew"].startswith("97.2")
    assert at_three["`dp_fedavg`, IID / label skew"] == "96.0 / 89.0"
    assert at_three["one silo alone, IID / label skew"].startswith("91.8")
    assert "one hospital alone is 6 to 10 points of AUC behind" in recipes
    assert set(re.findall(r"\d\d\.\d", reasons)) == {"97.2", "91.8", "89.0", "96.0"}


def test_questions_are_asked_or_given_as_options() -> None:
    options = [
        part for name, value in vars(FITS).items() for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    said = json.loads(CliRunner().invoke(readiness, [*options, "--json"]).stdout)
    assert (said["conclusion"], len(said["answers"])) == ("go on", 9)
    typed = "".join(f"{value}\n" for value in vars(FITS).values())
    asked = CliRunner().invoke(readiness, [], input=typed)
    assert asked.exit_code == 0
    assert "go on: It fits." in asked.output
