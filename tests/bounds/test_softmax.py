"""Softmax as one layer: its lines against balls of python-flint, its rounding against float32 runs, what it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flint
import numpy as np
import pytest
import torch
from flint import arb

import specgrad as sg
from specgrad.bounds import Box, crown
from specgrad.bounds.linear.intermediate import forward_pass
from specgrad.bounds.linear.relaxation import softmax
from specgrad.bounds.linear.relaxation.softmax import BoundSoftmax, match_softmax
from specgrad.rounding import Arithmetic

# --- lines ------------------------------------------------------------------------------------------------------------


def layer_of(shape: tuple[int, ...], axis: int) -> BoundSoftmax:
    graph = sg.trace(lambda x: sg.softmax(x, axis), shape)
    parts = match_softmax(graph, len(graph.nodes) - 1)
    assert parts is not None
    return BoundSoftmax(len(graph.nodes) - 1, graph.nodes[-1], parts)


def exactly(x: np.ndarray) -> list[arb]:
    e = [arb(float(v)).exp() for v in x]
    return [v / sum(e, arb(0)) for v in e]


def escapes(boxes: int = 60) -> int:
    """Cells of boxes of many widths where a line is on the wrong side of the function."""
    rng, wrong = np.random.default_rng(3), 0
    with flint.ctx.workprec(400):
        for _ in range(boxes):
            n = int(rng.integers(2, 6))
            low = rng.normal(size=n) * rng.choice((0.1, 3.0, 100.0))
            high = low + 10.0 ** rng.uniform(-14, 1.5) * rng.uniform(0.1, 1, n) * (rng.random(n) < 0.8)
            layer = layer_of((n,), 0)
            down, lower, up, upper = (t[..., 0, :].numpy() for t in layer.relaxation((tensor(low), tensor(high))))
            least, most = (t[0].numpy() for t in layer.interval((tensor(low), tensor(high))))
            for share in (*np.eye(n), *(1 - np.eye(n)), np.full(n, 0.5), *rng.random((4, n))):
                x = np.clip(low + share * (high - low), low, high)
                exact = [arb(float(v)) for v in x]
                for i, y in enumerate(exactly(x)):
                    below = sum(
                        (arb(float(s)) * v for s, v in zip(down[:, i], exact, strict=True)), arb(float(lower[i]))
                    )
                    above = sum((arb(float(s)) * v for s, v in zip(up[:, i], exact, strict=True)), arb(float(upper[i])))
                    wrong += not (below <= y <= above and arb(float(least[i])) <= y <= arb(float(most[i])))
    return wrong


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x)[None]


def test_lines_hold() -> None:
    assert escapes() == 0


@pytest.mark.slow
def test_lines_hold_on_many_boxes() -> None:
    assert escapes(3000) == 0


def _without_entropy(x: Any, *rest: Any) -> Any:
    weights, entropy, defect = _SHARES(x, *rest)
    return weights, entropy + 0.1, defect


_SHARES = softmax.shares
_BELOW = softmax._lower_plane
PLANTED: dict[str, tuple[str, Callable[..., Any]]] = {
    "shares whose entropy is too large": ("shares", _without_entropy),
    "a chord that is a tangent": ("_lower_plane", lambda least, most: _BELOW((least + most) / 2, (least + most) / 2)),
    "differences of the lower ends": ("differences", lambda low, high, own_low, own_high, own: (low - own_low,) * 2),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_lines_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, *PLANTED[name])
    assert escapes(30) > 0


def test_a_softmax_along_any_axis() -> None:
    graph = sg.trace(lambda x: sg.softmax(x, 1), (2, 3, 2))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 2))
    bounds = crown(graph, Box.around(x, 0.3), deployed=False).outputs
    values = np.stack([graph(x + rng.uniform(-0.3, 0.3, x.shape)) for _ in range(300)])
    assert (bounds.low <= values.min(0)).all()
    assert (bounds.high >= values.max(0)).all()
    assert (bounds.width <= 1.7 * (values.max(0) - values.min(0))).all()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_a_softmax_between_convolutions(axis: int) -> None:
    """Cells below a convolution are bounded by patches; a softmax reads its whole axis, and is no window."""
    rng = np.random.default_rng(axis)
    v, w, x = (rng.normal(size=s).astype(np.float32) for s in ((2, 3, 1, 1), (3, 3, 2, 2), (2, 3, 5, 5)))
    graph = sg.trace(lambda x: sg.relu(sg.conv(v, None, sg.softmax(sg.conv(w, None, x), axis))), x.shape)
    bounds = crown(graph, Box.around(x, 0.2)).outputs
    values = np.stack([graph(x + rng.uniform(-0.2, 0.2, x.shape)) for _ in range(30)])
    assert (bounds.low <= values.min(0)).all()
    assert (bounds.high >= values.max(0)).all()


# --- rounding ---------------------------------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[sg.Graph, list[np.ndarray], np.ndarray, float]:
    """A product, softmax, a product half of the time; scores of all sizes; a box of any width, a point among them."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    w = (rng.normal(size=(n, 6)) * rng.choice((0.1, 1.0, 8.0))).astype(np.float32)
    v = rng.normal(size=(3, n)).astype(np.float32) if seed % 2 else np.eye(n, dtype=np.float32)
    last = (lambda y: sg.linear(v, None, y)) if seed % 2 else lambda y: y
    graph = sg.trace(lambda x: last(sg.softmax(sg.linear(w, None, x) * np.float32(0.7))), (1, 6))
    return graph, [w, v], rng.normal(size=(1, 6)).astype(np.float32), float(rng.choice((0.0, 0.0, 1e-3, 0.1, 1.0)))


def executions(w: np.ndarray, v: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """float32: PyTorch's softmax, parts in NumPy, with the factor in the weights, and sums from the other end."""
    f = np.float32
    scores = x @ w.T * f(0.7)
    shifted = np.exp(scores - scores.max())
    merged = x @ (w * f(0.7)).T
    other = np.exp(merged - merged.max())
    backwards = f(0)
    for e in other.ravel()[::-1]:
        backwards = f(backwards + e)
    by_torch = torch.softmax(torch.from_numpy(scores), -1).numpy()
    return [by_torch @ v.T, (shifted / shifted.sum()) @ v.T, (other * (f(1) / backwards)) @ v.T]


def strays(seeds: range) -> int:
    """Networks with an execution outside its bounds."""
    count = 0
    for seed in seeds:
        graph, (w, v), x, eps = drawn(seed)
        bounds = crown(graph, Box.around(x.astype(float), eps)).outputs
        rng = np.random.default_rng(seed)
        points = [np.clip(x + eps * rng.uniform(-1, 1, x.shape), x - eps, x + eps).astype(np.float32) for _ in range(8)]
        inside = [p for p in [x, *points] if (np.abs(p.astype(float) - x) <= eps).all()]
        got = np.concatenate([y for p in inside for y in executions(w, v, p)])
        count += bool(((got < bounds.low) | (got > bounds.high)).any())
    return count


def test_executions_lie_within_bounds() -> None:
    assert strays(range(24)) == 0


@pytest.mark.slow
def test_executions_of_many_networks() -> None:
    assert strays(range(24, 1024)) == 0


def test_forgotten_rounding_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_pass, "quotient_error", lambda arithmetic, relative, taps, largest, least: 0 * largest)
    monkeypatch.setattr(forward_pass.ForwardPass, "slack", lambda self, p, rows: 0 * rows.sum(-1))
    assert strays(range(24)) > 0


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_rounding_costs_little(execution: str) -> None:
    """Beside the same bounds in exact arithmetic: the errors of 40 cells' parts and of two products."""
    graph, _, x, _ = drawn(5)
    box = Box.around(x.astype(float), 0.1)
    real = crown(graph, box, deployed=False).outputs
    deployed = crown(graph, box, arithmetic=Arithmetic(execution=execution)).outputs
    assert (deployed.width <= real.width * 1.001 + 1e-4).all()


def test_wide_scores_stay_bounded() -> None:
    """Interval by interval the sum may be as small as exp(-60); it is at least 1."""
    graph = sg.trace(lambda x: sg.softmax(x * 30), (1, 5))
    bounds = crown(graph, Box(np.full((1, 5), -1.0), np.full((1, 5), 1.0))).outputs
    assert (bounds.low >= -1e-4).all()
    assert (bounds.high <= 1 + 1e-4).all()


# --- what it is not ---------------------------------------------------------------------------------------------------

LIKE: dict[str, Callable[[Any, Any], Any]] = {
    "another axis": lambda x, e: e / sg.sum(e, 0, keepdims=True),
    "twice the numerator": lambda x, e: e * 2 / sg.sum(e, 1, keepdims=True),
    "a sum laid out the other way": lambda x, e: e / sg.broadcast(sg.sum(e, 1), (3, 3)),
    "another sum": lambda x, e: e / sg.sum(sg.exp(x * 2), 1, keepdims=True),
}


@pytest.mark.parametrize("name", LIKE)
def test_what_looks_like_one(name: str) -> None:
    """Another axis is another softmax; the others are none. Bounds hold for all of them."""
    graph = sg.trace(lambda x: LIKE[name](x, sg.exp(x)), (3, 3))
    parts = match_softmax(graph, len(graph.nodes) - 1)
    assert (parts.axis if parts else None) == (0 if name == "another axis" else None)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 3))
    bounds = crown(graph, Box.around(x, 0.2), deployed=False).outputs
    for _ in range(100):
        assert bounds.contains(graph(x + rng.uniform(-0.2, 0.2, (3, 3)))).all()
