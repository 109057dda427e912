"""Cells at known positions, masks, and equations in ONNX files, against ONNX Runtime; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import onnx_cases as cases
import specgrad as sg
from specgrad.interop import from_onnx

pytestmark = pytest.mark.quick
RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (3, 4, 5)).astype(np.float32)
PAIRS = np.array([[[2, 0], [-1, 3]], [[0, -4], [1, 1]]])
SPOTS = np.array([[0, 1], [2, 3]])


def numbers(*shape: int) -> np.ndarray:
    return RNG.integers(-9, 9, shape).astype(np.float32)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("GatherND", [X, PAIRS], {}),
    ("GatherND", [X, np.array([[2], [0], [-3]])], {}),
    ("GatherND", [X, np.array([1, 2, -5])], {}),
    ("ScatterND", [X, SPOTS, numbers(2, 5)], {}),
    ("ScatterND", [X, np.array([[-1], [0]]), numbers(2, 4, 5)], {}),
    ("ScatterND", [X, np.array([[0, 0, 0], [-1, -1, -1]]), numbers(2)], {}),
    ("Trilu", [X], {}),
    ("Trilu", [X, np.array(-1)], {"upper": 0}),
    ("Trilu", [X, np.array(2)], {"upper": 1}),
    ("Einsum", [X, numbers(2, 5)], {"equation": "abc,dc->abd"}),
    ("Einsum", [numbers(4, 4)], {"equation": "ii->i"}),
    ("Einsum", [X], {"equation": "abc -> cb"}),
    ("Einsum", [X], {"equation": "abc->"}),
    ("Einsum", [numbers(2, 3), numbers(4, 3)], {"equation": "ij,kj"}),
    ("Einsum", [numbers(2, 3), numbers(3, 4)], {"equation": "ij,jk->i"}),
]


@pytest.mark.parametrize(("op", "inputs", "given"), CASES)
@pytest.mark.parametrize("opset", [16, 20])
def test_equals_onnxruntime(op: str, inputs: list[Any], given: dict[str, Any], opset: int) -> None:
    """Small integers: exact in float32, whatever the order."""
    known = 99 if op == "Einsum" else 1
    model, fed = cases.one(op, inputs, opset=opset, known=known, **given)
    graph = from_onnx(model)
    (expected,) = cases.runtime(model, fed)
    np.testing.assert_array_equal(np.asarray(graph(*fed)), expected)


def test_updates_may_depend_on_the_data_and_the_data_be_constant() -> None:
    node = helper.make_node("ScatterND", ["data", "at", "x"], ["y"], name="node")
    x = numbers(2, 5)
    model = cases.network([node], {"x": x}, ["y"], {"data": X, "at": SPOTS}, 18)
    np.testing.assert_array_equal(from_onnx(model)(x), cases.runtime(model, [x])[0])


def test_masks() -> None:
    """not (x > 0 and x > y) or y > x, where it holds x, else y."""
    x, y = numbers(4, 5), numbers(4, 5)
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["a"]),
        helper.make_node("Greater", ["x", "y"], ["b"]),
        helper.make_node("And", ["a", "b"], ["c"]),
        helper.make_node("Not", ["c"], ["d"]),
        helper.make_node("Less", ["x", "y"], ["e"]),
        helper.make_node("Or", ["d", "e"], ["f"]),
        helper.make_node("Where", ["f", "x", "y"], ["z"]),
    ]
    model = cases.network(nodes, {"x": x, "y": y}, ["z"], {"zero": np.float32([0])})
    np.testing.assert_array_equal(from_onnx(model)(x, y), cases.runtime(model, [x, y])[0])


def test_a_mask_that_is_known_beside_one_that_is_not() -> None:
    x = numbers(4, 5)
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["a"]),
        helper.make_node("And", ["known", "a"], ["b"]),
        helper.make_node("Not", ["known"], ["c"]),
        helper.make_node("Or", ["b", "c"], ["d"]),
        helper.make_node("Where", ["d", "x", "zero"], ["z"]),
    ]
    known = np.arange(20).reshape(4, 5) % 3 == 0
    model = cases.network(nodes, {"x": x}, ["z"], {"zero": np.float32([0]), "known": known})
    graph = from_onnx(model)
    np.testing.assert_array_equal(graph(x), cases.runtime(model, [x])[0])
    assert all(a.dtype != object for a in graph.constants.values())


def test_known_integers_are_folded() -> None:
    """A shape computed by ScatterND and GatherND is known while importing."""
    nodes = [
        helper.make_node("ScatterND", ["s", "at", "new"], ["t"]),
        helper.make_node("GatherND", ["t", "order"], ["u"]),
        helper.make_node("Reshape", ["x", "u"], ["y"]),
    ]
    constants = {"at": np.array([[0]]), "new": np.array([2]), "order": np.array([[1], [0]]), "s": np.array([9, 3])}
    model = cases.network(nodes, {"x": numbers(1, 6)}, ["y"], constants)
    assert from_onnx(model).nodes[-1].shape == (3, 2)


@pytest.mark.parametrize(
    ("op", "inputs", "given", "message"),
    [
        (
            "GatherND",
            [X, np.array([[0]])],
            {"batch_dims": 1},
            "GatherND 'node' [P5]: batch_dims=1 is not supported; only 0",
        ),
        ("GatherND", [X, np.array([[3]])], {}, "GatherND 'node': indices must lie inside shape (3, 4, 5)"),
        (
            "GatherND",
            [X, np.array([[0, 0, 0, 0]])],
            {},
            "GatherND 'node': indices of shape (1, 4) must name 1 to 3 axes",
        ),
        ("ScatterND", [X, SPOTS, numbers(2, 5)], {"reduction": "add"}, "ScatterND 'node' [P5]: reduction='add' is not"),
        ("ScatterND", [X, SPOTS[[0, 0]], numbers(2, 5)], {}, "ScatterND 'node': a position that is written twice has"),
        (
            "ScatterND",
            [X, SPOTS, numbers(2, 4)],
            {},
            "ScatterND 'node': updates of shape (2, 4) must have shape (2, 5)",
        ),
        ("Trilu", [X[0, 0]], {}, "Trilu 'node': needs two axes; got shape (5,)"),
        ("Einsum", [X], {"equation": "...a->a"}, "Einsum 'node': einsum [P5]: an ellipsis is not supported"),
    ],
)
def test_refused_by_name(op: str, inputs: list[Any], given: dict[str, Any], message: str) -> None:
    model, _ = cases.one(op, inputs, opset=18, known=1, **given)
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(model)
    assert message in str(caught.value)
