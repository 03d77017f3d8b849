"""How much of what peers send a server holds: bytes and parts, of each silo and of all. Knows no disk.

Counted as reserved from the first byte on, so that uploads side by side cannot pass it together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aggregator.not_now import QuotaReached


@dataclass(frozen=True)
class Limits:
    """Of one silo, and of all together; ``None`` is none of its own."""

    silo_bytes: int | None
    silo_parts: int | None
    all_bytes: int


@dataclass
class Reserved:
    """Room for one part, kept if the part is stored."""

    kept: bool = False

    def stored(self) -> None:
        """The part is here: what is reserved stays counted until it is scrubbed."""
        self.kept = True


@dataclass
class Quota:
    """What is held under ``<ctx>/<silo>/<part>``. Touched on one event loop only."""

    limits: Limits
    _held: dict[str, dict[tuple[str, ...], int]] = field(default_factory=dict)
    """Bytes of each part, by its silo."""

    def load(self, parts: Iterable[tuple[tuple[str, ...], int]]) -> None:
        """Count what is here after a start."""
        for segments, size in parts:
            self._held.setdefault(_silo(segments), {})[segments] = size

    @property
    def held_bytes(self) -> int:
        """Of all silos."""
        return sum(sum(parts.values()) for parts in self._held.values())

    @property
    def held_parts(self) -> int:
        """Of all silos."""
        return sum(len(parts) for parts in self._held.values())

    @contextmanager
    def reserve(self, segments: tuple[str, ...], size: int) -> Iterator[Reserved]:
        """Count a part that comes; once more if it is not stored after all. A part that is here is no more.

        Raises:
            QuotaReached: there would be too much of this silo, or of all.
        """
        parts = self._held.setdefault(_silo(segments), {})
        if segments in parts:
            yield Reserved()
            return
        self._assert_room(_silo(segments), parts, size)
        parts[segments] = size
        reserved = Reserved()
        try:
            yield reserved
        finally:
            if not reserved.kept:
                parts.pop(segments, None)

    def forget(self, segments: tuple[str, ...]) -> None:
        """All under these segments is scrubbed."""
        for silo, parts in list(self._held.items()):
            for part in [one for one in parts if one[: len(segments)] == segments]:
                del parts[part]
            if not parts:
                del self._held[silo]

    def _assert_room(self, silo: str, parts: dict[tuple[str, ...], int], size: int) -> None:
        limits = self.limits
        held = sum(parts.values())
        if limits.silo_bytes is not None and held + size > limits.silo_bytes:
            raise QuotaReached(
                f"silo_bytes_max: expected at most {limits.silo_bytes} bytes of {silo} here, got {held} and "
                f"{size} more; send it again when a round has ended"
            )
        if limits.silo_parts is not None and len(parts) + 1 > limits.silo_parts:
            raise QuotaReached(
                f"silo_parts_max: expected at most {limits.silo_parts} parts of {silo} here, got one more; "
                "send it again when a round has ended"
            )
        if self.held_bytes + size > limits.all_bytes:
            raise QuotaReached(
                f"storage_bytes_max: expected at most {limits.all_bytes} bytes of parts here, and {size} "
                "more would pass it; send it again when a round has ended"
            )


def _silo(segments: tuple[str, ...]) -> str:
    """``<ctx>/<silo>/<part>``; what has another form counts under the name of what it lies in."""
    return segments[1] if len(segments) > 2 else segments[0]
