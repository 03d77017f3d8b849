"""What a threat model's secure-aggregation scheme keeps hidden, from whom, and who together can undo it.

One entry a scheme: what "only the sum" rests on, what "one sum a round" rests on, what a proxy meets, and
whose collusion opens single updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from policies.assumption import assumption_of, colluding_silos
from policies.schema import ThreatModel
from policies.sentence import Sentence, counted, spoken
from privacy.secagg.pairwise.terms import Assumption, least_threshold


@dataclass(frozen=True)
class _Words:
    """The scheme's own part of each sentence."""

    hidden_by: str
    one_sum: Sentence
    sealed: str
    together: tuple[Sentence, ...]


def sum_only(model: ThreatModel) -> Iterator[Sentence]:
    """What the scheme protects."""
    spec = model.spec
    words = _words(model)
    yield Sentence(
        f"The {spoken(spec.assume.aggregator.behaviour)} aggregator sees no silo's update, only the sum over "
        f"at least {spec.limits.min_silos_open} {counted(model)}, once a round.",
        f"{words.hidden_by} (scheme {spec.require.secagg.scheme})",
    )
    colluding = colluding_silos(spec)
    if colluding:
        honest = spec.limits.min_silos_open - colluding
        who = "One silo that colludes" if colluding == 1 else f"{colluding} silos that collude"
        yield Sentence(
            f"{who}, with or without the aggregator, can take only their own part out of a sum: the others "
            f"stay a sum of at least {honest}.",
            f"no more than {colluding} collude; min_silos_open is {spec.limits.min_silos_open}",
        )
    yield words.one_sum
    if spec.assume.network.tls_inspection:
        yield Sentence(
            "A proxy that opens TLS can read no update and alter no message unnoticed.", words.sealed
        )


def parties_together(model: ThreatModel) -> Iterator[Sentence]:
    """Whose collusion the scheme does not withstand."""
    yield from _words(model).together


def _words(model: ThreatModel) -> _Words:
    return _BY_SCHEME[model.spec.require.secagg.scheme](model)


def _missing(model: ThreatModel) -> str:
    return f"{model.spec.limits.max_dropouts or 'none'} of the invited silos may be missing from it."


def _still_noised(model: ThreatModel, reason: str) -> str:
    return (
        f"{reason}; what they then read still carries the silo's noise" if model.spec.require.dp else reason
    )


def _additive(model: ThreatModel) -> _Words:
    servers = model.spec.assume.share_servers
    if servers is None:
        raise ValueError("assume.share_servers: expected it with additive; the loader refuses its absence")
    operators = f", run by {servers.count} different operators," if servers.distinct_operators else ""
    together = [
        Sentence(
            f"All {servers.count} share servers together: they can read every update.",
            _still_noised(model, "additive sharing needs one honest share server"),
        )
    ]
    if not servers.distinct_operators:
        together.append(
            Sentence(
                "The operator of the share servers, who can put the shares together.",
                "distinct_operators is false: the split guards against a stolen disk only",
            )
        )
    return _Words(
        f"no more than {servers.max_colluding} of {servers.count} share servers{operators} collude",
        Sentence(
            "The aggregator cannot compare two sums of a round: every share server releases one a round, and "
            f"never another; {_missing(model)}",
            "at least one share server is honest",
        ),
        "seeds are sealed to the share servers' keys and messages are signed with roster keys",
        tuple(together),
    )


def _pairwise(model: ThreatModel) -> _Words:
    limits, assumed = model.spec.limits, assumption_of(model.spec)
    silos = limits.min_silos_open + limits.max_dropouts
    threshold = least_threshold(silos, assumed)
    rule = "2t > n + c" if assumed.aggregator == "malicious" else "t > c"
    return _Words(
        f"the aggregator is the one server; t of n silos open masks, fewer cannot ({threshold} of {silos}, "
        f"by {rule} with c = {assumed.colluding_silos} colluding), and each silo checks t by its own threat "
        "model before it makes a key",
        Sentence(
            "The aggregator cannot compare two sums of a round: each silo signs one set of survivors and "
            f"unmasks that set only; {_missing(model)}",
            "two sets cannot both find t signers (2t > n + c)"
            if assumed.aggregator == "malicious"
            else "the aggregator follows the protocol: a malicious one could show silos different sets",
        ),
        "updates are masked, shares of the masks' keys are sealed silo to silo, and messages are signed with "
        "roster keys",
        (
            Sentence(
                f"The aggregator with {assumed.colluding_silos + 1} or more silos: enough of them open every "
                "update.",
                _still_noised(model, _beyond(assumed)),
            ),
        ),
    )


def _beyond(assumed: Assumption) -> str:
    """Why more colluders than assumed are too many."""
    many = (
        "a lying aggregator may collect t shares of both kinds of one silo"
        if assumed.aggregator == "malicious"
        else "they hold t shares of every mask"
    )
    return f"t is chosen for c = {assumed.colluding_silos}; with more, {many}"


def _one_key(model: ThreatModel) -> _Words:
    return _Words(
        "all silos hold one secret key and the aggregator does not: it is honest but curious, and no silo "
        "colludes with it",
        Sentence(
            f"The aggregator gets one sum a round: a silo opens one and never another; {_missing(model)}",
            "the aggregator follows the protocol, and each silo refuses a second opening",
        ),
        "updates are encrypted, their key is sealed silo to silo, and messages are signed with roster keys",
        (
            Sentence(
                "The aggregator with any single silo: it can read every update.",
                _still_noised(model, "one key at all silos opens every ciphertext of the job"),
            ),
            Sentence(
                "Whoever steals the key from one silo and ciphertexts from the network or the aggregator.",
                "one key at all silos; it lives as long as the job",
            ),
            Sentence(
                "An aggregator that departs from the protocol: scaled or replaced ciphertexts pass unseen, "
                "and the sum it has silos open can be one silo's update.",
                f"assume.aggregator.behaviour is {model.spec.assume.aggregator.behaviour}",
            ),
        ),
    )


def _threshold(model: ThreatModel) -> _Words:
    flooded = model.spec.require.secagg.scheme == "threshold_bfv"
    return _Words(
        "each silo holds one part of the key, and fewer than all parts open nothing: "
        + (
            "all silos but one may collude with the aggregator"
            if flooded
            else "the aggregator is honest but curious, and no silo colludes with it"
        ),
        Sentence(
            "The aggregator cannot compare two sums of a round: each silo gives one partial decryption, of "
            f"the sum of the cohort's signed ciphertexts, and never another; {_missing(model)}",
            "at least one silo of the cohort is honest"
            if flooded
            else "the aggregator follows the protocol, and each silo refuses a second partial decryption",
        ),
        "updates are encrypted, no single party has the key, and messages are signed with roster keys",
        (
            Sentence(
                "The aggregator with all silos of the cohort but one: the last one's update is what remains.",
                _still_noised(model, "a sum less all its other parts is the last part"),
            ),
            Sentence(
                "Colluders that make key shares or ciphertexts otherwise than agreed.",
                "nothing proves that they are well formed: privacy against such colluders is not argued for",
            ),
            *_partly_flooded(model),
        ),
    )


def _partly_flooded(model: ThreatModel) -> Iterator[Sentence]:
    if model.spec.require.secagg.scheme == "threshold_ckks":
        yield Sentence(
            "An aggregator that attacks the key through the approximate sum, which it can compute unrounded.",
            "a key serves one round, and partial decryptions carry some 10 bits of noise, not the 40 that an "
            "argument needs; threshold_bfv has those",
        )


_BY_SCHEME: dict[str, Callable[[ThreatModel], _Words]] = {
    "additive": _additive,
    "pairwise": _pairwise,
    "bfv": _one_key,
    "ckks": _one_key,
    "threshold_bfv": _threshold,
    "threshold_ckks": _threshold,
}
