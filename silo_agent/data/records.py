"""What training takes: records as arrays. Their number is a secret, so nothing here prints."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.findings import Finding, PolicyRefusal


@dataclass(frozen=True, repr=False)
class Records:
    """One dataset under one schema: each row is one record, each record one privacy unit."""

    features: NDArray[np.float32]
    """float32[n, width]; numbers in [−1, 1], one-hot categories and missing indicators in {0, 1}."""
    labels: NDArray[np.float32]
    """float32[n], the number of each record's class, from 0."""
    patients: tuple[str, ...] = field(default=())
    classes: int = 2
    """How many classes the job's schema has, whatever of them occurs here."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def logits(self) -> int:
        """Outputs a record that a model needs: one tells two classes apart, K > 2 take one each."""
        return 1 if self.classes == 2 else self.classes


def assert_enough(records: Records, minimum: int) -> None:
    """Refuse to train on few records, without telling how many there are.

    Raises:
        PolicyRefusal: there are fewer than ``minimum``.
    """
    if len(records) < minimum:
        raise PolicyRefusal(
            "dataset",
            [
                Finding(
                    rule="records.minimum",
                    sentence="The silo holds fewer records than its threat model lets it train on.",
                    expected=f"at least {minimum} records",
                    got="fewer",
                    remedy="leave this silo out of the job, or let its owner lower limits.min_records",
                )
            ],
        )
