"""Public or synthetic records that a job names by their digest, and what of them its first model has seen.

Everybody may read them, so that what is learned from them before round 1 costs no privacy budget. Knows no
training (``sealsum.warm_up``).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

from privacy.canonical import Frozen
from privacy.errors import ConfigurationError
from privacy.ids import HexDigest
from privacy.keystore import read_file
from privacy.plan import Count
from privacy.training_terms import StepSize
from silo_agent.models.files import read_notes

NOTE: Final = "public_data"
"""What the digest is called in the header of a model file."""


class PublicData(Frozen):
    """Which records, and what they are for."""

    file: Path
    """CSV of the job's own schema, beside job.yaml."""
    digest: HexDigest
    """SHA-256 of the file's bytes."""
    use: Literal["warm_up"] = "warm_up"
    """The first model is trained on them before round 1, where the job is written: no silo needs them."""
    steps: Count = 100
    """Steps of gradient descent on the mean loss of all of them."""
    learning_rate: StepSize = 0.3

    def read(self) -> bytes:
        """The file's bytes.

        Raises:
            ConfigurationError: it cannot be read, or is another than the job names.
        """
        raw = read_file(self.file)
        came = hashlib.sha256(raw).hexdigest()
        if came != self.digest:
            raise ConfigurationError(
                f"public_data.digest: expected {self.digest}, got {came} of {self.file}; if this is the file "
                "you mean, write its digest into the job"
            )
        return raw

    def must_have_warmed(self, model: Path | None) -> None:
        """Hold a first model to what it says it was trained on; whoever made the file may have lied.

        Raises:
            ConfigurationError: there is no model file, or it does not name these records. As ``read``.
        """
        self.read()
        if model is None:
            raise ConfigurationError(
                "initial_model: expected the file that sealsum job warm-up made of public_data; run it, then "
                "name its --out, or give it as --model"
            )
        came = read_notes(model).get(NOTE, "no public data")
        if came != self.digest:
            raise ConfigurationError(
                f"{model}: expected a model warmed up on public_data ({self.digest[:16]}…), got one on "
                f"{came[:16]}; make it by sealsum job warm-up"
            )
