"""specgrad explain schema: what a command prints under --json."""

from __future__ import annotations

from typing import Annotated

import typer

from .shared.exit_codes import print_json
from .shared.schemas import SCHEMAS

commands = typer.Typer(rich_markup_mode=None)


@commands.command(epilog="Example: specgrad explain schema audit")
def schema(
    command: Annotated[str | None, typer.Argument(help="Whose objects: audit, certify, ... Default: list all.")] = None,
) -> None:
    """The JSON schema of what a command prints under --json."""
    if command is None:
        print("\n".join(SCHEMAS))
    elif command not in SCHEMAS:
        raise typer.BadParameter(f"no schema {command!r}; there are {', '.join(SCHEMAS)}")
    else:
        print_json(SCHEMAS[command])
