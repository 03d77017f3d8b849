"""An object whose pickle does something when it is read, so that a test sees whether anybody read it."""

from __future__ import annotations

from typing import Any

TIMES: list[int] = []


def tell() -> None:
    """What reading the pickle does."""
    TIMES.append(1)


class Tells:
    """Pickles as a call of ``tell``."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return tell, ()
