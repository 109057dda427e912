"""A kernel's large output judged by a sample: right kernels pass, faults are found where a sample must find them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.check.conform.cell_sample import TILES, CellSampler, Selection, edges
from specgrad.check.conform.cropped_reference import MAX_COST, OutputReference, read_cells
from specgrad.check.conform.error_boxes import error_boxes
from specgrad.check.conform.sampled import SampledReference
from specgrad.check.verdicts.judge import expected_balls
from specgrad.errors import ParameterError, ShapeError
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

RNG = np.random.default_rng(38)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


WEIGHTS, BIAS, GAIN = normal(8, 3, 3, 3), normal(8), normal(150)
LARGE = 2**25  # of the reference; small ones are judged completely


def matmul(x: Any, w: Any) -> Any:
    return sg.contract(x, w, "ab,bc->ac")


def network(x: Any) -> Any:
    return sg.relu(sg.conv(WEIGHTS, BIAS, x, padding=1))


def normed(x: Any) -> Any:
    return sg.layer_norm(x, (150,)) * x.builder.constant(GAIN)


Case = tuple[Graph, list[Array], Callable[..., Any]]
CASES: dict[str, Case] = {
    "matmul": (
        sg.trace(matmul, (3000, 70), (70, 2500)),
        [normal(3000, 70), normal(70, 2500)],
        lambda x, w: torch.from_numpy(x) @ torch.from_numpy(w),
    ),
    "conv": (
        sg.trace(network, (4, 3, 400, 500)),
        [normal(4, 3, 400, 500)],
        lambda x: torch.relu(torch.conv2d(*map(torch.from_numpy, (x, WEIGHTS, BIAS)), padding=1)),
    ),
    "norm": (
        sg.trace(normed, (20000, 150)),
        [normal(20000, 150)],
        lambda x: torch.layer_norm(torch.from_numpy(x), (150,)) * torch.from_numpy(GAIN),
    ),
    "gelu": (
        sg.trace(lambda x: sg.gelu(x), (5000, 2000)),
        [normal(5000, 2000)],
        lambda x: torch.nn.functional.gelu(torch.from_numpy(x)),
    ),
    "argmax": (
        sg.trace(lambda x: sg.argmax(x, axis=1), (40, 150, 600)),
        [normal(40, 150, 600)],
        lambda x: torch.from_numpy(x).argmax(1),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_pytorch_is_right(name: str, seed: int) -> None:
    graph, given, kernel = CASES[name]
    found = SampledReference(graph).judge(given, [kernel(*given)], seed=seed)
    assert found.verdict.kind in ("exact", "rounding"), str(found)
    assert not found.complete
    assert min(found.judged / 4096, found.draws / 30) >= 1, str(found)
    assert f"(seed {seed})" in str(found)


def without_last_tap(graph: Graph, given: list[Array], y: Array) -> Array:
    """As if the last term of every sum, or the last column, were dropped."""
    y -= y * np.float32(2.0**-5)
    return y


def last_corner(graph: Graph, given: list[Array], y: Array) -> Array:
    y[(-1,) * y.ndim] += 1
    return y


def first_corner(graph: Graph, given: list[Array], y: Array) -> Array:
    y[(0,) * y.ndim] += 1
    return y


def last_tile(graph: Graph, given: list[Array], y: Array) -> Array:
    """A kernel that leaves the last, smaller tile of 64 unwritten."""
    y[(y.shape[0] - 1) // 64 * 64 :] = 7
    return y


def one_too_many(graph: Graph, given: list[Array], y: Array) -> Array:
    """The first cell of the second tile of 128 along the last axis is that of the first tile."""
    if y.shape[-1] > 128:
        y[..., 128] = y[..., 0]
    return y


def zeros(graph: Graph, given: list[Array], y: Array) -> Array:
    return np.zeros_like(y)


@pytest.mark.parametrize("fault", [without_last_tap, last_corner, first_corner, last_tile, one_too_many, zeros])
@pytest.mark.parametrize("name", CASES)
def test_faults_at_corners_borders_and_tiles_are_found(name: str, fault: Any) -> None:
    graph, given, kernel = CASES[name]
    right = kernel(*given).numpy()
    if right.dtype.kind == "i" and fault is without_last_tap:
        pytest.skip("positions have no gain")
    y = fault(graph, given, right.copy())
    if (y == right).all():
        pytest.skip("that axis has no second tile")
    found = SampledReference(graph).judge(given, [y])
    assert found.verdict.kind == "differs", str(found)
    i = found.verdict.index
    assert y[i] != right[i]
    assert found.verdict.actual == y[i]


@pytest.mark.parametrize("name", CASES)
def test_selections_are_judged_as_the_whole_is(name: str) -> None:
    """Values and allowances of every selection are those of the whole graph, at smaller sizes."""
    given: Any = CASES[name][1]
    few = [a[tuple(slice(0, 90 if k in (0, a.ndim - 1) else n) for k, n in enumerate(a.shape))] for a in given]
    few = (
        [given[0][:90], given[1][:, :80]]
        if name == "matmul"
        else [given[0][:3, :, :40, :50]]
        if name == "conv"
        else few
    )
    few = [given[0][:90]] if name == "norm" else few
    function = {"matmul": matmul, "conv": network, "norm": normed}.get(name)
    graph = sg.trace(function, *(a.shape for a in few)) if function else _smaller(name, few[0].shape)
    (ball,) = expected_balls(graph, few, Arithmetic(execution="node"))
    reference = SampledReference(graph, Arithmetic(execution="node"))
    given = reference.arrays(few)
    (one,) = reference.outputs
    sampler = CellSampler(one.shape, one.sorts, 5)
    for selection in (*sampler.always(), *(sampler.drawn(4) for _ in range(5))):
        cropped = one.crop(selection)
        read = {p: read_cells(given[p], axes) for p, axes in cropped.positions.items()}
        small = cropped.cut.graph_with_constants({p: read[p] for p in cropped.constants})
        (here,) = expected_balls(small, [read[p] for p in cropped.inputs], Arithmetic(execution="node"))
        there = np.ix_(*selection.positions)
        np.testing.assert_allclose(here.value, ball.value[there], rtol=1e-11, atol=1e-12)
        assert (here.radius >= ball.radius[there] * (1 - 1e-9) - 1e-30).all()


def _smaller(name: str, shape: tuple[int, ...]) -> Graph:
    return sg.trace(lambda x: sg.gelu(x) if name == "gelu" else sg.argmax(x, axis=1), shape)


# --- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 129, 1000, 4096, 8205])
def test_edges(n: int) -> None:
    """Both ends, and around the first and the last multiple of each tile."""
    found = set(edges(n).tolist())
    assert found <= set(range(n))
    assert {0, n - 1} <= found
    for tile in TILES:
        last = (n - 1) // tile * tile
        assert {i for m in (tile, last) for i in (m - 1, m, m + 1) if m and 0 <= i < n} <= found


def test_every_corner_and_every_edge_is_in_a_selection() -> None:
    shape, sorts = (70, 5, 90), ("free", "whole", "interval")
    seen = np.zeros(shape, bool)
    for selection in CellSampler(shape, sorts, 0).always():  # type: ignore[arg-type]
        seen[np.ix_(*selection.positions)] = True
    for i in (0, 69):
        for k in (0, 89):
            assert seen[i, :, k].all()
    assert all(seen[i].any() for i in edges(70))
    assert all(seen[:, :, k].any() for k in edges(90))


@pytest.mark.parametrize("sorts", [("free", "whole"), ("whole", "interval", "whole"), ("free", "free", "whole")])
def test_no_selection_of_edges_comes_twice(sorts: Any) -> None:
    """Beside axes that are whole the first, the last and the drawn cells are the same."""
    shape = (51, 300, 7)[: len(sorts)]
    positions = [[p.tolist() for p in s.positions] for s in CellSampler(shape, sorts, 0).always()]
    assert all(a not in positions[:k] for k, a in enumerate(positions))
    assert all(any(i in p[sorts.index("free")] for p in positions) for i in edges(51) if "free" in sorts)


def test_edges_leave_room_for_what_is_drawn() -> None:
    """A transposed convolution whose edges cost most of a sample: of drawn cells there is half as much still."""
    graph = sg.trace(lambda x, w: sg.conv_transpose(w, None, x), (1, 32, 16, 32, 64), (32, 16, 3, 5, 7))
    (one,) = SampledReference(graph).outputs
    made = [(s.draws, c.cost) for s, c in one.selections(4096, 0) if c is not None]
    drawn, at_edges = [c for n, c in made if n], [c for n, c in made if not n]
    assert sum(at_edges) + max(drawn) > MAX_COST / 2
    assert MAX_COST / 2 - max(drawn) < sum(drawn) <= MAX_COST / 2


@pytest.mark.parametrize("sorts", [("free", "free"), ("free", "interval"), ("interval", "interval"), ("free", "whole")])
def test_drawn_cells_are_independent_and_each_as_likely(sorts: Any) -> None:
    """A fault in a share of the cells is missed no more often than (1 - share)**draws says, whatever its shape."""
    shape, rounds = (40, 30), 400
    faults = {"rows": np.s_[:4], "columns": np.s_[:, -3:], "tile": np.s_[20:32, 10:20]}
    for name, where in faults.items():
        bad = np.zeros(shape, bool)
        bad[where] = True
        missed, allowed = 0, 0.0
        for seed in range(rounds):
            selection = CellSampler(shape, sorts, seed).drawn(6)
            missed += not bad[np.ix_(*selection.positions)].any()
            allowed += (1 - bad.mean()) ** selection.draws
        assert missed <= allowed + 4 * np.sqrt(allowed), name


def test_a_seed_draws_its_cells_again() -> None:
    draw = lambda seed: [p.tolist() for p in CellSampler((90, 80), ("free", "free"), seed).drawn(8).positions]
    assert draw(3) == draw(3) != draw(4)


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_cells_of_memory_mapped_arrays_and_of_tensors(tmp_path: Path) -> None:
    a = normal(50, 40, 6)
    np.save(tmp_path / "a.npy", a)
    positions = np.array([3, 7, 49]), np.arange(10, 20), np.array([0, 5])
    wanted = a[np.ix_(*positions)]
    for given in (a, np.load(tmp_path / "a.npy", mmap_mode="r"), torch.from_numpy(a), a[:, ::-1][:, ::-1]):
        assert np.array_equal(read_cells(given, positions), wanted)
    short = torch.from_numpy(a).bfloat16()
    assert np.array_equal(read_cells(short, positions), short.float().numpy()[np.ix_(*positions)])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_cells_of_short_floats_are_read_as_float32(dtype: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = normal(20, 30)
    positions = np.array([3, 7, 19]), np.arange(10, 20)
    short = a.astype(getattr(ml_dtypes, dtype))
    wanted = short.astype(np.float32)[np.ix_(*positions)]
    for given in (short, torch.from_numpy(a).to(getattr(torch, dtype))):
        found = read_cells(given, positions)
        assert found.dtype == np.float32
        assert np.array_equal(found, wanted)


def test_infinities_of_which_merged_nodes_make_something_else_are_open() -> None:
    """Two products whose sum is inf - inf, or, folded, inf: PyTorch compiled may do either."""
    first, second = np.float32([[2.0, 1.0]]), np.float32([[1.0], [-1.0]])
    graph = sg.trace(lambda x: sg.matmul(sg.matmul(x, first), second), (2, 1))
    x = np.float32([[np.inf], [3.0]])
    for y in ([[np.nan], [3.0]], [[np.inf], [3.0]]):
        assert SampledReference(graph).judge([x], [np.float32(y)]).verdict.kind == "cannot tell"
    assert SampledReference(graph).judge([x], [np.float32([[np.nan], [4.0]])]).verdict.kind == "differs"


def test_bfloat16_is_judged_as_bfloat16() -> None:
    x, w = (torch.from_numpy(a).bfloat16() for a in CASES["matmul"][1])
    graph = CASES["matmul"][0]
    reference = SampledReference(graph, Arithmetic("bfloat16", accumulate="float32"))
    assert reference.judge([x, w], [x @ w]).verdict.kind == "rounding"
    assert reference.judge([x, w], [(x.float() @ w.float() * (1 + 2.0**-5)).bfloat16()]).verdict.kind == "differs"


def test_statistics_show_a_gain_that_the_proof_allows() -> None:
    graph, (x, w), _ = CASES["matmul"]
    y = (x.astype(float) @ w).astype(np.float32)
    right = SampledReference(graph).judge([x, w], [y]).errors["output"]
    moved = SampledReference(graph).judge([x, w], [y * np.float32(1 + 2e-6)])
    assert moved.verdict.kind == "rounding"
    assert right.usual is not None
    assert not right.usual.reasons
    assert moved.errors["output"].slope == pytest.approx(2e-6, rel=0.1)
    assert abs(right.slope) < 1e-8
    usual = moved.errors["output"].usual
    assert usual is not None
    assert usual.reasons


def test_small_outputs_and_all_cells_are_judged_completely() -> None:
    graph = sg.trace(lambda x: sg.relu(x), (30, 20))
    x = normal(30, 20)
    found = SampledReference(graph).judge([x], [np.maximum(x, 0)])
    assert found.complete
    assert found.judged == 600
    assert found.missed(0.001) == 0
    graph, given, kernel = CASES["gelu"]
    part = sg.trace(lambda x: sg.gelu(x), (300, 2000))
    assert SampledReference(part).judge([given[0][:300]], [kernel(given[0][:300])], cells=None).complete


def test_what_is_refused() -> None:
    graph, given, kernel = CASES["gelu"]
    reference = SampledReference(graph)
    found = reference.judge(given, [kernel(*given)[:10]])
    assert (found.verdict.kind, found.verdict.fault) == ("differs", "shape")
    with pytest.raises(ShapeError, match="the reference has 1 outputs; got 2"):
        reference.judge(given, [given[0], given[0]])
    with pytest.raises(ParameterError, match="cells must be at least 1"):
        reference.judge(given, given, cells=0)
    with pytest.raises(ShapeError, match="must have shape"):
        reference.judge([given[0][:10]], given)


def test_several_outputs_are_all_judged() -> None:
    graph = sg.trace(lambda x: (sg.relu(x), sg.tanh(x)), (6000, 900))
    x = normal(6000, 900)
    y, z = np.maximum(x, 0), torch.tanh(torch.from_numpy(x)).numpy()
    assert SampledReference(graph).judge([x], [y, z]).verdict.kind == "rounding"
    found = SampledReference(graph).judge([x], [y, y]).verdict
    assert (found.kind, found.result) == ("differs", "output 1")


def test_how_axes_may_be_cut() -> None:
    sorts = {name: _output(graph).sorts for name, (graph, *_) in CASES.items()}
    assert sorts["matmul"] == ["free", "free"]
    assert sorts["gelu"] == ["free", "free"]
    assert sorts["conv"] == ["free", "whole", "interval", "interval"]
    assert sorts["norm"] == ["free", "whole"]
    assert sorts["argmax"] == ["free", "free"]


def _output(graph: Graph) -> OutputReference:
    return OutputReference(graph, error_boxes(graph), graph.output_positions[0])


def test_axes_that_cost_little_alone_and_much_together_are_not_both_taken_whole() -> None:
    """A stem of many taps: with all rows and columns, two selections would be all that is drawn."""
    graph = sg.trace(lambda x, w: sg.conv(w, None, x, stride=4, padding=2), (18, 3, 224, 224), (96, 3, 11, 11))
    one = _output(graph)
    assert one.sorts == ["free", "whole", "whole", "interval"]
    assert sum(s.draws for s, cropped in one.selections(4096, 0) if cropped is not None) >= 30
    turned = sg.trace(lambda x, w: sg.conv_transpose(w, None, x), (1, 32, 16, 32, 64), (32, 16, 3, 5, 7))
    one = _output(turned)
    assert one.sorts == ["free", "whole", "whole", "interval", "interval"]
    assert sum(s.draws for s, cropped in one.selections(4096, 0) if cropped is not None) >= 5


def test_positions_of_a_selection_count_its_cells() -> None:
    assert Selection((np.arange(3), np.array([4, 9]))).count == 6


def test_what_lies_in_open_cells_may_be_missed() -> None:
    """Half of the rows overflow, and what a kernel writes there is not judged."""
    x, w = np.ones((30, 40), np.float32), np.full((40, 50), 3e-38, np.float32)
    x[15:] = 1e38
    graph = sg.trace(lambda x, w: sg.contract(x, w, "ab,bc->ac"), x.shape, w.shape)
    y = x @ w
    assert SampledReference(graph).judge([x, w], [y]).missed(0.4) == 0
    w = np.full((40, 50), 3.0, np.float32)
    y = np.where(x < 2, 120, 7).astype(np.float32)[:, :1] * np.ones(50, np.float32)
    found = SampledReference(graph).judge([x, w], [y])
    assert (found.verdict.kind, found.complete, found.open_cells) == ("cannot tell", True, 750)
    assert found.missed(0.4) == 1
    top = sg.trace(lambda x: sg.argmax(x * 0.1, 1), (3, 4))
    assert SampledReference(top).judge([np.ones((3, 4))], [np.zeros(3, int)]).open_cells == 3
