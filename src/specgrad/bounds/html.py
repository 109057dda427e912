"""Bounds and verdicts of `certify` as one HTML file each, put together from what specgrad.bounds.report draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import SpecgradError
from ..graph.graph import Graph
from ..html_page import escape, executions, kind_of, named, page, picture, wide
from ..scalar import upward
from .box import Bounds
from .report.figures import Figures
from .report.image import shown
from .report.layer_widths import LayerBounds, chart, grows_most, layers_of, number, table
from .report.split_tree import drawing, part_of, said, worst_said
from .search.certify import CertifyResult

FOOT = (
    "A box holds every value that a layer can have, in every execution described above, for every input that was asked "
    "about; widths are rounded up, margins down. "
    "A cell is unstable where its function bends inside the box (a relu whose argument may have either sign)."
)
MOST_MARGINS = 200
MOST_TREES = 3


def bounds_page(graph: Graph, bounds: Bounds, title: str = "bounds") -> str:
    """Return an HTML page of `ibp` or `crown` bounds: a summary, the network coloured by width, a table of layers;
    `title` heads the page.
    """
    kind = "cannot tell" if bounds.unbounded else "ok"
    rows = layers_of(graph, bounds)
    body = [*_layers_html(graph, bounds, rows), _deployment_html(bounds.deployment)]
    return page(title, kind, _bounds_summary(bounds, rows), body, FOOT)


def _bounds_summary(bounds: Bounds, rows: Sequence[LayerBounds]) -> str:
    """Return one sentence about bounds: operators, the width of the last, unstable cells, nodes without bounds."""
    bending, unstable = sum(r.bending for r in rows), sum(r.unstable for r in rows)
    text = f"{len(rows)} operators; the last is {_width_text(rows[-1].widest)}" if rows else "no operators"
    if bending:
        text += f"; {unstable:,} of {bending:,} cells that can bend are unstable ({100 * unstable / bending:.3g} %)"
    if bounds.unbounded:
        text += f"; nothing is proven about {len(bounds.unbounded)}, first {named(bounds.unbounded[0])}"
    return f"{text}."


def _width_text(x: float) -> str:
    """Return a width as text: "at most 0.5 wide", or "inf" alone."""
    return f"at most {number(x)} wide" if math.isfinite(x) else number(x)


def _layers_html(graph: Graph, bounds: Bounds, rows: Sequence[LayerBounds]) -> list[str]:
    """Return HTML of bounds: the chart of widths, the table of layers and, if it can be drawn, the network."""
    try:
        drawn = f"<h2>The network</h2>{picture(graph.draw(bounds).svg)}"
    except SpecgradError as error:
        drawn = f"<p>{escape(str(error))}</p>"
    grown = f"<h2>Where bounds grow</h2><p>{grows_most(rows)}</p>{chart(rows)}" if rows else ""
    return [grown, f"<h2>Layers</h2>{table(rows)}", drawn]


def _deployment_html(said: Any) -> str:
    """Return HTML of the executions that bounds hold for; `said` is their description, texts by topic."""
    return "<h2>Which executions this holds for</h2>" + executions("in sentences", said)


def certify_page(title: str, verdict: CertifyResult, shown_: Figures) -> str:
    """Return an HTML page of a `certify` verdict: margins or counterexample, search trees and layer bounds.

    `title` heads the page.

    shown_   numbers and pictures for it, made beforehand; what is None there is left out, and of bounds it is said why
    """
    body = [f"<p>{escape(_effort_text(verdict))}</p>", *(f"<p>{escape(note)}</p>" for note in verdict.notes)]
    if shown_.pair is not None:
        body += [f"<h2>The counterexample</h2>{shown(shown_.pair)}"]
    else:
        body += [f"<h2>Margins</h2>{_margins_table(verdict)}"]
    if shown_.worst is not None:
        body += [f"<h2>What is left open</h2>{worst_said(shown_.worst, shown_.question.inputs)}"]
    body += _trees_html(verdict, shown_)
    more = f" (the first of {len(shown_.question.cases):,} cases)" if len(shown_.question.cases) > 1 else ""
    if shown_.bounds is not None:
        body += [f"<h2>Boxes over the whole question{more}</h2><p>{_bounds_summary(shown_.bounds, shown_.layers)}</p>"]
        body += _layers_html(shown_.graph, shown_.bounds, shown_.layers)
    else:
        body += [f"<h2>Boxes</h2><p>None: {escape(shown_.without)}</p>"]
    return page(title, verdict.verdict, _verdict_text(verdict), [*body, _deployment_html(verdict.deployment)], FOOT)


def _trees_html(verdict: CertifyResult, shown_: Figures) -> list[str]:
    """Return HTML of the largest split trees of all cases.

    Of the verdict come the alternatives that each excludes, of the figures `shown_` the trees. None smaller than two
    cuts.
    """
    numbered = [(c, k, tree) for c, case in enumerate(shown_.trees) for k, tree in enumerate(case)]
    numbered = sorted((t for t in numbered if len(t[2].cuts) > 1), key=lambda t: -len(t[2].cuts))
    if not numbered:
        return []
    body = ["<h2>How the question was divided</h2>"]
    part = verdict.open_part
    for c, k, tree in numbered[:MOST_TREES]:
        alternatives = ", ".join(map(str, verdict.trees[c][k][0]))
        where = f"Case {c}, alternatives {alternatives}: " if len(numbered) > 1 else ""
        worst = None if part is None else part_of(tree, part.cuts)
        tree_shown = drawing(shown_.graph, tree, settled=verdict.verdict == "holds", worst=worst)
        body.append(said(shown_.graph, tree, where, tree_shown))
    if len(numbered) > MOST_TREES:
        body.append(f"<p>And {len(numbered) - MOST_TREES:,} smaller trees.</p>")
    return body


def _verdict_text(verdict: CertifyResult) -> str:
    """Return the first sentences of the page: verdict and reason."""
    said = {
        "holds": "Proven for every input of the question and every execution described below.",
        "violated": "An input breaks it.",
        "unknown": "Neither proven nor broken.",
    }[verdict.verdict]
    excluded = verdict.deployment.get("choices", "") if verdict.verdict == "holds" else ""
    but = f"But {escape(excluded)}. " if excluded else ""
    return f"{said} {but}{escape(verdict.reason)}".rstrip()


def _effort_text(verdict: CertifyResult) -> str:
    """Return the sentence on a verdict's effort: number of subproblems, seconds by stage."""
    stages = ", ".join(f"{name} {s:.2g} s" for name, s in verdict.stages.items() if s > 0)
    return f"{verdict.problems:,} subproblems; {stages or 'no time'}."


def _margins_table(verdict: CertifyResult) -> str:
    """Return an HTML table of the margin that the verdict has for each alternative of each case, with whether it is
    proven.
    """
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
