"""``sealsum policy init``: asks who is trusted with what, shows the drawing, writes what follows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from policies.drawing import LEAST_INSTITUTIONS, Answers, Drawing, draw, terms_of
from policies.drawn_policy import policy_text
from policies.loader import load_threat_model
from privacy.errors import ConfigurationError

_YES_NO = click.Choice(("yes", "no"))


def _asked(
    flag: str, kind: Any, question: str, default: str | int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One question; given as an option it is not asked."""
    return click.option(flag, type=kind, prompt=question, default=default, show_default=True, help=question)


@click.command()
@_asked("--name", str, "Name of the policy", "our-federation")
@_asked(
    "--data-class",
    click.Choice(("patient", "financial", "synthetic")),
    "Whose data are they?",
    "patient",
)
@_asked("--institutions", click.IntRange(LEAST_INSTITUTIONS, 1000), "How many silos take part?", 5)
@_asked("--one-institution", _YES_NO, "Are they all sites of one legal entity?", "no")
@_asked(
    "--aggregator",
    click.Choice(("curious", "hostile")),
    "Who runs the aggregator: one who may look (curious), or one who may lie (hostile)?",
    "hostile",
)
@_asked(
    "--colluding",
    click.IntRange(0, 998),
    "How many silos might pool what they know, among themselves or with the aggregator?",
    1,
)
@_asked(
    "--operators",
    click.IntRange(0, 16),
    "How many organisations, none of them the aggregator's, would each run a share server?",
    2,
)
@_asked("--recipient", click.Choice(("silos", "external", "public")), "Who gets the model?", "silos")
@_asked("--records", click.IntRange(1, 10**9), "Fewest records that a silo brings?", 100)
@_asked("--records-per-person", click.IntRange(1, 1000), "Most records of one person?", 1)
@_asked("--poisoning", _YES_NO, "Might a silo try to spoil the model?", "yes")
@_asked("--tls-inspection", _YES_NO, "Does a proxy on the way open TLS?", "yes")
@_asked("--stays-online", _YES_NO, "Do silos stay connected through a whole round?", "yes")
@_asked("--approvers", click.IntRange(1, 3), "How many of a silo's people must agree to a job?", 2)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it here; never over a file."
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")
def init(
    out: Path | None,
    as_json: bool,
    one_institution: str,
    poisoning: str,
    tls_inspection: str,
    stays_online: str,
    **given: Any,
) -> None:
    """Draw the threat model first, then choose the lock: answer some questions and get a policy.

    Every question is an option, too. Exits 78 where no threat model can keep the answers together.
    """
    answers = Answers(
        **given,
        one_institution=one_institution == "yes",
        poisoning=poisoning == "yes",
        tls_inspection=tls_inspection == "yes",
        stays_online=stays_online == "yes",
    )
    terms = terms_of(answers)
    drawing, text = draw(answers, terms), policy_text(answers, terms)
    loaded = load_threat_model(text)
    if out is not None:
        _write(out, text)
    if as_json:
        answered = {"answers": asdict(answers), "drawing": asdict(drawing)}
        click.echo(json.dumps({**answered, "digest": loaded.digest, "policy": text}))
        return
    click.echo(_spoken(drawing))
    click.echo(
        f"Written to {out} (digest {loaded.digest})." if out else f"The policy:\n\n{text}", nl=bool(out)
    )


def _spoken(drawing: Drawing) -> str:
    lines = ["", "Who is trusted with what", *(f"  • {line}" for line in drawing.trusts), "", "Locks"]
    for lock in drawing.locks:
        lines += [f"  • {lock.line}", f"    because: {lock.because}"]
    lines += ["", "What stays open", *(f"  • {line}" for line in drawing.still_open), ""]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(
            f"--out {path}: expected a new file in a directory that exists ({error.strerror}); name another"
        ) from error
