"""The silo's datasets in the form jobs ask for, read once and kept until the file or the job changes."""

from __future__ import annotations

import logging

from privacy.plan import JobSpec
from silo_agent.data.encoding import PrivacyUnit
from silo_agent.data.holdout import trained_on
from silo_agent.data.misfits import PassedOver, Refused
from silo_agent.data.records import Records, assert_enough, assert_listed
from silo_agent.data.sources import State, read_dataset, state_of
from silo_agent.queries.question import schema_read
from silo_agent.registration import registration_digest
from silo_agent.settings import DatasetSettings

_log = logging.getLogger(__name__)
_Key = tuple[str, str, str, int, str, bool, State]
_Held = tuple[_Key, Records]


class Datasets:
    """Holds the last records read; a round of the same job costs no second reading."""

    def __init__(self) -> None:
        self._held: _Held | None = None
        self._trained: tuple[Records, float, Records] | None = None

    def read(self, dataset: DatasetSettings, job: JobSpec, min_records: int) -> Records:
        """The dataset under the job's schema, without the patients whom the job holds out.

        Under DP nothing that the job chooses may decide whether this raises: what does not fit is passed
        over, and the minimum is held against the dataset as a whole. Without DP it is held against what is
        trained on.

        Raises:
            ConfigurationError: as ``read_dataset``. PolicyRefusal: fewer than ``min_records``.
        """
        everybody, share = self.everybody(dataset, job), job.training.holdout
        if self._trained is None or self._trained[0] is not everybody or self._trained[1] != share:
            self._trained = (everybody, share, trained_on(everybody, share))
        if job.dp is None:
            assert_enough(self._trained[2], min_records)
        else:
            assert_listed(everybody, min_records)
        return self._trained[2]

    def everybody(self, dataset: DatasetSettings, job: JobSpec) -> Records:
        """The dataset under the job's schema, with the patients whom the job holds out.

        What a job with DP has no place for is passed over: its columns stand in the agent's own log, figures
        in ``sealsum silo fit``.

        Raises:
            ConfigurationError: as ``read_dataset``.
        """
        key = _key_of(dataset, job)
        if self._held is None or self._held[0] != key:
            self._held = (key, read_for(dataset, job))
        return self._held[1]

    def hand(self, dataset: DatasetSettings, job: JobSpec, records: Records) -> None:
        """Hold these, which somebody else has read for this job by ``read_for``."""
        self._held = (_key_of(dataset, job), records)


def read_for(dataset: DatasetSettings, job: JobSpec) -> Records:
    """Read the dataset as a job asks for it, with the patients whom it holds out. As ``everybody``.

    Raises:
        ConfigurationError: as ``read_dataset``.
    """
    passed_over = PassedOver()
    misfits = Refused() if job.dp is None else passed_over
    unit, most = _unit_of(job)
    records = read_dataset(dataset, schema_read(job), unit, most, misfits)
    if passed_over.columns:
        _log.warning("misfits", extra={"dataset": job.dataset, "columns": list(passed_over.columns)})
    return records


def _key_of(dataset: DatasetSettings, job: JobSpec) -> _Key:
    unit, most = _unit_of(job)
    # A database does not say what changed: each job reads it anew, and keeps what it began with.
    once = "" if dataset.sql is None else job.digest
    source = registration_digest(job.dataset, dataset)
    return source, schema_read(job).digest, unit, most, once, job.dp is None, state_of(dataset)


def _unit_of(job: JobSpec) -> tuple[PrivacyUnit, int]:
    """What is protected, and how many records of each are used at most."""
    return ("record", 1) if job.dp is None else (job.dp.unit, job.dp.records_per_unit)
