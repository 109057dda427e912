"""A window drawn as SVG: a row per output over one axis, planes and small multiples over two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..svg import Canvas, Picture
from ..window import Shape
from .window_values import Read, WindowValues, kind_of, number

WIDE, HIGH, GAP = 34.0, 28.0, 6.0  # of a cell; between rows
LEFT, TOP = 62.0, 58.0
MAX_THUMBNAILS = 64  # windows of a plane that are drawn one by one
SMALL = 7.0
TIMES = "\N{MULTIPLICATION SIGN}"


def draw(p: WindowValues) -> Picture:
    """Return the picture of a window over one axis or two, with the values p."""
    canvas = Canvas()
    canvas.text(16, 26, p.title, size=15, anchor="start", bold=True)
    canvas.text(16, 43, p.counted, "soft", size=11, anchor="start")
    (_draw_one_axis if p.window.rank == 1 else _draw_two_axes)(canvas, p)
    return canvas.picture(p.title)


def _cell(
    canvas: Canvas, x: float, y: float, text: str, tone: str, *, corner: str = "", heavy: bool = False, **look: Any
) -> None:
    """Draw a cell at (x, y), upper left, with a number `text` and, small above it, its factor `corner`.

    `tone` is its colour; `heavy` makes frame and number bold; `look` goes to `Canvas.box`.
    """
    canvas.box(x, y, WIDE, HIGH, tone, heavy=heavy, **look)
    size = 13.0 if len(text) < 5 else 10.0 if len(text) < 7 else 8.0
    canvas.text(x + WIDE / 2, y + HIGH / 2 + (6.5 if corner else 4.5), text, tone, size=size, bold=heavy)
    if corner:
        canvas.text(x + WIDE / 2, y + 8.5, corner, tone, size=7.5)


def _outside(canvas: Canvas, x: float, y: float, kind: str, read: bool = False) -> None:
    """Draw at (x, y), upper left, a position that holds no number: kind "padding", or "beyond" the padding, marked "~".

    `read`: in the colour of the cells that the window reads.
    """
    canvas.box(x, y, WIDE, HIGH, "read" if read else "pad", dashed=True)
    if kind == "beyond":
        canvas.text(x + WIDE / 2, y + HIGH / 2 + 4, "~", "read" if read else "pad", size=12)


def _legend(canvas: Canvas, x: float, y: float, entries: Sequence[tuple[str, bool, str]]) -> None:
    """Draw the legend at (x, y) in one line; each of `entries` is (tone, dashed, meaning)."""
    for tone, dashed, text in entries:
        canvas.box(x, y - 9, 13, 11, tone, dashed=dashed)
        canvas.text(x + 19, y, text, "soft", size=11, anchor="start")
        x += 38 + 5.7 * len(text)


def _legend_entries(p: WindowValues) -> list[tuple[str, bool, str]]:
    """Return the legend entries (tone, dashed, meaning) of the kinds of cells that the window of p has."""
    kinds = {r.kind for o in p.outputs() for r in p.reads(o)} | {
        "padding" for a in p.window.axes if len(a.extent) > a.size
    }
    entries = [("read", False, "read by the window")]
    entries += [("win", False, "wins: the first largest")] if p.winners else []
    entries += (
        [("pad", True, "padding" + (", ignored" if p.winners else ", counts as 0"))] if "padding" in kinds else []
    )
    entries += [("pad", True, "~ beyond the padding: ceil")] if "beyond" in kinds else []
    return entries


# --- one axis ---------------------------------------------------------------------------------------------------------


def _draw_one_axis(canvas: Canvas, p: WindowValues) -> None:
    """Draw the window of p over one axis: a row per output forward, then a row per output backward."""
    positions = p.window.axes[0].positions
    across = {i: LEFT + WIDE * k for k, i in enumerate(positions)}
    end = LEFT + WIDE * len(positions) + 14
    y = _heading(canvas, TOP, "forward", "a row is what one output reads")
    for i, x in across.items():
        canvas.text(x + WIDE / 2, y + 8, i, "soft", size=9)
    y = _strip(canvas, p, "x", p.x, across, y + 13, "cell") + 2 * GAP
    for o in p.outputs():
        _draw_reads(canvas, p, o, across, y)
        _draw_result(canvas, end, y, f"y[{o[0]}]", number(p.y[o]), "good", p.formula(o))
        y += HIGH + GAP
    y = _heading(canvas, y + 14, "backward", "a row sends its gy back; a column adds up to gx")
    for o in p.outputs():
        for r in p.reads(o):
            if r.kind == "input":
                _draw_share(canvas, p, r, p.gy[o], across[r.position[0]], y)
            else:
                _outside(canvas, across[r.position[0]], y, r.kind)
        _draw_result(canvas, end, y, f"gy[{o[0]}]", number(p.gy[o]), "back", "", back=True)
        y += HIGH + GAP
    canvas.path([(LEFT, y + 1), (end - 14, y + 1)], "soft")
    y = _strip(canvas, p, "gx", p.gx, across, y + GAP + 2, "back")
    _legend(canvas, 16, y + 28, [*_legend_entries(p), ("back", False, "what goes back: cotangents")])


def _heading(canvas: Canvas, y: float, word: str, about: str) -> float:
    """Draw a section heading at height `y`, `word` in bold and `about` behind it; return the height below it."""
    canvas.text(16, y + 12, word, size=12, anchor="start", bold=True)
    canvas.text(24 + 8.0 * len(word), y + 12, about, "soft", size=12, anchor="start")
    return y + 24


def _strip(
    canvas: Canvas, p: WindowValues, name: str, values: Any, across: dict[int, float], y: float, tone: str
) -> float:
    """Draw all positions of the axis in one row, with `values` (over the input) in the cells.

    `across` says where each position begins, `y` where the row does; `name` stands before it, `tone` colours its cells.

    Return the height below it.
    """
    canvas.text(LEFT - 10, y + HIGH / 2 + 4, name, size=12, anchor="end", mono=True)
    for i, x in across.items():
        kind = kind_of(p.window, (i,))
        if kind == "input":
            _cell(canvas, x, y, number(values[i]), tone)
        else:
            _outside(canvas, x, y, kind)
    return y + HIGH


def _draw_reads(canvas: Canvas, p: WindowValues, o: Shape, across: dict[int, float], y: float) -> None:
    """Draw the taps of output `o`, with a line through them where dilation leaves cells out.

    The row begins at height `y`; `across` says where each position of the axis begins. `p` holds the numbers, `c` is
    drawn on.
    """
    taps = p.reads(o)
    canvas.path(
        [(across[taps[0].position[0]], y + HIGH / 2), (across[taps[-1].position[0]] + WIDE, y + HIGH / 2)], "read"
    )
    for r in taps:
        x = across[r.position[0]]
        if r.kind != "input":
            _outside(canvas, x, y, r.kind, read=True)
            continue
        won = p.winners is not None and p.winners[o] == r.position
        corner = "" if p.winners else f"{TIMES}{number(r.share)}"
        _cell(canvas, x, y, number(p.x[r.position]), "win" if won else "read", corner=corner, heavy=won)


def _draw_share(canvas: Canvas, p: WindowValues, r: Read, gy: Any, x: float, y: float) -> None:
    """Draw at (x, y), upper left, what of `gy`, the cotangent of one output, goes back through the tap `r`.

    That is the product with the tap's share, which stands small above it, except of a maximum: there it is 0 or 1. `p`
    holds the numbers, it is drawn on `canvas`.
    """
    corner = "" if p.winners else f"{TIMES}{number(r.share)}"
    if r.share == 0:
        _cell(canvas, x, y, "0", "soft")
    else:
        _cell(canvas, x, y, number(r.share * gy), "win" if p.winners else "read", corner=corner, heavy=bool(p.winners))


def _draw_result(
    canvas: Canvas, x: float, y: float, name: str, value: str, tone: str, formula: str, back: bool = False
) -> None:
    """Draw one output or cotangent at (x, y) beside its row, with an arrow to it (`back`: from it) and its formula.

    `name` stands before the cell, which holds `value` in the colour `tone`.
    """
    ends = [(x - 8, y + HIGH / 2), (x + 12, y + HIGH / 2)]
    canvas.path(ends[::-1] if back else ends, "soft", arrow=True)
    canvas.text(x + 18, y + HIGH / 2 + 4, name, size=12, anchor="start", mono=True)
    _cell(canvas, x + 26 + 7.4 * len(name), y, value, tone)
    if formula:
        canvas.text(x + 36 + 7.4 * len(name) + WIDE, y + HIGH / 2 + 4, f"= {formula}", "soft", size=11, anchor="start")


# --- two axes ---------------------------------------------------------------------------------------------------------


def _draw_two_axes(canvas: Canvas, p: WindowValues) -> None:
    """Draw the window of p over two axes: planes of x and y, then of gx and gy, and a thumbnail per output."""
    rows, columns = (a.positions for a in p.window.axes)
    left, side = 44.0, 44.0 + WIDE * len(columns) + 74
    place = ",".join(map(str, p.chosen))
    formula = f"y[{place}] = {p.formula(p.chosen)} = {number(p.y[p.chosen])}"
    y = _heading(canvas, TOP, "forward", f"what y[{place}] reads, and all outputs")
    low = y + 16
    _draw_indices(canvas, left, low, rows, columns)
    _draw_input(canvas, p, p.x, left, low, forward=True)
    _draw_output(canvas, p, p.y, side, low + HIGH, "y", "good")
    _arrow(canvas, p, left, side, low, back=False)
    y = low + HIGH * max(len(rows), p.window.out[0] + 1) + 18
    if len(formula) <= 110:
        canvas.text(left, y, formula, "soft", size=11, anchor="start", mono=True)
        y += 14
    low = _heading(canvas, y + 8, "backward", "gy goes back to the cells it came from; a cell adds up what it gets") + 4
    _draw_input(canvas, p, p.gx, left, low, forward=False)
    _draw_output(canvas, p, p.gy, side, low + HIGH, "gy", "back")
    _arrow(canvas, p, left, side, low, back=True)
    y = low + HIGH * max(len(rows), p.window.out[0] + 1) + 12
    y = _draw_thumbnails(canvas, p, y + 8)
    _legend(canvas, 16, y + 22, [*_legend_entries(p), ("back", False, "what goes back: cotangents")])


def _draw_indices(canvas: Canvas, left: float, top: float, rows: Sequence[int], columns: Sequence[int]) -> None:
    """Draw the row and column indices beside a plane whose first cell has the upper left corner (left, top)."""
    for k, j in enumerate(columns):
        canvas.text(left + WIDE * (k + 0.5), top - 5, j, "soft", size=9)
    for k, i in enumerate(rows):
        canvas.text(left - 6, top + HIGH * (k + 0.5) + 3, i, "soft", size=9, anchor="end")


def _draw_input(canvas: Canvas, p: WindowValues, values: Any, left: float, top: float, *, forward: bool) -> None:
    """Draw the input plane with padding, `values` in its cells, from the upper left corner (left, top) on.

    The chosen window is coloured; backward also every cell with a gradient. `forward`: winners are marked; else cells
    with a gradient.
    """
    rows, columns = (a.positions for a in p.window.axes)
    taps = {r.position: r for r in p.reads(p.chosen)}
    won = None if p.winners is None else p.winners[p.chosen]
    for k, i in enumerate(rows):
        for m, j in enumerate(columns):
            x, y, tap = left + WIDE * m, top + HIGH * k, taps.get((i, j))
            kind = kind_of(p.window, (i, j))
            if kind != "input":
                _outside(canvas, x, y, kind, read=tap is not None)
                continue
            tone = "win" if (i, j) == won else "read" if tap else "cell" if forward or values[i, j] == 0 else "back"
            corner = f"{TIMES}{number(tap.share)}" if tap and not p.winners else ""
            _cell(canvas, x, y, number(values[i, j]), tone, corner=corner, heavy=(i, j) == won)


def _draw_output(canvas: Canvas, p: WindowValues, values: Any, left: float, top: float, name: str, tone: str) -> None:
    """Draw the plane of outputs or of their cotangents, `values`, under its `name`; the chosen one is emphasised.

    (left, top) is the corner of the first cell; `tone` is the colour of the chosen one, "good" forward and "back"
    backward.
    """
    canvas.text(left, top - 7, name, size=12, anchor="start", mono=True)
    for o in p.outputs():
        chosen = o == p.chosen
        look = tone if chosen else "cell" if tone == "good" else "back"
        _cell(canvas, left + WIDE * o[1], top + HIGH * o[0], number(values[o]), look, heavy=chosen)


def _arrow(canvas: Canvas, p: WindowValues, left: float, side: float, top: float, *, back: bool) -> None:
    """Draw an arrow between the chosen window of p and its output; if `back` it points the other way.

    The input plane begins at (left, top), the output plane at `side`.
    """
    columns = p.window.axes[1].positions
    high = top + HIGH * (p.chosen[0] + 1.5)
    gap = left + WIDE * len(columns)
    ends = [(gap + 8, high), (side - 8, high)]
    canvas.path(ends[::-1] if back else ends, "soft", arrow=True, width=1.4)


def _draw_thumbnails(canvas: Canvas, p: WindowValues, y: float) -> float:
    """Draw a thumbnail of the window of every output of p below y, unless they are too many; return the height below
    them.
    """
    rows, columns = (a.positions for a in p.window.axes)
    count = p.window.out[0] * p.window.out[1]
    wide = SMALL * len(columns) + 12
    if count > MAX_THUMBNAILS or wide * p.window.out[1] > 900:
        return y
    y = _heading(canvas, y, "every output", "and the cells that it reads")
    high = SMALL * len(rows) + 12
    for o in p.outputs():
        _draw_thumbnail(canvas, p, o, 44 + wide * o[1], y + high * o[0])
    return y + high * p.window.out[0]


def _draw_thumbnail(canvas: Canvas, p: WindowValues, o: Shape, x: float, y: float) -> None:
    """Draw the whole input, padded, as small squares from the upper left corner (x, y) on, over two axes.

    The cells that output `o` reads have one colour, the winner of a maximum another. `p` holds the numbers, `c` is
    drawn on.
    """
    rows, columns = (a.positions for a in p.window.axes)
    reads = {r.position for r in p.reads(o)}
    won = None if p.winners is None else p.winners[o]
    corners: dict[str, list[tuple[float, float]]] = {}
    for k, i in enumerate(rows):
        for m, j in enumerate(columns):
            plain = "grain" if kind_of(p.window, (i, j)) == "input" else "pad"
            tone = "win" if (i, j) == won else "read" if (i, j) in reads else plain
            corners.setdefault(tone, []).append((x + SMALL * m, y + SMALL * k))
    for tone, places in corners.items():
        canvas.squares(places, SMALL - 1, tone)
