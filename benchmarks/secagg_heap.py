"""Freed memory stays with the benchmark's process, as with an agent that has run for a while.

Otherwise each round would fetch its memory from the system anew, which on a virtual machine takes as long as
encoding and masking what is in it, and varies more.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3), glibc


def keep_freed_memory() -> bool:
    """Ask the C library; whether it is one that can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, 1 << 30) and mallopt(_TRIM_THRESHOLD, (1 << 31) - 1))
