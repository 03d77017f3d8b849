"""The canonical ZIP: one set of files has one byte string, so that no byte of a pack can change unnoticed.

Stored, sorted by name, dated 1980-01-01, fixed attributes, no comments, no extra fields. A general ZIP
reader forgives too much to be a judge; this one reads that form alone.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping

from sealsum_verify.encoding import demand

MAX_PACK_BYTES = 1 << 30
MAX_ENTRIES = 60_000
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION, _MADE_BY, _DAY_ONE, _MODE = 20, 3 << 8 | 20, 1 << 5 | 1, 0o100644 << 16
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


def read_archive(raw: bytes) -> dict[str, bytes]:
    """(1) Name → content:

    (a) the pack and the number of its entries are within limits; (b) each entry is whole, has a plain
    name that sorts after the one before it, and its checksum; (c) rebuilding the archive from its
    contents gives the same bytes.
    """
    files: dict[str, bytes] = {}
    position, before = 0, ""
    demand(len(raw) <= MAX_PACK_BYTES, "archive", f"expected at most {MAX_PACK_BYTES} bytes")  # (a)
    while raw[position : position + 4] == b"PK\x03\x04":
        demand(len(files) < MAX_ENTRIES, "archive", f"expected at most {MAX_ENTRIES} entries")
        # (b)
        start = position + _LOCAL.size
        demand(start <= len(raw), "archive", f"it is cut off after {before!r}")
        *_, checksum, _, size, name_size, _ = _LOCAL.unpack_from(raw, position)
        position = start + name_size + size
        demand(position <= len(raw), "archive", f"it is cut off after {before!r}")
        encoded, content = raw[start : start + name_size], raw[start + name_size : position]
        demand(_NAME.fullmatch(encoded) is not None, "archive", f"a name after {before!r} is not plain")
        name = encoded.decode()
        demand(name > before, name, f"expected entries sorted and distinct, it follows {before!r}")
        demand(zlib.crc32(content) == checksum, name, "its content does not match its checksum")
        files[name], before = content, name
    demand(write_archive(files) == raw, "archive", "rebuilding it from its contents gives other bytes")  # (c)
    return files


def write_archive(files: Mapping[str, bytes]) -> bytes:
    """The one archive of these files."""
    body, directory = bytearray(), bytearray()
    for name in sorted(files):
        content, encoded = files[name], name.encode()
        common = (_VERSION, 0, 0, 0, _DAY_ONE, zlib.crc32(content), len(content), len(content), len(encoded))
        directory += _CENTRAL.pack(b"PK\x01\x02", _MADE_BY, *common, 0, 0, 0, 0, _MODE, len(body)) + encoded
        body += _LOCAL.pack(b"PK\x03\x04", *common, 0) + encoded + content
    end = _END.pack(b"PK\x05\x06", 0, 0, len(files), len(files), len(directory), len(body), 0)
    return bytes(body + directory + end)
