"""Where private steps are computed, and how their matrices are multiplied: what silo.yaml's owner chose.

Under ``bf16`` layers multiply in bfloat16, forward and backward. What a layer was given and what came back to
it are then numbers of few bits, but numbers all the same: a unit's gradient is the sum of *their* outer
products, in float32 or better, and its norm is computed from that very sum. So clipping holds what is added
within C, however coarse it is; a unit's norm in bfloat16 would come out too short.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from privacy.errors import ConfigurationError

Precision = Literal["float32", "bf16"]


@dataclass(frozen=True)
class Place:
    """A device that is there, and a precision."""

    device: str = "cpu"
    precision: Precision = "float32"
    threads: int = 1
    """Of the processor; the same in all rounds, for kernels cut their sums by it."""

    def __str__(self) -> str:
        told = f"{self.device}, {self.precision}"
        return told if self.threads == 1 else f"{told}, {self.threads} threads"


HERE = Place()
"""The processor, in float32."""


def place_for(device: str, precision: Precision = "float32", threads: int = 1) -> Place:
    """The device that the settings name; ``auto`` is the first GPU if there is one, and the processor if not.

    Raises:
        ConfigurationError: torch does not see it. A silo never computes elsewhere unsaid.
    """
    seen = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    wanted = {"auto": seen[min(1, len(seen) - 1)], "cuda": "cuda:0"}.get(device, device)
    if wanted not in seen:
        raise ConfigurationError(
            f"device: expected one that torch sees here ({', '.join(seen)}), got {device}; install a driver "
            "and a CUDA build of torch, or write device: cpu"
        )
    if wanted != "cpu":
        _in_one_order()
    return Place(wanted, precision, threads)


def assert_full_products() -> None:
    """Refuse a process in which float32 products are less than that: bounds of rounding would not hold.

    Raises:
        ConfigurationError: somebody, such as a model adapter's module, has asked torch for coarser ones.
    """
    asked = torch.get_float32_matmul_precision()
    if asked != "highest":
        raise ConfigurationError(
            f"float32 products: expected the precision highest, got {asked}; take "
            "set_float32_matmul_precision out of the model adapter, and write precision: bf16 in silo.yaml"
        )


@contextmanager
def multiplied(device: torch.device, precision: Precision) -> Iterator[None]:
    """Forward passes inside multiply in that precision."""
    if precision == "float32":
        yield
        return
    with torch.autocast(device.type, dtype=torch.bfloat16):
        yield


def _in_one_order() -> None:
    """On a GPU: whole float32 products, and kernels that add in the same order each time (ADR 26)."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
