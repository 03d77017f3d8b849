"""The silo's datasets in the form jobs ask for, read once and kept until the file or the job changes."""

from __future__ import annotations

from privacy.plan import JobSpec
from silo_agent.data.encoding import PrivacyUnit
from silo_agent.data.holdout import trained_on
from silo_agent.data.records import Records, assert_enough
from silo_agent.data.sources import State, read_dataset, state_of
from silo_agent.queries.question import schema_read
from silo_agent.registration import registration_digest
from silo_agent.settings import DatasetSettings

_Key = tuple[str, str, str, int, str, State]
_Held = tuple[_Key, Records]


class Datasets:
    """Holds the last records read; a round of the same job costs no second reading."""

    def __init__(self) -> None:
        self._held: _Held | None = None
        self._trained: tuple[Records, float, Records] | None = None

    def read(self, dataset: DatasetSettings, job: JobSpec, min_records: int) -> Records:
        """The dataset under the job's schema, without the patients whom the job holds out.

        Raises:
            ConfigurationError: as ``read_dataset``. PolicyRefusal: fewer than ``min_records``.
        """
        everybody, share = self.everybody(dataset, job), job.training.holdout
        if self._trained is None or self._trained[0] is not everybody or self._trained[1] != share:
            self._trained = (everybody, share, trained_on(everybody, share))
        assert_enough(self._trained[2], min_records)
        return self._trained[2]

    def everybody(self, dataset: DatasetSettings, job: JobSpec) -> Records:
        """The dataset under the job's schema, with the patients whom the job holds out.

        Raises:
            ConfigurationError: as ``read_dataset``.
        """
        unit: PrivacyUnit = "record" if job.dp is None else job.dp.unit
        most = 1 if job.dp is None else job.dp.records_per_unit
        schema = schema_read(job)
        # A database does not say what changed: each job reads it anew, and keeps what it began with.
        once = "" if dataset.sql is None else job.digest
        key = (registration_digest(job.dataset, dataset), schema.digest, unit, most, once, state_of(dataset))
        if self._held is None or self._held[0] != key:
            self._held = (key, read_dataset(dataset, schema, unit, most))
        return self._held[1]
