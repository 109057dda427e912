"""The commands by the question that people come with, as `specgrad --help` and the site show them."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

GROUPS = {
    "Is it right?": ("audit", "conformance", "compare", "runtimes"),
    "How far may it differ?": ("tolerance", "preserve"),
    "Does it hold?": ("certify", "check-certificate", "verify", "supports"),
    "Sign for it": ("profile", "accuracy", "vectors", "evidence"),
    "Run it large": ("tiles", "campaign"),
    "Look at it": ("show", "window", "explain", "schema"),
}
MOVED = {"rule": "specgrad explain W2 prints a rule, specgrad explain lists them"}


class Grouped(TyperGroup):
    """Command group whose help has a heading per user question; ungrouped commands come last."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in MOVED:
            raise typer.BadParameter(f"there is no command {cmd_name} any more: {MOVED[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        known = [name for names in GROUPS.values() for name in names if name in self.commands]
        return [*known, *(name for name in self.commands if name not in known)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        known = {name for names in GROUPS.values() for name in names}
        others = tuple(name for name in self.commands if name not in known)
        for title, names in {**GROUPS, "Other": others}.items():
            rows = [(name, self.commands[name].get_short_help_str(10**4)) for name in names if name in self.commands]
            if rows:
                formatter.write(f"\n{title}\n")  # a section's heading would end in "?:"
                with formatter.indentation():
                    formatter.write_dl(rows)
