"""Writes the canonical ZIP of an evidence pack: one set of files, one byte string."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_PLAIN_FILE = 0o100644 << 16


def canonical_zip(files: Mapping[str, bytes]) -> bytes:
    """Stored, sorted by name, dated 1980-01-01, fixed attributes, no comments, no extra fields."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _FIRST_DAY)
            entry.create_system = _UNIX
            entry.external_attr = _PLAIN_FILE
            archive.writestr(entry, files[name])
    return buffer.getvalue()
