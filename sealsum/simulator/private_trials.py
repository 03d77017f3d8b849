"""Trials on records that somebody's privacy budget covers: each is charged in a ledger before it reads them.

The table's holder splits it among simulated silos. All that is told of a trial is how many held-out records
its model told right, with noise; that count is charged as well. A patient's id alone decides on the silo,
and on training or held out: whoever else is in the table moves nobody. Knows no network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privacy.canonical import sha256_hex
from privacy.dp.calibration import calibrated_noise
from privacy.dp.events import DpEvent
from privacy.errors import ConfigurationError
from privacy.identity import SigningKey
from privacy.ids import Context, Digest, JobId, PartyId, SiloId
from privacy.keystore import read_secret, write_secret
from privacy.transparency.checkpoint import EMPTY_LOG
from sealsum.simulator.federation import Federation
from sealsum.simulator.model import adapter_of
from sealsum.simulator.plan import RoundTerms
from sealsum.simulator.trials import Trial
from silo_agent.data.csv_table import read_csv_table
from silo_agent.data.holdout import trained_on
from silo_agent.data.records import Records
from silo_agent.ledger.admission import RoundCharge
from silo_agent.ledger.entries import EpsilonCaps, Opening
from silo_agent.ledger.ledger import Ledger
from silo_agent.models.adapters import predict_scores
from silo_agent.randomness import gaussian

TRAINING_SHARE: Final = 0.7
"""Of a trial's ε; what is left pays for the noisy count that it is judged by."""
_HELD_OUT_OF: Final = 4
"""One patient in so many is held out."""
_DATASET: Final = "tuning"
_ORIGIN: Final = "tuning/ledger/tuning/tuning"


@dataclass(frozen=True)
class Judged:
    """One trial, paid for."""

    trial: Trial
    right: float
    """How many held-out patients its model told right (the mean over a patient's records), plus noise."""
    deviation: float
    """Of that noise."""
    epsilon: float
    """Training and count together, as the ledger adds them up."""


@dataclass(frozen=True)
class Tuning:
    """A search that was paid for."""

    judged: tuple[Judged, ...]
    epsilon_spent: float
    """What the ledger says of its whole life, earlier searches included."""
    delta_spent: float

    @property
    def best(self) -> Judged:
        """The trial with the largest count."""
        return max(self.judged, key=lambda one: one.right)


@dataclass(frozen=True)
class PrivateTable:
    """A table with a budget, and the ledger in a folder beside it that holds it to that."""

    path: Path
    ledger: Path
    epsilon: float
    """Most that all searches on the table may cost together."""
    delta: float
    """Likewise."""
    silos: int

    def tune(self, trials: Sequence[Trial], at: datetime) -> Tuning:
        """Charge, train and judge the trials, one after the other; the first that passes the budget ends it.

        Raises:
            BudgetExhausted: before the trial that would pass ``epsilon`` or ``delta`` reads a record.
            ConfigurationError: the table cannot be read; an adapter of silos' own; shares of noise for more
                silos than there are.
        """
        dp = trials[0].dp
        if self.silos < (dp.noise_shares or 1):
            raise ConfigurationError(
                f"silos: expected {dp.noise_shares} or more, one for each share of noise, got {self.silos}"
            )
        caps = EpsilonCaps(round=self.epsilon, job=self.epsilon, lifetime=self.epsilon)
        schema = trials[0].job.data
        opening = Opening(
            dataset=_DATASET,
            unit=dp.unit,
            patient_id=schema.patient_id,
            epsilon=caps,
            delta_max=self.delta,
        )
        self.ledger.mkdir(parents=True, exist_ok=True)
        with Ledger(self.ledger / "tuning.jsonl", _ORIGIN, self._key(), opening, at) as book:
            judged = [self._judged(book, trial, at) for trial in trials]
            spent = book.spent()
        return Tuning(tuple(judged), spent.epsilon, spent.delta)

    def _judged(self, book: Ledger, trial: Trial, at: datetime) -> Judged:
        model, adapter = trial.job.terms(), adapter_of(trial.job)
        count = count_event(trial)
        before = book.spent().epsilon
        for event, what in ((trial.event, "training"), (count, "count")):
            charge = _charge(event, what, trial.dp.delta)
            book.begin(book.reserve(charge, at), at)
            book.settle(charge.context, at)
        # Only from here on are records read.
        training, held_out = self._parts(trial)
        federation = Federation(
            RoundTerms(
                model, trial.job.training_of(self.silos), trial.dp, trial.job.grid(self.silos, "additive")
            ),
            adapter,
            training,
            trial.job.rounds,
        )
        trained = federation.train(trial.job.first_model())
        logits = predict_scores(adapter, model, trained, held_out.features)
        guessed = (logits > 0) if logits.ndim == 1 else logits.argmax(1)
        right = _by_unit(held_out, (guessed == held_out.labels).astype(np.float64)).sum()
        deviation = count.noise_multiplier
        noisy = float(np.rint(right + gaussian(1, deviation)[0]))
        return Judged(trial, noisy, deviation, book.spent().epsilon - before)

    def _parts(self, trial: Trial) -> tuple[dict[SiloId, Records], Records]:
        """Each simulated silo's records, and those that are held out."""
        everybody = read_csv_table(self.path, trial.job.data, trial.dp.unit, trial.dp.records_per_unit)
        # Whom the job holds out no setting of it is chosen by either.
        records = trained_on(everybody, trial.job.training.holdout)
        places = np.array([_place(patient) for patient in records.patients], dtype=np.uint64)
        held_out = places % np.uint64(_HELD_OUT_OF) == 0
        silo = (places // np.uint64(_HELD_OUT_OF)) % np.uint64(self.silos)
        training = {
            SiloId(PartyId(f"silo-{number + 1}")): _chosen(records, ~held_out & (silo == number))
            for number in range(self.silos)
        }
        return training, _chosen(records, held_out)

    def _key(self) -> SigningKey:
        path = self.ledger / "tuning.pem"
        if not path.exists():
            write_secret(path, SigningKey.generate().to_pem())
        return SigningKey.from_pem(read_secret(path))


def count_event(trial: Trial) -> DpEvent:
    """The noisy count of a trial: every patient moves it by at most 1."""
    target = trial.epsilon / TRAINING_SHARE * (1 - TRAINING_SHARE)
    found = calibrated_noise(target, trial.dp.delta, 1.0, 1, "add_remove")
    return DpEvent(sample_rate=1.0, noise_multiplier=found.noise_multiplier, steps=1)


def _charge(event: DpEvent, what: str, delta: float) -> RoundCharge:
    return RoundCharge(
        job=JobId(f"tuning-{what}"),
        job_digest=Digest(sha256_hex(os.urandom(32))),
        dataset=_DATASET,
        context=Context(Digest(sha256_hex(os.urandom(32)))),
        round=1,
        rounds=1,
        event=event,
        fallback=None,
        delta=delta,
        log_head=EMPTY_LOG,
    )


def _place(patient: str) -> int:
    digest = hashlib.sha256(b"sealsum/tuning/v1\x00" + patient.encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _chosen(records: Records, rows: NDArray[np.bool_]) -> Records:
    units = None if records.units is None else np.unique(records.units[rows], return_inverse=True)[1]
    patients = tuple(patient for patient, kept in zip(records.patients, rows, strict=True) if kept)
    return replace(
        records, features=records.features[rows], labels=records.labels[rows], patients=patients, units=units
    )


def _by_unit(records: Records, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each unit's mean."""
    if records.units is None:
        return values
    summed = np.bincount(records.units, values, minlength=records.unit_count)
    means: NDArray[np.float64] = summed / np.bincount(records.units, minlength=records.unit_count)
    return means
