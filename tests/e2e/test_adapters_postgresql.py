"""A dataset behind PostgreSQL: read by its query, in a transaction in which no function can write."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from privacy.errors import ConfigurationError
from privacy.key_reference import Reference
from privacy.schema import DataSchema, Label, NumericFeature
from silo_agent.data.sql_table import read_sql_table
from silo_agent.dataset_settings import SqlSource
from tests.e2e.postgresql import ROLE, Cluster, binary_directory, running_cluster

BINARIES = binary_directory()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.skipif(BINARIES is None, reason="needs PostgreSQL's initdb (apt-get install postgresql)"),
]
SCHEMA = DataSchema(
    features=(NumericFeature(column="age", low=20, high=80, impute=50),),
    label=Label(column="sick", threshold=0),
    patient_id="mrn",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    assert BINARIES is not None
    with running_cluster(BINARIES) as running:
        yield running


def _source(cluster: Cluster, database: str, query: str) -> SqlSource:
    url = f"postgresql+psycopg://{ROLE}@/{database}?host={cluster.root}"
    return SqlSource(url=url, password=Reference("env", "SEALSUM_TEST_PASSWORD"), query=query)


def test_a_query_is_read_and_nothing_in_it_can_write(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEALSUM_TEST_PASSWORD", cluster.password)
    database = cluster.new_database()
    visits = (
        "SELECT 'p' || n AS mrn, n::numeric AS age, n % 2 = 0 AS sick FROM generate_series(9999, 1, -1) AS n"
    )
    records = read_sql_table(_source(cluster, database, visits), SCHEMA, "patient")
    assert len(records) == 9999
    assert records.patients[:2] == ("p1", "p10")
    assert records.labels[:2].tolist() == [0, 1]
    with psycopg.connect(cluster.url(database).replace("+psycopg", "")) as connection:
        connection.execute("CREATE TABLE visits AS SELECT 1 AS mrn")
        connection.execute(
            "CREATE FUNCTION gone() RETURNS int LANGUAGE sql AS 'DELETE FROM visits RETURNING mrn'"
        )
    for query, state in (
        ("SELECT gone() AS mrn, 1 AS age, 1 AS sick", "25006"),  # read_only_sql_transaction
        ("SELECT 'SECRET'::int AS mrn, 1 AS age, 1 AS sick", "22P02"),
    ):
        with pytest.raises(ConfigurationError, match=f"SQLSTATE {state}") as caught:
            read_sql_table(_source(cluster, database, query), SCHEMA, "patient")
        assert "SECRET" not in str(caught.value)
