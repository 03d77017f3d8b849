"""The ``silo`` commands, each imported when asked for; those that train or build models alone load torch."""

from __future__ import annotations

import importlib
from typing import ClassVar

import click
from click.exceptions import NoSuchCommand


class SiloGroup(click.Group):
    """A group whose commands are imported when they are asked for: ``enroll``, put under it, needs none."""

    lazy: ClassVar[dict[str, str]] = {
        "approve": "silo_agent.job_commands",
        "budget": "silo_agent.ledger_commands",
        "datasets": "silo_agent.dataset_commands",
        "describe-model": "silo_agent.model_command",
        "doctor": "silo_agent.doctor_command",
        "evaluate": "silo_agent.evaluate_command",
        "export": "silo_agent.export_command",
        "fit": "silo_agent.fit_command",
        "forgetting": "silo_agent.forgetting_command",
        "gains": "silo_agent.personal_commands",
        "jobs": "silo_agent.job_commands",
        "ledger": "silo_agent.ledger_commands",
        "models": "silo_agent.personal_commands",
        "personalise": "silo_agent.personalise_command",
        "reject": "silo_agent.job_commands",
        "run": "silo_agent.run_command",
        "show": "silo_agent.job_commands",
        "show-model": "silo_agent.personal_commands",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in self.lazy:
            command = getattr(importlib.import_module(self.lazy[cmd_name]), cmd_name.replace("-", "_"))
            return command if isinstance(command, click.Command) else None
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with commands that are not imported yet among those that may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from error


@click.group(cls=SiloGroup)
def silo() -> None:
    """Run a silo's agent; decide about jobs; look at its datasets, budget and ledger."""
