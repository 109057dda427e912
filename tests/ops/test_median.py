"""median_pool against Python's own lower median, ONNX Runtime and SciPy: ties, padding, NaN, infinities, radii."""

from __future__ import annotations

from random import Random
from statistics import median_low
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.op import REGISTRY, Op, apply, run_spec
from specgrad.rounding import Arithmetic, Ball, local_radius, radius
from specgrad.rounding.rules import rule_of

POOL, INDEX = REGISTRY["median_pool"], REGISTRY["median_index"]
LAST = np.float32([3, 1, 2, 2, 7, 0])


def by_python(x: np.ndarray, window: Any) -> tuple[np.ndarray, np.ndarray]:
    """Values and positions, window by window."""
    lead = x.shape[: x.ndim - window.rank]
    y, index = np.zeros(lead + window.out, dtype=object), np.full(lead + window.out, -1)
    for plane in np.ndindex(lead):
        for out in np.ndindex(window.out):
            cells = [cell for _, cell in window.reads(out) if cell is not None]
            if cells:
                y[plane + out] = median_low([x[plane + cell] for cell in cells])
                first = next(cell for cell in cells if x[plane + cell] == y[plane + out])
                index[plane + out] = np.ravel_multi_index(first, window.size)
    return y, index


@pytest.mark.parametrize(("engine", "cases"), [("exact", 40), ("numpy", 40), ("torch", 10)])
def test_it_is_the_lower_median_of_what_is_inside(engine: str, cases: int) -> None:
    give: Any = {"exact": lambda x: x, "numpy": lambda x: x.astype(float)}.get(engine)
    if engine == "torch":
        give = lambda x: pytest.importorskip("torch").tensor(x.astype(float))
    for seed in range(cases):
        (x,), params = POOL.cases(Random(seed))
        values, index = by_python(x, params["window"])
        assert (np.asarray(apply(POOL, give(x), **params)) == values.astype(float)).all()
        assert (np.asarray(apply(INDEX, give(x), **params)) == index).all()


def test_balls_that_overlap_have_an_enclosure() -> None:
    flint = pytest.importorskip("flint")
    x = np.array([flint.arb(1, 0.5), flint.arb(1.25, 0.5), flint.arb(9), flint.arb(-3)], dtype=object)
    first, second = sg.median_pool(x, (3,), stride=1).tolist()
    assert all(first.contains(flint.arb(end)) for end in ("0.75", "1.5"))
    assert second.contains(flint.arb("1.25"))
    assert (first - 1).abs_upper() < 1
    with pytest.raises(sg.ScalarError, match="overlap"):
        apply(INDEX, x, **sg.trace(lambda v: sg.median_pool(v, (3,), stride=1), (4,)).nodes[1].params)


def test_windows_that_scipy_has() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x = np.random.default_rng(0).normal(size=(9, 11))
    got = sg.median_pool(x, (3, 5), stride=1)
    assert (got == ndimage.median_filter(x, (3, 5))[1:-1, 2:-2]).all()


def test_ties_share_nothing() -> None:
    """The first of equal taps has all of the derivative, in both modes."""
    graph = sg.trace(lambda x: sg.median_pool(x, (3,), stride=1), (6,))
    assert sg.jvp(graph)(sg.exact(LAST), sg.exact([1, 10, 100, 1000, 10000, 5]))[1].tolist() == [100, 100, 100, 1000]
    assert sg.vjp(graph)(sg.exact(LAST), sg.exact([1, 10, 100, 1000]))[1].tolist() == [0, 0, 111, 1000, 0, 0]


def test_nan_infinities_and_empty_windows() -> None:
    padded = lambda v: sg.median_pool(v, (2,), stride=1, padding=[(3, 0)])
    x = np.array([np.nan, 1.0, 2.0, np.inf, np.inf, -np.inf])
    for give in (np.asarray, pytest.importorskip("torch").tensor, pytest.importorskip("jax").numpy.asarray):
        y = np.asarray(padded(give(x)))
        np.testing.assert_array_equal(y, [0, 0, np.nan, np.nan, 1, 2, np.inf, -np.inf])
        at = np.asarray(apply(INDEX, give(x), **sg.trace(padded, (6,)).nodes[1].params))
        assert at.tolist() == [-1, -1, 0, 0, 1, 2, 3, 5]


@pytest.mark.parametrize("padding", [0, 1, [(3, 0), (0, 4)]])
def test_onnx_files(padding: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    from specgrad.interop import from_onnx, to_onnx

    graph = sg.trace(lambda x: sg.median_pool(x, (2, 3), stride=1, padding=padding), (2, 3, 5, 6))
    model = to_onnx(graph)
    x = np.random.default_rng(0).integers(-3, 4, graph.nodes[0].shape).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString())
    (got,) = session.run(None, {model.graph.input[0].name: x})
    assert (got == graph(x)).all()
    assert (from_onnx(model)(x) == graph(x)).all()


# --- radii and bounds -------------------------------------------------------------------------------------------------


def test_radii_and_bounds_hold_every_execution() -> None:
    """Between the medians of the lowest and of the highest numbers, which are attained."""
    rng = np.random.default_rng(0)
    graph = sg.trace(lambda x: sg.median_pool(x, (3, 2), stride=1, padding=1), (2, 4, 5))
    low = rng.normal(size=(2, 4, 5))
    high = low + rng.uniform(0, 2, low.shape)
    for bound in (ibp, crown):
        box = bound(graph, Box(low, high), deployed=False).outputs
        for end, side in ((graph(low), box.low), (graph(high), box.high)):
            np.testing.assert_allclose(side, end, atol=1e-12)
        assert (box.low <= graph(low)).all()
        assert (box.high >= graph(high)).all()
    twice = sg.trace(lambda x: sg.median_pool(x * 3, (3,), stride=1), (400,))
    x = rng.normal(size=400).astype(np.float32)
    assert radius(twice, x).outputs.contains(sg.median_pool(x * np.float32(3), (3,), stride=1)).all()


def test_a_cell_that_may_be_no_number_leaves_its_windows_unknown() -> None:
    """A runtime's NaN may stand at every rank, or be the median; whoever does not read it is known."""
    window = sg.trace(lambda x: sg.median_pool(x, (3,), stride=1), (6,)).nodes[1].params["window"]
    x = Ball(np.array([1.0, 2, 3, 4, 5, 6]), np.array([np.inf, 0, 0, 0, 0, 0]))
    assert local_radius("median_pool", x, window=window).radius.tolist() == [np.inf, 0, 0, 0]


def test_subnormal_numbers_may_stand_at_each_other_s_rank() -> None:
    tiny = float(np.finfo(np.float32).tiny)
    x, window = np.float32([-0.9 * tiny, 0.9 * tiny, 0.5 * tiny]), sg.trace(lambda x: sg.median_pool(x, (3,)), (3,))
    params = window.nodes[1].params
    assert local_radius("median_pool", x, **params, arithmetic=Arithmetic(flush=True)).contains(x[:1]).all()
    assert local_radius("median_pool", x, **params, arithmetic=Arithmetic(flush=False)).radius.tolist() == [0]


def test_an_operator_of_several_cells_is_no_function_of_one() -> None:
    """Exact and nondecreasing says where numbers lie, not what a NaN does; a maximum shows one by its upper end."""
    middle = Op(
        name="middle",
        shape=lambda x: x[:-1],
        spec=lambda x: np.sort(x, axis=-1)[..., x.shape[-1] // 2],
        cases=lambda rng: ((), {}),
        monotone=(0,),
        exact=True,
    )
    args = [Ball(np.array([[1.0, 2, 3], [4, 5, 6]]), np.array([[0, 0, np.inf], [0, 0, 0]]))]
    from specgrad.rounding.context import Context
    from specgrad.rounding.propagate import evaluator

    run = Context(Arithmetic(), evaluator("numpy"))
    assert rule_of(middle, args)(run, middle, args, {}).radius.tolist() == [np.inf, np.inf]
    assert run_spec(middle, [args[0].value], {}).tolist() == [2, 5]
