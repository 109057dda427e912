"""Tables that never fold or cut a number: plain text in a pipe, columns in a window, blocks in a narrow one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

MIN_FOLDED_WIDTH = 12  # cells of a name that is folded
COLUMN_GAP = 2


@dataclass(frozen=True)
class Column:
    """A column; `folds`: its text may be wrapped, between words or inside a word longer than the column."""

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
    """Print the table as plain text, one line per row."""
    for row in ([Text(c.name) for c in columns], *rows):
        cells = [
            t.plain.rjust(w) if c.right else t.plain.ljust(w) for c, t, w in zip(columns, row, widths, strict=True)
        ]
        console.out((" " * COLUMN_GAP).join(cells).rstrip(), highlight=False)


def _rich_table(columns: Sequence[Column], rows: Sequence[Row], least: Sequence[int]) -> Table:
    """Return the table for a terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
    for c, width in zip(columns, least, strict=True):
        justify = "right" if c.right else "left"
        table.add_column(c.name, justify=justify, no_wrap=not c.folds, overflow="fold", min_width=width)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*row)
    return table


def _print_blocks(console: Console, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print each row as a block: the first cell, then a line per other cell that is not empty."""
    for row in rows:
        console.print(row[0], overflow="fold", highlight=False)
        for c, text in zip(columns[1:], row[1:], strict=True):
            if text.plain.strip():
                console.print(
                    Text("  ") + Text(f"{c.name}: " if c.name else "") + text, overflow="fold", highlight=False
                )
