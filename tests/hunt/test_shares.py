"""Softmax as a whole: no kernel by node leaves the shares' radius, wherever in their balls the scores are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
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


# --- planted mistakes -------------------------------------------------------------------------------------------------


def shares_without(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> bool:
    monkeypatch.setattr(shares, name, wrong)
    return any(escapes(seed) for seed in range(300))


@pytest.mark.parametrize(("name", "wrong"), [("EXPONENT", 0.0), ("FAR", 0.0)])
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
