"""Draw the smallest faults of LayerNorm and softmax that are called faults, by size and by how far from 0 data lie.

    python benchmarks/norm_faults.py benchmarks/norms.txt benchmarks/softmaxes.txt --out docs/guide/norm_faults.svg

Above: faults with a size, on logarithmic axes. Below: faults that are there or not, seen (filled) or not (empty).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specgrad.svg import Canvas

LINES = ("read", "good", "win", "bad")
LEFT, TOP, WIDTH, HEIGHT, GAP = 70.0, 64.0, 205.0, 150.0, 46.0
HIGHEST, LOWEST = 0, -8  # powers of ten
CELL = 15.0


@dataclass(frozen=True)
class Table:
    """One table of faults: by (size, level), of the names of faults, what is caught."""

    about: str
    names: tuple[str, ...]
    rows: dict[tuple[int, float], tuple[str, ...]]

    @property
    def sizes(self) -> list[int]:
        """The sizes, in order."""
        return sorted({n for n, _ in self.rows})

    @property
    def levels(self) -> list[float]:
        """The levels, in order."""
        return sorted({k for _, k in self.rows})


def table_of(path: Path, first: str) -> Table:
    """The table in a file that begins with this word."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    head = next(line for line in lines if line.startswith(f"{first} | "))
    rows = {}
    for line in lines:
        n, k, *cells = line.split(" | ")
        rows[int(n), float(k)] = tuple(cells)
    about, names = head.split(" | ")[1], head.split(" | ")[2:]
    return Table(about, tuple(names), rows)


def panel(canvas: Canvas, table: Table, k: int, x: float, y: float) -> None:
    """Draw the k-th fault of a table with its corner at (x, y): a line per level."""
    low, high = math.log2(table.sizes[0]), math.log2(table.sizes[-1])

    def at(n: float, size: float) -> tuple[float, float]:
        share = (math.log10(size) - LOWEST) / (HIGHEST - LOWEST)
        return x + (math.log2(n) - low) / (high - low) * WIDTH, y + HEIGHT * (1 - min(max(share, 0.0), 1.0))

    canvas.box(x, y, WIDTH, HEIGHT, "paper")
    for power in range(LOWEST, HIGHEST + 1):
        _, height = at(table.sizes[0], 10.0**power)
        canvas.path([(x, height), (x + WIDTH, height)], "grain", width=0.6)
        if power % 2 == 0:
            canvas.text(x - 5, height + 3, f"1e{power}", "soft", size=9, anchor="end")
    for n in table.sizes:
        canvas.text(at(n, 1)[0], y + HEIGHT + 13, f"{n:,}", "soft", size=8)
    canvas.text(x + WIDTH / 2, y - 6, table.names[k], bold=True)
    for level, tone in zip(table.levels, LINES, strict=False):
        points = [at(n, float(table.rows[n, level][k])) for n in table.sizes]
        canvas.path(points, tone, width=1.8, title=f"{table.about} {level:g}")
        for point in points:
            canvas.dot(*point, tone, 2.4)


def legend(canvas: Canvas, table: Table, what: str, y: float) -> None:
    """Draw what the table is of, and which line is which."""
    canvas.text(LEFT, y, what, bold=True, size=13, anchor="start")
    x = LEFT + 330
    canvas.text(x, y, f"{table.about}:", "soft", anchor="end")
    for level, tone in zip(table.levels, LINES, strict=False):
        canvas.path([(x + 10, y - 4), (x + 32, y - 4)], tone, width=2.4)
        canvas.text(x + 37, y, f"{level:g}", anchor="start")
        x += 68


def marks(canvas: Canvas, table: Table, first: int, y: float) -> float:
    """Draw faults without a size, from the first on, a block of sizes and levels for each; return where it ends."""
    x = LEFT
    for k in range(first, len(table.names)):
        canvas.text(x, y, table.names[k], anchor="start", size=10, bold=True)
        for row, level in enumerate(table.levels):
            top = y + 8 + row * CELL
            canvas.text(x + 20, top + 11, f"{level:g}", "soft", size=8, anchor="end")
            for column, n in enumerate(table.sizes):
                seen = table.rows[n, level][k] == "yes"
                title = f"{n:,}, {table.about} {level:g}: {'seen' if seen else 'not told apart from rounding'}"
                canvas.box(x + 25 + column * CELL, top, CELL - 2, CELL - 2, "good" if seen else "paper", title=title)
        x += 172
    return y + 8 + len(table.levels) * CELL


def draw(norms: Table, softmaxes: Table) -> Canvas:
    """The whole picture."""
    canvas, y = Canvas(), 22.0
    for table, what in ((norms, "LayerNorm: smallest fault that differs"), (softmaxes, "Softmax")):
        sized = [k for k, name in enumerate(table.names) if name in ("gain", "shift", "scale", "one cell")]
        legend(canvas, table, what, y)
        for column, k in enumerate(sized):
            panel(canvas, table, k, LEFT + column * (WIDTH + GAP), y + TOP - 34)
        y = marks(canvas, table, len(sized), y + TOP - 34 + HEIGHT + 40) + 44
    said = "across: cells of a group; green: differs, empty: not told apart from rounding in any order"
    canvas.text(LEFT, y - 16, said, "soft", anchor="start", size=10)
    return canvas


def main(given: Sequence[str] | None = None) -> None:
    """Draw the tables of two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("norms", type=Path)
    parser.add_argument("softmaxes", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(given)
    canvas = draw(table_of(options.norms, "LayerNorm"), table_of(options.softmaxes, "softmax"))
    canvas.picture("The smallest faults of LayerNorm and softmax that differ, by size and data").save(options.out)


if __name__ == "__main__":
    main()
