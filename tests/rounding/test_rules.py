"""What a radius says in the corners: flushing, accumulation, overflow, open choices, merged kernels, refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.op import REGISTRY, Op
from specgrad.ops.elementwise import cellwise
from specgrad.rounding import FORMATS, ULPS, Arithmetic, Ball, local_radius, radius
from specgrad.rounding.context import Context, NodeContext
from specgrad.rounding.propagate import evaluator
from specgrad.rounding.selection import top_rule

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

FLOAT32 = FORMATS["float32"]


# --- formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_formats_are_those_of_numpy(dtype: str) -> None:
    info, form = np.finfo(dtype), FORMATS[dtype]
    assert (2 * form.u, form.tiny, form.largest) == (info.eps, info.tiny, info.max)
    assert form.smallest == info.smallest_subnormal
    bits = np.random.default_rng(0).integers(0, 256, (5000, info.bits // 8), dtype=np.uint8)
    with np.errstate(invalid="ignore"):
        numbers = bits.view(dtype).astype(float).ravel()
    assert form.holds(numbers).all()
    if dtype != "float64":
        between = np.nextafter(numbers[np.isfinite(numbers) & (numbers != 0)], 0)
        assert not form.holds(between).any()


def test_an_input_that_the_format_lacks_is_rounded_once() -> None:
    graph = sg.trace(lambda x: x, (3,))
    x = np.array([0.5, 0.1, 1e-46])
    ball = radius(graph, x, arithmetic=Arithmetic(flush=False)).outputs
    assert ball.radius[0] == 0
    error = np.abs(x.astype(np.float32).astype(float) - x)
    assert (error <= ball.radius).all()
    assert (ball.radius <= 1.0001 * (FLOAT32.u * x + FLOAT32.smallest)).all()


def test_numbers_in_a_graph_are_real() -> None:
    """Whole literals, integer arrays as real inputs, fractions that no format holds."""
    from fractions import Fraction

    graph = sg.trace(lambda x: sg.mul(sg.div(x, 2), Fraction(1, 3)), (2,))
    ball = radius(graph, np.array([3, 4])).outputs
    np.testing.assert_allclose(ball.value, [0.5, 2 / 3])
    assert (ball.radius > 0).all()


# --- arithmetic -------------------------------------------------------------------------------------------------


def test_flushing_covers_operands_and_results() -> None:
    x = np.float32([3e-39, 1.0, 2e-20, -1.5e-38])
    y = np.float32([1e30, 2.0, 3e-20, 1.4e-38])
    outcomes = {  # with either operand, or the result, taken as zero
        "mul": [x.astype(float) * y, np.where(np.abs(x) < FLOAT32.tiny, 0.0, x) * y.astype(float), np.zeros(4)],
        "add": [x.astype(float) + y, np.where(np.abs(x) < FLOAT32.tiny, 0.0, x) + y.astype(float)],
    }
    for name, computed in outcomes.items():
        flushing = local_radius(name, x, y, arithmetic=Arithmetic(flush=True))
        gradual = local_radius(name, x, y, arithmetic=Arithmetic(flush=False))
        affected = np.array([True, False, True, True]) if name == "mul" else np.array([True, False, False, True])
        assert flushing.contains(computed[0]).all()
        assert (flushing.contains(computed[1]) | ~affected).all()
        if name == "mul":
            assert not gradual.contains(computed[1])[0]
        assert flushing.radius[1] <= gradual.radius[1] * 1.0001 + 4 * FLOAT32.tiny


def test_accumulating_in_a_wider_format() -> None:
    """4096 products in float32, stored in float16; adding in float16 leaves that radius."""
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(0.5, 1, 4096).astype(np.float16) / np.float16(64) for _ in range(2))
    wide, narrow = (
        local_radius("contract", x, w, arithmetic=Arithmetic("float16", accumulate=a), spec="a,a->")
        for a in ("float32", None)
    )
    products = (x * w).astype(np.float16)
    slowly = np.float16(0)
    for p in products:
        slowly = np.float16(slowly + p)
    assert wide.radius < narrow.radius / 100
    assert wide.contains(np.float16(np.dot(x.astype(np.float32), w.astype(np.float32))))
    assert narrow.contains(slowly)
    assert not wide.contains(slowly)


def test_an_order_that_overflows_is_not_bounded() -> None:
    x = np.float32([3e38, 3e38, -3e38, -3e38])
    graph = sg.trace(lambda x: sg.sum(x), (4,))
    report = radius(graph, x)
    assert np.isinf(report.outputs.radius)
    assert report.unbounded == ("sum",)
    with np.errstate(over="ignore"):
        sums = {float(sum(order[1:], start=order[0])) for order in permutations(x)}
    assert not all(map(np.isfinite, sums))
    assert not radius(graph, x / np.float32(4)).unbounded


def test_division_by_something_that_may_be_zero() -> None:
    graph = sg.trace(lambda x, y, z: sg.div(x, sg.sub(y, z)), (2,), (2,), (2,))
    ball = radius(graph, *np.float32([[1, 1], [0.1, 2], [0.1, 1]])).outputs
    assert np.isinf(ball.radius).tolist() == [True, False]


# --- choices ----------------------------------------------------------------------------------------------------

CLOSE = (np.float32([[0.1, 0.2, 0.3, 1.0]]), np.float32([[0.3, 0.2, 0.1, -5.0]]))  # 0.1 + 0.3 and 0.3 + 0.1 may differ


def test_the_winner_of_close_balls_is_open() -> None:
    graph = sg.vjp(sg.trace(lambda x, y: sg.max_pool(sg.add(x, y), (2,)), (1, 4), (1, 4)))
    report = radius(graph, *CLOSE, np.float32([[5.0, 7.0]]))
    assert report.undecided == ("vjp(max_pool)",)
    assert not report.unbounded
    gx = report.outputs[1]
    for first in ([5.0, 0.0], [0.0, 5.0]):  # either of the first two may have won; the third has
        assert gx.contains(np.array([[*first, 7.0, 0.0]])).all()
    assert (gx.radius[0, 2:] == 0).all()


def test_equal_numbers_are_a_decided_tie() -> None:
    graph = sg.vjp(sg.trace(lambda x: sg.max_pool(x, (3,)), (1, 3)))
    report = radius(graph, np.float32([[2.0, 2.0, 1.0]]), np.float32([[5.0]]))
    assert not report.undecided
    assert report.outputs[1].value.tolist() == [[5.0, 0.0, 0.0]]
    assert not report.outputs[1].radius.any()


def test_relu_near_its_kink_covers_both_slopes() -> None:
    graph = sg.vjp(sg.trace(lambda x, y: sg.relu(sg.sub(x, y)), (2,), (2,)))
    report = radius(graph, np.array([1 / 3, 1.0]), np.array([1 / 3, 0.5]), np.float32([3.0, 3.0]))
    gx = report.outputs[1]
    assert report.undecided
    assert gx.contains(np.array([0.0, 3.0])).all()
    assert gx.contains(np.array([3.0, 3.0])).all()
    assert gx.radius[1] == 0


@pytest.mark.parametrize("ties", ["all", "split"])
def test_the_largest_cell_is_known_where_balls_are_apart(ties: str) -> None:
    graph = sg.vjp(sg.trace(lambda x, y: sg.amax(sg.mul(x, y), 1, ties=ties), (2, 3), (2, 3)))
    x = np.float32([[0.1, 0.7, 0.3], [0.3, 0.2, 0.7]])
    y = np.float32([[3.0, 0.1, 5.0], [0.7, 0.2, 0.3]])
    report = radius(graph, x, y, np.float32([2.0, 2.0]))
    decided, near = report.outputs[1].radius
    assert (decided <= 16 * 5 * FLOAT32.u).all()
    assert report.undecided
    assert (near[[0, 2]] > 0.1).all()
    assert near[1] < 1e-6
    assert not report.unbounded


def test_an_open_index_reads_every_candidate() -> None:
    jvp = sg.jvp(sg.trace(lambda x, y: sg.max_pool(sg.add(x, y), (2,)), (1, 4), (1, 4)))
    tangent = np.float32([[1.0, 10.0, 4.0, 8.0]])
    dy = radius(jvp, *CLOSE, tangent, np.zeros((1, 4), np.float32)).outputs[1]
    assert dy.contains(np.array([[1.0, 0.0]]))[0, 0] == dy.contains(np.array([[10.0, 0.0]]))[0, 0]
    assert not dy.contains(np.array([[12.0, 0.0]]))[0, 0]


# --- kernels that merge a layer ---------------------------------------------------------------------------------


def norm_by_scale_and_shift(x: np.ndarray, m: np.ndarray, v: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x * a + (b - m * a), as PyTorch and others compute it: the large terms cancel late."""
    a = (w / np.sqrt(v + np.float32(1e-5)))[:, None]
    return x * a + (b[:, None] - m[:, None] * a)


def test_batch_norm_in_another_order() -> None:
    rng = np.random.default_rng(0)
    m, v, w, b = (rng.uniform(0.5, 2, 4).astype(np.float32) * s for s in (1000, 1, 1, 1))
    x = (m[:, None] + rng.normal(size=(8, 4, 500))).astype(np.float32)
    got = norm_by_scale_and_shift(x, m, v, w, b)
    assert got.dtype == np.float32
    theirs = F.batch_norm(*map(torch.from_numpy, (x, m, v, w, b))).numpy()
    shapes = (x.shape, *(a.shape for a in (m, v, w, b)))
    layer = sg.trace(lambda x, m, v, w, b: sg.batch_norm(x, m, v, w, b), *shapes)

    def apart(x, m, v, w, b):  # the same formula, not named as one layer
        column = lambda p: sg.reshape(p, (4, 1))
        scale = sg.div(w, sg.sqrt(sg.add(v, 1e-5)))
        return sg.add(sg.mul(sg.sub(x, column(m)), column(scale)), column(b))

    for model in ("node", "fused"):
        merged = radius(layer, x, m, v, w, b, arithmetic=Arithmetic(execution=model)).outputs
        assert merged.contains(got).all()
        assert merged.contains(theirs).all()
    by_node = radius(sg.trace(apart, *shapes), x, m, v, w, b, arithmetic=Arithmetic(execution="node")).outputs
    assert not by_node.contains(got).all()


def test_a_bias_that_is_added_first() -> None:
    """b + w1*x1 + w2*x2 + ...: every product is less than half a step at b, so none of them counts."""
    w, x = np.full((3, 400), 1e-4, np.float32), np.ones((1, 400), np.float32)
    b = np.full(3, 4096.0, np.float32)
    got = b.copy()
    for i in range(400):
        got = got + w[:, i] * x[0, i]
    assert (got == b).all()
    layer = sg.trace(lambda w, b, x: sg.linear(w, b, x), w.shape, b.shape, x.shape)
    apart = sg.trace(lambda w, b, x: sg.add(sg.contract(x, w, "ab,cb->ac"), b), w.shape, b.shape, x.shape)
    by_node = Arithmetic(execution="node")
    assert radius(layer, w, b, x, arithmetic=by_node).outputs.contains(got[None]).all()
    assert not radius(apart, w, b, x, arithmetic=by_node).outputs.contains(got[None]).all()
    assert radius(apart, w, b, x).outputs.contains(got[None]).all()


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Arithmetic("float8"), "rounding [P5]: dtype must be one of"),
        (lambda: Arithmetic("float32", accumulate="int8"), "rounding [P5]: accumulate must be one of"),
        (lambda: Arithmetic("float32", accumulate="bfloat16"), "accumulate must hold every float32; got accumulate="),
        (lambda: local_radius("exp", np.ones(2), arithmetic=Arithmetic(ulps={})), "exp [P5]: this arithmetic declares"),
        (lambda: local_radius("relu", np.ones(2), slope=1), "relu [P5]: attribute slope is unknown"),
        (lambda: radius(sg.trace(lambda x: x, (2,)), np.ones(2), backend="gpu"), 'backend must be "numpy" or "torch"'),
    ],
)
def test_refused_by_name(call, message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call()
    assert message in str(caught.value)


def test_an_operator_that_promises_nothing_is_refused() -> None:
    plain = Op(name="cube", shape=lambda x: x, spec=lambda x: x**3, cases=REGISTRY["relu"].cases)
    with pytest.raises(sg.UnsupportedError, match="cube: has no rounding rule; declare it linear with `roundings`"):
        local_radius(plain, np.ones(2))


def test_promises_are_enough_for_a_new_operator() -> None:
    """A linear operator with a rounding count, a monotone exact one: no line of ours is needed."""
    total = Op(
        name="running",
        shape=lambda x: x,
        spec=lambda x: np.cumsum(x, axis=-1).astype(x.dtype),
        cases=REGISTRY["relu"].cases,
        linear="all",
        roundings=lambda x: x[-1] - 1,
    )
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    ball = local_radius(total, x)
    assert ball.contains(np.cumsum(x, axis=-1)).all()
    steps = Op(name="floor", shape=lambda x: x, spec=np.floor, cases=REGISTRY["relu"].cases, monotone=(0,), exact=True)
    assert not local_radius(replace(steps, receptive_field=cellwise), x).radius.any()
    assert local_radius(steps, x).radius.max() <= 2 * FLOAT32.tiny  # which may be an operator of several cells


def test_every_registered_operator_has_a_rule() -> None:
    from specgrad.rounding.rules import RULES

    assert set(RULES) <= set(REGISTRY)
    assert set(ULPS["torch"]) <= set(REGISTRY)


@pytest.mark.parametrize("slope", [2.0**100, -(2.0**100)])
def test_a_steep_slope_multiplies_what_is_flushed(slope: float) -> None:
    """Of -2^-130 a leaky_relu is -slope*2^-130, and 0 where subnormal numbers are flushed: all bounds hold both."""
    graph = sg.trace(lambda x: sg.leaky_relu(x, slope), (1,))
    x = np.float32([-(2.0**-130)])
    ball = radius(graph, x).outputs
    boxes = [bounds(graph, Box(x, x)).outputs for bounds in (ibp, crown)]
    for low, high in [(ball.low, ball.high), *((box.low, box.high) for box in boxes)]:
        assert low[0] <= min(0, -slope * 2.0**-130)
        assert high[0] >= max(0, -slope * 2.0**-130)


# --- maxima and who is one --------------------------------------------------------------------------------------


def test_a_maximum_beside_other_cells_is_compared_with_those() -> None:
    """x == amax(x) is a question of its own where each maximum stands beside what it was taken of, and only there."""
    x = np.float32([[1, 5, 2], [9, 0, 3], [4, 7, 8]])
    turned = sg.trace(lambda x: sg.equal(x, sg.broadcast(sg.reshape(sg.amax(x, 0), (3, 1)), (3, 3))), (3, 3))
    ball = radius(turned, x).outputs
    assert (np.abs(turned(x) - ball.value) <= ball.radius).all()
    assert turned(x).sum() == 1


def test_some_of_the_largest_cells_may_be_none() -> None:
    """The largest cells are at least one; those of them that something else chooses are not."""
    x = np.float32([[1, 5, 2], [9, 0, 3], [4, 7, 8]])
    wins = lambda x: sg.equal(x, sg.amax(x, 0, keepdims=True))
    some = sg.trace(lambda x, c: sg.sum(sg.select(c, wins(x), 0), 0), (3, 3), (3, 3))
    ball = radius(some, x, np.zeros((3, 3), np.float32)).outputs
    assert (ball.low <= 0).all()
    every = sg.trace(lambda x: sg.sum(sg.select(sg.equal(x, x), wins(x), 1), 0), (3, 3))
    assert (radius(every, x).outputs.low >= 1).all()


def test_balls_that_touch_may_tie() -> None:
    """0.5 +- 0.5 may be 1: it stands before another 1 by its position; two exact cells are told apart by it."""
    run = Context(Arithmetic(), evaluator("numpy"), call=NodeContext("top_index"))
    params = {"axis": 0, "k": 2, "largest": True, "last": False}
    ends = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    touching = Ball(np.array([0.5, 1.0]), np.array([0.5, 0.0]), ends=ends)
    assert np.isinf(top_rule(run, REGISTRY["top_index"], (touching,), params).radius).all()
    apart = Ball(np.array([0.5, 1.0]), np.array([0.4375, 0.0]))
    tied = Ball(np.array([1.0, 1.0]), np.zeros(2))
    for ball, order in ((apart, [1, 0]), (tied, [0, 1])):
        found = top_rule(run, REGISTRY["top_index"], (ball,), params)
        assert found.value.tolist() == order
        assert (found.radius == 0).all()
