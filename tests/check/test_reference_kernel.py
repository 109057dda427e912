"""assert_conforms with a reference: right kernels pass in any order, planted mistakes do not."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as drawn_arrays

import specgrad as sg
from specgrad.check import ConformanceError, assert_conforms
from specgrad.check.kernels.arrays import ARRAYS, GUARD, hand_out
from specgrad.check.kernels.draw_inputs import KINDS, InputShapes
from specgrad.check.kernels.failure_text import _number
from specgrad.check.kernels.reference import Reference
from specgrad.check.verdicts.defined_values import defines_infinities, defines_nan
from specgrad.check.verdicts.judge import is_exact_on_integers
from specgrad.rounding import Arithmetic

F32 = np.float32
MATRICES = {"x": ("N", 64), "w": (64, 8)}
ROWS = {"x": ("N", "M")}
HALF = Arithmetic("float16", accumulate="float32")


def product(x, w, terms=lambda k: k, keep=lambda a: a):
    """A matrix product, one term after another in the order that `terms` gives, each sum kept by `keep`."""
    y = np.zeros((x.shape[0], w.shape[1]), x.dtype)
    for k in terms(range(x.shape[1])):
        y = keep(y + x[:, k : k + 1] * w[k])
    return y


def pairwise(x, w):
    """A matrix product whose terms are added in a tree."""
    terms = [x[:, k : k + 1] * w[k] for k in range(x.shape[1])]
    while len(terms) > 1:
        terms = [sum(terms[i + 1 : i + 2], terms[i]) for i in range(0, len(terms), 2)]
    return terms[0]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def last_column_lost(x):
    """A softmax whose last column is not written where it begins a tile of 16."""
    y = softmax(x)
    if x.shape[-1] % 16 == 1:
        y[..., -1] = 0
    return y


class Stale:
    """A softmax that gives the first tile of the call before, if that had as many cells."""

    def __init__(self) -> None:
        self.before: np.ndarray | None = None

    def __call__(self, x):
        y = softmax(x)
        before, self.before = self.before, y.copy()
        if before is not None and before.shape == y.shape:
            y[:, :16] = before[:, :16]
        return y


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x, w: x @ w,
        product,
        lambda x, w: product(x, w, reversed),
        lambda x, w: product(x, w, lambda k: np.random.default_rng(0).permutation(len(k))),
        pairwise,
        lambda x, w: (x.astype(np.float64) @ w).astype(F32),
        lambda x, w: (w.T @ x.T).T,  # a view
    ],
)
def test_any_order_passes(kernel: Any) -> None:
    done = assert_conforms(kernel, sg.matmul, inputs=MATRICES)
    assert (done.answered, done.judged) == (42, 42)
    assert 0 < done.ratio < 1


@pytest.mark.parametrize(
    ("kernel", "reference", "inputs", "words"),
    [
        (lambda x, w: x[:, :-1] @ w[:-1], sg.matmul, MATRICES, "no arithmetic that we know"),
        (lambda x, w: (x @ w) * F32(1 + 2**-12), sg.matmul, MATRICES, "no arithmetic"),
        (lambda x, w: (x @ w) * F32(1 + 2**-12), sg.matmul, {"x": (4, 4096), "w": (4096, 8)}, "no arithmetic"),
        (lambda x, w: np.zeros_like(x @ w), sg.matmul, MATRICES, "no arithmetic"),
        (
            lambda x, w: (x.astype(np.float16) @ w.astype(np.float16)).astype(F32),
            sg.matmul,
            MATRICES,
            "explained by float16",
        ),
        (last_column_lost, sg.softmax, ROWS, "no arithmetic"),
        (Stale(), sg.softmax, {"x": (4, 64)}, "no arithmetic"),
        (lambda x: np.where(x > 0, x, F32(0)), sg.relu, {"x": ("N",)}, "no arithmetic"),
    ],
)
def test_planted_mistakes_fail(kernel: Any, reference: Any, inputs: Any, words: str) -> None:
    with pytest.raises(ConformanceError, match=words):
        assert_conforms(kernel, reference, inputs=inputs)


def test_sums_in_the_format_are_named() -> None:
    right = lambda x, w: (x.astype(F32) @ w.astype(F32)).astype(np.float16)
    assert_conforms(right, sg.matmul, inputs=MATRICES, arithmetic=HALF)
    assert_conforms(product, sg.matmul, inputs=MATRICES, formats="float16")
    with pytest.raises(ConformanceError, match="explained by sums in float16, not by sums in float32"):
        assert_conforms(product, sg.matmul, inputs=MATRICES, arithmetic=HALF)


def test_integers_leave_no_allowance_while_sums_are_short_numbers() -> None:
    """By hand: 2**24 + 1 is no float32; beyond, a sum in another order may round."""
    for dtype, digits in (("float32", 24), ("float16", 11), ("bfloat16", 8)):
        most = 2.0**digits
        graph = sg.trace(lambda x: sg.sum(x * 2 - 1), (3,))
        inside, beyond = (np.array([top, 1, 1]) for top in (most / 2 - 8, most / 2))
        half = np.array([0.5, 1, 1])
        assert [is_exact_on_integers(graph, [x], Arithmetic(dtype)) for x in (inside, beyond, half)] == [
            True,
            False,
            False,
        ]
    shifted = sg.trace(lambda x: sg.cumsum(sg.concat([sg.fill(x[:1], 1), x[:-1]], 0), 0), (3,))
    inside, beyond = (np.array([top, 1, 1]) for top in (2.0**24 - 3, 2.0**24))
    assert [is_exact_on_integers(shifted, [x], Arithmetic()) for x in (inside, beyond)] == [True, False]
    others = {"mean": np.mean, "exp": np.exp, "quotient": lambda x: x / 2, "halves": lambda x: x + sg.fill(x, 0.5)}
    for f in others.values():
        assert not is_exact_on_integers(sg.trace(f, (4,)), [np.ones(4)], Arithmetic())


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_no_order_rounds_integers_that_are_called_exact(seed: int) -> None:
    """In float16, term after term in a random order, fused or not."""
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-9, 10, (4, 12)).astype(float) for _ in range(2))
    graph = sg.trace(lambda x, w: sg.sum(x * w, 1), (4, 12), (4, 12))
    if is_exact_on_integers(graph, [x, w], Arithmetic("float16")):
        total = np.zeros(4, np.float16)
        for k in rng.permutation(12):
            total = total + x[:, k].astype(np.float16) * w[:, k].astype(np.float16)
        np.testing.assert_array_equal(total, (x * w).sum(1))


# --- what a kernel may return, and must leave alone -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "reference", "shape"),
    [
        (lambda x: x[:, ::-1], lambda x: x[:, ::-1], (3, 4)),
        (lambda x: x, lambda x: x * 1, (3, 4)),
        (lambda x: (x + 1, x * 2), lambda x: (x + 1, x * 2), (3, 4)),
        (lambda x: {"a": x + 1, "b": x * 2}, lambda x: {"a": x + 1, "b": x * 2}, (3, 4)),
        (lambda x: [x * 2], lambda x: x * 2, (3, 4)),
        (lambda x: x.argmax(-1), lambda x: sg.argmax(x, -1), (3, 7)),
        (lambda x: x.argmax(-1).astype(np.uint8), lambda x: sg.argmax(x, -1), (3, 7)),
        (lambda x: x > 0, lambda x: x > 0, (9,)),
        (lambda x: x.sum(dtype=F32), sg.sum, (5, 3)),
        (lambda x: float(x) * 2, lambda x: x * 2, ()),
        (lambda x: x * 2, lambda x: x * 2, (0, 4)),
        (lambda x: x.sum(-1), lambda x: np.sum(x, -1), (2, 0)),
    ],
)
def test_results_of_every_kind(kernel: Any, reference: Any, shape: Any) -> None:
    done = assert_conforms(kernel, reference, inputs={"x": shape})
    assert done.asked == done.answered > 10


def writes(x):
    y = x * 2
    x[...] = 0
    return y


def writes_beside(x):
    if x.base is not None and x.base.size == x.size + 2 * GUARD:
        x.base[-GUARD] = 0
    return x * 2


def reads_beside(x):
    return x * 2 + 0 * np.lib.stride_tricks.as_strided(x, (x.size + 1,), x.strides)[1:]


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (writes, "the kernel writes into its input x"),
        (writes_beside, "the kernel writes into its input x, or into memory beside it"),
        (reads_beside, "no arithmetic"),
        (lambda x: (x * 2)[:-1], r"y has shape \(7,\), must have \(8,\)"),
        (lambda x: (x * 2).astype(np.float64), "y is of float64, must be of float32"),
        (lambda x: (x * 2, x), "2 results, must be 1"),
        (lambda x: None, "y is no array of numbers|input y must hold numbers"),
        (lambda x: x[99], "the kernel raises IndexError"),
    ],
)
def test_what_a_kernel_must_not_do(kernel: Any, words: str) -> None:
    with pytest.raises(ConformanceError, match=words):
        assert_conforms(kernel, lambda x: x * 2, inputs={"x": (8,)})


def test_another_type_may_pass() -> None:
    assert_conforms(lambda x: (x * 2).astype(np.float64), lambda x: x * 2, inputs={"x": (8,)}, check_dtype=False)
    with pytest.raises(ConformanceError, match="must be of integers"):
        assert_conforms(lambda x: x.argmax(-1).astype(F32), lambda x: sg.argmax(x, -1), inputs={"x": (3, 7)})


def test_a_kernel_that_needs_contiguous_memory_says_so() -> None:
    def kernel(x):
        if not x.flags.c_contiguous:
            raise NotImplementedError("contiguous arrays only")
        return x * 2

    done = assert_conforms(kernel, lambda x: x * 2, inputs={"x": (4, 5)})
    assert done.counts["refuses"] == 2
    assert assert_conforms(kernel, lambda x: x * 2, inputs={"x": (4, 5)}, layouts="contiguous").counts["refuses"] == 0
    with pytest.raises(ConformanceError, match="nothing was judged"):
        assert_conforms(lambda x: kernel(x[::-1]), lambda x: x * 2, inputs={"x": (4, 5)})
    with pytest.raises(ConformanceError, match="refuses"):
        assert_conforms(kernel, lambda x: x * 2, inputs={"x": (4, 5)}, may_refuse=False)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (5,), (), (0, 3)])
def test_layouts_hold_the_same_numbers(layout: str, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).normal(size=shape).astype(F32)
    given = hand_out(a, layout, ARRAYS["numpy"], "float32")
    np.testing.assert_array_equal(given.view, a)
    one_axis = len(shape) - (layout == "transposed") < 1 or 0 in shape
    assert given.view.flags.c_contiguous == (layout == "contiguous" or one_axis)
    assert not given.is_changed
    if a.size:
        given.view[...] = 1
        assert given.is_changed


# --- references -------------------------------------------------------------------------------------------------------


def test_every_kind_of_reference(tmp_path: Path) -> None:
    graph = sg.trace(sg.softmax, (3, 4))
    sg.save(graph, tmp_path / "net.json")
    for reference in (sg.softmax, graph, str(tmp_path / "net.json"), "softmax"):
        assert_conforms(softmax, reference, inputs={"x": (3, 4)})
        with pytest.raises(ConformanceError):
            assert_conforms(lambda x: x, reference, inputs={"x": (3, 4)})
    assert assert_conforms(softmax, graph).operator == "Graph"  # which says its shapes


def test_references_of_pytorch_and_onnx(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(16, 4)
    weight, bias = (p.detach().numpy() for p in layer.parameters())
    for reference in (layer, lambda x: torch.nn.functional.linear(x, layer.weight, layer.bias)):
        assert_conforms(lambda x: x @ weight.T + bias, reference, inputs={"x": (3, 16)})
        with pytest.raises(ConformanceError):
            assert_conforms(lambda x: x @ weight.T, reference, inputs={"x": (3, 16)})
    assert_conforms(lambda x: torch.softmax(x, -1), sg.softmax, inputs=torch.randn(3, 4))
    pytest.importorskip("onnx")
    from specgrad.interop import to_onnx

    (tmp_path / "net.onnx").write_bytes(to_onnx(sg.trace(sg.softmax, (3, 4))).SerializeToString())
    assert_conforms(softmax, tmp_path / "net.onnx")


@pytest.mark.parametrize(
    ("reference", "inputs", "words"),
    [
        (lambda x: 1 / 0, {"x": (3,)}, "ZeroDivisionError"),
        (lambda x: sg.matmul(x, x), {"x": (3, 4)}, "inner sizes differ"),
        (lambda x: float(x), {"x": ()}, "a graph variable has no value yet"),
        ("sofmax", {"x": (3,)}, "unknown operator 'sofmax'"),
        (7, {"x": (3,)}, "must be a Graph, an ONNX file or a PyTorch module; got int"),
        (sg.softmax, None, "softmax does not say its inputs"),
        (sg.softmax, np.ones((3, 4)), "input x is of float64; say how the kernel computes"),
        (
            sg.softmax,
            {"x": np.ones(3, F32), "y": (3,)},
            "x is an array, y is a shape",
        ),
        (sg.softmax, {"x": np.array(["a"])}, "must hold numbers"),
    ],
)
def test_what_is_no_reference_or_input_is_refused(reference: Any, inputs: Any, words: str) -> None:
    with pytest.raises(sg.SpecgradError, match=words):
        assert_conforms(lambda x: x, reference, inputs=inputs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"formats": "int8"}, "must be among .*bfloat16, float32, float64; got 'int8' for x"),
        ({"formats": {"z": "float16"}}, "names 'z', which is no input"),
        ({"layouts": "diagonal"}, "must be among contiguous, strided, transposed; got 'diagonal'"),
        ({"layouts": ()}, "must be among"),
        ({"arrays": "cupy"}, "must be one of numpy, ml_dtypes, torch, jax"),
        ({"count": 0}, "count must be at least 1"),
        ({"ranks": (2,)}, "go with the name of an operator alone"),
    ],
)
def test_options_that_say_nothing_are_refused(options: Any, words: str) -> None:
    with pytest.raises(sg.ParameterError, match=words):
        assert_conforms(lambda x: x, lambda x: x * 1, inputs={"x": (3,)}, **options)


def test_what_a_reference_says_of_nan_and_infinities() -> None:
    said = {
        name: (defines_nan(graph), defines_infinities(graph))
        for name, f in {
            "relu": sg.relu,
            "scaled": lambda x: x * 2,
            "line": lambda x: x * 2 + 1,
            "gelu": sg.gelu,
            "softmax": sg.softmax,
            "chosen": lambda x: np.where(x > 0, x, 0),
            "attention": lambda x: sg.softmax(sg.matmul(x, x)),
            "flipped": lambda x: x[::-1],
        }.items()
        for graph in [Reference(f).graph([np.ones((3, 3), F32)])]
    }
    assert said == {
        "relu": (True, True),
        "scaled": (True, True),
        "line": (True, False),
        "gelu": (True, False),
        "softmax": (True, False),
        "chosen": (False, False),
        "attention": (False, False),
        "flipped": (True, True),
    }


def test_either_way_of_writing_a_comparison_passes() -> None:
    done = assert_conforms(lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, x, 0), inputs={"x": ("N",)})
    assert done.asked == 39  # 42 without NaN


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_all_kinds_of_numbers_are_asked() -> None:
    seen = []

    def kernel(x):
        seen.append(np.array(x))
        return x * 2

    done = assert_conforms(kernel, lambda x: x * 2, inputs={"x": (40, 3)})
    assert done.asked == len(KINDS) + 2 == len(seen)
    cells = np.concatenate([a.ravel() for a in seen])
    finite = np.abs(cells[np.isfinite(cells)])
    assert np.isnan(cells).any()
    assert {float("inf"), float("-inf")} <= set(cells.tolist())
    assert np.signbit(cells[cells == 0]).any()
    assert 0 < finite[finite > 0].min() < 2.0**-126
    assert finite.max() > 2.0**50


def test_another_seed_draws_others() -> None:
    shapes = InputShapes({"x": ("N", 3)}, {"x": "float32"})
    one, two, again = (shapes.draw("gaussian", seed, {"N": 5}).arrays["x"] for seed in (1, 2, 1))
    assert (one == again).all()
    assert (one != two).all()


def test_given_arrays_and_recorded_results() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(F32)
    assert assert_conforms(softmax, sg.softmax, inputs=x).asked == 3
    assert assert_conforms(softmax(x), sg.softmax, inputs=x).asked == 1
    wrong = softmax(x)
    wrong[2, 1] *= F32(1.0001)
    with pytest.raises(ConformanceError, match="Mismatched cells of y: 1 of 12"):
        assert_conforms(wrong, sg.softmax, inputs=x)
    with pytest.raises(sg.ParameterError, match="recorded results go with the arrays"):
        assert_conforms(softmax(x), sg.softmax, inputs={"x": (3, 4)})


@pytest.mark.parametrize("arrays", ["ml_dtypes", "torch", "jax"])
def test_arrays_of_every_library(arrays: str) -> None:
    pytest.importorskip(arrays)
    half = Arithmetic("bfloat16", accumulate="float32")
    kernel = lambda x, w: (x @ w).astype(x.dtype) if arrays == "ml_dtypes" else x @ w  # which gives float32
    shapes = {"x": (5, 64), "w": (64, 8)}  # JAX compiles for every other one
    asked = {"inputs": shapes, "arrays": arrays, "arithmetic": half}
    done = assert_conforms(kernel, sg.matmul, **asked)
    assert done.judged > 10  # one of each kind of numbers
    given = {name: give_as(arrays, np.ones(shape, F32)) for name, shape in {"x": (2, 3), "w": (3, 2)}.items()}
    assert assert_conforms(kernel, sg.matmul, inputs=given, arithmetic=half).counts == {"exact": 3}
    with pytest.raises(sg.ParameterError, match="input x is of bfloat16; say how the kernel computes"):
        assert_conforms(kernel, sg.matmul, inputs=given)
    with pytest.raises(ConformanceError):
        assert_conforms(lambda x, w: kernel(x, w) * 2, sg.matmul, **asked)


def give_as(arrays: str, a: np.ndarray) -> Any:
    return ARRAYS[arrays](a, "bfloat16")


def test_labels_and_positions_are_handed_out_as_they_are() -> None:
    i, w = np.array([2, 0, 1, 2]), np.random.default_rng(0).normal(size=(3, 5)).astype(F32)
    seen = []

    def kernel(i, w):
        seen.append(i.dtype)
        return w[i]

    assert_conforms(kernel, lambda i, w: sg.gather(w, i, axis=0), inputs={"i": i, "w": w})
    assert set(seen) == {np.dtype(np.int64)}


def test_a_strategy_of_hypothesis() -> None:
    shapes = st.tuples(st.integers(1, 6), st.integers(1, 6))
    strategy = shapes.flatmap(lambda s: drawn_arrays(F32, s, elements=st.floats(-8, 8, width=32)))
    assert assert_conforms(softmax, sg.softmax, inputs=strategy, count=20).asked >= 20
    with pytest.raises(ConformanceError) as caught:
        assert_conforms(lambda x: softmax(x) if x.shape[1] < 4 else x, sg.softmax, inputs=strategy)
    assert caught.value.case.arrays["x"].shape == (1, 4)
    assert not caught.value.case.arrays["x"].any()


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_shrunk_and_its_script_repeats_it(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError) as caught:
        assert_conforms(lambda x, w: x[:, :-1] @ w[:-1], sg.matmul, inputs=MATRICES)
    error, text = caught.value, str(caught.value)
    assert error.case.sizes == {"N": 1}
    assert [np.count_nonzero(a) for a in error.case.arrays.values()] == [1, 1]
    assert "Mismatched cells of y:" in text
    assert "Greatest difference:" in text
    assert "y[0, " in text
    assert "To repeat it:" in text
    script = error.script.replace("kernel = ...", "kernel = lambda x, w: x[:, :-1] @ w[:-1]")
    (tmp_path / "again.py").write_text(script)
    done = subprocess.run([sys.executable, "again.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.0", "must", "be", "1.0", "within", "0.0"]


@pytest.mark.parametrize("layout", ["strided", "transposed"])
def test_a_script_lays_memory_out_as_it_was(layout: str, tmp_path: Path) -> None:
    def kernel(x):
        return x * 2 if x.flags.c_contiguous else x * 3

    with pytest.raises(ConformanceError) as caught:
        assert_conforms(kernel, lambda x: x * 2, inputs={"x": (3, 4)}, layouts=("contiguous", layout))
    assert caught.value.case.layout == layout
    body = "kernel = lambda x: x * 2 if x.flags.c_contiguous else x * 3"
    (tmp_path / "again.py").write_text(caught.value.script.replace("kernel = ...", body))
    done = subprocess.run([sys.executable, "again.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    got, must = done.stdout.split()[0], done.stdout.split()[3]
    assert float(got) == 1.5 * float(must) != 0


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_numbers_are_written_as_they_are(kind: Any) -> None:
    """Without a warning: 2**24 lies beyond float16."""
    values = np.array([0.0, -0.0, 1.0, -3.0, 0.1, 6e-8, 2048.0, 65504.0, np.inf, -np.inf, np.nan], kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts = [_number(v) for v in values]
    assert texts[:5] == ["0", "-0.0", "1", "-3", "0.1"]
    again = np.array([float(t) for t in texts], kind)
    assert np.array_equal(again.view(np.uint8), values.view(np.uint8))


def test_inputs_of_many_numbers_are_saved(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 20)).astype(F32)
    with pytest.raises(ConformanceError) as caught:
        assert_conforms((x * 2)[::-1].copy(), lambda x: x * 2, inputs=x)
    caught.value.save_inputs(tmp_path)
    (tmp_path / "again.py").write_text(caught.value.script.replace("kernel = ...", "kernel = lambda x: (x * 2)[::-1]"))
    subprocess.run([sys.executable, "again.py"], cwd=tmp_path, capture_output=True, text=True, check=True)


def test_it_needs_numpy_alone() -> None:
    code = """
import sys
import warnings
import numpy as np
from specgrad.check import assert_conforms
assert_conforms(lambda x: x + x, lambda x: x * 2, inputs={"x": ("N", 3)})
print([m for m in ("torch", "jax", "hypothesis", "onnx") if m in sys.modules])
"""
    where = {**os.environ, "PYTHONPATH": str(Path(sg.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=where)
    assert done.stdout.strip() == "[]"


def test_open_cells_are_no_proof() -> None:
    """Products of large numbers overflow: nothing is proven of them, so nothing was judged."""
    x = np.full((3,), 3e38, F32)
    with pytest.raises(ConformanceError, match="nothing was judged"):
        assert_conforms(lambda x: x * 7, lambda x: x * x, inputs=x)


def test_gradients() -> None:
    right = lambda g, x: (g * (1 - np.tanh(x) ** 2)).astype(F32)
    assert_conforms(np.tanh, sg.tanh, inputs={"x": (5,)}, gradient=right)
    done = assert_conforms(lambda x, w: x @ w, sg.matmul, inputs=MATRICES, gradient=lambda g, x, w: (g @ w.T, x.T @ g))
    assert done.asked > 60
    with pytest.raises(ConformanceError, match="the gradient of relu differ"):
        assert_conforms(lambda x: np.maximum(x, 0), sg.relu, inputs={"x": (5,)}, gradient=lambda g, x: g * (x >= 0))
