"""Which coordinates of an update are sent in a round: terms that name a rule which anybody can compute.

All silos send the same ones, chosen by what is public. A set that a silo chose would tell of its records.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from privacy.canonical import Frozen, Real

LayerNames = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]{1,128}$")], ...],
    Field(max_length=1000, exclude_if=lambda names: not names),
]
"""Tensors by the beginnings of their names, or ``last``, as own parts are named."""


class SparseTerms(Frozen):
    """A part of the coordinates, another one in each round."""

    kind: Literal["random", "top"]
    """``random``: drawn by job and round. ``top``: half of them those that the global model has moved most
    since the job's first model, the rest drawn, so that none is left out for ever."""
    share: Annotated[Real, Field(gt=0, lt=1)]
    feedback: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """What was not sent stays at the silo and is added to the next round's update (Seide et al. 2014)."""
