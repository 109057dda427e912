"""Airbus's first operators whole: each is imported, means what a loop here says, has a radius, is audited, has vectors.

The list stands in the use cases of the ONNX safety profile (deliverables/scope/scope.md). The loops know ONNX's text
and nothing of the library; expected values are exact.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import helper, numpy_helper  # noqa: E402

from specgrad.check import audit  # noqa: E402
from specgrad.graph.ir.tree import leaves  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402
from specgrad.rounding import Arithmetic, radius  # noqa: E402
from specgrad.safety.vectors import OPERATORS, vectors  # noqa: E402
from specgrad.scalar import exact  # noqa: E402

RNG = np.random.default_rng(18)
AIRBUS = (
    "Conv", "ConvInteger", "MaxPool", "Resize", "QuantizeLinear", "DequantizeLinear", "Add", "Mul", "Relu", "Concat",
)  # fmt: skip


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def whole(dtype: Any, *shape: int) -> np.ndarray:
    return np.asarray(RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size=shape, endpoint=True), dtype)


def q(x: Any) -> Fraction:
    return Fraction(x.item() if isinstance(x, np.generic | np.ndarray) else x)


def cells(shape: tuple[int, ...]) -> Any:
    return product(*map(range, shape))


def result(shape: tuple[int, ...], cell: Any) -> np.ndarray:
    y = np.empty(shape, dtype=object)
    for i in cells(shape):
        y[i] = cell(i)
    return y


def windows(a: dict[str, Any], sizes: tuple[int, ...]) -> tuple[tuple[int, ...], Any]:
    """Sizes of the output, and the taps of an output cell that lie inside: (tap, input cell)."""
    k = a["kernel_shape"]
    d = len(k)
    s, e, p = a.get("strides", [1] * d), a.get("dilations", [1] * d), a.get("pads", [0] * 2 * d)
    out = tuple((sizes[i] + p[i] + p[d + i] - e[i] * (k[i] - 1) - 1) // s[i] + 1 for i in range(d))

    def inside(o: tuple[int, ...]) -> list[Any]:
        at = [(t, tuple(o[i] * s[i] + t[i] * e[i] - p[i] for i in range(d))) for t in cells(tuple(k))]
        return [(t, i) for t, i in at if all(0 <= n < m for n, m in zip(i, sizes, strict=True))]

    return out, inside


def conv(x: Any, w: Any, b: Any = None, x_zero: Any = 0, w_zero: Any = 0, **a: Any) -> np.ndarray:
    """Less their zero points, which padding is too."""
    out, inside = windows(a, x.shape[2:])
    groups = a.get("group", 1)
    zero = np.broadcast_to(np.asarray(w_zero), (w.shape[0],))

    def cell(i: tuple[int, ...]) -> Fraction:
        n, o, *place = i
        first = o // (w.shape[0] // groups) * w.shape[1]
        total = q(b[o]) if b is not None else Fraction(0)
        for (t, at), c in product(inside(tuple(place)), range(w.shape[1])):
            total += (q(x[(n, first + c, *at)]) - q(x_zero)) * (q(w[(o, c, *t)]) - q(zero[o]))
        return total

    return result((x.shape[0], w.shape[0], *out), cell)


def max_pool(x: Any, **a: Any) -> np.ndarray:
    out, inside = windows(a, x.shape[2:])
    return result((*x.shape[:2], *out), lambda i: max(q(x[(*i[:2], *at)]) for _, at in inside(i[2:])))


def along(p: Any, i: tuple[int, ...], axis: int) -> Fraction:
    return q(np.asarray(p).reshape(-1)[0 if np.size(p) == 1 else i[axis]])


def quantize(x: Any, scale: Any, zero: Any, axis: int = 1) -> np.ndarray:
    ends = np.iinfo(zero.dtype)

    def cell(i: tuple[int, ...]) -> Fraction:
        level = round(q(x[i]) / along(scale, i, axis)) + along(zero, i, axis)
        return min(max(level, Fraction(int(ends.min))), Fraction(int(ends.max)))

    return result(x.shape, cell)


def dequantize(x: Any, scale: Any, zero: Any = 0, axis: int = 1) -> np.ndarray:
    return result(x.shape, lambda i: (q(x[i]) - along(zero, i, axis)) * along(scale, i, axis))


def resize(x: Any, sizes: Any, mode: str, coordinate_transformation_mode: str = "half_pixel", **a: Any) -> np.ndarray:
    """One axis after the other, by the formulas of ONNX's text."""
    y = exact(x)
    for axis, m in enumerate(sizes):
        n = y.shape[axis]
        rows = []
        for o in range(int(m)):
            half = coordinate_transformation_mode == "half_pixel"
            src = (o + Fraction(1, 2)) * Fraction(n, int(m)) - Fraction(1, 2) if half else o * Fraction(n, int(m))
            low = math.floor(src)
            share = src - low if mode == "linear" else 0
            first, last = (min(max(i, 0), n - 1) for i in (low, low + 1))
            rows.append(np.take(y, first, axis) * (1 - share) + np.take(y, last, axis) * share)
        y = np.stack(rows, axis)
    return y


U8, S8 = np.uint8, np.int8
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
Named = dict[str, Any]
CASES: dict[str, tuple[str, Named, Named, Any, dict[str, Any]]] = {  # operator, inputs, attributes, loop, stored
    "Conv": (
        "Conv",
        {"x": real(1, 2, 5, 4), "w": real(3, 2, 3, 2), "b": real(3)},
        {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
        conv,
        {},
    ),
    "Conv, groups": ("Conv", {"x": real(2, 4, 6), "w": real(4, 2, 3)}, {"kernel_shape": [3], "group": 2}, conv, {}),
    "ConvInteger": (
        "ConvInteger",
        {"x": whole(U8, 1, 2, 4, 4), "w": whole(S8, 3, 2, 2, 3), "x_zero": whole(U8), "w_zero": whole(S8)},
        {"kernel_shape": [2, 3], "pads": [1, 1, 0, 2]},
        conv,
        {},
    ),
    "ConvInteger, dilated": (
        "ConvInteger",
        {"x": whole(U8, 1, 1, 5, 5), "w": whole(U8, 1, 1, 2, 2), "x_zero": whole(U8), "w_zero": np.uint8(1)},
        {"kernel_shape": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
        conv,
        {},
    ),
    "MaxPool": (
        "MaxPool",
        {"x": real(1, 2, 5, 6)},
        {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "strides": [2, 1]},
        max_pool,
        {},
    ),
    "MaxPool of bytes": ("MaxPool", {"x": whole(U8, 1, 2, 7)}, {"kernel_shape": [2], "dilations": [2]}, max_pool, {}),
    "Resize linear": (
        "Resize",
        {"x": real(1, 2, 3, 4)},
        {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
        resize,
        {"sizes": np.array([1, 2, 6, 7])},
    ),
    "Resize nearest": ("Resize", {"x": real(1, 1, 3, 4)}, NEAREST, resize, {"sizes": np.array([1, 1, 6, 8])}),
    "QuantizeLinear": (
        "QuantizeLinear",
        {"x": real(2, 3, 4), "scale": np.float32([0.02, 0.5, 0.25]), "zero": whole(U8, 3)},
        {"axis": 1},
        quantize,
        {},
    ),
    "QuantizeLinear, int8": (
        "QuantizeLinear",
        {"x": real(3, 5) * 4, "scale": np.float32(0.03), "zero": whole(S8)},
        {},
        quantize,
        {},
    ),
    "QuantizeLinear, int16": (
        "QuantizeLinear",
        {"x": real(3, 5), "scale": np.float32(0.25), "zero": whole(np.int16)},
        {},
        quantize,
        {},
    ),
    "DequantizeLinear": (
        "DequantizeLinear",
        {"x": whole(S8, 2, 3, 4), "scale": np.float32([0.02, 0.5, 0.25]), "zero": whole(S8, 3)},
        {"axis": 1},
        dequantize,
        {},
    ),
    "DequantizeLinear, int32": (
        "DequantizeLinear",
        {"x": whole(np.int32, 2, 5), "scale": np.float32(0.03)},
        {},
        dequantize,
        {},
    ),
    "Add": ("Add", {"a": real(2, 3, 4), "b": real(3, 1)}, {}, lambda a, b: exact(a) + exact(b), {}),
    "Mul": ("Mul", {"a": real(2, 1, 4), "b": real(3, 4)}, {}, lambda a, b: exact(a) * exact(b), {}),
    "Relu": ("Relu", {"x": real(2, 3, 4)}, {}, lambda x: result(x.shape, lambda i: max(q(x[i]), Fraction(0))), {}),
    "Concat": (
        "Concat",
        {"a": real(2, 3), "b": real(2, 4)},
        {"axis": 1},
        lambda a, b, axis: np.concatenate([exact(a), exact(b)], axis),
        {},
    ),
    "Concat of bytes": (
        "Concat",
        {"a": whole(U8, 2, 3), "b": whole(U8, 1, 3)},
        {"axis": 0},
        lambda a, b, axis: np.concatenate([exact(a), exact(b)], axis),
        {},
    ),
}
TYPES = {"ConvInteger": np.int32, "DequantizeLinear": np.float32}


def file_of(case: str) -> Any:
    operator, inputs, attributes, _, stored = CASES[case]
    names = [*inputs, *(["", "", "sizes"] if stored else [])]
    dtype = (
        inputs["zero"].dtype if operator == "QuantizeLinear" else TYPES.get(operator, next(iter(inputs.values())).dtype)
    )
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], name="node", **attributes)],
        "one",
        [helper.make_tensor_value_info(n, kind(a.dtype), np.shape(a)) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", kind(np.dtype(dtype)), None)],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def meaning(case: str) -> np.ndarray:
    _, inputs, attributes, loop, stored = CASES[case]
    return np.asarray(loop(**inputs, **attributes, **stored), dtype=object)


def test_the_list_is_whole() -> None:
    assert {CASES[c][0] for c in CASES} == set(AIRBUS) <= set(OPERATORS)


@pytest.mark.parametrize("case", CASES)
def test_imported_with_its_exact_meaning(case: str) -> None:
    graph = from_onnx(file_of(case))
    inputs = CASES[case][1]
    wide = replace(graph, constants={p: exact(a) for p, a in graph.constants.items()})
    got = wide(*(exact(inputs[n]) for n in graph.names))
    assert got.shape == meaning(case).shape
    assert (got == meaning(case)).all()


@pytest.mark.parametrize("case", CASES)
def test_its_radius_holds_on_onnx_runtime(case: str) -> None:
    """Around the exact value; finite, and small: 0 for what is not rounded."""
    model = file_of(case)
    graph, inputs, wanted = from_onnx(model), CASES[case][1], meaning(case)
    arithmetic = Arithmetic(execution="node", flush=False)
    given = [np.asarray(inputs[n], np.float64) for n in graph.names]
    (ball,) = leaves(radius(graph, *given, arithmetic=arithmetic, formats=graph.formats).outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {n: np.asarray(a) for n, a in inputs.items()})
    for i in cells(got.shape):
        assert abs(q(got[i]) - wanted[i]) <= 2 * q(ball.radius[i]), i  # both lie in the ball
        assert abs(q(ball.value[i]) - wanted[i]) <= q(ball.radius[i]) + abs(wanted[i]) * Fraction(1, 2**50), i
    exactly = {"ConvInteger", "MaxPool", "QuantizeLinear", "Relu", "Concat"}
    assert np.isfinite(ball.radius).all()
    assert (
        (ball.radius == 0).all() if CASES[case][0] in exactly else (ball.radius < 1e-4 * np.abs(ball.value).max()).all()
    )


@pytest.mark.parametrize("case", CASES)
def test_audited_on_onnx_runtime(case: str) -> None:
    inputs = [np.asarray(a) for a in CASES[case][1].values()]
    found = audit(file_of(case), "onnxruntime", inputs)
    assert found.verdict in ("exact", "rounding"), str(found)
    assert [layer.name for layer in found.layers] == ["node"]


def test_padding_of_integers_is_the_zero_point() -> None:
    """x = 5, zero point 3, 3x3 ones, padding 1: 2, and not -22. Holes of a dilated kernel are no taps."""
    one = conv(np.array([[[[5]]]]), np.ones((1, 1, 3, 3), int), None, 3, kernel_shape=[3, 3], pads=[1] * 4)
    assert one.tolist() == [[[[2]]]]
    for name, x_zero, w_zero, dilation, pads in (("padded", 3, 0, 1, 1), ("dilated", 0, 1, 2, 0)):
        x = np.full((1, 1, 1, 1), 5, U8) if name == "padded" else np.arange(9, dtype=U8).reshape(1, 1, 3, 3)
        w = np.ones((1, 1, 3, 3), U8) if name == "padded" else np.full((1, 1, 2, 2), 3, U8)
        named = {"kernel_shape": w.shape[2:], "dilations": [dilation] * 2, "pads": [pads] * 4}
        node = helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **named)
        stored = {"w": w, "xz": U8(x_zero), "wz": U8(w_zero)}
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info("x", 2, x.shape)],
            [helper.make_tensor_value_info("y", 6, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        ours = np.asarray(from_onnx(model)(x.astype(float)), float)
        (theirs,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        from onnx.reference import ReferenceEvaluator

        (reference,) = ReferenceEvaluator(model).run(None, {"x": x})
        wanted = np.asarray(conv(x, w, None, x_zero, w_zero, **named), float)
        assert ours.tolist() == theirs.tolist() == reference.tolist() == wanted.tolist()
    assert wanted.tolist() == [[[[(0 + 2 + 6 + 8) * 2]]]]


@pytest.mark.parametrize("operator", AIRBUS)
def test_it_has_vectors_of_every_listed_class(operator: str) -> None:
    record = OPERATORS[operator]
    found = {(v.kind, v.zone.word) for v in vectors(record)}
    assert found == set(record.listed)
    assert len(record.zones) >= 6
