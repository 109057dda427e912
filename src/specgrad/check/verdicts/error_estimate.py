"""How large errors usually are in classes whose bounds are far from it: an estimate, never a bound.

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
from specgrad.rounding.winograd import fits, sizes
from specgrad.scalar import Array

from .observation import Observation

USUAL = 2.0  # times the estimate; right executions have shown up to 0.9 (tests/check/test_classes.py)
PEAK = 4.0  # one cell may be as many times above the mean


def is_usual(seen: Observation, exact: Array, way: Winograd | None, form: Format | None) -> bool:
    """Whether the errors of the result are as large as roundings of this class usually make them."""
    return excess(seen, exact, way, form) <= USUAL


def excess(seen: Observation, exact: Array, way: Winograd | None, form: Format | None) -> float:
    """The errors over the estimate: their root mean square, or a fourth of the largest; inf where there is no estimate.

    It is one for a single sum of products, or average, whose factors are known, and what keeps its cells.
    """
    node = _summing(seen.graph)
    (got,) = seen.got
    args = [_value(seen, a) for a in node.operands()] if node is not None else []
    known = [np.asarray(a, np.float64) for a in args if a is not None]
    if node is None or len(known) < len(args) or node.shape != got.shape:
        return np.inf
    usual = _of_tiles(node, known, way) if way is not None else _of_sums(node, known, form or FORMATS["float32"])
    if usual is None:
        return np.inf
    error = np.abs(got - exact)
    share = error[error > 0] / np.maximum(usual[error > 0], LEAST)
    return max(float(np.sqrt(np.mean(share**2))), float(share.max()) / PEAK) if share.size else np.inf


def _summing(graph: Graph) -> Node | None:
    """The one node that sums products, or averages; None where there are several."""
    nodes = [n for n in graph.nodes if n.op.kernel or n.op.name == "avg_pool"]
    return nodes[0] if len(nodes) == 1 else None


def _value(seen: Observation, position: int) -> Array | None:
    """What was given, or a constant."""
    graph = seen.graph
    if graph.nodes[position].op is CONSTANT:
        return np.asarray(graph.constants[position])
    places = list(graph.input_positions)
    return seen.given[places.index(position)] if position in places else None


def _of_tiles(node: Node, args: list[Array], way: Winograd) -> Array | None:
    window = node.params.get("window")
    if window is None or not fits(node.op, window, [a.shape for a in args]):
        return None
    x, w = args[:2]
    squares = sizes(way.tiles, x**2, w**2, window, node.params["groups"], power=2)
    y = run_spec(node.op, args, node.params)
    return np.asarray(np.sqrt((way.tiles.roundings(w.shape[1]) * squares + y**2) / 3) * FORMATS["float32"].u)


def _of_sums(node: Node, args: list[Array], form: Format) -> Array:
    """Partial sums walk at random, s_k**2 = k * mean square, or grow evenly, s_k = k * y / n."""
    count = node.op.roundings(*(a.shape for a in args), **node.params) if node.op.roundings is not None else 1
    y, squares = (run_spec(node.op, [a**p for a in args], node.params) for p in (1, 2))
    if not node.op.kernel:
        squares = squares / node.params["window"].taps_count
    return np.asarray(np.sqrt((count * squares / 2 + count * y**2 / 3 + y**2) / 3) * form.u)
