"""The root command: composes the subcommands by name and turns refusals into one line and an exit code.

Nothing below is imported before it is asked for, so that ``sealsum aggregator`` runs where no learning
framework is installed and help answers at once. Knows no command's work.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import click

from privacy.errors import SealsumError
from sealsum import __version__

INTERRUPTED = 130
CONFIGURATION = 78


@dataclass(frozen=True)
class Lazy:
    """Where a command lives, what help says of it unloaded, and which commands are put under it here."""

    target: str
    """``module:attribute``."""
    summary: str
    attached: Mapping[str, str] = field(default_factory=dict)


COMMANDS: dict[str, Lazy] = {
    "demo": Lazy("sealsum.demo.command:demo", "Train across four hospitals on this machine and prove it."),
    "policy": Lazy("sealsum.policy_commands:policy", "List, show, lint and explain threat models."),
    "federation": Lazy("sealsum.federation_commands:federation", "Found a federation and enrol its parties."),
    "silo": Lazy(
        "silo_agent.cli:silo", "Run a silo's agent; see its budget.", {"enroll": "sealsum.enrolment:silo"}
    ),
    "aggregator": Lazy(
        "aggregator.cli:aggregator", "Run the aggregator.", {"enroll": "sealsum.enrolment:aggregator"}
    ),
    "share-server": Lazy(
        "aggregator.cli:share_server", "Run a share server.", {"enroll": "sealsum.enrolment:share_server"}
    ),
    "job": Lazy(
        "sealsum.job_commands:job",
        "Submit a job, follow it, fetch its model.",
        {"enroll": "sealsum.enrolment:researcher"},
    ),
    "audit": Lazy("sealsum.evidence_commands:audit", "Export evidence for an auditor."),
}

EXTRAS: dict[str, str] = {
    "torch": "silo",
    "opacus": "silo",
    "fastapi": "aggregator",
    "uvicorn": "aggregator",
    "httptools": "aggregator",
    "sqlalchemy": "aggregator",
    "jinja2": "demo",
    "matplotlib": "demo",
    "safetensors": "demo",
    "scipy": "demo",
}
"""Optional distribution → the extra that installs it."""


class LazyGroup(click.Group):
    """A group whose commands are loaded by name, as click's documentation describes for large tools."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        return None if lazy is None else _command(lazy)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help from the literal summaries: listing commands loads none."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SealsumError as error:
            return _end(ctx, str(error), error.exit_code)
        except ModuleNotFoundError as error:
            extra = EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            missing = f"this command needs {error.name}, which is not installed"
            return _end(ctx, f"{missing}; run: pip install 'sealsum[{extra}]'", CONFIGURATION)
        except KeyboardInterrupt:
            return _end(ctx, "interrupted", INTERRUPTED)


def _end(ctx: click.Context, message: str, exit_code: int) -> NoReturn:
    """One message for people on stderr; stdout stays what the command itself wrote."""
    click.echo(f"Error: {message}", err=True)
    ctx.exit(exit_code)


def _command(lazy: Lazy) -> click.Command:
    command = _load(lazy.target)
    if lazy.attached:
        if not isinstance(command, click.Group):
            raise TypeError(f"{lazy.target}: expected a click group, got {type(command).__name__}")
        for name, target in lazy.attached.items():
            command.add_command(_load(target), name)
    return command


def _load(target: str) -> click.Command:
    module, _, attribute = target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{target}: expected a click command, got {type(command).__name__}")
    return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sealsum")
def cli() -> None:
    """Federated learning between institutions: train under your own budget, open only the sum."""


def main() -> None:
    """Entry point of the ``sealsum`` script."""
    cli(prog_name="sealsum")
