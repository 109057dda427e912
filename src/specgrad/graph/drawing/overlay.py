"""Annotations of a drawn graph from a report: a tone and a short text per box.

layers: objects with name and verdict (an audit): green, amber, red

layers: boxes by name, with low and high (bounds): the wider, the deeper

nodes: balls by name, with value and radius (radii of rounding): the same way
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.errors import ParameterError
from specgrad.html_page import tone_of
from specgrad.scalar import upward, widths

from ..ir.node import Program
from .blocks import Block

ORDER = ("good", "open", "bad")
LEGEND = {"good": "explained by rounding", "open": "not examined, or cannot tell", "bad": "not explained by rounding"}


@dataclass(frozen=True)
class Annotation:
    """What a report says of one box: the tone of its colour, and a text."""

    tone: str
    text: str


def annotations_of(
    graph: Program, blocks: list[Block], report: Any
) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """Return the annotation of every box of `blocks` (None: the report has nothing on it), and the legend.

    ParameterError unless the report is one of audit, ibp or crown, or of radius with keep=True.
    """
    layers = getattr(report, "layers", None)
    if isinstance(layers, Mapping):
        return _width_annotations(
            graph, blocks, {name: _width(box.low, box.high) for name, box in layers.items()}, "width"
        )
    if layers is not None:
        return _verdict_annotations(graph, blocks, layers)
    nodes = getattr(report, "nodes", None)
    if isinstance(nodes, Mapping) and nodes and all(hasattr(ball, "radius") for ball in nodes.values()):
        return _width_annotations(
            graph, blocks, {name: _largest(ball.radius) for name, ball in nodes.items()}, "radius"
        )
    text = "a report with layers (audit, ibp, crown) or with kept nodes (radius with keep=True)"
    raise ParameterError("draw", f"report must be {text}; got {type(report).__name__}")


def _names(graph: Program, block: Block) -> list[str]:
    """Return the names of a box's nodes and layers, the last first: a box is annotated by its result."""
    nodes = [graph.nodes[i] for i in reversed(block.members)]
    return list(dict.fromkeys(name for n in nodes for name in (n.name, n.group)))


def _verdict_annotations(
    graph: Program, blocks: list[Block], layers: Any
) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """Return, per box of `blocks`, the worst verdict of its layers, and the legend."""
    by_name = {layer.name: layer.verdict for layer in layers}
    said: list[Annotation | None] = []
    for block in blocks:
        verdicts = [by_name[name] for name in _names(graph, block) if name in by_name]
        worst = max(verdicts, key=lambda v: (ORDER.index(tone_of(v.kind)), v.ratio), default=None)
        said.append(None if worst is None else Annotation(tone_of(worst.kind), _verdict_text(worst)))
    used = {s.tone for s in said if s is not None}
    return said, [(tone, text) for tone, text in LEGEND.items() if tone in used]


def _verdict_text(verdict: Any) -> str:
    """Return a verdict as short text, with the share of the allowance that was used."""
    share = f", {verdict.ratio:.2g} of allowed" if 0 < verdict.ratio <= 1 else ""
    return f"{verdict.kind}{share}"


def _largest(values: Any) -> float:
    """Return the largest of `values` as a float; 0 for none."""
    array = np.asarray(values, dtype=float)
    return float(np.max(array)) if array.size else 0.0


def _width(low: Any, high: Any) -> float:
    """Return the largest width high - low, rounded upward."""
    return _largest(widths(np.asarray(low, dtype=float), np.asarray(high, dtype=float)))


def _width_annotations(
    graph: Program, blocks: list[Block], widths: dict[str, float], word: str
) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """Return, per box of `blocks`, one of four tones by the logarithm of its width, and the legend; red if unbounded.

    `widths` are by node name; `word` says in texts what they are.
    """
    values = [next((widths[n] for n in _names(graph, b) if n in widths), None) for b in blocks]
    known = [v for v in values if v is not None and 0 < v < math.inf]
    low, high = (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 0.0)
    step = (high - low) / 4 or 1.0
    said: list[Annotation | None] = []
    for v in values:
        if v is None:
            said.append(None)
        elif not v < math.inf:
            said.append(Annotation("bad", f"{word} unbounded"))
        else:
            level = 0 if v <= 0 else min(3, int((math.log10(v) - low) / step))
            said.append(Annotation(f"width{level}", f"{word} {upward(v, 3)}"))
    largest: dict[str, float] = {}
    for v, s in zip(values, said, strict=True):
        if v is not None and s is not None and s.tone != "bad":
            largest[s.tone] = max(v, largest.get(s.tone, 0.0))
    legend = [(tone, f"{word} up to {upward(v, 3)}") for tone, v in sorted(largest.items())]
    unbounded = [("bad", "unbounded")] if any(s is not None and s.tone == "bad" for s in said) else []
    return said, legend + unbounded
