"""What a report says of the layers of a graph, as tones and short texts; any report that has what these read.

layers: objects with name and verdict        an audit: green, amber, red
layers: boxes by name, with low and high      bounds: the wider, the deeper
nodes: balls by name, with value and radius   radii of rounding, the same way
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
    """Of one box: its tone and what stands in it."""

    tone: str
    text: str


def annotations_of(
    graph: Program, blocks: list[Block], report: Any
) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """What the report says of every box, and the legend."""
    layers = getattr(report, "layers", None)
    if isinstance(layers, Mapping):
        return _wide(graph, blocks, {name: _width(box.low, box.high) for name, box in layers.items()}, "width")
    if layers is not None:
        return _judged(graph, blocks, layers)
    nodes = getattr(report, "nodes", None)
    if isinstance(nodes, Mapping) and nodes and all(hasattr(ball, "radius") for ball in nodes.values()):
        return _wide(graph, blocks, {name: _most(ball.radius) for name, ball in nodes.items()}, "radius")
    text = "a report with layers (audit, ibp, crown) or with kept nodes (radius with keep=True)"
    raise ParameterError("draw", f"report must be {text}; got {type(report).__name__}")


def _names(graph: Program, block: Block) -> list[str]:
    """Of its layers and nodes, the last first: what is said of a box is said of its result."""
    nodes = [graph.nodes[i] for i in reversed(block.members)]
    return list(dict.fromkeys(name for n in nodes for name in (n.name, n.group)))


def _judged(graph: Program, blocks: list[Block], layers: Any) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """The worst verdict of the layers in a box."""
    by_name = {layer.name: layer.verdict for layer in layers}
    said: list[Annotation | None] = []
    for block in blocks:
        verdicts = [by_name[name] for name in _names(graph, block) if name in by_name]
        worst = max(verdicts, key=lambda v: (ORDER.index(tone_of(v.kind)), v.ratio), default=None)
        said.append(None if worst is None else Annotation(tone_of(worst.kind), _verdict(worst)))
    used = {s.tone for s in said if s is not None}
    return said, [(tone, text) for tone, text in LEGEND.items() if tone in used]


def _verdict(verdict: Any) -> str:
    share = f", {verdict.ratio:.2g} of allowed" if 0 < verdict.ratio <= 1 else ""
    return f"{verdict.kind}{share}"


def _most(values: Any) -> float:
    array = np.asarray(values, dtype=float)
    return float(np.max(array)) if array.size else 0.0


def _width(low: Any, high: Any) -> float:
    return _most(widths(np.asarray(low, dtype=float), np.asarray(high, dtype=float)))


def _wide(
    graph: Program, blocks: list[Block], widths: dict[str, float], word: str
) -> tuple[list[Annotation | None], list[tuple[str, str]]]:
    """Four steps between the narrowest and the widest box, in powers of ten; red where nothing is known."""
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
