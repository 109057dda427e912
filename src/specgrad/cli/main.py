"""The front of the command: every command by the question that people come with, and how a command line is run.

A command is brought by a module that is loaded when it is named. Such a module has `commands`, a Typer, with the
command's options, its call and its exit codes, and `SCHEMAS`: what its results are under --json. Nobody imports it.
Exit codes: 0 yes, 1 no, 2 cannot tell, 3 usage, 4 unexpected, 128 + signal.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

from ..errors import MissingPackageError, need

try:
    need("typer", "the command needs")
    need("rich", "the command needs")
except MissingPackageError as missing:  # one line for a user who installed the core alone
    print(f"specgrad: {missing}", file=sys.stderr)
    raise SystemExit(3) from None

import typer
from typer import core
from typer.core import TyperGroup

from .shared.exit_codes import USAGE, YES, open_streams, print_quietly, report

CompletionItem: Any = getattr(core, "CompletionItem", None) or import_module("click.shell_completion").CompletionItem

GROUPS = {
    "Is it right?": {
        "audit": "check.auditing.command",
        "audit record": "check.models.command",
        "conformance": "check.conform.command",
        "conformance runtimes": "check.conform.command",
        "conformance vectors": "safety.vectors.command",
        "compare": "check.comparison.command",
    },
    "How far may it differ?": {
        "tolerance": "check.tolerances.command",
        "tolerance accuracy": "safety.accuracy.command",
        "preserve": "check.decisions.command",
    },
    "Does it hold?": {
        "certify": "bounds.search.command",
        "check-certificate": "proof.command",
        "verify": "properties.command",
        "verify supports": "properties.command",
    },
    "For a safety case": {"profile": "safety.profile.command", "evidence": "safety.evidence.command"},
    "At scale": {"tiles": "scale.command", "campaign": "scale.campaign.command"},
    "Inspect": {
        "show": "graph.command",
        "show window": "show.command",
        "explain": "graph.command",
        "explain schema": "cli.schema_command",
    },
}
"""Of two words, the second stands below the first, whose own argument has no such value; the help of the first names
it."""
STANDARD = {"supports": "verify supports"}
"""VNN-LIB's tools ask a solver in these words (section 5.4 of the standard)."""
MOVED = {
    "rule": "specgrad explain W2 prints a rule, specgrad explain lists them",
    **{
        name.partition(" ")[2]: f"it is specgrad {name}"
        for homes in GROUPS.values()
        for name in homes
        if " " in name and name not in STANDARD.values()
    },
}
HOMES = {name: home for homes in GROUPS.values() for name, home in homes.items()}


def brought_by(name: str) -> Any:
    """Return the module of the command `name`, loaded now."""
    return import_module(".".join(("specgrad", HOMES[name])))


@cache
def loaded(name: str) -> Any:
    """Return the command `name`, or a group of them that has a module of its own: its help is one line, and its example
    stays one.
    """
    several: Any = typer.main.get_group(brought_by(name).commands)
    command = several.commands.get(name.rpartition(" ")[2], several)
    command.name = name
    for one in (command, *getattr(command, "commands", {}).values()):
        one.short_help = one.help.partition("\n")[0]  # which would be cut otherwise
        one.epilog = f"\b\n{one.epilog}"  # as it is to be typed
    if below := [below for below in HOMES if below.startswith(f"{name} ")]:
        command.epilog += "".join(f"\nBelow it: specgrad {each} --help" for each in below)
        words = [each.rpartition(" ")[2] for each in below]
        for part in (command, *command.params):
            if part is command or part.param_type_name == "argument":
                part.shell_complete = _completed(part.shell_complete, words)
    return command


def _completed(complete: Callable[[Any, str], list[Any]], words: Sequence[str]) -> Callable[[Any, str], list[Any]]:
    """Return a completion function: what `complete` offers, and the commands `words` below this one."""
    return lambda ctx, typed: [*(CompletionItem(w) for w in words if w.startswith(typed)), *complete(ctx, typed)]


class LateCommands(Mapping[str, Any]):
    """Mapping from the names of all commands to the commands, each loaded when somebody looks at it."""

    def __getitem__(self, name: str) -> Any:
        if name not in HOMES:
            raise KeyError(name)
        return loaded(name)

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


class Commands(TyperGroup):
    """The group of all commands: loads one when it is named, and lists them in the help under a heading per
    question.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = LateCommands()

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return (name, command, remaining arguments) for a command line; two words where the second stands below the
        first.

        `ctx` is the context of click.
        """
        words = STANDARD.get(args[0], " ".join(args[:2]))
        if words not in HOMES or " " not in words:
            return super().resolve_command(ctx, args)
        return words, loaded(words), args[1 if args[0] in STANDARD else 2 :]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command `cmd_name`; BadParameter says where a command that moved is now. `ctx` is click's."""
        if cmd_name in MOVED:
            raise typer.BadParameter(f"there is no command {cmd_name} any more: {MOVED[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands of one word; `ctx` is click's."""
        return [name for name in HOMES if " " not in name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, by the question that people come with, into the help; `ctx` and `formatter` are
        click's.
        """
        for title, names in GROUPS.items():
            formatter.write(f"\n{title}\n")  # a section's heading would end in "?:"
            with formatter.indentation():
                formatter.write_dl([(n, loaded(n).get_short_help_str(10**4)) for n in names if " " not in n])


# --- the command line -------------------------------------------------------------------------------------------------

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="One network, one meaning: show, audit, certify models; examine runtimes; explain outputs; check proofs.",
    rich_markup_mode=None,
)
COMPLETION = "_SPECGRAD_COMPLETE"


def _print_version(asked: bool) -> None:
    """Print the version and exit with 0, if the option is given (`asked`)."""
    if asked:
        from specgrad import __version__

        print(__version__)
        raise typer.Exit(YES)


def _print_name(asked: bool) -> None:
    """Print the solver's name and exit with 0, if the option is given (`asked`)."""
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
    """Declare the options before a command, for --help; `main` itself takes --debug out of the arguments."""


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
    """Return the group of all commands as click runs it; each is loaded when it is named."""
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
