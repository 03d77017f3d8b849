"""What builds a job's model in a simulation, where no silo has adapters or public models of its own."""

from __future__ import annotations

from privacy.errors import ConfigurationError
from sealsum.job_file import JobFile
from silo_agent.models.adapters import ADAPTERS, ModelAdapter
from silo_agent.models.partial import on_base


def adapter_of(job: JobFile) -> ModelAdapter:
    """A built-in, on the file that the job names for its base if it has one.

    Raises:
        ConfigurationError: it is an adapter of the silos' own.
    """
    if job.model.adapter not in ADAPTERS:
        raise ConfigurationError(
            f"model.adapter: expected one of {', '.join(ADAPTERS)}, got {job.model.adapter}"
        )
    base = job.model.base
    own = {} if base is None else {base.name: base.file}
    return on_base(ADAPTERS[job.model.adapter], job.terms(), own)
