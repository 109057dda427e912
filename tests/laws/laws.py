"""The laws of the contract (SEMANTICS, section 3) as functions of one operator record and one random case.

Nothing here knows an operator by name: a newly registered one is tested as it stands. Rational operators are
checked to the last digit; operators that need exp or log are checked with balls, whose enclosures must overlap and
must be narrow enough for that to mean something.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np

import specgrad as sg
from specgrad.op import REGISTRY, Op, run_spec
from specgrad.ops import sample_inputs
from specgrad.scalar import Dual, balls, exact
from specgrad.window.footprint import inside, lengths, slices

NARROW = Fraction(1, 10**6)


def real_args(op: Op, args) -> list[int]:
    return [i for i in range(len(args)) if i not in op.index_args]


def lift(op: Op, args):
    """The arguments in a scalar type in which the operator can be computed rigorously."""
    return [balls(a) if op.transcendental and i not in op.index_args else a for i, a in enumerate(args)]


def value(op: Op, args, params):
    return run_spec(op, args, params)


def same(a, b) -> None:
    """Equal to the last digit; for balls: overlapping and narrow."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape, (a.shape, b.shape)
    for p, q in zip(a.flat, b.flat, strict=True):
        if hasattr(p, "overlaps") or hasattr(q, "overlaps"):
            p, q = (v if hasattr(v, "overlaps") else balls(v).item() for v in (p, q))
            assert p.overlaps(q), (p, q)
            assert max(p.rad(), q.rad()) < float(NARROW) * (1 + abs(float(p.mid()))), (p, q)
        else:
            assert p == q, (p, q)


def inner(a, b):
    """<a, b>, where None is zero."""
    if a is None or b is None:
        return Fraction(0)
    total = Fraction(0)
    for p, q in zip(np.asarray(a).flat, np.asarray(b).flat, strict=True):
        total = p * q + total if not isinstance(total, Fraction) or total else p * q
    return total


def check_shape(op: Op, case) -> None:
    args, params = case
    y = value(op, lift(op, args), params)
    assert y.shape == op.shape(*(np.shape(a) for a in args), **params)


def check_dtype(op: Op, case) -> None:
    """Floats stay in their own precision."""
    args, params = case
    for dtype in (np.float16, np.float32, np.float64):
        floats = [a.astype(dtype) if np.asarray(a).dtype == object else a for a in args]
        assert value(op, floats, params).dtype == (np.int64 if op.kind == "index" else dtype)


def check_adjoint(op: Op, case, rng: Random) -> None:
    """<gy, jvp(dx)> = <vjp(gy), dx>."""
    args, params = case
    args = lift(op, args)
    y = value(op, args, params)
    real = real_args(op, args)
    dargs = [lift(op, [sample_inputs.like(rng, a)])[0] if i in real else None for i, a in enumerate(args)]
    gy = lift(op, [sample_inputs.like(rng, y)])[0]
    dy = op.tangent(y, args, dargs, params)
    gargs = op.cotangents(gy, y, args, params)
    assert len(gargs) == len(args)
    for i, g in enumerate(gargs):
        assert g is None or (i in real and np.shape(g) == np.shape(args[i]))
    same(inner(gy, dy), _total(inner(g, d) for g, d in zip(gargs, dargs, strict=True)))


def spread(args, rng: Random):
    """The arguments moved off every tie and kink by distinct small amounts."""
    steps = [Fraction(k, 7919) for k in range(1, sum(np.size(a) for a in args) + 1)]
    rng.shuffle(steps)
    moved = []
    for a in args:
        mine = np.array([steps.pop() for _ in range(np.size(a))], dtype=object).reshape(np.shape(a))
        moved.append(np.asarray(a + mine, dtype=object) if np.asarray(a).dtype == object else a)
    return moved


def dual_cells(x, dx):
    out = np.empty(x.shape, dtype=object)
    for k in np.ndindex(x.shape):
        out[k] = Dual(x[k], dx[k])
    return out


def tangent_cells(y):
    out = np.empty(y.shape, dtype=object)
    for k in np.ndindex(y.shape):
        out[k] = y[k].tangent if isinstance(y[k], Dual) else Fraction(0)
    return out


def check_dual(op: Op, case, rng: Random) -> None:
    """Away from ties the jvp is the coefficient that dual numbers carry along."""
    args, params = case
    if op.kind == "index" or op.name == "stop_gradient":  # the one operator whose derivative is not its derivative
        return
    args = spread(args, rng)
    real = real_args(op, args)
    if op.name == "sqrt" or op.transcendental:
        args = [balls(a) if i in real else a for i, a in enumerate(args)]
    dargs = [sample_inputs.like(rng, a) if i in real else None for i, a in enumerate(args)]
    if op.name == "sqrt" or op.transcendental:
        dargs = [balls(d) if d is not None else None for d in dargs]
    dy = op.tangent(value(op, args, params), args, dargs, params)
    dual = [dual_cells(a, d) if i in real else a for i, (a, d) in enumerate(zip(args, dargs, strict=True))]
    expected = tangent_cells(value(op, dual, params))
    same(np.zeros(expected.shape, dtype=object) if dy is None else dy, expected)


def check_linear(op: Op, case, rng: Random) -> None:
    """Additive and homogeneous in every group of arguments declared linear."""
    args, params = case
    args = lift(op, args)
    for group in op.linear_groups(len(args)):
        other = [lift(op, [sample_inputs.like(rng, a)])[0] if i in group else a for i, a in enumerate(args)]
        factor = Fraction(rng.randint(-3, 3), 2)
        mixed = [a * 3 + b * factor.numerator / factor.denominator if i in group else a
                 for i, (a, b) in enumerate(zip(args, other, strict=True))]  # fmt: skip
        expected = value(op, args, params) * 3 + value(op, other, params) * factor.numerator / factor.denominator
        same(value(op, mixed, params), expected)


def check_monotone(op: Op, case, rng: Random) -> None:
    args, params = case
    for i in op.monotone:
        if i >= len(args):
            continue
        raised = list(args)
        raised[i] = args[i] + abs(sample_inputs.like(rng, args[i])) * rng.choice((1, Fraction(1, 5)))
        try:
            low, high = value(op, lift(op, args), params), value(op, lift(op, raised), params)
        except sg.ScalarError:  # sqrt of a rational that is no square
            low, high = value(op, [balls(a) for a in args], params), value(op, [balls(a) for a in raised], params)
        for p, q in zip(low.flat, high.flat, strict=True):
            assert not (p > q), (p, q)


def check_commutative(op: Op, case) -> None:
    """Operators declared commutative give the same of exchanged arguments."""
    args, params = case
    if op.commutative:
        same(value(op, lift(op, args[::-1]), params), value(op, lift(op, args), params))


def check_exact(op: Op, case) -> None:
    """Operators declared exact: the float result is the exact result of the same inputs."""
    if not op.exact:
        return
    args, params = case
    floats = [a if np.asarray(a).dtype != object else a.astype(float) for a in args]
    y = value(op, floats, params)
    precise = value(op, [exact(a) if a.dtype == float else a for a in floats], params)
    assert all(Fraction(p.item()) == q for p, q in zip(y.flat, precise.flat, strict=True))


def check_roundings(op: Op, case) -> None:
    """float32 stays within gamma_N * (the operator on absolute values), plus underflow."""
    if op.roundings is None:
        return
    args, params = case
    floats = [a if np.asarray(a).dtype != object else a.astype(np.float32) for a in args]
    n = op.roundings(*(np.shape(a) for a in args), **params)
    u = Fraction(1, 2**24)
    gamma = n * u / (1 - n * u)
    lifted = [exact(a) if a.dtype == np.float32 else a for a in floats]
    try:
        precise = value(op, lifted, params)
    except sg.ScalarError:
        return  # irrational; the balls have no say about one rounding
    sizes = [np.asarray(abs(a)) if np.asarray(a).dtype == object else a for a in lifted]
    magnitude = (op.magnitude or op.spec)(*sizes, **params)
    y = value(op, floats, params)
    for got, want, size in zip(y.flat, precise.flat, np.asarray(magnitude).flat, strict=True):
        assert abs(Fraction(float(got)) - want) <= gamma * abs(size) + Fraction(1, 2**149), (got, want, size, n)


def check_picks(op: Op, case, rng: Random) -> None:
    """A sum over the cells of the index, S(i) = sum_p s_p(i_p): two indices may swap any cells and keep their total."""
    if not op.picks:
        return
    args, params = case
    (k,) = op.index_args
    cells = list(args[k].flat)
    rng.shuffle(cells)
    other = np.array(cells, dtype=np.int64).reshape(args[k].shape)
    first = np.array([rng.random() < 0.5 for _ in cells], dtype=bool).reshape(other.shape)

    def at(index):
        return value(op, [index if n == k else a for n, a in enumerate(args)], params)

    swapped = at(np.where(first, args[k], other)) + at(np.where(first, other, args[k]))
    same(swapped, at(args[k]) + at(other))


def moved_cells(op: Op, case, k: int, rng: Random, by):
    """The change of every output cell where one random cell of argument k is moved."""
    args, params = case
    cell = rng.randrange(args[k].size)
    raised = list(args)
    raised[k] = args[k].copy()
    raised[k].reshape(-1)[cell] += by
    return np.asarray(value(op, lift(op, raised), params) - value(op, lift(op, args), params))


def check_moves(op: Op, case, rng: Random) -> None:
    """One cell of an argument moves at most `readers` cells; of a maximum none further than itself."""
    args, params = case
    for k in real_args(op, args):
        if (op.readers is None and not op.largest) or not args[k].size or op.transcendental:
            continue
        by = Fraction(rng.choice((1, -1, 3)), rng.choice((1, 4)))
        try:
            moved = moved_cells(op, case, k, rng, by)
        except (sg.ScalarError, ZeroDivisionError):  # roots of numbers that are no squares, quotients
            continue
        cells = [m for m in moved.flat if bool(m > 0) or bool(m < 0)]  # of balls: for certain
        if op.readers is not None:
            assert len(cells) <= op.readers(*(a.shape for a in args), **params)
        if op.largest:
            assert not any(bool(abs(m) > abs(by)) for m in cells)


def random_box(shape, rng: Random):
    """An interval per axis: one cell, either end, anything, all."""
    box = []
    for n in shape:
        first = rng.choice((0, rng.randrange(n), n - 1)) if n else 0
        stop = rng.choice((first + 1, rng.randint(first + 1, n), n)) if n else 0
        box.append((first, stop))
    return tuple(box)


def check_box(op: Op, case, rng: Random) -> None:
    """The operator on the boxes that a box needs is the box of the operator; padding only at the true border."""
    args, params = case
    shapes, lifted = [np.shape(a) for a in args], lift(op, args)
    y, rule = value(op, lifted, params), op.boxes(shapes, params)
    for _ in range(3):
        box = random_box(y.shape, rng)
        cut = rule.on(box)
        for need, shape in zip(cut.args, shapes, strict=True):
            assert all(0 <= a <= b <= n for (a, b), n in zip(need, shape, strict=True)), (box, need)
        assert all(a <= b <= c <= d <= n for (b, c), (a, d), n in zip(box, cut.gives, y.shape, strict=True)), (box, cut)
        part = value(op, [np.asarray(a)[slices(b)] for a, b in zip(lifted, cut.args, strict=True)], cut.params)
        assert part.shape == lengths(cut.gives), (box, cut)
        same(part[inside(box, cut.gives)], y[slices(box)])
        check_pads(op, params, cut)
        check_rates(rule, box, shapes)
        check_open(op, rule, box, lifted, y)


def check_open(op: Op, rule, box, lifted, y) -> None:
    """Where an axis may go on with zeros, the operator on the cells and those zeros is the box, without any padding."""
    if not rule.open or any(a == b for a, b in box):
        return
    cut = rule.on(box, rule.open)
    x = np.asarray(lifted[0])
    far = max([0, *(max(-a, b - n) for (a, b), n in zip(cut.args[0], x.shape, strict=True))])
    beyond = np.full([n + 2 * far for n in x.shape], x.flat[0] * 0, x.dtype)
    beyond[tuple(slice(far, far + n) for n in x.shape)] = x
    here = beyond[tuple(slice(a + far, b + far) for a, b in cut.args[0])]
    others = [np.asarray(a)[slices(b)] for a, b in zip(lifted[1:], cut.args[1:], strict=True)]
    assert op.reads != "window" or all(axis.pads[0] == 0 for axis in cut.params["window"].axes)
    same(value(op, [here, *others], cut.params)[inside(box, cut.gives)], y[slices(box)])


def check_pads(op: Op, params, cut) -> None:
    """A tap that is padding there is padding here: no cell of the input is taken for padding."""
    if "window" not in params or op.reads != "window":
        return
    pairs = zip(cut.args[0][-params["window"].rank :], params["window"].axes, cut.params["window"].axes, strict=True)
    for (first, stop), axis, there in pairs:
        if there is not axis:
            assert stop - first == there.size
            read = [i for o in range(there.out) for _, i in there.reads(o)]
            assert not [i for i in read if not 0 <= i < there.size and 0 <= i + first < axis.size]


def check_rates(rule, box, shapes) -> None:
    """Needs without ends, clipped, are the needs; outputs moved by whole rates need cells moved by whole rates."""
    for j, (relation, (o, p)) in enumerate(zip(rule.axes, box, strict=True)):
        sizes = {s[k] for s, arg in zip(shapes, rule.args, strict=True) for k, a in enumerate(arg) if a == j}
        if relation.rate is None or not sizes or o == p:
            continue
        (size,) = sizes
        (need, _, _), (first, stop) = relation.part(o, p), relation.free(o, p)
        low, high = max(first, 0), min(stop, size)
        assert low >= high or (low <= need[0] and need[1] <= high)
        assert (low, high) != (first, stop) or need == (first, stop)
        step, by = relation.rate.denominator, relation.rate.numerator
        assert relation.free(o + step, p + step) == (first + by, stop + by)


def graph_of(op: Op, case):
    """A graph of this one operator, with its real arguments as inputs."""
    args, params = case
    real = real_args(op, args)

    def fn(*values):
        given = dict(zip(real, values, strict=True))
        return sg.apply(op, *(given.get(i, a) for i, a in enumerate(args)), **params)

    return sg.trace(fn, *(np.shape(args[i]) for i in real)), [args[i] for i in real]


def check_closure(op: Op, case, rng: Random) -> None:
    """Derivatives are graphs of registered operators, and the adjoint law holds for the derivative too."""
    if op.kind == "index" or not real_args(op, case[0]):
        return
    graph, args = graph_of(op, case)
    lifted = lift(op, args)
    gy = lift(op, [sample_inputs.numbers(rng, graph.nodes[graph.output_positions[0]].shape)])[0]
    reverse = sg.vjp(graph)
    inputs = [*lifted, gy]
    forward_of_reverse, reverse_of_reverse = sg.jvp(reverse), sg.vjp(reverse)
    for g in (reverse, forward_of_reverse, reverse_of_reverse):
        assert all(n.op.name in REGISTRY or n.op.name in ("input", "constant") for n in g.nodes)
    tangents = [lift(op, [sample_inputs.like(rng, a)])[0] for a in inputs]
    outs = reverse(*inputs)
    cotangents = [lift(op, [sample_inputs.like(rng, y)])[0] for y in outs]
    d_outs = forward_of_reverse(*inputs, *tangents)[len(outs) :]
    g_ins = reverse_of_reverse(*inputs, *cotangents)[len(outs) :]
    left = _total(inner(g, d) for g, d in zip(cotangents, d_outs, strict=True))
    right = _total(inner(g, d) for g, d in zip(g_ins, tangents, strict=True))
    same(left, right)


def _total(terms):
    found = list(terms)
    ball = any(hasattr(t, "overlaps") for t in found)
    total = balls(0).item() if ball else Fraction(0)
    for t in found:
        total = total + (balls(t).item() if ball and isinstance(t, Fraction) else t)
    return total


LAWS = {
    "shape": lambda op, case, rng: check_shape(op, case),
    "dtype": lambda op, case, rng: check_dtype(op, case),
    "adjoint": check_adjoint,
    "dual": check_dual,
    "linear": check_linear,
    "monotone": check_monotone,
    "commutative": lambda op, case, rng: check_commutative(op, case),
    "exact": lambda op, case, rng: check_exact(op, case),
    "roundings": lambda op, case, rng: check_roundings(op, case),
    "closure": check_closure,
    "picks": check_picks,
    "moves": check_moves,
    "box": check_box,
}


def check_all(op: Op, case, rng: Random) -> None:
    for law in LAWS.values():
        law(op, case, rng)
