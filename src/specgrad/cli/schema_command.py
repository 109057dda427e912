"""specgrad explain schema: what a command prints under --json."""

from __future__ import annotations

from typing import Annotated

import typer

from specgrad.cli.shared import json_parts as j

from .main import HOMES, brought_by
from .shared.exit_codes import print_json

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad explain schema audit")
def schema(
    command: Annotated[str | None, typer.Argument(help="Whose objects: audit, certify, ... Default: list all.")] = None,
) -> None:
    """The JSON schema of what a command prints under --json."""
    all_schemas = schemas()
    if command is None:
        print("\n".join(all_schemas))
    elif command not in all_schemas:
        raise typer.BadParameter(f"no schema {command!r}; there are {', '.join(all_schemas)}")
    else:
        print_json(all_schemas[command])


def schemas() -> dict[str, j.Schema]:
    """Return the JSON schemas of all commands by name; the module of each brings its own."""
    homes = {home: brought_by(name) for name, home in HOMES.items()}
    return {name: schema for module in homes.values() for name, schema in module.SCHEMAS.items()}


# --- JSON -------------------------------------------------------------------------------------------------------------

SCHEMAS = {
    "error": j.command_schema(
        "error",
        "instead of an answer, from any command: exit code 2 or above",
        j.choice("error", "cannot tell"),
        reason=j.text("one line, the same as on stderr"),
    ),
}
