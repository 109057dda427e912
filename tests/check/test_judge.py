"""Verdicts on single arrays: an open cell excuses itself alone; correctly rounded kernels pass for every operator."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from slices import counts
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.cases.op_case import OPERATORS
from specgrad.check.conform.conformance import GRADIENTS
from specgrad.check.verdicts.judge import allowed_balls, expected_balls, judge_array
from specgrad.rounding import Arithmetic, Ball

OPEN = Ball(np.array([1.0, 2.0, 3.0]), np.array([np.inf, 1e-7, np.inf]))


@pytest.mark.parametrize(
    ("got", "kind", "fault"),
    [
        ([9.0, 2.0, np.nan], "cannot tell", ""),
        ([1.0, 2.00000001, np.inf], "cannot tell", ""),
        ([1.0, 2.1, 3.0], "differs", "value"),
        ([1.0, np.nan, 3.0], "differs", "nan"),
        ([1.0, np.inf, 3.0], "differs", "infinity"),
    ],
)
def test_an_open_cell_excuses_itself_alone(got: list[float], kind: str, fault: str) -> None:
    found = judge_array("y", np.array(got), OPEN)
    assert (found.kind, found.fault) == (kind, fault)
    if kind == "differs":
        assert found.index == (1,)
    else:
        assert str(found).startswith("cannot tell: 2 of 3 cells are open: overflow, or a choice that rounding decides")


def test_an_infinity_of_the_other_sign_is_wrong() -> None:
    ball = Ball(np.array([np.inf, -np.inf]), np.zeros(2))
    assert judge_array("y", np.array([np.inf, -np.inf]), ball).kind == "exact"
    assert judge_array("y", np.array([np.inf, np.inf]), ball).fault == "infinity"


def test_a_nan_leaves_the_other_cells_as_exact_as_they_were() -> None:
    """x * (c * c), where the square of the float32 constant needs 48 digits."""
    c = np.float32([0.1, 0.1])
    graph = sg.trace(lambda x: x * (x.builder.constant(c) * x.builder.constant(c)), (2,))
    (ball,) = expected_balls(graph, [np.array([np.nan, 1.0])], Arithmetic())
    assert np.isnan(ball.value[0])
    assert Fraction(ball.value[1]) == Fraction(float(c[1])) ** 2


def test_an_allowance_is_that_of_the_number_which_it_is_about() -> None:
    """clamp(inf, 0, 0.7) is 0.7, which float32 rounds; in the place of inf stood -10,000, of which nothing is rounded.

    What no number can stand for is open: clamp(inf, 0, 123456.7) is more than any that was tried.
    """
    inputs = [np.array([np.inf, -np.inf, 0.5])]
    for high, kind in ((0.7, "rounding"), (123456.7, "cannot tell")):
        graph = sg.trace(lambda x, high=high: sg.clamp(x, 0, high), (3,))
        (ball,) = expected_balls(graph, inputs, Arithmetic(execution="node"))
        assert judge_array("y", np.float32([high, 0, 0.5]), ball).kind == kind
        assert judge_array("y", np.float32([high, 0, 0.6]), ball).kind == "differs"


def test_integers_are_exact_but_where_a_folded_constant_overflows() -> None:
    """2000*2000 is no float16, and 0 times an infinity is NaN; beside it, 1*1 is exact in any order."""
    first, second = np.array([[2000.0]]), np.array([[2000.0]])
    graph = sg.trace(lambda x: sg.linear(second, None, sg.linear(first, None, x)), (1, 1))
    half = Arithmetic("float16", flush=False)
    with np.errstate(all="ignore"):
        folded = np.float16(0) * (np.float16(2000) * np.float16(2000))
    assert np.isnan(folded)
    (ball,) = allowed_balls(graph, [np.zeros((1, 1))], half)
    assert judge_array("y", np.array([[float(folded)]]), ball).kind == "cannot tell"
    (ball,) = allowed_balls(sg.trace(lambda x: sg.linear(first / 2000, None, x), (1, 1)), [np.ones((1, 1))], half)
    assert (ball.radius == 0).all()


@pytest.mark.parametrize(
    ("small", "meant", "kind"),
    [
        (1e-40, Arithmetic(), "cannot tell"),
        (1e-40, Arithmetic(flush=False), "differs"),
        (1e-30, Arithmetic(), "differs"),
        (1e-9, Arithmetic(operands="float16"), "cannot tell"),
    ],
)
def test_an_infinity_times_what_may_count_as_zero_is_open(small: float, meant: Arithmetic, kind: str) -> None:
    """inf*1e-40 is inf; where subnormal numbers count as zero, and where factors are halves, it is NaN."""
    graph = sg.trace(lambda x, w: sg.matmul(x, w), (1, 1), (1, 1))
    (ball,) = expected_balls(graph, [np.array([[np.inf]]), np.array([[small]])], meant)
    assert judge_array("y", np.array([[np.inf]]), ball).kind in ("exact", "cannot tell")
    assert judge_array("y", np.array([[np.nan]]), ball).kind == kind


def test_an_open_position_excuses_itself_alone() -> None:
    ball = Ball(np.array([3, 5]), np.array([np.inf, 0.0]))
    assert judge_array("i", np.array([4, 5]), ball).kind == "cannot tell"
    assert judge_array("i", np.array([3, 4]), ball).fault == "index"


def test_nothing_known_at_all() -> None:
    ball = Ball(np.zeros(2), np.full(2, np.inf))
    found = str(judge_array("y", np.ones(2), ball))
    assert found == "cannot tell: 2 of 2 cells are open: overflow, or a choice that rounding decides"


# --- kernels ----------------------------------------------------------------------------------------------------------


def in_float64(call: Any, inputs: Any, attributes: dict[str, Any], gradient: Any = None) -> Any:
    """The meaning in float64, rounded once to float32 in the end: no kernel is better."""
    graph = sg.trace(lambda *a: call(*a, **attributes), *inputs)
    wide = [a.astype(float) for a in inputs]
    with np.errstate(all="ignore"):
        found = graph(*wide) if gradient is None else sg.vjp(graph)(*wide, gradient.astype(float))[1:]
        results = found if isinstance(found, tuple) else (found,)
        return tuple(y.astype(np.float32) if y.dtype.kind == "f" else y for y in results)


@pytest.mark.parametrize("count", counts(24, 240))
@pytest.mark.parametrize("operator", OPERATORS)
def test_a_correctly_rounded_kernel_passes(operator: str, count: int) -> None:
    call = OPERATORS[operator]
    kernel = lambda *arrays, **attributes: in_float64(call, arrays, attributes)
    gradient = lambda g, *arrays, **attributes: in_float64(call, arrays, attributes, g)
    assert_conforms(kernel, operator, gradient=gradient if operator in GRADIENTS else None, count=count)


def test_garbage_beside_an_overflow_is_caught() -> None:
    """Every other cell is 7 as soon as one overflows."""

    def kernel(x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            y = np.exp(x)
        return np.where(np.isinf(y), y, np.float32(7)) if np.isinf(y).any() else y

    with pytest.raises(ConformanceError, match="exp: differs"):
        assert_conforms(kernel, "exp", count=400)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_no_number_may_meet_padding(bad: float) -> None:
    """Runtimes pad by zeros and multiply them: 0 times it is NaN. Channels with finite weights are judged."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 2, 5, 5)), rng.normal(size=(3, 2, 3, 3))
    w[0, 0, 0, 0] = bad
    padded = sg.trace(lambda x, w: sg.conv(w, None, x, padding=1), x.shape, w.shape)
    got = torch.nn.functional.conv2d(*(torch.tensor(a, dtype=torch.float32) for a in (x, w)), padding=1).numpy()
    assert np.isnan(got[0, 0, 0, 0])
    x, w = (a.astype(np.float32).astype(float) for a in (x, w))
    (ball,) = expected_balls(padded, [x, w], Arithmetic())
    assert judge_array("y", got, ball).kind == "cannot tell"
    got[0, 1, 0, 0] += 1
    assert judge_array("y", got, ball).kind == "differs"
    bare = sg.trace(lambda x, w: sg.conv(w, None, x), x.shape, w.shape)
    (ball,) = expected_balls(bare, [x, w], Arithmetic())
    assert np.isfinite(ball.radius).all()


def test_every_digit_of_an_integer_counts() -> None:
    """float64 takes 2^53 + 1 for 2^53, and no int64 is 2^63."""
    graph, big = sg.trace(lambda i: sg.reshape(i, (3, 1)), sg.Index((3,))), np.array([2**53 + 1, 2**63 - 1, 5])
    (ball,) = allowed_balls(graph, [big], Arithmetic())
    assert judge_array("y", big.reshape(3, 1), ball).kind == "exact"
    for other in (big - [1, 0, 0], big - [0, 1, 0], big.astype(float)):
        assert judge_array("y", other.reshape(3, 1), ball).fault == "index"
        assert not ball.contains(other.reshape(3, 1)).all()


def test_an_end_that_is_left_out_may_be_the_largest_number() -> None:
    """ONNX's text says so of Clip, and ONNX Runtime computes it; its reference evaluator leaves an infinity."""
    inputs, most = [np.array([np.inf, -np.inf, 0.5, np.nan])], np.finfo(np.float32).max
    graph = sg.trace(lambda x: sg.clamp(x, 0, None), (4,))
    (ball,) = expected_balls(graph, inputs, Arithmetic())
    for top in (most, np.inf):
        got = np.array([top, 0, 0.5, np.nan], np.float32)
        assert judge_array("y", got, ball).kind == "cannot tell"
        got[1] = 1
        assert judge_array("y", got, ball).kind == "differs"
    (ball,) = expected_balls(graph, [np.array([1.0, 2.0, 0.5, np.nan])], Arithmetic())
    assert np.isfinite(ball.radius).all()
