"""The stored parts of a silo's update: their names, and whether all that a manifest names are here."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.blob_store import Blobs
from aggregator.blobs import sha256_of
from privacy.errors import Unprocessable
from privacy.ids import Context, Digest, SiloId
from privacy.secagg.validity.field import FIELD_BYTES, from_bytes

MISSING_NAMED = 20
"""Missing parts that a refusal lists; the silo sends them and commits again."""


def part_name(index: int, name: str = "") -> str:
    """File name of a part; ``name`` tells kinds of parts apart where a silo sends several."""
    return f"{name}-{index:05d}" if name else f"{index:05d}"


def check_parts(
    files: Blobs, ctx: Context, silo: SiloId, names: Sequence[str], parts: Sequence[Digest]
) -> None:
    """Whether every part that a manifest names is here, byte for byte; hashes files, so run it in a thread.

    Raises:
        Unprocessable: some are missing, by index, or one is another than the manifest names.
    """
    missing = [index for index, name in enumerate(names) if not files.exists(ctx, silo, name)]
    if missing:
        listed = ", ".join(str(index) for index in missing[:MISSING_NAMED])
        raise Unprocessable(f"manifest.parts: {len(missing)} missing, send them and commit again: {listed}")
    for index, (name, digest) in enumerate(zip(names, parts, strict=True)):
        if sha256_of(files.chunks(ctx, silo, name)) != digest:
            raise Unprocessable(f"manifest.parts: part {index} here is not the one the manifest names")


def check_field_parts(
    files: Blobs, ctx: Context, silo: SiloId, names: Sequence[str], parts: Sequence[Digest]
) -> None:
    """``check_parts`` for field elements: also each is below p, or a later step would fail for everybody.

    Raises:
        Unprocessable: see ``check_parts``. MalformedMessage: an element is not below p.
    """
    check_parts(files, ctx, silo, names, parts)
    for name in names:
        raw = files.read(ctx, silo, name)
        from_bytes(raw, len(raw) // FIELD_BYTES)
