"""``sealsum audit redact`` and ``report``: a pack for other eyes, and a report with the verifier's word."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import click

from privacy.errors import ConfigurationError
from privacy.ids import JobName
from privacy.keystore import load_identity, read_file
from sealsum.evidence import sealed_pack, with_report
from sealsum.evidence_archive import read_zip
from sealsum.evidence_redaction import redacted, wished
from sealsum.evidence_verdict import verdict_of
from sealsum.report.content import Collected, report_of
from sealsum.report.html import html_report
from sealsum.report.pdf import pdf_report

_PACK = click.argument("pack", type=click.Path(path_type=Path, dir_okay=False, exists=True))
_OUTSIDE = ("manifest.json", "manifest.sig", "report.html", "report.pdf")


@click.command(short_help="Take fields and names out of a pack; proofs still hold.")
@_PACK
@click.option(
    "--field",
    "fields",
    multiple=True,
    required=True,
    help="log:FIELD, a field of all logs, or silo:NAME, what that silo handed over; once for each.",
)
@click.option("--reason", default="", help="Why, for REDACTIONS.json.")
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the member who signs the new pack.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Never replaced.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def redact(pack: Path, fields: tuple[str, ...], reason: str, state: Path, out: Path, as_json: bool) -> None:
    """Write to OUT a copy of PACK without these things; sealsum-verify says what is withheld."""
    _refuse_to_replace(out)
    wish, identity = wished(fields), load_identity(state)
    files = read_zip(read_file(pack), str(pack))
    manifest = json.loads(files["manifest.json"])
    created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    left = redacted({name: raw for name, raw in files.items() if name not in _OUTSIDE}, wish, reason)
    whole = with_report(
        left, Collected(identity.pin.party, created_at, f"--officers {identity.pin.officers}")
    )
    out.write_bytes(sealed_pack(whole, identity, JobName(manifest["job"]), created_at))
    listed = json.loads(left["REDACTIONS.json"])["redactions"]
    if as_json:
        click.echo(json.dumps({"pack": str(out), "redactions": listed}, ensure_ascii=False, indent=2))
        return
    for one in listed:
        what = "the whole file" if one["field"] == "*" else f"field {one['field']} of {one['count']} entries"
        click.echo(f"{one['entry']}: {what}")
    click.echo(f"{out}: verify it with: sealsum-verify {out} --officers {identity.pin.officers}")


@click.command(short_help="Verify a pack and write its report with the verdict.")
@_PACK
@click.option("--officers", metavar="DIGEST", help="The federation's officers, as you know them yourself.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for report.html and report.pdf; none is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(pack: Path, officers: str | None, out: Path, as_json: bool) -> None:
    """Run sealsum-verify on PACK and write the report that carries what it said; its exit code is ours."""
    targets = (out / "report.html", out / "report.pdf")
    for target in targets:
        _refuse_to_replace(target)
    files = read_zip(read_file(pack), str(pack))
    verdict = verdict_of(pack, officers)
    manifest = json.loads(files["manifest.json"])
    pin = f"--officers {officers or 'DIGEST'}"
    document = report_of(files, Collected(manifest["signer"], manifest["created_at"], pin), verdict)
    out.mkdir(parents=True, exist_ok=True)
    targets[0].write_bytes(html_report(document))
    targets[1].write_bytes(pdf_report(document))
    said = {"verified": verdict.verified, "pinned": verdict.pinned, "fault": verdict.fault or None}
    if as_json:
        click.echo(json.dumps(said | {"reports": [str(target) for target in targets]}, indent=2))
    else:
        click.echo(
            f"{'verified' if verdict.verified else 'NOT VERIFIED ' + verdict.fault}: "
            f"{', '.join(map(str, targets))}"
        )
    if not verdict.verified:
        raise click.exceptions.Exit(verdict.exit_code)


def _refuse_to_replace(path: Path) -> None:
    """
    Raises:
        ConfigurationError: it exists.
    """
    if path.exists():
        raise ConfigurationError(f"{path}: it exists; evidence is never overwritten, choose another --out")
