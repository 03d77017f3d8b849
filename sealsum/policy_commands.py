"""``sealsum policy``: read, check and explain threat models before anybody signs one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from policies.explain import explain as explain_model
from policies.findings import Finding, PolicyInvalid
from policies.loader import LoadedPolicy, load_threat_model
from policies.profiles import PROFILES, profile_text
from policies.yaml_text import MAX_BYTES
from privacy.errors import ConfigurationError
from privacy.secagg.threshold.parameters import JOINT_KEY_SCHEMES

NEEDS_OPENFHE = (
    "every silo and the aggregator need OpenFHE for this scheme (threshold_he.python); those without it "
    "refuse to start, and this machine was not asked"
)


def read_policy_text(name_or_path: str) -> str:
    """The text of a shipped profile, or of a file.

    Raises:
        ConfigurationError: neither a profile nor a readable text file.
    """
    if name_or_path in PROFILES:
        return profile_text(name_or_path)
    path = Path(name_or_path)
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"policy: expected a file or one of the profiles {', '.join(PROFILES)}; got {name_or_path!r}"
            )
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"policy {path}: expected a readable UTF-8 file; got {type(error).__name__}"
        ) from error


def read_policy(name_or_path: str) -> LoadedPolicy:
    """The threat model of a shipped profile, or of a file.

    Raises:
        ConfigurationError: neither a profile nor a readable text file.
        PolicyInvalid: with every fault of the file.
    """
    return load_threat_model(read_policy_text(name_or_path))


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
