"""Models as safetensors files: named float32 tensors in a job's layout. Nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from privacy.errors import ConfigurationError
from privacy.keystore import read_file
from privacy.plan import ModelTerms
from privacy.update import flatten, split_tensors

_TOLD: Final = 5
"""Tensors that one error names."""


def read_model(path: Path, terms: ModelTerms) -> NDArray[np.float32]:
    """Read a model file: float32[d].

    Raises:
        ConfigurationError: not safetensors, or other tensors, shapes or types than the job's layout.
    """
    try:
        tensors = load(read_file(path))
    except (SafetensorError, ValueError) as error:
        raise ConfigurationError(f"{path}: expected a safetensors file") from error
    faults = list(_faults(terms, tensors))
    if faults:
        more = f"; and {len(faults) - _TOLD} more" if len(faults) > _TOLD else ""
        raise ConfigurationError(
            f"{path}: expected tensors as in the job's layout ({terms.adapter}): "
            f"{'; '.join(faults[:_TOLD])}{more}"
        )
    vector = flatten(terms, {spec.name: tensors[spec.name] for spec in terms.layout})
    if not np.all(np.isfinite(vector)):
        broken = next(name for name, tensor in tensors.items() if not np.all(np.isfinite(tensor)))
        raise ConfigurationError(f"{path}: expected finite parameters, got others in {broken}")
    return vector


def read_notes(path: Path) -> Mapping[str, str]:
    """What a model file's header says of it: word of whoever made the file, no more.

    Raises:
        ConfigurationError: not a safetensors file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise ConfigurationError(f"{path}: expected a safetensors file") from error


def _faults(terms: ModelTerms, tensors: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Each tensor that is missing, of another shape or type, or one too many."""
    for spec in terms.layout:
        if spec.name not in tensors:
            yield f"{spec.name}: expected {list(spec.shape)}, got none of that name"
        elif tensors[spec.name].shape != spec.shape:
            yield f"{spec.name}: expected {list(spec.shape)}, got {list(tensors[spec.name].shape)}"
        elif tensors[spec.name].dtype != np.float32:
            yield f"{spec.name}: expected float32, got {tensors[spec.name].dtype}; convert it"
    for name in sorted(tensors.keys() - {spec.name for spec in terms.layout}):
        yield f"{name}: the layout has no such tensor; leave it out"


def model_file(terms: ModelTerms, vector: NDArray[np.float32], notes: dict[str, str]) -> bytes:
    """A model as the bytes of a safetensors file; ``notes`` go into its header."""
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in split_tensors(terms, vector).items()}
    return save(tensors, metadata=notes)
