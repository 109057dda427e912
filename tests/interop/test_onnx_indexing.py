"""Cells at known positions, masks, and equations in ONNX files, against ONNX Runtime; what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnx_cases as cases
import specgrad as sg
from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.interop import from_onnx, to_onnx
from specgrad.rounding import radius

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
    ("ScatterElements", [X, RNG.integers(-5, 5, (3, 4, 7)), numbers(3, 4, 7)], {"axis": -1, "reduction": "add"}),
    ("ScatterElements", [X, RNG.integers(-4, 4, (3, 2, 5)), numbers(3, 2, 5)], {"axis": 1, "reduction": "add"}),
    ("ScatterElements", [0 * X, RNG.integers(0, 3, (9, 4, 5)), numbers(9, 4, 5)], {"reduction": "add"}),
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


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_what_booleans_decide_is_sure(op: str) -> None:
    """Whichever of the four pairs: a product of two zeros may underflow in a float, and left it open."""
    a, b = np.float32([1, 1, -1, -1]), np.float32([1, -1, 1, -1])
    nodes = [
        helper.make_node("Greater", ["a", "zero"], ["p"]),
        helper.make_node("Greater", ["b", "zero"], ["q"]),
        helper.make_node(op, ["p", "q"], ["r"]),
        helper.make_node("Where", ["r", "large", "small"], ["z"]),
    ]
    known = {"zero": np.float32([0]), "large": np.float32([5]), "small": np.float32([-5])}
    ball = radius(from_onnx(cases.network(nodes, {"a": a, "b": b}, ["z"], known)), a, b).outputs
    decided = {"And": (a > 0) & (b > 0), "Or": (a > 0) | (b > 0), "Xor": (a > 0) ^ (b > 0)}[op]
    np.testing.assert_array_equal(ball.value, np.where(decided, 5, -5))
    assert not np.any(ball.radius)


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
            "GatherND 'node': batch_dims=1 does not fit data (3, 4, 5) and indices (1, 1)",
        ),
        ("GatherND", [X, np.array([[3]])], {}, "GatherND 'node': indices must lie inside shape (3, 4, 5)"),
        (
            "GatherND",
            [X, np.array([[0, 0, 0, 0]])],
            {},
            "GatherND 'node': indices of shape (1, 4) must name 1 to 3 axes",
        ),
        ("ScatterND", [X, SPOTS, numbers(2, 5)], {"reduction": "mul"}, "ScatterND 'node' [P5]: reduction='mul' is not"),
        ("ScatterND", [X, SPOTS[[0, 0]], numbers(2, 5)], {}, "ScatterND 'node': a position that is written twice has"),
        (
            "ScatterND",
            [X, SPOTS, numbers(2, 4)],
            {},
            "ScatterND 'node': updates of shape (2, 4) must have shape (2, 5)",
        ),
        ("Trilu", [X[0, 0]], {}, "Trilu 'node': needs two axes; got shape (5,)"),
        ("Einsum", [X], {"equation": "...a->a"}, "Einsum 'node': einsum [P5]: an ellipsis is three dots, once in a"),
        ("Einsum", [X], {"equation": "..a->..a"}, "Einsum 'node': einsum [P5]: an ellipsis is three dots, once in a"),
        ("OneHot", [X, np.array(0), np.float32([0, 1])], {}, "OneHot 'node': depth=0 must be positive"),
        ("OneHot", [X, np.array(3), np.float32([0])], {}, "OneHot 'node': values must be two numbers"),
    ],
)
def test_refused_by_name(op: str, inputs: list[Any], given: dict[str, Any], message: str) -> None:
    model, _ = cases.one(op, inputs, opset=18, known=1, **given)
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(model)
    assert message in str(caught.value)


# --- derivatives, written and read again ------------------------------------------------------------------------------

LOSSES = {
    "max_pool": (lambda x: sg.max_pool(x, (2, 2), stride=2), (2, 3, 4, 4)),
    "overlapping": (lambda x: sg.max_pool(x, (3, 3), stride=2, padding=1), (1, 2, 5, 4)),
    "one axis": (lambda x: sg.max_pool(sg.relu(x), (3,)), (2, 2, 9)),
    "gather": (lambda x: sg.gather(x, np.array([[0, 2], [2, -1]]), axis=1), (2, 4, 3)),
    "pool of pool": (lambda x: sg.max_pool(sg.max_pool(x, (2, 2)), (2, 2)), (1, 2, 4, 4)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_gradient_is_read_back(name: str) -> None:
    """Exactly, over rationals, ties included; and as ONNX Runtime computes the file, on small integers."""
    function, shape = LOSSES[name]
    gradient = sg.grad(sg.trace(lambda x: sg.sum(sg.power(function(x), 2)), shape))
    file = to_onnx(gradient)
    read = from_onnx(file)
    x = np.random.default_rng(5).integers(-3, 3, shape).astype(np.float32)
    lifted = replace(read, constants={p: sg.exact(a) if a.dtype.kind == "f" else a for p, a in read.constants.items()})
    assert (np.asarray(lifted(sg.exact(x))) == np.asarray(gradient(sg.exact(x)))).all()
    np.testing.assert_array_equal(np.asarray(read(x)), cases.runtime(file, [x])[0])


def test_what_scatters_otherwise_is_refused() -> None:
    """Other reductions, positions that are equal or may be, and indices outside of the data."""
    model, _ = cases.one(
        "ScatterElements", [X, np.zeros((1, 4, 5), np.int64), numbers(1, 4, 5)], opset=18, known=1, reduction="mul"
    )
    with pytest.raises(SpecgradError, match="reduction='mul' is not supported"):
        from_onnx(model)
    twice = [X, np.zeros((2, 4, 5), np.int64), numbers(2, 4, 5)]
    for known, text in ((1, "written twice has no meaning"), (2, "computed positions may be equal")):
        model, _ = cases.one("ScatterElements", twice, opset=18, known=known)
        with pytest.raises(UnsupportedError, match=text):
            from_onnx(model)
    for where in ((1, 5, 5), (1, 4)):
        model, _ = cases.one("ScatterElements", [X, np.zeros(where, np.int64), numbers(*where)], opset=18, known=1)
        with pytest.raises(SpecgradError, match="must lie in the data"):
            from_onnx(model)


def test_updates_at_the_positions_of_a_top_k_are_written() -> None:
    """They differ along their axis: softmax of the two largest, 0 elsewhere, as mixtures of experts have it."""
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=-1),
        helper.make_node("Softmax", ["v"], ["s"], axis=-1),
        helper.make_node("ScatterElements", ["zeros", "i", "s"], ["y"], axis=-1),
    ]
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    model = cases.network(nodes, {"x": x}, ["y"], {"k": np.array([2]), "zeros": np.zeros((4, 6), np.float32)}, 18)
    assert radius(from_onnx(model), x).outputs.contains(cases.runtime(model, [x])[0].astype(np.float64)).all()


def test_a_fractional_index_of_one_hot_is_cut_off() -> None:
    """As ONNX says; ONNX Runtime 1.31 compares it with whole numbers, and no cell is hot."""
    where = np.float32([0.25, 1.75, -1.5, -0.25])
    model, fed = cases.one("OneHot", [where, np.float32([3]), np.float32([2, 7])], known=1)
    np.testing.assert_array_equal(from_onnx(model)(where), np.where(np.eye(3)[[0, 1, 2, 0]] == 1, 7, 2))
    assert (cases.runtime(model, fed)[0] == 2).all()


def test_a_slice_that_starts_before_the_first_cell_and_goes_back() -> None:
    """It has the first cell, in ONNX; in Python none. Of known values, too."""
    model, fed = cases.one("Slice", [X, *map(np.array, ([-9], [-99], [0], [-1]))], known=1)
    np.testing.assert_array_equal(from_onnx(model)(*fed), X[:1])
    nodes = [helper.make_node("Slice", ["s", "a", "b", "c", "c"], ["t"]), helper.make_node("Expand", ["x", "t"], ["y"])]
    constants = {"s": np.array([4, 3]), "a": np.array([-9]), "b": np.array([-99]), "c": np.array([0])}
    nodes[0].input[4] = "back"
    model = cases.network(nodes, {"x": numbers(1)}, ["y"], {**constants, "back": np.array([-1])})
    assert from_onnx(model).nodes[-1].shape == cases.runtime(model, [numbers(1)])[0].shape == (4,)


def test_positions_that_are_moved_otherwise_are_refused() -> None:
    """Indices of MaxPool less anything but the cells of the planes before."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "i"], name="pool", kernel_shape=[2, 2]),
        helper.make_node("Sub", ["i", "by"], ["y"], name="moved"),
    ]
    x = numbers(1, 2, 3, 3)
    right = np.array([0, 9]).reshape(1, 2, 1, 1)
    for by, fine in ((right, True), (right + 1, False), (right[:, :1], False)):
        model = cases.network(nodes, {"x": x}, ["y"], {"by": by}, 18)
        if fine:
            corners = [(c, i, j) for c in range(2) for i in range(2) for j in range(2)]
            cells = [
                [(-x[0, c, i + a, j + b], (i + a) * 3 + j + b) for a in (0, 1) for b in (0, 1)] for c, i, j in corners
            ]
            assert from_onnx(model)(x).ravel().tolist() == [min(window)[1] for window in cells]
        else:
            with pytest.raises(UnsupportedError, match="plane by plane"):
                from_onnx(model)


@pytest.mark.parametrize("ends", [(0, 5, 1), (3, -4, -2), (0, 0, 1)])
def test_a_range_of_floats_that_are_exact(ends) -> None:
    """As detectors make their grids; where steps are rounded it is refused, since runtimes step by sums or products."""
    names = dict(zip("abc", ends, strict=True))

    def model(shift: float):
        tensors = [numpy_helper.from_array(np.array(v + shift, np.float32), n) for n, v in names.items()]
        nodes = [helper.make_node("Range", list("abc"), ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1]), ("y", None)))
        graph = helper.make_graph(nodes, "g", [x], [y], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)

    np.testing.assert_array_equal(from_onnx(model(0))(np.float32([0.5])), np.arange(*ends) + 0.5)
    quarters = from_onnx(model(0.25))(np.float32([0.5]))
    np.testing.assert_array_equal(quarters, np.arange(*(v + 0.25 for v in ends)) + 0.5)
    if ends[1]:
        with pytest.raises(SpecgradError, match="its steps, or how many there are, are rounded"):
            from_onnx(model(0.1))


def test_what_is_scattered_may_be_added_onto_the_data_one_by_one() -> None:
    """As ONNX Runtime does: no sum of updates is ever stored, and each addition rounds at the size of the data."""
    x, u = np.full((1, 1), 1e4, np.float32), np.full((60, 1), 0.1, np.float32)
    model, given = cases.one("ScatterElements", [x, np.zeros((60, 1), np.int64), u], reduction="add")
    (y,) = cases.runtime(model, given)
    graph = from_onnx(model)
    ball = radius(graph, x, np.zeros((60, 1), np.int64), u).outputs
    assert ball.contains(y.astype(np.float64)).all()
    fixed = cases.network(
        [helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], reduction="add")],
        {"x": x, "u": u},
        ["y"],
        {"i": np.zeros((60, 1), np.int64)},
    )
    assert radius(from_onnx(fixed), x, u).outputs.contains(y.astype(np.float64)).all()


@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_slopes_of_a_grid_are_those_of_pytorch(padding: str) -> None:
    """In the image and in the grid, between cells; and the radius of a sampled image is a few roundings."""
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(RNG.normal(size=(2, 2, 4, 5))).requires_grad_()
    grid = torch.from_numpy(RNG.random((2, 3, 2, 2)) * 2.4 - 1.2).requires_grad_()
    y = torch.nn.functional.grid_sample(x, grid, padding_mode=padding, align_corners=False)
    given = [v.detach().numpy() for v in (x, grid)]
    model, _ = cases.one("GridSample", [v.astype(np.float32) for v in given], opset=20, padding_mode=padding)
    graph = from_onnx(model)
    weights = RNG.normal(size=tuple(y.shape))
    expected = torch.autograd.grad(y, (x, grid), torch.from_numpy(weights))
    _, *found = sg.vjp(graph)(*given, weights)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-10, atol=1e-12)
    assert radius(graph, *(v.astype(np.float32) for v in given)).outputs.radius.max() < 3e-5


def test_cubic_resizing_is_exact_over_rationals() -> None:
    """Twice as many cells, a = -3/4: the weights of Keys' cubic at quarters, by hand."""
    x = np.zeros((1, 1, 1, 7), np.float32)
    x[..., 3] = 1
    model, _ = cases.one("Resize", [x, None, np.float32([1, 1, 1, 2])], opset=18, known=1, mode="cubic")
    read = from_onnx(model)
    lifted = replace(read, constants={p: sg.exact(a) for p, a in read.constants.items()})

    def weight(u: Fraction, a: Fraction = Fraction(-3, 4)) -> Fraction:
        near, far = (a + 2) * u**3 - (a + 3) * u**2 + 1, a * (u**3 - 5 * u**2 + 8 * u - 4)
        return near if u <= 1 else far if u < 2 else Fraction(0)

    expected = [weight(abs(Fraction(2 * o - 1, 4) - 3)) for o in range(14)]
    assert np.asarray(lifted(sg.exact(x))).reshape(-1).tolist() == expected
    assert (
        radius(read, x).outputs.radius.max() < 0.1
    )  # weights are computed of axes that keep their size too, in any order


def test_a_row_that_a_mask_shuts_out_is_what_an_exporter_makes_of_it() -> None:
    """Softmax, IsNaN, Where: what torch.onnx writes for attention with a mask. Nothing is claimed of a row without a
    cell, 0 in every runtime; of the others the choice is known.
    """
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node("IsNaN", ["p"], ["n"]),
        helper.make_node("Where", ["n", "zero", "p"], ["y"]),
    ]
    x = numbers(3, 4)
    x[0, 2], x[2] = -np.inf, -np.inf
    model = cases.network(nodes, {"x": x}, ["y"], {"zero": np.float32(0)})
    graph = from_onnx(model)
    (expected,) = cases.runtime(model, [x])
    assert (expected[2] == 0).all()
    np.testing.assert_allclose(np.asarray(graph(x)), expected, rtol=1e-6)
    found = radius(graph, x).outputs
    assert found.contains(expected.astype(float)).all()
    assert found.radius[:2].max() < 1e-5
    assert not np.isfinite(found.radius[2]).any()
    np.testing.assert_array_equal(sg.jvp(graph)(X[0, :3, :4], np.ones((3, 4), np.float32))[1], np.zeros((3, 4)))
