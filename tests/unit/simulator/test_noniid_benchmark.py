"""benchmarks/noniid.py: cells are what their recipe says, and figures are what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.noniid import DOCUMENT, asked_for, filled, kept, main, result, table
from benchmarks.noniid_cells import Cell, SeedRun, federation_of, figures_of, rounds_to, run
from benchmarks.noniid_grounds import IMAGE_PARTITIONS, PARTITIONS, few
from benchmarks.noniid_recipes import RECIPES, quick
from privacy.plan import ServerTerms
from silo_agent.models.layouts import initial_vector


def _run(seed: int, curve: dict[str, float]) -> SeedRun:
    return SeedRun(seed, 96.0 + seed, 90.0, {"a": 95.0, "b": 97.0}, curve, 100, 1.0)


@pytest.mark.parametrize("partition", IMAGE_PARTITIONS)
def test_every_training_record_is_at_one_silo(partition: str) -> None:
    ground = PARTITIONS[partition]("digits", "gradients", 1)
    rows = [row.tobytes() for held in ground.silos.values() for row in held.features]
    whole = PARTITIONS["iid"]("digits", "gradients", 0)
    assert sorted(rows) == sorted(row.tobytes() for held in whole.silos.values() for row in held.features)


def test_disjoint_silos_share_no_class_and_seeds_differ() -> None:
    dealt = []
    for seed in range(3):
        held = [set(one.labels) for one in PARTITIONS["disjoint"]("digits", "gradients", seed).silos.values()]
        assert sum(map(len, held)) == 10
        dealt.append(sorted(map(sorted, held)))
    assert dealt[0] != dealt[1]


def test_the_default_has_the_terms_of_a_job_that_names_no_algorithm() -> None:
    terms = RECIPES["shards2"]["fedavgm"].terms
    assert (terms.local_steps, terms.server_learning_rate, terms.learning_rate) == (10, 0.5, 0.1)
    assert terms.server == ServerTerms(momentum=0.9)


def test_every_recipe_makes_a_federation() -> None:
    for partition in ("shards2", "hospitals", "stores"):
        ground = PARTITIONS[partition]("digits", "gradients", 0)
        for recipe in RECIPES[partition].values():
            federation_of(recipe, ground)


def test_int8_sends_a_third_of_the_bytes() -> None:
    ground = few(PARTITIONS["iid"]("digits", "gradients", 0), 20)
    whole, small = (
        run(quick(RECIPES["iid"][name]), ground, 0).bytes_up_per_round
        for name in ("scaffold", "scaffold_int8")
    )
    assert small < 0.335 * whole


def test_a_silo_that_drops_out_is_not_in_the_sum() -> None:
    ground = few(PARTITIONS["disjoint"]("digits", "gradients", 0), 20)
    recipe = replace(quick(RECIPES["disjoint"]["fedavg"]), dropped=0.75)
    told = run(recipe, ground, 0)
    assert "expected 2 or more, got 1" in told.failure


def test_rounds_to_a_target_are_those_of_the_slowest_seed() -> None:
    fast, slow = _run(0, {"5": 95.0, "10": 97.5}), _run(1, {"5": 90.0, "10": 95.5})
    assert rounds_to([fast, slow], 95) == 10
    assert rounds_to([fast, slow], 97) is None


def test_accuracy_between_silos_is_by_each_silos_labels() -> None:
    ground = PARTITIONS["disjoint"]("digits", "gradients", 0)
    shared = ground.shared
    assert shared is not None
    figures = figures_of(ground, initial_vector(ground.model, 0))
    sizes = np.array([len(held) for held in ground.silos.values()])
    shares = {label: np.mean(shared.labels == label) for label in np.unique(shared.labels)}
    assert figures.worst_class <= figures.mean
    assert len(shares) == 10
    assert abs(np.average(list(figures.by_silo.values()), weights=sizes) - figures.mean) < 2


def test_a_cell_under_another_recipe_is_not_taken_for_this_one(tmp_path: Path) -> None:
    cell = Cell("shards2", "scaffold", tmp_path / "cell.json")
    recipe = RECIPES["shards2"]["scaffold"]
    cell.keep(recipe, [_run(1, {"5": 90.0}), _run(0, {"5": 90.0})])
    assert [one.seed for one in cell.runs(recipe)] == [0, 1]
    assert cell.runs(replace(recipe, rounds=41)) == []


def test_an_unknown_cell_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "shards2:nothing"])
    assert "expected an algorithm of article, article_settings, fedavgm" in capsys.readouterr().err
    assert asked_for("stores:fedavg") == ("stores", "fedavg")


def test_the_network_of_pixels_is_refused_on_digits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEALSUM_DATA", raising=False)
    with pytest.raises(SystemExit):
        main(["--quick", "--only", "shards2:article"])
    assert "expected MNIST in SEALSUM_DATA, got digits" in capsys.readouterr().err


def test_json_has_exactly_the_promised_fields() -> None:
    told = result("digits", {"shards2": {"scaffold": [_run(0, {"5": 95.0}), _run(1, {"5": 96.0})]}})
    assert told == {
        "dataset": "digits",
        "partitions": {
            "shards2": {
                "scaffold": {
                    "final": 96.5,
                    "worst_class": 90.0,
                    "rounds_to": {"95": 5, "97": None, "98": None},
                    "bytes_up_per_round": 100,
                    "seeds": [0, 1],
                }
            }
        },
    }


def test_the_docs_table_is_what_the_cells_say() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert filled(document, table("mnist", kept("mnist"))) == document


@pytest.mark.slow
def test_a_quick_cell_runs_end_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SEALSUM_DATA", raising=False)
    main(["--quick", "--json", "--only", "shards2:scaffold"])
    told = json.loads(capsys.readouterr().out)
    assert told["dataset"] == "digits"
    one = told["partitions"]["shards2"]["scaffold"]
    assert set(one) == {"final", "worst_class", "rounds_to", "bytes_up_per_round", "seeds"}
    assert 10 < one["final"] <= 100
