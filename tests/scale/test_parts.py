"""Parts of an axis: run part by part in one process on the cells that moved and no others, they are the whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.graph import CONSTANT, INPUT, NumberArg
from specgrad.op import apply
from specgrad.partition.partition import Move, Partition
from specgrad.window.footprint import inside, slices
from tiled_networks import EXACT, network

DEFAULT, ALL = 40, 400


def listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def run(parts: Partition, *args: np.ndarray) -> list[np.ndarray]:
    """All outputs. Each part has its own cells and those that move to it; NaN stands for every other."""
    graph, values = parts.graph, {p: [] for p in range(len(parts.graph.nodes))}
    given = dict(zip(graph.input_positions, args, strict=True))
    for p, node in enumerate(graph.nodes):
        for d in range(parts.count):
            known = given[p] if node.op is INPUT else graph.constants[p] if node.op is CONSTANT else None
            if known is None:
                known = np.full(node.shape, np.nan)
                known[slices(parts.owned(p, d))] = computed(parts, values, p, d)
            elif p in parts.axes:
                known = np.where(mask(node.shape, parts.owned(p, d)), known, np.nan)
            values[p].append(known)
        if p in parts.reduced:  # of every part, then of all
            join = {"sum": np.add.reduce, "amax": np.fmax.reduce}[node.op.name]
            values[p] = [join(values[p])] * parts.count
        sent = [(m, values[p][m.source][slices(m.box)].copy()) for m in parts.moves(p)]
        for m, cells in sent:
            assert not np.isnan(cells).any()  # it is the owner's to send
            assert np.isnan(values[p][m.target][slices(m.box)]).all()  # and is not there yet
            values[p][m.target][slices(m.box)] = cells
    outputs = []
    for p in graph.output_positions:
        outputs.append(np.full(graph.nodes[p].shape, np.nan))
        for d in range(parts.count):
            outputs[-1][slices(parts.owned(p, d))] = values[p][d][slices(parts.owned(p, d))]
    return outputs


def mask(shape: tuple[int, ...], box: Any) -> np.ndarray:
    cells = np.zeros(shape, dtype=bool)
    cells[slices(box)] = True
    return cells


def computed(parts: Partition, values: Any, p: int, d: int) -> Any:
    node = parts.graph.nodes[p]
    if p in parts.reduced:
        (a,) = node.args
        own = values[a][d][slices(parts.owned(a, d))]
        return apply(node.op, own, **node.params) if own.size else {"sum": 0.0, "amax": -np.inf}[node.op.name]
    if not parts.computes(p, d):
        return 0.0
    cut = parts.cut(p, d)
    args = [
        a.value if isinstance(a, NumberArg) else values[a][d][slices(box)]
        for a, box in zip(node.args, cut.args, strict=True)
    ]
    return apply(node.op, *args, **cut.params)[inside(parts.owned(p, d), cut.gives)]


def cells_read_elsewhere(parts: Partition) -> int:
    """Counted cell by cell: pairs of a part and a cell that it reads and that another owns."""
    graph, total = parts.graph, 0
    for d in range(parts.count):
        reads = {a: np.zeros(graph.nodes[a].shape, dtype=bool) for a in parts.axes}
        for p, rule in parts.rules.items():
            if p in parts.reduced or not math.prod(b - a for a, b in parts.owned(p, d)):
                continue
            for a, box in zip(graph.nodes[p].args, rule.on(parts.owned(p, d)).args, strict=True):
                if isinstance(a, int) and a in reads:
                    reads[a][slices(box)] = True
        total += sum(int((cells & ~mask(cells.shape, parts.owned(a, d))).sum()) for a, cells in reads.items())
    return total


def whole_and_parts(seed: int) -> tuple[Any, Any] | None:
    """Results of one run and of parts of random sizes; None where float64 may round, or a layer reads everything."""
    rng = Random(seed)
    graph = network(rng)
    shape = graph.nodes[graph.input_positions[0]].shape
    x = np.array([rng.randint(-3, 3) for _ in range(math.prod(shape))], dtype=float).reshape(shape)
    if max(float(np.abs(v).max()) for v in listed(graph(np.abs(x)))) > EXACT:
        return None
    axis = rng.randrange(2, len(shape))
    ends = sorted(rng.randint(0, shape[axis]) for _ in range(rng.randint(1, 4)))
    sizes = [b - a for a, b in zip([0, *ends], [*ends, shape[axis]], strict=True)]
    try:
        parts = Partition(graph, axis, sizes=sizes)
    except sg.UnsupportedError:
        return None
    assert parts.cells_moved == cells_read_elsewhere(parts)
    return listed(graph(x)), run(parts, x)


def check(seeds: range) -> int:
    count = 0
    for seed in seeds:
        pair = whole_and_parts(seed)
        if pair is not None:
            count += 1
            assert all(np.array_equal(a, b) for a, b in zip(*pair, strict=True)), seed
    return count


@pytest.mark.parametrize("part", [pytest.param(0, marks=pytest.mark.quick), 1])
def test_parts_are_the_whole(part: int) -> None:
    assert check(range(part * DEFAULT // 2, (part + 1) * DEFAULT // 2)) > 15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_parts_are_the_whole_on_many_networks(part: int) -> None:
    assert check(range(DEFAULT + part * ALL // 4, DEFAULT + (part + 1) * ALL // 4)) > 80


def shorter(move: Move, axis: int) -> Move | None:
    """One cell less of a halo."""
    first, stop = move.box[axis]
    kept = (*move.box[:axis], (first, stop - 1), *move.box[axis + 1 :])
    return move._replace(box=kept) if stop - first > 1 else None


def test_a_halo_that_is_one_cell_short_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Partition.moves

    def wrong(self: Partition, a: int) -> list[Move]:
        moves = [shorter(move, self.axes[a]) for move in right(self, a)]
        return [move for move in moves if move is not None]

    monkeypatch.setattr(Partition, "moves", wrong)
    with pytest.raises(AssertionError):
        check(range(20))
    monkeypatch.setattr("test_parts.cells_read_elsewhere", lambda parts: parts.cells_moved)
    with pytest.raises(AssertionError):  # by values alone
        check(range(20))


# --- single cases -----------------------------------------------------------------------------------------------------


def traced(f: Callable[..., Any], *shapes: Any) -> sg.Graph:
    return sg.trace(f, *shapes)


def same(graph: sg.Graph, *args: np.ndarray, axis: int = 2, **options: Any) -> Partition:
    parts = Partition(graph, axis, **options)
    for a, b in zip(listed(graph(*args)), run(parts, *args), strict=True):
        np.testing.assert_array_equal(a, b)
    assert parts.cells_moved == cells_read_elsewhere(parts)
    return parts


X = np.random.default_rng(0).integers(-3, 4, (1, 2, 9, 6)).astype(float)


def test_a_halo_reaches_across_several_parts() -> None:
    graph = traced(lambda x: sg.avg_pool(x * 84.0, (7, 1), stride=1, padding=((3, 3), (0, 0)), divisor=1), X.shape)
    parts = same(graph, X, sizes=[1, 0, 1, 3, 1, 1, 2])
    mul = graph.nodes[graph.output_positions[0]].args[0]
    assert {m.source for m in parts.moves(mul) if m.target == 0} == {2, 3}
    assert parts.cells_moved == 12 * (3 + 0 + 4 + 5 + 6 + 5 + 3)  # rows of 12 cells: those in reach, less its own


def test_the_halo_of_a_convolution_by_hand() -> None:
    """Kernel 3, padding 1, 8 rows on 4 parts: one row of 2x6 cells across each of 3 borders, both ways."""
    graph = traced(lambda x: sg.conv(np.ones((3, 2, 3, 3)), None, x, padding=1), (1, 2, 8, 6))
    assert Partition(graph, 2, count=4).cells_moved == 3 * 2 * 2 * 6


def test_what_two_layers_read_moves_once() -> None:
    def net(x: Any) -> Any:
        k3 = sg.max_pool(x, (3, 1), stride=1, padding=((1, 1), (0, 0)))
        return k3 + sg.max_pool(x, (5, 1), stride=1, padding=((2, 2), (0, 0)))

    graph = traced(net, (1, 1, 8, 1))
    assert same(graph, X[:, :1, :8, :1], count=2).cells_moved == 2 * 2


def test_only_the_columns_and_channels_that_are_read_move() -> None:
    graph = traced(lambda x: sg.slice(x, None, slice(1, 2), slice(2, None), slice(2, 5)), X.shape)
    moved = same(graph, X, sizes=[4, 5]).moves(0)
    assert moved
    assert all(m.box[1] == (1, 2) and m.box[3] == (2, 5) for m in moved)


def test_deep_layers_have_fewer_cells_than_there_are_parts() -> None:
    def net(x: Any) -> Any:
        y = sg.max_pool(sg.max_pool(x, (2, 2)), (2, 2))
        return sg.upsample_nearest(y, (4, 4))

    graph = traced(net, (1, 1, 8, 8))
    parts = same(graph, np.arange(64.0).reshape(1, 1, 8, 8) % 7, count=5)
    deep = [p for p in parts.axes if graph.nodes[p].shape[2] == 2]
    assert any(not parts.computes(p, d) for p in deep for d in range(5))


def test_one_cell_made_of_all_has_one_owner_and_goes_to_all() -> None:
    def net(x: Any) -> Any:
        y = sg.conv(np.ones((2, 2, 9, 6)), None, x)
        return x + sg.broadcast(y, (1, 2, 9, 6)), sg.reshape(y, (1, 2))

    same(traced(net, X.shape), X, count=3)


def test_sums_and_maxima_over_the_cut_axis_are_joined() -> None:
    def net(x: Any) -> Any:
        return x - sg.sum(x, (2, 3), keepdims=True), sg.amax(x, (2,)), sg.sum(x)

    parts = same(traced(net, X.shape), X, sizes=[0, 4, 5])
    assert len(parts.reduced) == 3
    assert parts.cells_moved == 0


def test_a_layer_that_reads_everything_is_refused_by_name_or_gets_everything() -> None:
    def net(x: Any) -> Any:
        with sg.scope("head"):
            return sg.cumsum(x, 2)

    graph = traced(net, X.shape)
    with pytest.raises(sg.UnsupportedError, match=r"head.cumsum: cumsum reads all of axis 2 of 1x2x9x6.*allow_whole"):
        Partition(graph, 2, count=3)
    parts = same(graph, X, count=3, allow_whole=True)
    assert [w.layer for w in parts.gathered] == ["head.cumsum"]
    assert parts.cells_moved == 2 * X.size


def test_an_outer_product_goes_along_the_axis_twice() -> None:
    def net(x: Any) -> Any:
        return sg.broadcast(sg.reshape(x, (1, 5, 1)), (1, 5, 5)) * sg.broadcast(sg.reshape(x, (1, 1, 5)), (1, 5, 5))

    with pytest.raises(sg.UnsupportedError, match="goes along the cut axis twice"):
        Partition(traced(net, (1, 5)), 1, count=2)


def test_a_second_input_is_cut_where_it_meets_the_first() -> None:
    graph = traced(lambda x, y, z: x * y + z, (1, 2, 9, 6), (1, 2, 9, 6), ())
    parts = same(graph, X, X[:, ::-1].copy(), np.array(3.0), count=2)
    assert parts.given == (list(graph.input_positions[:2]), [graph.input_positions[2]])


@pytest.mark.parametrize(
    "wrong", [{"sizes": [4, 4]}, {"sizes": [10, -1]}, {"count": 0}, {}, {"count": 2, "sizes": [9]}]
)
def test_wrong_sizes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(sg.ParameterError, match="parts"):
        Partition(traced(sg.relu, X.shape), 2, **wrong)


def test_wrong_axes_and_graphs_are_refused() -> None:
    with pytest.raises(sg.SpecgradError, match="parts: axis 7 does not exist; the value has 4 axes"):
        Partition(traced(sg.relu, X.shape), 7, count=2)
    with pytest.raises(sg.ShapeError, match="parts: needs a data input with axes"):
        Partition(traced(lambda p: p["a"] + 1, {"a": (3,)}), 0, count=2)
    with pytest.raises(sg.ParameterError, match="axis 2 has no cells to cut"):
        Partition(traced(sg.relu, (1, 2, 0, 6)), 2, count=2)


def test_many_parts_are_planned_in_time_that_grows_with_them() -> None:
    """Not with their square: a part looks for its cells at those who have them."""
    graph = traced(lambda x: sg.conv(np.ones((3, 2, 3, 3)), None, x, padding=1), (1, 2, 4096, 6))
    parts = Partition(graph, 2, count=1024)
    assert parts.cells_moved == 1023 * 2 * 2 * 6
    assert [m.target for m in parts.moves(graph.input_positions[0])][:4] == [0, 1, 1, 2]
