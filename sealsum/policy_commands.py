"""``sealsum policy``: read, check and explain threat models before anybody signs one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

import click

from policies.explain import explain as explain_model
from policies.findings import Finding, PolicyInvalid
from policies.loader import load_threat_model
from policies.profiles import PROFILES
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES
from sealsum.policy_file import read_policy, read_policy_text

NEEDS_OPENFHE = (
    "every silo and the aggregator need OpenFHE for this scheme (threshold_he.python); those without it "
    "refuse to start, and this machine was not asked"
)


@click.group()
def policy() -> None:
    """List, show, check and explain threat models."""


_POLICY = click.argument("policy_name", metavar="NAME|FILE")
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


@policy.command()
@_POLICY
@_JSON
def show(policy_name: str, as_json: bool) -> None:
    """Print a threat model; with --json, every field with its effective value."""
    loaded = read_policy(policy_name)
    if as_json:
        click.echo(json.dumps({"digest": loaded.digest, "model": loaded.model.model_dump(mode="json")}))
        return
    click.echo(f"# digest {loaded.digest}")
    click.echo(loaded.text, nl=not loaded.text.endswith("\n"))


@policy.command()
@_POLICY
@_JSON
def lint(policy_name: str, as_json: bool) -> None:
    """Check a threat model and report every fault; exits 0, or 78 if there are any."""
    text = read_policy_text(policy_name)
    try:
        loaded = load_threat_model(text)
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


@policy.command()
@_POLICY
@_JSON
def explain(policy_name: str, as_json: bool) -> None:
    """Say in sentences what a threat model protects against, what it does not, and why."""
    explanation = explain_model(read_policy(policy_name).model)
    if as_json:
        click.echo(json.dumps(asdict(explanation)))
        return
    click.echo(str(explanation))


def _plain(findings: Iterable[Finding]) -> list[dict[str, str]]:
    return [asdict(finding) for finding in findings]
