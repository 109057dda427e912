"""from_onnx: values against ONNX Runtime over opsets 7 to 22, names, shapes, and everything that it must refuse."""

from __future__ import annotations

import io
import math
import random
import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import pytest
import torch
from onnx import TensorProto, helper

import specgrad as sg
from models import SMALL
from onnx_cases import info, network, one, runtime
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read.convert_node import all_operators, multiply_adds

OPSETS = range(7, 26)
DRAW = np.random.default_rng(0)


def whole(*shape: int, low: int = -8, high: int = 9) -> np.ndarray:
    return DRAW.integers(low, high, shape).astype(np.float32)


def results(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    graph = from_onnx(model)
    found = graph(*inputs)
    return [found] if graph.single else list(found)


def compare(model: onnx.ModelProto, inputs: list[np.ndarray], tolerance: float = 0.0) -> None:
    for found, wanted in zip(results(model, inputs), runtime(model, inputs), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(np.asarray(found, float), wanted, rtol=tolerance, atol=tolerance)


# --- windows --------------------------------------------------------------------------------------------------------


def window(rng: random.Random, rank: int) -> dict[str, Any]:
    """Attributes that ONNX Runtime is known to honour: no SAME with dilations or with strides above the kernel."""
    kernel = [rng.randint(1, 3) for _ in range(rank)]
    given: dict[str, Any] = {"kernel_shape": kernel}
    if rng.random() < 0.7:
        given["strides"] = [rng.randint(1, 3) for _ in range(rank)]
    kind = rng.choice(("pads", "auto", "none"))
    if kind == "pads":
        given["pads"] = [rng.randint(0, k - 1) for k in kernel * 2]
    elif kind == "auto":
        given["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        given["strides"] = [rng.randint(1, k) for k in kernel]
    if kind != "auto" and rng.random() < 0.5:
        given["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    return given


@pytest.mark.parametrize("opset", OPSETS)
def test_conv_agrees_with_onnxruntime(opset: int) -> None:
    rng = random.Random(opset)
    for _ in range(12):
        rank, groups = rng.randint(1, 3), rng.choice((1, 2))
        given = window(rng, rank)
        x = whole(2, 2 * groups, *(rng.randint(6, 8) for _ in range(rank)))
        w = whole(2 * groups, 2, *given["kernel_shape"])
        bias = [whole(2 * groups)] if rng.random() < 0.5 else []
        compare(*one("Conv", [x, w, *bias], opset=opset, known=1, group=groups, **given))


@pytest.mark.parametrize("opset", OPSETS)
def test_conv_transpose_agrees_with_onnxruntime(opset: int) -> None:
    rng = random.Random(opset)
    for _ in range(12):
        rank, groups = rng.randint(1, 2), rng.choice((1, 2))
        given = window(rng, rank)
        strides = given.setdefault("strides", [1] * rank)
        if given.pop("auto_pad", "VALID") != "VALID" and opset >= 11:
            given["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER"))
        elif rng.random() < 0.5:
            given["output_padding"] = [rng.randint(0, s - 1) for s in strides]
        x = whole(1, 2 * groups, *(rng.randint(3, 5) for _ in range(rank)))
        w = whole(2 * groups, 3, *given["kernel_shape"])
        bias = [whole(3 * groups)] if rng.random() < 0.5 else []
        compare(*one("ConvTranspose", [x, w, *bias], opset=opset, known=1, group=groups, **given))


@pytest.mark.parametrize("size", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_output_shape_of_conv_transpose(size: int, auto_pad: str) -> None:
    """Stride 2 and kernel 3 over 3 cells reach 7; an odd total goes where auto_pad says, two lacking cells are bias."""
    x, w, b = whole(1, 1, 3), whole(1, 2, 3), np.array([3.0, 5.0], np.float32)
    given: dict[str, Any] = {"strides": [2], "output_shape": [size], "auto_pad": auto_pad}
    full = sg.conv_transpose(w, None, x, stride=2)
    cut = max(7 - size, 0)
    low = cut // 2 if auto_pad == "SAME_UPPER" else cut - cut // 2
    wanted = np.zeros((1, 2, size))
    wanted[..., : min(size, 7)] = full[..., low : low + min(size, 7)]
    model, inputs = one("ConvTranspose", [x, w, b], known=1, **given)
    assert (results(model, inputs)[0] == wanted + b[:, None]).all()


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_agree_with_onnxruntime(op: str, opset: int) -> None:
    rng = random.Random(opset)
    dilated = {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    for _ in range(12):
        rank = rng.randint(1, 3)
        given = window(rng, rank)
        if opset < dilated:
            given.pop("dilations", None)
        if opset >= 10 and op != "LpPool" and "auto_pad" not in given:
            given["ceil_mode"] = rng.randint(0, 1)
        if op == "AveragePool" and not given.get("ceil_mode"):
            given["count_include_pad"] = rng.randint(0, 1)
        if op == "LpPool":
            given["p"] = rng.randint(1, 3)
        outputs = 2 if op == "MaxPool" and opset >= 8 and rng.random() < 0.5 else 1
        x = DRAW.permutation(2 * 2 * 8**rank).astype(np.float32).reshape(2, 2, *[8] * rank) / 4  # no ties
        compare(*one(op, [x], opset=opset, outputs=outputs, **given), tolerance=0.0 if op == "MaxPool" else 3e-6)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("opset", range(10, 23))
def test_a_window_of_padding_alone_is_dropped(op: str, opset: int) -> None:
    """[W3] at every version, as PyTorch and ONNX Runtime do; onnx's shape inference does from 22 on."""
    x = whole(1, 1, 8)
    model, inputs = one(op, [x], opset=opset, kernel_shape=[2], strides=[3], pads=[1, 1], ceil_mode=1)
    assert results(model, inputs)[0].shape == (1, 1, 3)
    compare(model, inputs, 1e-6)


def test_column_major_indices() -> None:
    """storage_order=1 counts the first spatial axis fastest, within each plane."""
    x = DRAW.permutation(2 * 3 * 4 * 5).astype(np.float32).reshape(2, 3, 4, 5)
    model, inputs = one("MaxPool", [x], outputs=2, kernel_shape=[2, 3], strides=[1, 2], storage_order=1)
    compare(model, inputs)
    plain, _ = one("MaxPool", [x], outputs=2, kernel_shape=[2, 3], strides=[1, 2])
    assert (results(model, inputs)[1] != results(plain, inputs)[1]).any()


def test_unpooling_takes_back_what_pooling_gave() -> None:
    x = DRAW.permutation(2 * 3 * 16).astype(np.float32).reshape(2, 3, 4, 4) + 1
    pool = helper.make_node("MaxPool", ["x"], ["p", "indices"], kernel_shape=[2, 2], strides=[2, 2])
    unpool = helper.make_node("MaxUnpool", ["p", "indices"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    (y,) = results(network([pool, unpool], {"x": x}, ["y"]), [x])
    assert (y[y != 0] == x[y != 0]).all()
    assert (y != 0).sum() == 24


# --- every other operator --------------------------------------------------------------------------------------------

X = whole(2, 3, 4)
IMAGE = whole(1, 4, 4, 6)
POSITIVE = whole(2, 3, 4, low=1)
I64 = lambda *v: np.array(v, np.int64)
F32 = lambda *v: np.array(v, np.float32)
SCALAR = lambda v: np.array(v, np.float32)
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
CASES: list[tuple[str, list[Any], dict[str, Any], range]] = [
    *((op, [X], {}, OPSETS) for op in ("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Exp", "Neg", "Abs")),
    *((op, [POSITIVE], {}, OPSETS) for op in ("Sqrt", "Log", "Reciprocal")),
    *((op, [X, whole(3, 1, low=1)], {}, OPSETS) for op in ("Add", "Sub", "Mul", "Div")),
    *((op, [X, whole(2, 3, 4), whole(2, 3, 4)], {}, OPSETS) for op in ("Max", "Min", "Sum", "Mean")),
    ("Sign", [X], {}, range(9, 23)),
    ("Erf", [X / 4], {}, range(9, 23)),
    ("Gelu", [X / 4], {}, range(20, 23)),
    ("Gelu", [X / 4], {"approximate": "tanh"}, range(20, 23)),
    ("HardSwish", [X], {}, range(14, 23)),
    ("Mish", [X], {}, range(18, 23)),
    ("LeakyRelu", [X], {"alpha": 0.25}, OPSETS),
    ("LeakyRelu", [X], {}, OPSETS),
    ("PRelu", [X, whole(3, 1)], {}, OPSETS),
    ("Elu", [X], {"alpha": 0.5}, OPSETS),
    ("Selu", [X], {}, OPSETS),
    ("Celu", [X], {"alpha": 0.5}, range(12, 23)),
    ("ThresholdedRelu", [X], {"alpha": 2.0}, range(10, 23)),
    ("HardSigmoid", [X], {"alpha": 0.125}, OPSETS),
    ("Clip", [X], {"min": -2.0, "max": 3.0}, range(7, 11)),
    ("Clip", [X, SCALAR(-2), SCALAR(3)], {}, range(11, 23)),
    ("Clip", [X, None, SCALAR(3)], {}, range(11, 23)),
    ("Softmax", [X / 4], {"axis": 1}, OPSETS),
    ("Softmax", [X / 4], {}, OPSETS),
    ("LogSoftmax", [X / 4], {"axis": 0}, OPSETS),
    ("Pow", [POSITIVE, SCALAR(2)], {}, OPSETS),
    ("Pow", [POSITIVE, SCALAR(-0.5)], {}, OPSETS),
    ("MatMul", [X, whole(4, 5)], {}, OPSETS),
    ("Gemm", [whole(3, 2), whole(3, 4), whole(2, 1)], {"alpha": 0.5, "beta": 2.0, "transA": 1}, OPSETS),
    ("Gemm", [whole(3, 2), whole(4, 2), whole(4)], {"transB": 1}, OPSETS),
    ("Gemm", [whole(3, 2), whole(4, 2)], {"transB": 1}, range(11, 23)),
    ("BatchNormalization", [X, whole(3), whole(3), whole(3), whole(3, low=1)], {"epsilon": 0.5}, OPSETS),
    ("InstanceNormalization", [X, whole(3), whole(3)], {"epsilon": 0.5}, OPSETS),
    ("LayerNormalization", [X, whole(3, 4), whole(3, 4)], {"axis": 1}, range(17, 23)),
    ("GroupNormalization", [IMAGE, whole(4), whole(4)], {"num_groups": 2}, range(21, 23)),
    ("LRN", [IMAGE], {"size": 3, "alpha": 0.5, "bias": 2.0}, OPSETS),
    ("LRN", [IMAGE], {"size": 5}, OPSETS),
    ("GlobalMaxPool", [IMAGE], {}, OPSETS),
    ("GlobalAveragePool", [IMAGE], {}, OPSETS),
    ("GlobalLpPool", [IMAGE], {"p": 3}, range(7, 22)),
    ("Reshape", [X, I64(0, -1)], {}, OPSETS),
    ("Reshape", [whole(0, 3), I64(0, 3, 0)], {"allowzero": 1}, range(14, 23)),
    ("Flatten", [X], {"axis": 2}, OPSETS),
    ("Flatten", [X], {"axis": -1}, range(11, 23)),
    ("Transpose", [X], {"perm": [2, 0, 1]}, OPSETS),
    ("Transpose", [X], {}, OPSETS),
    ("Squeeze", [whole(2, 1, 3, 1)], {"axes": [1]}, range(7, 13)),
    ("Squeeze", [whole(2, 1, 3, 1), I64(-1)], {}, range(13, 23)),
    ("Squeeze", [whole(2, 1, 3, 1)], {}, OPSETS),
    ("Unsqueeze", [X], {"axes": [0, 2]}, range(7, 13)),
    ("Unsqueeze", [X, I64(0, -1)], {}, range(13, 23)),
    ("Concat", [X, whole(2, 1, 4)], {"axis": 1}, OPSETS),
    ("Slice", [X], {"starts": [1, -3], "ends": [2, 2**31 - 1], "axes": [0, 2]}, range(7, 10)),
    ("Slice", [X, I64(0, -3), I64(2, 2**62), I64(1, 2), I64(1, 2)], {}, range(10, 23)),
    ("Pad", [X], {"pads": [0, 1, 0, 2, 0, 0], "value": 2.5}, range(7, 11)),
    ("Pad", [X, I64(0, 1, -1, 2, 0, 0), SCALAR(2.5)], {}, range(11, 23)),
    ("Pad", [X, I64(1, 2), None, I64(-1)], {}, range(18, 23)),
    *((f"Reduce{k}", [X], {"axes": [0, -1], "keepdims": 0}, range(11, 13)) for k in ("Mean", "Sum", "Max", "Min")),
    *((f"Reduce{k}", [X], {"axes": [1]}, range(7, 13)) for k in ("Mean", "Sum", "Max", "Min", "L1", "L2")),
    *((f"Reduce{k}", [X, I64(1)], {}, range(18, 23)) for k in ("Mean", "Sum", "Max", "L2", "SumSquare", "LogSumExp")),
    ("ReduceSum", [X, I64(-1)], {"keepdims": 0}, range(13, 23)),
    ("Identity", [X], {}, OPSETS),
    ("Dropout", [X], {}, OPSETS),
    ("Cast", [X], {"to": TensorProto.FLOAT}, OPSETS),
    *((k, [X / np.float32(4)], {}, OPSETS) for k in ("Floor", "Ceil")),
    ("Round", [X / np.float32(4)], {}, range(11, 23)),
    ("Mod", [X / np.float32(4), whole(3, 4, low=1)], {"fmod": 1}, range(10, 23)),
    ("Pad", [X, I64(0, 1, 3, 1, 0, 2)], {"mode": "reflect"}, range(11, 23)),
    ("Pad", [X], {"pads": [0, 1, 3, 1, 0, 2], "mode": "edge"}, range(7, 11)),
    ("Pad", [X, I64(3, 2), SCALAR(9), I64(1)], {"mode": "edge"}, range(18, 23)),
    ("Pad", [X, I64(0, 1, 3, 2, 3, 4)], {"mode": "wrap"}, range(19, 23)),
    ("Gather", [X, I64(2, 0, 1)], {"axis": 1}, OPSETS),
    ("Gather", [X, np.array([[3, 0, 0], [1, 2, 3]])], {"axis": 2}, OPSETS),
    ("Gather", [X, I64(-1, 0, -2)], {"axis": 1}, range(11, 23)),
    ("GatherElements", [X, np.array([[[2, 0, 1, 1]], [[0, -1, 1, 2]]])], {"axis": 1}, range(11, 23)),
    ("Gather", [X, np.array(1, np.int64)], {"axis": 2}, OPSETS),
    ("Expand", [whole(3, 1), I64(2, 1, 4)], {}, range(8, 23)),
    ("Tile", [X, I64(1, 2, 3)], {}, OPSETS),
    ("Upsample", [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0]}, range(7, 9)),
    ("Upsample", [IMAGE, F32(1, 1, 2, 3)], {}, range(9, 10)),
    ("Resize", [IMAGE, F32(1, 1, 2, 3)], {}, range(10, 11)),
    ("Resize", [IMAGE, F32(), F32(1, 1, 2, 3)], {}, range(11, 23)),
    ("Resize", [IMAGE, None, None, I64(1, 4, 8, 12)], ASYMMETRIC, range(13, 23)),
    ("Resize", [IMAGE, None, None, I64(1, 4, 7, 3)], {"mode": "linear"}, range(13, 23)),
    ("Resize", [IMAGE, None, None, I64(1, 4, 7, 3)], {"nearest_mode": "ceil"}, range(13, 23)),
    ("Resize", [IMAGE, None, F32(1, 1, 2, 2)], {"nearest_mode": "ceil"}, range(13, 23)),
    ("Resize", [IMAGE, F32(1, 1, 1.5, 2)], {"mode": "linear"}, range(10, 11)),
    ("Resize", [IMAGE, F32(), F32(1, 1, 1.5, 2)], {"mode": "linear"}, range(11, 23)),
    ("Resize", [IMAGE, None, None, I64(7, 3)], {"mode": "linear", "axes": [2, 3]}, range(18, 23)),
    ("Upsample", [IMAGE, F32(1, 1, 1.5, 2)], {"mode": "linear"}, range(9, 10)),
    *(("CumSum", [X, np.array(a, np.int64)], {"exclusive": e, "reverse": r}, range(11, 23))
      for a, e, r in ((0, 0, 0), (1, 1, 0), (-1, 0, 1), (2, 1, 1))),
    ("DepthToSpace", [IMAGE], {"blocksize": 2}, OPSETS),
    ("DepthToSpace", [IMAGE], {"blocksize": 2, "mode": "CRD"}, range(11, 23)),
    ("SpaceToDepth", [IMAGE], {"blocksize": 2}, OPSETS),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "given", "opsets"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_operator_agrees_with_onnxruntime(op: str, inputs: list[Any], given: dict[str, Any], opsets: range) -> None:
    """At the first and the last opset of every version of the operator in force there."""
    version = {o: onnx.defs.get_schema(op, o, "").since_version for o in opsets}
    ends = {o for o in opsets if version.get(o - 1) != version[o] or version.get(o + 1) != version[o]}
    for opset in sorted(ends):
        compare(*one(op, inputs, opset=opset, known=1, **given), tolerance=2e-6)


@pytest.mark.parametrize("size", range(1, 9))
def test_lrn_is_the_formula_of_the_schema(size: int) -> None:
    """From c - floor((size - 1)/2) to c + ceil((size - 1)/2): ONNX Runtime refuses even sizes, which lean upwards."""
    x = [2, 3, 5, 7, 11, 13]
    model, inputs = one("LRN", [np.float32(x).reshape(1, 6, 1)], size=size, alpha=float(size), beta=1.0, bias=1.0)
    (found,) = results(model, inputs)
    for c in range(6):
        cells = range(max(0, c - math.floor((size - 1) / 2)), min(5, c + math.ceil((size - 1) / 2)) + 1)
        assert found[0, c, 0] == pytest.approx(x[c] / (1 + sum(x[i] ** 2 for i in cells)), rel=1e-6)


KERNEL = whole(4, 4, 2, 2)
WINDOWED: list[tuple[str, list[Any], dict[str, Any], range]] = [
    ("Conv", [IMAGE, KERNEL], {"pads": [0, 1, 1, 0], "strides": [1, 2], "dilations": [2, 1]}, OPSETS),
    ("ConvTranspose", [IMAGE, KERNEL], {"pads": [0, 1, 1, 0], "strides": [1, 2], "dilations": [2, 1]}, OPSETS),
    ("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}, OPSETS),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}, OPSETS),
    ("LpPool", [IMAGE], {"kernel_shape": [2, 2], "pads": [0, 1, 1, 0]}, OPSETS),
    ("Split", [IMAGE], {"axis": 1}, range(7, 18)),
]


@pytest.mark.parametrize(("op", "inputs", "given", "opsets"), CASES + WINDOWED)
def test_every_attribute_of_the_schema_is_known(
    op: str, inputs: list[Any], given: dict[str, Any], opsets: range
) -> None:
    """Written out with its default, an attribute changes nothing; one that no line reads would be refused."""
    for opset in {opsets[0], opsets[-1]}:
        schema = onnx.defs.get_schema(op, opset, "")
        defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name and n not in given}
        model, arrays = one(op, inputs, opset=opset, known=1, **given)
        spelled = onnx.ModelProto.FromString(model.SerializeToString())
        spelled.graph.node[0].attribute.extend(defaults.values())
        assert np.array_equal(results(model, arrays)[0], results(spelled, arrays)[0], equal_nan=True)


@pytest.mark.parametrize(
    ("opset", "given", "inputs"), [(11, {"split": [1, 2]}, []), (13, {}, [I64(1, 2)]), (18, {"num_outputs": 2}, [])]
)
def test_split(opset: int, given: dict[str, Any], inputs: list[Any]) -> None:
    x = whole(2, 3, 4)
    model, arrays = one("Split", [x, *inputs], opset=opset, known=1, outputs=2, axis=1, **given)
    first, second = results(model, arrays)
    cut = 2 if opset == 18 else 1
    assert (first == x[:, :cut]).all()
    assert (second == x[:, cut:]).all()


@pytest.mark.parametrize(("cells", "parts"), [(4, 3), (6, 4), (7, 3), (1, 2), (0, 3), (5, 4), (2, 4)])
def test_the_last_part_of_a_split_may_have_no_cell_and_no_other_is_smaller(cells: int, parts: int) -> None:
    """By the text of Split-18, and ONNX's inference of shapes: 2, 2, 0 of four cells. ONNX Runtime refuses that."""
    model, arrays = one("Split", [np.arange(cells, dtype=np.float32)], opset=18, outputs=parts, num_outputs=parts)
    del model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in model.graph.node[0].output)
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    sizes = [end.type.tensor_type.shape.dim[0].dim_value for end in inferred]
    if min(sizes) < 0:
        with pytest.raises(sg.ShapeError, match=f"{cells} cells .* {parts} parts of which the last alone is smaller"):
            results(model, arrays)
    else:
        assert [len(part) for part in results(model, arrays)] == sizes


def test_every_version_in_force_is_in_the_table() -> None:
    """An operator of the table is known in every version that opsets 7 to 22 use, save those ONNX withdrew."""
    for name, known in all_operators().items():
        for opset in OPSETS:
            try:
                schema = onnx.defs.get_schema(name, opset, "")
            except onnx.defs.SchemaError:
                continue
            if not schema.deprecated:
                assert schema.since_version in known.versions, (name, opset)


# --- shapes that exporters compute -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum", "CumSum", "Abs", "Clip", "TopK", "Mod"])
def test_integers_that_nodes_compute_from_shapes_are_known(op: str) -> None:
    more = {"CumSum": ["zero"], "Clip": ["", "three"], "TopK": ["ones"], "Mod": ["three"]}.get(op, [])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node(op, ["s", *more], ["n", "i"][: 1 + (op == "TopK")]),
        helper.make_node("ConstantOfShape", ["n"], ["c"]),
        helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0),
        helper.make_node("Add", ["c", "t"], ["y"]),
    ]
    constants = {"zero": np.array(0), "three": np.array(3), "ones": I64(1)}
    model, x = network(nodes, {"x": (2, 3, 4)}, ["y"], constants, 13), whole(2, 3, 4)
    compare(model, [x])


def test_known_numbers_beyond_int64_are_no_output() -> None:
    model, _ = one("Cast", [I64(-1, 5)], to=TensorProto.UINT64, known=0)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT64
    with pytest.raises(sg.SpecgradError, match="output 'y0' has numbers beyond INT64"):
        from_onnx(model)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_sum_exp_of_infinite_cells(dtype: Any) -> None:
    """No largest cell is taken off where it is infinite: a row that a mask has shut is -inf."""
    inf = np.inf
    x = np.array([[-inf, -inf], [inf, 1], [inf, -inf], [-inf, 1], [0, 0]], dtype)
    model, _ = one("ReduceLogSumExp", [x, I64(1)], known=1)
    expected = [[-inf], [inf], [inf], [1], [math.log(2)]]
    np.testing.assert_allclose(from_onnx(model)(x.astype(float)), expected, rtol=1e-15)


@pytest.mark.parametrize("opset", [11, 13])
def test_clip_by_limits_that_are_computed(opset: int) -> None:
    low, high = whole(2, 3, 4), whole(2, 3, 4)
    nodes = [
        helper.make_node("ReduceMin", ["low"], ["a"], keepdims=0),
        helper.make_node("ReduceMax", ["high"], ["b"], keepdims=0),
        helper.make_node("Clip", ["x", "a", "b"], ["y"]),
    ]
    compare(network(nodes, {"x": X, "low": low, "high": high}, ["y"], opset=opset), [X, low, high])


def test_limits_of_clip_the_wrong_way_round() -> None:
    """All cells are max from version 13 on, whose text says so; before, nothing is said."""
    compare(*one("Clip", [X, SCALAR(3), SCALAR(-2)], known=1, opset=13))
    model, _ = one("Clip", [X, SCALAR(3), SCALAR(-2)], known=1, opset=12)
    with pytest.raises(sg.SpecgradError, match=r"low=3.0 lies above high=-2.0"):
        from_onnx(model)


def test_shape_arithmetic_is_folded() -> None:
    """x.view(x.size(0), -1) and x * x.shape[2], as exporters write them."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Constant", [], ["rest"], value_ints=[-1]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["flat"]),
        helper.make_node("Shape", ["x"], ["last"], start=2, end=3),
        helper.make_node("Cast", ["last"], ["scale"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["flat", "scale"], ["y"]),
    ]
    constants = {"zero": np.array(0, np.int64), "axis": I64(0)}
    model = network(nodes, {"x": (2, 3, 4)}, ["y"], constants)
    graph = from_onnx(model)
    x = whole(2, 3, 4)
    assert (graph(x) == x.reshape(2, 12) * 4).all()
    assert set(graph.values) == {"x", "flat", "scale", "y"}


def test_a_number_computed_from_constants_can_be_a_parameter() -> None:
    """The exponent is 1 + 1, in the model."""
    nodes = [helper.make_node("Add", ["one", "one"], ["two"]), helper.make_node("Pow", ["x", "two"], ["y"])]
    graph = from_onnx(network(nodes, {"x": (3,)}, ["y"], {"one": SCALAR(1)}))
    assert (graph(F32(1, 2, 3)) == [1, 4, 9]).all()


def test_open_sizes_need_input_shapes() -> None:
    """All but the first axis, which is a batch and 1 unless something is said."""
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info("x", ["N", "C"])], [info("y", None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    assert from_onnx(model, input_shapes={"x": (2, 3)}).nodes[0].shape == (2, 3)
    for given, message in (
        (None, "from_onnx: input 'x' has unknown sizes (None, None); give input_shapes={'x': (...)}"),
        ({"x": (2, 4, 4)}, "from_onnx: input 'x' is declared as (None, None); input_shapes gives (2, 4, 4)"),
        ({"z": (2, 4)}, "from_onnx: input_shapes names 'z', which is no input; inputs are ['x']"),
    ):
        with pytest.raises(sg.SpecgradError) as caught:
            from_onnx(model, input_shapes=given)
        assert str(caught.value) == message


# --- names ----------------------------------------------------------------------------------------------------------


def test_layers_and_values_carry_the_names_of_the_model() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="stem/conv"),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], name="stem/bn"),
        helper.make_node("Identity", ["n"], ["same"]),
        helper.make_node("Relu", ["same"], ["y"]),
    ]
    ones = np.ones(2, np.float32)
    constants = {"w": whole(2, 1, 3), "s": ones, "b": 2 * ones, "m": 3 * ones, "v": 4 * ones}
    graph = from_onnx(network(nodes, {"x": (1, 1, 5)}, ["y"], constants))
    assert [n.group for n in graph.nodes if n.op.name not in ("input", "constant")][-1] == "y"
    assert graph.node("stem/conv").op.name == "conv"
    assert {n.group for n in graph.nodes} == {"x", "w", "s", "b", "m", "v", "stem/conv", "stem/bn", "y"}
    assert graph.values["same"] == graph.values["n"]
    assert graph.nodes[graph.values["y"]].op.name == "relu"
    assert graph.nodes[graph.values["n"]].group == "stem/bn"
    assert graph.trainable == {"w", "s", "b"}
    x = whole(1, 1, 5)
    seen: dict[str, Any] = {}
    from specgrad.graph.ir.node import call

    call(graph, (x,), lambda node, value: seen.__setitem__(node.name, value))
    assert (seen[graph.nodes[graph.values["c"]].name] == sg.conv(constants["w"], None, x)).all()


def export(module: torch.nn.Module, x: torch.Tensor, opset: int) -> bytes:
    """By PyTorch's older exporter; test_torch_export_models.py has the newer one."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its age
        torch.onnx.export(module, (x,), file, dynamo=False, opset_version=opset)
    return file.getvalue()


@pytest.mark.parametrize("opset", [9, 20])
@pytest.mark.parametrize("name", SMALL)
def test_models_exported_by_pytorch(name: str, opset: int) -> None:
    module, x = SMALL[name]()
    graph = from_onnx(export(module, x, opset))
    wanted = module.double()(x.double()).detach().numpy()
    assert np.abs(graph(x.numpy()) - wanted).max() <= 1e-5 * np.abs(wanted).max()
    layers = {n.group for n in graph.nodes if n.op.name not in ("input", "constant")}
    convolutions = sum(isinstance(m, torch.nn.modules.conv._ConvNd) for m in module.modules())
    assert sum("onv" in layer for layer in layers) >= convolutions


LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_classic_networks(path: Path) -> None:
    """AlexNet to DenseNet as the onnx package ships them: shapes as its own inference finds them, no weights stored."""
    graph = from_onnx(path)
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path)).graph
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in inferred.value_info}
    known = {name: shape for name, shape in shapes.items() if name in graph.values}
    assert len(known) > 20
    assert {name: graph.nodes[graph.values[name]].shape for name in known} == known
    assert [graph.nodes[p].shape[:2] for p in graph.output_positions] == [(1, 1000)]


def test_weights_can_be_kept_as_safetensors(tmp_path) -> None:
    model, inputs = one("Conv", [whole(1, 1, 4), whole(1, 1, 2)], known=1)
    graph = from_onnx(model)
    sg.save(graph, tmp_path / "net.json")
    assert (tmp_path / "net.safetensors").exists()
    assert (sg.load(tmp_path / "net.json")(*inputs) == graph(*inputs)).all()


UNREAD = [(1, 4, 4, -3), (1, 2, 4, -1), (2, 4, 8, -2), (1, 4, 7, -2), (2, 5, 9, -2), (1, 3, 3, -2), (1, 5, 5, -4)]


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool", "Conv"])
@pytest.mark.parametrize(("kernel", "stride", "cells", "total"), UNREAD)
def test_same_padding_of_less_than_nothing(
    operator: str, kernel: int, stride: int, cells: int, total: int, auto_pad: str
) -> None:
    """Runtimes have three answers for pools: refused by name. Conv is read as long as they agree: from cell 0 on."""
    x = np.arange(cells, dtype=np.float32).reshape(1, 1, cells)
    given = {"strides": [stride], "auto_pad": auto_pad}
    if operator == "Conv":
        model, inputs = one("Conv", [x, np.ones((1, 1, kernel), np.float32)], known=1, **given)
    else:
        model, inputs = one(operator, [x], kernel_shape=[kernel], **given)
    if operator != "Conv" or total < -2:
        with pytest.raises(sg.SpecgradError, match=rf"auto_pad=SAME pads by {total} cells in all"):
            from_onnx(model)
        return
    ours = from_onnx(model)(x.astype(float)).ravel()
    assert ours.tolist() == [x[0, 0, o : o + kernel].sum() for o in range(0, cells, stride)]
    assert runtime(model, inputs)[0].ravel().tolist() == ours.tolist()


def read_otherwise(seeds: range) -> list[tuple[Any, ...]]:
    """Drawn nodes under SAME padding that we read, and ONNX Runtime computes something else, or fails."""
    wrong = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        operator = str(rng.choice(["MaxPool", "AveragePool", "Conv"]))
        cells, kernel, stride = (int(rng.integers(*ends)) for ends in ((2, 10), (1, 4), (1, 6)))
        x = rng.integers(1, 9, (1, 1, cells)).astype(np.float32)
        given = {"strides": [stride], "auto_pad": str(rng.choice(["SAME_UPPER", "SAME_LOWER"]))}
        if operator == "Conv":
            model, inputs = one("Conv", [x, np.ones((1, 1, kernel), np.float32)], known=1, **given)
        else:
            model, inputs = one(operator, [x], kernel_shape=[kernel], **given)
        try:
            ours = from_onnx(model)(x.astype(float))
        except sg.SpecgradError:
            continue
        try:
            (theirs,) = runtime(model, inputs)
        except Exception:  # ONNX Runtime's own classes
            theirs = None
        if theirs is None or theirs.shape != ours.shape or not np.allclose(theirs, ours, rtol=1e-6):
            wrong.append((operator, cells, kernel, stride, given["auto_pad"]))
    return wrong


def test_same_padding_is_read_as_runtimes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding of less than 0 cells that is taken for 0, as it was, is caught."""
    assert read_otherwise(range(100)) == []
    monkeypatch.setattr("specgrad.interop.onnx.read.windows._refuse_negative_same_padding", lambda *_: None)
    found = read_otherwise(range(100))
    assert {operator for operator, *_ in found} >= {"MaxPool", "AveragePool"}
    assert all(kernel < stride for _, _, kernel, stride, _ in found)


# --- refusals -------------------------------------------------------------------------------------------------------

PLANE = np.zeros((1, 1, 4, 4), np.float32)
POOL = {"kernel_shape": [2, 2]}
UNIT = [F32(1)] * 4
BOXES = np.float32([[0, 0, 2, 2]])
TWICE = F32(1, 1, 2, 2)
ALL_PADS = {"pads": [1, 1, 1, 1], "auto_pad": "SAME_UPPER"}
CEILED = {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID", "ceil_mode": 1}
REFUSALS: list[tuple[Any, str]] = [
    (one("Foo", [X]), "Foo 'node': the operator is not known"),
    (one("Relu", [X], domain="com.microsoft"), "Relu 'node': operators of the domain 'com.microsoft' are not known"),
    (one("Relu", [X], alpha=1.0), "Relu 'node' [P5]: attribute 'alpha' is not honoured"),
    (one("MaxPool", [PLANE], **POOL, dilations=[1, 1], opset=8), "MaxPool 'node' [P5]: attribute 'dilations' is not"),
    (one("MaxPool", [PLANE]), "MaxPool 'node' [P5]: attribute kernel_shape is missing"),
    (one("MaxPool", [PLANE], kernel_shape=2), "MaxPool 'node' [P5]: attribute kernel_shape must be of type ints"),
    (one("MaxPool", [PLANE], kernel_shape=[5, 5]), "MaxPool 'node': MaxPool [W2]: window of 5 cells does not fit 4"),
    (one("MaxPool", [PLANE], **POOL, ceil_mode=2), "MaxPool 'node' [P5]: attribute ceil_mode must be 0 or 1; got 2"),
    (one("MaxPool", [PLANE], **CEILED), "MaxPool 'node' [P5]: auto_pad=VALID with ceil_mode=1: ONNX's text and its"),
    (one("Conv", [PLANE, PLANE], pads=[1, 1]), "Conv 'node' [W1]: pads=[1, 1] must have 4 entries, all begins then"),
    (one("Conv", [PLANE, PLANE], **ALL_PADS), "Conv 'node' [P5]: pads=[1, 1, 1, 1] cannot be used together with"),
    (one("Conv", [PLANE, PLANE], auto_pad="SAME"), "Conv 'node' [P5]: auto_pad='SAME' must be one of NOTSET"),
    (one("Conv", [PLANE, PLANE], kernel_shape=[3, 3]), "Conv 'node' [C1]: kernel_shape=(3, 3) contradicts weights of"),
    (one("Conv", [PLANE, PLANE], strides=[0, 1]), "Conv 'node' [W1]: strides=[0, 1] must lie in 1..65536"),
    (one("Conv", [PLANE, PLANE], group=3), "Conv 'node': conv [C1]: groups must divide the channels"),
    (one("ConvTranspose", [PLANE, PLANE], output_shape=[6, 6], opset=7), "ConvTranspose 'node' [P5]: version 1 says"),
    (one("ConvTranspose", [PLANE, PLANE], strides=[5, 5], auto_pad="SAME_LOWER"), "ConvTranspose 'node' [P5]: auto"),
    (one("BatchNormalization", [PLANE, *UNIT], training_mode=1), "BatchNormalization 'node' [P5]: training_mode=1 is"),
    (one("BatchNormalization", [PLANE, *UNIT], opset=9, outputs=5), "BatchNormalization 'node': output 'y4' is not"),
    (one("Dropout", [X], outputs=2), "Dropout 'node': output 'y1' is not supported in inference"),
    (one("Pad", [X, I64(*[1] * 6)], known=1, mode="mirror"), "Pad 'node' [P5]: mode='mirror' is not supported; only"),
    (one("Pad", [X, I64(*[-1] * 6)], known=1, mode="reflect"), "Pad 'node': pad [W1]: mode reflect needs widths >= 0"),
    (one("Resize", [PLANE, None, TWICE], known=1, mode="area"), "Resize 'node' [P5]: mode='area' is not supported"),
    (one("GridSample", [PLANE, PLANE], mode="cubic"), "GridSample 'node' [P5]: mode='cubic' is not supported; only"),
    (one("GridSample", [PLANE, PLANE], padding_mode="reflection"), "GridSample 'node' [P5]: padding_mode='reflection'"),
    (one("GridSample", [PLANE, X]), "GridSample 'node': a grid of shape"),
    (one("RoiAlign", [PLANE, BOXES, I64(0)]), "RoiAlign 'node': sampling_ratio=0: below 1 the size of a box decides"),
    (one("RoiAlign", [PLANE, BOXES, I64(0)], mode="max"), "RoiAlign 'node' [P5]: mode='max' is not supported"),
    (one("RoiAlign", [PLANE, BOXES, I64(-1)], known=2, sampling_ratio=1), "RoiAlign 'node': batch_indices must not be"),
    (one("Squeeze", [PLANE, I64()], known=1), "Squeeze 'node': axes is empty: ONNX's reference drops no axis then"),
    (one("NonMaxSuppression", [X, X]), "NonMaxSuppression 'node': how many boxes are left depends on the data"),
    (one("Resize", [PLANE, None, TWICE], known=1, nearest_mode="up"), "Resize 'node' [P5]: coordinate_transf"),
    (one("Resize", [PLANE, None, TWICE], known=1, coordinate_transformation_mode="tf_half_pixel_for_nn"),
     "Resize 'node' [P5]: coordinate_transformation_mode='tf_half_pixel_for_nn' with nearest_mode="),
    (one("Resize", [PLANE, None, F32(1, 1, 0.7, 1)], known=1, coordinate_transformation_mode="align_corners"),
     "Resize 'node' [P5]: align_corners by scales that give a part of a cell: ONNX's text and its reference differ"),
    (one("Softmax", [F32(1, 2)], opset=12), "Softmax 'node': axis: axis 1 does not exist; the value has 1 axes"),
    (one("Cast", [F32(256)], to=TensorProto.UINT8, known=0), "Cast 'node': known numbers beyond UINT8 have no meaning"),
    (one("Cast", [F32(-1)], to=TensorProto.UINT8, known=0), "Cast 'node': known numbers beyond UINT8 have no meaning"),
    (one("Cast", [F32(2**31)], to=TensorProto.INT32, known=0), "Cast 'node': known numbers beyond INT32 have no mean"),
    (one("Cast", [F32(2**63)], to=TensorProto.INT64, known=0), "Cast 'node': known numbers beyond INT64 have no mean"),
    (one("Cast", [F32(np.nan)], to=TensorProto.INT64, known=0), "Cast 'node': known numbers beyond INT64 have no mea"),
    (one("Pow", [I64(1, 2), SCALAR(-1)], known=1), "Pow 'node': exponent -1.0 of integers must be a whole number from"),
    (one("Pow", [X, X]), "Pow 'node': the exponent must be a constant; it depends on the input"),
    (one("Reshape", [X, I64(24)]), "Reshape 'node': shape must be a constant; it depends on the input"),
    (one("GroupNormalization", [IMAGE, *UNIT[:2]], num_groups=1, opset=18), "GroupNormalization 'node': version 18"),
    (one("Relu", [X], opset=6), "from_onnx: opset 6 is not supported; opsets 7 to"),
    (one("Relu", [X, X]), "Relu 'node': 2 inputs and 1 outputs do not fit version 14 of the operator"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "message"), REFUSALS, ids=[m[:60] for _, m in REFUSALS])
def test_refused_by_name(case: Any, message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(case[0])
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_page_is_current() -> None:
    """docs/reference/onnx.md, which names every attribute of every version that is read."""
    root = Path(__file__).parents[2]
    document = runpy.run_path(str(root / "tools" / "make_onnx.py"))["document"]()
    assert (root / "docs" / "reference" / "onnx.md").read_text() == document
    for name, known in all_operators().items():
        row = next(line for line in document.splitlines() if line.startswith(f"| {name} |"))
        assert all(a in row for v in known.versions for a in onnx.defs.get_schema(name, v, "").attributes)


# --- what an Expand repeats ---------------------------------------------------------------------------------------


def _expanded(op: str, shape: tuple[int, ...], *more: Any, expanded: int, **attributes: Any) -> tuple[Any, Any]:
    """A node on x and constants, and the same with an Expand between it and one of them."""
    arrays = {f"c{i}": np.asarray(a, np.float32) for i, a in enumerate(more)}
    result = (shape[0], arrays["c0"].shape[0]) if op == "Gemm" else shape
    tensors = [onnx.numpy_helper.from_array(a, n) for n, a in arrays.items()]
    tensors.append(onnx.numpy_helper.from_array(np.array(result, np.int64), "shape"))
    info = onnx.helper.make_tensor_value_info
    made = []
    for name in (f"c{expanded}", "whole"):
        inputs = ["x", *(name if k == f"c{expanded}" else k for k in arrays)]
        nodes = [onnx.helper.make_node(op, inputs, ["y"], **attributes)]
        if name == "whole":
            nodes.insert(0, onnx.helper.make_node("Expand", [f"c{expanded}", "shape"], ["whole"]))
        ends = [info("x", 1, shape)], [info("y", 1, result)]
        made.append(from_onnx(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", *ends, tensors))))
    return made[0], made[1]


@pytest.mark.parametrize("rows", [1, 3])
def test_a_bias_that_is_expanded_is_the_bias(rows: int) -> None:
    from specgrad.equivalence.matching import same_node_for_node

    w, b = np.arange(8).reshape(4, 2), np.arange(4)
    plain, written = _expanded("Gemm", (rows, 2), w, b, expanded=1, transB=1)
    assert same_node_for_node(plain, written)
    x = np.arange(2.0 * rows).reshape(rows, 2)
    assert (written(x) == x @ w.T + b).all()
    full = np.arange(4.0 * rows).reshape(rows, 4)  # a matrix that repeats no row
    other, _ = _expanded("Gemm", (rows, 2), w, full, expanded=1, transB=1)
    assert (other(x) == x @ w.T + full).all()


def test_an_exponent_that_is_expanded_is_one_number() -> None:
    from specgrad.equivalence.matching import same_node_for_node

    plain, written = _expanded("Pow", (300, 300), 2.0, expanded=0)  # more cells than are computed while importing
    assert same_node_for_node(plain, written)
    assert (written(np.full((300, 300), 3.0)) == 9).all()
    with pytest.raises(sg.SpecgradError, match="the exponent must be one number"):
        _expanded("Pow", (2, 3), [1.0, 2.0, 3.0], expanded=0)


@pytest.mark.parametrize("mode", ["up", "down"])
def test_round_mode_of_cast_is_its_default_or_refused(mode: str) -> None:
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=10, round_mode=mode, saturate=1)
    graph = onnx.helper.make_graph([node], "g", [info("x", 1, [2])], [info("y", 10, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 25)])
    if mode == "up":
        assert from_onnx(model).nodes
    else:
        with pytest.raises(sg.SpecgradError, match="round_mode='down' is not supported"):
            from_onnx(model)


@pytest.mark.parametrize(
    ("op", "x", "w", "y", "count"),
    [
        ("MatMul", (2, 3), (3, 5), (2, 5), 2 * 3 * 5),
        ("ConvTranspose", (1, 2, 4, 4), (2, 3, 2, 2), (1, 3, 8, 8), 2 * 4 * 4 * 3 * 2 * 2),
        ("Conv", (1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 2, 2), 3 * 2 * 2 * 2 * 3 * 3),
        ("GRU", (7, 1, 4), (1, 9, 4), (7, 1, 1, 3), 7 * 9 * 4),
    ],
)
def test_multiply_adds_of_a_node_need_all_shapes(op: str, x: Any, w: Any, y: Any, count: int) -> None:
    """Counted by hand from the shapes; without the first input's, weights' or result's nothing is said."""
    node = helper.make_node(op, ["x", "w"], ["y"])
    shapes = {"x": x, "w": w, "y": y}
    assert multiply_adds(node, shapes) == count
    for missing in shapes:
        assert multiply_adds(node, {n: s for n, s in shapes.items() if n != missing}) is None
