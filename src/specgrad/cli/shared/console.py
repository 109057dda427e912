"""What commands print: tables and progress on a terminal, plain text in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from specgrad.errors import printable

COLOURS = {"good": "green", "open": "yellow", "bad": "red"}
Step = Callable[[str, int, int], None]


@contextmanager
def progress(quiet: bool) -> Iterator[Step | None]:
    """Yield a callback (name, done, total) that shows a bar on stderr, or None under --json or if nobody watches."""
    console = Console(stderr=True)
    if quiet or not sys.stderr.isatty() or not console.is_interactive:
        yield None
        return
    columns = (
        TextColumn("{task.description:<38.38}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda name, done, total: bar.update(task, description=printable(name), completed=done, total=total)


def line(console: Console, *parts: str | tuple[str, str], whole: bool = False) -> None:
    """Print one line of texts and (text, style) pairs; texts are data, without markup or invisible characters.

    In a window it goes on in the next line between words, unless it is to be copied as a `whole`; in a pipe never.
    """
    text = Text.assemble(*map(_printable_part, parts))
    if whole or not console.is_terminal:
        console.print(text, soft_wrap=True, highlight=False)
    else:
        console.print(text, overflow="fold", highlight=False)


def _printable_part(part: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return a text or (text, style) pair with invisible characters escaped."""
    return printable(part) if isinstance(part, str) else (printable(part[0]), part[1])


def cell(text: object, style: str = "") -> Text:
    """Return a text as a table cell, with invisible characters escaped."""
    return Text(printable(text), style=style)


def colour(kind: str) -> str:
    """Return the colour of a verdict."""
    from specgrad.html_page import tone_of

    return COLOURS[tone_of(kind)]


def bar(ratio: float, width: int = 12) -> str:
    """Return a bar of the share of the allowance that was used; full if it was exceeded."""
    filled = max(round(ratio * width), int(ratio > 0)) if ratio <= 1 else width
    return "█" * filled + "·" * (width - filled)


def has_bars(console: Console) -> bool:
    """Return whether the console is a terminal whose encoding has the letters of bars."""
    try:
        bar(0.5).encode(console.encoding)
    except UnicodeEncodeError:
        return False
    return console.is_terminal


def show_deployment(console: Console, deployment: Mapping[str, str], notes: Sequence[str]) -> None:
    line(console, "for every execution with")
    for name, text in deployment.items():
        line(console, f"  {name}: {text}")
    for note in notes:
        line(console, f"note: {note}")
