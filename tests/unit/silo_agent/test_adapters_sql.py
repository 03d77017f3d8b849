"""SQL claims: the records of the same CSV, one SELECT that can write nothing, and no password in any word."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from privacy.errors import ConfigurationError
from silo_agent.data.sources import assert_readable, columns_of
from silo_agent.data.sql_table import BATCH_ROWS, _asked, read_sql_table, sql_rows
from silo_agent.dataset_settings import DatasetSettings, SqlSource
from silo_agent.registration import registration_digest
from silo_agent.settings import read_settings
from tests.unit.silo_agent.adapters_tables import COLUMNS, ROWS, assert_same, table_schema, through_csv

QUERY = "SELECT note, sex, age, sick, mrn FROM visits"


def _source(folder: Path, rows: Any = ROWS, query: str = QUERY) -> SqlSource:
    path = folder / "clinic.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE visits (note, sex, age, sick, mrn)")
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", rows)
    database.close()
    return SqlSource(url=f"sqlite:///{path}", query=query)


def test_a_query_gives_the_records_of_the_same_csv(tmp_path: Path) -> None:
    assert_same(read_sql_table(_source(tmp_path), table_schema(), "patient"), through_csv(tmp_path))


@pytest.mark.parametrize(
    "query",
    [
        "WITH grown AS (SELECT * FROM visits) SELECT * FROM grown",
        "SELECT * FROM visits WHERE coalesce(note, '') <> ' :note' AND mrn % 1 = 0;",
        "SELECT * FROM visits -- every visit",
    ],
)
def test_colons_percents_comments_and_common_tables_are_the_databases_business(
    tmp_path: Path, query: str
) -> None:
    records = read_sql_table(_source(tmp_path, query=query), table_schema(), "patient")
    assert len(records) == len(ROWS)


def test_which_records_of_a_patient_count_does_not_hang_on_the_databases_order(tmp_path: Path) -> None:
    rows = [(None, 1, age, 0, mrn) for age in (30, 60, 45) for mrn in (2, 1)]
    made = []
    for name, given in (("one", rows), ("other", rows[::-1])):
        (tmp_path / name).mkdir()
        made.append(read_sql_table(_source(tmp_path / name, given), table_schema(), "patient", 2))
    assert_same(*made)
    assert made[0].patients == ("1", "1", "2", "2")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((None, 3, 50, 0, 1), "row 1, column sex: its category is none of the job's"),
        ((None, 1, "SECRET", 0, 1), "row 1, column age: expected a number"),
        ((None, 1, 50, b"SECRET", 1), "row 1, column sick: expected a number, .* got bytes"),
        ((None, 1, 50, 0, None), "row 1, column mrn: expected a patient id"),
    ],
)
def test_what_does_not_fit_is_refused_by_row_and_column(
    tmp_path: Path, row: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_sql_table(_source(tmp_path, [row]), table_schema(), "patient")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "query",
    ["DELETE FROM visits", "SELECT 1; DELETE FROM visits", "PRAGMA writable_schema = 1", "", "selection"],
)
def test_what_is_not_one_select_is_no_query(query: str) -> None:
    with pytest.raises(ValueError, match=r"expected (a query|one statement)"):
        SqlSource(url="sqlite:////srv/clinic.db", query=query)


def test_a_statement_that_writes_finds_no_way_in(tmp_path: Path) -> None:
    source = _source(tmp_path, query="WITH gone AS (SELECT 1) DELETE FROM visits RETURNING *")
    with pytest.raises(ConfigurationError, match="the database did not answer"):
        read_sql_table(source, table_schema(), "patient")
    with pytest.raises(ConfigurationError, match="OperationalError"), _asked(source) as connection:
        connection.exec_driver_sql("DELETE FROM visits")
    assert len(read_sql_table(_source_of(tmp_path), table_schema(), "patient")) == len(ROWS)


def _source_of(folder: Path) -> SqlSource:
    return SqlSource(url=f"sqlite:///{folder / 'clinic.db'}", query=QUERY)


def test_a_missing_column_and_a_missing_database_cost_no_budget(tmp_path: Path) -> None:
    few = _source(tmp_path, query="SELECT mrn, age FROM visits")
    with pytest.raises(ConfigurationError, match="expected one column 'sex' in the header, got 0"):
        read_sql_table(few, table_schema(), "patient")
    gone = SqlSource(url=f"sqlite:///{tmp_path}/gone.db", query=QUERY)
    with pytest.raises(ConfigurationError, match=r"gone\.db: the database did not answer"):
        assert_readable(DatasetSettings(adapter="sql", sql=gone, purpose=("p",)))
    assert not (tmp_path / "gone.db").exists()
    assert columns_of(DatasetSettings(adapter="sql", sql=_source_of(tmp_path), purpose=("p",))) == [*COLUMNS]


def test_a_longer_answer_holds_no_more_memory(tmp_path: Path) -> None:
    held = []
    for batches in (1, 2):
        folder = tmp_path / str(batches)
        folder.mkdir()
        count = batches * BATCH_ROWS
        source = _source(folder, (("n" * 100, 1, 50, 0, number) for number in range(count)))
        tracemalloc.start()
        try:
            assert sum(1 for _ in sql_rows(source, table_schema(), whole_order=False)) == count
            held.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert held[1] < 1.3 * held[0]


# --- silo.yaml ---


def _settings(folder: Path, sql: dict[str, Any], **changes: Any) -> Path:
    path = folder / "silo.yaml"
    dataset = {"adapter": "sql", "purpose": "research", "sql": {"query": QUERY, **sql}, **changes}
    document = {
        "aggregator_url": "https://a.example",
        "threat_model": "research-consortium",
        "datasets": {"omop": dataset},
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://reader:hunter2@db/omop",
        "postgresql://db/omop?password=hunter2",
        "mysql://reader:hunter2@db/omop",
        "hunter2",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_shown(tmp_path: Path, url: str) -> None:
    right = {"url": "sqlite:////x.db"}
    misspelt = [right | {"ulr": url}] if "@" in url else []
    for wrong in ({"url": url}, right | {"password": url}, *misspelt):
        with pytest.raises(ConfigurationError) as caught:
            read_settings(_settings(tmp_path, wrong))
        assert "datasets.omop.sql" in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_a_database_that_is_away_is_named_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMOP_PASSWORD", "hunter2")
    path = _settings(
        tmp_path, {"url": "postgresql+psycopg://reader@127.0.0.1:1/omop", "password": "env:OMOP_PASSWORD"}
    )
    dataset = read_settings(path).datasets["omop"]
    assert "hunter2" not in repr(dataset)
    with pytest.raises(ConfigurationError, match="the database did not answer") as caught:
        assert_readable(dataset)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__  # nor the driver's own words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "x.csv"}, "path: expected the file"),
        ({"adapter": "csv"}, "sql: expected it with adapter sql"),
        ({"adapter": "parquet", "path": "x.parquet"}, "sql: expected it with adapter sql"),
    ],
)
def test_a_dataset_has_the_source_of_its_adapter(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_settings(_settings(tmp_path, {"url": "sqlite:////x.db"}, **changes))


def test_one_query_under_two_names_is_refused_as_one_file_is(tmp_path: Path) -> None:
    path = _settings(tmp_path, {"url": "sqlite:////x.db"})
    document = json.loads(path.read_text())
    sql = {"url": "sqlite:////x.db", "query": QUERY.replace(" ", "  ")}
    document["datasets"]["again"] = document["datasets"]["omop"] | {"sql": sql}
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match="omop and again are one query"):
        read_settings(path)


def test_another_query_is_another_registration() -> None:
    one, other = (
        DatasetSettings(adapter="sql", sql=SqlSource(url="sqlite:////x.db", query=query), purpose=("p",))
        for query in (QUERY, f"{QUERY} WHERE age > 60")
    )
    assert registration_digest("omop", one) != registration_digest("omop", other)
