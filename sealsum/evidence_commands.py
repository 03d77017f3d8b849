"""``sealsum audit``: a researcher exports a job's evidence as one file for an auditor.

``attack``, which needs what silos need, is imported only when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

import click

from privacy.errors import ConfigurationError
from privacy.ids import NAME_PATTERN, PartyId, SiloId
from privacy.keystore import read_file
from sealsum.evidence import build_pack
from sealsum.evidence_archive import read_zip
from sealsum.lazy_group import Lazy, LazyGroup
from sealsum.sdk import Federation
from silo_agent.transport import FederationClient


class LedgerFile(click.ParamType[tuple[SiloId, Path]]):
    """``SILO=FILE``: a silo's ledger, as ``sealsum silo ledger`` exports it."""

    name = "silo=file"

    def convert(
        self, value: str | tuple[SiloId, Path], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[SiloId, Path]:
        """Split at the first ``=``."""
        if isinstance(value, tuple):
            return value
        silo, _, file = value.partition("=")
        if not re.fullmatch(NAME_PATTERN, silo) or not file:
            self.fail(f"expected SILO=FILE such as north=north.jsonl, got {value!r}", param, ctx)
        return SiloId(PartyId(silo)), Path(file)


class AuditCommands(LazyGroup):
    """What is below ``sealsum audit``."""

    table: ClassVar[Mapping[str, Lazy]] = {
        "attack": Lazy(
            "sealsum.audit_commands:attack",
            "Attack this installation; every attack must fail where it is claimed to.",
        ),
        "redact": Lazy(
            "sealsum.redact_command:redact", "Take fields and names out of a pack; proofs still hold."
        ),
        "report": Lazy(
            "sealsum.redact_command:report", "Verify a pack and write its report with the verdict."
        ),
        "ocsf": Lazy("sealsum.ocsf_command:ocsf", "Turn a log file into OCSF events."),
        "hold": Lazy("sealsum.retention_commands:hold", "Legal holds: evidence that must not go."),
        "expire": Lazy("sealsum.retention_commands:expire", "Delete packs that nothing keeps any longer."),
    }


@click.group(cls=AuditCommands)
def audit() -> None:
    """Evidence for an auditor: export, redact, report, keep; attacks."""


@audit.command(short_help="Collect a job's evidence into one file.")
@click.option("--job", "name", required=True, help="Name of the job.")
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The researcher's own directory, as enrolment left it.",
)
@click.option(
    "--ledger",
    "ledgers",
    multiple=True,
    type=LedgerFile(),
    help="SILO=FILE, once for each silo; FILE is what its sealsum silo ledger --json prints.",
)
@click.option(
    "--silo",
    "handovers",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of sealsum silo export, once for each silo: its ledger and who approved there.",
)
@click.option(
    "--redact",
    multiple=True,
    help="Leave out log:FIELD or silo:NAME, as sealsum audit redact does; once for each.",
)
@click.option(
    "--attack-results",
    type=click.Path(path_type=Path, dir_okay=False),
    help="attack.json of sealsum audit attack, to go along as self-reported.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Pack to write; never replaced.",
)
@click.option("--proxy", metavar="URL", help="Proxy to dial through; else HTTPS_PROXY.")
def export(
    name: str,
    state: Path,
    ledgers: tuple[tuple[SiloId, Path], ...],
    handovers: tuple[Path, ...],
    redact: tuple[str, ...],
    attack_results: Path | None,
    out: Path,
    proxy: str | None,
) -> None:
    """Collect a job's signed messages, logs and ledgers into OUT; verify it with sealsum-verify."""
    if out.exists():
        raise ConfigurationError(f"{out}: it exists; evidence is never overwritten, choose another --out")
    attacks = None if attack_results is None else read_file(attack_results)
    given = [read_file(path) for path in handovers]
    books = {silo: read_file(path) for silo, path in ledgers}
    if len(books) != len(ledgers):
        raise ConfigurationError("--ledger: expected each silo once")
    with Federation.connect(state, dial=partial(FederationClient, proxy=proxy)) as federation:
        evidence = federation.job(name).evidence()
        logs = {server: federation.server_log(server) for server in federation.charter.share_servers}
        created_at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        pack = build_pack(evidence, logs, books, federation.identity, created_at, attacks, given, redact)
    out.write_bytes(pack)
    packed = read_zip(pack, str(out))
    for silo in sorted({silo for ended in evidence["rounds"] for silo in ended["manifests"]}):
        if f"dp/ledger/{silo}.jsonl" not in packed:
            click.echo(f"no --silo of {silo}, which took part: this pack will not verify", err=True)
    click.echo(f"{out}: verify it with: sealsum-verify {out} --officers {federation.charter.officers}")
