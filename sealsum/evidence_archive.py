"""The canonical ZIP of an evidence pack, one set of files being one byte string: writes and reads it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from privacy.errors import MalformedMessage

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


def read_zip(raw: bytes, where: str) -> dict[str, bytes]:
    """Contents by name, of a pack that is canonical; ``where`` names it in errors.

    Raises:
        MalformedMessage: it is no canonical archive, so it is not as its exporter made it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            # A file that is packed would come out larger than it is here.
            entries = archive.infolist()
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            # Entries that lie over one another would, too.
            fits = sum(entry.file_size for entry in entries) <= len(raw)
            files = {name: archive.read(name) for name in archive.namelist()} if stored and fits else {}
    except (zipfile.BadZipFile, RuntimeError, OSError, EOFError, ValueError) as error:
        # RuntimeError: what is encrypted, or packed in a way that this Python does not know.
        raise MalformedMessage(f"{where}: expected an evidence pack, got no ZIP archive") from error
    if canonical_zip(files) != raw:
        raise MalformedMessage(f"{where}: expected a canonical ZIP; the pack was changed after its export")
    return files
