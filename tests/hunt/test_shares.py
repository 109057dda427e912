"""Softmax as a whole: no kernel by node leaves the shares' radius, wherever in their balls the scores are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check.verdicts.shared_total import shared_total
from specgrad.ops.attention import attention
from specgrad.rounding import Arithmetic, Ball, radius
from specgrad.rounding.layers import shares
from specgrad.rounding.layers.shares import share_ends, shares_of
from test_softmax_totals import SIZES, SPREADS, SoftmaxKernel, rows, swallowed

F = np.float32
NODE = Arithmetic(execution="node")


def scores(seed: int) -> tuple[Ball, Any]:
    """Balls of scores, exact or up to 3 wide, and a draw of what a kernel reads."""
    rng = np.random.default_rng(seed)
    x = rows(rng, SIZES[seed % 5], SPREADS[seed // 5 % 5])
    wide = rng.choice((0.0, 1e-6, 1e-3, 0.1, 3.0)) * rng.random(x.shape)
    wide = np.where(np.abs(x) > 1e4, 0.0, wide)

    def read() -> np.ndarray:
        way = rng.integers(4)
        turned = (rng.random(x.shape) * 2 - 1, np.sign(rng.random(x.shape) - 0.5), np.ones(x.shape), None)[way]
        if turned is None:  # one cell against all others
            turned = np.where(np.arange(x.shape[1]) == rng.integers(x.shape[1]), 1.0, -1.0) * rng.choice((-1, 1))
        with np.errstate(all="ignore"):
            y = (x + turned * wide).astype(F)
            return np.where(np.abs(y.astype(float) - x) <= wide, y, x)

    return Ball(x.astype(float), wide), read


def escapes(seed: int) -> bool:
    """Whether a drawn kernel on scores in their balls leaves the ends."""
    ball, read = scores(seed)
    low, high = share_ends(ball, (1,), None, NODE)
    y = SoftmaxKernel(seed)(read()).astype(float)
    return bool(((y < low) | (y > high)).any())


def test_no_kernel_leaves_the_shares() -> None:
    assert not any(escapes(seed) for seed in range(300))


@pytest.mark.slow
def test_long_hunt_of_shares() -> None:
    assert not any(escapes(seed) for seed in range(1000, 7000))


def test_wide_scores_have_shares_between_0_and_1() -> None:
    """Their difference of quotients was infinite from radii of 1 on."""
    ball, _ = scores(4)
    low, high = share_ends(Ball(ball.value, np.full(ball.shape, 20.0)), (1,), None, NODE)
    assert (low >= 0).all()
    assert (high < 1.001).all()


@pytest.mark.parametrize("n", [2, 64, 1024])
def test_narrower_than_node_by_node(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of scores that are products: a fifth of what operators say one by one, on rows of 64."""
    rng = np.random.default_rng(n)
    w, x = (rng.normal(size=shape).astype(F) for shape in ((n, 64), (64,)))
    graph = sg.trace(lambda w, x: sg.softmax(w @ x), w.shape, x.shape)
    found: Ball = radius(graph, w, x, arithmetic=NODE).outputs
    monkeypatch.setattr(shares, "_is_plain", lambda context: False)
    plain: Ball = radius(graph, w, x, arithmetic=NODE).outputs
    assert (found.radius <= plain.radius).all()
    assert np.max(found.radius) < np.max(plain.radius) / (1.8 if n == 1024 else 2.5)


def test_what_is_a_softmax() -> None:
    mask = np.tri(4, dtype=bool)
    x = (4, 4)
    assert len(shares_of(sg.trace(lambda q: attention(q, q, q, mask), x)).layers) == 1
    others: tuple[Callable[[Any], Any], ...] = (
        lambda x: sg.exp(x) / sg.broadcast(sg.sum(sg.exp(x), 1, keepdims=True), x.shape),
        lambda x: sg.softmax(x) - 1,
        lambda x: (lambda e: e / sg.sum(e, 0, keepdims=True))(sg.exp(x - sg.amax(x, 1, keepdims=True))),
        lambda x: (lambda e: e / sg.sum(e, 1, keepdims=True))(sg.exp(x - sg.amax(x * 2.0, 1, keepdims=True))),
    )
    assert [len(shares_of(sg.trace(net, x)).layers) for net in others] == [0, 1, 0, 0]


def masked(x: Any, seen: np.ndarray, lowered: Callable[[Any], Any]) -> Any:
    """A softmax of the cells that `seen` shows, others being lowered to a number of the row."""
    top = sg.amax(sg.select(seen, x, lowered(sg.amax(x * -1, -1, keepdims=True))), -1, keepdims=True)
    e = sg.select(seen, sg.exp((x - sg.stop_gradient(top)) * seen), 0)
    return e / sg.sum(e, -1, keepdims=True)


def test_what_is_lowered_is_no_cell_above_the_others() -> None:
    """Exponentials of x - 100 are subnormal, where those of x less its maximum are not; those of 5*(x - max x) vary
    more.
    """
    x, seen = np.array([[0, -1, -100]], F), np.array([[1, 1, 0]], F)
    wrong = sg.trace(lambda x: masked(x, seen, lambda top: top), x.shape)
    e = np.exp((x - F(100)).astype(float)).astype(F) * seen
    kept = Arithmetic(execution="node", flush=False)
    assert radius(wrong, x, arithmetic=kept).outputs.contains(e / e.sum()).all()
    counts = [
        len(shares_of(sg.trace(lambda x, s=s, f=f: masked(x, s, f), x.shape)).layers)
        for s, f in (
            (seen, lambda top: top * -1),
            (seen, lambda top: top),
            (seen, lambda top: top * -1 * -1),
            (seen * F(5), lambda top: top * -1),
        )
    ]
    assert counts == [1, 0, 0, 0]


@pytest.mark.parametrize(("axis", "shape", "count"), [(-1, (3, 1), 1), (0, (1, 3), 0), (-1, (1, 3), 0), (0, (3, 1), 0)])
def test_what_is_lowered_is_the_smallest_of_its_own_row(axis: int, shape: tuple[int, int], count: int) -> None:
    """The smallest cell of a column, or of another row, may lie above all cells of a row that count."""
    x = np.array([[0, -1.3, 100], [1, 2, 90], [3, 4, 80]], F)
    seen = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 1]], F)

    def net(x: Any) -> Any:
        least = sg.amax(x * -1, axis, keepdims=True) * -1
        top = sg.amax(sg.select(seen, x, sg.reshape(least, shape)), -1, keepdims=True)
        e = sg.select(seen, sg.exp((x - sg.stop_gradient(top)) * seen), 0)
        return e / sg.sum(e, -1, keepdims=True)

    least = -(-x).max(axis, keepdims=True)
    top = np.where(seen > 0, x, least.reshape(shape)).max(1, keepdims=True)
    e = np.exp(((x - top) * seen).astype(float)).astype(F) * seen
    graph = sg.trace(net, x.shape)
    assert len(shares_of(graph).layers) == count
    kept = Arithmetic(execution="node", flush=False)
    assert radius(graph, x, arithmetic=kept).outputs.contains(e / e.sum(1, keepdims=True)).all()


# --- planted mistakes -------------------------------------------------------------------------------------------------


def shares_without(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> bool:
    monkeypatch.setattr(shares, name, wrong)
    return any(escapes(seed) for seed in range(300))


@pytest.mark.parametrize(("name", "wrong"), [("EXPONENT", 0), ("lost_below", lambda tiny: 0.0)])
def test_wrong_rules_are_caught(name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shares_without(monkeypatch, name, wrong)


def leaves_on_a_chain() -> bool:
    """Whether a chain on a row of cells that are lost one by one leaves the ends."""
    x, kernel = swallowed(), SoftmaxKernel(0)
    kernel.sums.tree, kernel.sums.order, kernel.sums.reciprocal, kernel.off = "chain", "given", False, 0.0
    low, high = share_ends(Ball(x.astype(float), np.zeros(x.shape)), (1,), None, NODE)
    y = kernel(x)
    return bool(((y < low) | (y > high)).any())


def test_totals_without_roundings_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not leaves_on_a_chain()
    monkeypatch.setattr(shares, "growth", lambda n, u: 0.0)
    assert leaves_on_a_chain()


def test_scores_taken_for_exact_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = shares.share_ends

    def of_exact(x: Ball, *rest: Any) -> Any:
        return right(Ball(x.value, np.zeros(x.shape)), *rest)

    monkeypatch.setitem(globals(), "share_ends", of_exact)
    assert any(escapes(seed) for seed in range(50))


# --- declared errors, and formats -------------------------------------------------------------------------------------


def node_by_node(graph: Any, x: np.ndarray, arithmetic: Arithmetic, monkeypatch: pytest.MonkeyPatch) -> Ball:
    with monkeypatch.context() as patch:
        patch.setattr(shares, "_is_plain", lambda context: False)
        found: Ball = radius(graph, x, arithmetic=arithmetic).outputs
    return found


@pytest.mark.parametrize("units", [(2.0, "1"), 2.0**24, 2.0**25])
def test_an_error_of_exp_that_is_no_small_share_of_it_narrows_nothing(
    units: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 units of 1 are 2e-3 of exp(-10): a kernel whose exponential is off by them is no other function."""
    given = Arithmetic(execution="node", ulps={**NODE.ulps, "exp": units})
    x = np.array([[0, -10, -12, -3]], F)
    e = np.exp(x.astype(float)) + np.array([[0, 2, 0, 0]]) * 2.0**-24
    y = (e / e.sum(1, keepdims=True)).astype(F)
    graph = sg.trace(sg.softmax, x.shape)
    found = radius(graph, x, arithmetic=given).outputs
    assert found.contains(y).all()
    assert np.array_equal(found.radius, node_by_node(graph, x, given, monkeypatch).radius)
    total = shared_total(graph, [x], y, given)
    assert total is not None
    assert total.explained.all()


@pytest.mark.parametrize("rounding", ["nearest", "any"])
@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "float16", "bfloat16", "float64"])
def test_no_radius_is_below_0(dtype: str, rounding: str) -> None:
    """12 units of float8_e5m2 are more than the exponential itself."""
    given = Arithmetic(dtype, execution="node", rounding=rounding)
    found = radius(sg.trace(sg.softmax, (1, 2)), np.array([[0.0, -1.0]]), arithmetic=given).outputs
    assert (found.radius >= 0).all()


def test_float64_holds_exponentials_that_float32_loses() -> None:
    """exp(-195) is no number of float32, and one of float64."""
    low, high = share_ends(
        Ball(np.array([[0.0, -200.0]]), np.array([[0.0, 5.0]])), (1,), None, Arithmetic("float64", execution="node")
    )
    for z in (-195.0, -200.0, -205.0):
        share = np.exp(z) / (1 + np.exp(z))
        assert low[0, 1] <= share <= high[0, 1]
