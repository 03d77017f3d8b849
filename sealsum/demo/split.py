"""Which patients a hospital trains on, and which third the demo holds out to score the models.

The held-out rows stay with the demo, the only party that has all four public files; no silo reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sealsum.demo.patients import Hospital, Table

HELD_OUT = 1 / 3


@dataclass(frozen=True)
class Split:
    """One hospital's patients, each in exactly one of two tables."""

    hospital: Hospital
    training: Table
    held_out: Table


def split_patients(hospital: Hospital, table: Table, seed: int) -> Split:
    """Hold out a third of the sick and a third of the healthy, drawn by ``seed``; the file's order is kept.

    The draw of one hospital depends on its name and the seed alone, not on the other hospitals.
    """
    generator = np.random.default_rng([seed, *hospital.silo.encode()])
    held_out: set[int] = set()
    for sick in (False, True):
        stratum = [index for index, row in enumerate(table.rows) if table.sick(row) is sick]
        drawn = generator.permutation(len(stratum))[: round(len(stratum) * HELD_OUT)]
        held_out.update(stratum[position] for position in drawn)
    training = tuple(row for index, row in enumerate(table.rows) if index not in held_out)
    scored = tuple(row for index, row in enumerate(table.rows) if index in held_out)
    return Split(hospital, Table(table.columns, training), Table(table.columns, scored))
