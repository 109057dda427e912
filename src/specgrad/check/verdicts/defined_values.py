"""Whether a reference says what becomes of NaN and infinities in its inputs; where it does not, cells are open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.ops.elementwise import SELECT
from specgrad.rounding import Ball
from specgrad.scalar import Array


def as_far_as_defined(ball: Ball, graph: Graph, given: Sequence[Array]) -> Ball:
    """Return the ball of a result at the inputs `given`, open in cells of which the graph does not say what NaN and
    infinities of the inputs make.

    Merged nodes fold coefficients: of inf - 2*inf, two products, a sum of both makes NaN, and the folded product -inf.
    """
    numbers = [a for a in given if a.dtype.kind not in "iub"]
    if any(np.isnan(a).any() for a in numbers) and not defines_nan(graph):
        return replace(ball, radius=np.full(ball.value.shape, np.inf))
    if any(np.isinf(a).any() for a in numbers) and not defines_infinities(graph):
        return replace(ball, radius=np.where(np.isfinite(ball.value), ball.radius, np.inf))
    return ball


def defines_nan(graph: Graph) -> bool:
    """Return whether the graph says what a NaN becomes: nothing in it compares, chooses or jumps, and beside a matrix
    product or convolution it looks for no largest cell.

    A comparison may as well be written the other way round; and kernels of several layers, such as attention, look for
    maxima by instructions that pass over a NaN.

    >>> from specgrad import trace
    >>> [defines_nan(trace(f, (3,))) for f in (lambda x: np.exp(x), lambda x: np.where(x > 0, x, 0))]
    [True, False]
    """
    computed = _computed(graph)
    merged = any(n.op.kernel for n in computed) and any(n.op.largest for n in computed)
    return not merged and all(n.kind == "real" and not n.op.jumps and n.op is not SELECT for n in computed)


def defines_infinities(graph: Graph) -> bool:
    """Return whether the graph says what an infinity becomes: it defines NaN, and has at most one operator that rounds,
    which is no exponential or similar function.

    What merges two may compute inf - inf where the graph, as written, does not, and so may formulas of functions.

    >>> from specgrad import trace
    >>> [defines_infinities(trace(f, (3,))) for f in (lambda x: x * 2, lambda x: x * 2 + 1, lambda x: np.exp(x))]
    [True, False, False]
    """
    rounding = [n.op for n in _computed(graph) if not n.op.exact]
    return len(rounding) <= 1 and defines_nan(graph) and not any(op.transcendental for op in rounding)


def _computed(graph: Graph) -> list[Node]:
    """Return the nodes that are neither inputs nor constants."""
    return [n for n in graph.nodes if n.op not in (INPUT, CONSTANT)]
