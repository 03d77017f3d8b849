"""Ask a hospital's database one query in a read-only transaction, and take its rows in bounded batches.

The database's own words may quote a patient's cell or a host's settings: errors tell their kind and SQLSTATE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from sqlalchemy import Connection, NullPool, create_engine, literal_column, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.sql import FromClause, column

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.cells import cell_of
from silo_agent.data.encoding import PrivacyUnit, columns_read, encoded, places_of
from silo_agent.data.misfits import Misfits, Row
from silo_agent.data.records import Records
from silo_agent.dataset_settings import SqlSource

BATCH_ROWS: Final = 4096
_CONNECT_S: Final = 10


def read_sql_table(
    source: SqlSource,
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int = 1,
    misfits: Misfits | None = None,
) -> Records:
    """What the query finds, ordered by patient and, where patients are the unit, by all cells that count.

    A database may return rows in any order, which may hang on other patients' rows; which of a patient's
    records are used must not.

    Raises:
        ConfigurationError: the database does not answer, refuses the query, or has not each column once; or
            as ``encoded``. Rows are counted from 1 in that order.
    """
    with closing(sql_rows(source, schema, whole_order=unit == "patient")) as rows:
        return encoded(rows, schema, unit, records_per_unit, misfits)


def sql_columns(source: SqlSource) -> list[str]:
    """Names of the query's columns; no record is looked at.

    Raises:
        ConfigurationError: as ``read_sql_table``.
    """
    with _asked(source) as connection:
        return _names(connection, source)


def sql_rows(source: SqlSource, schema: DataSchema, whole_order: bool) -> Generator[Row, None, None]:
    """Query and row, and the cells of ``columns_read``; holds one batch of rows at a time.

    All of the query's columns are fetched, whichever the job reads: a value that the database, or its driver,
    cannot hand over ends every job on the dataset alike, so that no job can ask where one lies (ADR 0043).

    Raises:
        ConfigurationError: as ``read_sql_table``.
    """
    wanted = columns_read(schema)
    with _asked(source) as connection:
        names = _names(connection, source)
        places_of(names, f"query at {source.url}", schema)
        order = reversed(wanted) if whole_order else wanted[-1:]
        others = [name for name, times in Counter(names).items() if times == 1 and name not in wanted]
        rows = _rows_of(source, (*wanted, *others))
        asked = select(*(rows.c[name] for name in (*wanted, *others))).order_by(
            *(rows.c[name] for name in order)
        )
        result = connection.execution_options(yield_per=BATCH_ROWS).execute(asked)
        for number, values in enumerate(result, start=1):
            where = f"query at {source.url}: row {number}"
            read = zip(wanted, values[: len(wanted)], strict=True)
            yield where, [cell_of(value, where, name) for name, value in read]


def _names(connection: Connection, source: SqlSource) -> list[str]:
    return list(connection.execute(select(literal_column("*")).select_from(_rows_of(source)).limit(0)).keys())


def _rows_of(source: SqlSource, names: tuple[str, ...] = ()) -> FromClause:
    """The query as a table: inside another SELECT, nothing but a SELECT parses.

    The line end is for a comment on its last line; the backslash for a colon, which is no parameter here.
    """
    query = text(source.query.replace(":", "\\:") + "\n")
    return query.columns(*(column(name) for name in names)).subquery("silo_rows")


@contextmanager
def _asked(source: SqlSource) -> Iterator[Connection]:
    """A connection in a transaction that can write nothing."""
    try:
        engine = create_engine(
            _url(source),
            poolclass=NullPool,
            connect_args=_connect_args(source),
            hide_parameters=True,
        )
        with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection = connection.execution_options(postgresql_readonly=True)
            yield connection
            connection.rollback()
    except SQLAlchemyError as error:
        raise ConfigurationError(f"query at {source.url}: {_told(error)}") from None


def _connect_args(source: SqlSource) -> dict[str, Any]:
    return {} if source.url.startswith("sqlite:") else {"connect_timeout": _CONNECT_S}


def _url(source: SqlSource) -> URL:
    url = make_url(source.url)
    if url.get_backend_name() == "sqlite":
        return URL.create("sqlite", database=f"file:{url.database}", query={"mode": "ro", "uri": "true"})
    if source.password is None:
        return url.set(drivername="postgresql+psycopg")
    try:
        password = source.password.read("datasets.sql.password").decode().strip()
    except UnicodeDecodeError:
        raise ConfigurationError("datasets.sql.password: expected UTF-8 where it lies") from None
    return url.set(drivername="postgresql+psycopg", password=password)


def _told(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return f"the query could not be put ({type(error).__name__})"
    kind, state = type(error.orig).__name__, getattr(error.orig, "sqlstate", None)
    told = kind if state is None else f"{kind}, SQLSTATE {state}"
    return f"the database did not answer ({told}); try the query there, as the same user"
