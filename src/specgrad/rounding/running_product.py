"""Rounding rule of running products: whatever tree of products a runtime takes.

A product of n factors has n - 1 multiplications in every tree, and each multiplies the result by 1 + d, abs(d) <= u:
the depth of the tree has no influence. Partial products may be far larger or smaller than the result. With every factor
f replaced by max(1, abs(f)) the product is `most`, which no partial product exceeds; what an operation loses to
underflow is multiplied by other factors of that product at most.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from .arithmetic import REFERENCE
from .ball import Ball
from .context import Context
from .fusion_region import RoundingCount
from .linear import make_ball, rounded
from .slack_constants import long_slack


def running_product_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of a running product along params["axis"].

    Its argument is what is stored, or recomputed within its radius.
    """
    (x,) = args
    value = run.evaluate(op, [x.value], params)
    count = max(0, x.shape[params["axis"]] - 1)
    size = np.abs(run.evaluate(op, [x.size], params))
    slack = long_slack(3 * count + 3)
    carried = _moved_by_radii(x, params) * slack
    if count == 0:
        return make_ball(run, value, carried)
    most = run.evaluate(op, [np.maximum(x.size, 1.0)], params) * slack
    own = count * REFERENCE.smallest * most  # what underflow costs our own run
    stores = count if run.arithmetic.stores else 0  # each may be stored
    met = RoundingCount(total=count, stores=stores, ordered=count)
    ball = rounded(run, value, carried + own, size, met, most)
    return Ball(ball.value, ball.radius, ends=ball.ends)


def _moved_by_radii(x: Ball, params: Params) -> Array:
    """Return prod(abs(v) + r) - prod(abs(v)) of every running product of the ball x along params["axis"], without the
    difference.
    """
    axis, exclusive, reverse = params["axis"], params["exclusive"], params["reverse"]
    v, r = (np.moveaxis(a, axis, 0) for a in (np.abs(x.value), x.radius))
    v, r = (v[::-1], r[::-1]) if reverse else (v, r)
    moved, size = np.zeros(v.shape), np.ones(v.shape[1:])
    at = np.zeros(v.shape[1:])
    for p in range(len(v)):
        if exclusive:
            moved[p] = at
        at, size = (v[p] + r[p]) * at + r[p] * size, size * v[p]
        if not exclusive:
            moved[p] = at
    return np.moveaxis(moved[::-1] if reverse else moved, 0, axis)
