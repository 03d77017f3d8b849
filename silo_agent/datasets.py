"""The silo's datasets in the form jobs ask for, read once and kept until the file changes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from privacy.errors import ConfigurationError
from privacy.plan import JobSpec
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.holdout import trained_on
from silo_agent.data.records import Records, assert_enough
from silo_agent.queries.question import schema_read
from silo_agent.settings import DatasetSettings

_Key = tuple[Path, str, str, int, int, int]
_Held = tuple[_Key, Records]


class Datasets:
    """Holds the last records read; a round of the same job costs no second reading."""

    def __init__(self) -> None:
        self._held: _Held | None = None
        self._trained: tuple[Records, float, Records] | None = None

    def read(self, dataset: DatasetSettings, job: JobSpec, min_records: int) -> Records:
        """The dataset under the job's schema, without the patients whom the job holds out.

        Raises:
            ConfigurationError: as ``read_csv_table``. PolicyRefusal: fewer than ``min_records``.
        """
        everybody, share = self.everybody(dataset, job), job.training.holdout
        if self._trained is None or self._trained[0] is not everybody or self._trained[1] != share:
            self._trained = (everybody, share, trained_on(everybody, share))
        assert_enough(self._trained[2], min_records)
        return self._trained[2]

    def everybody(self, dataset: DatasetSettings, job: JobSpec) -> Records:
        """The dataset under the job's schema, with the patients whom the job holds out.

        Raises:
            ConfigurationError: as ``read_csv_table``.
        """
        unit: Literal["patient", "record"] = "record" if job.dp is None else job.dp.unit
        most = 1 if job.dp is None else job.dp.records_per_unit
        schema = schema_read(job)
        key = (dataset.path, schema.digest, unit, most, *_state_of(dataset.path))
        if self._held is None or self._held[0] != key:
            self._held = (key, read_csv_table(dataset.path, schema, unit, most))
        return self._held[1]


def assert_readable(dataset: DatasetSettings) -> None:
    """Look at the file without reading a patient's data, so that a wrong path costs no budget.

    Raises:
        ConfigurationError: there is no readable file.
    """
    _state_of(dataset.path)


def _state_of(path: Path) -> tuple[int, int]:
    try:
        with path.open("rb"):
            state = path.stat()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    return state.st_mtime_ns, state.st_size
