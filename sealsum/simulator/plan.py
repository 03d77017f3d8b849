"""The plan of a simulated round: real terms, and parties that exist in this process only.

No charter and no threat model stands behind it: their digests say so. Nothing here admits or signs.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from privacy.canonical import sha256_hex
from privacy.ids import Digest, JobId, PartyId, ServerId, SiloId
from privacy.plan import (
    CohortMember,
    DpTerms,
    ModelTerms,
    RoundPlan,
    ServerSlot,
    TrainingTerms,
    VectorTerms,
)
from privacy.sent import count_sent
from privacy.vector_terms import FurtherVector

NOBODY: Final = sha256_hex(b"sealsum/simulated/v1")
"""In place of the digests of a charter, a threat model and a signed job."""
LEAST_SILOS: Final = 2
"""Fewest in a sum."""


@dataclass(frozen=True)
class RoundTerms:
    """What all rounds of a simulated job share."""

    model: ModelTerms
    training: TrainingTerms
    dp: DpTerms | None
    vector: VectorTerms
    further: tuple[FurtherVector, ...] = ()
    job: Digest = NOBODY
    """Of the job: what a round draws which coordinates by."""


def simulated_plan(
    terms: RoundTerms,
    silos: Collection[SiloId],
    model: Digest,
    number: int = 1,
    rounds: int = 1,
    share_servers: int = 2,
) -> RoundPlan:
    """A plan of the ``additive`` scheme for round ``number``, under a session of its own.

    Args:
        silos: who is invited; whoever of them sends nothing has dropped out.
        model: digest of the model that the round starts from.

    Raises:
        ValidationError: no plan can have these terms, such as fewer than two silos or share servers.
    """
    return RoundPlan(
        session=os.urandom(16).hex(),
        federation="simulated",
        charter=NOBODY,
        roster_epoch=1,
        policy=NOBODY,
        job=JobId("simulated"),
        job_digest=terms.job,
        round=number,
        rounds=rounds,
        scheme="additive",
        architecture=terms.model.architecture,
        model=model,
        parameters=terms.model.parameters,
        sent=count_sent(terms.training, terms.model, number),
        cohort=tuple(CohortMember(silo=silo, verify_key=_no_key(silo)) for silo in sorted(silos)),
        servers=tuple(
            ServerSlot(server=server, verify_key=_no_key(server))
            for server in (ServerId(PartyId(f"share-server-{slot}")) for slot in range(share_servers))
        ),
        training=terms.training,
        dp=terms.dp,
        vector=terms.vector,
        further=terms.further,
        min_survivors=LEAST_SILOS,
        deadline_s=120,
    )


def _no_key(party: PartyId) -> Digest:
    # Nothing is signed in a simulation; a plan only asks that keys differ.
    return sha256_hex(b"sealsum/simulated/v1/" + party.encode())
