"""The sum of silos' updates, by the real path from encoding to opening, and a plain one that equals it.

``secure_ring_sum`` cuts no corner of ``additive``: fresh dither, one sharing a silo, seeds sealed to their
servers, each server's own half, all shares added. ``plain_ring_sum`` leaves the masks out: what is opened is
the same ring element by element, for sweeps of thousands of rounds. Knows no training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privacy.errors import Unprocessable
from privacy.identity import SealingKey
from privacy.ids import ServerId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.additive import (
    AdditiveSiloHalf,
    Ring,
    SeedSumHalf,
    VectorSumHalf,
    combine,
    ring_to_bytes,
    unseal_seed,
)
from privacy.secagg.encoding import decode
from privacy.secagg.packing import unpack
from privacy.secagg.parts import stretches
from privacy.secagg.vectors import MODEL, NamedVector, VectorName, mean, total_weight, vectors_of
from silo_agent.encoded import EncodedUpdate
from silo_agent.update import Update

Weights: TypeAlias = Mapping[SiloId, float]
RingSum: TypeAlias = Callable[[RoundPlan, Mapping[SiloId, Update], Weights], Ring]
EVEN: Weights = {}
"""Every silo weighs 1."""


def secure_sum(
    plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights = EVEN
) -> NDArray[np.float64]:
    """Σ ŵ·Δ over the silos that sent an update, as the aggregator opens it: float64[d].

    Raises:
        Unprocessable, UpdateOutOfRange: as ``secure_ring_sum``.
    """
    total = secure_ring_sum(plan, updates, weights)[:-1]
    return decode(unpack(total, plan.vector, len(updates))[: plan.coordinates], plan.vector)


@dataclass(frozen=True)
class Sum:
    """The one value of a round that the server step goes on with."""

    total: NDArray[np.float64] = field(repr=False)
    """Σ ŵ·Δ, float64[d]."""
    weight: float
    """Σ ŵ, as it was opened."""
    further: Mapping[VectorName, tuple[float, ...]] = field(default_factory=dict)
    """What the plan's further vectors open to."""


def open_sum(plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights, add: RingSum) -> Sum:
    """Add up by ``add``, and check the opened weight before anything is divided by it.

    Raises:
        WeightImplausible: the opened weight is none that the survivors can have: masks did not cancel.
        Unprocessable, UpdateOutOfRange: as ``secure_ring_sum``.
    """
    total = add(plan, updates, weights)
    vector = NamedVector(name=MODEL, coordinates=plan.coordinates, terms=plan.vector)
    weight = total_weight(vector, total, len(updates))
    steps = unpack(total[:-1], plan.vector, len(updates))[: plan.coordinates]
    return Sum(decode(steps, plan.vector), weight.value, _open_further(plan, updates, weights))


def _open_further(
    plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights
) -> dict[VectorName, tuple[float, ...]]:
    """The vectors beside the model's, encoded and added up without masks, whatever adds the model's."""
    opened = {}
    for vector in vectors_of(plan).vectors[1:]:
        total = np.zeros(vector.length, dtype=np.uint32)
        for silo, update in updates.items():
            encoded = EncodedUpdate(plan, update, weights.get(silo, 1.0))
            total += encoded.elements(0, vector.length, vector.name)
        coordinates = total[: vector.coordinates]
        if vector.weighted:
            read = mean(vector, coordinates, total_weight(vector, total, len(updates)))
        else:
            read = decode(coordinates, vector.terms)
        opened[vector.name] = tuple(read.tolist())
    return opened


def secure_ring_sum(plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights = EVEN) -> Ring:
    """Encode, share, seal, add at each server, combine: uint32[vector_length].

    Args:
        updates: of the survivors; the other silos of the plan have dropped out.
        weights: ŵ in (0, 1], 1 for whoever is left out.

    Raises:
        Unprocessable: the plan is not of ``additive``, a silo is not invited, fewer survive than the plan
            asks for, or the sum could wrap. UpdateOutOfRange: a coordinate is beyond the plan's bound.
    """
    refuse_unsound(plan, updates)
    # The aggregator: all servers' shares.
    shares = [ring_to_bytes(share) for share in shares_of_servers(plan, updates, weights)]
    return combine(shares, plan.vector_length)


def shares_of_servers(
    plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights = EVEN
) -> list[Ring]:
    """What each share server of the plan adds up to, uint32[vector_length], the first server's last: noise,
    unless all of them are added.

    Raises:
        UpdateOutOfRange: a coordinate is beyond the plan's bound.
    """
    # Share servers, before the round: a sealing key each, but the first, which gets no seed.
    _, *others = (slot.server for slot in plan.servers)
    keys: dict[ServerId, SealingKey] = {server: SealingKey.generate() for server in others}
    public = {server: key.public_hex for server, key in keys.items()}
    # Silos: a masked vector for the first server, in parts, and a sealed seed for each other one.
    parts: dict[SiloId, list[bytes]] = {}
    sealed: dict[ServerId, dict[SiloId, bytes]] = {server: {} for server in others}
    for silo, update in updates.items():
        encoded = EncodedUpdate(plan, update, weights.get(silo, 1.0))
        half = AdditiveSiloHalf(plan.context, plan.model, silo, public)
        parts[silo] = [
            ring_to_bytes(half.share(piece.start, encoded.elements(piece.start, piece.length)))
            for piece in stretches(plan.vector_length)
        ]
        for server, seed in half.sealed_seeds.items():
            sealed[server][silo] = seed
    # Share servers: each adds up what it holds, and knows nothing else.
    halves = [
        SeedSumHalf(
            [
                (silo, unseal_seed(seed, keys[server], plan.context, plan.model, silo, server))
                for silo, seed in sealed[server].items()
            ],
            plan.context,
            plan.model,
            server,
        )
        for server in others
    ]
    pieces = list(stretches(plan.vector_length))
    shares = [np.concatenate([half.total(one.start, one.length) for one in pieces]) for half in halves]
    vectors = [
        VectorSumHalf.total((parts[silo][one.index] for silo in updates), one.length) for one in pieces
    ]
    return [*shares, np.concatenate(vectors)]


def plain_ring_sum(plan: RoundPlan, updates: Mapping[SiloId, Update], weights: Weights = EVEN) -> Ring:
    """The same encodings added up without masks: uint32[vector_length]. Raises as ``secure_ring_sum``."""
    refuse_unsound(plan, updates)
    total = np.zeros(plan.vector_length, dtype=np.uint32)
    for silo, update in updates.items():
        total += EncodedUpdate(plan, update, weights.get(silo, 1.0)).elements(0, plan.vector_length)
    return total


def refuse_unsound(plan: RoundPlan, updates: Mapping[SiloId, Update]) -> None:
    """Whether the plan lets these updates be added.

    Raises:
        Unprocessable: not of ``additive``, a silo was not invited, too few are left, or the sum could wrap.
    """
    if plan.scheme != "additive":
        raise Unprocessable(f"scheme: expected additive, got {plan.scheme}; the simulator adds no other way")
    if strangers := sorted(set(updates) - set(plan.silos)):
        raise Unprocessable(f"updates: expected silos of the plan, got also {', '.join(strangers)}")
    if len(updates) < plan.min_survivors:
        raise Unprocessable(f"updates: expected {plan.min_survivors} or more, got {len(updates)}")
    vectors_of(plan).assert_fit(len(updates))
