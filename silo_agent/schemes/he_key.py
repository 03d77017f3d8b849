"""The key that a job's silos share under ``bfv`` and ``ckks``: kept, fetched, or made by the first to ask.

The aggregator carries it sealed from silo to silo. It cannot read it (HPKE), put another recipient in a
silo's place (sealing keys are in the charter), or bring a key of its own (a silo of the roster signs it).
"""

from __future__ import annotations

import logging

from policies.findings import Finding, PolicyRefusal
from privacy.errors import ConfigurationError, Conflict, NotAllowed, PeerFault
from privacy.identity import SealingKey
from privacy.ids import PartyId, SiloId
from privacy.plan import RoundPlan
from privacy.secagg.he.keys import HeKey, KeyUse, make_key, restore_key, unwrap_key, wrap_key
from privacy.secagg.he.messages import WrappedKey
from privacy.secagg.he.parameters import parameters_named
from privacy.wire.envelope import open_envelope, sign_message
from privacy.wire.messages import MAX_BYTES
from silo_agent.job_secrets import JobSecrets
from silo_agent.problems import Unreachable
from silo_agent.schemes.half import Seat

_log = logging.getLogger(__name__)


def use_of(plan: RoundPlan) -> KeyUse:
    """What the key of a round's job is good for."""
    return KeyUse(plan.federation, plan.roster_epoch, plan.job_digest, parameters_named(plan.he or ""))


def secrets_of(seat: Seat) -> JobSecrets:
    """Where this silo keeps keys of jobs."""
    return JobSecrets(seat.identity.directory)


def held_key(seat: Seat) -> HeKey | None:
    """The job's key as this silo keeps it."""
    secret = secrets_of(seat).read(seat.plan.job_digest)
    return None if secret is None else restore_key(use_of(seat.plan), secret)


def obtain_key(seat: Seat) -> HeKey:
    """The job's key, in this order:

    (1) kept from an earlier round; (2) sealed to us by the silo that made it; (3) made here, if nobody has;
    where another silo's came first after all, that one.

    Raises:
        PolicyRefusal: what the aggregator hands out is not a key of this job by a silo of the roster, sealed
            to us; this silo takes no part. Unreachable: no answer.
    """
    # (1)
    held = held_key(seat)
    if held is not None:
        return held
    try:
        key = _fetched(seat) or _made(seat)
    except Unreachable:
        raise
    except PeerFault as error:
        _log.warning("key_refused", extra={"job": seat.plan.job, "reason": str(error)})
        raise PolicyRefusal(f"key of job {seat.plan.job}", [_unusable(error.kind)]) from error
    secrets_of(seat).keep(seat.plan.job_digest, seat.plan.job, key.secret)
    return key


def _fetched(seat: Seat) -> HeKey | None:
    """(2) Signed by a silo of the roster, to this silo, under the job; then ``unwrap_key``'s checks."""
    envelope = seat.delivery.job_key(seat.plan.job)
    if envelope is None:
        return None

    def key_of_silo(party: PartyId) -> str:
        member = seat.charter.member(party)
        if member.role != "silo":
            raise NotAllowed(f"key: expected it from a silo, got {party}, a {member.role}")
        return member.verify_key

    wrapped = open_envelope(
        envelope,
        WrappedKey,
        kind="he_key",
        context=seat.plan.job_digest,
        verify_key_of=key_of_silo,
        recipient=seat.silo,
        max_bytes=MAX_BYTES["he_key"],
    )
    maker = SiloId(wrapped.sender)
    return unwrap_key(wrapped.message, use_of(seat.plan), maker, seat.silo, _sealing_key(seat))


def _made(seat: Seat) -> HeKey:
    """(3) Sealed to every silo of the roster, our own envelope among them: what all fetch is what we use."""
    key = make_key(use_of(seat.plan))
    sealed = [
        sign_message(
            wrap_key(key, seat.silo, silo, seat.charter.member(silo).sealing_key),
            "he_key",
            seat.plan.job_digest,
            seat.silo,
            seat.identity.signing,
            recipient=silo,
        )
        for silo in seat.charter.silos
    ]
    try:
        seat.delivery.offer_job_key(seat.plan.job, sealed)
    except Conflict:
        _log.info("key_raced", extra={"job": seat.plan.job})
    fetched = _fetched(seat)
    if fetched is None:
        raise Conflict("key: the aggregator took a key and hands out none")
    return fetched


def _sealing_key(seat: Seat) -> SealingKey:
    if seat.identity.sealing is None:
        raise ConfigurationError(
            f"{seat.identity.directory}/sealing.key: expected this silo's key; enrol again"
        )
    return seat.identity.sealing


def _unusable(kind: str) -> Finding:
    return Finding(
        "he.key",
        "The job's key cannot be taken from what the aggregator hands out.",
        "a key of this job and roster, made and signed by one of its silos, sealed to this silo",
        kind,
        "look at this silo's log, and ask the aggregator who sent the key",
    )
