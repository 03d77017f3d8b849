"""``sealsum policy``: read, check, explain and compare threat models before anybody signs one."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from shutil import get_terminal_size
from typing import ClassVar

import click
from rich.console import Console
from rich.table import Table

from policies.explain import explain as explain_model
from policies.fields import spoken_value
from policies.findings import Finding, PolicyInvalid
from policies.loader import load_threat_model
from policies.profiles import PROFILES
from policies.strictness import changes
from policies.threat_table import LOCKS, Row, threat_table
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from sealsum.lazy_group import Lazy, LazyGroup
from sealsum.policy_file import read_policy, read_policy_text

NEEDS_OPENFHE = (
    "every silo and the aggregator need OpenFHE for this scheme (threshold_he.python); those without it "
    "refuse to start, and this machine was not asked"
)


class PolicyGroup(LazyGroup):
    """The commands below, and two that live in modules of their own."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "simulate": Lazy(
            "sealsum.policy_simulate_command:simulate", "Say whether a job would run, and what it would cost."
        ),
        "init": Lazy(
            "sealsum.policy_init_command:init", "Draw the threat model first, then choose the lock."
        ),
    }


@click.group(cls=PolicyGroup)
def policy() -> None:
    """Draw, check, explain, compare and try threat models."""


_POLICY = click.argument("policy_name", metavar="NAME|FILE")
_PARENTS = click.option(
    "--parent", "parents", multiple=True, metavar="NAME|FILE", help="A threat model that it extends."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@policy.command("list")
@_JSON
def list_profiles(as_json: bool) -> None:
    """List the profiles that come with Sealsum."""
    if as_json:
        click.echo(json.dumps([{"name": name, "for": purpose} for name, purpose in PROFILES.items()]))
        return
    width = max(len(name) for name in PROFILES)
    for name, purpose in PROFILES.items():
        click.echo(f"{name:<{width}}  {purpose}")


@policy.command(short_help="Print a threat model and its digest.")
@_POLICY
@_PARENTS
@_JSON
def show(policy_name: str, parents: tuple[str, ...], as_json: bool) -> None:
    """Print a threat model, and its digest to stderr; with --json, every field with its effective value."""
    loaded = read_policy(policy_name, parents)
    if as_json:
        click.echo(json.dumps({"digest": loaded.digest, "model": loaded.model.model_dump(mode="json")}))
        return
    click.echo(f"digest {loaded.digest}", err=True)  # a copy made by "> ours.yaml" keeps the digest
    click.echo(loaded.text, nl=False)


@policy.command(short_help="Check a threat model and report every fault.")
@_POLICY
@_PARENTS
@_JSON
def lint(policy_name: str, parents: tuple[str, ...], as_json: bool) -> None:
    """Check a threat model and report every fault; exits 0, or 78 if there are any."""
    text, above = read_policy_text(policy_name), [read_policy_text(parent) for parent in parents]
    try:
        loaded = load_threat_model(text, above)
    except PolicyInvalid as invalid:
        if not as_json:
            raise
        click.echo(json.dumps({"valid": False, "findings": _plain(invalid.findings)}))
        raise click.exceptions.Exit(invalid.exit_code) from invalid
    if as_json:
        click.echo(json.dumps({"valid": True, "digest": loaded.digest, "findings": []}))
        return
    metadata = loaded.model.metadata
    click.echo(f"{metadata.name} v{metadata.version}: no faults (digest {loaded.digest})")
    if loaded.model.spec.require.secagg.scheme in JOINT_KEY_SCHEMES:
        click.echo(f"note: {NEEDS_OPENFHE}")


@policy.command(short_help="Say in sentences what a threat model protects against.")
@_POLICY
@_PARENTS
@click.option("--table", "as_table", is_flag=True, help="Threat by threat, what each lock does against it.")
@_JSON
def explain(policy_name: str, parents: tuple[str, ...], as_table: bool, as_json: bool) -> None:
    """Say in sentences what a threat model protects against, what it does not, and why."""
    model = read_policy(policy_name, parents).model
    explanation, rows = explain_model(model), threat_table(model)
    if as_json:
        table = [asdict(row) | {"answered": row.answered} for row in rows]
        click.echo(json.dumps(asdict(explanation) | {"table": table}))
    elif as_table:
        print_table(rows)
    else:
        click.echo(str(explanation))


@policy.command(short_help="Say field by field what AFTER changes of BEFORE.")
@click.argument("before", metavar="NAME|FILE")
@click.argument("after", metavar="NAME|FILE")
@_PARENTS
@_JSON
def diff(before: str, after: str, parents: tuple[str, ...], as_json: bool) -> None:
    """Say field by field what AFTER tightens, loosens or changes of BEFORE, by the values in force."""
    old, new = read_policy(before, parents), read_policy(after, parents)
    found = list(changes(old.model, new.model))
    if as_json:
        plain = [
            {
                "field": change.path,
                "before": spoken_value(change.before),
                "after": spoken_value(change.after),
                "verdict": change.verdict,
            }
            for change in found
        ]
        click.echo(json.dumps({"before": old.digest, "after": new.digest, "changes": plain}))
        return
    for change in found:
        values = f"{spoken_value(change.before)} → {spoken_value(change.after)}"
        click.echo(f"{change.verdict:<10} {change.path}: {values}")
    if not found:
        click.echo("the same in every field" + ("" if old.digest == new.digest else "; the texts differ"))


def print_table(rows: Iterable[Row]) -> None:
    """Effects as a matrix, then the reason for each."""
    rows = list(rows)
    matrix = Table("threat", *LOCKS)
    for row in rows:
        effects = (row.cells[lock].effect for lock in LOCKS)
        matrix.add_row(row.threat, *("–" if effect == "not asked" else effect for effect in effects))
    Console(width=min(100, get_terminal_size((100, 24)).columns)).print(matrix)
    for row in rows:
        click.echo(f"\n{row.threat}")
        for lock, cell in row.cells.items():
            if cell.effect != "not asked":
                line = f"{lock} {cell.effect}: {cell.because}"
                click.echo(textwrap.fill(line, 100, initial_indent="  ", subsequent_indent="    "))


def _plain(findings: Iterable[Finding]) -> list[dict[str, str]]:
    return [asdict(finding) for finding in findings]
