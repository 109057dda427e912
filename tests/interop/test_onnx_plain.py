"""Files as toolchains write them: nodes out of order, functions, inputs at a value, open sizes under other names."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from onnx_cases import info, network, runtime
from specgrad import SpecgradError
from specgrad.check import audit
from specgrad.cli.main import app
from specgrad.interop import from_onnx
from specgrad.interop.model import open_model
from specgrad.interop.onnx.plain import SORTED, sorted_nodes

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def chain(count: int) -> list[onnx.NodeProto]:
    """v0 -> v1 -> ... and each third value is also added at the end."""
    nodes = [helper.make_node("Relu" if k % 2 else "Neg", [f"v{k}"], [f"v{k + 1}"], name=f"n{k}") for k in range(count)]
    return [*nodes, helper.make_node("Sum", [f"v{k}" for k in range(1, count + 1, 3)], ["y"], name="sum")]


# --- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_nodes_in_any_order_are_one_model(seed: int) -> None:
    nodes = chain(7)
    expected = from_onnx(network(nodes, {"v0": X}, ["y"]))
    assert expected.notes == ()
    random.Random(seed).shuffle(nodes)
    read = from_onnx(network(nodes, {"v0": X}, ["y"]))
    assert read.notes == (SORTED,)
    assert [n.name for n in read.nodes] == [n.name for n in expected.nodes]
    assert (read(X) == expected(X)).all()


def test_sorting_keeps_the_order_of_what_does_not_depend() -> None:
    a, b, c = (helper.make_node("Relu", [x], [y]) for x, y in (("x", "a"), ("x", "b"), ("a", "c")))
    assert sorted_nodes([a, b, c]) is None
    assert [n.output[0] for n in sorted_nodes([b, c, a]) or ()] == ["b", "a", "c"]


def test_a_cycle_is_named() -> None:
    nodes = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"], name="add")]
    with pytest.raises(SpecgradError, match=r"Relu 'a': input 'b' is not computed before this node: .* cyclic or cut"):
        from_onnx(network(nodes, {"x": X}, ["b"]))


@pytest.mark.parametrize("name", ["onnxruntime", "onnx-reference"])
def test_a_runtime_is_given_the_nodes_in_order(name: str) -> None:
    """The reference evaluator takes no other order."""
    model = network(chain(4)[::-1], {"v0": X}, ["y"])
    done = audit(model, name, X)
    assert done.verdict == "exact"
    assert SORTED in done.notes


# --- functions ------------------------------------------------------------------------------------------------------


def with_functions(calls: list[tuple[str, list[onnx.NodeProto]]], opset: int = 18) -> onnx.ModelProto:
    """y = f(x), with functions of one input a and one output r."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    model = network([helper.make_node("f", ["x"], ["y"], domain="own", name="call")], {"x": X}, ["y"], opset=18)
    del model.opset_import[:]
    model.opset_import.extend(imports)
    used = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    model.functions.extend(helper.make_function("own", name, ["a"], ["r"], nodes, used) for name, nodes in calls)
    return model


def call(name: str, x: str, y: str) -> onnx.NodeProto:
    return helper.make_node(name, [x], [y], domain="own")


def nested_functions() -> onnx.ModelProto:
    """f(a) = g(g(a)), g(a) = max(a, 0) - a."""
    g = [helper.make_node("Relu", ["a"], ["t"]), helper.make_node("Sub", ["t", "a"], ["r"])]
    return with_functions([("g", g), ("f", [call("g", "a", "t"), call("g", "t", "r")])])


def test_functions_are_inlined() -> None:
    """The reference evaluator runs them without inlining."""
    model = nested_functions()
    graph = from_onnx(model)
    assert (graph(X) == ReferenceEvaluator(model).run(None, {"x": X})[0]).all()
    assert (graph(X) == runtime(model, [X])[0]).all()
    assert len(graph.notes) == 1
    assert len([n for n in graph.nodes if n.op.name == "relu"]) == 2
    assert audit(model, "onnxruntime", X).verdict == "exact"


@pytest.mark.parametrize(("domain", "name"), [("", "Relu"), ("com.microsoft", "FastGelu")])
def test_functions_with_the_name_of_an_operator_are_refused(domain: str, name: str) -> None:
    """ONNX leaves it to runtimes which is meant: ONNX Runtime takes the operator, onnx.inliner the function."""
    model = network([helper.make_node(name, ["x"], ["y"], domain=domain)], {"x": X}, ["y"], opset=18)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    negate = [helper.make_node("Neg", ["a"], ["r"])]
    model.functions.append(helper.make_function(domain, name, ["a"], ["r"], negate, [helper.make_opsetid("", 18)]))
    with pytest.raises(SpecgradError, match=f"function '{name}' has the name of an operator"):
        from_onnx(model)


@pytest.mark.parametrize("given", [{}, {"slope": 2.0}])
@pytest.mark.parametrize("inside", [False, True])
def test_defaults_of_functions_are_honoured(given: dict[str, float], inside: bool) -> None:
    """The package onnx inlines a call without them: an Elu of alpha 1 for 0.25. Also in a function, in an If."""
    elu = helper.make_node("Elu", ["a"], ["r"])
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    elu.attribute.append(reference)
    model = with_functions([("f", [helper.make_node("g", ["a"], ["r"], domain="own", **given)])])
    opsets = [helper.make_opsetid("", 18)]
    own = helper.make_attribute("slope", 0.25)
    model.functions.append(helper.make_function("own", "g", ["a"], ["r"], [elu], opsets, attribute_protos=[own]))
    if inside:
        call = helper.make_node("f", ["x"], ["r"], domain="own")
        branch = helper.make_graph([call], "branch", [], [info("r", None)])
        model.graph.node[0].CopyFrom(helper.make_node("If", ["go"], ["y"], then_branch=branch, else_branch=branch))
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "go"))
    x = np.array([[1.0, -2.0, -0.5]], np.float32)
    np.testing.assert_allclose(from_onnx(model)(x.astype(float)), runtime(model, [x])[0], rtol=1e-6)
    assert audit(model, "onnxruntime", x).verdict == "rounding"


def test_functions_that_grow_without_end_are_refused() -> None:
    round_about = [("f", [call("g", "a", "r")]), ("g", [call("f", "a", "r")])]
    with pytest.raises(SpecgradError, match="function 'f' calls itself"):
        from_onnx(with_functions(round_about))
    bomb = [(f"g{k}" if k else "f", [call(f"g{k + 1}", "a", "t"), call(f"g{k + 1}", "t", "r")]) for k in range(40)]
    with pytest.raises(SpecgradError, match="with its functions inlined the graph has more than 10000 nodes"):
        from_onnx(with_functions([*bomb, ("g40", [helper.make_node("Relu", ["a"], ["r"])])]))
    old = with_functions([("f", [helper.make_node("Relu", ["a"], ["r"])])], opset=13)
    with pytest.raises(SpecgradError, match=r"onnx does not inline|operators of the domain 'own' are not known"):
        from_onnx(old)


# --- inputs at a value ----------------------------------------------------------------------------------------------


def by_rate() -> onnx.ModelProto:
    """y = 2x at rate 16000, else x + 1; the rate is an int64 of no axes."""
    twice = helper.make_node("Add", ["x", "x"], ["r"], name="twice")
    more = helper.make_node("Add", ["x", "one"], ["r"], name="more")
    branches = {
        f"{name}_branch": helper.make_graph([node], name, [], [info("r", None)])
        for name, node in (("then", twice), ("else", more))
    }
    nodes = [
        helper.make_node("Equal", ["rate", "wanted"], ["is"], name="is"),
        helper.make_node("If", ["is"], ["y"], name="if", **branches),
    ]
    constants = {"wanted": np.array(16000), "one": np.ones(1, np.float32)}
    return network(nodes, {"x": X, "rate": np.array(0)}, ["y"], constants, opset=18)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_an_input_at_a_value_decides_branches(rate: int) -> None:
    graph = from_onnx(by_rate(), fixed={"rate": rate})
    assert graph.names == ("x",)
    assert (graph(X) == runtime(by_rate(), [X, np.array(rate)])[0]).all()
    done = audit(by_rate(), "onnxruntime", [X, np.array(rate)])
    assert done.verdict == "exact"
    assert [layer.name for layer in done.layers] == ["twice" if rate == 16000 else "more"]
    assert f"read at rate = {rate}" in done.notes


def test_without_a_value_the_branch_is_named() -> None:
    with pytest.raises(SpecgradError, match=r"If 'if': the condition depends on the input; .* fixed \(--fix, fixed=\)"):
        from_onnx(by_rate())


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"speed": 1}, "there is no input 'speed'; the model takes x, rate"),
        ({"rate": 0.5}, "input rate of type int64 does not hold 0.5"),
        ({"rate": [1, 2]}, r"input rate is declared as \(\); its value has shape \(2,\)"),
        ({"rate": "fast"}, "input rate of type INT64 cannot be fixed at 'fast'"),
    ],
)
def test_values_that_an_input_does_not_hold_are_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecgradError, match=text):
        from_onnx(by_rate(), fixed=values)


def test_fix_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "rate.onnx"
    path.write_bytes(by_rate().SerializeToString())
    shown = CliRunner().invoke(app, ["show", str(path), "--fix", "rate=16000", "--json"])
    assert "note: read at rate = 16000" in json.loads(shown.output)["notes"]
    np.savez(tmp_path / "in.npz", x=X, rate=np.array(8000))
    proven = CliRunner().invoke(app, ["tolerance", str(path), "--input", str(tmp_path / "in.npz"), "--json"])
    assert "read at rate = 8000" in json.loads(proven.output)["notes"]
    wrong = CliRunner().invoke(app, ["show", str(path), "--fix", "rate=fast"])
    assert "must be a name and numbers, as sr=16000; got 'rate=fast'" in str(wrong.output) + str(wrong.exception)


# --- open sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["input", "output", "value_info"])
def test_minus_one_is_an_open_size_everywhere(where: str) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Foo", ["t"], ["u"], domain="own")]
    model = network([*nodes, helper.make_node("Neg", ["t"], ["y"])], {"x": X}, ["y", "u"])
    model.graph.value_info.append(info("t", (1, 3)))
    declared = {"input": model.graph.input[0], "output": model.graph.output[0], "value_info": model.graph.value_info[0]}
    declared[where].CopyFrom(info(declared[where].name, (-1, -1)))
    graph = from_onnx(model, input_shapes={"x": (1, 3)}, partial=True)
    assert graph.nodes[graph.values["y"]].shape == (1, 3)
    if where == "input":
        assert open_model(model).inputs[0].dims == [None, None]


def test_bool_inputs_are_masks() -> None:
    node = helper.make_node("Where", ["m", "x", "zero"], ["y"])
    model = network([node], {"x": X, "m": np.zeros((1, 3), bool)}, ["y"], {"zero": np.zeros(1, np.float32)})
    assert model.graph.input[1].type.tensor_type.elem_type == TensorProto.BOOL
    mask = np.array([[True, False, True]])
    assert (from_onnx(model)(X, mask.astype(float)) == runtime(model, [X, mask])[0]).all()
    assert audit(model, "onnxruntime", [X, mask]).verdict == "exact"
