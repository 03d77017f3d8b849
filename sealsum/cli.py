"""The root command: composes the subcommands by name and turns refusals into one line and an exit code.

Nothing below is imported before it is asked for, so that ``sealsum aggregator`` runs where no learning
framework is installed and help answers at once. Knows no command's work.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import click

from privacy.errors import SealsumError
from sealsum import __version__
from sealsum.lazy_group import Lazy, LazyGroup

INTERRUPTED = 130
CONFIGURATION = 78
LOCAL = 1
FULL = (errno.ENOSPC, errno.EDQUOT)


COMMANDS: dict[str, Lazy] = {
    "demo": Lazy("sealsum.demo.command:demo", "Train across four hospitals on this machine and prove it."),
    "budget": Lazy("sealsum.budget_commands:budget", "Price a schedule in ε; find the noise for a target ε."),
    "readiness": Lazy("sealsum.readiness_command:readiness", "Ask whether federated learning fits at all."),
    "policy": Lazy("sealsum.policy_commands:policy", "Draw, check, explain, compare and try threat models."),
    "scheme": Lazy("sealsum.scheme_commands:scheme", "List how updates can be added up without being seen."),
    "algorithm": Lazy(
        "sealsum.algorithm_commands:algorithm", "List the training algorithms that a job may name."
    ),
    "login": Lazy("sealsum.login_commands:login", "Log in to a federation's servers."),
    "logout": Lazy("sealsum.login_commands:logout", "Forget a login, and have it revoked."),
    "whoami": Lazy("sealsum.login_commands:whoami", "Show who you are at a server, and in which roles."),
    "read": Lazy("sealsum.read_commands:read", "Read jobs, evidence or a log at a server, as a person."),
    "token": Lazy("sealsum.token_commands:token", "Issue, list and revoke API tokens of a server."),
    "keys": Lazy("sealsum.key_commands:keys", "Make or show a person's signing key; renew a certificate."),
    "officer": Lazy("sealsum.officer_commands:officer", "Read and sign what a federation's officers decide."),
    "federation": Lazy("sealsum.federation_commands:federation", "Found a federation and enrol its parties."),
    "silo": Lazy(
        "silo_agent.cli:silo",
        "Run a silo's agent; approve jobs; see its budget.",
        {"enroll": "sealsum.enrolment:silo"},
    ),
    "aggregator": Lazy(
        "aggregator.cli:aggregator",
        "Run the aggregator; hold work back; keep and expire evidence.",
        {
            "enroll": "sealsum.enrolment:aggregator",
            **{
                name: f"sealsum.upkeep_commands:{name}"
                for name in ("upkeep", "drain", "resume", "hold", "release", "expire", "gc")
            },
        },
    ),
    "share-server": Lazy(
        "aggregator.cli:share_server", "Run a share server.", {"enroll": "sealsum.enrolment:share_server"}
    ),
    "job": Lazy(
        "sealsum.job_commands:job",
        "Submit a job, follow it, fetch its model.",
        {"enroll": "sealsum.enrolment:researcher"},
    ),
    "query": Lazy("sealsum.query_commands:query", "Ask for statistics, or metrics of a model, under DP."),
    "synthesise": Lazy(
        "sealsum.synthesise_command:synthesise", "Draw made-up records from a charged query's answer."
    ),
    "tune": Lazy("sealsum.tune_command:tune", "Search a job's settings on public, made-up or own records."),
    "diagnose": Lazy("sealsum.diagnosis.command:command", "Ask whether silos' data differ, and what to do."),
    "simulate": Lazy(
        "sealsum.comparison.simulate_command:command", "Run a job's rounds with many silos in one process."
    ),
    "compare": Lazy("sealsum.comparison.command:command", "Compare algorithms on one partition, in memory."),
    "partition": Lazy("sealsum.partition.command:command", "Split a public table among simulated silos."),
    "chaos": Lazy("sealsum.chaos.command:command", "Kill a federation's processes and judge what it does."),
    "audit": Lazy(
        "sealsum.evidence_commands:audit", "Evidence for an auditor: export, redact, report, keep; attacks."
    ),
}

EXTRAS: dict[str, str] = {
    "torch": "silo",
    "opacus": "silo",
    "fastapi": "aggregator",
    "uvicorn": "aggregator",
    "uvloop": "aggregator",
    "httptools": "aggregator",
    "joserfc": "aggregator",
    "sqlalchemy": "aggregator",
    "jinja2": "demo",
    "matplotlib": "demo",
    "safetensors": "researcher",
    "scipy": "demo",
    "tenseal": "he",
}
"""Optional distribution → the extra that installs it."""


class Root(LazyGroup):
    """All commands; where any of them fails on purpose, the message and exit code of its kind."""

    table: ClassVar[Mapping[str, Lazy]] = COMMANDS

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command asked for."""
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
        except OSError as error:
            if error.errno not in FULL:
                raise
            where = f"{error.filename}: " if error.filename else ""
            return _end(ctx, f"{where}{error.strerror}; make room and start again", LOCAL)
        except KeyboardInterrupt:
            return _end(ctx, "interrupted", INTERRUPTED)


def _end(ctx: click.Context, message: str, exit_code: int) -> NoReturn:
    """One message for people on stderr; stdout stays what the command itself wrote."""
    click.echo(f"Error: {message}", err=True)
    ctx.exit(exit_code)


@click.command(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="sealsum")
def cli() -> None:
    """Federated learning between institutions: only the sum is opened, under budgets that silos own."""


def main() -> None:
    """Entry point of the ``sealsum`` script."""
    cli(prog_name="sealsum")
