"""Bounds and verdicts of `certify` as one HTML file each: box widths per layer, which relus are unstable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import SpecgradError
from ..graph.graph import INPUT, Graph, Node
from ..graph.show import data_inputs, describe, receptive_fields
from ..page import escape, executions, kind_of, named, page, picture, wide
from ..scalar import upward, widths
from .box import Bounds, Box, numpy_of
from .crown import crown
from .search.certify import Verdict

FOOT = (
    "A box holds every value that a layer can have, in every execution described above, for every input that was asked "
    "about; widths are rounded up, margins down. "
    "A cell is unstable where its function bends inside the box (a relu whose argument may have either sign)."
)
MOST_MARGINS = 200
SECONDS = 20.0  # for the boxes of a page


@dataclass(frozen=True)
class LayerBounds:
    """One operator: how wide its boxes are; of functions that bend, how many cells bend inside theirs."""

    name: str
    operator: str
    shape: tuple[int, ...]
    widest: float
    mean: float
    bending: int
    unstable: int


def layers_of(graph: Graph, bounds: Bounds) -> list[LayerBounds]:
    """A row per operator that depends on the data.

    >>> import specgrad as sg
    >>> from specgrad.bounds import ibp
    >>> graph = sg.trace(lambda x: sg.relu(x), (3,))
    >>> layers_of(graph, ibp(graph, Box([-1.0, 0.0, 1.0], [1.0, 2.0, 2.0]), deployed=False))[-1].unstable
    1
    """
    fields = receptive_fields(graph.nodes, data_inputs(graph))
    rows = []
    for node, seen in zip(graph.nodes, fields, strict=True):
        if seen is not None and node.name in bounds.layers:
            box = bounds.layers[node.name]
            width = widths(numpy_of(box.low), numpy_of(box.high))
            text = f"{node.op.name} {describe(node.params)}".rstrip()
            bending, unstable = _bends(graph, node, bounds)
            ends = (float(np.max(width, initial=0.0)), float(np.mean(width)) if width.size else 0.0)
            rows.append(LayerBounds(node.name, text, tuple(node.shape), *ends, bending, unstable))
    return rows


def _bends(graph: Graph, node: Node, bounds: Bounds) -> tuple[int, int]:
    """Cells of a function that bends, and those whose box has a bend inside."""
    kinks = () if node.op.curve is None else node.op.curve.kinks(node.params)
    box = bounds.layers.get(graph.nodes[node.operands()[0]].name) if kinks and node.operands() else None
    if box is None:
        return 0, 0
    low, high = numpy_of(box.low), numpy_of(box.high)
    inside = np.zeros(low.shape, dtype=bool)
    for kink in kinks:
        inside |= (low < float(kink)) & (high > float(kink))
    return int(low.size), int(inside.sum())


def bounds_page(graph: Graph, bounds: Bounds, title: str = "bounds") -> str:
    """Bounds of `ibp` or `crown`: a summary, the network with its widths as colours, a table of layers."""
    kind = "cannot tell" if bounds.unbounded else "ok"
    rows = layers_of(graph, bounds)
    body = [*_layers(graph, bounds, rows), _deployment(bounds.deployment)]
    return page(title, kind, _summary(bounds, rows), body, FOOT)


def _summary(bounds: Bounds, rows: Sequence[LayerBounds]) -> str:
    bending, unstable = sum(r.bending for r in rows), sum(r.unstable for r in rows)
    text = f"{len(rows)} operators; the last is at most {_number(rows[-1].widest)} wide" if rows else "no operators"
    if bending:
        text += f"; {unstable:,} of {bending:,} cells that can bend are unstable ({100 * unstable / bending:.3g} %)"
    if bounds.unbounded:
        text += f"; nothing is proven about {len(bounds.unbounded)}, first {named(bounds.unbounded[0])}"
    return f"{text}."


def _layers(graph: Graph, bounds: Bounds, rows: Sequence[LayerBounds]) -> list[str]:
    """The picture, where one can be drawn, and the table."""
    try:
        drawn = f"<h2>The network</h2>{picture(graph.draw(bounds).svg)}"
    except SpecgradError as error:
        drawn = f"<p>{escape(str(error))}</p>"
    head = (
        '<tr><th>layer<th>unstable<th class="number">widest box<th class="number">mean, about<th>operator<th>shape</tr>'
    )
    table = f"<table>{head}{''.join(map(_row, rows))}</table>"
    return [drawn, f"<h2>Layers</h2>{wide(table)}"]


def _row(r: LayerBounds) -> str:
    share = r.unstable / r.bending if r.bending else 0.0
    bar = f'<span class="track"><i class="open" style="width:{100 * share:.0f}%"></i></span>'
    counted = f"{bar} {r.unstable:,} of {r.bending:,}" if r.bending else ""
    mean = f"{r.mean:.2g}" if math.isfinite(r.mean) else ""
    numbers = f'<td class="number">{_number(r.widest)}</td><td class="number">{mean}</td>'
    shape = "&times;".join(map(str, r.shape))
    judged = f'<td>{named(r.name)}</td><td class="used">{counted}</td>{numbers}'
    return f"<tr>{judged}<td>{escape(r.operator)}</td><td>{shape}</td></tr>"


def _number(x: float) -> str:
    return upward(x, 3) if math.isfinite(x) else '<span class="bad">unbounded</span>'


def _deployment(said: Any) -> str:
    return "<h2>Which executions this holds for</h2>" + executions("in sentences", said)


def certify_page(
    title: str, verdict: Verdict, graph: Graph, question: Any, *, arithmetic: Any = None, seconds: float = SECONDS
) -> str:
    """A verdict of `certify`: margins, what it took, and the boxes of the layers over the first case's inputs."""
    body = [f"<p>{escape(_took(verdict))}</p>", *(f"<p>{escape(note)}</p>" for note in verdict.notes)]
    body += [f"<h2>Margins</h2>{_margins(verdict)}"]
    shape = graph.nodes[next(p for p in graph.input_positions if graph.nodes[p].op is INPUT)].shape
    low, high = (np.reshape(end, shape) for end in question.cases[0].outer())
    more = f" (the first of {len(question.cases):,} cases)" if len(question.cases) > 1 else ""
    try:
        bounds = crown(graph, Box(low, high), arithmetic=arithmetic, seconds=seconds)
        rows = layers_of(graph, bounds)
        body += [f"<h2>Boxes over the whole question{more}</h2><p>{_summary(bounds, rows)}</p>"]
        body += _layers(graph, bounds, rows)
    except SpecgradError as error:
        body += [f"<h2>Boxes</h2><p>None: {escape(str(error))}</p>"]
    return page(title, verdict.verdict, _lead(verdict), [*body, _deployment(verdict.deployment)], FOOT)


def _lead(verdict: Verdict) -> str:
    said = {
        "holds": "Proven for every input of the question and every execution described below.",
        "counterexample": "An input breaks it.",
        "unknown": "Neither proven nor broken.",
    }[verdict.verdict]
    return f"{said} {escape(verdict.reason)}".rstrip()


def _took(verdict: Verdict) -> str:
    stages = ", ".join(f"{name} {s:.2g} s" for name, s in verdict.stages.items() if s > 0)
    return f"{verdict.problems:,} subproblems; {stages or 'no time'}."


def _margins(verdict: Verdict) -> str:
    """By how much each alternative is excluded."""
    pairs = [(c, a, m) for c, case in enumerate(verdict.margins) for a, m in enumerate(case)]
    if not pairs:
        return "<p>None were computed.</p>"
    rows = "".join(
        f'<tr><td>{kind_of("proven" if m > 0 else "not proven")}</td><td class="number">{c}</td>'
        f'<td class="number">{a}</td><td class="number">{-float(upward(-m)):g}</td></tr>'
        for c, a, m in pairs[:MOST_MARGINS]
    )
    more = f"<p>And {len(pairs) - MOST_MARGINS:,} more.</p>" if len(pairs) > MOST_MARGINS else ""
    head = '<tr><th>verdict<th class="number">case<th class="number">alternative<th class="number">proven margin</tr>'
    text = "<p>A margin is how far the outputs stay, at least, from what must not happen.</p>"
    table = f'<table class="slim">{head}{rows}</table>'
    return f"{text}{wide(table)}{more}"
