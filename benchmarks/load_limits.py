"""What the machine itself does at the moment, in MiB/s: the figures beside a round's throughput."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from rounds_bare import measure_bare

from privacy.wire.messages import PART_BYTES

MIB = float(1 << 20)
COPY_BYTES = 256 << 20
REPEATS = 5
RECORD_BYTES = 16 << 10
"""A TLS record (RFC 8446, 5.1)."""


def limits(server: Path, client: Path, folder: Path) -> dict[str, float]:
    """Best of several for memory, AES-GCM and SHA-256 on one core; means for the disk and for TLS.

    ``tls`` sends parts by ``FederationClient`` over mutual TLS to a server that does nothing with them.
    """
    source, target = np.ones(COPY_BYTES, dtype=np.uint8), np.empty(COPY_BYTES, dtype=np.uint8)
    record, part = os.urandom(RECORD_BYTES), os.urandom(PART_BYTES)
    cipher, nonce = AESGCM(AESGCM.generate_key(256)), os.urandom(12)

    def seal() -> None:
        for _ in range(PART_BYTES // RECORD_BYTES):
            cipher.encrypt(nonce, record, None)  # measured only: nothing is sent under the repeated nonce

    def write() -> None:
        with (folder / "written").open("wb") as file:
            file.write(part)
            file.flush()
            os.fsync(file.fileno())

    bare = measure_bare(server, client, [("PUT", PART_BYTES, 0)], REPEATS)
    return {
        # Each byte is read once and written once.
        "memory_copy": 2 * COPY_BYTES / MIB / _best(lambda: np.copyto(target, source)),
        "aes_256_gcm": PART_BYTES / MIB / _best(seal),
        "sha_256": PART_BYTES / MIB / _best(lambda: hashlib.sha256(part).digest()),
        "disk_write_fsync": REPEATS * PART_BYTES / MIB / sum(_times(write)),
        "tls_upload": PART_BYTES / MIB / (bare.wall_ms / 1000),
    }


def _times(what: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        what()
        taken.append(time.perf_counter() - started)
    return taken


def _best(what: Callable[[], object]) -> float:
    what()
    return min(_times(what))
