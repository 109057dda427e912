"""Chart and table of how wide every layer's box is, and how many of its cells are unstable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from specgrad.graph.drawing.summary import data_inputs, describe, receptive_fields
from specgrad.graph.graph import Graph, Node
from specgrad.html_page import escape, level, named, plot, text_at, wide
from specgrad.scalar import upward, widths

from ..box import Bounds, numpy_of

LEFT, HIGH, GAP, LOW = 48.0, 130.0, 34.0, 50.0  # of the chart: room for numbers, and both panels


@dataclass(frozen=True)
class LayerBounds:
    """One operator's row: how wide its boxes are, and how many cells of a nonlinear function are unstable.

    growth         its widest box over the widest one that it reads; None where that is 0 or unbounded
    name, shape    of the operator's layer, and of its output
    widest, mean   the largest and the mean width of its cells' intervals
    bending        cells of a nonlinear function, of which `unstable` are not decided by their interval
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    widest: float
    mean: float
    bending: int
    unstable: int
    growth: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON data, by name; `growth` is left out if it is None."""
        data = asdict(self)
        return {k: v for k, v in data.items() if k != "growth" or v is not None}


def layers_of(graph: Graph, bounds: Bounds) -> list[LayerBounds]:
    """Return one row per operator that depends on the data and has bounds: widths, growth, unstable cells.

    >>> import specgrad as sg
    >>> from specgrad.bounds import Box, ibp
    >>> graph = sg.trace(lambda x: sg.relu(x), (3,))
    >>> layers_of(graph, ibp(graph, Box([-1.0, 0.0, 1.0], [1.0, 2.0, 2.0]), deployed=False))[-1].unstable
    1
    """
    fields = receptive_fields(graph.nodes, data_inputs(graph))
    rows, widest = [], {}
    for i, (node, seen) in enumerate(zip(graph.nodes, fields, strict=True)):
        if node.name not in bounds.layers:
            continue
        box = bounds.layers[node.name]
        width = widths(numpy_of(box.low), numpy_of(box.high))
        widest[i] = float(np.max(width, initial=0.0))
        if seen is not None:
            text = f"{node.op.name} {describe(node.params)}".rstrip()
            mean = float(np.mean(width)) if width.size else 0.0
            ends = (widest[i], mean, *_nonlinear_cells(graph, node, bounds))
            rows.append(LayerBounds(node.name, text, tuple(node.shape), *ends, _growth(node, widest[i], widest)))
    return rows


def _growth(node: Node, width: float, widest: dict[int, float]) -> float | None:
    """Width over the widest box that the node reads; None if that is 0 or unbounded."""
    read = max((widest[i] for i in node.operands() if i in widest), default=0.0)
    return width / read if read > 0 and math.isfinite(read) and math.isfinite(width / read) else None


def _nonlinear_cells(graph: Graph, node: Node, bounds: Bounds) -> tuple[int, int]:
    """Return the number of cells of a node whose function bends, and of those with a kink inside their box.

    (0, 0) for others.
    """
    kinks = () if node.op.curve is None else node.op.curve.kinks(node.params)
    box = bounds.layers.get(graph.nodes[node.operands()[0]].name) if kinks and node.operands() else None
    if box is None:
        return 0, 0
    low, high = numpy_of(box.low), numpy_of(box.high)
    inside = np.zeros(low.shape, dtype=bool)
    for kink in kinks:
        inside |= (low < float(kink)) & (high > float(kink))
    return int(low.size), int(inside.sum())


def grows_most(rows: Sequence[LayerBounds]) -> str:
    """Return a sentence on the layer that widens its inputs most; "" if none does.

    >>> grows_most([LayerBounds("conv", "conv", (1,), 6.0, 6.0, 0, 0, 3.0)])
    'Boxes grow most in <code>conv</code>: 3 times what it reads.'
    """
    top = max((r for r in rows if r.growth is not None), key=lambda r: r.growth or 0.0, default=None)
    if top is None or top.growth is None or top.growth <= 1:
        return ""
    return f"Boxes grow most in {named(top.name)}: {top.growth:.3g} times what it reads."


def chart(rows: Sequence[LayerBounds]) -> str:
    """Return an SVG chart of the layers' widths, `rows`, on a logarithmic scale, with the share of unstable cells
    below.
    """
    if not rows:
        return ""
    sizes = [math.log10(r.widest) for r in rows if r.widest > 0 and math.isfinite(r.widest)]
    first, last = (math.floor(min(sizes)), math.ceil(max(sizes))) if sizes else (-1, 0)
    first, last = min(first, last - 1), max(last, first + 1)
    step = max(9.0, min(40.0, 900 / len(rows)))
    right = max(LEFT + step * len(rows), 340.0)
    floor = 22.0 + HIGH
    parts = [text_at(0, 12, "widest box of every layer, powers of ten", "start")]
    every = max(1, (last - first) // 5)
    for exponent in range(first, last + 1, every):
        y = floor - HIGH * (exponent - first) / (last - first)
        parts += [level(LEFT, right, y), text_at(LEFT - 6, y + 4, "1" if exponent == 0 else f"1e{exponent}", "end")]
    below = floor + GAP + LOW if any(r.bending for r in rows) else floor
    if below > floor:
        parts.append(text_at(0, floor + GAP - 8, "share of its cells that are unstable", "start"))
    for share in (0, 50, 100) if below > floor else ():
        y = below - LOW * share / 100
        parts += [level(LEFT, right, y), text_at(LEFT - 6, y + 4, f"{share} %", "end")]
    for k, r in enumerate(rows):
        x = LEFT + step * k + step * 0.15
        parts += [_width_bar(r, k, x, step * 0.7, floor, first, last), _unstable_bar(r, k, x, step * 0.7, below)]
    named_every = math.ceil(22 / step)
    parts += [
        text_at(LEFT + step * (k + 0.5), below + 16, str(k + 1), "middle") for k in range(0, len(rows), named_every)
    ]
    parts.append(text_at(0, below + 34, "layers in order, numbered as in the table below", "start"))
    return plot(right + 8, below + 42, _chart_text(rows), parts)


def _width_bar(r: LayerBounds, k: int, x: float, wide_: float, floor: float, first: int, last: int) -> str:
    """SVG bar of the width of layer k on the logarithmic scale, 10**first to 10**last; a full bar if it is unbounded.

    It stands on `floor`, begins at x and is `wide_` wide.
    """
    if math.isfinite(r.widest):
        share = (math.log10(r.widest) - first) / (last - first) if r.widest > 0 else 0.0
        return _rectangle(
            x, wide_, floor, max(HIGH * share, 1.5), "link", f"{k + 1} {r.name}: at most {upward(r.widest, 3)}"
        )
    return _rectangle(x, wide_, floor, HIGH, "bad", f"{k + 1} {r.name}: unbounded")


def _unstable_bar(r: LayerBounds, k: int, x: float, wide_: float, floor: float) -> str:
    """SVG bar of one layer's share of unstable cells, on y = `floor` and `wide_` wide; "" if it has no function that
    bends.

    k is the layer's number from 0, for its label.
    """
    if not r.bending:
        return ""
    label = f"{k + 1} {r.name}: {r.unstable:,} of {r.bending:,} unstable"
    return _rectangle(x, wide_, floor, max(LOW * r.unstable / r.bending, 1.5), "open", label)


def _rectangle(x: float, width: float, floor: float, height: float, tone: str, label: str) -> str:
    """SVG rectangle in the colour `tone` that stands on y = `floor`; a pointer over it shows the label.

    Left edge at x; width and height in pixels.
    """
    place = f'x="{x:.1f}" y="{floor - height:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} class="fill-{tone}"><title>{escape(label)}</title></rect>'


def _chart_text(rows: Sequence[LayerBounds]) -> str:
    """Describe the chart of the layers `rows` in words, for its alternative text."""
    ends = f"from {_width_text(rows[0].widest)} in {rows[0].name} to {_width_text(rows[-1].widest)} in {rows[-1].name}"
    top = max((r for r in rows if r.bending), key=lambda r: r.unstable / r.bending, default=None)
    unstable = (
        f"; the largest share of unstable cells is in {top.name}: {top.unstable:,} of {top.bending:,}" if top else ""
    )
    return f"Widest box of each of {len(rows)} layers: {ends}{unstable}. The table below has every number"


def _width_text(x: float) -> str:
    """Width in 3 digits, rounded up, or "unbounded"."""
    return upward(x, 3) if math.isfinite(x) else "unbounded"


def number(x: float) -> str:
    """HTML of a width in 3 digits, rounded up, or "unbounded"."""
    return upward(x, 3) if math.isfinite(x) else '<span class="bad">unbounded</span>'


def table(rows: Sequence[LayerBounds]) -> str:
    """Return an HTML table of all layers: unstable cells, widths, growth, operator and shape."""
    head = (
        '<tr><th class="number">#<th>layer<th>unstable<th class="number">widest box'
        '<th class="number">times what it reads'
        '<th class="number">mean, about<th>operator<th>shape</tr>'
    )
    return wide(f"<table>{head}{''.join(_row_html(k + 1, r) for k, r in enumerate(rows))}</table>")


def _row_html(number_: int, r: LayerBounds) -> str:
    """Return the HTML table row of one layer, with its number from 1."""
    share = r.unstable / r.bending if r.bending else 0.0
    bar = f'<span class="track"><i class="open" style="width:{100 * share:.0f}%"></i></span>'
    counted = f"{bar} {r.unstable:,} of {r.bending:,}" if r.bending else ""
    mean = f"{r.mean:.2g}" if math.isfinite(r.mean) else ""
    growth = "" if r.growth is None else f"{r.growth:.3g}"
    numbers = "".join(f'<td class="number">{n}</td>' for n in (number(r.widest), growth, mean))
    shape = "&times;".join(map(str, r.shape))
    judged = f'<td class="number">{number_}</td><td>{named(r.name)}</td><td class="used">{counted}</td>{numbers}'
    return f"<tr>{judged}<td>{escape(r.operator)}</td><td>{shape}</td></tr>"
