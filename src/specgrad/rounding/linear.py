"""Rounding of linear and multilinear operators: the operator on absolute values, times (1 + u)**N - 1.

The incoming radii pass through the operator's own linear map: for f linear in groups of arguments,
abs(f(c) - f(v)) <= f_abs(r, size of the others), one group after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from .arithmetic import REFERENCE, Arithmetic, growth
from .ball import SLACK, Ball
from .context import Context


def magnitude(run: Context, op: Op, args: Sequence[Array], params: Params) -> Array:
    """The operator on absolute values."""
    if op.magnitude is not None and op.name in ("avg_pool", "avg_spread"):
        return np.abs(run.evaluate(op, args, params))  # the engine's line of the same operator is faster
    if op.magnitude is not None:
        return np.asarray(op.magnitude(*args, **params))
    return np.abs(run.evaluate(op, args, params))


def spread(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Array | float:
    """How far the incoming radii move the exact result."""
    total: Array | float = 0.0
    done: set[int] = set()
    for group in op.linear_groups(len(args)):
        fresh = [i for i in group if i not in done and not args[i].is_exact]
        if fresh:
            given = [
                a.radius if i in fresh else np.zeros(a.shape) if i in group else a.value
                if i in op.index_args else a.size if i in done else np.abs(a.value)
                for i, a in enumerate(args)
            ]  # fmt: skip
            total = total + magnitude(run, op, given, params)
        done |= set(group)
    return total


def sizes(op: Op, args: Sequence[Ball]) -> list[Array]:
    return [a.value if i in op.index_args else a.size for i, a in enumerate(args)]


def local_error(arithmetic: Arithmetic, size: Array, value: Array, count: int | Array) -> Array:
    """The error of `count` roundings in the accumulating format, then of storing the result."""
    form, inner = arithmetic.format, arithmetic.inner
    lost = 2 * inner.tiny if arithmetic.flush else inner.smallest
    grown = growth(count, inner.u)
    error = grown * size + np.where(np.equal(count, 0), 0.0, (count + 1) * lost * (1 + grown))
    error = np.where(size + error <= inner.largest, error, np.inf)
    if inner is not form:
        error = error + (np.minimum(np.abs(value), size) + error) * form.u + form.smallest
    return np.where(np.abs(value) + error <= form.largest, error, np.inf)


def reference_error(size: Array, count: int | Array) -> Array:
    """The error of the float64 run itself."""
    return np.asarray(growth(count, REFERENCE.u) * size + np.multiply(count, REFERENCE.smallest))


def linear_rule(run: Context, op: Op, args: Sequence[Ball], params: Params, count: int | None = None) -> Ball:
    """conv, avg_pool, sum, mul, layout, ...: every operator that is linear in each of its arguments."""
    values = [a.value for a in args]
    value = run.evaluate(op, values, params)
    carried = spread(run, op, args, params)
    if count is None:
        count = 0 if op.exact or op.roundings is None else op.roundings(*(a.shape for a in args), **params)
    if count == 0:
        return finished(run, value, np.broadcast_to(carried, value.shape) * SLACK)
    slack = SLACK * (1 + 4 * (count + 8) * REFERENCE.u)
    size = magnitude(run, op, sizes(op, args), params) * slack
    error = local_error(run.arithmetic, size, np.abs(value) + carried, count)
    return finished(run, value, (carried + error + reference_error(size, count)) * slack)


def finished(run: Context, value: Array, radius: Array) -> Ball:
    """A ball whose NaN radii prove nothing, after results may have been flushed."""
    unknown = np.isnan(radius) | (~np.isfinite(value) & (radius != 0))
    radius = np.where(unknown, np.inf, radius)
    return run.flushed(Ball(value, radius))
