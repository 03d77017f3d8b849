"""What a job says of a model: an adapter that silos have, and its tensors. Never code, never weights."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen, digest_of
from privacy.ids import Digest

Count = Annotated[int, Field(ge=1)]


class TensorSpec(Frozen):
    """One named tensor of a model; C order, float32."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")]
    shape: tuple[Count, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


class ModelTerms(Frozen):
    """Which model a job trains: an adapter that the silo already has, never code."""

    adapter: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.:A-Z]{0,127}$")]
    """``logistic``, ``mlp``, or ``package.module:Class`` named in the silo's own configuration."""
    inputs: Count
    hidden: tuple[Count, ...] = ()
    layout: tuple[TensorSpec, ...]

    @property
    def parameters(self) -> int:
        """Length d of the flat model vector."""
        return sum(tensor.size for tensor in self.layout)

    @cached_property
    def architecture(self) -> Digest:
        """Digest that policies allow-list: adapter, sizes and layout, not the weights."""
        return digest_of("sealsum/architecture/v1", self)
