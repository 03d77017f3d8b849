"""``sealsum scheme list`` says what the catalogue says, and the catalogue what policies and protocols do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from policies.loader import load_threat_model
from policies.schema import SecaggRequirement
from privacy.secagg.additive import RING_BYTES
from privacy.secagg.catalogue import SCHEMES
from privacy.secagg.he.framing import Form
from privacy.secagg.he.parameters import parameters_named
from privacy.secagg.pairwise.silo_state import STEPS
from sealsum.cli import cli
from tests.federation import demo_policy_text
from tests.unit.policies.policies_terms import bent as bent_text
from tests.unit.policies.policies_terms import rules_of

ROOT = Path(__file__).parents[3]
MEASURED = json.loads((ROOT / "benchmarks" / "results" / "secagg.json").read_text("utf-8"))["schemes"]
CURIOUS = {"assume.aggregator": {"behaviour": "honest_but_curious", "colludes_with_silos": 0}}


def listed(*options: str) -> str:
    result = CliRunner().invoke(cli, ["scheme", "list", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_scheme_is_listed_once() -> None:
    rows: list[dict[str, Any]] = json.loads(listed("--json"))
    assert [row["name"] for row in rows] == list(SCHEMES)
    for row in rows:
        assert row["withstands"]
        assert row["refused"]
        assert row["rounds"] >= 1
        assert row["bytes_per_parameter"] >= RING_BYTES


def test_the_page_for_people_names_every_scheme_and_when_it_is_refused() -> None:
    page = " ".join(listed().split())
    for entry in SCHEMES.values():
        assert f"{entry.name} withstands" in page
        assert " ".join(entry.withstands.split()) in page
        for reason in entry.refused:
            assert reason in page


def test_every_scheme_stands_under_its_own_name() -> None:
    assert all(name == entry.name for name, entry in SCHEMES.items())


@pytest.mark.parametrize("name", SCHEMES)
def test_a_policy_may_name_a_scheme_that_is_carried(name: str) -> None:
    load_threat_model(demo_policy_text(name))


@pytest.mark.parametrize("name", ["bfv", "ckks"])
def test_one_key_at_all_silos_is_refused_where_the_aggregator_may_collude_with_one(name: str) -> None:
    colluding = {"assume.aggregator": {"behaviour": "honest_but_curious", "colludes_with_silos": 1}}
    assert f"{name}_key_at_colluders" in rules_of(bent_text({**colluding, "require.secagg.scheme": name}))
    assert f"{name}_key_at_colluders" not in rules_of(bent_text({**CURIOUS, "require.secagg.scheme": name}))


def test_every_catalogued_name_can_be_spelled_in_a_policy() -> None:
    spelled = set(get_args(SecaggRequirement.model_fields["scheme"].annotation))
    assert set(SCHEMES) <= spelled


@pytest.mark.parametrize(("name", "row"), [("bfv", "bfv-2048-40"), ("ckks", "ckks-4096-36")])
def test_bytes_of_ciphertexts_are_those_of_their_parameters(name: str, row: str) -> None:
    parameters = parameters_named(row)
    up, down = (form.size(parameters) / parameters.payload for form in (Form.UPDATE, Form.SUM))
    assert SCHEMES[name].bytes_per_parameter == pytest.approx(up, abs=0.01)
    assert SCHEMES[name].bytes_down_per_parameter == pytest.approx(down, abs=0.01)


def test_bytes_and_steps_of_masks_are_those_of_the_ring_and_the_protocol() -> None:
    assert SCHEMES["additive"].bytes_per_parameter == SCHEMES["pairwise"].bytes_per_parameter == RING_BYTES
    assert SCHEMES["pairwise"].rounds == len(STEPS)


def test_the_protocols_page_has_a_section_for_every_scheme() -> None:
    page = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    headings = " ".join(line for line in page.splitlines() if line.startswith("## "))
    assert {name for name in SCHEMES if f"`{name}`" not in headings} == set()
    for path in re.findall(r"`((?:privacy|tests|benchmarks|policies)/[\w./]+)`", page):
        assert (ROOT / path).exists(), path


def test_the_cost_of_each_scheme_is_about_what_the_committed_benchmark_measured() -> None:
    """CPU time of shared machines varies; a figure that is off by half is another figure."""
    told = {name: entry.cost for name, entry in SCHEMES.items()}
    proven = SCHEMES["additive"].cost_with_validity
    assert proven is not None
    told["validity"] = proven
    for name, cost in told.items():
        assert cost.silo == pytest.approx(MEASURED[name]["silo_cpu_ratio"], rel=0.5), name
        assert cost.servers == pytest.approx(MEASURED[name]["server_cpu_ratio"], rel=0.5), name


def test_a_scheme_that_needs_no_share_servers_says_that_it_refuses_them() -> None:
    for name, entry in SCHEMES.items():
        assert any("share servers are assumed" in reason for reason in entry.refused), name
