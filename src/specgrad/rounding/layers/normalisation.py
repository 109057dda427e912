"""Normalisation layers as groups: (x - m)*r*g + b, with one mean m and one r = 1/sqrt(v + eps) for each group of cells.

`normalisation_of` reads such a layer off a graph, `Groups` lays its numbers out, a group to a row, and `statistics_in`
says where m and r may lie, in a named class of kernels. docs/reference/rounding.md, "Shared unknowns", has the proofs.

    two passes   m = sum(x)/n, then v = sum((x - m)^2)/n, sums along any tree
    one pass     v = sum(x^2)/n - m^2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...graph.graph import CONSTANT, INPUT, Graph, NumberArg, section
from ...op import run_spec
from ...ops.elementwise import ADD, DIV, MUL, POWER, SQRT, SUB
from ...ops.layout import BROADCAST, PERMUTE, RESHAPE, SUM
from ...scalar import Array
from ..arithmetic import FORMATS, growth
from ..slack_constants import SLACK, U, long_slack
from .statistics import is_square, mean_at, tree_error

Passes = Literal["two passes", "one pass"]
ROOT_UNITS = 4.0
"""Units of u that a root and its reciprocal may be off by together, in two operations or in one."""


@dataclass(frozen=True)
class Normalisation:
    """A normalisation in a graph, by positions.

    x        what is normalised
    axes     along which
    eps      what is added to the variance
    divisor  of the sum of squares
    mean     whether a mean is subtracted
    chain    the nodes from the normalised cells to the result: layout, one factor, one summand
    """

    x: int
    axes: tuple[int, ...]
    eps: float
    divisor: float
    mean: bool
    chain: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Groups:
    """The numbers of a normalisation, a group to a row.

    x, g, b   the cells, their factors and what is added, in float64
    places    flat position in the result of every cell
    layer     the normalisation that they are of
    """

    x: Array
    g: Array
    b: Array
    places: Array
    layer: Normalisation


def normalisation_of(graph: Graph) -> Normalisation | None:
    """Return the normalisation that a graph of one result computes; None for anything else.

    >>> import specgrad as sg
    >>> normalisation_of(sg.trace(lambda x, g: sg.layer_norm(x, (8,), g), (2, 8), (8,)))
    Normalisation(x=0, axes=(1,), eps=1e-05, divisor=8.0, mean=True, chain=(17,))
    """
    if len(graph.output_positions) != 1:
        return None
    at, chain, steps = graph.output_positions[0], list[int](), ""
    while True:
        core = _normalised_at(graph, at)
        if core is not None:
            return Normalisation(*core, tuple(reversed(chain))) if steps in ("", "*", "+", "+*") else None
        node = graph.nodes[at]
        below: int | NumberArg | None = None
        if node.op in (RESHAPE, PERMUTE):
            below = node.args[0]
        elif node.op in (ADD, MUL):
            given = [k for k in (0, 1) if is_given(graph, node.args[k])]
            below = node.args[1 - given[0]] if given else None
            steps += "+" if node.op is ADD else "*"
        else:
            return None
        if not isinstance(below, int):
            return None
        chain.append(at)
        at = below


def is_given(graph: Graph, a: int | NumberArg) -> bool:
    """Return whether an argument is a number, or only moves cells of a constant or of an input."""
    while isinstance(a, int) and graph.nodes[a].op in (RESHAPE, PERMUTE, BROADCAST):
        a = graph.nodes[a].operands()[0]
    return isinstance(a, NumberArg) or graph.nodes[a].op in (CONSTANT, INPUT)


def _normalised_at(graph: Graph, at: int) -> tuple[int, tuple[int, ...], float, float, bool] | None:
    """Return (x, axes, eps, divisor, whether a mean is subtracted) if node `at` is c/sqrt(sum(c^2)/divisor + eps)."""
    node = graph.nodes[at]
    if node.op not in (DIV, MUL) or len(node.operands()) != 2 or node.args[0] == node.args[1]:
        return None
    for c, other in [node.operands(), node.operands()[::-1]][: 1 if node.op is DIV else 2]:
        root = _root(graph, other, node.op is MUL)
        if root is None:
            continue
        total, eps, divisor = root
        square = graph.nodes[total].operands()[0]
        axes = tuple(graph.nodes[total].params["axes"])
        if not is_square(graph, square) or graph.nodes[square].operands()[0] != c:
            return None
        shape = graph.nodes[c].shape
        if tuple(1 if a in axes else n for a, n in enumerate(shape)) != _before_broadcast(graph, other):
            return None
        below = graph.nodes[c]
        if is_given(graph, c):
            return c, axes, eps, divisor, False
        if below.op is not SUB or not isinstance(below.args[0], int) or not isinstance(below.args[1], int):
            return None
        mean = mean_at(graph, below.args[1])
        is_mean = mean is not None and _is_mean_of(graph, *mean, below.args[0], axes)
        return (below.args[0], axes, eps, divisor, True) if is_mean and is_given(graph, below.args[0]) else None
    return None


def _is_mean_of(graph: Graph, total: int, mean: object, x: int, axes: tuple[int, ...]) -> bool:
    """Return whether a mean, whose sum is node `total`, is that of node x along these axes."""
    node = graph.nodes[total]
    count = math.prod(graph.nodes[x].shape[a] for a in axes)
    same = node.operands() == (x,) and tuple(node.params["axes"]) == axes
    return bool(same and getattr(mean, "divisor", 0.0) == count)


def _before_broadcast(graph: Graph, at: int) -> tuple[int, ...] | None:
    """Return the shape that is broadcast at node `at`, or its own."""
    node = graph.nodes[at]
    return graph.nodes[node.operands()[0]].shape if node.op is BROADCAST else node.shape


def _root(graph: Graph, at: int, inverse: bool) -> tuple[int, float, float] | None:
    """Return (position of the sum, eps, divisor) if node `at` is sqrt(sum/divisor + eps), or 1 over it if `inverse`."""
    at = source_of(graph, at)
    node = graph.nodes[at]
    if inverse and node.op is DIV and isinstance(node.args[0], NumberArg) and node.args[0].value == 1:
        at, inverse = source_of(graph, node.operands()[0]), False
        node = graph.nodes[at]
    exponent = 0.5 if node.op is SQRT else float(node.params["exponent"]) if node.op is POWER else 0.0
    if exponent != (-0.5 if inverse else 0.5):
        return None
    at, eps, divisor = source_of(graph, node.operands()[0]), 0.0, 1.0
    node = graph.nodes[at]
    if node.op is ADD and any(isinstance(a, NumberArg) for a in node.args):
        eps = float(next(a.value for a in node.args if isinstance(a, NumberArg)))
        at = source_of(graph, node.operands()[0])
        node = graph.nodes[at]
    if node.op is DIV and isinstance(node.args[1], NumberArg) and isinstance(node.args[0], int):
        divisor = float(node.args[1].value)
        at = source_of(graph, node.args[0])
    fine = graph.nodes[at].op is SUM and eps >= 0 and divisor >= 1 and math.isfinite(eps + divisor)
    return (at, eps, divisor) if fine else None


def source_of(graph: Graph, at: int) -> int:
    """Return the node before reshapes, and before one broadcast, of node `at`."""
    if graph.nodes[at].op is BROADCAST:
        (at,) = graph.nodes[at].operands()
    while graph.nodes[at].op is RESHAPE:
        (at,) = graph.nodes[at].operands()
    return at


def groups_of(graph: Graph, layer: Normalisation, inputs: Sequence[Array]) -> Groups:
    """Return the numbers of a normalisation in a graph at these inputs, in the layout of its result."""
    known = dict(zip(graph.input_positions, inputs, strict=True))
    x = value_at(graph, layer.x, known)
    ids = np.broadcast_to(
        np.arange(x.size // math.prod(x.shape[a] for a in layer.axes)).reshape(
            [1 if a in layer.axes else n for a, n in enumerate(x.shape)]
        ),
        x.shape,
    )
    g, b = np.ones(x.shape), np.zeros(x.shape)
    for at in layer.chain:
        node = graph.nodes[at]
        if node.op in (ADD, MUL):
            other = next(a for a in node.args if is_given(graph, a))
            number = float(other.value) if isinstance(other, NumberArg) else value_at(graph, other, known)
            g, b = (g, b + number) if node.op is ADD else (g * number, b * number)
        else:
            x, ids, g, b = (run_spec(node.op, [a], node.params) for a in (x, ids, g, b))
    order = by_group(ids)
    x, g, b = (np.asarray(np.broadcast_to(a, ids.shape), float).reshape(-1)[order] for a in (x, g, b))
    return Groups(x, g, b, order, layer)


def by_group(ids: Array) -> Array:
    """Return the flat positions of the cells of each group, a group to a row; `ids` numbers the groups from 0.

    >>> by_group(np.array([[0, 1], [0, 1]]))
    array([[0, 2],
           [1, 3]])
    """
    return np.asarray(np.argsort(ids.reshape(-1), kind="stable").reshape(ids.max() + 1, -1))


def value_at(graph: Graph, at: int, known: Mapping[int, Array]) -> Array:
    """Return the value of node `at`, which only moves cells of what is given, in float64."""
    if at in known:
        return np.asarray(known[at], float)
    if at in graph.constants:
        return np.asarray(graph.constants[at], float)
    part, sources = section(graph, at, known)
    return np.asarray(part(*(np.asarray(known[p], float) for p in sources)), float)


# --- where the unknowns may lie ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unknowns:
    """Per group, as columns: the exact mean and r = 1/sqrt(v + eps), and where a kernel's may lie.

    shift       how far the computed mean may be from `mean`
    low, high   ends of the computed r; high is inf where v + eps may be 0
    centred     x less its mean, in float64
    """

    mean: Array
    r: Array
    shift: Array
    low: Array
    high: Array
    centred: Array


def unknowns_in(groups: Groups, passes: Passes, dtype: str = "float32", shift: Array | None = None) -> Unknowns:
    """Return where mean and r of every group may lie in a class of kernels that compute in `dtype`.

    shift   a narrower bound of how far the mean is off, where it is known; None: what sums along any tree allow
    """
    x, layer = groups.x, groups.layer
    form, n = FORMATS[dtype], x.shape[1]
    u, own = form.u, (n + 16) * 2 * U
    size = np.abs(x)
    mean = x.mean(1, keepdims=True) if layer.mean else np.zeros((len(x), 1))
    centred = x - mean
    ours = own * size.mean(1, keepdims=True) if layer.mean else np.zeros((len(x), 1))
    lost = (3 * n + 8) * form.tiny * (1 + growth(n + 2, u))
    if layer.mean and shift is None:
        shift = (tree_error(size, (1,), 2, u) / n + lost) * long_slack(n) + ours
    shift = np.zeros((len(x), 1)) if shift is None or not layer.mean else shift
    exact = (centred**2).sum(1, keepdims=True) / layer.divisor
    ends = _variance(groups, passes, exact, centred, shift, form.u)
    besides = lost + (ours + 2 * shift) * ours * n  # our own mean is not the exact one
    low, high = ends[0] - own * exact - besides, ends[1] * (1 + own) + besides
    eps, root = layer.eps, ROOT_UNITS * u
    with np.errstate(all="ignore"):
        least = np.maximum(low, 0.0) if passes == "two passes" else low
        r_low = (1 - root) / np.sqrt((high + eps * (1 + u)) * (1 + u)) / SLACK
        r_high = (1 + root) / np.sqrt((least + eps * (1 - u)) * (1 - u)) * SLACK
        r = 1 / np.sqrt(exact + eps)
    return Unknowns(mean, r, shift, r_low, np.where(np.isnan(r_high), np.inf, r_high), centred)


def _variance(
    groups: Groups, passes: Passes, exact: Array, centred: Array, shift: Array, u: float
) -> tuple[Array, Array]:
    """Return ends of the computed variance, given the exact one, before underflow and our own roundings.

    centred   the differences
    shift     how far the mean may be off
    u         the unit roundoff
    """
    n, divisor, mean = groups.x.shape[1], groups.layer.divisor, groups.layer.mean
    if passes == "two passes" or not mean:
        chances = 5 if mean else 3  # two of a difference, a product, two of the division
        off = tree_error((np.abs(centred) + shift) ** 2, (1,), chances, u) / divisor * SLACK
        low = np.maximum(exact - off, exact * (1 - growth(n + 4, u)))
        return low, exact + shift**2 * (n / divisor) * SLACK + off
    m = np.abs(groups.x.mean(1, keepdims=True)) + shift
    off = tree_error(groups.x**2, (1,), 4, u) / divisor + 2 * m * shift + shift**2 + growth(3, u) * m**2
    return exact - off * SLACK, exact + off * SLACK
