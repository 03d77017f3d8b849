"""What training takes: records as arrays, and whose they are. How many is a secret: nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError
from privacy.labels import LabelKind, kind_name

_DIMENSIONS: Final[dict[LabelKind, int]] = {"classes": 1, "real": 1, "mask": 2, "cox": 2, "exponential": 2}
"""Of ``Records.labels``."""


@dataclass(frozen=True, repr=False)
class Records:
    """One dataset under one schema: each row is one record; a unit of privacy owns one or more of them.

    Raises:
        ConfigurationError: units are given that do not tell each record's owner.
    """

    features: NDArray[np.float32]
    """float32[n, width]; numbers in [−1, 1], one-hot categories and missing indicators in {0, 1}."""
    labels: NDArray[np.float32]
    """By ``kind``: float32[n] with the number of each record's class, from 0, or a number in [−1, 1];
    float32[n, pixels] of masks in {0, 1}; float32[n, 2] of times, as parts of the horizon, and events."""
    patients: tuple[str, ...] = field(default=())
    classes: int = 2
    """How many classes the job's schema has, whatever of them occurs here; of no meaning for other kinds."""
    units: NDArray[np.int64] | None = None
    """int64[n], which unit (0 … m − 1, none left out) each record belongs to; absent: each is its own."""
    views: int = 1
    """How many of a unit's rows are views of one record: the mean of their gradients is that record's."""
    kind: LabelKind = "classes"
    """What the job predicts, and so which loss a record has."""
    listed: int | None = None
    """How many units the dataset has rows of, whether a job's schema has a place for them or not; absent
    where nobody counted. As secret as ``len``."""

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.features) or self.labels.ndim != _DIMENSIONS[self.kind]:
            raise ConfigurationError(f"records.labels: expected one label of {self.told} for each record")
        if self.units is None:
            return
        if self.units.shape != (len(self),):
            raise ConfigurationError("records.units: expected one unit for each record")
        if not np.array_equal(np.unique(self.units), np.arange(self.unit_count)):
            raise ConfigurationError("records.units: expected the numbers 0 … m − 1, none left out")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def logits(self) -> int:
        """Outputs a record that a model needs: one tells two classes apart, K > 2 take one each."""
        if self.kind == "mask":
            return int(self.labels.shape[1])
        return self.classes if self.kind == "classes" and self.classes > 2 else 1

    @property
    def told(self) -> str:
        """The label for people: nothing that any record holds."""
        return f"{self.classes} classes" if self.kind == "classes" else kind_name(self.kind)

    def rows(self, chosen: NDArray[np.intp]) -> Records:
        """These rows alone, in this order, each a unit of its own.

        Raises:
            ConfigurationError: units own several of the records, or records have several views.
        """
        if self.units is not None or self.views != 1:
            raise ConfigurationError(
                "records: expected one record a unit, without views, to choose among them"
            )
        patients = tuple(self.patients[row] for row in chosen) if self.patients else ()
        return replace(self, features=self.features[chosen], labels=self.labels[chosen], patients=patients)

    @cached_property
    def unit_count(self) -> int:
        """How many units there are: what is sampled, what a minimum counts. As secret as ``len``."""
        return len(self) if self.units is None else int(self.units.max(initial=-1)) + 1

    def only(self, rows: NDArray[np.intp]) -> Records:
        """These rows, ascending, with their patients; units that are left are numbered anew, in order."""
        units = None if self.units is None else np.unique(self.units[rows], return_inverse=True)[1]
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            patients=tuple(self.patients[row] for row in rows) if self.patients else (),
            units=units,
        )

    def in_equal_shares(self, sample: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        """The rows of the sampled units, in blocks of units that own the same number of records.

        Blocks are int64[units, records of each], so that a sum over the second axis is a sum by unit.

        Args:
            sample: units, ascending.
        """
        if self.units is None:
            yield sample[:, None]
            return
        rows, starts = self._owned
        counts = np.diff(starts)[sample]
        for count in np.unique(counts):
            first = starts[sample[counts == count]]
            yield rows[first[:, None] + np.arange(count)]

    @cached_property
    def _owned(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """All rows, by unit, and where each unit's begin."""
        units = np.arange(len(self)) if self.units is None else self.units
        counts = np.bincount(units, minlength=self.unit_count)
        return np.argsort(units, kind="stable"), np.concatenate([[0], np.cumsum(counts)])


def assert_enough(records: Records, minimum: int) -> None:
    """Refuse to train on few units of privacy (patients, where they are the unit), without telling how many.

    Raises:
        PolicyRefusal: there are fewer than ``minimum``.
    """
    if records.unit_count < minimum:
        raise _too_few(minimum)


def assert_listed(records: Records, minimum: int) -> None:
    """As ``assert_enough``, of all that the dataset has rows of: no term of a job moves the answer.

    Counting what a schema has a place for, or what a holdout leaves, would let a job look for the number
    (ADR 0043).

    Raises:
        PolicyRefusal: there are fewer than ``minimum``.
    """
    if records.listed is None or records.listed < minimum:
        raise _too_few(minimum)


def _too_few(minimum: int) -> PolicyRefusal:
    return PolicyRefusal(
        "dataset",
        [
            Finding(
                rule="records.minimum",
                sentence="The silo holds fewer records than its threat model lets it train on.",
                expected=f"at least {minimum} records, of as many patients where patients are the unit",
                got="fewer",
                remedy="leave this silo out of the job, or let its owner lower limits.min_records",
            )
        ],
    )
