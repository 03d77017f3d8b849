"""``sealsum budget``: prices and noise for programs and people, and errors that say what to correct."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from privacy.dp.accountant import epsilon
from privacy.dp.events import DpEvent
from sealsum.cli import cli

FULL = '{"q": 1, "sigma": 10, "steps": 100}'
SAMPLED = '{"q": 0.1, "sigma": 1.0, "steps": 100}'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["budget", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def test_a_sampled_schedule_is_priced_by_pld_without_a_mu() -> None:
    priced = answer("price", "--event", SAMPLED, "--delta", "1e-5")
    assert list(priced) == ["epsilon", "epsilon_rdp", "accountant"]
    assert priced["epsilon"] == pytest.approx(7.05, abs=0.01)
    assert priced["epsilon"] < priced["epsilon_rdp"]
    assert priced["accountant"] == "pld"
    # The ledger charges the same.
    assert priced["epsilon"] == epsilon([DpEvent(sample_rate=0.1, noise_multiplier=1, steps=100)], 1e-5)


def test_full_batches_have_a_mu_and_a_replaced_unit_twice_as_much() -> None:
    once = answer("price", "--event", FULL, "--delta", "1e-5")
    twice = answer("price", "--event", FULL, "--delta", "1e-5", "--adjacency", "replace_one")
    assert (once["mu"], twice["mu"]) == (1.0, 2.0)
    assert once["accountant"] == "gaussian"
    assert once["epsilon"] == pytest.approx(4.377, abs=1e-3)


def test_events_compose_in_any_order_and_numbers_may_be_decimal_strings() -> None:
    one = answer("price", "--event", SAMPLED, "--event", FULL, "--delta", "1e-5")
    text = '{"q": "0.1", "sigma": "1.0", "steps": 100}'
    other = answer("price", "--event", FULL, "--event", text, "--delta", "1e-5")
    assert one == other
    assert one["epsilon"] > answer("price", "--event", FULL, "--delta", "1e-5")["epsilon"]


def test_a_capped_batch_costs_more() -> None:
    capped = '{"q": 0.1, "sigma": 1.0, "steps": 100, "cap": 35, "units_at_most": 200}'
    plain = answer("price", "--event", SAMPLED, "--delta", "1e-5")
    assert answer("price", "--event", capped, "--delta", "1e-5")["epsilon"] > plain["epsilon"]


def test_people_read_a_table_that_rounds_up() -> None:
    result = run("price", "--event", SAMPLED, "--event", FULL, "--delta", "1e-5")
    assert result.exit_code == 0
    assert "At δ = 1e-05, add_remove" in result.stdout
    assert "privacy-loss distributions" in result.stdout
    assert "Rényi DP, an upper bound" in result.stdout
    assert "μ      1 " in run("price", "--event", FULL, "--delta", "1e-5").stdout
    assert "ε      4.3772" in run("price", "--event", FULL, "--delta", "1e-5").stdout


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("q=1", r"--event 1: expected a JSON object such as"),
        ("[1]", r"--event 1: expected a JSON object such as .*, got '\[1\]'"),
        ('{"q": 0, "sigma": 1, "steps": 1}', "--event 1: q: expected a number from 1e-09 to 1"),
        ('{"q": 1.5, "sigma": 1, "steps": 1}', "q: expected .* got 1.5; write for example"),
        ('{"q": 1, "sigma": -1, "steps": 1}', "sigma: expected a number from 0.01 .* got -1"),
        ('{"q": 1, "sigma": NaN, "steps": 1}', "sigma: expected .* got NaN"),
        ('{"q": 1, "sigma": true, "steps": 1}', "sigma: expected .* got true"),
        ('{"q": 1, "sigma": 1, "steps": 1.5}', "steps: expected a whole number .* got 1.5"),
        ('{"q": 1, "sigma": 1, "steps": true}', "steps: expected a whole number .* got true"),
        ('{"q": 1, "sigma": 1}', "steps: expected a whole number .* got nothing"),
        ('{"q": 1, "q": 0.1, "sigma": 1, "steps": 1}', "a field is given twice"),
        ('{"q": 1, "sigma": 1, "steps": 1, "c": 2}', "c: expected only q, sigma, .* leave it out"),
        ('{"q": 1, "sigma": 1, "steps": 1, "cap": 2}', "units_at_most: expected .* got nothing"),
        (
            '{"q": 1, "sigma": 1, "steps": 1, "adjacency": "both"}',
            'adjacency: expected add_remove or .* got "both"',
        ),
        (
            '{"q": 1, "sigma": 1, "steps": 1, "adjacency": "replace_one"}',
            "adjacency: expected add_remove in every event .* got replace_one in event 1",
        ),
    ],
)
def test_a_bad_event_is_refused_by_field(event: str, message: str) -> None:
    result = run("price", "--event", event, "--delta", "1e-5")
    assert result.exit_code == 78
    assert result.stdout == ""
    with pytest.raises(ValueError, match=message):
        raise ValueError(result.stderr)


@pytest.mark.parametrize("delta", ["0", "1", "-1", "nan"])
def test_a_bad_delta_is_refused(delta: str) -> None:
    for command in (
        ("price", "--event", FULL),
        ("calibrate", "--epsilon", "1", "--q", "1", "--steps", "10"),
    ):
        result = run(*command, "--delta", delta)
        assert result.exit_code == 78
        assert "delta: expected a number above 0 and below 1" in result.stderr


def test_calibration_never_overshoots_and_prices_to_the_same() -> None:
    terms = ("--delta", "1e-5", "--json")
    result = run("calibrate", "--epsilon", "3", "--q", "0.05", "--steps", "200", *terms)
    found = json.loads(result.stdout)
    assert 3 * (1 - 1e-3) <= found["epsilon"] <= 3
    event = json.dumps({"q": 0.05, "sigma": found["sigma"], "steps": 200})
    assert answer("price", "--event", event, "--delta", "1e-5")["epsilon"] == found["epsilon"]
    spoken = run("calibrate", "--epsilon", "3", "--delta", "1e-5", "--q", "1", "--steps", "10")
    assert spoken.stdout.startswith("σ = ")


@pytest.mark.parametrize(
    ("field", "value"),
    [("q", "0"), ("q", "1.1"), ("q", "nan"), ("steps", "0"), ("epsilon", "-1"), ("epsilon", "nan")],
)
def test_a_bad_target_is_refused_by_field(field: str, value: str) -> None:
    options = {"epsilon": "1", "delta": "1e-5", "q": "1", "steps": "10"} | {field: value}
    result = run("calibrate", *(word for name, given in options.items() for word in (f"--{name}", given)))
    assert result.exit_code == 78
    assert f"{field}: expected" in result.stderr


def test_a_misspelt_field_is_named_before_the_one_it_leaves_missing() -> None:
    result = run("price", "--event", '{"q": 0.1, "sgima": 1.0, "steps": 10}', "--delta", "1e-5")
    assert result.exit_code == 78
    assert "sgima: expected only q, sigma" in result.output
