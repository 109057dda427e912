"""An error bound of softmax over a box that is tighter than ranges alone give.

Y = z/s with z = exp(d), d = X - max(X) <= 0 and s the sum of z along the axis: z <= 1 <= s, so Y <= 1. Let E be the
error of a cell of d and T the largest one along the axis. A computed z is exp(d + a)*(1 + b) + c with abs(a) <= E,
abs(b) <= e*u, abs(c) <= t; the computed sum is that of the computed z, each times at most k - 1 factors 1 + r,
abs(r) <= u; a quotient has two more. So, c apart, computed Y over Y lies between 1/G and G with

    G = exp(E + T) * (1 + e*u)/(1 - e*u) * ((1 + u)/(1 - u))**(k + 1)

and 1 - 1/G <= G - 1: abs(computed - Y) <= (G - 1)*Y <= G - 1. Without rounding that is exp(E + T) - 1. What c, flushed
operands, partial sums and results cost: 2*t in z, 3*k*t in a sum that is at least 1/G, and t: below 8*(k + 2)*t*G*G.
"""

from __future__ import annotations

import numpy as np

from specgrad.graph.graph import broadcast_back
from specgrad.rounding.slack_constants import SLACK

from ...graph.graph import Graph
from ...op import Op
from ...ops.elementwise import STOP_GRADIENT
from ...ops.layout import BROADCAST, RESHAPE, SUM
from ...ops.max_pool import AMAX
from ...rounding import Arithmetic
from ...scalar import Array

LAYOUT_OPS = (RESHAPE, BROADCAST, STOP_GRADIENT)


def match_softmax(graph: Graph, i: int) -> tuple[int, tuple[int, ...]] | None:
    """Return (position of d = X - max(X), axes) if node i is a softmax z/sum(z); else None.

    >>> import specgrad as sg
    >>> graph = sg.trace(sg.softmax, (2, 3))
    >>> [i for i in range(len(graph.nodes)) if match_softmax(graph, i)] == [len(graph.nodes) - 1]
    True
    """
    node = graph.nodes[i]
    if node.op.name != "div" or not all(isinstance(a, int) for a in node.args):
        return None
    z, s = node.operands()
    axes = _reduced_axes(graph, s, z, SUM)
    if axes is None or graph.nodes[z].op.name != "exp":
        return None
    (d,) = graph.nodes[z].operands()
    if graph.nodes[d].op.name != "sub" or not all(isinstance(a, int) for a in graph.nodes[d].args):
        return None
    x, m = graph.nodes[d].operands()
    return (d, axes) if _reduced_axes(graph, m, x, AMAX) == axes else None


def _reduced_axes(graph: Graph, i: int, source: int, op: Op) -> tuple[int, ...] | None:
    """Return the axes if node i is `op` (sum or max) of `source`, broadcast back to its cells; else None."""
    chain = broadcast_back(graph, i, op, source, LAYOUT_OPS)
    return None if chain is None else tuple(graph.nodes[chain[0]].params["axes"])


def quotient_error(error: Array, axes: tuple[int, ...], arithmetic: Arithmetic, rounds: bool) -> Array:
    """Return G - 1 plus underflow (module docstring), from the errors of d, over `axes`.

    Without `rounds`, exp(E + T) - 1. Inf where `arithmetic` declares no relative error of exp.
    """
    cells = int(np.prod([error.shape[a] for a in axes]))
    far = error + np.max(error, axis=axes, keepdims=True, initial=0.0)
    if not rounds:
        return np.asarray(np.expm1(far) * SLACK)
    u, (units, kind) = arithmetic.u, arithmetic.ulp_bound("exp")
    if kind != "y" or units * u >= 1:
        return np.full(error.shape, np.inf)
    log = far + np.log1p(units * u) - np.log1p(-units * u) + (cells + 1) * (np.log1p(u) - np.log1p(-u))
    with np.errstate(over="ignore"):
        more = np.expm1(log * SLACK) * SLACK
        return np.asarray(more + 8 * (cells + 2) * arithmetic.tiny * (1 + more) ** 2 * SLACK)
