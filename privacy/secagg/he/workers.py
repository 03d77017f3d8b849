"""Encryption on all cores: TenSEAL holds the interpreter's lock, so blocks go to processes, not threads.

A worker process is started afresh (never forked, so that no half-copied lock or generator comes along) and
gets the key through a pipe of its own: not on argv, not in the environment, not on a disk.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from numpy.typing import NDArray

from privacy.secagg.he.door import Cipher
from privacy.secagg.he.keys import HeKey
from privacy.secagg.he.parameters import parameters_named

_CHUNKS_PER_WORKER = 2


class BlockCipher:
    """A cipher over blocks, int64[ciphertexts, degree], in this process or in ``workers`` others."""

    def __init__(self, key: HeKey, contributors: int, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers: expected at least 1, got {workers}")
        self._cipher = key.cipher(contributors)
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            self._pool = ProcessPoolExecutor(
                workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(key.use.parameters.name, key.secret, contributors),
            )

    def encrypt(self, blocks: NDArray[np.int64]) -> list[bytes]:
        """One fresh ciphertext a block, in order."""
        if self._pool is None:
            return [self._cipher.encrypt(block) for block in blocks]
        chunks = np.array_split(blocks, min(len(blocks), self._workers * _CHUNKS_PER_WORKER))
        return [each for encrypted in self._pool.map(_encrypt, chunks) for each in encrypted]

    def decrypt(self, ciphertexts: list[bytes]) -> NDArray[np.int64]:
        """The integers under each sum, int64[ciphertexts, degree]."""
        return np.stack([self._cipher.decrypt(each) for each in ciphertexts])

    def close(self) -> None:
        """End the worker processes."""
        if self._pool is not None:
            self._pool.shutdown()


_worker: list[Cipher] = []
"""The cipher of a worker process; empty everywhere else."""


def _start_worker(parameters: str, secret: bytes, contributors: int) -> None:
    _worker[:] = [Cipher(parameters_named(parameters), secret, contributors)]


def _encrypt(blocks: NDArray[np.int64]) -> list[bytes]:
    return [_worker[0].encrypt(block) for block in blocks]
