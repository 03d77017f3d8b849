"""A job's first model, trained on public records before any silo is asked: free of ε.

The steps are those a silo takes without DP (``fedavg``), on all records at a time, so that the same
file gives the same model.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privacy.errors import ConfigurationError
from privacy.plan import LocalTerms, TrainingTerms, VectorTerms
from sealsum.algorithms import GRADIENT_CLIP
from sealsum.job_file import JobFile
from sealsum.simulator.model import adapter_of
from silo_agent.algorithms.local_steps import local_steps
from silo_agent.algorithms.task import Task
from silo_agent.data.csv_table import read_csv_table


@dataclass(frozen=True)
class WarmModel:
    """What the public records have made of the first weights."""

    weights: NDArray[np.float32] = field(repr=False)
    """float32[d]."""
    records: int
    """Public, unlike a silo's."""
    first_loss: float
    last_loss: float


def warm_model(job: JobFile) -> WarmModel:
    """The job's built-in first weights after ``public_data.steps`` steps on the records it names.

    Raises:
        ConfigurationError: the job names none, the file is another, or does not fit the job's schema; the
            model is an adapter of the silos' own. Diverged: the steps led nowhere.
    """
    public = job.public_data
    if public is None:
        raise ConfigurationError("public_data: expected {file, digest} in the job file to warm up on")
    raw = public.read()
    with tempfile.TemporaryDirectory() as folder:  # what is read is what was hashed
        path = Path(folder) / public.file.name
        path.write_bytes(raw)
        records = read_csv_table(path, job.data, "record")
    start = job.model_copy(update={"initial_model": None, "public_data": None}).first_model()
    task = Task(
        model=job.terms(),
        training=TrainingTerms(
            algorithm="fedavg",
            local_steps=public.steps,
            learning_rate=public.learning_rate,
            server_learning_rate=1.0,
            local=LocalTerms(gradient_clip=GRADIENT_CLIP),
        ),
        dp=None,
        vector=VectorTerms(coordinate_bound=8.0, scale_bits=16),  # nothing is encoded
        start=start,
        adapter=adapter_of(job),
        records=records,
    )
    descent = local_steps(task)
    return WarmModel(start + descent.update, len(records), descent.first_loss, descent.last_loss)
