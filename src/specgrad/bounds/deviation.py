"""How far values of one node may be apart that were computed anew from values of its arguments that are apart.

abs(f(x + d) - f(x)) for any x and x + d of the ranges and abs(d) <= apart: at most the steepest slope of f there times
`apart`, and never more than the range of the result is wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..graph.graph import Node
from ..ops.max_pool import MAX_POOL
from ..rounding.ball import SLACK, Ball
from ..rounding.context import Context
from ..scalar import Array

Slope = Callable[[Ball, Mapping[str, Any]], Any]

SLOPES: dict[str, Slope] = {
    **dict.fromkeys(("relu", "abs", "clamp", "relu6", "tanh", "softplus"), lambda x, p: 1.0),
    "leaky_relu": lambda x, p: max(1.0, abs(float(p["slope"]))),
    "sigmoid": lambda x, p: 0.2501,
    "silu": lambda x, p: 1.1,
    "gelu": lambda x, p: 1.13,
    "hardswish": lambda x, p: 1.51,
    "normal_cdf": lambda x, p: 0.399,
    "normal_pdf": lambda x, p: 0.243,
    "exp": lambda x, p: np.exp(x.high) * SLACK,
    "log": lambda x, p: np.where(x.low > 0, 1 / np.where(x.low > 0, x.low, 1.0) * SLACK, np.inf),
    "sqrt": lambda x, p: np.where(x.low > 0, 0.5 / np.sqrt(np.where(x.low > 0, x.low, 1.0)) * SLACK, np.inf),
}
"""Of functions of one cell: the steepest slope over a range."""


def moved(run: Context, node: Node, balls: Sequence[Ball], apart: Mapping[int, Array], i: int) -> Array:
    """How far the reference's function and a function of other values may be apart, given `apart` of the arguments."""
    widest = np.where(np.isfinite(balls[i].high - balls[i].low), balls[i].high - balls[i].low, np.inf)
    reads = [apart.get(a, np.zeros(balls[a].shape)) for a in node.operands()]
    with np.errstate(all="ignore"):
        found = _by_slope(run, node, balls, reads)
    return np.asarray(widest if found is None else np.fmin(np.broadcast_to(found, node.shape), widest)) * SLACK


def _by_slope(run: Context, node: Node, balls: Sequence[Ball], reads: Sequence[Array]) -> Array | None:
    """By the slope of the function; None where it has none, or none that is known."""
    name = node.op.name
    if not any(r.any() for r in reads) and name in KNOWN:
        return np.zeros(node.shape)
    if name in SLOPES:
        return np.asarray(SLOPES[name](balls[node.operands()[0]], node.params) * reads[0])
    if name in ("max_pool", "smooth_max_pool"):  # steep by 1 in the largest of their cells
        return run.evaluate(MAX_POOL, [reads[0]], {"window": node.params["window"]})
    if name == "amax":
        return np.asarray(np.max(reads[0], axis=node.params["axes"], keepdims=True)).reshape(node.shape)
    if name in ("maximum", "minimum"):
        return reads[0] if len(reads) == 1 else np.asarray(np.maximum(*reads))
    if name == "select" and isinstance(node.args[0], int) and len(reads) == len(node.args):
        chosen = balls[node.args[0]]
        decided = np.where(chosen.value != 0, reads[1], reads[2])
        return np.where(chosen.radius == 0, decided, np.inf)
    return None


KNOWN = {*SLOPES, "max_pool", "smooth_max_pool", "amax", "maximum", "minimum"}
