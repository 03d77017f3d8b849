"""Which patients are held out, by a digest of their id: the same in every job, whoever else is in the data.

A patient's place depends on her id alone, so the rule moves no other patient's record and costs no budget.
Who is held out at a smaller share is held out at every larger one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.records import Records

_LABEL: Final = b"sealsum/holdout/v1\x00"
_FOLD_LABEL: Final = b"sealsum/fold/v1\x00"
_SCALE: Final = 2.0**64


def held_out(patients: Sequence[str], share: float) -> NDArray[np.bool_]:
    """For each record, whether its patient is among the held-out ``share``: bool[n]."""
    place = {patient: _place(_LABEL, patient) < share * _SCALE for patient in set(patients)}
    return np.array([place[patient] for patient in patients], dtype=np.bool_)


def folds(patients: Sequence[str], count: int) -> NDArray[np.int64]:
    """For each record, its patient's fold, 0 … count − 1, by another digest than the holdout's: int64[n]."""
    place = {patient: _place(_FOLD_LABEL, patient) % count for patient in set(patients)}
    return np.array([place[patient] for patient in patients], dtype=np.int64)


def trained_on(records: Records, share: float) -> Records:
    """What a job that holds out ``share`` of the patients trains on."""
    return records if share == 0 else records.only(np.flatnonzero(~held_out(records.patients, share)))


def _place(label: bytes, patient: str) -> int:
    # A folder's name may have bytes that are no UTF-8; that must not be a question of who holds out.
    told = patient.encode(errors="surrogateescape")
    return int.from_bytes(hashlib.sha256(label + told).digest()[:8], "big")
