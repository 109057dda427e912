"""Numbers in fixed point hold the real ones: every operator, random networks, and exact answers known by hand."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from hunt import Drawn
from slices import slices
from specgrad import scalar
from specgrad.bounds.exact_outputs import ball_outputs
from specgrad.bounds.fixed_point import (
    DigitFormat,
    FixedPoint,
    RadiusError,
    divided,
    ends,
    fixed_point,
    floats,
    from_integers,
    integers,
)
from specgrad.bounds.fixed_point_outputs import fixed_point_difference, fixed_point_outputs, format_for
from specgrad.bounds.fixed_point_products import from_balls, larger, nearest_multiples, ranks, times
from specgrad.bounds.fixed_point_rules import positions_of, value_of
from specgrad.errors import ScalarError, SpecgradError, UnsupportedError
from specgrad.op import REGISTRY, Op

flint = pytest.importorskip("flint")
REAL = sorted(name for name, op in REGISTRY.items() if op.kind != "index")
INDEX = sorted(name for name, op in REGISTRY.items() if op.kind == "index" and not op.index_args)


def fraction_of(ball: Any) -> Fraction:
    """The middle of a ball, exactly."""
    man, exp = (int(v) for v in ball.mid().man_exp())
    return Fraction(man) * Fraction(2) ** exp


def lies_inside(y: FixedPoint, exact: Any) -> bool:
    """Whether every number, a Fraction or a ball of many bits, is within the radius of the digits."""
    unit = Fraction(1, 2**y.form.bits)
    for units, radius, number in zip(integers(y), y.radius.flat, np.asarray(exact, dtype=object).flat, strict=True):
        is_ball = hasattr(number, "mid")
        value = fraction_of(number) if is_ball else Fraction(number)
        slack = Fraction(float(number.rad()) * 2) if is_ball else Fraction(0)
        if abs(value - units * unit) > Fraction(float(radius)) * unit + slack:
            return False
    return True


def drawn(rng: Random, form: DigitFormat, x: np.ndarray, widen: bool) -> tuple[FixedPoint, np.ndarray]:
    """Numbers near x in fixed point, and real ones that they stand for: x itself, or some within wider radii."""
    y = fixed_point(form, x)
    if not widen:
        return y, x
    radius = np.array([float(rng.choice((0, 0, 1, 7, 2.0 ** rng.randint(1, form.bits)))) for _ in range(x.size)])
    parts = [Fraction(rng.choice((-1, 1, rng.randint(-9, 9))), rng.choice((1, 10))) for _ in range(x.size)]
    parts = [max(min(p, Fraction(1)), Fraction(-1)) for p in parts]
    unit = Fraction(1, 2**form.bits)
    real = [(u + p * Fraction(r)) * unit for u, p, r in zip(integers(y), parts, radius, strict=True)]
    return FixedPoint(form, y.digits, radius.reshape(x.shape)), scalar.exact(np.array(real, object).reshape(x.shape))


def expected(op: Op, args: list[Any], params: dict[str, Any]) -> Any:
    """The operator's own meaning over Fractions, or over balls of 900 bits."""
    try:
        return op.spec(*args, **params)
    except ScalarError:
        lifted = [a if i in op.index_args else scalar.balls(a) for i, a in enumerate(args)]
        before, flint.ctx.prec = flint.ctx.prec, 900
        try:
            return op.spec(*lifted, **params)
        finally:
            flint.ctx.prec = before


def examined(op: Op, seed: int) -> str:
    """Compute one random case in fixed point: "inside", "outside" or "open"."""
    rng = Random(f"{op.name}/{seed}")
    args, params = op.cases(rng)
    form = DigitFormat(rng.choice((5, 8, 12, 20)), rng.randint(1, 6))
    pairs = [
        (a, a) if i in op.index_args else drawn(rng, form, np.asarray(a), rng.random() < 0.5)
        for i, a in enumerate(args)
    ]
    try:
        y = value_of(form, op, [p for p, _ in pairs], params)
    except (RadiusError, UnsupportedError):
        return "open"
    return "inside" if lies_inside(y, expected(op, [q for _, q in pairs], params)) else "outside"


@pytest.mark.parametrize("seeds", slices(12, 300))
@pytest.mark.parametrize("name", REAL)
def test_every_operator_holds_the_real_result(name: str, seeds: Iterable[int]) -> None:
    op = REGISTRY[name]
    found = {seed: examined(op, seed) for seed in seeds}
    assert [seed for seed, said in found.items() if said == "outside"] == []
    assert list(found.values()).count("inside") >= len(found) / 4


@pytest.mark.parametrize("seeds", slices(6, 100))
@pytest.mark.parametrize("name", INDEX)
def test_winners_among_exact_numbers(name: str, seeds: Iterable[int]) -> None:
    op, form = REGISTRY[name], DigitFormat(8, 4)
    for seed in seeds:
        (x,), params = op.cases(Random(f"{name}/{seed}"))
        x = scalar.exact(np.array([Fraction(round(4 * v), 4) for v in x.flat], object).reshape(x.shape))
        assert np.array_equal(positions_of(op, [fixed_point(form, x)], params), op.spec(x, **params))


def wrong_networks(seeds: Iterable[int], bits: int) -> list[int]:
    """The seeds of random networks whose outputs leave their radii, against balls of 600 bits."""
    wrong, shown = [], 0
    for seed in seeds:
        graph = Drawn(seed).graph()
        x = np.random.default_rng(seed).normal(size=graph.nodes[0].shape).astype(np.float32)
        try:
            (y,) = fixed_point_outputs(graph, (x,), format_for((graph,), bits))
        except SpecgradError:
            continue
        before, flint.ctx.prec = flint.ctx.prec, 600
        try:
            (exact,) = ball_outputs(graph, (x,))
        except ScalarError:
            continue
        finally:
            flint.ctx.prec = before
        shown += 1
        wrong += [] if lies_inside(y, exact) else [seed]
    assert shown
    return wrong


@pytest.mark.parametrize("seeds", slices(8, 200))
@pytest.mark.parametrize("bits", [20, 90])
def test_networks_hold_their_real_outputs(bits: int, seeds: Iterable[int]) -> None:
    assert wrong_networks(seeds, bits) == []


# --- exact answers by hand --------------------------------------------------------------------------------------------


def test_floats_of_every_size_come_back() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=50) * 2.0**e for e in (-60, -20, 0, 20, 100)]).astype(np.float32)
    for form in (DigitFormat(7, 30), DigitFormat(20, 11), DigitFormat(24, 9)):
        y = fixed_point(form, x)
        assert y.is_exact
        assert (abs(y.digits) <= form.half).all()
        assert [Fraction(u, 2**form.bits) for u in integers(y)] == [Fraction(float(v)) for v in x]
        low, high = ends(y)
        assert ((low <= x) & (x <= high)).all()
        assert (high - low <= 2.0**-38 * abs(x)).all()
    for wide in (np.array([2**63 - 1, -(2**63)]), np.array([2**64 - 1], np.uint64), np.array([2**53 + 1, -5])):
        assert [u / 2**24 for u in map(Fraction, integers(fixed_point(DigitFormat(8, 3), wide)))] == wide.tolist()
    for bad in (np.inf, np.nan, 2.0**130):
        with pytest.raises(UnsupportedError, match="no number, or is beyond"):
            fixed_point(DigitFormat(20, 3), bad)


def test_what_is_exact_stays_exact_and_a_cut_costs_a_unit() -> None:
    form = DigitFormat(8, 2)
    half, tiny = fixed_point(form, 0.5), fixed_point(form, 2.0**-16)
    assert times(half, half).is_exact
    for cut in (times(tiny, half), times(tiny, tiny), divided(fixed_point(form, 1.0), np.array(3.0))):
        assert 1 <= cut.radius <= 2
    assert integers(times(FixedPoint(form, half.digits, np.array(4.0)), fixed_point(form, 3))) == [3 * 2**15]
    assert 12 <= times(FixedPoint(form, half.digits, np.array(4.0)), fixed_point(form, 3)).radius <= 14
    assert divided(fixed_point(form, 3.0), np.array(2.0)).is_exact


def test_ranks_order_numbers_that_differ_in_their_last_digit() -> None:
    form, top = DigitFormat(8, 3), 5 * 2**24
    x = from_integers(form, [top, top + 1, top - 1, top + 1], np.zeros(4))
    rank, cells = ranks(x)
    assert rank.tolist() == [2, 3, 1, 3]
    assert [int(c) for c in cells] in ([2, 0, 1], [2, 0, 3])
    pool = REGISTRY["amax"]
    assert integers(value_of(form, pool, [x], {"axes": (0,), "ties": "all"})) == [top + 1]


def test_rounding_is_exact_at_ties_and_refuses_what_is_open() -> None:
    form = DigitFormat(20, 3)
    x, one = fixed_point(form, [0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 7.3]), fixed_point(form, 1)
    assert nearest_multiples(x, one).tolist() == [0, 2, 2, 0, -2, 2, 7]
    assert nearest_multiples(x, one, -1, 2).tolist() == [0, 2, 2, 0, -1, 2, 2]
    open_ = FixedPoint(form, x.digits, np.ones(x.shape))
    with pytest.raises(RadiusError, match="within the radius of a tie"):
        nearest_multiples(open_, one)
    wide = FixedPoint(
        form, fixed_point(form, [3.0]).digits, np.array([0.6 * 2**60])
    )  # a whole number, give or take 0.6
    with pytest.raises(RadiusError, match="within the radius of a tie"):
        nearest_multiples(wide, one)
    scale = fixed_point(form, np.float32(0.1))  # above 1/10: 0.25 is less than two and a half of them
    assert nearest_multiples(fixed_point(form, [0.25, 0.35]), scale).tolist() == [2, 3]


def test_an_open_maximum_has_the_larger_radius() -> None:
    form = DigitFormat(20, 2)
    x = FixedPoint(form, fixed_point(form, [1.0, 0.0, 5.0]).digits, np.array([9.0, 9.0, 9.0]))
    y = larger(x, fixed_point(form, [1.0, 1.0, 1.0]))
    assert y.radius.tolist() == [9, 0, 9]
    with pytest.raises(RadiusError, match="a comparison is within the radius"):
        value_of(form, REGISTRY["greater"], [x, fixed_point(form, [1.0, 1.0, 1.0])], {})


def test_sums_of_many_products_stay_exact() -> None:
    """2,048 products of numbers of 53 bits, against Python's integers; digits are carried before they reach 2^53."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=2048), rng.normal(size=(1, 2048))
    graph = sg.trace(lambda x: sg.linear(sg.cast(w, "float64"), None, x), (2048,))
    exact = sum(Fraction(p) * Fraction(q) for p, q in zip(x, w[0], strict=True))
    for width in (12, 19, 20, 21):
        (y,) = fixed_point_outputs(graph, (x,), DigitFormat(width, -(-180 // width)))
        assert y.is_exact
        assert Fraction(integers(y)[0], 2**y.form.bits) == exact


# --- two networks -----------------------------------------------------------------------------------------------------


def test_a_difference_of_one_bit_is_shown_and_none_is_said_of_one_function() -> None:
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    other = w.copy()
    other[1, 2, 0, 0] = np.nextafter(other[1, 2, 0, 0], np.float32(9))
    x = rng.normal(size=(1, 3, 8, 8)).astype(np.float32)
    a, b, c = (
        sg.trace(lambda x, v=v, f=f: sg.gelu(f * sg.relu(sg.conv(v, None, x))), (1, 3, 8, 8))
        for v, f in ((w, 1), (other, 1), (w / 2, 2))
    )
    shown = fixed_point_difference(a, b, (x,))
    assert (shown.low[0] > 0).any() or (shown.high[0] < 0).any()
    same = fixed_point_difference(a, c, (x,))
    assert (same.low[0] <= 0).all()
    assert (same.high[0] >= 0).all()
    assert same.bits >= 700  # more digits never show a difference
    assert np.allclose(shown.values[0], a(x), rtol=1e-4, atol=1e-6)


def test_an_output_that_is_exactly_the_same_hides_no_other() -> None:
    """2^-100 beside 1: the first output is the same, and the second needs more bits than the first pass has."""
    a, b = (sg.trace(lambda x, e=e: (2 * x, x * x * (1 + x * e)), (1,)) for e in (2.0**-100, 2.0**-99))
    apart = fixed_point_difference(a, b, (np.float32([1]),))
    assert apart.low[0] == apart.high[0] == 0
    assert apart.high[1] < 0


def test_a_network_that_decides_nothing_is_refused() -> None:
    graph = sg.trace(lambda x: sg.greater(sg.sqrt(x) * sg.sqrt(x), x), (1,))
    with pytest.raises(RadiusError, match="a comparison is within the radius"):
        fixed_point_difference(graph, graph, (np.float32([2.0]),))


def test_floats_are_near() -> None:
    form = DigitFormat(20, 3)
    assert np.ldexp(floats(fixed_point(form, [0.1, -7.25])), -60).tolist() == pytest.approx([0.1, -7.25], rel=2**-40)


NO_NUMBERS: dict[str, Any] = {
    "an argument": lambda x: x + np.inf,
    "a cell that is shut out": lambda x: sg.select(sg.greater(x, 0), x, -np.inf),
    "a limit that is NaN": lambda x: sg.clamp(x, np.nan, None),
    "a number of millions of digits": lambda x: sg.exp(x * 1e9),
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_or_too_large_is_refused(name: str) -> None:
    graph, x = sg.trace(NO_NUMBERS[name], (2,)), np.float32([1, 2])
    with pytest.raises(UnsupportedError):
        fixed_point_outputs(graph, (x,), DigitFormat(20, 3))


def test_an_infinite_limit_is_none() -> None:
    graph = sg.trace(lambda x: sg.clamp(sg.clamp(x, -np.inf, 1.5), None, np.inf), (3,))
    (y,) = fixed_point_outputs(graph, (np.float32([1, 2, -3]),), DigitFormat(20, 3))
    assert lies_inside(y, [1, Fraction(3, 2), -3])


def test_balls_of_any_exponent_are_held() -> None:
    """Middles of more bits than the precision, and gates of -1e9, which are above 0 by 2 to the minus millions."""
    x, form = np.float32([-1e9, -3e38, 1, 3]), DigitFormat(20, 3)
    for f, exact in ((sg.silu, [0, 0]), (sg.gelu, [0, 0]), (lambda x: sg.abs(x) ** 1.5, None)):
        (y,) = fixed_point_outputs(sg.trace(f, (4,)), (x,), form)
        if exact is not None:
            assert lies_inside(FixedPoint(form, y.digits[:, :2], y.radius[:2]), exact)
            assert not y.is_exact
        else:
            assert abs(Fraction(integers(y)[3], 2**60) ** 2 - 27) < Fraction(1, 2**50)


def test_what_is_below_the_unit_of_an_exact_ball_is_counted() -> None:
    numbers = [flint.arb(v) * flint.arb(2) ** e for v, e in ((1, -100), (-1, -(10**12)), (-5, -61), (4, -62), (0, 0))]
    y = from_balls(DigitFormat(20, 3), np.array(numbers, dtype=object))
    assert integers(y) == [0, -1, -3, 1, 0]
    assert (y.radius > 0).tolist() == [True, True, True, False, False]


def test_beyond_all_floats_nothing_is_said_of_a_difference() -> None:
    """2**1000 and twice that, in units of 2**-72: no float holds either."""
    large = [sg.trace(lambda x, s=s: (x * 2.0**100) ** 10 * s, (1,)) for s in (1.0, 2.0)]
    apart = fixed_point_difference(*large, (np.float32([1]),))
    assert (apart.low[0] <= -(2.0**1000)).all()
    assert (apart.high[0] >= -(2.0**1000)).all()
