"""The allowance of several layers together: the forward radius, and the tolerance where that is narrower.

Both are proven of every execution of the arithmetic, so in every cell the smaller one holds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from specgrad.deadline import time_left
from specgrad.errors import SpecgradError
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, Ball
from specgrad.scalar import Array

from ..verdicts.judge import expected_balls

TIGHT_SHARE = 1e-3  # of the largest value: where layers are judged one by one the whole need not be known better
SMALLEST_FLOAT32 = 2.0**-149  # the smallest number of float32


class Clock:
    """The time in seconds that all tolerances of one audit may take together."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def spend(self, start: float) -> None:
        """Subtract the seconds since `start`, a time of time.monotonic, from those left."""
        self.left -= time.monotonic() - start


@dataclass(frozen=True)
class Allowance:
    """Tolerance of a result: `balls`, one per output, `why` they are no narrower, and whether the forward radii alone
    were tight (`is_forward_tight`).
    """

    balls: list[Ball]
    why: str = ""
    is_forward_tight: bool = False

    @property
    def largest(self) -> float:
        """The largest radius of all cells."""
        return max((float(b.radius.max(initial=0.0)) for b in self.balls), default=0.0)

    @property
    def is_useful(self) -> bool:
        """Whether the median radius of every result is below its largest value."""
        return self.is_within(1.0)

    def is_within(self, share: float) -> bool:
        """Return whether the median radius of every result is below `share` of its largest value."""
        sizes = [share * np.abs(b.value).max(initial=SMALLEST_FLOAT32) for b in self.balls]
        return all(b.radius.size == 0 or np.median(b.radius) < s for b, s in zip(self.balls, sizes, strict=True))


def allowance(
    graph: Graph,
    given: Sequence[Array],
    arithmetic: Arithmetic,
    clock: Clock,
    backend: str = "numpy",
    formats: Mapping[str, str] | None = None,
    tight: float = TIGHT_SHARE,
) -> Allowance:
    """Return the forward radius of every result; where that is wide, and time remains, intersected with the tolerance.

    tight   the share of the largest value up to which a forward radius is good enough
    given    inputs of the graph; backend ("numpy" or "torch") computes radii
    formats  {node: format} of nodes that are computed in another format

    >>> import specgrad as sg
    >>> w = np.float32(np.random.default_rng(0).normal(size=(16, 16)))
    >>> graph = sg.trace(lambda x: w @ sg.relu(w @ sg.relu(w @ sg.relu(w @ x))), (16,))
    >>> forwards = allowance(graph, [np.ones(16)], Arithmetic(), Clock(0), tight=0)
    >>> both = allowance(graph, [np.ones(16)], Arithmetic(), Clock(60), tight=0)
    >>> bool(both.largest < forwards.largest), forwards.why
    (True, 'no time is left to go backwards: the forward radius')
    """
    forwards = expected_balls(graph, given, arithmetic, backend, formats)
    short = all(_is_tight(ball, TIGHT_SHARE) for ball in forwards)
    if all(_is_tight(ball, tight) for ball in forwards):
        return Allowance(forwards, is_forward_tight=short)
    why = _why_no_tolerance(graph, given, formats)
    if not why:
        from .point_bounds import out_of_reach

        why = out_of_reach(graph, min(clock.left, time_left()))
    if not why:
        start = time.monotonic()
        try:
            return Allowance(
                _intersect_tolerance(graph, given, arithmetic, forwards, min(clock.left, time_left())),
                is_forward_tight=short,
            )
        except SpecgradError as error:
            why = f"no tolerance is known ({error})"
        finally:
            clock.spend(start)
    return Allowance(forwards, f"{why}: the forward radius", short)


def _is_tight(ball: Ball, share: float) -> bool:
    """Return whether all radii of the ball are at most `share` of its largest absolute value.

    True for integers and positions.
    """
    if ball.whole or ball.value.dtype.kind != "f":
        return True  # whole numbers and positions are as narrow as they can be
    return bool((ball.radius <= share * np.abs(ball.value).max(initial=0.0)).all())


def _why_no_tolerance(graph: Graph, given: Sequence[Array], formats: Mapping[str, str] | None) -> str:
    """Return why no tolerance is known for this graph, in words; "" if one is.

    `given` are its inputs, `formats` nodes in other formats.
    """
    if formats:
        return "tolerances are of float32 models"
    if any(node.kind == "index" for node in (graph.nodes[p] for p in graph.input_positions)):
        return "tolerances are of real inputs"
    if not all(np.isfinite(a).all() for a in given):
        return "tolerances are of finite inputs"
    return "" if find_spec("torch") else "tolerances need torch"


def _intersect_tolerance(
    graph: Graph, given: Sequence[Array], arithmetic: Arithmetic, forwards: Sequence[Ball], seconds: float
) -> list[Ball]:
    """Return, per cell, the smaller of the forward ball and the tolerance, each around its own centre.

    `given` are the inputs, `arithmetic` the executions, `forwards` the forward balls; the proof may take `seconds`.
    """
    from .tolerance import tolerance

    proven = tolerance(graph, *given, arithmetic=arithmetic, seconds=seconds)
    narrow = dict(zip(graph.real_outputs, zip(proven.exact, proven.tolerances, strict=True), strict=True))
    return [
        _smaller_ball(ball, *narrow[p]) if p in narrow and not ball.whole else ball
        for p, ball in zip(graph.output_positions, forwards, strict=True)
    ]


def _smaller_ball(ball: Ball, exact: Array, distance: Array) -> Ball:
    """Return, per cell, the ball or (exact, distance), whichever has the smaller radius."""
    better = distance < ball.radius
    value, radius = np.where(better, exact, ball.value), np.where(better, distance, ball.radius)
    return replace(ball, value=value, radius=radius, expansion=None)
