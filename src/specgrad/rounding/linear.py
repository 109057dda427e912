"""Rounding of linear and multilinear operators: the operator on absolute values, times (1 + u)**R - 1.

The incoming radii pass through the operator's own linear map: for f linear in groups of arguments,
abs(f(c) - f(v)) <= f_abs(r, size of the others), one group after the other.

Runtimes merge nodes. Whatever is linear with constants belongs to one *region* with the nodes around it, and so do the
nodes of one layer (batch_norm, mean, ...); by node, the layer alone. Balls carry an `Expansion`: what came in from
outside the region, the size of the expression multiplied out, and R, the roundings that any of its terms can meet in
any execution (specgrad.rounding.fusion_region). A computed value is then a sum of its terms, each times at most R
factors 1 + d with abs(d) <= u, so (1 + u)**R - 1 times the size covers every order, merging and folding of constants.

Underflow: an operation loses at most the smallest normal number, and so does each of its operands; a term meets at most
R operations and R + 1 factors of its own, and what is lost is multiplied by factors of that term alone. With every
factor f replaced by max(1, abs(f)) the region's value is `most`: together they lose at most
(2*R + 1) * tiny * most * (1 + u)**R, and no partial result exceeds most * (1 + u)**R.

Padding is a factor 0, and max(1, 0) = 1: weights that meet only padding count in `most`. Runtimes multiply them, and 0
times a weight that overflowed, by itself or folded with others, is NaN.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..op import Op, Params
from ..ops.avg_pool import divisions
from ..ops.elementwise import cellwise
from ..scalar import Array
from .arithmetic import REFERENCE, Arithmetic, growth
from .ball import SLACK, Ball, Expansion, Stores, exact_ball, in_blocks
from .context import Context
from .fusion_region import RegionNode, RoundingCount, count_after_node, count_of_product
from .slack_constants import long_slack
from .stores import store_error, stores_after


def magnitude(context: Context, op: Op, args: Sequence[Array], params: Params) -> Array:
    """Return a bound of the sum of absolute values of the operator's terms, from `args`, absolute values of its
    arguments.
    """
    if op.magnitude is not None and op.linear != "all":
        return np.asarray(op.magnitude(*args, **params))
    if op.name == "sub":
        return np.asarray(args[0] + args[1])
    return np.abs(context.evaluate(op, args, params))  # an engine's line is faster than the record's


def spread(context: Context, op: Op, parts: Sequence[Expansion], params: Params) -> Array | float:
    """Return how far the incoming radii of the arguments `parts` (`carried`) can move the exact result."""
    total: Array | float = 0.0
    done: set[int] = set()
    for group in op.linear_groups(len(parts)):
        fresh = [i for i in group if i not in done and np.any(parts[i].carried)]
        if fresh:
            given = [_magnitude_argument(p, i, fresh, group, done) for i, p in enumerate(parts)]
            total = total + magnitude(context, op, given, params)
        done |= set(group)
    return total


def _magnitude_argument(p: Expansion, i: int, fresh: Sequence[int], group: Sequence[int], done: set[int]) -> Array:
    """Return the array for argument i in a call on absolute values that propagates the radii of the arguments `fresh`.

    Inside `group` it is p's radius, or 0 if i is not fresh; outside, p's size, plus its radius if i is `done`.

    Of a group that is `done` its radius counts too.
    """
    if i in group:
        return p.carried if i in fresh else np.zeros(p.size.shape)
    return p.least_size + p.carried if i in done else p.least_size


def stored_error(
    arithmetic: Arithmetic, size: Array, count: int | Array, stores: int, operands: int = 0, cores: int = 0
) -> Array:
    """Return an absolute bound of the rounding error of sums whose terms' absolute values add up to `size`.

    count      roundings that a term meets in the accumulating format
    stores     roundings in the format of results
    operands   roundings of factors
    cores      how many of the sums are by tensor cores

    inf where a partial sum may overflow. What is lost to underflow is not in it: see `underflow`.
    """
    inner, factor = arithmetic.inner, arithmetic.factor
    grown = arithmetic.grown(count, cores)
    if stores:
        grown = _combined_growth(grown, growth(stores, arithmetic.u))
    if operands and factor is not None:
        grown = _combined_growth(grown, growth(operands, factor.u))
    error = np.asarray(grown * size)
    return np.where(size + error <= inner.largest, error, np.inf)


def least_share(arithmetic: Arithmetic, met: RoundingCount) -> float:
    """Return what is left at least of a sum of terms that are not negative and have met the roundings `met`: each of
    these is a factor of at least 1 - u, so more than nothing is left of any number of terms.

    >>> round(least_share(Arithmetic(), RoundingCount(total=2**24)), 5)  # exp(-1); (1 + u)^R - 1 is more than 1
    0.36788
    """
    if met.cores:
        return 1.0 - float(stored_error(arithmetic, np.asarray(1.0), met.total, met.stores, met.operands, met.cores))
    factor = arithmetic.factor.u if arithmetic.factor else 0.0
    each = (met.total, arithmetic.inner.u), (met.stores, arithmetic.u), (met.operands, factor)
    return math.exp(sum(count * math.log1p(-u) for count, u in each))


def _combined_growth(a: Any, b: float) -> Any:
    """Return (1 + a)*(1 + b) - 1, without the 1 beside which float64 would lose a small a."""
    return a + b + a * b


def underflow(arithmetic: Arithmetic, count: int | Array, stores: int, cores: int = 0) -> Array:
    """Return the most that `count` products and as many sums, by tensor cores if `cores`, and then so many stores, can
    lose to underflow; to nearest, half a step each.
    """
    inner = arithmetic.inner
    lost = 2 * inner.tiny if arithmetic.flush else (1 + inner.directed) * inner.smallest
    lost = lost + _lost_in_cores(arithmetic, cores)
    stored = stores * (arithmetic.tiny if arithmetic.flush else arithmetic.format.smallest)
    inside = np.where(np.equal(count, 0), 0.0, (count + 1) * lost * (1 + arithmetic.grown(count, cores)))
    return np.asarray(inside + stored)


def _lost_in_cores(arithmetic: Arithmetic, cores: int) -> float:
    """Return the most that an operation of a tensor core loses below its smallest number.

    0 if `cores` is 0, or none is meant.
    """
    return arithmetic.cores.lost if arithmetic.cores and cores else 0.0


def reference_error(size: Array, count: int | Array) -> Array:
    """Return a bound of the error of the float64 run itself, of `count` roundings relative to `size`."""
    return np.asarray(growth(count, REFERENCE.u) * size + np.multiply(count, REFERENCE.smallest))


def linear_rule(
    context: Context,
    op: Op,
    args: Sequence[Ball],
    params: Params,
    count: int | None = None,
    parts: Sequence[Expansion] | None = None,
) -> Ball:
    """Return the ball of an operator that is linear in each argument: conv, avg_pool, sum, mul, layout, ...

    count   roundings of its own; None: as the operator declares
    parts   the arguments as expressions of their region; None: as their balls say
    """
    value = context.evaluate(op, [a.value for a in args], params)
    group = context.call.linear_group(op, len(args))
    region = context.arithmetic.fused and group is not None
    deep = region and context.arithmetic.depth is not None  # copies of a cell are followed from the input on
    if op.exact and all(a.is_exact and a.ends is None and a.expansion is None for a in args) and not deep:
        return context.flushed(exact_ball(value))  # of large constants one array, not five
    if op.kernel and context.arithmetic.cores:  # factors are numbers of a short format: nothing is folded into them
        args = [replace(a, expansion=None) for a in args]
    if parts is None:
        parts = [context.expansion_of(a, i, region, i in op.index_args) for i, a in enumerate(args)]
    shapes, counted = context.call.counted(args, params)
    if context.centred and op.name == "mul" and all(np.any(p.carried) for p in parts):
        value, carried = _product_range(args, parts)
    else:
        carried = np.asarray(np.broadcast_to(spread(context, op, parts, params), value.shape) * SLACK)
    if count is None:
        count = 0 if op.exact or op.roundings is None else op.roundings(*shapes, **counted)
    if count + sum(p.count.total for p in parts) == 0 and not deep:
        return make_ball(context, value, carried)
    cells = context.call.cells(value)
    readers = cells if op.readers is None else op.readers(*shapes, **counted)
    factors = rounded_factors(context.arithmetic, op, args)
    quotients = divisions(**params) if "divisor" in params else 0
    counts = [p.count for p in parts]
    met = count_roundings(context, op, counts, group, count, cells, readers, quotients, factors=factors)
    size = magnitude(context, op, _aligned_sizes(context.arithmetic, op, parts), params)
    most = magnitude_bound(context, op, parts, params, group, count)
    apart = op.name in ("add", "sub") and not context.centred and met.total == 1
    near = np.abs(value) + carried if apart else None
    alone = _isolated_magnitude(parts, size * widening(params)) if _divides_safely(context.arithmetic, params) else None
    if alone is not None and op.outside is not None and not _all_finite(parts):
        alone = np.where(np.isfinite(op.outside(*(p.size for p in parts), **params)), alone, np.inf)
    if factors and not _factors_fit(context.arithmetic, parts):
        most, alone = np.asarray(np.inf), None
    stores = stores_after(context, op, args, parts, met, count, params)
    ball = rounded(context, value, carried, size, met, most, near, alone, stores)
    return divided_by(ball, divisors_of(parts, group))


def divisors_of(parts: Sequence[Expansion], group: tuple[int, ...] | None) -> Array:
    """Return what the divisors of a term come to which has one factor of `group` (None: of nothing) among the arguments
    `parts`, and one of every other argument: one number for all cells, at least 1.
    """
    each = [float(np.max(p.divisors, initial=1.0)) for p in parts]
    largest = max((each[i] for i in group or ()), default=1.0)
    return np.array(largest * math.prod(d for i, d in enumerate(each) if i not in (group or ())))


def divided_by(ball: Ball, divisors: Array) -> Ball:
    """Return the ball of which it is known what the divisors of a term of its region come to."""
    return ball if ball.expansion is None else replace(ball, expansion=replace(ball.expansion, divided=divisors))


def rounded_factors(a: Arithmetic, op: Op, args: Sequence[Ball]) -> int:
    """Return how many of the two factors of a kernel, `args`, the arithmetic a may round to the format of operands.

    Both, where constants may be folded into them first; else those that it does not hold.
    """
    if not op.kernel or a.factor is None:
        return 0
    if a.fused and a.cores is None:
        return 2
    return sum(not (x.is_exact and bool(a.factor.holds(x.value).all())) for x in args[:2])


def _factors_fit(a: Arithmetic, parts: Sequence[Expansion]) -> bool:
    """Return whether no factor of a kernel, whose expansions are `parts`, exceeds the largest number of its format."""
    return a.factor is None or all(bool(np.max(p.size, initial=0.0) <= a.factor.largest) for p in parts[:2])


def _aligned_sizes(a: Arithmetic, op: Op, parts: Sequence[Expansion]) -> list[Array]:
    """Return the sizes of the arguments `parts`; of factors of tensor cores, those that their exponents stand for.

    A product is aligned by its factors' exponents, and a subnormal number has that of the smallest normal one.
    """
    sizes = [p.size for p in parts]
    if not op.kernel or a.cores is None:
        return sizes
    tiny = (a.factor or a.format).tiny
    return [np.where(z == 0, 0.0, np.maximum(z, tiny)) if k < 2 else z for k, z in enumerate(sizes)]


def count_roundings(
    context: Context,
    op: Op,
    parts: Sequence[RoundingCount],
    group: tuple[int, ...] | None,
    own: int,
    cells: int,
    spread: int = 1,
    quotients: int = 0,
    weights: int = 0,
    factors: int = 0,
) -> RoundingCount:
    """Return what a term of this node has met, given the counts `parts` of its arguments.

    group     the arguments in which it is linear together; None: a product of all
    own       its roundings
    cells     how many cells it has
    spread    how many of them may read one cell of an argument
    quotients of its roundings those of a reciprocal and a divisor
    weights   of its roundings, which are then those of no sum, the most that weights meet while they are computed
    factors   how many of its factors are rounded to the format of operands
    """
    a = context.arithmetic
    stores = int(own > 0) + int(op.divides) if a.stores else 0
    cores = int(op.kernel and a.cores is not None)
    reads = 1 if op.receptive_field is cellwise else own + 1
    besides = own if weights or op.receptive_field is cellwise else quotients + 1 if quotients else 0
    node = RegionNode(context.call.position, cells, reads, spread, stores, factors, besides, cores, quotients, weights)
    if group is None:
        return count_of_product(parts, own, node=node, depth=a.depth)
    extra = sum(p.longest for i, p in enumerate(parts) if i not in group)
    return count_after_node([parts[i] for i in group], own, extra, node=node, depth=a.depth)


def widening(params: Params) -> float:
    """Return how much larger than the average the sum before it can be: the divisor, or its reciprocal."""
    if "divisor" not in params:
        return 1.0
    taps, divisor = float(params["window"].taps_count), params["divisor"]
    return taps if isinstance(divisor, str) else max(taps, abs(float(divisor)), 1 / abs(float(divisor)), 1.0)


def _divides_safely(arithmetic: Arithmetic, params: Params) -> bool:
    """Return whether the divisor in `params`, if any, neither magnifies underflow of the sum before it nor has a
    subnormal reciprocal.
    """
    divisor = params.get("divisor", "padded")
    return isinstance(divisor, str) or 1 <= abs(float(divisor)) <= arithmetic.format.largest_divisor


def magnitude_bound(
    context: Context, op: Op, parts: Sequence[Expansion], params: Params, group: tuple[int, ...] | None, own: int
) -> Array:
    """Return an upper bound of every partial result of a node: one number for all cells if those are not large.

    `parts` are its arguments, `group` those in which it is linear together, `own` its roundings.

    Each of its terms, which are at most own + 1, has one factor of the group and one of every other argument.
    """
    if all(p.most.ndim == 0 for p in parts):
        factors = math.prod(float(p.most) for i, p in enumerate(parts) if i not in (group or ()))
        largest = max((float(parts[i].most) for i in group or ()), default=1.0)
        return np.asarray(largest * factors * (own + 1) * widening(params))
    wide = [p.size if i in op.index_args else np.broadcast_to(p.most, p.size.shape) for i, p in enumerate(parts)]
    most = np.asarray(magnitude(context, op, wide, params) * widening(params) ** 2)
    besides = max((_folded_constants(p) for p in parts), default=1.0)
    if op.outside is not None:
        return np.asarray(most + op.outside(*wide, **params) * besides)
    return np.where(most == 0, besides, most)  # a zero that is no cell: pad, avg_spread, ...


def _folded_constants(part: Expansion) -> float:
    """Return the most that constants of the region of argument `part`, folded into the node's own, can be where they
    meet a zero.
    """
    return float(np.max(part.most, initial=1.0)) if part.count.total else 1.0


def _all_finite(parts: Sequence[Expansion]) -> bool:
    """Return whether all arguments `parts` have finite sizes."""
    return all(bool(np.isfinite(np.max(p.size, initial=0.0))) for p in parts)


def _isolated_magnitude(parts: Sequence[Expansion], largest: Array) -> Array | None:
    """Return `largest`, the largest partial result, for a node whose arguments `parts` are all read from outside its
    region; else None.
    """
    return None if any(p.count.total for p in parts) else largest


def _product_range(args: Sequence[Ball], parts: Sequence[Expansion]) -> tuple[Array, Array]:
    """Return (middle, radius) of x*y over the ranges of two arguments, from the products of their ends; a square is not
    negative.

    `args` are their balls, `parts` what their layers carry.

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
    """Return lower and upper bounds of the exact value of a factor `ball`, given the radius that was carried into its
    layer (`part`).
    """
    low, high = ball.value - part.carried * SLACK, ball.value + part.carried * SLACK
    return (low, high) if ball.ends is None else (np.fmax(low, ball.ends[0]), np.fmin(high, ball.ends[1]))


def rounded(
    context: Context,
    value: Array,
    carried: Array,
    size: Array,
    met: RoundingCount,
    most: Array,
    near: Array | None = None,
    alone: Array | None = None,
    stores: Stores | None = None,
) -> Ball:
    """Return the ball of a result whose terms have met the roundings `met`, and raise `context.roundings` to their
    number.

    carried   how far incoming radii move it
    size      the sum of absolute values of its terms
    most      an upper bound of every partial result
    near      what its own rounding is relative to if that is the result itself, a sum of two numbers; None: `size`
    alone     of a region of one node: the largest partial result; None: of a longer region
    value     the result in float64
    stores    what its stores are relative to, where `value` and `carried` are those of its arguments; None: to `size`
    """
    stores = stores or Stores(met.stores)
    context.roundings = max(context.roundings, met.total)
    slack = long_slack(met.longest)
    most = most * slack
    rest = (alone, most, stores.before, context.reach)
    radius, size, least = in_blocks(
        lambda *cells: _rounded_cells(context, met, stores, slack, *cells), value, carried, size, near, *rest
    )
    return make_ball(context, value, radius, Expansion(context.call.group, carried, size, least, most, met, stores))


def _rounded_cells(
    context: Context,
    met: RoundingCount,
    stores: Stores,
    slack: float,
    value: Array,
    carried: Array,
    size: Array,
    near: Array | None,
    alone: Array | None,
    most: Array,
    before: Array,
    reach: Array | None,
) -> tuple[Array, Array, Array]:
    """Return radius, size and least size of some cells of a rounded result.

    slack    of numbers whose terms have met so many roundings
    before   what a store of one summand may have cost
    reach    the largest absolute values, where they are known otherwise

    `met`, `stores`, `value`, `carried`, `size`, `near`, `alone` and `most` are those of `rounded`.
    """
    a = context.arithmetic
    size = size * slack
    alone = None if alone is None else alone * slack
    at = size if near is None else near * slack
    own_error = reference_error(at, met.longest)
    error = stored_error(a, at, met.total, stores.terms, met.operands, met.cores)
    error = error + underflow_loss(a, met, most, alone) + before * (1 + a.grown(met.total, met.cores))
    held = replace(a, execution="node") if context.formats and a.stores else a  # partial sums are not stored
    error = np.where(_may_overflow(held, met, most, alone), np.inf, error)
    radius = (carried + error + own_error) * slack
    if stores.value:
        reach = np.abs(value) + radius if reach is None else reach
        radius = (radius + store_error(a, reach, stores.value)) * slack
    return a.kept(value, radius), size, size if context.centred else np.abs(value) + own_error


def underflow_loss(a: Arithmetic, met: RoundingCount, most: Array, alone: Array | None) -> Array:
    """Return the most that underflow can cost; in a factor, (1 + lost)**operands - 1 of a term with other factors >= 1.

    met, most, alone: see `rounded`.
    """
    shortest = max(a.u, a.inner.u, a.factor.u if a.factor else 0.0)
    grown = (1 + a.grown(met.total, met.cores)) * (1 + growth(met.stores + met.operands, shortest))
    factors = growth(met.operands, a.lost_in_factors) * most * grown if met.operands and a.lost_in_factors else 0.0
    if alone is not None:  # every operation of its sum may lose something, however deep the sum is
        return np.asarray(underflow(a, met.longest, met.stores, met.cores) + factors)
    inner, stored = (f.tiny if a.flush else f.smallest for f in (a.inner, a.format))
    steps = 2 * (met.total + met.operands) + 1
    inner = inner + _lost_in_cores(a, met.cores)
    return np.asarray((steps * inner + met.stores * stored) * most * grown + factors)


def _may_overflow(a: Arithmetic, met: RoundingCount, most: Array, alone: Array | None) -> Array:
    """Return, elementwise, whether some partial result may exceed the largest number of its format in the arithmetic a.

    met, most, alone: see `rounded`.
    """
    grown = (1 + a.grown(met.total, met.cores)) * (1 + growth(met.operands, a.factor.u if a.factor else 0.0))
    sums = a.inner.largest if a.cores is None or not met.cores else min(a.inner.largest, a.cores.accumulator.largest)
    if alone is not None:
        return np.asarray(~(alone * grown <= sums))
    if met.operands and a.factor is not None and a.fused and a.cores is None:  # a folded coefficient is a factor
        sums = min(sums, a.factor.largest)
    largest = min(a.largest, sums) if a.fused else sums  # a runtime may store what lies inside a region
    return np.asarray(~(most * grown * (1 + growth(met.stores, a.u)) <= largest))


def make_ball(context: Context, value: Array, radius: Array, expansion: Expansion | None = None) -> Ball:
    """Return the ball of a value and radius after its result may have been flushed; NaN radii become inf.

    `expansion` is the value as an expression of its fusion region's inputs, if it is known.
    """
    return mark_unknown(context, Ball(value, radius, expansion=expansion))


def mark_unknown(context: Context, ball: Ball) -> Ball:
    """Return the ball with radius inf where its value or radius is not finite; such a cell may be NaN,
    so no end holds."""
    unknown = in_blocks(_is_unknown, ball.value, ball.radius)
    if not unknown.any():
        return context.flushed(ball)
    ends = ball.ends
    if ends is not None:
        ends = np.where(unknown, -np.inf, ends[0]), np.where(unknown, np.inf, ends[1])
    return context.flushed(replace(ball, radius=np.where(unknown, np.inf, ball.radius), ends=ends))


def _is_unknown(value: Array, radius: Array) -> Array:
    """Return whether a value or a radius is no finite number; of a value with radius 0 any is known."""
    return np.asarray(~np.isfinite(radius) | (~np.isfinite(value) & (radius != 0)))
