"""A graph as a picture: layers as boxes, shapes on the arrows, a report as colours."""

from __future__ import annotations

from html import escape
from typing import Any

from specgrad.errors import UnsupportedError, printable
from specgrad.svg import Canvas, Picture, fits

from ..ir.node import Program
from .blocks import Block, Net, blocks_of, shape_text
from .overlay import Annotation, annotations_of
from .placement import GAP, WIDE, Layout, arranged
from .summary import rows, table

LINE, HEAD = 11.0, 20.0  # the height of a small line and of the name above
TIMES = "\N{MULTIPLICATION SIGN}"


def draw(graph: Program, report: Any = None, *, detail: bool = False, columns: int | None = None) -> Picture:
    """Return the picture of a graph, coloured by a report if there is one, in so many columns; see `Graph.draw`.

    `detail` draws a box per operator, not per layer. ParameterError for what is no such report.
    """
    blocks, nets = blocks_of(graph, detail=detail)
    said, legend = ([None] * len(blocks), []) if report is None else annotations_of(graph, blocks, report)
    texts = [_texts(graph, b, s) for b, s in zip(blocks, said, strict=True)]
    heights = [HEAD + LINE * len(t) for t in texts]
    starts = [k for k in range(1, len(blocks)) if _starts_derivatives(blocks, k)]
    layout = arranged(heights, [(n.source, n.targets) for n in nets], starts, columns)
    canvas = Canvas()
    title = rows(graph)[1]
    top = _title(canvas, title, layout.width)
    for net, line in zip(nets, layout.lines, strict=True):
        _wire(canvas, blocks, net, line, top, shape_text(graph, net.node))
    for k, block in enumerate(blocks):
        _box(canvas, block, said[k], texts[k], heights[k], *_below_title(layout.corners[k], top))
    _labels(canvas, graph, blocks, nets, layout, heights, top)
    _legend(canvas, _all_tones(blocks, said, legend), top + layout.height + 4, layout.width)
    return canvas.picture(title, margin=10)


def _starts_derivatives(blocks: list[Block], k: int) -> bool:
    """Return whether box k of `blocks` is the first one of the derivatives, or of their own inputs."""
    following = next((b for b in blocks[k:] if not b.is_input), blocks[k])
    return following.derivative and not blocks[k - 1].derivative and not blocks[k - 1].is_input


def html(graph: Program) -> str:
    """Return HTML for notebooks: the picture and a folded table; the table alone for graphs too large to draw."""
    text = escape("\n".join(map(printable, table(graph).split("\n"))))
    try:
        svg = draw(graph).svg
    except UnsupportedError:
        return f"<pre>{text}</pre>"
    return f"{svg}<details><summary>as a table</summary><pre>{text}</pre></details>"


def _title(canvas: Canvas, title: str, width: float) -> float:
    """Draw the title in as many lines as a drawing of this width needs, broken at commas; return the height used."""
    lines = [""]
    for part in title.split(", "):
        joined = f"{lines[-1]}, {part}".lstrip(", ")
        if len(joined) * 5.8 > max(width, 200.0) - 20 and lines[-1]:
            lines.append(part)
        else:
            lines[-1] = joined
    for k, line in enumerate(lines):
        canvas.text(12, 20 + 14 * k, fits(line, max(width, 200.0) - 12, 10), "soft", size=10, anchor="start")
    return 14.0 + 14 * len(lines)


def _below_title(corner: tuple[float, float], top: float) -> tuple[float, float]:
    """Return a corner (x, y) shifted down by `top`, the height of the title."""
    return corner[0], corner[1] + top


def _texts(graph: Program, block: Block, said: Annotation | None) -> list[str]:
    """Return the small lines of a box: what it computes, what it gives, and what the report has `said` of it."""
    operator = " + ".join(block.texts)
    lines = [operator] if operator not in ("input", block.name) else []
    if block.is_input:
        lines = ["input"]
    if block.gives and (block.derivative or len(block.gives) > 1 or len(graph.output_positions) > 1):
        lines.append("gives " + ", ".join(shape_text(graph, i) for i in block.gives))
    elif block.gives:
        lines.append("output")
    return [*lines, *([said.text] if said else [])]


def _box(
    canvas: Canvas, block: Block, said: Annotation | None, texts: list[str], height: float, x: float, y: float
) -> None:
    """Draw one box of this height at (x, y) with its name and the small lines `texts`, in the tone of its annotation
    `said`.
    """
    plain = "read" if block.is_input else "back" if block.derivative else "cell"
    tone = said.tone if said else plain
    title = "\n".join([block.name, " + ".join(block.texts), *texts[1:]])
    canvas.box(x, y, WIDE, height, tone, radius=5, heavy=bool(block.gives), title=title.replace("\n", "; "))
    canvas.text(x + 8, y + 14, fits(block.name, WIDE - 16, 11.5), tone, size=10.5, anchor="start", bold=True)
    for k, text in enumerate(texts):
        canvas.text(x + 8, y + 25 + LINE * k, fits(text, WIDE - 14, 9.6), tone, size=9, anchor="start")


def _wire(canvas: Canvas, blocks: list[Block], net: Net, line: Any, top: float, shape: str) -> None:
    """Draw the lines of the value `net` between `blocks` as `line`, a Wire, says: arrows at its ends and dots where it
    branches.

    `top` is the height of the title above; `shape` is what a pointer over the lines shows beside the name.
    """
    tone = "back" if blocks[net.source].derivative else "paper"
    title = f"{blocks[net.source].name}: {shape}"
    for piece in line.trunk:
        canvas.path([_below_title(p, top) for p in piece], tone, title=title)
    for piece in line.ends:
        canvas.path([_below_title(p, top) for p in piece], tone, arrow=True, title=title)
    for x, y in line.dots:
        canvas.dot(x, y + top, tone)


def _labels(
    canvas: Canvas,
    graph: Program,
    blocks: list[Block],
    nets: list[Net],
    layout: Layout,
    heights: list[float],
    top: float,
) -> None:
    """Draw, beside the arrow that leaves each box of `blocks`, the shape of the value that goes to the next box, else
    of any.

    `nets` are the values that other boxes read, `layout` says where boxes stand, `top` how high the title above them
    is. `heights` are those of the boxes.
    """
    leaving: dict[int, list[Net]] = {}
    for net in nets:
        leaving.setdefault(net.source, []).append(net)
    for k in range(len(blocks)):
        if k not in leaving:
            continue
        net = next((n for n in leaving[k] if k + 1 in n.targets), leaving[k][0])
        x, y = _below_title(layout.corners[k], top)
        level = y - GAP / 2 + 3.5 if layout.upward[k] else y + heights[k] + GAP / 2 + 2.5
        text = shape_text(graph, net.node).replace("x", TIMES) if graph.nodes[net.node].shape else "scalar"
        canvas.text(x + WIDE / 2 + 6, level, fits(text, WIDE / 2 - 8, 9), "soft", size=9, anchor="start")


def _all_tones(
    blocks: list[Block], said: list[Annotation | None], legend: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the entries (tone, text) of the legend for the boxes `blocks` and their annotations `said`, with the
    report's own.
    """
    plain = any(b.is_input and s is None for b, s in zip(blocks, said, strict=True))
    entries = [("read", "input")] if plain else []
    if not legend:
        entries.append(("cell", "layer"))
        entries += [("back", "derivative")] if any(b.derivative for b in blocks) else []
    return entries + legend


def _legend(canvas: Canvas, entries: list[tuple[str, str]], y: float, width: float) -> None:
    """Draw the legend's entries (tone, text) from height y on, in lines of at most this width."""
    x = 12.0
    for tone, text in entries:
        long = 24 + 5.4 * len(text)
        if x + long > max(width, 240.0):
            x, y = 12.0, y + 15
        canvas.box(x, y - 8, 11, 10, tone)
        canvas.text(x + 16, y, text, "soft", size=9.5, anchor="start")
        x += long + 8
