"""Statistical estimate of rounding errors, for classes whose proven bounds are far above; never a bound.

Roundings are taken as independent, evenly spread over a unit. A term's share of the variance is then its square, so the
same operator on squares gives the variance of a sum. A fault that hides in a wide ball is mostly far above this.
"""

from __future__ import annotations

import numpy as np

from specgrad.graph.graph import CONSTANT, Graph, Node
from specgrad.op import run_spec
from specgrad.rounding import FORMATS
from specgrad.rounding.arithmetic import Format
from specgrad.rounding.arithmetic_variants import Winograd
from specgrad.rounding.slack_constants import LEAST
from specgrad.rounding.usual_error import sum_variance
from specgrad.rounding.winograd import fits, sizes
from specgrad.scalar import Array

from .observation import Observation

MAX_TYPICAL_RATIO = 2.0  # times the estimate; right executions have shown up to 0.9 (tests/check/test_classes.py)
PEAK_OVER_RMS = 4.0  # one cell may be as many times above the mean


def is_typical(observed: Observation, exact: Array, way: Winograd | None, form: Format | None) -> bool:
    """Return whether errors of the observed result against the `exact` one are of the size that roundings of a class
    typically have.

    `way` and `form` are the class: see `error_over_estimate`.
    """
    return error_over_estimate(observed, exact, way, form) <= MAX_TYPICAL_RATIO


def error_over_estimate(observed: Observation, exact: Array, way: Winograd | None, form: Format | None) -> float:
    """Return the errors of the observed result against `exact` over their estimate: root mean square, or a fourth of
    the largest; inf if unknown.

    `way` is how tiles compute, None without tiles; `form` the format of sums or operands. Known for a single sum of
    products, or average, whose operands are known and whose result is the output.
    """
    node = _only_summing_node(observed.graph)
    (got,) = observed.outputs
    args = [_observed_value(observed, a) for a in node.operands()] if node is not None else []
    known = [np.asarray(a, np.float64) for a in args if a is not None]
    if node is None or len(known) < len(args) or node.shape != got.shape:
        return np.inf
    usual = (
        _winograd_estimate(node, known, way)
        if way is not None
        else _sum_estimate(node, known, form or FORMATS["float32"])
    )
    if usual is None:
        return np.inf
    error = np.abs(got - exact)
    share = error[error > 0] / np.maximum(usual[error > 0], LEAST)
    return max(float(np.sqrt(np.mean(share**2))), float(share.max()) / PEAK_OVER_RMS) if share.size else np.inf


def _only_summing_node(graph: Graph) -> Node | None:
    """Return the only node that sums products, or averages; None if there are several or none."""
    nodes = [n for n in graph.nodes if n.op.kernel or n.op.name == "avg_pool"]
    return nodes[0] if len(nodes) == 1 else None


def _observed_value(observed: Observation, position: int) -> Array | None:
    """Return the observed value of the input or constant at `position`; None for other nodes."""
    graph = observed.graph
    if graph.nodes[position].op is CONSTANT:
        return np.asarray(graph.constants[position])
    places = list(graph.input_positions)
    return observed.inputs[places.index(position)] if position in places else None


def _winograd_estimate(node: Node, args: list[Array], way: Winograd) -> Array | None:
    """Return the estimated standard deviation per cell of a convolution by tiles, computed as `way` says; None if tiles
    do not fit.
    """
    window = node.params.get("window")
    if window is None or not fits(node.op, window, [a.shape for a in args]):
        return None
    x, w = args[:2]
    squares = sizes(way.tiles, x**2, w**2, window, node.params["groups"], power=2)
    y = run_spec(node.op, args, node.params)
    return np.asarray(np.sqrt((way.tiles.roundings(w.shape[1]) * squares + y**2) / 3) * FORMATS["float32"].u)


def _sum_estimate(node: Node, args: list[Array], form: Format) -> Array:
    """Return the estimated standard deviation per cell of a sum in the format `form`: partial sums walk at random, or
    grow evenly.
    """
    count = node.op.roundings(*(a.shape for a in args), **node.params) if node.op.roundings is not None else 1
    y, squares = (run_spec(node.op, [a**p for a in args], node.params) for p in (1, 2))
    if not node.op.kernel:
        squares = squares / node.params["window"].taps_count
    return np.asarray(np.sqrt(sum_variance(count, squares, y)) * form.u)
