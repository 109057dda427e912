"""Softmax layers as rows with one total: y_i = exp(x_i - M)/T, with M = max x, and one T for all cells of a row.

`softmax_of` reads such a layer off a graph, `softmax_rows` lays its numbers out, a row to a group, and `total_in` says
where T may lie and what the roundings of one cell can cost. docs/reference/rounding.md, "Shared unknowns", has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...graph.graph import Graph
from ...op import run_spec
from ...ops.layout import PERMUTE, RESHAPE
from ...scalar import Array
from ..arithmetic import Arithmetic, growth
from ..slack_constants import SLACK, U, long_slack
from .normalisation import by_group, is_given, value_at
from .softmax_pattern import softmax_at
from .statistics import tree_error

FAR = -128.0
"""Below it rounding, which is monotone, keeps an exponent, so that its exponential is below every normal number; see
`lost_below` for formats of more range."""
EXPONENT = 3
"""Roundings that an exponent may have met: of a difference, and where exp is a power of two, of the factor log2(e) and
of the product."""
FAINT = 64.0
"""A share below so many smallest normal numbers is not compared with the others of its row."""
MOST = 0.5
"""Of a row whose total may be off by a larger share nothing is said."""


@dataclass(frozen=True)
class SoftmaxLayer:
    """A softmax in a graph, by positions.

    x      what it is of
    axes   along which
    chain  the layout nodes from the quotient to the result
    """

    x: int
    axes: tuple[int, ...]
    chain: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SoftmaxRows:
    """The cells of a softmax in float64, a row to a group.

    x       the cells
    places  flat position in the result of every cell
    """

    x: Array
    places: Array


@dataclass(frozen=True, eq=False)
class Total:
    """What a kernel in float32 may compute of each row; cells have rows as x has.

    z        x less the row's maximum; -inf is 0 in every execution
    total    the exact sum of exp(z), as a column
    off      the most that the computed total is off by, as a share of the exact one, as a column; inf if unknown
    local    the most that log(y) is off from z - log(T) by the roundings of the cell alone, T being the computed total
    compared which cells are: shares well above the smallest normal number
    most     what cells that are not may be at most
    """

    z: Array
    total: Array
    off: Array
    local: Array
    compared: Array
    most: Array


def softmax_of(graph: Graph) -> SoftmaxLayer | None:
    """Return the softmax of numbers that are given which a graph of one result computes; None for anything else.

    >>> import specgrad as sg
    >>> softmax_of(sg.trace(sg.softmax, (2, 8)))
    SoftmaxLayer(x=0, axes=(1,), chain=())
    """
    if len(graph.output_positions) != 1:
        return None
    at, chain = graph.output_positions[0], list[int]()
    while graph.nodes[at].op in (RESHAPE, PERMUTE):
        chain.append(at)
        (at,) = graph.nodes[at].operands()
    core = softmax_at(graph, at)
    if core is None or core.seen is not None or not is_given(graph, core.x):
        return None
    return SoftmaxLayer(core.x, core.axes, tuple(reversed(chain)))


def softmax_rows(graph: Graph, layer: SoftmaxLayer, inputs: Sequence[Array]) -> SoftmaxRows:
    """Return the cells of a softmax in a graph at these inputs, in the layout of its result."""
    x = value_at(graph, layer.x, dict(zip(graph.input_positions, inputs, strict=True)))
    kept = [1 if a in layer.axes else n for a, n in enumerate(x.shape)]
    ids = np.broadcast_to(np.arange(math.prod(kept)).reshape(kept), x.shape)
    for at in layer.chain:
        node = graph.nodes[at]
        x, ids = (run_spec(node.op, [a], node.params) for a in (x, ids))
    places = by_group(ids)
    return SoftmaxRows(np.asarray(x, float).reshape(-1)[places], places)


def exponential_error(arithmetic: Arithmetic) -> float:
    """Return the most that the logarithm of an exponential is off by beside what its exponent is; inf where the error
    that is declared of exp may be all of it, or is relative to something else.

    >>> round(exponential_error(Arithmetic(ulps={"exp": 2.0})) * 2**24, 6)
    2.0
    >>> [exponential_error(Arithmetic(ulps={"exp": e})) for e in (2.0**24, (2.0, "1"))]
    [inf, inf]
    """
    units, scale = arithmetic.ulp_bound("exp")
    off = units * arithmetic.inner.u
    return off / (1 - off) if scale == "y" and off < 1 else math.inf


def lost_below(tiny: float) -> float:
    """Return an exponent below which exponentials, however they are rounded, are below the smallest normal number.

    >>> lost_below(2.0**-126), lost_below(2.0**-14), round(lost_below(2.0**-1022))
    (-128.0, -128.0, -992)
    """
    return min(FAR, 1.4 * math.log(tiny))


def total_in(x: Array, arithmetic: Arithmetic) -> Total:
    """Return where the total of every row of x may lie, and what each cell may be off by beside it.

    x           cells that the format holds, a row to a group; -inf is shut out
    arithmetic  its format and its declared error of exp are meant; sums are along any tree
    """
    form, n = arithmetic.inner, x.shape[1]
    u, tiny = form.u, form.tiny
    with np.errstate(all="ignore"):
        z = np.where(np.isneginf(x), -np.inf, x - x.max(1, keepdims=True))
        far, e = z < lost_below(tiny), np.exp(z)
        near, own = np.where(far, 0.0, np.abs(z)), 16 * U * (1 + np.where(far, 0.0, np.abs(z)))
        eta = (growth(EXPONENT, u) * near + exponential_error(arithmetic) + own) * SLACK
        grown = np.where(far, 0.0, e * np.exp(eta)) + 2 * tiny
        total = e.sum(1, keepdims=True)
        moved = np.where(far, 0.0, e * np.expm1(eta)).sum(1, keepdims=True) + 8 * n * tiny
        off = (moved + tree_error(grown, (1,), 0, u)) / total * long_slack(n) + (n + 16) * 2 * U
        off = np.where(off <= MOST, off, np.inf)
        share = e / total
        compared = ~far & (share >= FAINT * tiny)
        local = eta + 2 * u / (1 - 2 * u) + 2 * tiny / e + 2 * tiny / share
        most = grown / (total * (1 - off)) * (1 + u) ** 2 * SLACK + 2 * tiny
    return Total(z, total, off, np.where(compared, local * SLACK, 0.0), compared, np.where(np.isneginf(z), 0.0, most))
