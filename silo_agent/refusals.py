"""Why this silo takes no part, in words that may leave it: fixed sentences, never our errors' text.

An error's own message may name rows, columns and paths; it goes to the silo's log.
"""

from __future__ import annotations

from policies.findings import Finding, PolicyRefusal
from privacy.errors import (
    ConfigurationError,
    Conflict,
    MalformedMessage,
    NotAllowed,
    OutOfOrder,
    PeerFault,
    SealsumError,
    SignatureRejected,
    Unprocessable,
)
from privacy.ids import SiloId
from privacy.secagg.encoding import UpdateOutOfRange
from privacy.secagg.pairwise.faults import BadKey, BelowThreshold, Equivocation, WeakTerms
from privacy.secagg.threshold.faults import BadJointKey, KeyholderMissing, WorkerFailed
from privacy.wire.messages import Refusal
from silo_agent.ledger.admission import CapReached
from silo_agent.problems import Diverged, WentOn

_WORDS: tuple[tuple[type[SealsumError], Finding], ...] = (
    (
        UpdateOutOfRange,
        Finding(
            "update.out_of_range",
            "The update cannot be encoded under the plan's vector terms.",
            "finite coordinates within coordinate_bound, and a norm within validity.norm_bound",
            "another value",
            "lower the learning rate, or raise vector.coordinate_bound or validity.norm_bound",
        ),
    ),
    (
        Diverged,
        Finding(
            "training.diverged",
            "This silo's training diverged: a loss, gradient or update is not finite, or grew without bound.",
            "training that stays finite",
            "a divergence",
            "lower learning_rate or local_steps, set local.gradient_clip, or leave corrections out",
        ),
    ),
    (
        WeakTerms,
        Finding(
            "scheme.weak_terms",
            "The round's terms do not withstand whom this silo's threat model takes to be hostile.",
            "a threshold, a minimum and a cohort that this silo's own threat model and roster allow",
            "weaker terms",
            "plan the round by the stricter of both threat models, over the enrolled silos",
        ),
    ),
    (
        BelowThreshold,
        Finding(
            "scheme.too_few_silos",
            "Too few silos are left in the round for its sum to be opened.",
            "as many silos as threshold and minimum ask for",
            "fewer",
            "start a round when more silos are there",
        ),
    ),
    (
        BadKey,
        Finding(
            "scheme.bad_key",
            "A peer's key cannot be agreed with, or two peers claim it.",
            "a key of its own from each peer",
            "another",
            "look at the log of the aggregator, which relays keys",
        ),
    ),
    (
        Equivocation,
        Finding(
            "scheme.equivocation",
            "A second, different message came where the protocol allows one.",
            "the same messages for every silo, once",
            "others",
            "compare what the aggregator showed to each silo",
        ),
    ),
    (
        BadJointKey,
        Finding(
            "scheme.bad_joint_key",
            "The round's joint key is not the sum of the key shares that silos committed to.",
            "each silo's committed key share",
            "another",
            "compare what the aggregator showed to each silo, and start another round",
        ),
    ),
    (
        KeyholderMissing,
        Finding(
            "scheme.keyholder_missing",
            "A silo with a share in the round's joint key is gone.",
            "every silo whose share the joint key is made of",
            "fewer",
            "start another round",
        ),
    ),
    (
        WorkerFailed,
        Finding(
            "silo.openfhe_failed",
            "The silo's OpenFHE process ended or failed.",
            "a working process",
            "a failure",
            "ask the silo's owner",
        ),
    ),
    (
        WentOn,
        Finding(
            "round.went_on",
            "The round went on without this silo, or ended.",
            "a step that is open for this silo",
            "one that is not",
            "take part in the next round",
        ),
    ),
    (
        SignatureRejected,
        Finding(
            "offer.signature",
            "A signature does not hold.",
            "an offer and a job signed by their senders' enrolled keys",
            "another signature, sender or context",
            "sign again with the enrolled key, under the charter in force",
        ),
    ),
    (
        MalformedMessage,
        Finding(
            "offer.malformed",
            "A message cannot be read.",
            "canonical messages of this protocol",
            "something else",
            "use the same release of Sealsum at both ends",
        ),
    ),
    (
        NotAllowed,
        Finding(
            "offer.sender",
            "A sender is not in the roster.",
            "enrolled senders",
            "a stranger",
            "enrol the party and seal a new charter",
        ),
    ),
    (
        OutOfOrder,
        Finding(
            "round.answered",
            "The silo answered this round, or a later one, before; after a crash it stays charged.",
            "a round after the last one",
            "an earlier round",
            "go on with the next round",
        ),
    ),
    (
        Conflict,
        Finding(
            "ledger.conflict",
            "The silo's ledger does not take this round.",
            "a new round of a job whose delta and mechanism stay as they were",
            "another",
            "go on with the next round, or submit the changed terms as a new job",
        ),
    ),
    (
        Unprocessable,
        Finding(
            "model.digest",
            "The model received is not the plan's.",
            "the model whose digest the plan names",
            "other bytes",
            "publish the plan's model",
        ),
    ),
    (
        PeerFault,
        Finding(
            "silo.unreachable",
            "The silo could not fetch what the round needs.",
            "an answer",
            "none",
            "look at the servers' logs",
        ),
    ),
    (
        ConfigurationError,
        Finding(
            "silo.configuration",
            "The silo's data or settings do not fit the job; its own log says where.",
            "data in the job's schema and settings that load",
            "something else",
            "ask the silo's owner",
        ),
    ),
    (
        SealsumError,
        Finding(
            "silo.failure",
            "The silo failed; its own log says where.",
            "a working silo",
            "a failure",
            "ask the silo's owner",
        ),
    ),
)
"""The first class that fits gives the words, so kinds stand before their parents."""


def finding_of(error: SealsumError) -> Finding:
    """The public words for an error."""
    if isinstance(error, PolicyRefusal):
        return error.findings[0]
    if isinstance(error, CapReached):
        return Finding(
            f"budget.{error.cap}",
            "The dataset's privacy budget at this silo does not allow the round.",
            f"a round within the silo's cap on {error.cap}",
            "a round that would pass it",
            "end the job, ask for less, or have the data's owner raise the cap",
        )
    return next(words for kind, words in _WORDS if isinstance(error, kind))


def refusal_of(error: SealsumError, silo: SiloId) -> Refusal:
    """What is signed and sent to the aggregator."""
    words = finding_of(error)
    return Refusal(
        silo=silo,
        rule=words.rule,
        sentence=words.sentence,
        expected=words.expected,
        got=words.got,
        remedy=words.remedy,
    )
