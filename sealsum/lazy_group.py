"""A click group whose commands are imported when they are asked for, by name from a literal table.

So help answers at once, and a command runs where another command's libraries are not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import click
from click.exceptions import NoSuchCommand


@dataclass(frozen=True)
class Lazy:
    """Where a command lives, what help says of it unloaded, and which commands are put under it."""

    target: str
    """``module:attribute``."""
    summary: str
    attached: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> click.Command:
        """Import the command, and those attached to it."""
        command = _load(self.target)
        if self.attached:
            if not isinstance(command, click.Group):
                raise TypeError(f"{self.target}: expected a click group, got {type(command).__name__}")
            for name, target in self.attached.items():
                command.add_command(_load(target), name)
        return command


class LazyGroup(click.Group):
    """The commands of ``table``, and any that were added the usual way."""

    table: ClassVar[Mapping[str, Lazy]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of help; nothing is imported."""
        return [*self.table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        lazy = self.table.get(cmd_name)
        return super().get_command(ctx, cmd_name) if lazy is None else lazy.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with commands that are not imported yet among those that may have been meant."""
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:
            raise NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help from the summaries: listing commands loads none."""
        rows = [(name, lazy.summary) for name, lazy in self.table.items()]
        room = formatter.width - 6 - max(len(name) for name in self.list_commands(ctx))
        for name in super().list_commands(ctx):
            command = super().get_command(ctx, name)
            if command is not None:
                rows.append((name, command.get_short_help_str(room)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _load(target: str) -> click.Command:
    module, _, attribute = target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{target}: expected a click command, got {type(command).__name__}")
    return command
