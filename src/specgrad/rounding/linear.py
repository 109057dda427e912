"""Rounding of linear and multilinear operators: the operator on absolute values, times (1 + u)**N - 1.

The incoming radii pass through the operator's own linear map: for f linear in groups of arguments,
abs(f(c) - f(v)) <= f_abs(r, size of the others), one group after the other.

Nodes of one layer (linear, batch_norm, mean, ...) may be computed as one kernel that orders their sums and products in
another way. Their balls carry an `Expansion`: what came in from outside the layer, the size of the expanded expression,
and how many roundings any of its terms can have met. Then (1 + u)**(all of them) - 1 times that size covers any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from .arithmetic import REFERENCE, Arithmetic, growth
from .ball import SLACK, Ball, Expansion
from .context import Context


def magnitude(run: Context, op: Op, args: Sequence[Array], params: Params) -> Array:
    """The operator on absolute values."""
    if op.magnitude is not None and op.linear != "all":
        return np.asarray(op.magnitude(*args, **params))
    if op.name == "sub":
        return np.asarray(args[0] + args[1])
    return np.abs(run.evaluate(op, args, params))  # an engine's line is faster than the record's


def spread(run: Context, op: Op, parts: Sequence[Expansion], params: Params) -> Array | float:
    """How far the incoming radii move the exact result."""
    total: Array | float = 0.0
    done: set[int] = set()
    for group in op.linear_groups(len(parts)):
        fresh = [i for i in group if i not in done and np.any(parts[i].carried)]
        if fresh:
            given = [_entry(p, i, fresh, group, done) for i, p in enumerate(parts)]
            total = total + magnitude(run, op, given, params)
        done |= set(group)
    return total


def _entry(p: Expansion, i: int, fresh: Sequence[int], group: Sequence[int], done: set[int]) -> Array:
    if i in group:
        return p.carried if i in fresh else np.zeros(p.size.shape)
    return p.least_size + p.carried if i in done else p.least_size


def stored_error(arithmetic: Arithmetic, size: Array, count: int | Array, stores: int) -> Array:
    """`count` roundings in the accumulating format and `stores` in the format of results; inf on overflow."""
    inner = arithmetic.inner
    grown = (1 + growth(count, inner.u)) * (1 + growth(stores, arithmetic.u)) - 1 if stores else growth(count, inner.u)
    error = np.asarray(grown * size)
    return np.where(size + error <= inner.largest, error, np.inf)


def underflow(arithmetic: Arithmetic, count: int | Array, stores: int) -> Array:
    """What `count` operations can lose below the smallest normal number."""
    lost = 2 * arithmetic.inner.tiny if arithmetic.flush else arithmetic.inner.smallest
    stored = stores * (arithmetic.tiny if arithmetic.flush else arithmetic.format.smallest)
    inside = np.where(np.equal(count, 0), 0.0, (count + 1) * lost * (1 + growth(count, arithmetic.inner.u)))
    return np.asarray(inside + stored)


def reference_error(size: Array, count: int | Array) -> Array:
    """The error of the float64 run itself."""
    return np.asarray(growth(count, REFERENCE.u) * size + np.multiply(count, REFERENCE.smallest))


def linear_rule(run: Context, op: Op, args: Sequence[Ball], params: Params, count: int | None = None) -> Ball:
    """conv, avg_pool, sum, mul, layout, ...: every operator that is linear in each of its arguments."""
    value = run.evaluate(op, [a.value for a in args], params)
    parts = [run.opened(a, i in op.index_args) for i, a in enumerate(args)]
    if run.centred and op.name == "mul" and all(np.any(p.carried) for p in parts):
        value, carried = _product_range(args, parts)
    else:
        carried = np.asarray(np.broadcast_to(spread(run, op, parts, params), value.shape) * SLACK)
    if count is None:
        count = 0 if op.exact or op.roundings is None else op.roundings(*(a.shape for a in args), **params)
    if count + sum(p.count for p in parts) == 0:
        return finished(run, value, carried)
    size = magnitude(run, op, [p.size for p in parts], params)
    alone = op.name in ("add", "sub") and not run.centred and not any(p.count for p in parts)
    return rounded(run, value, carried, size, count, parts, near=np.abs(value) + carried if alone else None)


def _product_range(args: Sequence[Ball], parts: Sequence[Expansion]) -> tuple[Array, Array]:
    """Middle and reach of x*y over two ranges: what lies between the products of their ends; a square is not negative.

    mid(x)*mid(y) +- ... would reach further: y*(1 - y) on [0.5, 1] comes out as [0, 0.5], not as [-0.125, 0.5].
    """
    (xl, xh), (yl, yh) = (_carried_ends(a, p) for a, p in zip(args, parts, strict=True))
    with np.errstate(all="ignore"):
        products = [xl * yl, xl * yh, xh * yl, xh * yh]
        low, high = np.minimum.reduce(products), np.maximum.reduce(products)
        if args[0] is args[1]:
            low = np.where((xl < 0) & (xh > 0), 0.0, np.minimum(products[0], products[3]))
        middle = low / 2 + high / 2
        return middle, np.maximum(high - middle, middle - low) * SLACK


def _carried_ends(ball: Ball, part: Expansion) -> tuple[Array, Array]:
    """Where the exact value lies that the numbers carried into the layer have."""
    low, high = ball.value - part.carried * SLACK, ball.value + part.carried * SLACK
    return (low, high) if ball.ends is None else (np.fmax(low, ball.ends[0]), np.fmin(high, ball.ends[1]))


def rounded(
    run: Context,
    value: Array,
    carried: Array,
    size: Array,
    count: int,
    parts: Sequence[Expansion],
    near: Array | None = None,
) -> Ball:
    """A result of `count` more roundings than its parts have, with what it carries and its expanded size.

    near    what its own rounding is relative to, where that is the result itself: a sum of two numbers
    """
    arithmetic = run.arithmetic
    total = count + sum(p.count for p in parts)
    stores = sum(p.stores for p in parts) + (1 if count and arithmetic.inner is not arithmetic.format else 0)
    slack = SLACK * (1 + 4 * (total + 8) * REFERENCE.u)
    size, carried = size * slack, carried + (underflow(arithmetic, count, min(stores, 1)) if count else 0.0)
    at = size if near is None else near * slack
    error, own_error = stored_error(arithmetic, at, total, stores), reference_error(at, total)
    radius = (carried + error + own_error) * slack
    radius = np.where(np.abs(value) + radius <= arithmetic.largest, radius, np.inf)
    least = size if run.centred else np.abs(value) + own_error
    return finished(run, value, radius, Expansion(run.group, carried, size, least, total, stores))


def finished(run: Context, value: Array, radius: Array, expansion: Expansion | None = None) -> Ball:
    """A ball whose NaN radii prove nothing, after results may have been flushed."""
    return settled(run, Ball(value, radius, expansion=expansion))


def settled(run: Context, ball: Ball) -> Ball:
    unknown = np.isnan(ball.radius) | (~np.isfinite(ball.value) & (ball.radius != 0))
    return run.flushed(replace(ball, radius=np.where(unknown, np.inf, ball.radius)))
