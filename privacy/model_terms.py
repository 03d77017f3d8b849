"""What a job says of a model: an adapter that silos have, and its tensors. Never code, never weights."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.ids import Digest, HexDigest, Name

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


Names = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.*]{1,128}$")]
"""Names of tensors or layers; ``*`` stands for any characters."""


class FrozenBase(Frozen):
    """A public model that stays as it is, but for the part of it that a job trains (docs/recipes.md)."""

    name: Name
    """What silos call it; each has its weights in a file of its own, listed in silo.yaml."""
    weights: HexDigest
    """Of the base's own terms and weights, as ``privacy.update.model_digest`` has it."""
    layout: tuple[TensorSpec, ...]
    """All its tensors."""
    trainable: tuple[Names, ...] = ()
    """Of its tensors, those that train."""
    low_rank: tuple[Names, ...] = ()
    """Of its linear layers, those to which a product of two thin matrices is added (Hu et al. 2021)."""
    rank: Count | None = None
    """How thin."""

    @model_validator(mode="after")
    def _something_trains(self) -> Self:
        if not self.trainable and not self.low_rank:
            raise ValueError("expected trainable or low_rank, got neither; name what the job trains")
        if bool(self.low_rank) != (self.rank is not None):
            raise ValueError("rank: expected with low_rank, and only with it")
        return self


class ModelTerms(Frozen):
    """Which model a job trains: an adapter that the silo already has, never code."""

    adapter: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.:A-Z]{0,127}$")]
    """``logistic``, ``mlp``, or ``package.module:Class`` named in the silo's own configuration."""
    inputs: Count
    hidden: tuple[Count, ...] = ()
    layout: tuple[TensorSpec, ...]
    """What is trained, sent and noised: every tensor, or with ``base`` the part that trains."""
    base: FrozenBase | None = Field(default=None, exclude_if=lambda base: base is None)
    standardise_weights: bool = Field(default=False, exclude_if=lambda asked: not asked)
    """Whether convolutions use their weights less each channel's mean, and of one length (docs/models.md)."""

    @property
    def parameters(self) -> int:
        """Length d of the flat model vector."""
        return sum(tensor.size for tensor in self.layout)

    @cached_property
    def architecture(self) -> Digest:
        """Digest that policies allow-list: adapter, sizes and layout, not the weights."""
        return digest_of("sealsum/architecture/v1", self)
