"""Find the blind spots of a verdict on outputs alone: faults that move no output by more than its allowance.

Faults that layers often have are planted in the model, one at a time, and computed exactly (float64) at the inputs of
the audit. A device with such a fault is off by its effect, and by roundings besides, which may take about the
allowance away again. So a fault counts as detected where the effect is more than twice the allowance of some cell.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.errors import SpecgradError
from specgrad.graph.graph import Graph
from specgrad.rounding import Ball
from specgrad.scalar import Array

from ..verdicts.mutations import faulty_graphs
from .attribution import values_of

MAX_SECONDS = 20.0
MAX_LISTED_FAULTS = 8  # faults that are listed by name on a screen


@dataclass(frozen=True)
class BlindSpots:
    """How sensitive a verdict on outputs alone is: planted faults that it detects, and those that stay hidden.

    points             inputs that the model ran on
    cells              output cells that were judged, of all points
    smallest, largest  what is allowed: in the narrowest cell, and in the widest
    tried              faults that were planted
    detected           how many of them could not be taken for rounding
    undetected         the others, by layer and in words
    """

    points: int
    cells: int
    smallest: float
    largest: float
    tried: int
    detected: int
    undetected: tuple[str, ...]

    def sentences(self) -> list[str]:
        """Return the blind spots as sentences for a report."""
        points = f"{self.points} points, " if self.points > 1 else ""
        said = [
            f"judged from outputs alone ({points}{self.cells} cells): a fault that moves none of them by more than is "
            f"allowed ({self.smallest:.2g} to {self.largest:.2g}), or shows at other inputs only, cannot be seen"
        ]
        if not self.tried:
            return said
        text = f"of {self.tried} usual faults, planted one at a time, {self.detected} would be seen"
        if self.undetected:
            more = (
                f" and {len(self.undetected) - MAX_LISTED_FAULTS} more"
                if len(self.undetected) > MAX_LISTED_FAULTS
                else ""
            )
            text += f"; these could hide: {', '.join(self.undetected[:MAX_LISTED_FAULTS])}{more}"
        return [*said, text]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `points`, `cells`, the `smallest` and `largest` allowance, and how many faults were
        `tried`, `detected`, and which are `undetected`.
        """
        numbers = {"points": self.points, "cells": self.cells, "smallest": self.smallest, "largest": self.largest}
        return {**numbers, "tried": self.tried, "detected": self.detected, "undetected": list(self.undetected)}


def find_blind_spots(
    graph: Graph, points: Sequence[tuple[Sequence[Array], Sequence[Ball]]], backend: str, seconds: float = MAX_SECONDS
) -> BlindSpots:
    """Return the faults that stay undetected at all points, each given by its inputs and the outputs' balls.

    `backend` ("numpy" or "torch") computes faulty outputs; faults not reached in `seconds` are not counted as tried.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.avg_pool(sg.relu(x), (2,), stride=2, padding=((1, 0),)), (1, 3))
    >>> x, y = np.array([[1.0, 2, 3]]), np.array([[0.5, 2.5]])
    >>> find_blind_spots(graph, [([x], [Ball(y, np.full((1, 2), 0.01))])], "numpy").undetected
    ()
    >>> find_blind_spots(graph, [([x], [Ball(y, np.full((1, 2), 0.3))])], "numpy").undetected
    ('avg_pool with divisor inside',)
    """
    radii = [ball.radius.ravel() for _, balls in points for ball in balls]
    finite = np.concatenate([r[np.isfinite(r)] for r in radii])
    tried, undetected, end = 0, [], time.monotonic() + seconds
    for text, faulty in faulty_graphs(graph):
        if time.monotonic() > end:
            break
        tried += 1
        if not any(_is_detected(faulty, inputs, balls, backend) for inputs, balls in points):
            undetected.append(text)
    ends = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return BlindSpots(
        len(points), sum(r.size for r in radii), *ends, tried, tried - len(undetected), tuple(dict.fromkeys(undetected))
    )


def _is_detected(faulty: Graph, inputs: Sequence[Array], balls: Sequence[Ball], backend: str) -> bool:
    """Return whether the graph `faulty` moves some output cell by more than twice its allowance; true if it cannot be
    run.

    `balls` are the right outputs, `backend` ("numpy" or "torch") computes the faulty ones.
    """
    try:
        values = values_of(faulty, faulty.output_positions, inputs, backend)
    except SpecgradError:  # nothing runs a model that is wrong in this way
        return True
    with np.errstate(all="ignore"):
        pairs = zip(faulty.output_positions, balls, strict=True)
        return any(bool((np.abs(values[p] - ball.value) > 2 * ball.radius).any()) for p, ball in pairs)
