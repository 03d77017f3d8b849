"""The flat form of a model: raw little-endian float32 behind its digest. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.ids import Digest
from privacy.plan import ModelTerms

FLOAT_BYTES = 4


def model_digest(model: ModelTerms, chunks: Iterable[bytes]) -> Digest:
    """SHA-256("sealsum/model/v1" ‖ 0x00 ‖ architecture digest ‖ raw bytes), readable in chunks."""
    return digest_under(model.architecture, chunks)


def digest_under(architecture: Digest, chunks: Iterable[bytes]) -> Digest:
    """The same, for one who stores a model and knows of its architecture only the digest."""
    running = hashlib.sha256(b"sealsum/model/v1\x00" + bytes.fromhex(architecture))
    for chunk in chunks:
        running.update(chunk)
    return Digest(running.hexdigest())


def model_bytes(vector: NDArray[np.float32]) -> bytes:
    """Raw little-endian bytes of a flat model, float32[d]."""
    return vector.astype("<f4", copy=False).tobytes()


def model_vector(model: ModelTerms, raw: bytes) -> NDArray[np.float32]:
    """Read a flat model, float32[d].

    Raises:
        Unprocessable: the length does not fit the layout, or a value is not finite.
    """
    if len(raw) != FLOAT_BYTES * model.parameters:
        raise Unprocessable(f"model: expected {FLOAT_BYTES * model.parameters} bytes, got {len(raw)}")
    vector = np.frombuffer(raw, dtype="<f4")
    if not np.all(np.isfinite(vector)):
        raise Unprocessable("model: expected finite parameters")
    return vector


def split_tensors(model: ModelTerms, vector: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Name → tensor, in the layout's order and shapes."""
    tensors: dict[str, NDArray[np.float32]] = {}
    start = 0
    for spec in model.layout:
        tensors[spec.name] = vector[start : start + spec.size].reshape(spec.shape)
        start += spec.size
    return tensors


def flatten(model: ModelTerms, tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """The inverse of ``split_tensors``: float32[d].

    Raises:
        Unprocessable: a tensor is missing, extra, or of another shape.
    """
    if list(tensors) != [spec.name for spec in model.layout]:
        raise Unprocessable("model: expected the tensors of the layout, in its order")
    for spec in model.layout:
        if tensors[spec.name].shape != spec.shape:
            raise Unprocessable(
                f"model: tensor {spec.name}: expected shape {spec.shape}, got {tensors[spec.name].shape}"
            )
    return np.concatenate(
        [tensors[spec.name].astype(np.float32, copy=False).ravel() for spec in model.layout]
    )
