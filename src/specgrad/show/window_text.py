"""A window drawn as text, for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..scalar import Array
from ..window import Shape
from .window_values import Read, WindowValues, kind_of, number

MARKS = {"padding": ".", "beyond": "~"}


def text(picture: WindowValues) -> str:
    """Return the numbers of a window, `picture`, drawn as text: forward, then backward; no line ends with spaces."""
    lines = (_one_axis_lines if picture.window.rank == 1 else _two_axes_lines)(picture)
    beyond = any(r.kind == "beyond" for o in picture.outputs() for r in picture.reads(o))
    note = ["", "~ lies beyond the padding: ceil lets the last window hang over"] if beyond else []
    return "\n".join(line.rstrip() for line in [picture.title, picture.counted, "", *lines, *note])


def _one_axis_lines(p: WindowValues) -> Iterator[str]:
    """Yield the lines of the window of p over one axis: a row per output, a column per position."""
    positions = p.window.axes[0].positions
    outputs, names = list(p.outputs()), max(len(str(p.window.out[0] - 1)) + 4, 4)
    shown = [
        *map(number, p.x),
        *map(number, p.gx),
        *(number(r.share * p.gy[o]) for o in outputs for r in _reads_of_input(p, o)),
    ]
    wide = max(map(len, [*shown, *map(str, positions)])) + 4
    last = max(len(number(v)) for v in (*p.y, *p.gy))

    def row(name: str, cells: dict[int, str], end: str = "") -> str:
        """Return one line: the name, the cells (text by position) centred in their columns, and `end`."""
        return f"  {name:<{names}}" + "".join(cells.get(i, "").center(wide) for i in positions) + end

    yield "forward: a row is what one output reads" + ("; * wins" if p.winners else "")
    yield row("", {i: f"{i}" for i in positions})
    yield row("x", {i: number(p.x[i]) if 0 <= i < p.x.size else MARKS[kind_of(p.window, (i,))] for i in positions})
    for o in outputs:
        won = None if p.winners is None else p.winners[o]
        cells = {}
        for r in p.reads(o):
            inner = number(p.x[r.position]) if r.kind == "input" else MARKS[r.kind]
            cells[r.position[0]] = f" [{inner}]*" if r.position == won else f"[{inner}]"
        yield row(f"y[{o[0]}]", cells, f" = {number(p.y[o]):<{last}}  {p.formula(o)}")
    yield ""
    yield "backward: a row sends its gy back; a column adds up to gx"
    for o in outputs:
        yield row(
            f"gy[{o[0]}]",
            {r.position[0]: number(r.share * p.gy[o]) for r in _reads_of_input(p, o)},
            f" = {number(p.gy[o])}",
        )
    yield row("gx", {i: number(v) for i, v in enumerate(p.gx)})


def _reads_of_input(p: WindowValues, output: Shape) -> list[Read]:
    """Return the taps of one output of the picture p that read a cell of the input, not padding."""
    return [r for r in p.reads(output) if r.kind == "input"]


def _two_axes_lines(p: WindowValues) -> Iterator[str]:
    """Yield the planes x, y, gy and gx of p, a window over two axes, as lines, with the window of the chosen output in
    brackets.
    """
    rows, columns = (a.positions for a in p.window.axes)
    reads = {r.position for r in p.reads(p.chosen)}
    won = None if p.winners is None else p.winners[p.chosen]
    place = ",".join(map(str, p.chosen))

    def of_input(values: Array) -> Callable[[int, int], str]:
        """Return the text of cell (i, j) of an array over the input: read cells in brackets, "*" for the winner."""

        def cell(i: int, j: int) -> str:
            kind = kind_of(p.window, (i, j))
            inner = number(values[i, j]) if kind == "input" else MARKS[kind]
            return f" [{inner}]*" if (i, j) == won else f"[{inner}]" if (i, j) in reads else inner

        return cell

    def of_output(values: Array) -> Callable[[int, int], str]:
        """Return the text of cell (i, j) of an array over the outputs: the chosen one in brackets."""
        return lambda i, j: f"[{number(values[i, j])}]" if (i, j) == p.chosen else number(values[i, j])

    down, along = (range(n) for n in p.window.out)
    yield f"forward: x, and in brackets what y[{place}] reads" + ("; * wins" if won else "")
    yield from _grid(rows, columns, of_input(p.x))
    yield from ("", f"y: y[{place}] = {p.formula(p.chosen)} = {number(p.y[p.chosen])}")
    yield from _grid(down, along, of_output(p.y))
    yield from ("", "backward: gy goes back to the cells it came from")
    yield from _grid(down, along, of_output(p.gy))
    yield from ("", "gx: what every cell gets from all outputs")
    yield from _grid(rows, columns, of_input(p.gx))


def _grid(rows: Sequence[int], columns: Sequence[int], cell: Callable[[int, int], str]) -> Iterator[str]:
    """Yield the lines of a table with the text cell(row, column) in every place, all columns equally wide."""
    texts = [[cell(i, j) for j in columns] for i in rows]
    wide = max(len(t.strip("[]* ")) for line in texts for t in line) + 4
    for line in texts:
        yield "  " + "".join(t.center(wide) for t in line)
