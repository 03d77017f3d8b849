"""The terms of one pairwise round, and the threshold they must have against whom a silo assumes hostile.

The server names the terms; each silo judges them by its *own* assumptions before it makes a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.errors import NotAllowed, NotFound
from privacy.ids import Digest, HexContext, HexDigest, PartyId, PartyName, SiloId
from privacy.plan import CohortMember, RoundPlan
from privacy.secagg.pairwise.faults import WeakTerms
from privacy.secagg.parts import Stretch, part_count, stretch
from privacy.secagg.vectors import MAX_VECTORS, MODEL, Places, VectorLength, VectorName, vectors_of

MAX_SILOS = 100
"""The graph of masks is complete: beyond this, a sparse graph (Bell et al. 2020) is the better tool."""


class PairwiseTerms(Frozen):
    """What the five steps of one round are bound to. A silo's Shamir index is its place in the cohort."""

    context: HexContext
    model: HexDigest
    """Digest of the model that the plan names; each silo also hashes what it received itself."""
    server: PartyName
    cohort: Annotated[tuple[CohortMember, ...], Field(min_length=2, max_length=MAX_SILOS)]
    vector_length: Annotated[int, Field(ge=1)]
    """Elements of the first vector, ``model``."""
    further: Annotated[tuple[VectorLength, ...], Field(max_length=MAX_VECTORS - 1)] = Field(
        default=(), exclude_if=lambda vectors: not vectors
    )
    """The round's other vectors, in the plan's order; not spelled where there are none."""
    threshold: Annotated[int, Field(ge=2, le=MAX_SILOS)]
    """t: this many silos open masks, and fewer cannot. At 1 a share would be the secret itself."""
    minimum: Annotated[int, Field(ge=2, le=MAX_SILOS)]
    """Fewest updates that a sum may be made of, by policy."""

    @model_validator(mode="after")
    def _silos_are_sorted_and_distinct(self) -> Self:
        silos = [member.silo for member in self.cohort]
        if silos != sorted(set(silos)):
            raise ValueError("cohort: expected distinct silos, sorted")
        if len({member.verify_key for member in self.cohort}) != len(silos):
            raise ValueError("cohort: expected distinct keys")
        if len(self.lengths) != 1 + len(self.further):
            raise ValueError("further: expected distinct names of vectors, and not the model's")
        if self.required > len(silos):
            raise ValueError(f"threshold, minimum: expected at most {len(silos)} (the cohort)")
        return self

    @cached_property
    def digest(self) -> Digest:
        """Binds the terms into K, and so into every later message and mask."""
        return digest_of("sealsum/pairwise/terms/v1", self)

    @cached_property
    def lengths(self) -> dict[VectorName, int]:
        """Vector → its elements, in the order of every manifest."""
        return {MODEL: self.vector_length} | {vector.name: vector.length for vector in self.further}

    @cached_property
    def places(self) -> Places:
        """Where each part stands in a masked input's ``parts``."""
        return Places.of(self.lengths, part_count)

    def stretch_of(self, vector: VectorName, index: int) -> Stretch:
        """Part ``index`` of one of the round's vectors.

        Raises:
            NotFound: the round has no such vector. Unprocessable: the vector has no such part.
        """
        if vector not in self.lengths:
            raise NotFound(f"vector {vector!r}: this round has none of that name")
        return stretch(index, self.lengths[vector])

    @property
    def required(self) -> int:
        """Fewest silos at every step: enough to open, and enough to hide among."""
        return max(self.threshold, self.minimum)

    @cached_property
    def verify_keys(self) -> dict[SiloId, str]:
        """Silo → the key that it must sign with."""
        return {member.silo: member.verify_key for member in self.cohort}

    @cached_property
    def indices(self) -> dict[SiloId, int]:
        """Silo → its Shamir index, 1 to n: distinct, nonzero, and never read from a message."""
        return {member.silo: place for place, member in enumerate(self.cohort, start=1)}

    def verify_key_of(self, party: PartyId) -> str:
        """The signing key of a member of the cohort.

        Raises:
            NotAllowed: it is not in the cohort.
        """
        key = self.verify_keys.get(SiloId(party))
        if key is None:
            raise NotAllowed(f"party {party!r}: it is not in this round's cohort")
        return key


def terms_of(plan: RoundPlan, server: PartyId) -> PairwiseTerms:
    """The terms of the round that a plan describes; both sides derive them, so nobody can send others.

    Args:
        server: the aggregator that signed the plan's offer: it alone may read the shares of step 5.

    Raises:
        WeakTerms: no pairwise round can be had under this plan.
    """
    if plan.scheme != "pairwise" or plan.threshold is None:
        raise WeakTerms(f"plan.scheme: expected pairwise with a threshold, got {plan.scheme}")
    try:
        return PairwiseTerms(
            context=plan.context,
            model=plan.model,
            server=server,
            cohort=plan.cohort,
            vector_length=plan.vector_length,
            further=tuple(
                VectorLength(name=vector.name, length=vector.length)
                for vector in vectors_of(plan).vectors[1:]
            ),
            threshold=plan.threshold,
            minimum=plan.min_survivors,
        )
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        raise WeakTerms(f"plan.{'.'.join(map(str, fault['loc'])) or 'terms'}: {fault['msg']}") from error


@dataclass(frozen=True)
class Assumption:
    """Whom a silo assumes hostile; it comes from the silo's own threat model, never from the server."""

    aggregator: Literal["honest_but_curious", "malicious"]
    colluding_silos: int
    """c: silos that may put what they know together with the aggregator."""


def least_threshold(silos: int, assumed: Assumption) -> int:
    """The smallest t for a cohort of ``silos``.

    Honest but curious: t > c, or the colluders open masks by themselves (Bonawitz et al. 2017,
    section 6.1).
    Malicious: 2t > n + c, or two sets of survivors can both find t signers, since each of the n − c honest
    silos signs one set and a colluder signs both (section 6.2). Never below 2.
    """
    if assumed.aggregator == "malicious":
        return max(2, (silos + assumed.colluding_silos) // 2 + 1)
    return max(2, assumed.colluding_silos + 1)


def judge_terms(
    terms: PairwiseTerms, silo: SiloId, verify_key: str, pinned: Mapping[SiloId, str], assumed: Assumption
) -> None:
    """Refuse terms that this silo must not take part under.

    (1) This silo is in the cohort, under the key it signs with. (2) Every peer's key is the one that the
    roster pins: else the server could sign in a peer's name. (3) The threshold withstands ``assumed``.
    (4) A sum keeps two honest silos after the colluders take their own updates out of it.

    Raises:
        WeakTerms: (1) to (4).
    """
    # (1)
    if terms.verify_keys.get(silo) != verify_key:
        raise WeakTerms(f"cohort: expected silo {silo} under its own key; ask the aggregator for a new offer")
    # (2)
    for peer, key in terms.verify_keys.items():
        if pinned.get(peer) != key:
            raise WeakTerms(f"cohort: silo {peer} is not in the pinned roster under that key")
    # (3)
    least = least_threshold(len(terms.cohort), assumed)
    if terms.threshold < least:
        raise WeakTerms(
            f"threshold: expected at least {least} of {len(terms.cohort)} silos against {assumed.aggregator} "
            f"aggregator with {assumed.colluding_silos} colluding silos, got {terms.threshold}"
        )
    # (4)
    if terms.required < assumed.colluding_silos + 2:
        raise WeakTerms(
            f"minimum: expected at least {assumed.colluding_silos + 2}, so that two honest silos stay in "
            f"every sum, got {terms.required}; raise the minimum"
        )
