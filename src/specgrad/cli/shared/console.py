"""What commands print: lines, progress and tables on a terminal, plain text in a pipe.

Tables never fold or cut a number: plain text in a pipe, columns in a window, blocks in a narrow one.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from specgrad.errors import printable

COLOURS = {"good": "green", "open": "yellow", "bad": "red"}
Step = Callable[[str, int, int], None]


@contextmanager
def progress(quiet: bool) -> Iterator[Step | None]:
    """Yield a callback (name, done, total) that shows a bar on stderr, or None if `quiet` (--json) or if nobody
    watches.

    Of a single step, and of one after the last of `total`, the bar shows the time that the limit leaves when the
    callback is called (`specgrad.deadline.time_limit`).
    """
    console = Console(stderr=True)
    if quiet or not sys.stderr.isatty() or not console.is_interactive:
        yield None
        return
    with steps_bar(console) as (_, step):
        yield step


@contextmanager
def steps_bar(console: Console) -> Iterator[tuple[Progress, Step]]:
    """Yield a bar on the console, and the callback (name, done, total) that moves it."""
    from specgrad.deadline import time_left  # the command that checks certificates shows no bar, and loads no more

    name = TextColumn("{task.description:<38.38}", markup=False)
    with Progress(name, BarColumn(), _DoneOrLeft(), TimeElapsedColumn(), console=console, transient=True) as bar:
        bar.add_task("starting", total=None, ends=math.inf)
        (task,) = bar.tasks

        def step(name: str, done: int, total: int) -> None:
            counted = total > 1 and done < total
            task.total = total if counted else None  # update() would keep the old one
            ends = math.inf if counted else time.monotonic() + time_left()
            bar.update(task.id, description=printable(name), completed=done if counted else 0, ends=ends)

        yield bar, step


class _DoneOrLeft(ProgressColumn):
    """Steps done of all; else the seconds that the limit leaves."""

    def render(self, task: Task) -> Text:
        """Return "3/17" or "at most 40 s"; "" where neither is known."""
        left = task.fields["ends"] - time.monotonic()
        if task.total is not None:
            return Text(f"{task.completed:.0f}/{task.total:.0f}")
        return Text("" if math.isinf(left) else f"at most {max(left, 0):.0f} s")


NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|min|GB|MB|kB)(?!\w))")
JOINER = "\ue000"  # of no text; stands for a space at which no line ends


def line(console: Console, *parts: str | tuple[str, str], whole: bool = False) -> None:
    """Print one line of `parts`, texts and (text, style) pairs; texts are data, without markup or invisible characters.

    In a window it goes on in the next line between words, but not between a number and its unit, unless it is to be
    copied as a `whole`; in a pipe never.
    """
    text = Text.assemble(*map(_printable_part, parts))
    if whole or not console.is_terminal:
        console.print(text, soft_wrap=True, highlight=False)
        return
    text.plain = NUMBER_AND_UNIT.sub(JOINER, text.plain)
    for part in text.wrap(console, console.width, overflow="fold"):
        part.plain = part.plain.replace(JOINER, " ").rstrip()
        console.print(part, highlight=False)


def _printable_part(part: str | tuple[str, str]) -> str | tuple[str, str]:
    """Return `part`, a text or (text, style) pair, with invisible characters escaped."""
    return printable(part) if isinstance(part, str) else (printable(part[0]), part[1])


def cell(text: object, style: str = "") -> Text:
    """Return a text as a table cell in a style of rich, with invisible characters escaped."""
    return Text(printable(text), style=style)


def colour(kind: str) -> str:
    """Return the colour of a verdict's kind, as rich names it."""
    from specgrad.html_page import tone_of

    return COLOURS[tone_of(kind)]


def bar(ratio: float, width: int = 12) -> str:
    """Return a bar of `width` characters for the share `ratio` of the allowance that was used; full if it was
    exceeded.
    """
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
    """Print a result's deployment, the executions that it holds for as texts by topic, and the notes."""
    line(console, "for every execution with")
    for name, text in deployment.items():
        line(console, f"  {name}: {text}")
    for note in notes:
        line(console, f"note: {note}")


# --- tables -----------------------------------------------------------------------------------------------------------

MIN_FOLDED_WIDTH = 12  # cells of a name that is folded
COLUMN_GAP = 2


@dataclass(frozen=True)
class Column:
    """A column headed `name`, aligned to the `right` or left; `folds`: its text may be wrapped, between words or inside
    a word longer than the column.
    """

    name: str
    folds: bool = False
    right: bool = False


Row = Sequence[Text]


def print_table(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table: full width and one line per row in a pipe, else columns or blocks that fit the window."""
    widths = [max([len(c.name), *(row[i].cell_len for row in rows)]) for i, c in enumerate(columns)]
    if not console.is_terminal:
        _print_plain(console, columns, rows, widths)
        return
    least = [
        min(w, _min_width(c, [row[i] for row in rows])) for i, (c, w) in enumerate(zip(columns, widths, strict=True))
    ]
    if sum(least) + COLUMN_GAP * (len(columns) - 1) <= console.width:
        console.print(_rich_table(columns, rows, least))
    else:
        _print_blocks(console, columns, rows)


def _min_width(column: Column, cells: Sequence[Text]) -> int:
    """Return the least width of a column: its longest cell, or its longest number if text may fold."""
    if not column.folds:
        return max([len(column.name), *(c.cell_len for c in cells)])
    words = [word for c in cells for word in c.plain.split() if any(letter.isdigit() for letter in word)]
    numbers = [len(word) for word in words if _is_number(word)]
    return max([len(column.name), MIN_FOLDED_WIDTH, *numbers])


def _is_number(word: str) -> bool:
    """Return whether a word is a number, punctuation aside."""
    try:
        float(word.strip("(),;:[]%"))
    except ValueError:
        return False
    return True


def _print_plain(console: Console, columns: Sequence[Column], rows: Sequence[Row], widths: Sequence[int]) -> None:
    """Print the table as plain text in columns of these widths, one line per row."""
    for row in ([Text(c.name) for c in columns], *rows):
        cells = [
            t.plain.rjust(w) if c.right else t.plain.ljust(w) for c, t, w in zip(columns, row, widths, strict=True)
        ]
        console.out((" " * COLUMN_GAP).join(cells).rstrip(), highlight=False)


def _rich_table(columns: Sequence[Column], rows: Sequence[Row], least: Sequence[int]) -> Table:
    """Return the table of these columns and rows for a terminal; each column is at least as wide as `least` says."""
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
    for c, width in zip(columns, least, strict=True):
        justify = "right" if c.right else "left"
        table.add_column(c.name, justify=justify, no_wrap=not c.folds, overflow="fold", min_width=width)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def _print_blocks(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print each row as a block: the first cell, then a line, headed by its column of `columns`, per other cell that is
    not empty.
    """
    for row in rows:
        console.print(row[0], overflow="fold", highlight=False)
        for c, text in zip(columns[1:], row[1:], strict=True):
            if text.plain.strip():
                console.print(
                    Text("  ") + Text(f"{c.name}: " if c.name else "") + text, overflow="fold", highlight=False
                )
