"""Which adapter reads a dataset; jobs name datasets, and this alone goes from there to files and databases.

Adapters are imported where a dataset asks for them: their libraries are the extra ``data``.
"""

from __future__ import annotations

import os
from pathlib import Path

from privacy.errors import ConfigurationError
from privacy.schema import DataSchema
from silo_agent.data.csv_table import csv_columns, read_csv_table
from silo_agent.data.encoding import PrivacyUnit
from silo_agent.data.folder import files_in
from silo_agent.data.misfits import Misfits
from silo_agent.data.records import Records
from silo_agent.dataset_settings import DatasetSettings

State = tuple[int, ...]
"""Changes when a file does."""


def read_dataset(
    dataset: DatasetSettings,
    schema: DataSchema,
    unit: PrivacyUnit,
    records_per_unit: int,
    misfits: Misfits | None = None,
) -> Records:
    """The dataset's records under the schema; what it has no place for is refused, if nothing else is said.

    Raises:
        ConfigurationError: as the adapter's own reading; or the adapter's library is not installed.
    """
    try:
        if dataset.sql is not None:
            from silo_agent.data.sql_table import read_sql_table

            return read_sql_table(dataset.sql, schema, unit, records_per_unit, misfits)
        if dataset.adapter == "parquet":
            from silo_agent.data.parquet_table import read_parquet_table

            return read_parquet_table(dataset.file, schema, unit, records_per_unit, misfits)
        if dataset.pictures is not None:
            from silo_agent.data.pictures import read_pictures

            return read_pictures(dataset, schema, unit, records_per_unit, misfits)
    except ModuleNotFoundError as error:
        raise _not_installed(dataset, error) from error
    return read_csv_table(dataset.file, schema, unit, records_per_unit, misfits)


def columns_of(dataset: DatasetSettings) -> list[str]:
    """Names of the dataset's columns; no record is looked at.

    Raises:
        ConfigurationError: it cannot be opened.
    """
    try:
        if dataset.sql is not None:
            from silo_agent.data.sql_table import sql_columns

            return sql_columns(dataset.sql)
        if dataset.adapter == "parquet":
            from silo_agent.data.parquet_table import parquet_columns

            return parquet_columns(dataset.file)
        if dataset.pictures is not None:
            from silo_agent.data.pictures import picture_columns

            return picture_columns(dataset)
    except ModuleNotFoundError as error:
        raise _not_installed(dataset, error) from error
    return csv_columns(dataset.file)


def state_of(dataset: DatasetSettings) -> State:
    """What tells that a dataset's file changed; a database tells nothing.

    Raises:
        ConfigurationError: there is no readable file.
    """
    if dataset.sql is not None:
        return ()
    if dataset.pictures is None:
        return _state_of_file(dataset.file)
    table, masks = dataset.pictures.table, dataset.pictures.masks
    return (
        *_state_of_folder(dataset.file),
        *(() if table is None else _state_of_file(table)),
        *(() if masks is None else _state_of_folder(masks)),
    )


def assert_readable(dataset: DatasetSettings) -> None:
    """Look at the file, or ask the database, without reading a patient's data: a wrong path costs no budget.

    Raises:
        ConfigurationError: there is no readable file, or the database does not answer.
    """
    if dataset.sql is not None:
        columns_of(dataset)
    elif dataset.pictures is None:
        _state_of_file(dataset.file)
    else:
        if dataset.pictures.table is not None:
            _state_of_file(dataset.pictures.table)
        files_in(dataset.file, least=1)
        if dataset.pictures.masks is not None:
            files_in(dataset.pictures.masks, least=1)


def _state_of_file(path: Path) -> State:
    try:
        with path.open("rb"):
            state = path.stat()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    return state.st_mtime_ns, state.st_size


def _state_of_folder(folder: Path) -> State:
    states = [_stat_of(path) for path in files_in(folder)]
    return (
        len(states),
        max((state.st_mtime_ns for state in states), default=0),
        sum(state.st_size for state in states),
    )


def _stat_of(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise ConfigurationError(f"{path.parent}: a file there cannot be read ({error.strerror})") from error


def _not_installed(dataset: DatasetSettings, error: ModuleNotFoundError) -> ConfigurationError:
    return ConfigurationError(
        f"datasets: adapter {dataset.adapter} needs {error.name}, which is not installed; run: pip install "
        "'sealsum[data]'"
    )
