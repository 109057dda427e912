"""topk, argmax, argmin, cumsum against Python, NumPy, PyTorch, ONNX Runtime: ties, NaN, infinities, what is open."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from specgrad.bounds import Box, crown, gradient_box, ibp
from specgrad.interop import from_onnx, from_torch
from specgrad.rounding import Arithmetic, local_radius, radius

pytestmark = pytest.mark.usefixtures("little_optimised")


def python_top(row: list[Fraction], k: int, largest: bool, last: bool) -> list[int]:
    """One after the other: the best of what is left, the first or the last of equal ones."""
    left, found = list(range(len(row))), []
    for _ in range(k):
        best = (max if largest else min)(row[i] for i in left)
        at = [i for i in left if row[i] == best][-1 if last else 0]
        found.append(at)
        left.remove(at)
    return found


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("engine", "count"),
    [("exact", 20), ("numpy", 20), ("torch", 20), ("jax", 6), pytest.param("jax", 60, marks=pytest.mark.slow)],
)  # XLA compiles for each size
def test_positions_and_values(engine: str, last: bool, largest: bool, count: int) -> None:
    rng = Random(0)
    for _ in range(count):
        n = rng.randint(1, 7)
        k = rng.randint(0, n)
        row = [Fraction(rng.randint(-2, 2)) for _ in range(n)]
        wanted = python_top(row, k, largest, last)
        floats = np.array(row, dtype=float)
        x: Any = {"exact": sg.exact(row), "numpy": floats, "torch": torch.from_numpy(floats)}.get(engine)
        x = pytest.importorskip("jax").numpy.asarray(floats) if engine == "jax" else x
        index = sg.apply(sg.REGISTRY["top_index"], x, axis=0, k=k, largest=largest, last=last)
        assert np.asarray(index).tolist() == wanted
        values = sg.topk(x, k, largest=largest)[0]
        assert [Fraction(float(v)) for v in values] == [row[i] for i in wanted]


@pytest.mark.parametrize("engine", ["numpy", "torch", "jax"])
def test_nan_is_the_largest(engine: str) -> None:
    x = np.array([[1.0, np.nan, np.inf, -np.inf], [-np.inf, 0.0, -0.0, -np.inf]])
    given: Any = {"numpy": x, "torch": torch.from_numpy(x)}.get(engine)
    given = pytest.importorskip("jax").numpy.asarray(x) if engine == "jax" else given
    assert np.asarray(sg.argmax(given)).tolist() == np.argmax(x, 1).tolist() == [1, 1]
    assert np.asarray(sg.argmin(given)).tolist() == np.argmin(x, 1).tolist() == [1, 0]
    values, index = (np.asarray(v) for v in sg.topk(given, 4, largest=False))
    assert index.tolist() == [[3, 0, 2, 1], [0, 3, 1, 2]]
    assert np.isnan(values[0, 3])
    assert np.asarray(sg.argmax(given, last=True)).tolist() == [1, 2]


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_onnx_positions(op: str, last: int, keep: int) -> None:
    node = helper.make_node(op, ["x"], ["y"], axis=1, keepdims=keep, select_last_index=last)
    agree(node, {"y": TensorProto.INT64}, 13)


X = np.random.default_rng(0).integers(-2, 3, (3, 4, 5)).astype(np.float32)  # ties everywhere


def agree(node: Any, outputs: dict[str, int], opset: int, **constants: np.ndarray) -> None:
    """Ours and ONNX Runtime's, every output."""
    import onnxruntime

    info = helper.make_tensor_value_info
    stored = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    ends = [info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "g", [info("x", 1, X.shape)], ends, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = from_onnx(model)(X)
    for mine, other in zip(found if len(outputs) > 1 else [found], session.run(None, {"x": X}), strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.parametrize(
    ("opset", "given"), [(9, {"k": 2}), (10, {}), (11, {"largest": 0, "axis": 1}), (18, {"axis": 0})]
)
def test_onnx_topk(opset: int, given: dict[str, int]) -> None:
    k = {} if opset < 10 else {"k": np.array([3])}
    node = helper.make_node("TopK", ["x", *k], ["y", "i"], **given)
    agree(node, {"y": 1, "i": TensorProto.INT64}, opset, **k)


def test_an_order_that_is_left_open_is_refused() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "i"], name="node", sorted=0)
    with pytest.raises(sg.SpecgradError, match=r"TopK 'node' \[P5\]: sorted=0 is not supported; only 1"):
        agree(node, {"y": 1, "i": TensorProto.INT64}, 18, k=np.array([3]))


def test_a_classifier_that_names_its_class() -> None:
    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 6)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.fc(x)
            return y.argmax(1), y.topk(2), y.max(1)

    torch.manual_seed(0)
    net, x = Named().double().eval(), torch.randn(3, 4, dtype=torch.float64)
    flat = lambda tree: [a for t in tree for a in (t if isinstance(t, tuple | list) else (t,))]
    for mine, other in zip(flat(from_torch(net, x)(x.numpy())), flat(net(x)), strict=True):
        np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-12)


# --- rounding and bounds ----------------------------------------------------------------------------------------------


def test_a_rank_that_rounding_decides_is_open() -> None:
    """0.1*3 and 0.3 differ by a rounding; 5 is the largest for sure."""
    graph = sg.trace(lambda x: sg.topk(x * np.float32([3, 1, 1, 1]), 3)[1], (4,))
    report = radius(graph, np.float32([0.1, 0.3, 5, -1]))
    assert np.isinf(report.outputs.radius).tolist() == [False, True, True]
    assert report.undecided == ("top_index",)
    values = radius(
        sg.trace(lambda x: sg.topk(x * np.float32([3, 1, 1, 1]), 3)[0], (4,)), np.float32([0.1, 0.3, 5, -1])
    )
    assert (values.outputs.radius < 1e-6).all(), "a number is known though its position is not"


def test_exact_ties_are_told_apart_by_position() -> None:
    ball = local_radius("top_index", np.float32([1, 1, 2]), axis=0, k=3, largest=True, last=False)
    assert ball.value.tolist() == [2, 0, 1]
    assert ball.is_exact


def test_which_nan_comes_first_is_open() -> None:
    ball = local_radius("top_index", np.float32([np.nan, 1, np.nan]), axis=0, k=3, largest=True, last=False)
    assert np.isinf(ball.radius).tolist() == [True, True, False]


@pytest.mark.parametrize("largest", [True, False])
def test_positions_hold_for_every_choice_in_the_balls(largest: bool) -> None:
    """Where a rank is said to be decided, no choice of numbers in the boxes gives another position."""
    rng, decided = Random(1), 0
    for _ in range(150):
        n = rng.randint(2, 5)
        low = [Fraction(rng.randint(-6, 6), 2) for _ in range(n)]
        width = [Fraction(rng.choice((0, 0, 1, 2)), 2) for _ in range(n)]
        x = [float(a) for a in low], [float(a + w) for a, w in zip(low, width, strict=True)]
        graph = sg.trace(lambda v, n=n: sg.gather(np.arange(n) * 1.0, sg.topk(v, n, largest=largest)[1]), (n,))
        found = ibp(graph, Box(*x), deployed=False).outputs
        for _ in range(20):
            v = [a + w * Fraction(rng.randint(0, 2), 2) for a, w in zip(low, width, strict=True)]
            index = np.array(python_top(v, n, largest, False))
            assert ((found.low <= index) & (index <= found.high)).all()
        decided += int((found.low == found.high).sum())
    assert decided > 100


def test_bounds_of_the_largest_numbers() -> None:
    box = Box([0.0, 0.5, 2.0], [1.0, 0.75, 3.0])
    graph = sg.trace(lambda x: sg.topk(x, 2)[0], (3,))
    for method in (ibp, crown):
        found = method(graph, box, deployed=False).outputs
        assert found.low == pytest.approx([2, 0.5])
        assert found.high == pytest.approx([3, 1])


def test_the_largest_number_bends_and_its_position_jumps() -> None:
    table = np.array([1.0, 4.0, 9.0])
    (found,) = gradient_box(
        sg.trace(lambda x: sg.gather(table, sg.argmax(x)), (3,)), Box([0.0] * 3, [1.0] * 3), cotangent=1.0
    )
    assert np.isinf(found.high).all()


# --- running sums -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_running_sums(exclusive: bool, reverse: bool) -> None:
    x = sg.exact(np.random.default_rng(0).integers(-9, 9, (2, 5)))
    for row, found in zip(x, sg.cumsum(x, 1, exclusive=exclusive, reverse=reverse), strict=True):
        line = list(row)[::-1] if reverse else list(row)
        sums = [sum(line[: i + (not exclusive)], Fraction(0)) for i in range(5)]
        assert list(found) == (sums[::-1] if reverse else sums)
    assert sg.cumsum(np.zeros((0, 3)), 0, exclusive=exclusive).shape == (0, 3)
    inf = np.array([1.0, np.inf, 2.0])
    assert not np.isnan(sg.cumsum(inf, 0, exclusive=True)).any(), "shifted, not subtracted"


def test_running_sums_of_pytorch_lie_in_the_ball() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2000)).astype(np.float32)
    ball = local_radius("cumsum", x, axis=1, exclusive=False, reverse=False, arithmetic=Arithmetic())
    assert ball.contains(torch.cumsum(torch.from_numpy(x), 1).numpy()).all()
    assert ball.contains(np.cumsum(x, 1)).all()
    assert not ball.contains(np.cumsum(x.astype(np.float16), 1)).all()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: sg.topk(x, 4), "top: k=4 must lie in 0..3, the cells of axis 1; got shape (2, 3)"),
        (lambda x: sg.topk(x, -1), "top: k=-1 must lie in 0..3"),
        (lambda x: sg.topk(x, 1.5), "topk [P5]: k must be"),
        (lambda x: sg.argmax(x[:, :0]), "argmax [W1]: no cells on axis 1; got shape (2, 0)"),
        (lambda x: sg.argmax(x, 2), "argmax: axis 2 does not exist; the value has 2 axes"),
        (lambda x: sg.argmax(np.array(1.0)), "argmax: axis -1 does not exist; the value has 0 axes"),
        (lambda x: sg.cumsum(x, 5), "cumsum: axis 5 does not exist; the value has 2 axes"),
    ],
)
def test_refused_by_name(call: Any, text: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call(np.zeros((2, 3)))
    assert str(caught.value).startswith(text)


# --- products ---------------------------------------------------------------------------------------------------------


def tree_product(row: np.ndarray, rng: np.random.Generator) -> np.float32:
    """The product of a row in float32, in a random order by a random tree; subnormal numbers may be flushed."""
    values = list(rng.permutation(row))
    while len(values) > 1:
        k = int(rng.integers(len(values) - 1))
        with np.errstate(all="ignore"):
            values[k : k + 2] = [values[k] * values[k + 1]]
        if rng.random() < 0.5 and abs(values[k]) < np.finfo(np.float32).tiny:
            values[k] = np.float32(0)
    return values[0]


@pytest.mark.parametrize("spread", [0, 3, 30])
def test_every_tree_of_products_lies_in_the_radius(spread: int) -> None:
    """With factors of many sizes partial products underflow or overflow where others do not: nothing is said then."""
    rng = np.random.default_rng(spread)
    for _ in range(30):
        x = (rng.normal(size=(4, 7)) * 2.0 ** rng.integers(-spread, spread + 1, size=(4, 7))).astype(np.float32)
        ball = radius(sg.trace(lambda v: sg.prod(v, 1), x.shape), x).outputs
        exact = [math.prod(map(Fraction, map(float, row))) for row in x]
        known = [(v, r, e) for v, r, e in zip(ball.value, ball.radius, exact, strict=True) if r < math.inf]
        assert all(abs(Fraction(v) - e) <= Fraction(r) for v, r, e in known)
        for _ in range(20):
            found = np.array([tree_product(row, rng) for row in x], np.float64)
            assert (ball.contains(found) | np.isinf(ball.radius)).all()
        if spread < 30:
            assert (ball.radius < 7 * 2.0**-23 * np.abs(ball.value) + 1e-30).all()


def test_what_comes_in_moves_a_product() -> None:
    """Both ends of every factor, over rationals; a product that may overflow on the way has no radius."""
    x, off = np.array([2.0, -3.0, 0.5, 0.0]), 0.25
    net = sg.trace(lambda v: sg.cumprod(v, 0, reverse=True), (4,))
    box = ibp(net, Box(x - off, x + off), deployed=False).outputs
    corners = np.array(list(itertools.product(*((v - off, v + off) for v in x))))
    products = np.cumprod(corners[:, ::-1], axis=1)[:, ::-1]
    assert (box.low <= products.min(axis=0)).all()
    assert (box.high >= products.max(axis=0)).all()
    product = sg.trace(lambda v: sg.prod(v), (3,))
    assert radius(product, np.float32([1e15, 1e-10, 1e15])).outputs.radius < 1e15
    assert np.isinf(radius(product, np.float32([1e30, 1e30, 1e-30])).outputs.radius)
