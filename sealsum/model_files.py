"""Models as safetensors files: named float32 tensors in a job's layout. Nothing is ever unpickled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from privacy.errors import ConfigurationError
from privacy.keystore import read_file
from privacy.plan import ModelTerms
from privacy.update import flatten, split_tensors


def read_model(path: Path, terms: ModelTerms) -> NDArray[np.float32]:
    """Read a model file: float32[d].

    Raises:
        ConfigurationError: not safetensors, or other tensors, shapes or types than the job's layout.
    """
    try:
        tensors = load(read_file(path))
    except (SafetensorError, ValueError) as error:
        raise ConfigurationError(f"{path}: expected a safetensors file") from error
    expected = {spec.name: ("float32", spec.shape) for spec in terms.layout}
    found = {name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()}
    if found != expected:
        raise ConfigurationError(f"{path}: expected tensors {expected}, got {found}")
    vector = flatten(terms, {spec.name: tensors[spec.name] for spec in terms.layout})
    if not np.all(np.isfinite(vector)):
        raise ConfigurationError(f"{path}: expected finite parameters")
    return vector


def model_file(terms: ModelTerms, vector: NDArray[np.float32], notes: dict[str, str]) -> bytes:
    """A model as the bytes of a safetensors file; ``notes`` go into its header."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in split_tensors(terms, vector).items()}
    return save(tensors, metadata=notes)
