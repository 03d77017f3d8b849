"""The terms of one round of threshold encryption; each silo judges them by its own assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from privacy.canonical import Frozen, digest_of
from privacy.errors import NotAllowed
from privacy.ids import Digest, HexContext, HexDigest, HexKey, Name, PartyId, PartyName, SiloId
from privacy.plan import CohortMember, RoundPlan, VectorTerms
from privacy.secagg.pairwise.faults import WeakTerms
from privacy.secagg.threshold.parameters import (
    JOINT_KEY_SCHEMES,
    MAX_SILOS,
    ThresholdParameters,
    assert_fits,
    threshold_parameters_named,
)


class ThresholdTerms(Frozen):
    """What the steps of one round are bound to."""

    context: HexContext
    scheme: Literal["threshold_bfv", "threshold_ckks"]
    parameters: Name
    """An allow-listed row."""
    model: HexDigest
    server: PartyName
    server_key: HexKey
    """What the server signs the sum's manifest with."""
    cohort: Annotated[tuple[CohortMember, ...], Field(min_length=2, max_length=MAX_SILOS)]
    vector_length: Annotated[int, Field(ge=1)]
    vector: VectorTerms
    minimum: Annotated[int, Field(ge=2, le=MAX_SILOS)]
    """Fewest silos whose joint key is made and whose updates are summed, by policy."""

    @model_validator(mode="after")
    def _silos_are_sorted_and_distinct(self) -> Self:
        silos = [member.silo for member in self.cohort]
        if silos != sorted(set(silos)):
            raise ValueError("cohort: expected distinct silos, sorted")
        if len({member.verify_key for member in self.cohort} | {self.server_key}) != len(silos) + 1:
            raise ValueError("cohort, server_key: expected distinct keys")
        if self.minimum > len(silos):
            raise ValueError(f"minimum: expected at most {len(silos)} (the cohort)")
        return self

    @cached_property
    def digest(self) -> Digest:
        """Binds the terms into every commitment and key."""
        return digest_of("sealsum/threshold/terms/v1", self)

    @cached_property
    def row(self) -> ThresholdParameters:
        """The row of parameters; raises Unprocessable if it is not allow-listed."""
        return threshold_parameters_named(self.parameters)

    @cached_property
    def verify_keys(self) -> dict[SiloId, str]:
        """Silo → the key that it must sign with."""
        return {member.silo: member.verify_key for member in self.cohort}

    def verify_key_of(self, party: PartyId) -> str:
        """The signing key of a member of the cohort.

        Raises:
            NotAllowed: it is not in the cohort.
        """
        key = self.verify_keys.get(SiloId(party))
        if key is None:
            raise NotAllowed(f"party {party!r}: it is not in this round's cohort")
        return key

    def server_key_of(self, party: PartyId) -> str:
        """The server's signing key.

        Raises:
            NotAllowed: it is another party.
        """
        if party != self.server:
            raise NotAllowed(f"party {party!r}: expected the server {self.server}")
        return self.server_key


def terms_of(plan: RoundPlan, server: PartyId, server_key: str) -> ThresholdTerms:
    """The terms of the round that a plan describes; both sides derive them, so nobody can send others.

    Args:
        server: the aggregator that signed the plan's offer.
        server_key: what it signs with, by the roster.

    Raises:
        WeakTerms: no round under a joint key can be had under this plan. Unprocessable: no such row.
    """
    if plan.scheme not in JOINT_KEY_SCHEMES or plan.he is None:
        raise WeakTerms(f"plan.scheme: expected {' or '.join(JOINT_KEY_SCHEMES)}, got {plan.scheme}")
    threshold_parameters_named(plan.he)
    fields = {
        "context": plan.context,
        "scheme": plan.scheme,
        "parameters": plan.he,
        "model": plan.model,
        "server": server,
        "server_key": server_key,
        "cohort": plan.cohort,
        "vector_length": plan.vector_length,
        "vector": plan.vector,
        "minimum": plan.min_survivors,
    }
    try:
        return ThresholdTerms.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        raise WeakTerms(f"plan.{'.'.join(map(str, fault['loc'])) or 'terms'}: {fault['msg']}") from error


def judge_terms(
    terms: ThresholdTerms,
    silo: SiloId,
    verify_key: str,
    pinned: Mapping[SiloId, str],
    pinned_server: str,
    colluding_silos: int,
) -> None:
    """Refuse terms that this silo must not take part under.

    (1) This silo is in the cohort, under the key it signs with. (2) Every peer's key and the server's are
    the ones that the roster pins. (3) The row is allow-listed, and of the scheme that is named. (4) The worst
    sum of the whole cohort fits it. (5) A sum keeps two honest silos after the colluders take out their own.

    Raises:
        WeakTerms: (1), (2), (3), (5). Unprocessable: (3), (4).
    """
    # (1)
    if terms.verify_keys.get(silo) != verify_key:
        raise WeakTerms(f"cohort: expected silo {silo} under its own key; ask the aggregator for a new offer")
    # (2)
    for peer, key in terms.verify_keys.items():
        if pinned.get(peer) != key:
            raise WeakTerms(f"cohort: silo {peer} is not in the pinned roster under that key")
    if terms.server_key != pinned_server:
        raise WeakTerms(f"server_key: {terms.server} is not in the pinned roster under that key")
    # (3)
    if terms.scheme != f"threshold_{terms.row.scheme}":
        raise WeakTerms(f"parameters: {terms.parameters} is not of scheme {terms.scheme}")
    # (4)
    assert_fits(terms.row, terms.vector, len(terms.cohort))
    # (5)
    if terms.minimum < colluding_silos + 2:
        raise WeakTerms(
            f"minimum: expected at least {colluding_silos + 2}, so that two honest silos stay in every sum, "
            f"got {terms.minimum}; raise the minimum"
        )
