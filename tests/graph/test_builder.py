"""The builder: nodes with ids, structures, names, and errors that say at which node they arose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import specgrad as sg

pytestmark = pytest.mark.quick

W = np.array([[[1.0, 2.0]]])


def built() -> sg.Graph:
    b = sg.GraphBuilder()
    x = b.input("x", (1, 5))
    y = b.call(sg.conv, b.constant(W, "w"), None, x, stride=2, name="stem")
    return b.build({"y": sg.relu(y), "top": b.call(sg.max_pool, y, (2,))})


def test_a_builder_and_a_trace_give_the_same_graph() -> None:
    def net(x):
        with sg.scope("stem"):
            y = sg.conv(W, None, x, stride=2)
        return {"y": sg.relu(y), "top": sg.max_pool(y, (2,))}

    ours, traced = built(), sg.trace(net, (1, 5))
    x = np.array([[1.0, -2.0, 3.0, 4.0, 5.0]])
    assert [(n.op, n.args, n.shape) for n in ours.nodes] == [(n.op, n.args, n.shape) for n in traced.nodes]
    assert [n.name for n in ours.nodes] == ["x", "w", "stem.conv", "relu", "max_pool"]
    assert ours(x)["y"].tolist() == [[0.0, 11.0]]  # 1 - 4, 3 + 8
    assert ours(x)["top"].tolist() == [[11.0]]


def test_value_tangent_and_cotangent() -> None:
    """y = (x0*x1)^2 at (2, 3), by hand."""
    b = sg.GraphBuilder()
    x = b.input("x", (2,))
    p = b.call(lambda v: v[0] * v[1], x, name="product")
    graph = b.build(p * p)
    at = np.array([2.0, 3.0])
    assert graph(at) == 36
    assert sg.jvp(graph)(at, np.array([1.0, 0.0]))[1] == 36
    assert sg.vjp(graph)(at, np.array(1.0))[1].tolist() == [36.0, 24.0]


def test_ids_number_the_nodes_and_names_survive() -> None:
    b = sg.GraphBuilder()
    params = b.input("params", {"w": (2,), "unused": (3,)})
    i = b.input("i", sg.Index((2,)))
    dead = params["w"] * 5
    y = sg.take(params["w"], i, rank=1)
    assert [v.id for v in (params["w"], params["unused"], i, dead, y)] == [0, 1, 2, 3, 4]
    assert all(b.nodes[v.id].name == v.name for v in (i, dead, y))
    graph = b.build((y, y))
    assert [n.name for n in graph.nodes] == ["params.w", "params.unused", "i", "take"]
    first, second = graph({"w": np.array([1.0, 2.0]), "unused": np.zeros(3)}, np.array([1, 0]))
    assert first.tolist() == second.tolist() == [2.0, 1.0]


def test_an_error_names_the_node_and_the_rule() -> None:
    b = sg.GraphBuilder()
    x = b.call(sg.relu, b.input("x", (4, 9, 5)))
    with pytest.raises(sg.ShapeError) as caught:
        b.call(sg.max_pool, x, (3, 7), name="pool")
    assert caught.value.rule == "W2"
    line, table, _ = caught.value.__notes__
    assert line.startswith("  at node 2 (pool.max_pool) in test_an_error_names_the_node_and_the_rule, test_builder.py:")
    assert line.endswith('b.call(sg.max_pool, x, (3, 7), name="pool")')
    assert [row.split()[0] for row in table.splitlines()[3:]] == ["x", "relu", "1"]
    assert b.build(b.call(sg.max_pool, x, (3, 5))).nodes[-1].shape == (4, 3, 1)  # the builder goes on


def test_what_does_not_belong_is_refused() -> None:
    b, other = sg.GraphBuilder(), sg.GraphBuilder()
    x, y = b.input("x", (2,)), other.input("y", (2,))
    for wrong in (lambda: x + y, lambda: b.build(y), lambda: sg.trace(lambda z: x, (2,))):
        with pytest.raises(sg.SpecgradError, match="belongs to another graph; make it an input of this one"):
            wrong()
    with pytest.raises(sg.SpecgradError, match=r"input: there is an input 'x' already; the inputs are \['x'\]"):
        b.input("x", (3,))
    with pytest.raises(sg.ShapeError, match="build: output 0 must be a value; got None"):
        b.build(None)
    with pytest.raises(sg.ShapeError, match=r"input \[W1\]: z has a negative size"):
        b.input("z", (-1,))


def test_equal_nodes_are_shared_by_record_not_by_name() -> None:
    """Two operators of one name were one node, so a derivative could follow the wrong one."""
    other = replace(sg.REGISTRY["neg"], spec=lambda x: x)
    b = sg.GraphBuilder(share=True)
    x = b.input("x", (1,))
    one, same, two = sg.neg(x), sg.neg(x), sg.apply(other, x)
    assert one.id == same.id != two.id
    assert [float(v[0]) for v in b.build((one, two))(np.array([3.0]))] == [-3.0, 3.0]
