"""What makes deep networks quick: phases, short passes, float32, a deadline, a budget of bytes. All must stay true."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pace import slower, stretched
from specgrad.bounds import Box, crown, ibp
from specgrad.bounds.linear.intermediate import tighten
from specgrad.bounds.linear.intermediate.tighten import contenders
from specgrad.bounds.linear.propagation import patch_rules, patches
from specgrad.bounds.linear.propagation.backward import State
from specgrad.bounds.linear.relaxation.bound_layers import BoundConv, Centre
from specgrad.errors import UnsupportedError
from specgrad.window import Patch, strided

SHAPES = {"a": (3, 2, 3, 3), "b": (4, 3, 3, 3), "up": (4, 3, 2, 2), "c": (3, 6, 3, 3), "d": (2, 3, 3, 3)}


def u_network(w: dict[str, Any], x: Any) -> Any:
    wide = sg.relu(sg.conv(w["a"], None, x, padding=1))
    deep = sg.relu(sg.conv(w["b"], None, sg.max_pool(wide, (2, 2), stride=2), padding=1))
    up = sg.conv_transpose(w["up"], None, deep, stride=2)
    both = sg.relu(sg.conv(w["c"], None, sg.concat([wide, up], 1), padding=1))
    return sg.relu(sg.conv(w["d"], None, both, padding=1))


def example(seed: int = 0, size: int = 12) -> tuple[Any, dict[str, Any], np.ndarray]:
    draw = np.random.default_rng(seed).normal
    w = {k: (draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in SHAPES.items()}
    x = draw(size=(1, 2, size, size)).astype(np.float32)
    return sg.trace(u_network, SHAPES, x.shape), w, x


def test_phases_and_rows_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, w, x = example()
    monkeypatch.setattr(tighten, "open_cells", lambda _, low, high: high > low)
    monkeypatch.setattr(patch_rules, "MIN_CELLS_FOR_PHASES", 1)
    by_phases = crown(graph, w, Box.around(x, 0.05), deployed=False)
    monkeypatch.setattr(tighten, "narrow_by_patches", lambda *_: False)
    by_rows = crown(graph, w, Box.around(x, 0.05), deployed=False)
    for name, found in by_phases.layers.items():
        np.testing.assert_allclose(found.low, by_rows.layers[name].low, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(found.high, by_rows.layers[name].high, atol=1e-9, err_msg=name)


def residual(w: dict[str, Any], x: Any) -> Any:
    shared = sg.relu(sg.conv(w["a"], None, x, padding=1))
    body = sg.conv(w["c"], None, sg.relu(sg.conv(w["b"], None, shared, padding=1)), padding=1)
    return sg.relu(sg.conv(w["d"], None, sg.relu(body + shared), padding=1))


def test_a_shortcut_beside_a_dense_body_is_relaxed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by rows alone, where body and shortcut meet before the relu that both read; apart, widths are lost."""
    draw = np.random.default_rng(3).normal
    shapes = {"a": (3, 2, 3, 3), "b": (4, 3, 3, 3), "c": (3, 4, 3, 3), "d": (2, 3, 3, 3)}
    w = {k: (draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for k, s in shapes.items()}
    graph, box = sg.trace(residual, shapes, (1, 2, 9, 9)), Box.around(draw(size=(1, 2, 9, 9)), 0.2)
    inner = [i for i, n in enumerate(graph.nodes) if n.op.name == "conv"][1]
    monkeypatch.setattr(tighten, "open_cells", lambda _, low, high: high > low)
    is_local = patches.is_local
    monkeypatch.setattr(
        patches, "is_local", lambda state, rank, j, patch: j != inner and is_local(state, rank, j, patch)
    )
    found = [crown(graph, w, box, deployed=False)]
    with monkeypatch.context() as apart:
        apart.setattr(State, "sources_below", lambda *_: set())
        found.append(crown(graph, w, box, deployed=False))
    monkeypatch.setattr(tighten, "narrow_by_patches", lambda *_: False)
    rows = crown(graph, w, box, deployed=False).layers
    for name, layer in found[0].layers.items():
        np.testing.assert_allclose(layer.low, rows[name].low, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(layer.high, rows[name].high, atol=1e-9, err_msg=name)
    assert max(np.max(layer.width - rows[name].width, initial=0) for name, layer in found[1].layers.items()) > 0.01


def test_a_maximum_with_its_convolution_or_after_it_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(6).normal
    w = [(draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for s in ((3, 1, 3, 3, 3), (4, 3, 3, 3, 3))]

    def network(w: Any, x: Any) -> Any:
        pooled = sg.max_pool(sg.relu(sg.conv(w[0], None, x, padding=1)), (2, 2, 2), stride=2)
        return sg.relu(sg.conv(w[1], None, pooled, padding=1))

    graph, box = sg.trace(network, w, (1, 1, 8, 8, 8)), Box.around(draw(size=(1, 1, 8, 8, 8)), 0.05)
    found = []
    for visits in (-1e9, 1e9):
        monkeypatch.setattr(patches, "MAX_POOL_MEMORY_PASSES", visits)
        found.append(crown(graph, w, box, deployed=False).layers)
    for name, one in found[0].items():
        np.testing.assert_allclose(one.low, found[1][name].low, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(one.high, found[1][name].high, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(6))
def test_who_contends_for_a_maximum(seed: int) -> None:
    """Against every window, pair by pair; some windows overlap, some cells are padded, some ends are equal."""
    rng = np.random.default_rng(seed)
    kernel, stride, padding = ((2, 2), 2, 0) if seed % 2 else ((3, 2), 1, 1)
    graph = sg.trace(lambda x: sg.max_pool(x, kernel, stride=stride, padding=padding), (2, 3, 6, 6))
    (pool,) = (n for n in graph.nodes if n.op.name == "max_pool")
    low = rng.integers(-3, 4, (2, 3, 6, 6)).astype(float)
    high = low + rng.integers(0, 3, low.shape)
    expected = np.zeros(low.shape, dtype=bool)
    for out in np.ndindex(*pool.params["window"].out):
        reads = [a.reads(o) for a, o in zip(pool.params["window"].axes, out, strict=True)]
        cells = [(i, j) for _, i in reads[0] for _, j in reads[1] if 0 <= i < 6 and 0 <= j < 6]
        for plane in np.ndindex(2, 3):
            lows, highs = ([float(end[(*plane, *c)]) for c in cells] for end in (low, high))
            able = [all(highs[k] > m for n, m in enumerate(lows) if n != k) for k in range(len(cells))]
            for c, may in zip(cells, able, strict=True):
                expected[(*plane, *c)] |= may and sum(able) > 1
    assert (contenders(pool, low, high) == expected).all()


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_a_patch_read_back_is_what_reads_it(stride: int, padding: int) -> None:
    """Against the relation itself, cell by cell."""
    window = strided("conv", (24,), (3,), stride=(stride,), padding=((padding, padding),))
    (axis,) = window.axes
    for start in range(stride):
        patch = Patch((stride,), (start,), (2,))
        below = patch.read_back(window)
        assert below is not None
        for q in range(1, 4):
            cells = {stride * q + start, stride * q + start + 1}
            readers = {o for i in cells for _, o in axis.read_by(i)}
            assert readers <= {below.speed[0] * q + below.start[0] + k for k in range(below.size[0])}
        (between,) = patch.back_window(window).axes
        for o in range(between.out):
            reads = {i for _, i in between.reads(o)}
            whole = {i - (stride * 2 + start) for _, i in axis.reads(below.speed[0] * 2 + below.start[0] + o)}
            assert reads == whole


@pytest.mark.parametrize("eps", [0.0, 1e-4, 0.03])
def test_short_passes_lose_no_proof(eps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds stay true, and next to those of whole passes."""
    graph, w, x = example(1)
    short = crown(graph, w, Box.around(x, eps)).outputs
    monkeypatch.setattr(tighten, "SHORT_PASS_DEPTHS", ())
    whole = crown(graph, w, Box.around(x, eps)).outputs
    assert ((short.high - short.low).sum() <= 1.2 * (whole.high - whole.low).sum()) or eps == 0
    rng = np.random.default_rng(2)
    for _ in range(20):
        point = x + rng.uniform(-eps, eps, x.shape)
        y = np.asarray(graph(w, point.astype(np.float64)))
        assert (y >= short.low).all()
        assert (y <= short.high).all()


def test_float32_costs_little_and_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, w, x = example(3)
    exact, point = (crown(graph, w, Box.around(x, eps)).outputs for eps in (0.01, 0.0))
    monkeypatch.setattr(BoundConv, "uses_float32", True)
    monkeypatch.setattr(
        "specgrad.bounds.linear.relaxation.conv_operator.Convolution.way",
        lambda self, single: "single" if single else "plain",
    )
    single = crown(graph, w, Box.around(x, 0.01)).outputs
    assert (single.low <= exact.low + 1e-4).all()
    assert (single.high - single.low).max() <= 1.02 * (exact.high - exact.low).max()
    y = np.asarray(graph(w, x.astype(np.float64)))
    assert ((single.low <= y) & (y <= single.high)).all()
    same = crown(graph, w, Box.around(x, 0.0)).outputs  # what float32 loses would be as much as what is asked there
    assert (same.high - same.low == point.high - point.low).all()


@pytest.mark.parametrize("planted", [False, True], ids=["charged", "not charged"])
@pytest.mark.parametrize("by", ["patches", "rows"])
@pytest.mark.parametrize("transposed", [False, True])
def test_float32_loses_what_a_box_is_wide(by: str, transposed: bool, planted: bool, monkeypatch: Any) -> None:
    """Two convolutions far from 0: ends are never inside the exact ones, and are as near as radii say, not sizes.

    Where nothing is charged for the part that is not known, ends are inside.
    """
    draw = np.random.default_rng(5).normal
    w, v = ((draw(size=(8, 8, 3, 3)) / 8).astype(np.float32) for _ in range(2))
    conv = (
        (lambda w, x: sg.conv_transpose(w, None, x, padding=1))
        if transposed
        else (lambda w, x: sg.conv(w, None, x, padding=1))
    )
    graph = sg.trace(lambda x: sg.relu(conv(v, conv(w, x))), (1, 8, 10, 10))
    x = (100 + draw(size=(1, 8, 10, 10))).astype(np.float32).astype(float)
    monkeypatch.setattr(BoundConv, "uses_float32", True)
    way = lambda self, single: "single" if single else "plain"
    monkeypatch.setattr("specgrad.bounds.linear.relaxation.conv_operator.Convolution.way", way)
    monkeypatch.setattr(tighten, "open_cells", lambda _, low, high: high > low)
    if by == "rows":
        monkeypatch.setattr(tighten, "narrow_by_patches", lambda *_: False)
    if planted:
        part = Centre.__new__
        monkeypatch.setattr(Centre, "__new__", lambda cls, middle, image, reach: part(cls, middle, image, 0 * reach))
    radius = 0.25
    found = crown(graph, Box(x - radius, x + radius), deployed=False).layers
    last = [n.name for n in graph.nodes if n.op.name.startswith("conv")][-1]
    one = np.eye(800).reshape(800, 1, 8, 10, 10)
    through = lambda x: np.asarray(conv(v.astype(float), conv(w.astype(float), x)))
    reach = sum(np.abs(through(e)) for e in one) * radius
    inside = through(x) - reach < found[last].low - 1e-9
    assert inside.any() == planted
    assert (through(x) - reach - found[last].low).max() < 1e-3 * reach.min()


def test_a_deadline_is_kept_and_leaves_intervals() -> None:
    graph, w, x = example(4, size=20)
    box = (w, Box.around(x, 0.05))
    start = time.monotonic()
    hurried = crown(graph, *box, seconds=0.0).outputs
    assert time.monotonic() - start < stretched(20)
    wide, narrow = ibp(graph, *box).outputs, crown(graph, *box).outputs
    assert (hurried.low >= wide.low - 1e-9).all()
    assert (hurried.high - hurried.low).max() >= (narrow.high - narrow.low).max()
    y = np.asarray(graph(w, x.astype(np.float64)))
    assert ((hurried.low <= y) & (y <= hurried.high)).all()


def test_a_network_of_lenets_size_is_bounded_at_a_point_in_no_time() -> None:
    shapes = [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)]
    draw = np.random.default_rng(7).normal
    w = [(draw(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for s in shapes]

    def network(x: Any) -> Any:
        for k, padding in ((0, 2), (1, 0)):
            x = sg.avg_pool(sg.tanh(sg.conv(w[k], None, x, padding=padding)), (2, 2), stride=2)
        x = sg.reshape(x, (1, 400))
        for k in (2, 3):
            x = sg.tanh(sg.linear(w[k], None, x))
        return sg.linear(w[4], None, x)

    x = np.random.default_rng(8).uniform(size=(1, 1, 28, 28)).astype(np.float32)
    graph, before, seconds = sg.trace(network, x.shape), slower(), []
    for _ in range(3):
        start = time.process_time()
        outputs = crown(graph, Box(x, x)).outputs
        seconds.append(time.process_time() - start)
    y = np.asarray(graph(x.astype(np.float64)))
    assert ((outputs.low <= y) & (y <= outputs.high)).all()
    assert min(seconds) < stretched(0.1, before)


def test_too_little_memory_is_refused_with_the_number() -> None:
    graph, w, x = example(5)
    with pytest.raises(UnsupportedError, match=r"need \d+\.\d GB; 0\.0 GB are allowed"):
        crown(graph, w, Box.around(x, 0.05), memory=1000)
