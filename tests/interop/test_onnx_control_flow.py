"""If, Loop and Scan whose course is known while reading, against ONNX's reference evaluator and ONNX Runtime."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_cases import info, network, runtime
from specgrad import SpecgradError
from specgrad.check import audit
from specgrad.interop import from_onnx
from specgrad.interop.onnx.read import control_flow

X = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)
INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any] | None = None) -> Any:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    return helper.make_graph(nodes, "inner", inputs, outputs, stored)


def compare(model: onnx.ModelProto, arrays: list[np.ndarray], reference: bool = True) -> Any:
    """The graph's outputs are those of both evaluators, to the bit: all numbers here are small and whole, or halves."""
    read = from_onnx(model)
    assert runtime(read.written, arrays)[0].tolist() == runtime(model, arrays)[0].tolist()
    names = [i.name for i in model.graph.input]
    ours = read(*(a.astype(np.float64) for a in arrays))
    others = [runtime(model, arrays)]
    others += [ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))] if reference else []
    for other in others:
        for mine, theirs in zip(ours if isinstance(ours, tuple) else (ours,), other, strict=True):
            assert np.shape(mine) == theirs.shape
            assert (mine == theirs).all()
    return read


# --- If -------------------------------------------------------------------------------------------------------------


def branch(op: str, *names: str, constant: float) -> Any:
    """r = op(x, w), with a weight w of the branch's own; both branches use the same names."""
    return graph(
        [helper.make_node(op, [*names, "w"], ["r"], name=op)], [], [info("r", None)], {"w": np.float32(constant)}
    )


@pytest.mark.parametrize("opset", [9, 11, 13, 16, 21])
@pytest.mark.parametrize("holds", [True, False])
def test_a_branch_by_a_constant(opset: int, holds: bool) -> None:
    made = {"then_branch": branch("Mul", "x", constant=2), "else_branch": branch("Sub", "x", constant=3)}
    nodes = [helper.make_node("If", ["c"], ["y"], name="if", **made)]
    read = compare(network(nodes, {"x": X}, ["y"], {"c": np.array(holds)}, opset), [X])
    assert [n.op.name for n in read.nodes if n.op.name in ("mul", "sub")] == ["mul" if holds else "sub"]
    assert read.notes == (f"decided while reading: If 'if' takes {'then' if holds else 'else'}_branch",)


def test_a_branch_by_a_shape_and_names_that_both_use() -> None:
    """Two Ifs of equal branches: what they define is renamed, and each result is its own."""
    made = {"then_branch": branch("Mul", "x", constant=2), "else_branch": branch("Sub", "x", constant=3)}
    other = {"then_branch": branch("Mul", "a", constant=5), "else_branch": branch("Sub", "a", constant=7)}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Size", ["s"], ["rank"]),
        helper.make_node("Equal", ["rank", "two"], ["is"]),
        helper.make_node("If", ["is"], ["a"], name="first", **made),
        helper.make_node("Not", ["is"], ["not"]),
        helper.make_node("If", ["not"], ["b"], name="second", **other),
        helper.make_node("If", ["is"], ["y"], name="third", **other),
        helper.make_node("Add", ["y", "b"], ["z"]),
    ]
    compare(network(nodes, {"x": X}, ["z", "b"], {"two": np.array(2)}, 18), [X])


def test_a_branch_inside_a_branch_reads_the_values_around() -> None:
    inner = {"then_branch": branch("Mul", "t", constant=2), "else_branch": branch("Sub", "x", constant=3)}
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("If", ["c"], ["q"], name="inner", **inner)]
    outer = {
        "then_branch": graph(nodes, [], [info("q", None), info("t", None)]),
        "else_branch": graph(
            [helper.make_node("Neg", ["x"], [n]) for n in "pq"], [], [info("p", None), info("q", None)]
        ),
    }
    node = helper.make_node("If", ["c"], ["y", "z"], **outer)
    model = network([node], {"x": X}, ["y", "z"], {"c": np.array(True)}, 18)
    compare(model, [X])


def test_branches_by_data_are_named() -> None:
    made = {"then_branch": branch("Mul", "x", constant=2), "else_branch": branch("Sub", "x", constant=3)}
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="if", **made),
    ]
    model = network(nodes, {"x": X}, ["y"], {"zero": np.float32(0)}, 18)
    with pytest.raises(SpecgradError, match="If 'if': the condition depends on the input"):
        from_onnx(model)
    done = audit(model, "onnxruntime", X)
    assert [layer.name for layer in done.layers if layer.verdict.kind == "not examined"] == ["if"]


# --- Loop -----------------------------------------------------------------------------------------------------------


def loop(limit: Any, nodes: list[Any], condition: str = "go", rows: list[str] | None = None) -> onnx.ModelProto:
    """s = x; while it runs: the nodes make s_out of s; rows are kept of each iteration."""
    kept = [helper.make_node("Identity", [r], [f"kept_{r}"]) for r in rows or []]
    body = graph(
        [*nodes, *kept, helper.make_node("Identity", [condition], ["go_out"])],
        [info("k", (), INT), info("go", (), BOOL), info("s", None)],
        [info("go_out", (), BOOL), info("s_out", None), *(info(f"kept_{r}", None) for r in rows or [])],
    )
    outputs = ["y", *(f"all_{r}" for r in rows or [])]
    node = helper.make_node(
        "Loop", ["limit" if limit is not None else "", "true", "x"], outputs, name="loop", body=body
    )
    constants = {"true": np.array(True), "three": np.array(3), "one": np.float32(1)}
    constants |= {"limit": np.array(limit)} if limit is not None else {}
    return network([node], {"x": X}, outputs, constants, 18)


ADD_COUNT = [
    helper.make_node("Cast", ["k"], ["kf"], to=TensorProto.FLOAT, name="cast"),
    helper.make_node("Add", ["s", "kf"], ["s_out"], name="add"),
]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_loop_of_a_known_length(limit: int) -> None:
    """The reference evaluator keeps rows without an axis of their own, against the operator's text."""
    compare(loop(limit, ADD_COUNT), [X])
    read = compare(loop(limit, ADD_COUNT, rows=["s", "s_out"]), [X], reference=False)
    assert f"Loop 'loop' is written out {limit} times" in read.notes[0]


def test_a_loop_that_ends_by_its_condition() -> None:
    """k < 3, and no limit: four iterations."""
    nodes = [*ADD_COUNT, helper.make_node("Less", ["k", "three"], ["more"])]
    read = compare(loop(None, nodes, "more"), [X])
    assert "is written out 4 times" in read.notes[0]


def test_a_loop_of_no_iteration() -> None:
    assert (from_onnx(loop(0, ADD_COUNT))(X) == X).all()
    with pytest.raises(SpecgradError, match="Loop 'loop': no iteration gives 'all_s', so its shape is not known"):
        from_onnx(loop(0, ADD_COUNT, rows=["s"]))


def test_loops_are_written_out_within_limits() -> None:
    with pytest.raises(SpecgradError, match="Loop 'loop': more than 500 iterations are not written out"):
        from_onnx(loop(10**6, [helper.make_node("Identity", ["s"], ["s_out"])]))
    long = [helper.make_node("Identity", [f"a{k}" if k else "s"], [f"a{k + 1}"]) for k in range(100)]
    with pytest.raises(SpecgradError, match="Loop 'loop': its subgraphs written out have more than 5000 nodes"):
        from_onnx(loop(200, [*long, helper.make_node("Relu", ["a100"], ["s_out"])]))


def test_a_loop_by_data_is_named_and_nothing_of_it_stays() -> None:
    nodes = [
        helper.make_node("Add", ["s", "one"], ["s_out"]),
        helper.make_node("ReduceSum", ["s_out"], ["sum"], keepdims=0),
        helper.make_node("Less", ["sum", "one"], ["more"]),
        helper.make_node("Foo", ["s"], ["u"], domain="own"),
    ]
    part = from_onnx(loop(5, nodes, "more"), partial=True)
    assert [(u.operator, u.layer) for u in part.unexamined] == [("Loop", "loop")]
    assert part.written is None
    assert part.notes == ()


def test_every_iteration_is_audited() -> None:
    done = audit(loop(3, ADD_COUNT), "onnxruntime", X)
    assert done.verdict == "exact"
    assert [layer.name for layer in done.layers] == ["add/0", "add/1", "add/2", "y"]


# --- Scan -----------------------------------------------------------------------------------------------------------


def scan(rng: random.Random, opset: int) -> onnx.ModelProto:
    """The state gains each part of x; the parts, and the states, are kept, along axes and directions drawn."""
    axis = rng.choice([0, 1, -1])
    row = [n for a, n in enumerate(X.shape) if a != axis % 2]
    nodes = [helper.make_node("Add", ["s", "p"], ["s_out"]), helper.make_node("Neg", ["p"], ["n"])]
    nodes.append(helper.make_node("Identity", ["s_out"], ["kept"]))
    body = graph(nodes, [info("s", row), info("p", row)], [info("s_out", row), info("n", row), info("kept", row)])
    given = {"scan_input_axes": [axis], "scan_input_directions": [rng.randrange(2)]}
    given |= {"scan_output_axes": [rng.choice([0, 1, -1]), 0], "scan_output_directions": [rng.randrange(2), 1]}
    node = helper.make_node(
        "Scan", ["zero", "x"], ["y", "rows", "states"], body=body, num_scan_inputs=1, name="scan", **given
    )
    return network([node], {"x": X}, ["y", "rows", "states"], {"zero": np.zeros(row, np.float32)}, opset)


@pytest.mark.parametrize("opset", [9, 11, 16, 21])
@pytest.mark.parametrize("seed", range(4))
def test_a_scan(opset: int, seed: int) -> None:
    compare(scan(random.Random(seed), opset), [X], reference=False)


def test_a_mistake_in_the_order_of_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = control_flow._output_nodes
    monkeypatch.setattr(control_flow, "_output_nodes", lambda c, state, rows, axes: ends(c, state, rows[::-1], axes))
    model = loop(3, ADD_COUNT, rows=["s"])
    assert (from_onnx(model)(X.astype(float))[1] != runtime(model, [X])[1]).any()


# --- names ----------------------------------------------------------------------------------------------------------


def counted(nodes: list[Any], state: str, result: str) -> Any:
    """A body that hands its condition on."""
    inputs = [info("i", (), INT), info("c", (), BOOL), info(state, (3,))]
    nodes = [*nodes, helper.make_node("Identity", ["c"], [f"{state}c"])]
    return graph(nodes, inputs, [info(f"{state}c", (), BOOL), info(result, (3,))])


def looped(body: Any, state: str, y: str) -> Any:
    return helper.make_node("Loop", ["count", "go", state], [y], body=body)


LOOPS = {"count": np.int64(2), "go": np.array(True)}


def test_a_bodys_input_may_have_the_name_of_a_value_around_it() -> None:
    """w = -x; z = ((w + w) + w); of the body x is the state."""
    body = counted([helper.make_node("Add", ["x", "w"], ["r"])], "x", "r")
    nodes = [helper.make_node("Neg", ["x"], ["w"]), looped(body, "w", "z"), helper.make_node("Add", ["z", "x"], ["y"])]
    compare(network(nodes, {"x": X[0]}, ["y"], LOOPS, opset=18), [X[0]], reference=False)  # which reads the outer x


def test_names_that_would_be_taken_for_others_are_refused() -> None:
    """A weight of a branch: runtimes read the outer value. And a state of a loop in a loop: they have three answers."""
    inner = graph([helper.make_node("Add", ["x", "k"], ["r"])], [], [info("r", (3,))], {"k": np.float32([1, 2, 3])})
    choice = helper.make_node("If", ["go"], ["y"], then_branch=inner, else_branch=inner)
    branched = network([helper.make_node("Neg", ["x"], ["k"]), choice], {"x": X[0]}, ["y"], LOOPS, opset=18)
    with pytest.raises(SpecgradError, match="a subgraph redefines 'k'"):
        from_onnx(branched)
    second = counted([helper.make_node("Add", ["x", "s"], ["t"])], "x", "t")
    nodes = [helper.make_node("Neg", ["x"], ["w"]), looped(counted([looped(second, "w", "r")], "s", "r"), "x", "y")]
    with pytest.raises(SpecgradError, match="an input of a subgraph is called 'x', as a value that it reads from far"):
        from_onnx(network(nodes, {"x": X[0]}, ["y"], LOOPS, opset=18))


def test_loops_inside_of_loops_may_use_the_same_names() -> None:
    """Both bodies call their inputs i, c and s."""
    second = counted([helper.make_node("Add", ["s", "x"], ["t"])], "s", "t")
    first = counted([looped(second, "s", "r")], "s", "r")
    compare(network([looped(first, "x", "y")], {"x": X[0]}, ["y"], LOOPS, opset=18), [X[0]], reference=False)
