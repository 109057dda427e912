"""The front of the command. Exit codes: 0 yes, 1 no, 2 cannot tell, 3 usage, 4 unexpected, 128 + signal."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

from ..errors import MissingPackageError, need

try:
    need("typer", "the command needs")
    need("rich", "the command needs")
except MissingPackageError as missing:  # said in one line to whoever installed the core alone
    print(f"specgrad: {missing}", file=sys.stderr)
    raise SystemExit(3) from None

import typer

from .commands import Commands
from .shared.exit_codes import USAGE, YES, open_streams, print_quietly, report

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="One network, one meaning: show, audit, certify models; examine runtimes; explain outputs; check proofs.",
    rich_markup_mode=None,
)
COMPLETION = "_SPECGRAD_COMPLETE"


def _print_version(asked: bool) -> None:
    """Print the version and exit, if the option is given."""
    if asked:
        from specgrad import __version__

        print(__version__)
        raise typer.Exit(YES)


def _print_name(asked: bool) -> None:
    """Print the solver's name and exit, if the option is given."""
    if asked:
        print("specgrad")
        raise typer.Exit(YES)


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; after a command too.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    name: Annotated[
        bool, typer.Option("--name", help="Print the solver's name and exit.", is_eager=True, callback=_print_name)
    ] = False,
) -> None:
    """`main` takes --debug out of the arguments; here it stands for --help."""


def main() -> None:
    """Run the command line; an error is one line on stderr, and the exit code is always set."""
    open_streams()
    if COMPLETION in os.environ:  # the shell asks what could come next
        _command().main(args=[], prog_name="specgrad")
    args = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        code = _run(args) if args else max(_run(["--help"]), USAGE)
        sys.stdout.flush()  # a full disk shows here at the latest
    except BaseException as error:  # Python itself would end with 1, which is "no"
        if "--debug" in sys.argv[1:]:
            print_quietly(sys.stderr, "".join(traceback.format_exception(error)), end="")
        code = report(error, "--json" in args)
    sys.exit(code)


def _command() -> Any:
    """The commands, each loaded when it is named."""
    return typer.main.get_command(app)


def _run(args: list[str]) -> int:
    """Run the command line and return the exit code, without typer's own handling of interrupts."""
    command = _command()
    try:
        try:
            context = command.make_context("specgrad", args)
        except SystemExit as shown:  # typer's --show-completion and --install-completion; no command has begun
            return USAGE if shown.code else YES
        with context:
            command.invoke(context)
    except typer.Exit as done:
        return int(done.exit_code)
    return YES
