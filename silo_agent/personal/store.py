"""Where a silo keeps its own models: files that its owner alone can read, and that no message is made from.

    personal/<job digest>/shared-<digest>.f32       the job's last model, as its signed result names it
    personal/<job digest>/<method>.safetensors      a personal model; its figures in <method>.json

Knows no network. Nothing but ``sealsum silo`` commands at this machine reads what is written here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from privacy.errors import ConfigurationError
from privacy.ids import Digest
from privacy.keystore import read_secret
from privacy.plan import ModelTerms
from privacy.update import flatten, split_tensors
from silo_agent.checked_model import check_bytes
from silo_agent.durable import private_directory, write_durably
from silo_agent.personal.figures import SHARED, Gains

Vector = NDArray[np.float32]
_DIRECTORY: Final = "personal"


@dataclass(frozen=True)
class Kept:
    """A personal model that lies here, float32[d], and its figures."""

    path: Path
    gains: Gains
    tensors: dict[str, NDArray[np.float32]] = field(repr=False)


class PersonalModels:
    """All personal models of one silo."""

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / _DIRECTORY

    def keep_shared(self, digest: Digest, model: Digest, raw: bytes) -> Path:
        """Store the model that a job ended with, raw float32, under the job's digest and its own."""
        private_directory(self._directory)
        path = private_directory(self._directory / digest) / f"{SHARED}-{model}.f32"
        write_durably(path, raw)
        return path

    def shared(self, digest: Digest, terms: ModelTerms) -> Vector:
        """The model that a job ended with.

        Raises:
            ConfigurationError: the agent has kept none. Unprocessable: the file is not what it was named by.
        """
        path = next((self._directory / digest).glob(f"{SHARED}-*.f32"), None)
        if path is None:
            raise ConfigurationError(
                f"{self._directory / digest}: the job's last model is not here; it comes when the job ends "
                "while this silo's agent runs; else give it: --model FILE (sealsum job model)"
            )
        named = Digest(path.stem.removeprefix(f"{SHARED}-"))
        return check_bytes(terms, named, path.read_bytes(), str(path)).vector

    def keep(self, terms: ModelTerms, vector: Vector, gains: Gains) -> Path:
        """Store a personal model and its figures; the same method again replaces it."""
        digest = Digest(gains.job_digest)
        notes = {"job": gains.job, "job_digest": digest, "what": f"personal, {gains.method}"}
        path = self._write(digest, gains.method, terms, vector, notes)
        write_durably(path.with_suffix(".json"), gains.model_dump_json(indent=2).encode())
        return path

    def all(self) -> tuple[Gains, ...]:
        """The figures of every personal model, by job and method.

        Raises:
            ConfigurationError: one does not read back, or others can read it.
        """
        return tuple(_read_gains(path) for path in sorted(self._directory.glob("*/*.json")))

    def one(self, digest: Digest, method: str) -> Kept:
        """A personal model with its figures.

        Raises:
            ConfigurationError: there is none of that method, or it does not read back.
        """
        path = self._path(digest, method)
        if not path.exists() or method == SHARED:
            here = ", ".join(sorted(one.stem for one in path.parent.glob("*.json"))) or "none"
            raise ConfigurationError(
                f"--method: this silo has no such model of job {digest[:16]}…, got {method}; here: {here}"
            )
        return Kept(path, _read_gains(path.with_suffix(".json")), _read_tensors(path))

    def _path(self, digest: Digest, name: str) -> Path:
        return self._directory / digest / f"{name}.safetensors"

    def _write(
        self, digest: Digest, name: str, terms: ModelTerms, vector: Vector, notes: dict[str, str]
    ) -> Path:
        path = self._path(digest, name)
        private_directory(self._directory)
        private_directory(path.parent)
        tensors = {key: np.ascontiguousarray(one) for key, one in split_tensors(terms, vector).items()}
        write_durably(path, save(tensors, metadata=notes))
        return path


def read_vector(path: Path, terms: ModelTerms) -> Vector:
    """A model file in a job's layout: float32[d].

    Raises:
        ConfigurationError: not safetensors, other tensors than the job's, or numbers that are not finite.
    """
    tensors = _read_tensors(path)
    found = {name: (str(one.dtype), one.shape) for name, one in tensors.items()}
    expected = {spec.name: ("float32", spec.shape) for spec in terms.layout}
    if found != expected:
        raise ConfigurationError(f"{path}: expected tensors {expected}, got {found}")
    vector = flatten(terms, {spec.name: tensors[spec.name] for spec in terms.layout})
    if not np.all(np.isfinite(vector)):
        raise ConfigurationError(f"{path}: expected finite parameters")
    return vector


def _read_tensors(path: Path) -> dict[str, NDArray[np.float32]]:
    try:
        return dict(load(path.read_bytes()))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except (SafetensorError, ValueError) as error:
        raise ConfigurationError(f"{path}: expected a safetensors file") from error


def _read_gains(path: Path) -> Gains:
    try:
        return Gains.model_validate_json(read_secret(path))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: it does not read back; personalise the job again") from error
