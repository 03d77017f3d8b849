"""Draw the threat model first, then choose the lock: from answers about people to a policy file. Pure.

Knows no terminal. What it writes is judged by the loader like any other file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from policies.findings import Finding, PolicyInvalid
from privacy.secagg.pairwise.terms import MAX_SILOS

LEAST_INSTITUTIONS = 3
"""A sum of two tells each of them the other's update."""


@dataclass(frozen=True)
class Answers:
    """What the founders of a federation know of each other."""

    name: str
    data_class: Literal["patient", "financial", "synthetic"]
    institutions: int
    one_institution: bool
    """Whether all silos are sites of one legal entity."""
    aggregator: Literal["curious", "hostile"]
    colluding: int
    """Institutions that may pool what they know, among themselves or with the aggregator."""
    operators: int
    """Organisations that would each run one share server, none of them twice."""
    recipient: Literal["silos", "external", "public"]
    records: int
    """Fewest records that an institution brings."""
    records_per_person: int
    poisoning: bool
    """Whether an institution may try to spoil the model."""
    tls_inspection: bool
    stays_online: bool
    """Whether institutions stay connected through all steps of a round."""
    approvers: int


@dataclass(frozen=True)
class Lock:
    """A line of the policy, and the answer that it follows from."""

    line: str
    because: str


@dataclass(frozen=True)
class Drawing:
    """Who is trusted with what, which locks follow, and what stays open."""

    trusts: tuple[str, ...]
    locks: tuple[Lock, ...]
    feared: tuple[str, ...]
    """Rows of the threat table (``policies.threat_table``) that some lock has to answer."""
    still_open: tuple[str, ...]
    """Fears that no lock of this release answers here."""


@dataclass(frozen=True)
class Terms:
    """Numbers and words that follow from the answers."""

    scheme: Literal["additive", "pairwise", "bfv"]
    minimum: int
    witnesses: int
    dropouts: int
    behaviour: Literal["honest_but_curious", "malicious"]
    validity: Literal["none", "l2_bound"]
    epsilon: tuple[float, float, float]
    delta: float


def terms_of(answers: Answers) -> Terms:
    """Choose the locks.

    Raises:
        PolicyInvalid: answers that no threat model can keep together, each with what to do.
    """
    refused = list(_impossible(answers))
    if refused:
        raise PolicyInvalid("answers", refused)
    scheme = _scheme(answers)
    silos = answers.institutions if scheme != "pairwise" else min(answers.institutions, MAX_SILOS)
    least = max(answers.colluding + 2, LEAST_INSTITUTIONS)
    dropouts = min(max(1, silos // 5), silos - least)
    # Who is left must be t silos that unmask, or w that witness: 2t > n + c, and 2w > n + c.
    dropouts = min(dropouts, max(0, (silos - answers.colluding - 1) // 2))
    hostile = answers.aggregator == "hostile"
    return Terms(
        scheme=scheme,
        minimum=silos - dropouts,
        witnesses=min(silos - dropouts, (answers.institutions + answers.colluding) // 2 + 1),
        dropouts=dropouts,
        behaviour="malicious" if hostile else "honest_but_curious",
        validity="l2_bound" if answers.poisoning and scheme == "additive" else "none",
        epsilon={"silos": (0.3, 3, 8), "external": (0.3, 2, 4), "public": (0.2, 1, 1)}[answers.recipient],
        delta=min(1e-6, 10.0 ** -(math.ceil(math.log10(answers.records)) + 1)),
    )


def draw(answers: Answers, terms: Terms) -> Drawing:
    """The drawing, for people to agree on before they look at a policy."""
    return Drawing(
        tuple(_trusts(answers)), tuple(_locks(answers, terms)), tuple(_feared(answers)), _open(answers, terms)
    )


def _impossible(answers: Answers) -> Iterator[Finding]:
    hostile = answers.aggregator == "hostile"
    if answers.one_institution and (hostile or answers.colluding):
        yield Finding(
            "one_institution_against_others",
            "sites of one institution count as one against a hostile aggregator and against colluders",
            "an aggregator that is curious at most, and no colluding sites, with --one-institution",
            f"aggregator {answers.aggregator}, {answers.colluding} colluding",
            "run the aggregator yourselves, or find other institutions to hide among",
        )
    scheme = _scheme(answers)
    silos = answers.institutions if scheme != "pairwise" else min(answers.institutions, MAX_SILOS)
    if answers.colluding + 2 > silos:
        yield Finding(
            "too_many_colluders",
            "colluders subtract their own updates from the sum; at least two honest institutions must remain",
            f"at most {silos - 2} colluding of {silos} in a round",
            str(answers.colluding),
            "find more institutions, or keep those out whom you trust so little",
        )


def _scheme(answers: Answers) -> Literal["additive", "pairwise", "bfv"]:
    if answers.operators >= 2:
        return "additive"
    alone = answers.aggregator == "curious" and answers.colluding == 0
    return "bfv" if alone and not answers.stays_online else "pairwise"


def _trusts(answers: Answers) -> Iterator[str]:
    many = answers.institutions
    where = "sites of one institution" if answers.one_institution else "institutions"
    yield f"{many} {where}: each is trusted with its own records, and with those of nobody else."
    if answers.colluding:
        yield f"Up to {answers.colluding} of them may pool what they know, also with the aggregator."
    if answers.poisoning:
        yield "One of them may try to spoil the model."
    if answers.aggregator == "hostile":
        yield "The aggregator: trusted with nothing. It may lie, tamper, and choose whom to invite."
    else:
        yield "The aggregator: trusted to follow the protocol, and not to look away."
    if answers.operators >= 2:
        yield f"{answers.operators} share servers of as many operators: one of them is trusted to be honest."
    yield {
        "silos": "The model stays with the institutions, who see every parameter.",
        "external": "The model goes to researchers outside, who see every parameter.",
        "public": "Everybody gets the model, with every parameter, for good.",
    }[answers.recipient]
    if answers.tls_inspection:
        yield "A proxy on the way opens TLS: trusted to pass messages on, not to read or alter them."


def _locks(answers: Answers, terms: Terms) -> Iterator[Lock]:
    yield _scheme_lock(answers, terms)
    yield Lock(
        f"min_silos_open: {terms.minimum}, max_dropouts: {terms.dropouts}",
        f"with {answers.colluding} colluding, at least {terms.minimum - answers.colluding} others stay in "
        "every sum; and whoever may drop silos at will chooses which sum is opened",
    )
    round_, job, lifetime = terms.epsilon
    yield Lock(
        f"dp: local noise, ε of {round_:g} a round, {job:g} a job, {lifetime:g} for good",
        {
            "silos": "even a model that stays with the institutions tells them of each other's people",
            "external": "whoever has the parameters can test who was in the data",
            "public": "anybody may test the model for as long as they like, and nothing takes it back",
        }[answers.recipient],
    )
    if answers.records_per_person > 1:
        yield Lock(
            f"max_records_per_unit: {answers.records_per_person}",
            "a person's records are drawn and clipped together, so that the promise is made to the person",
        )
    if terms.validity != "none":
        yield Lock(
            f"validity: {terms.validity}",
            "an institution may spoil the model: servers check its update's length inside the shares",
        )
    yield Lock(
        f"approvals: {answers.approvers} of each institution's people a job",
        "nobody's data are used because a server asked for it",
    )
    yield Lock(
        f"evidence: {terms.witnesses} witnesses of each log",
        "a server that shows two histories must be found out, which takes an honest witness of both"
        if answers.aggregator == "hostile"
        else "what happened must be provable, whoever asks",
    )


def _scheme_lock(answers: Answers, terms: Terms) -> Lock:
    if terms.scheme == "additive":
        return Lock(
            f"scheme: additive over {answers.operators} share servers",
            f"{answers.operators} operators who do not share their keys: one honest one hides every update",
        )
    if terms.scheme == "bfv":
        return Lock(
            "scheme: bfv, one key at all silos",
            "one server, which is curious and has no silo's help; and silos that may leave in mid-round",
        )
    why = "no two operators for share servers, so institutions mask their updates for one another"
    if not answers.stays_online:
        why += f"; more than {terms.dropouts} that leave in mid-round cost the round"
    return Lock("scheme: pairwise, one server", why)


def _feared(answers: Answers) -> Iterator[str]:
    yield "curious_aggregator"
    if answers.aggregator == "hostile":
        yield "malicious_aggregator"
        yield "split_view"
    if answers.colluding >= 1:
        yield "aggregator_with_silo"
    if answers.colluding >= 2:
        yield "silos_pool"
    if answers.recipient != "silos":
        yield "membership"
    if answers.tls_inspection:
        yield "tls_proxy"
    if answers.poisoning:
        yield "poisoning"


def _open(answers: Answers, terms: Terms) -> tuple[str, ...]:
    """What the drawing shows and no lock holds."""
    found = ["Whoever controls an institution's own machine."]
    if answers.poisoning and terms.validity == "none":
        found.append(
            f"An institution that spoils the model: with {terms.scheme} nobody can check a hidden update. "
            "Two operators for share servers would make it possible."
        )
    elif answers.poisoning:
        found.append(
            "An institution that spoils the model with a share server's help, or within the bound on length."
        )
    return tuple(found)
