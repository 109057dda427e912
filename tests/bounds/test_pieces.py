"""Relus that read the same cells, together: never above what float32 computes, and narrower than line by line."""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from slices import each

torch = pytest.importorskip("torch")
pytest.importorskip("flint")

from specgrad.bounds.linear.intermediate.tighten import output_bounds  # noqa: E402
from specgrad.bounds.linear.propagation.backward import backward  # noqa: E402
from specgrad.bounds.search.network.pgd_attack import deployed_graph  # noqa: E402
from specgrad.bounds.search.neuron_split import multi_neuron  # noqa: E402
from specgrad.bounds.search.neuron_split.multi_neuron import BoundMultiNeuron, fits, piecewise  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import root_forward  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rationals  # noqa: E402
from specgrad.proof.exact import multi_neuron as replay_pieces  # noqa: E402
from specgrad.proof.exact.replay import Replay, Slopes  # noqa: E402

WINDOWS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 6, 6), (5, 1, 2, 2), {}),
    ((2, 1, 5, 4), (4, 1, 2, 2), {"stride": (2, 1), "padding": 1}),
    ((1, 2, 7), (6, 2, 3), {"padding": 1, "dilation": 2}),
    ((1, 1, 9), (8, 1, 2), {"stride": 2}),
    ((1, 3, 3, 3), (7, 3, 1, 2), {"padding": (0, 1)}),
]


def network(seed: int) -> sg.Graph:
    """conv - relu - (avg_pool) - linear, or with a second relu layer above."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    shape, kernel, how = WINDOWS[seed % len(WINDOWS)]
    w, b = draw(*kernel), draw(kernel[0]) / 4

    def features(x: Any) -> Any:
        return sg.flatten(sg.relu(sg.conv(w, b, x, **how)), 0)

    v = draw(3, sg.trace(features, shape).nodes[-1].shape[0])
    u = draw(2, 3)

    def whole(x: Any) -> Any:
        y = sg.linear(v, None, features(x))
        return sg.linear(u, None, sg.relu(y) if seed % 2 else y)

    return deployed_graph(sg.trace(whole, shape))


def box(graph: sg.Graph, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    low = rng.normal(size=graph.nodes[0].shape).astype(np.float32)
    return low, (low + rng.uniform(0, 0.8, low.shape)).astype(np.float32)


def found_below(seed: int) -> float:
    """How far the least value found in float32, at corners, inside and downhill, lies below the bound."""
    graph = network(seed)
    low, high = (torch.from_numpy(end) for end in box(graph, seed))
    rows = torch.eye(2, dtype=torch.float64)
    bound = piecewise(
        root_forward(graph, low.numpy(), high.numpy()), rows, torch.full((2,), 1e9), time.monotonic() + 60
    )
    run = torch.func.vmap(sg.compile(graph, "torch"))
    share = torch.rand((300, *low.shape), generator=torch.Generator().manual_seed(seed))
    share[:200] = share[:200].round()
    worst = -np.inf
    for row in range(2):
        x = (low + share * (high - low)).clamp(low, high)
        for _ in range(8):
            x = x.detach().requires_grad_()
            y = run(x)[:, row]
            worst = max(worst, (bound[row] - y.double().min()).item())
            (g,) = torch.autograd.grad(y.sum(), x)
            x = (x - 0.25 * (high - low) * g.sign()).clamp(low, high)
    return worst


@pytest.mark.parametrize("seed", each(4, 20))
def test_nothing_lies_below_the_bound(seed: int) -> None:
    assert found_below(seed) <= 0


@pytest.mark.slow
def test_hunt() -> None:
    assert not [seed for seed in (*range(10, 20), *range(100, 500)) if found_below(seed) > 0]


def test_a_piece_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = BoundMultiNeuron._make_pieces

    def wrong(self: Any, low: Any, high: Any) -> None:
        middle = (low + high) / 2
        original(self, middle - (middle - low) / 2, middle + (high - middle) / 2)

    monkeypatch.setattr(BoundMultiNeuron, "_make_pieces", wrong)
    assert any(found_below(seed) > 0 for seed in range(20))


def test_rounding_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu(2**24 + x) - relu(2**24) is 0 in float32 for x <= 1/2, where exact arithmetic says at least 1/4."""
    w, b = np.array([[[1.0]], [[0.0]]], np.float32), np.array([2.0**24, 2.0**24], np.float32)
    rows = np.array([[1.0, -1.0]], np.float32)
    graph = deployed_graph(
        sg.trace(lambda x: sg.linear(rows, None, sg.flatten(sg.relu(sg.conv(w, b, x)), 0)), (1, 1, 1))
    )
    low, high = np.full((1, 1, 1), 0.25, np.float32), np.full((1, 1, 1), 0.5, np.float32)
    bound = piecewise(root_forward(graph, low, high), torch.ones((1, 1), dtype=torch.float64), torch.ones(1), np.inf)
    assert graph(high).item() == 0
    assert -64 < bound.item() <= 0


def test_an_output_that_does_not_vary_has_no_pieces() -> None:
    """relu(x - 10) is 0 on 0..1: nothing is gained by cutting, and what is asked of a constant must not count as 0."""
    w, b, rows = np.ones((1, 1, 1), np.float32), np.full(1, -10.0, np.float32), np.ones((1, 1), np.float32)
    graph = deployed_graph(
        sg.trace(lambda x: sg.linear(rows, None, sg.flatten(sg.relu(sg.conv(w, b, x)), 0)), (1, 1, 1))
    )
    root = root_forward(graph, np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32))
    (output,) = graph.output_positions
    assert output not in root.layers
    assert piecewise(root, torch.ones((1, 1), dtype=torch.float64), torch.ones(1), np.inf).item() == -np.inf
    with pytest.raises(AssertionError, match="do not vary"):
        backward(root.state, {output: torch.ones((1, 1, 1), dtype=torch.float64)})


def test_it_is_narrower_than_lines_of_single_relus() -> None:
    gains = []
    for seed in range(0, 8, 2):
        graph = network(seed)
        forward = root_forward(graph, *box(graph, seed))
        alone = output_bounds(forward, np.eye(2), 60)[0]
        together = piecewise(forward, torch.eye(2, dtype=torch.float64), torch.full((2,), 1e9), np.inf).numpy()
        gains.append((together - alone).mean() / abs(alone).mean())
    assert np.mean(gains) > 0.05


# --- over exact numbers -----------------------------------------------------------------------------------------------


def replayed(seed: int, width: float) -> float:
    """How far the least float32 value that is found lies below a replay's bound with any vectors and slopes."""
    graph, rng = network(2 * seed), np.random.default_rng(seed)
    low = rng.normal(size=graph.nodes[0].shape).astype(np.float32)
    high = (low + rng.uniform(0, width, low.shape)).astype(np.float32)
    at, relu = next((i, n) for i, n in enumerate(graph.nodes) if n.op.name == "relu")
    conv = graph.nodes[relu.operands()[0]]
    cells = int(np.prod(graph.constants[conv.args[1]].shape[1:]))
    shape = (int(np.prod(relu.shape)) // relu.shape[1], cells)
    vectors = {at: rng.integers(-(2**20), 2**20, shape)}
    row = rng.integers(-3, 4, 2)
    found = Replay(graph, low, high, {}).lower(rationals(row), vectors=vectors)
    bound = Fraction(int(found.p), int(found.q))
    x = np.where(rng.integers(0, 2, (200, *low.shape)), high, low)
    with torch.no_grad():
        y = torch.func.vmap(sg.compile(graph, "torch"))(torch.from_numpy(x)).numpy()
    return float(bound - min(sum(int(r) * Fraction(float(v)) for r, v in zip(row, each, strict=True)) for each in y))


def test_replays_with_pieces_bound_what_float32_computes() -> None:
    assert max(replayed(seed, 0.5) for seed in range(30)) <= 0


def test_replays_of_points_lose_nothing_but_rounding() -> None:
    """On a box of one point every relu is settled, so lines without slopes lose the same."""
    for seed in range(0, 20, 2):
        graph = network(seed)
        low, _ = box(graph, seed)
        at, relu = next((i, n) for i, n in enumerate(graph.nodes) if n.op.name == "relu")
        slopes = {at: Slopes(*np.zeros((2, *relu.shape), int), 1)}
        by_lines = Replay(graph, low, low, slopes).lower(rationals([1, -1]))
        cells = int(np.prod(graph.constants[graph.nodes[relu.operands()[0]].args[1]].shape[1:]))
        vectors = {at: np.full((int(np.prod(relu.shape)) // relu.shape[1], cells), 12345)}
        by_pieces = Replay(graph, low, low, {}).lower(rationals([1, -1]), vectors=vectors)
        assert abs(float(Fraction(str(by_pieces - by_lines)))) < 1e-12


@pytest.mark.parametrize("field", ["reach", "low"])
def test_a_wrong_piece_is_caught_in_replays(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    original = replay_pieces.split_conv

    def wrong(*args: Any) -> Any:
        made = original(*args)
        return replace(made, reach=0 * made.reach) if field == "reach" else replace(made, low=made.low + abs(made.low))

    monkeypatch.setattr(replay_pieces, "split_conv", wrong)
    assert any(replayed(seed, 0.5) > 0 for seed in range(30))


def test_vectors_that_do_not_fit_are_refused() -> None:
    graph = network(0)
    low, high = box(graph, 0)
    relu = next(i for i, n in enumerate(graph.nodes) if n.op.name == "relu")
    replay = Replay(graph, low, high, {})
    for vectors, words in (
        ({relu: np.zeros((3, 4), int)}, r"must be whole, of \(25, 4\)"),
        ({relu: np.zeros((25, 4))}, r"must be whole, of \(25, 4\)"),
        ({len(graph.nodes) - 1: np.zeros((25, 4), int)}, "is no relu of a convolution by itself"),
    ):
        with pytest.raises(ReplayError, match=words):
            replay.lower(rationals([1, 0]), vectors=vectors)


def test_what_does_not_fit_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network(0)
    forward = root_forward(graph, *box(graph, 0))
    relu = next(i for i, n in enumerate(graph.nodes) if n.op.name == "relu")
    assert fits(forward.state, relu, 1)
    monkeypatch.setattr(multi_neuron, "MAX_CELLS_READ", 3)
    assert not fits(forward.state, relu, 1)
    assert piecewise(forward, torch.eye(2), torch.ones(2), np.inf).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("shape", [(1, 2), (1, 1, 1, 2)])
def test_pieces_are_for_one_batch_axis(shape: tuple[int, ...]) -> None:
    """Another axis was taken for the channels: a replay said 63.9 where 16 is reached, and bounds ended in an error."""
    w, b = np.ones((4, 1, 2), np.float32), np.full(4, 5, np.float32)
    row = np.ones((1, 4), np.float32)
    graph = deployed_graph(
        sg.trace(lambda x: sg.linear(row, None, sg.reshape(sg.relu(sg.conv(w, b, x)), (1, 4))), shape)
    )
    relu = next(i for i, n in enumerate(graph.nodes) if n.op.name == "relu")
    low = np.full(shape, -0.5, np.float32)
    with pytest.raises(ReplayError, match="one batch axis"):
        Replay(graph, low, -low, {}).lower(rationals([1]), vectors={relu: np.zeros((1, 2), np.int32)})
    forward = root_forward(graph, low, -low)
    assert piecewise(forward, torch.ones((1, 1), dtype=torch.float64), torch.ones(1), np.inf).item() == -np.inf
