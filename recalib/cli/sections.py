"""Sections of commands in `recalib --help`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

FILES = "Work on data files"
TRAINING = "Train networks"
SERVER = "Use a server"
OPERATION = "Run a server"

_OTHER = "Commands"
#: A whole summary is printed; the formatter wraps it.
_MAX_SUMMARY = 500


class SectionedGroup(TyperGroup):
    """Lists the commands of each `rich_help_panel` under its name, in the order of registration.

    Typer does so with Rich only, which the help does not import. Without arguments it prints its
    help.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                section = getattr(command, "rich_help_panel", None) or _OTHER
                summary = command.get_short_help_str(_MAX_SUMMARY)
                sections.setdefault(section, []).append((name, summary))
        width = max(len(name) for rows in sections.values() for name, _ in rows)
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])
