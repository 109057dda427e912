"""Sums that are computed block by block: as much is proven as of all cells at once, and faults are found."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.conform import whole_sums
from specgrad.check.conform.cropped_reference import OutputReference
from specgrad.check.conform.sampled import SampledReference
from specgrad.errors import UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.rounding import Arithmetic, Ball, radius
from specgrad.scalar import Array
from specgrad.window.footprint import whole

ROWS, COLUMNS = 61, 40  # 61 rows in blocks of a few: the last block is shorter
SHAPE, ROW = (ROWS, COLUMNS), (COLUMNS,)
WEIGHTS = np.random.default_rng(5).integers(-3, 4, SHAPE).astype(np.float32)
ARITHMETIC = {
    "float32": Arithmetic(), "by node": Arithmetic(execution="node"), "flushed": Arithmetic(flush=True),
    "bfloat16": Arithmetic("bfloat16", accumulate="float32"), "pairwise": Arithmetic(depth=20),
}  # fmt: skip


def mse(x: Any, t: Any) -> Any:
    return sg.sum((x - t) ** 2) / (ROWS * COLUMNS)


def hinge(x: Any, t: Any) -> Any:
    return sg.sum(sg.relu(1 - x * sg.broadcast(t, SHAPE))) / (ROWS * COLUMNS)


def scaled(x: Any, t: Any) -> Any:
    return sg.sum((x * sg.broadcast(t, SHAPE) + 1) * 0.5 - x) * 0.25  # one region: everything may be merged


def weighted(x: Any) -> Any:
    return sg.sum(x * x.builder.constant(WEIGHTS)) - 1


def entropy(x: Any, t: Any) -> Any:
    return sg.sum(np.log(sg.softmax(x, 1)) * t) / ROWS


def margins(x: Any, t: Any) -> Any:
    return sg.sum(np.sqrt(sg.sum((x - t + 1e-6) ** 2, axes=(1,)))) / ROWS


def both(x: Any, t: Any) -> Any:
    return sg.sum(x * t) / np.sqrt(sg.sum(x * x)) - sg.sum(t)


def columns(x: Any) -> Any:
    return sg.sum(abs(x), axes=(0,)) * 2


def rows_of_norms(x: Any, t: Any) -> Any:
    squares = sg.reshape(np.sqrt(sg.sum(x * x, axes=(1,)) / COLUMNS + 1e-5), (ROWS, 1))
    return sg.sum(x / sg.broadcast(squares, SHAPE) * t)


def rows_of_layers(x: Any, t: Any) -> Any:
    return sg.sum((sg.layer_norm(x, ROW) - t) ** 2) / ROWS


def frobenius(x: Any) -> Any:
    norm = sg.reshape(np.sqrt(sg.sum(x * x)), (1, 1))
    return x / sg.broadcast(norm, SHAPE)


GRAPHS: dict[str, Graph] = {
    f.__name__: sg.trace(f, *shapes)
    for f, shapes in [
        (mse, (SHAPE, SHAPE)), (hinge, (SHAPE, ROW)), (scaled, (SHAPE, ROW)), (weighted, (SHAPE,)),
        (entropy, (SHAPE, SHAPE)), (margins, (SHAPE, SHAPE)), (both, (SHAPE, SHAPE)), (columns, (SHAPE,)),
        (frobenius, (SHAPE,)), (rows_of_norms, (SHAPE, SHAPE)), (rows_of_layers, (SHAPE, SHAPE)),
    ]
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_sums, "MANY", 30)
    monkeypatch.setattr(whole_sums, "BLOCK", 700)


def drawn(graph: Graph, integers: bool) -> list[Array]:
    random = np.random.default_rng(len(graph.nodes))
    shapes = [graph.nodes[p].shape for p in graph.input_positions]
    arrays = [random.normal(size=shape) * 3 for shape in shapes]
    return [(np.rint(a) if integers else a).astype(np.float32) for a in arrays]


def block_by_block(graph: Graph, arrays: list[Array], arithmetic: Arithmetic) -> Ball:
    reference = SampledReference(graph, arithmetic)
    (one,) = reference.outputs
    sums = whole_sums.whole_sums(reference.graph, reference.rules, one.output)
    assert sums
    ends = {p: rule for p, rule in reference.rules.items() if p not in {s.at for s in sums}}
    rest = OutputReference(reference.graph, ends, one.output).crop_box(whole(one.shape))
    given = reference.arrays(arrays)
    blocked = whole_sums.BlockedReference(reference.graph, reference.rules, sums, arithmetic, "numpy")
    return blocked.ball(rest, given)


@pytest.mark.quick
@pytest.mark.parametrize("execution", ARITHMETIC)
@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_prove_what_all_cells_prove(name: str, execution: str) -> None:
    """Values to the last digits of float64, radii as good."""
    graph, arithmetic = GRAPHS[name], ARITHMETIC[execution]
    arrays = drawn(graph, integers=False)
    found = block_by_block(graph, arrays, arithmetic)
    wanted = radius(graph, *arrays, arithmetic=arithmetic).outputs
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found.radius, wanted.radius, rtol=1e-10)
    assert np.isfinite(found.radius).all()


@pytest.mark.quick
@pytest.mark.parametrize("name", ["mse", "hinge", "scaled", "weighted", "columns"])
def test_sums_of_integers_are_equal_exactly(name: str) -> None:
    """The statistic is the same number, and that of exact arithmetic."""
    graph = GRAPHS[name]
    arrays = drawn(graph, integers=True)
    found = block_by_block(graph, arrays, Arithmetic())
    assert np.array_equal(found.value, radius(graph, *arrays).outputs.value)
    if name == "mse":
        x, t = ([Fraction(float(v)) for v in a.flat] for a in arrays)
        assert float(sum((a - b) ** 2 for a, b in zip(x, t, strict=True)) / (ROWS * COLUMNS)) == found.value


@pytest.mark.parametrize("name", ["mse", "hinge", "columns"])
def test_sums_in_any_order_lie_inside(name: str) -> None:
    """Float32 one by one, from both ends, by size: orders that no block knows of."""
    graph = GRAPHS[name]
    arrays = drawn(graph, integers=False)
    x, *rest = arrays
    one = np.float32(1)
    terms = {
        "mse": lambda: (x - rest[0]) ** 2,
        "hinge": lambda: np.maximum(one - x * rest[0], 0),
        "columns": lambda: abs(x),
    }[name]()
    scale = np.float32(2) if name == "columns" else np.float32(1 / (ROWS * COLUMNS))
    flat = terms if name == "columns" else terms.reshape(-1, 1)
    ball = block_by_block(graph, arrays, Arithmetic())
    for rows in (flat, flat[::-1], np.sort(flat, 0), np.sort(flat, 0)[::-1]):
        total = np.zeros(rows.shape[1], np.float32)
        for row in rows:
            total = total + row
        assert total.dtype == np.float32
        assert ball.contains((total * scale).reshape(ball.shape)).all()


def means(x: Any) -> Any:
    return sg.layer_norm(x, SHAPE)


def test_terms_that_read_each_other_are_no_blocks() -> None:
    graph = sg.trace(means, SHAPE)
    reference = SampledReference(graph)
    assert whole_sums.whole_sums(reference.graph, reference.rules, reference.outputs[0].output) == []


# --- a kernel ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let results of a few cells be large, so that none is computed at once."""
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    monkeypatch.setattr("specgrad.check.conform.sampled.MAX_SELECTION", 64)


def kernel_mse(x: Array, t: Array, rows: int = ROWS) -> Array:
    return np.float32(((x - t)[:rows] ** 2).sum(dtype=np.float32) / np.float32(ROWS * COLUMNS))


@pytest.mark.usefixtures("sampled")
def test_a_loss_beyond_memory_is_judged() -> None:
    arrays = drawn(GRAPHS["mse"], integers=False)
    done = assert_conforms(kernel_mse, mse, inputs=arrays, layouts="contiguous")
    (sample,) = done.samples
    assert sample.complete
    assert sample.open_cells == 0
    assert done.ratio < 1


@pytest.mark.usefixtures("sampled")
def test_a_loss_without_its_last_row_is_found() -> None:
    arrays = drawn(GRAPHS["mse"], integers=False)
    with pytest.raises(ConformanceError) as error:
        assert_conforms(lambda x, t: kernel_mse(x, t, ROWS - 1), mse, inputs=arrays, layouts="contiguous")
    assert error.value.verdict.kind == "differs"


def test_whole_numbers_without_a_rounding_have_no_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    arrays = drawn(GRAPHS["weighted"], integers=True)
    right = (arrays[0] * WEIGHTS).sum() - 1
    reference = SampledReference(GRAPHS["weighted"])
    assert reference.judge(arrays, [np.array(right)]).verdict.kind == "exact"
    assert reference.judge(arrays, [np.array(right * np.float32(1 + 2**-12))]).verdict.kind == "differs"


def test_a_norm_of_everything_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are drawn, and each is divided by the one norm."""
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    (x,) = drawn(GRAPHS["frobenius"], integers=False)
    right = x / np.sqrt((x * x).sum(dtype=np.float32))
    reference = SampledReference(GRAPHS["frobenius"])
    verdict = reference.judge([x], [right], cells=20)
    assert verdict.verdict.kind == "rounding"
    assert 20 <= verdict.judged < x.size
    wrong = x / np.sqrt((x[:-1] * x[:-1]).sum(dtype=np.float32))
    assert reference.judge([x], [wrong], cells=20).verdict.kind == "differs"


@pytest.mark.usefixtures("sampled")
def test_a_loss_in_bfloat16_is_a_number() -> None:
    """As PyTorch gives it: of rank 0."""
    x, t = (torch.from_numpy(a).bfloat16() for a in drawn(GRAPHS["mse"], integers=False))
    loss = torch.nn.functional.mse_loss(x, t)
    given = {"inputs": [x, t], "layouts": "contiguous", "arithmetic": ARITHMETIC["bfloat16"]}
    assert assert_conforms(lambda *_: loss, torch.nn.functional.mse_loss, **given).ratio < 1
    with pytest.raises(ConformanceError):
        assert_conforms(lambda *_: loss * 1.5, torch.nn.functional.mse_loss, **given)


@pytest.mark.usefixtures("sampled")
def test_a_nan_is_told() -> None:
    arrays = drawn(GRAPHS["mse"], integers=False)
    arrays[0][7, 7] = np.nan
    reference = SampledReference(GRAPHS["mse"])
    with pytest.raises(UnsupportedError, match=r"block by block.*holds NaN"):
        reference.judge(arrays, [np.array(np.nan, np.float32)])


def test_a_nan_is_judged_where_all_fits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    arrays = drawn(GRAPHS["mse"], integers=False)
    arrays[0][7, 7] = np.nan
    reference = SampledReference(GRAPHS["mse"])
    assert reference.judge(arrays, [np.array(np.nan, np.float32)]).verdict.kind == "exact"
    assert reference.judge(arrays, [np.array(1.0, np.float32)]).verdict.kind == "differs"


# --- several sums, and a sample of them -------------------------------------------------------------------------------


def norms_of_columns(x: Any) -> Any:
    norms = sg.reshape(np.sqrt(sg.sum(x * x, axes=(0,))), (1, COLUMNS))
    return x / sg.broadcast(norms, SHAPE)


@pytest.fixture
def columns_of_sizes(monkeypatch: pytest.MonkeyPatch) -> Array:
    """Columns whose norms are 1 to 40 times as large: no other one's will do."""
    monkeypatch.setattr("specgrad.check.conform.cropped_reference.MAX_WHOLE", 64)
    x = np.random.default_rng(2).normal(size=SHAPE) * np.arange(1, COLUMNS + 1)
    return x.astype(np.float32)


@pytest.mark.parametrize("once", [0, 8])
def test_drawn_columns_have_their_own_sums(columns_of_sizes: Array, monkeypatch: pytest.MonkeyPatch, once: int) -> None:
    monkeypatch.setattr(whole_sums, "MUCH_MORE", once)
    x = columns_of_sizes
    squares = (x * x).sum(0, dtype=np.float32)
    reference = SampledReference(sg.trace(norms_of_columns, SHAPE))
    verdict = reference.judge([x], [x / np.sqrt(squares)], cells=20)
    assert verdict.verdict.kind == "rounding"
    assert not verdict.complete
    assert reference.judge([x], [x / np.sqrt(np.roll(squares, 1))], cells=20).verdict.kind == "differs"


def test_what_fails_halfway_is_no_draw(columns_of_sizes: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selections before a block that cannot be computed are judged again at once, and count once."""
    x = columns_of_sizes
    reference = SampledReference(sg.trace(norms_of_columns, SHAPE))
    right = x / np.sqrt((x * x).sum(0, dtype=np.float32))
    monkeypatch.setattr(whole_sums, "MANY", 2**40)
    wanted = reference.judge([x], [right], cells=20)
    monkeypatch.setattr(whole_sums, "MANY", 30)
    balls = [0]
    ball = whole_sums.BlockedReference.ball

    def fails(self: Any, *args: Any) -> Ball:
        balls[0] += 1
        if balls[0] > 1:
            raise UnsupportedError("sum", "no")
        return ball(self, *args)

    monkeypatch.setattr(whole_sums.BlockedReference, "ball", fails)
    found = reference.judge([x], [right], cells=20)
    assert balls[0] == 2
    assert (found.draws, found.judged) == (wanted.draws, wanted.judged)


def test_weights_are_read_by_few_blocks() -> None:
    """Each block reads all of w: as many blocks as rows would cost 61 times as much as the sum."""
    graph = sg.trace(lambda x, w: sg.sum(sg.contract(x, w, "ab,bc->ac") ** 2), SHAPE, (COLUMNS, 61))
    reference = SampledReference(graph)
    arrays = reference.arrays(drawn(graph, integers=False))
    (total,) = whole_sums.whole_sums(graph, reference.rules, graph.output_positions[0])
    blocked = whole_sums.BlockedReference(graph, reference.rules, [total], Arithmetic(), "numpy")
    blocks = list(blocked._blocks(total.at, (), total.axis, arrays))
    read = sum(np.size(a) for b in blocks for a in b.leaves.values())
    assert 1 < len(blocks) < 20
    assert read <= 3 * (SHAPE[0] * SHAPE[1] + COLUMNS * 61) * 2


def test_a_block_that_would_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_sums, "MAX_BLOCK", 10)
    with pytest.raises(UnsupportedError, match="one block of its terms needs"):
        block_by_block(GRAPHS["mse"], drawn(GRAPHS["mse"], integers=False), Arithmetic())
