"""Does federated learning fit at all? Answers to nine questions, each with its reason. Pure.

The numbers are those of docs/recipes.md and README.md; a test holds them against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

YesNo = Literal["yes", "no"]
Verdict = Literal["fits", "risk", "no"]
FEWEST_RECORDS = 200
ENOUGH_RECORDS = 500


@dataclass(frozen=True)
class Situation:
    """What those who ask know of themselves."""

    data_may_move: YesNo
    """To one place, by law and by contract."""
    gain_over_local: Literal["yes", "no", "unknown"]
    label_skew: Literal["mild", "strong", "one_label_each"]
    institutions: int
    records: int
    """Of all institutions together."""
    latency: Literal["days", "minutes", "interactive"]
    """How soon after a question its answer is needed."""
    team: YesNo
    network: YesNo
    """Outbound HTTPS from each institution."""
    one_schema: YesNo


@dataclass(frozen=True)
class Answer:
    """One question, answered."""

    question: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Advice:
    """All answers, and what follows from them."""

    conclusion: Literal["go on", "one risk", "advise against"]
    sentence: str
    answers: tuple[Answer, ...]


def advise(situation: Situation) -> Advice:
    """Two "no" advise against; one is named as the risk to settle first."""
    answers = tuple(_answers(situation))
    against = [answer for answer in answers if answer.verdict == "no"]
    risks = [answer for answer in answers if answer.verdict == "risk"]
    if len(against) >= 2:
        named = "; ".join(answer.question for answer in against)
        return Advice("advise against", f"Do not start yet. What speaks against it: {named}", answers)
    if against:
        sentence = f"Settle this first: {against[0].question} {against[0].reason}"
        return Advice("one risk", sentence, answers)
    watch = "" if not risks else f" Watch: {'; '.join(answer.question for answer in risks)}"
    return Advice("go on", f"It fits. Next: sealsum policy init.{watch}", answers)


def _answers(situation: Situation) -> Iterator[Answer]:
    yield _move(situation)
    yield _gain(situation)
    yield _skew(situation)
    yield _institutions(situation)
    yield _records(situation)
    yield _latency(situation)
    yield _plain(
        "Is there somebody at each institution to run an agent and to look at jobs?",
        situation.team,
        "each institution owns its budget, its approvals and its log: a person has to",
        "an agent that nobody watches refuses jobs that nobody has approved, and then everything waits",
    )
    yield _plain(
        "Can each institution reach the servers by outbound HTTPS?",
        situation.network,
        "agents dial out and accept no connection; a proxy that opens TLS reads no update",
        "agents have to dial out: ask for outbound HTTPS, through a proxy if need be",
    )
    yield _plain(
        "Do all institutions have the same columns, with the same meaning?",
        situation.one_schema,
        "a job names one data schema, and every silo reads its data by it",
        "a cell that the schema does not know ends the silo's part in a round: agree on a schema first",
    )


def _move(situation: Situation) -> Answer:
    question = "Must the records stay where they are?"
    if situation.data_may_move == "yes":
        return Answer(question, "no", "they may be brought to one place: pool them there, it is simpler")
    return Answer(question, "fits", "the records may not move, and only sums of noisy updates leave")


def _gain(situation: Situation) -> Answer:
    question = "Is a model of all better than each institution's own?"
    measured = (
        "measured: 8 × 8 digits at ε = 3, 97.2 percent right with dp_fedsgd and 91.8 by one silo alone; "
        "heart disease and breast cancer, one hospital alone 6 to 10 points of AUC behind"
    )
    if situation.gain_over_local == "no":
        return Answer(question, "no", f"then nobody gains by taking part ({measured})")
    if situation.gain_over_local == "unknown":
        return Answer(question, "risk", f"try first: sealsum tune on public or made-up records ({measured})")
    return Answer(question, "fits", measured)


def _skew(situation: Situation) -> Answer:
    question = "Does each institution see enough of every label?"
    if situation.label_skew == "mild":
        return Answer(question, "fits", "any algorithm of this release copes with it")
    measured = (
        "measured on digits sorted by label and cut in four, ε = 3: dp_fedsgd 97.2, as without skew; "
        "dp_fedavg 89.0 instead of 96.0"
    )
    if situation.label_skew == "strong":
        return Answer(question, "fits", f"use dp_fedsgd ({measured})")
    return Answer(
        question,
        "risk",
        f"use dp_fedsgd ({measured}); but with one label each, a model may learn to tell institutions apart "
        "instead, and none can test it on its own records",
    )


def _institutions(situation: Situation) -> Answer:
    question = "Are there enough institutions to hide among?"
    if situation.institutions < 3:
        return Answer(question, "no", "a sum of two tells each of them the other's update; find a third")
    if situation.institutions == 3:
        return Answer(question, "risk", "with three, nobody may drop out once one of them may collude")
    return Answer(
        question, "fits", f"of {situation.institutions}, up to {situation.institutions - 2} may collude"
    )


def _records(situation: Situation) -> Answer:
    question = "Are there enough records for noise to leave something?"
    noise = "noise is the same for few records as for many"
    if situation.records < FEWEST_RECORDS:
        return Answer(question, "no", f"{noise}: below some {FEWEST_RECORDS} in all, hardly anything is left")
    if situation.records < ENOUGH_RECORDS:
        return Answer(
            question,
            "risk",
            f"{noise}: use few coordinates, and read docs/recipes.md before you promise",
        )
    return Answer(question, "fits", "up to some thousands: logistic on fixed features (docs/recipes.md)")


def _latency(situation: Situation) -> Answer:
    question = "Can an answer wait for a job to be approved and run?"
    if situation.latency == "interactive":
        return Answer(question, "no", "people at each institution approve a job before a round begins")
    if situation.latency == "minutes":
        return Answer(
            question,
            "risk",
            "a round may take less than a second; people's approvals take longer",
        )
    return Answer(question, "fits", "approvals take people's time, and rounds then take seconds to hours")


def _plain(question: str, answer: YesNo, yes: str, no: str) -> Answer:
    return Answer(question, "fits", yes) if answer == "yes" else Answer(question, "no", no)
