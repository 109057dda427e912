"""Two models that their callers can tell apart are never "the same, node for node": what sets them apart is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import compare

pytest.importorskip("torch")
pytest.importorskip("flint")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import compared  # noqa: E402
from specgrad.graph import interface  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402

COMPARE = sys.modules["specgrad.check.comparison.compare"]
NODE_FOR_NODE = "node for node, weights bit for bit"
X = np.random.default_rng(1).normal(size=compared.SHAPE).astype(np.float32)
info = helper.make_tensor_value_info


def may_give_a_weight(model: Any) -> None:
    model.graph.input.append(info("fcb", TensorProto.FLOAT, (4,)))


def double_output(model: Any) -> None:
    model.graph.node[-1].output[0] = "narrow"
    model.graph.node.append(helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.DOUBLE))
    model.graph.output[0].CopyFrom(info("y", TensorProto.DOUBLE, None))


def another_input_name(model: Any) -> None:
    model.graph.input[0].name = model.graph.node[0].input[0] = "image"


def another_output_name(model: Any) -> None:
    model.graph.output[0].name = model.graph.node[-1].output[0] = "z"


def open_batch(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"


EDITS: dict[Callable[[Any], None], tuple[str, str]] = {
    may_give_a_weight: ("differs", "only the second lets its callers give fcb, which has a default"),
    double_output: ("same", "output y is declared as float and double"),
    another_input_name: ("same", "input 0 is called x and image"),
    another_output_name: ("same", "output 0 is called y and z"),
    open_batch: ("same", "inputs are declared with sizes (1, 2, 6, 6) and (N, 2, 6, 6)"),
}


def changed(edit: Callable[[Any], None]) -> Any:
    model = compared.original()
    edit(model)
    return model


def missed() -> list[str]:
    """The edits that are not said, or that are called the same node for node."""
    lost = []
    for edit in EDITS:
        done = compare(compared.original(), changed(edit), X)
        if (done.verdict, done.interface) != (EDITS[edit][0], (EDITS[edit][1],)) or NODE_FOR_NODE in done.method:
            lost.append(edit.__name__)
    return lost


@pytest.mark.quick
def test_what_callers_see_is_compared() -> None:
    assert missed() == []
    done = compare(compared.original(), compared.original(), X)
    assert (done.method, done.interface) == (NODE_FOR_NODE, ())


PLANTED: dict[str, tuple[str, Any]] = {
    "types are not compared": (
        "_declared_differences",
        lambda what, pairs: (t for t in ENDS(what, pairs) if "called" in t),
    ),
    "names are not compared": (
        "_declared_differences",
        lambda what, pairs: (t for t in ENDS(what, pairs) if "declared" in t),
    ),
    "open sizes are not compared": ("_has_undeclared_sizes", lambda pairs: True),
    "defaults are constants": ("only_one_takes", lambda a, b: []),
}
ENDS = interface._declared_differences


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_mistakes_are_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = PLANTED[mistake]
    monkeypatch.setattr(interface, name, wrong)
    if hasattr(COMPARE, name):
        monkeypatch.setattr(COMPARE, name, wrong)
    assert missed()


def test_a_default_that_only_one_may_replace_is_a_difference_at_other_values() -> None:
    """The sentence is true: ONNX Runtime takes fcb of the one and refuses it of the other."""
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(3)
    bias = np.full(4, 9, np.float32)
    sessions = [
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        for m in (changed(may_give_a_weight), compared.original())
    ]
    plain, shifted = (sessions[0].run(None, given)[0] for given in ({"x": X}, {"x": X, "fcb": bias}))
    assert abs(plain - shifted).max() > 1
    with pytest.raises(Exception, match="fcb"):
        sessions[1].run(None, {"x": X, "fcb": bias})


def test_before_version_4_constants_stood_among_the_inputs() -> None:
    old = changed(may_give_a_weight)
    old.ir_version = 3
    assert compare(old, compared.original(), X).method == NODE_FOR_NODE


# --- what callers may give: the verdict says at which defaults and sizes the models were looked at --------------------


def one_node(op: str, inputs: list[str], given: dict[str, Any], size: Any = 1, **attributes: Any) -> Any:
    """y = op(x, ...), where callers may give all arrays but k."""
    arrays = {"k": np.float32(0), **given}
    types = {name: helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype) for name, a in arrays.items()}
    ends = [info(name, types[name], np.shape(a)) for name, a in given.items()]
    made = helper.make_graph(
        [helper.make_node("Identity", ["m"], ["i"]), helper.make_node(op, inputs, ["y"], **attributes)],
        "g",
        [info("x", TensorProto.FLOAT, (size, 4)), *ends],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


THREE, SHAPE = np.float32(3), np.array([1, 4])
CROSSED: dict[str, list[Any]] = {
    "a parameter": [one_node("Clip", ["x", "k", n], {"m": THREE, "n": THREE}) for n in "mn"],
    "a shape": [one_node("Reshape", ["x", n], {"m": SHAPE, "n": SHAPE}) for n in "mn"],
    "a copy": [one_node("Mul", ["x", n], {"m": THREE, "n": THREE}) for n in "in"],
    "an operand": [one_node("Mul", ["x", n], {"m": THREE, "n": THREE}) for n in "mn"],
}
"""Files of which the one reads the default m where the other reads n, of the same value."""


def open_pairs() -> dict[str, tuple[Any, Any]]:
    """Files of an open batch that are one function where it is 1, and two elsewhere."""
    whole, one = (one_node("Reshape", ["x", "m"], {"m": np.array(s)}, "N") for s in ([0, 4], [1, -1]))
    total, mean = (one_node(op, ["x"], {"m": THREE}, "N", keepdims=1) for op in ("ReduceSum", "ReduceMean"))
    for model in (whole, one, total, mean):
        del model.graph.input[1:]
    mean.graph.node[1].attribute.append(helper.make_attribute("axes", [0]))
    total.graph.node[1].input.append("axes")
    total.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    return {"reshape": (whole, one), "sum and mean": (total, mean)}


def claimed() -> list[str]:
    """The pairs that are called the same without a word of the defaults or sizes at which they are."""
    defaults = [name for name, (a, b) in CROSSED.items() if "the default of m, n" not in compare(a, b).method]
    return defaults + [n for n, (a, b) in open_pairs().items() if "the sizes x (1, 4)" not in compare(a, b).method]


@pytest.mark.quick
def test_what_callers_may_give_is_said_beside_the_same() -> None:
    assert claimed() == []
    done = compare(*CROSSED["a parameter"])
    assert done.method == (
        "the same operators on the same values, weights bit for bit, at the default of m, n (others were not looked at)"
    )
    assert done.notes == ("m, n may be given or left out: what is said holds at the defaults",)
    shown = compare(*open_pairs()["sum and mean"]).method
    assert shown == "by rewriting over exact numbers, at the sizes x (1, 4) (others were not looked at)"


def test_a_verdict_without_its_places_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COMPARE, "_caller_choices", lambda declared, graph: "")
    assert len(claimed()) == len(CROSSED) + len(open_pairs())


def test_crossed_defaults_are_two_functions_of_what_callers_give() -> None:
    """ONNX Runtime says so of every pair; so "node for node" would be false of them."""
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(3)
    x = np.float32([[-1, 2, 5, 9]])
    for name, pair in CROSSED.items():
        sessions = [ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]) for m in pair]
        given = {"x": x, "m": np.array([4, 1]) if name == "a shape" else np.array(7, np.float32)}
        a, b = (s.run(None, given)[0] for s in sessions)
        assert a.shape != b.shape or (a != b).any(), name


def test_what_a_graph_keeps_of_its_file() -> None:
    """Imported graphs say what their files say; graphs of Python have names and sizes alone, modules nothing."""
    imported = [from_onnx(m) for m in (compared.original(), changed(double_output))]
    assert compare(*imported, X).interface == (EDITS[double_output][1],)
    assert compare(sg.trace(sg.relu, ("N", 2)), sg.trace(sg.relu, (1, 2)), np.ones((1, 2))).interface == (
        "inputs are declared with sizes (N, 2) and (1, 2)",
    )
    a, b = (sg.trace(lambda x, y: x - y, s, t) for s, t in ((("N",), ("N",)), (("N",), ("M",))))
    assert compare(a, b, np.ones(2), np.ones(2)).interface == ("inputs are declared with sizes (N), (N) and (N), (M)",)


def test_inputs_of_other_shapes_are_matched_by_name() -> None:
    """x and y in another order: by position neither would fit, and with equal shapes another function was fed."""
    first = sg.trace(lambda x, y: sg.relu(x) + sg.sum(y), (2, 3), (4,))
    second = sg.trace(lambda y, x: sg.relu(x) + sg.sum(y), (4,), (2, 3))
    given = np.zeros((2, 3), np.float32), np.ones(4, np.float32)
    done = compare(first, second, *given)
    assert (done.verdict, done.shapes) == ("same", {"x": (2, 3), "y": (4,)})
    assert done.notes[0] == "inputs were matched by their names: the second model takes them as y, x"
    other = sg.trace(lambda y, x: sg.relu(x) + 2 * sg.sum(y), (4,), (2, 3))
    witness = compare(first, other, *given).witness
    assert witness is not None
    assert (witness.value, witness.upper) == (4.0, pytest.approx(4.0))


def test_a_graph_that_takes_structures_is_not_compared() -> None:
    pair = sg.trace(lambda p: p[0] + p[1], ((3,), (3,)))
    with pytest.raises(sg.ParameterError, match="structures are not compared"):
        compare(pair, pair, [np.zeros(3), np.zeros(3)])


def test_inputs_in_another_order_are_said() -> None:
    a, b = sg.trace(lambda x, y: x - y, (2,), (2,)), sg.trace(lambda y, x: x - y, (2,), (2,))
    done = compare(a, b)
    assert (done.verdict, done.interface) == ("same", ("inputs are declared in another order: x, y and y, x",))
    assert NODE_FOR_NODE not in done.method


def test_the_sign_of_zero_is_no_bit_that_is_passed_over() -> None:
    a, b = (sg.trace(lambda x, low=low: sg.clamp(x, low), (2,)) for low in (0.0, -0.0))
    assert compare(a, b).method == "by rewriting over exact numbers"
    assert compare(b, b).method == NODE_FOR_NODE


# --- one function, two programs ---------------------------------------------------------------------------------------


@pytest.mark.quick
def test_spellings_that_rounding_tears_apart_are_said() -> None:
    """(x + 1e20) - 1e20 is x, and 0 in float32; so is x * 2**-100 * 2**-100 * 2**100 * 2**100."""
    x, plain = np.float32([3, -5]), sg.trace(lambda x: x, (2,))
    small, large = np.float32(2.0**-100), np.float32(2.0**100)
    lost = sg.trace(lambda x: (x + np.float32(1e20)) - np.float32(1e20), (2,))
    vanished = sg.trace(lambda x: x * small * small * large * large, (2,))
    for graph in (lost, vanished):
        done = compare(graph, plain, x)
        assert (done.verdict, done.method) == ("same", "by rewriting over exact numbers")
        assert done.executed is not None
        assert (done.executed.values, done.executed.index) == ((0, -5), (1,))
        assert done.executed.tolerances[1] == 0
        assert "not alike as programs (float32, fused)" in str(done)
        assert done.to_json()["executed"]["values"] == [0, -5]
    assert compare(vanished, plain, x).to_json()["executed"]["tolerances"] == [None, 0.0]


def test_spellings_within_the_tolerances_of_both_are_not_said() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(5, 7)).astype(np.float32)
    first = sg.trace(lambda x: sg.relu(sg.linear(w, None, x)) * 2, (1, 7))
    second = sg.trace(lambda x: sg.clamp(sg.linear(w, None, x), 0) + sg.relu(sg.matmul(x, w.T.copy())), (1, 7))
    third = sg.trace(lambda x: sg.clamp(sg.matmul(x, w.T.copy()), 0) * 4 / 2, (1, 7))
    for other in (second, third):
        done = compare(first, other)
        assert (done.verdict, done.executed) == ("same", None)


def test_positions_of_another_type_are_said() -> None:
    models = []
    for to in (TensorProto.INT64, TensorProto.INT32):
        nodes = [helper.make_node("ArgMax", ["x"], ["p"], axis=1), helper.make_node("Cast", ["p"], ["y"], to=to)]
        ends = [info("x", TensorProto.FLOAT, (2, 3))], [info("y", to, (2, 1))]
        models.append(helper.make_model(helper.make_graph(nodes, "net", *ends)))
    done = compare(*models)
    assert (done.verdict, done.interface) == ("same", ("output y is declared as int64 and int32",))
    assert NODE_FOR_NODE not in done.method


def test_outputs_in_another_order_are_matched_by_name() -> None:
    """As callers ask for them; names that are swapped make two functions, though by position they are one."""

    def model(*outputs: tuple[str, str]) -> Any:
        nodes = [helper.make_node(op, ["x"], [name]) for name, op in outputs]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name, _ in outputs]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
        graph = helper.make_graph(nodes, "g", [x], ends)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    first = model(("y", "Relu"), ("z", "Neg"))
    done = compare(first, model(("z", "Neg"), ("y", "Relu")))
    assert (done.verdict, done.interface) == ("same", ("outputs are declared in another order: y, z and z, y",))
    assert done.notes[0] == "outputs were matched by their names: the second model gives them as z, y"
    assert compare(first, model(("z", "Relu"), ("y", "Neg"))).verdict == "differs"
    assert compare(first, model(("p", "Relu"), ("q", "Neg"))).verdict == "same"
