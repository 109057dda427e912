"""int32 and int64 that a model computes with: exact whole numbers, unknown where they leave their type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnx_cases import info, network, one, runtime
from specgrad import SpecgradError
from specgrad.bounds import certify
from specgrad.check import audit
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read.integers import number_inputs
from specgrad.rounding import radius

A = np.array([[7, -7, 3, 0], [-3, 12, 5, -9]])
B = np.array([[2, 2, -5, 4], [-3, 5, 1, -2]])
REALS = np.array([2.75, -2.75, 0.5, -0.5, 3.0, -3.0, 0.0, 1e6 + 0.5], np.float32)


def outputs_of_type(model: onnx.ModelProto, elem_type: int) -> onnx.ModelProto:
    for end in model.graph.output:
        end.type.tensor_type.elem_type = elem_type
    return model


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"])
def test_arithmetic(op: str, dtype: Any) -> None:
    model, arrays = one(op, [A.astype(dtype), B.astype(dtype)], opset=18)
    model = outputs_of_type(model, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    graph = from_onnx(model)
    assert (graph(*(a.astype(np.float64) for a in arrays)) == runtime(model, arrays)[0]).all()
    assert graph.integer_layers == ("node",)


@pytest.mark.parametrize("op", ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_comparisons(op: str, dtype: Any) -> None:
    model, arrays = one(op, [A.astype(dtype), B.astype(dtype)], opset=18)
    model = outputs_of_type(model, TensorProto.BOOL)
    assert (from_onnx(model)(*(a.astype(np.float64) for a in arrays)) == runtime(model, arrays)[0]).all()


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin"])
def test_reductions(op: str) -> None:
    model, arrays = one(op, [A.astype(np.int32), np.array([1])], opset=18, known=1)
    model = outputs_of_type(model, TensorProto.INT32)
    assert (from_onnx(model)(arrays[0].astype(np.float64)) == runtime(model, arrays)[0]).all()


# --- casts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL])
def test_casts_of_floats(to: int) -> None:
    """Towards zero; true is what is not 0."""
    model, arrays = one("Cast", [REALS], to=to)
    assert (from_onnx(model)(REALS.astype(np.float64)) == runtime(outputs_of_type(model, to), arrays)[0]).all()


@pytest.mark.parametrize("to", [TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.BOOL])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_casts_of_integers(dtype: Any, to: int) -> None:
    if to == TensorProto.INT32 and dtype == np.int32:
        return
    model, arrays = one("Cast", [A.astype(dtype)], to=to)
    assert (from_onnx(model)(A.astype(np.float64)) == runtime(outputs_of_type(model, to), arrays)[0]).all()


def test_nothing_is_claimed_beyond_the_type() -> None:
    """2**31 as int32 is what ONNX does not say, and a runtime's number is not ours."""
    model, _ = one("Cast", [np.zeros(4, np.float32)], to=TensorProto.INT32)
    graph = from_onnx(model)
    ball = radius(graph, np.float32([2.0**31, -(2.0**32), 2.0**30, 5.5]), formats=graph.formats).outputs
    assert np.isinf(ball.radius).tolist() == [True, True, False, False]
    assert ball.value[2:].tolist() == [2.0**30, 5.0]


def test_sums_that_may_wrap_are_unknown() -> None:
    model, _ = one("Add", [np.zeros(3, np.int32), np.zeros(3, np.int32)], opset=18)
    graph = from_onnx(model)
    ball = radius(
        graph, np.array([2.0**30, 2.0**30, 1.0]), np.array([2.0**30, 1.0, 1.0]), formats=graph.formats
    ).outputs
    assert np.isinf(ball.radius).tolist() == [True, False, False]
    assert ball.radius[1:].tolist() == [0, 0]


def test_known_numbers_that_wrap_are_refused() -> None:
    model, _ = one("Mul", [np.int32([2**20]), np.int32([2**20])], known=0, opset=18)
    with pytest.raises(SpecgradError, match="Mul 'node': known numbers leave INT32, and wrap around"):
        from_onnx(model)


@pytest.mark.parametrize(
    ("op", "dtype", "a", "b"),
    [
        ("Sub", np.uint8, 6, 15),
        ("Sub", np.uint64, 6, 15),
        ("Add", np.int8, 100, 100),
        ("Mul", np.uint16, 2**9, 2**9),
        ("Sub", np.uint64, 2**63 + 5, 2**63),
    ],
)
def test_known_numbers_that_leave_their_type_are_refused(op: str, dtype: Any, a: int, b: int) -> None:
    """They are folded in int64, which would hold them."""
    model, _ = one(op, [np.array([a], dtype), np.array([b], dtype)], known=0, opset=18)
    with pytest.raises(SpecgradError, match=r"wrap around|beyond INT64"):
        from_onnx(model)


def test_certify_refuses_integers_inside() -> None:
    """A box would not see them wrap."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], name="cast", to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    model = network(nodes, {"x": (1, 2)}, ["y"])
    with pytest.raises(SpecgradError, match=r"certify \[P5\]: layer 'cast' computes with integers, which may wrap"):
        certify(model, (np.zeros((1, 2), np.float32), 0, 0.1))


# --- positions ------------------------------------------------------------------------------------------------------


def test_positions_become_numbers() -> None:
    """The position of the largest cell of each row, as a float, and compared."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["i"], axis=1, keepdims=0),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Equal", ["i", "two"], ["is"]),
        helper.make_node("Cast", ["is"], ["g"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "g"], ["y"]),
    ]
    x = A.astype(np.float32)
    model = network(nodes, {"x": x}, ["y"], {"two": np.array(1)}, 18)
    assert (from_onnx(model)(x.astype(np.float64)) == runtime(model, [x])[0]).all()


def test_inputs_that_are_computed_with_are_numbers_and_others_positions() -> None:
    nodes = [
        helper.make_node("Unsqueeze", ["mask", "axis"], ["m1"]),
        helper.make_node("Cast", ["m1"], ["m2"], to=TensorProto.FLOAT),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Mul", ["m2", "rows"], ["y"], name="mul"),
        helper.make_node("Gather", ["table", "both"], ["z"]),
        helper.make_node("Equal", ["both", "axis"], ["pad"], name="pad"),
    ]
    inputs = {name: np.zeros(3, np.int64) for name in ("mask", "ids", "both")}
    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    model = network(nodes, inputs, ["y", "z"], {"axis": np.array([1]), "table": table}, 18)
    assert number_inputs(model.graph) == {"mask"}
    with pytest.raises(SpecgradError, match="Equal 'pad': input 0 holds positions, of which it is not known how far"):
        from_onnx(model)
    model.graph.node.pop()
    given = [np.array([1, 0, 1]), np.array([3, 0, 1]), np.array([2, 2, 0])]
    graph = from_onnx(model)
    for ours, theirs in zip(graph(given[0].astype(float), *given[1:]), runtime(model, given), strict=True):
        assert (ours == theirs).all()
    assert audit(model, "onnxruntime", given).verdict == "exact"


def test_a_one_hot_row_as_exporters_write_it() -> None:
    """Reshape, Expand, Equal with all numbers, Cast: what magika begins with."""
    nodes = [
        helper.make_node("Reshape", ["ids", "column"], ["c"]),
        helper.make_node("Expand", ["c", "size"], ["e"]),
        helper.make_node("Equal", ["e", "all"], ["q"]),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    constants = {"column": np.array([3, 1]), "size": np.array([3, 5]), "all": np.arange(5, dtype=np.int32)}
    ids = np.array([4, 0, 2], np.int32)
    model = network(nodes, {"ids": ids}, ["y"], constants, 18)
    assert model.graph.input[0].type == info("ids", (3,), TensorProto.INT32).type
    assert (from_onnx(model)(ids.astype(float)) == np.eye(5)[ids]).all()
    done = audit(model, "onnxruntime", ids)
    assert done.verdict == "exact"


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.INT64])
def test_positions_have_the_type_that_a_cast_gives_them(to: int) -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["p"], axis=1), helper.make_node("Cast", ["p"], ["y"], to=to)]
    model = outputs_of_type(network(nodes, {"x": A.astype(np.float32)}, ["y"]), to)
    read = from_onnx(model)
    assert read.interface.outputs[0].type == TensorProto.DataType.Name(to).lower()
    expected = runtime(model, [A.astype(np.float32)])[0]
    assert (read(A.astype(np.float32)) == expected).all()


def test_known_floats_are_cast_up_to_the_ends_of_a_type() -> None:
    ends = np.float32([127.9, -128.9, 0.0, -0.9])
    nodes = [helper.make_node("Cast", ["k"], ["c"], to=TensorProto.INT8), helper.make_node("Cast", ["c"], ["f"], to=1)]
    model = network(
        [*nodes, helper.make_node("Add", ["f", "x"], ["y"])], {"x": np.zeros(4, np.float32)}, ["y"], {"k": ends}
    )
    assert from_onnx(model)(np.zeros(4)).tolist() == runtime(model, [np.zeros(4, np.float32)])[0].tolist()


# --- narrower types -------------------------------------------------------------------------------------------------

TYPES = ["int8", "uint8", "int16", "uint16", "int32", "int64", "uint32", "uint64"]


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bool", *TYPES])
def test_casts_among_all_types(source: str, to: str) -> None:
    """Numbers that the type holds are exact, others unknown; ONNX Runtime agrees wherever something is claimed."""
    x = np.array([0, 1, 5, 127, 128, 200, 255, 300, 40000], np.float64)
    x = x.astype(bool) if source == "bool" else np.minimum(x, np.iinfo(source).max if "int" in source else 4e4)
    x = x.astype(source)
    target = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    model, _ = one("Cast", [x], to=target)
    graph = from_onnx(model)
    ball = radius(graph, x.astype(float), formats=graph.formats).outputs
    (expected,) = runtime(outputs_of_type(model, target), [x])
    assert ball.contains(expected.astype(float)).all()
    held = x.astype(float) <= np.iinfo(to).max
    assert (ball.radius[held] == 0).all()
    assert (ball.value[held] == expected[held]).all()
    assert source == "bool" or np.isinf(ball.radius[~held]).all()


@pytest.mark.parametrize(("op", "inside"), [("Add", 100), ("Sub", 0), ("Mul", 10)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_narrow_sums_are_exact_inside_their_type_and_unknown_beyond(op: str, inside: int, dtype: str) -> None:
    a, b = np.array([inside, 100, 0, 120], dtype), np.array([7, 100, 1, 120], dtype)
    model, arrays = one(op, [a, b], opset=18)
    graph = from_onnx(outputs_of_type(model, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    ball = radius(graph, *(v.astype(float) for v in arrays), formats=graph.formats).outputs
    exact = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](a.astype(int), b.astype(int))
    limits = np.iinfo(dtype)
    held = (limits.min <= exact) & (exact <= limits.max)
    assert (ball.radius == np.where(held, 0, np.inf)).all()
    assert (ball.value == exact).all()
    with np.errstate(over="ignore"):
        wrapped = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op](a, b)
    assert ball.contains(wrapped.astype(float)).all()


@pytest.mark.parametrize("op", ["Abs", "Neg"])
def test_the_least_number_of_a_type_has_no_negative(op: str) -> None:
    model, _ = one(op, [np.zeros(2, np.int8)], opset=18)
    graph = from_onnx(model)
    ball = radius(graph, np.array([-128.0, -127.0]), formats=graph.formats).outputs
    assert np.isinf(ball.radius).tolist() == [True, False]
    assert ball.value.tolist() == [128, 127]


def test_booleans_and_tables_of_integers() -> None:
    """A row of a table of int64 by a position, chosen by a mask, compared, and used in a product."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["row"]),
        helper.make_node("Equal", ["mask", "other"], ["same"]),
        helper.make_node("Where", ["same", "row", "zero"], ["chosen"]),
        helper.make_node("Cast", ["chosen"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "half"], ["y"]),
    ]
    ids, mask = np.array([3, 0, 1]), np.array([True, True, False])
    constants = {"table": np.array([7, -5, 2, 9]), "other": np.array([True, False, False]), "zero": np.array(0)}
    model = network(nodes, {"ids": ids, "mask": mask}, ["y"], constants | {"half": np.float32(0.5)}, 18)
    assert (from_onnx(model)(ids, mask.astype(float)) == runtime(model, [ids, mask])[0]).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_the_least_cell_needs_no_negative(dtype: str) -> None:
    """-128 of int8 has none, and of uint8 only 0 has."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4)))
        x = rng.integers(0, 3, size=shape).astype(dtype)
        x.flat[0] = np.iinfo(dtype).min
        axes = rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)].astype(np.int64)
        keep, last = (int(n) for n in rng.integers(2, size=2))
        small, fed = one("ReduceMin", [x, axes], opset=18, known=1, keepdims=keep)
        where, _ = one("ArgMin", [x], opset=18, axis=int(axes[0]), keepdims=keep, select_last_index=last)
        outputs_of_type(small, helper.np_dtype_to_tensor_dtype(x.dtype))
        outputs_of_type(where, TensorProto.INT64)
        for model in (small, where):
            graph = from_onnx(model)
            ball, (want,) = radius(graph, x.astype(float), formats=graph.formats).outputs, runtime(model, fed)
            assert ball.value.shape == want.shape
            assert (ball.value == want).all()
            assert not ball.radius.any()
