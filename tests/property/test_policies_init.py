"""Whatever its founders answer, `policy init` writes a policy that lints clean and answers what they fear."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sealsum_verify.threat_model import hostile

from policies.assumption import largest_witnessed
from policies.drawing import Answers, draw, terms_of
from policies.drawn_policy import policy_text
from policies.explain import explain
from policies.findings import PolicyInvalid
from policies.loader import load_threat_model
from policies.threat_table import threat_table
from privacy.errors import ConfigurationError
from sealsum.policy_init_command import init

ANSWERS = st.builds(
    Answers,
    name=st.just("our-federation"),
    data_class=st.sampled_from(["patient", "financial", "synthetic"]),
    institutions=st.integers(3, 12) | st.integers(3, 1000),
    one_institution=st.booleans(),
    aggregator=st.sampled_from(["curious", "hostile"]),
    colluding=st.integers(0, 4) | st.integers(0, 998),
    operators=st.integers(0, 16),
    recipient=st.sampled_from(["silos", "external", "public"]),
    records=st.integers(1, 200) | st.integers(1, 10**9),
    records_per_person=st.integers(1, 1000),
    poisoning=st.booleans(),
    tls_inspection=st.booleans(),
    stays_online=st.booleans(),
    approvers=st.integers(1, 3),
)
WHO_SEES_UPDATES = ("curious_aggregator", "malicious_aggregator", "aggregator_with_silo", "silos_pool")


def _holds(answers: Answers) -> None:
    try:
        terms = terms_of(answers)
    except PolicyInvalid as refused:
        _refused_for_a_reason(answers, refused)
        return
    text = policy_text(answers, terms)
    model = load_threat_model(text).model
    drawing = draw(answers, terms)
    rows = {row.key: row for row in threat_table(model)}
    protects = " ".join(sentence.text for sentence in explain(model).protects)
    for fear in drawing.feared:
        unanswered = fear == "poisoning" and any("spoils the model" in one for one in drawing.still_open)
        assert rows[fear].answered or unanswered, fear
        if fear in WHO_SEES_UPDATES:
            assert rows[fear].cells["secure sum"].effect == "stops", fear
    assert ("malicious aggregator sees no silo's update" in protects) == (answers.aggregator == "hostile")
    assert "learns at most ε" in protects
    assert ("A proxy that opens TLS can read no update" in protects) == answers.tls_inspection
    if answers.colluding:
        assert "can take only their own part out of a sum" in protects
    if answers.poisoning and answers.operators >= 2:
        assert "is left out of the sum by name" in protects
    if answers.operators >= 2 or answers.institutions <= 100:  # else cohorts are smaller than federations
        assert largest_witnessed(model.spec) >= answers.institutions
    # The independent verifier reads the same assumptions off the same text.
    assert hostile(text) == (answers.aggregator == "hostile", answers.colluding)


def _refused_for_a_reason(answers: Answers, refused: PolicyInvalid) -> None:
    rules = {finding.rule for finding in refused.findings}
    alone = answers.one_institution and (answers.aggregator == "hostile" or answers.colluding > 0)
    crowd = answers.institutions if answers.operators >= 2 else min(answers.institutions, 100)
    assert ("one_institution_against_others" in rules) == alone
    assert ("too_many_colluders" in rules) == (answers.colluding + 2 > crowd)
    assert rules


@given(ANSWERS)
@settings(max_examples=120, deadline=None)
def test_any_answers_make_a_clean_policy_or_are_refused_by_name(answers: Answers) -> None:
    _holds(answers)


@pytest.mark.slow
def test_every_combination_of_words_makes_a_clean_policy_or_is_refused_by_name() -> None:
    yes_no = (False, True)
    for chosen in itertools.product(
        ("patient", "financial", "synthetic"),
        (3, 6),
        yes_no,
        ("curious", "hostile"),
        (0, 1, 2),
        (0, 2, 3),
        ("silos", "external", "public"),
        yes_no,
        yes_no,
        yes_no,
    ):
        data, many, one, aggregator, colluding, operators, recipient, poison, tls, online = chosen
        answers: dict[str, Any] = {
            "name": "words",
            "data_class": data,
            "institutions": many,
            "one_institution": one,
            "aggregator": aggregator,
            "colluding": colluding,
            "operators": operators,
            "recipient": recipient,
            "records": 100,
            "records_per_person": 1,
            "poisoning": poison,
            "tls_inspection": tls,
            "stays_online": online,
            "approvers": 2,
        }
        _holds(Answers(**answers))


def test_each_lock_says_why_and_what_no_lock_holds_is_said() -> None:
    result = CliRunner().invoke(init, ["--operators", "0"], input="\n" * 20)
    assert result.exit_code == 0, result.output
    said = result.output
    assert said.count("because: ") == said.count("  • ") - said.split("Locks")[0].count("  • ") - 2
    assert "scheme: pairwise, one server" in said
    assert "An institution that spoils the model: with pairwise nobody can check a hidden update." in said
    assert "Whoever controls an institution's own machine." in said


def test_every_question_is_an_option_and_the_result_is_one_document(tmp_path: Path) -> None:
    out = tmp_path / "policy.yaml"
    asked = [
        *("--name", "bank-net", "--data-class", "financial", "--institutions", "6"),
        *("--one-institution", "no", "--aggregator", "hostile", "--colluding", "2", "--operators", "3"),
        *("--recipient", "silos", "--records", "5000", "--records-per-person", "4", "--poisoning", "no"),
        *(
            "--tls-inspection",
            "yes",
            "--stays-online",
            "yes",
            "--approvers",
            "3",
            "--out",
            str(out),
            "--json",
        ),
    ]
    result = CliRunner().invoke(init, asked)
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    loaded = load_threat_model(out.read_text())
    assert (said["policy"], said["digest"]) == (loaded.text, loaded.digest)
    assert loaded.model.metadata.name == "bank-net"
    assert loaded.model.spec.require.dp is not None
    assert loaded.model.spec.require.dp.max_records_per_unit == 4
    with pytest.raises(ConfigurationError, match=r"--out .*expected a new file"):
        CliRunner().invoke(init, asked, catch_exceptions=False)


def test_answers_that_contradict_each_other_write_nothing(tmp_path: Path) -> None:
    out = tmp_path / "policy.yaml"
    options = ["--one-institution", "yes", "--out", str(out)]
    with pytest.raises(PolicyInvalid, match="one_institution_against_others"):
        CliRunner().invoke(init, options, input="\n" * 20, catch_exceptions=False)
    assert not out.exists()
