"""The ``silo`` commands. Only ``run`` loads the learning framework, and only when it is called."""

from __future__ import annotations

import importlib
from typing import ClassVar

import click

from silo_agent.ledger_commands import budget, ledger


class SiloGroup(click.Group):
    """A group in which ``run`` is imported when it is asked for."""

    lazy: ClassVar[dict[str, str]] = {"run": "silo_agent.run_command"}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name in self.lazy:
            command = getattr(importlib.import_module(self.lazy[cmd_name]), cmd_name)
            return command if isinstance(command, click.Command) else None
        return super().get_command(ctx, cmd_name)


@click.group(cls=SiloGroup)
def silo() -> None:
    """Run a silo's agent; look at its privacy budget and ledger."""


silo.add_command(budget)
silo.add_command(ledger)
