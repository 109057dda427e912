"""Every command, by the question that people come with, and the module that brings it, loaded when it is named.

Such a module has `commands`, a Typer, with the command's options, its call and its exit codes. Nobody imports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

GROUPS = {
    "Is it right?": {
        "audit": "check.auditing.command",
        "conformance": "check.conform.command",
        "compare": "check.comparison.command",
        "runtimes": "check.conform.command",
    },
    "How far may it differ?": {"tolerance": "check.tolerances.command", "preserve": "check.decisions.command"},
    "Does it hold?": {
        "certify": "bounds.search.command",
        "check-certificate": "proof.command",
        "verify": "properties.command",
        "supports": "properties.command",
    },
    "Sign for it": {
        "profile": "safety.profile.command",
        "accuracy": "safety.accuracy.command",
        "vectors": "safety.vectors.command",
        "evidence": "safety.evidence.command",
    },
    "Run it large": {"tiles": "scale.command", "campaign": "scale.campaign.command"},
    "Look at it": {
        "show": "graph.command",
        "window": "show.command",
        "explain": "graph.command",
        "schema": "cli.schema_command",
    },
}
MOVED = {"rule": "specgrad explain W2 prints a rule, specgrad explain lists them"}
HOMES = {name: home for homes in GROUPS.values() for name, home in homes.items()}


@cache
def loaded(name: str) -> Any:
    """A command, or a group of them that has a module of its own: its help is one line, and its example stays one."""
    several: Any = typer.main.get_group(import_module(".".join(("specgrad", HOMES[name]))).commands)
    command = several.commands.get(name, several)
    command.name = name
    for one in (command, *getattr(command, "commands", {}).values()):
        one.short_help = one.help.partition("\n")[0]  # which would be cut otherwise
        one.epilog = f"\b\n{one.epilog}"  # as it is to be typed
    return command


class LateCommands(Mapping[str, Any]):
    """All names; a command is loaded when somebody looks at it."""

    def __getitem__(self, name: str) -> Any:
        if name not in HOMES:
            raise KeyError(name)
        return loaded(name)

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


class Commands(TyperGroup):
    """Help with a heading per question."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = LateCommands()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in MOVED:
            raise typer.BadParameter(f"there is no command {cmd_name} any more: {MOVED[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(HOMES)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            formatter.write(f"\n{title}\n")  # a section's heading would end in "?:"
            with formatter.indentation():
                formatter.write_dl([(name, self.commands[name].get_short_help_str(10**4)) for name in names])
