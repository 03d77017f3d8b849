"""Splits: every record at one silo, the same by the same seed, and skewed in the way that their name says."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from privacy.errors import ConfigurationError
from sealsum.cli import cli
from sealsum.partition.measures import label_divergence, size_variation
from sealsum.partition.splits import KINDS, Asked, Partition, SplitKind, Table, partition, principal_component


def _table(count: int = 2000, classes: int = 5, seed: int = 1) -> Table:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    return Table(labels, classes, random.normal(size=count) + 0.3 * labels, np.arange(count) % 7)


def _split(kind: SplitKind, **settings_: int | float) -> tuple[Table, Partition]:
    table = _table()
    return table, partition(table, Asked(kind, 4, **settings_))  # type: ignore[arg-type]


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(60, 400),
    silos=st.integers(2, 7),
    classes=st.integers(2, 6),
    seed=st.integers(0, 2**32),
    alpha=st.floats(0.3, 10),
    shards=st.integers(1, 3),
    least=st.integers(1, 4),
)
def test_every_record_is_at_one_silo_whichever_way_it_is_split(
    kind: SplitKind, count: int, silos: int, classes: int, seed: int, alpha: float, shards: int, least: int
) -> None:
    table = _table(count, classes, seed % 1000)
    asked = Asked(kind, silos, seed, alpha, shards, least)
    split = partition(table, asked)
    assert sorted(np.concatenate(split.rows).tolist()) == list(range(count))
    assert min(split.sizes) >= least
    assert split.counts(table).sum() == count
    again = partition(table, asked)
    assert all(np.array_equal(one, other) for one, other in zip(split.rows, again.rows, strict=True))
    if kind in ("iid", "feature_shift", "concept_shift"):
        assert max(split.sizes) - min(split.sizes) <= 1


def test_another_seed_is_another_split() -> None:
    (_, one), (_, other) = _split("dirichlet", seed=1), _split("dirichlet", seed=2)
    assert not np.array_equal(one.rows[0], other.rows[0])


def test_label_skew_falls_from_disjoint_shards_to_iid() -> None:
    kinds: tuple[tuple[SplitKind, dict[str, int | float]], ...] = (
        ("shards", {"shards": 1}),
        ("shards", {"shards": 2}),
        ("dirichlet", {"alpha": 0.5}),
        ("dirichlet", {"alpha": 5.0}),
        ("iid", {}),
    )
    splits = [_split(kind, **given_) for kind, given_ in kinds]
    found = [label_divergence(split.counts(table)) for table, split in splits]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.01 < 0.3 < found[0]


def test_labels_that_are_disjoint_diverge_by_one() -> None:
    assert label_divergence(np.diag([5, 5, 5, 5])) == pytest.approx(1.0)
    assert label_divergence(np.full((4, 3), 7)) == pytest.approx(0.0, abs=1e-12)


def test_quantity_skews_sizes_and_not_labels() -> None:
    table, split = _split("quantity", alpha=0.5, least=50)
    assert size_variation(np.array(split.sizes)) > 0.2
    assert label_divergence(split.counts(table)) < 0.03


def test_a_feature_shift_parts_the_order_and_the_same_label_one_leaves_labels_alike() -> None:
    table, split = _split("feature_shift")
    assert table.order is not None
    ends = [(table.order[rows].min(), table.order[rows].max()) for rows in split.rows]
    assert all(one[1] <= other[0] for one, other in pairwise(ends))
    table, split = _split("same_label_feature_shift")
    assert table.order is not None
    assert label_divergence(split.counts(table)) < 0.001
    for label in range(table.classes):
        means = [table.order[rows[table.labels[rows] == label]].mean() for rows in split.rows]
        assert means == sorted(means)


def test_a_concept_shift_turns_what_silos_call_a_class_and_nothing_else() -> None:
    table, split = _split("concept_shift")
    plain = partition(table, Asked("iid", 4))
    assert all(np.array_equal(one, other) for one, other in zip(split.rows, plain.rows, strict=True))
    assert np.array_equal(split.labels(table, 0), table.labels[split.rows[0]])
    assert np.array_equal(split.labels(table, 2), (table.labels[split.rows[2]] + 2) % 5)


def test_natural_groups_stay_whole_and_are_joined_where_silos_are_fewer() -> None:
    table, split = _split("natural")
    assert table.groups is not None
    where = [set(table.groups[rows].tolist()) for rows in split.rows]
    assert sum(map(len, where)) == 7
    assert len(set.union(*where)) == 7


@pytest.mark.parametrize(
    ("asked", "table", "message"),
    [
        (Asked("iid", 1), _table(), "silos: expected 2 or more"),
        (Asked("iid", 4, least=600), _table(), "expected 2400 or more"),
        (Asked("dirichlet", 4, alpha=0.01, least=450), _table(), "none of 1000 draws"),
        (Asked("dirichlet", 4, alpha=0.0), _table(), "alpha"),
        (Asked("shards", 4, shards=600), _table(), "shards: expected 1 to 500"),
        (Asked("natural", 4), Table(np.zeros(9, dtype=np.intp), 2), "column that says whose"),
        (Asked("natural", 9), _table(), "expected 9 groups or more"),
        (Asked("feature_shift", 4), Table(np.zeros(9, dtype=np.intp), 2), "order"),
        (Asked("natural", 4, least=400), _table(2000), "got fewer at silo"),
    ],
)
def test_what_cannot_be_split_so_is_refused(asked: Asked, table: Table, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        partition(table, asked)


def test_the_first_principal_component_is_where_records_differ_most() -> None:
    random = np.random.default_rng(0)
    long = random.normal(size=500) * 9
    along = principal_component(np.column_stack([random.normal(size=500), long, random.normal(size=500)]))
    assert abs(np.corrcoef(along, long)[0, 1]) > 0.99


def _read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _public(path: Path) -> Path:
    random = np.random.default_rng(3)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "age", "pressure", "site", "kind"])
        for number in range(240):
            kind = random.choice(["mild", "severe", "none"])
            pressure = "" if number % 9 == 0 else 120
            writer.writerow([f"p{number}", 40 + random.normal() * 9, pressure, "abcde"[number % 5], kind])
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_writes_a_table_a_silo_a_picture_and_the_numbers(kind: str, tmp_path: Path) -> None:
    table, out = _public(tmp_path / "public.csv"), tmp_path / "out"
    arguments = [
        "partition",
        str(table),
        "--kind",
        kind,
        "--label",
        "kind",
        "--out",
        str(out),
        "--json",
        *(("--by", "site") if kind == "natural" else ()),
    ]
    done = CliRunner().invoke(cli, [*arguments, "--least", "5", "--format", "svg"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert json.loads((out / "summary.json").read_text(encoding="utf-8")) == report
    header, *rows = _read(table)
    written = []
    for silo, path in zip(report["silos"], report["files"], strict=True):
        first, *held = _read(Path(path))
        assert first == header
        assert len(held) == silo["records"] == sum(silo["classes"].values())
        assert {name: sum(row[-1] == name for row in held) for name in silo["classes"]} == silo["classes"]
        written += held
    same = slice(0, 4) if kind == "concept_shift" else slice(0, 5)
    assert sorted(row[same] for row in written) == sorted(row[same] for row in rows)
    assert Path(report["picture"]).read_text(encoding="utf-8").lstrip().startswith("<?xml")
    again = CliRunner().invoke(cli, arguments)
    assert again.exit_code != 0
    assert "is there already" in again.output


def test_of_many_columns_the_nearest_to_a_mistyped_one_are_named(tmp_path: Path) -> None:
    names = [*(f"p{number}" for number in range(64)), "digit"]
    path = tmp_path / "digits.csv"
    path.write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n", encoding="utf-8")
    arguments = ["partition", str(path), "--kind", "iid", "--label", "digitt", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 78
    assert "expected one column 'digitt', got 0 among 65 (digit, …); correct the name" in done.output
