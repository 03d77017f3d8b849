"""``sealsum readiness``: the questions before any threat model, asked one by one or given as options."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from sealsum.readiness import Advice, Situation, advise

_YES_NO = click.Choice(("yes", "no"))


def _asked(flag: str, kind: Any, question: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One question; given as an option it is not asked."""
    return click.option(flag, type=kind, prompt=question, help=question)


@click.command()
@_asked("--data-may-move", _YES_NO, "May the records be brought to one place, by law and by contract?")
@_asked(
    "--gain-over-local",
    click.Choice(("yes", "no", "unknown")),
    "Is a model of all clearly better than each institution's own?",
)
@_asked(
    "--label-skew",
    click.Choice(("mild", "strong", "one_label_each")),
    "How unevenly are labels spread over institutions?",
)
@_asked("--institutions", click.IntRange(1), "How many institutions?")
@_asked("--records", click.IntRange(0), "How many records in all, roughly?")
@_asked("--latency", click.Choice(("days", "minutes", "interactive")), "How soon must an answer be there?")
@_asked("--team", _YES_NO, "Is there somebody at each institution to run an agent and look at jobs?")
@_asked("--network", _YES_NO, "Can each institution reach the servers by outbound HTTPS?")
@_asked("--one-schema", _YES_NO, "Do all have the same columns, with the same meaning?")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def readiness(as_json: bool, **given: Any) -> None:
    """Ask whether federated learning fits at all, and say why, or why not.

    Two "no" advise against; one is named as the risk. Nothing is sent or stored.
    """
    advice = advise(Situation(**given))
    click.echo(json.dumps(asdict(advice)) if as_json else _spoken(advice))


def _spoken(advice: Advice) -> str:
    lines = [""]
    for answer in advice.answers:
        lines += [f"{answer.verdict:<5} {answer.question}", f"      {answer.reason}"]
    return "\n".join([*lines, "", f"{advice.conclusion}: {advice.sentence}"])
