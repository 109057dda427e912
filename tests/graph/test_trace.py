"""Tracing: structures, kinds, names, and errors with the user's own line."""

from __future__ import annotations

import dataclasses
import traceback
from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from specgrad.graph.ir.node import call

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all


def small_net(params: dict, x):
    with sg.scope("stem"):
        x = sg.relu(sg.conv(params["w"], params["b"], x, padding=1))
    return {"mean": sg.global_avg_pool(x, rank=2, keepdims=False), "top": (sg.max_pool(x, (2, 2)), x * 2)}


SHAPES = {"w": (4, 3, 3, 3), "b": (4,)}


def test_structures_are_kept() -> None:
    graph = sg.trace(small_net, SHAPES, (2, 3, 6, 6))
    rng = np.random.default_rng(0)
    params = {"b": rng.normal(size=4), "w": rng.normal(size=(4, 3, 3, 3))}  # the order of a dict does not matter
    x = rng.normal(size=(2, 3, 6, 6))
    found, eager = graph(params, x), small_net(params, x)
    np.testing.assert_array_equal(found["mean"], eager["mean"])
    np.testing.assert_array_equal(found["top"][0], eager["top"][0])
    assert graph.names == ("params", "x")
    assert [n.name for n in graph.nodes[:5]] == ["params.w", "params.b", "x", "stem.conv", "stem.relu"]


def test_arrays_shapes_and_indices_are_examples() -> None:
    labels = np.array([1, 0])
    by_array = sg.trace(sg.cross_entropy, np.zeros((2, 3)), labels)
    by_shape = sg.trace(sg.cross_entropy, (2, 3), sg.Index((2,)))
    assert [n.kind for n in by_array.nodes[:2]] == [n.kind for n in by_shape.nodes[:2]] == ["real", "index"]
    x = np.random.default_rng(0).normal(size=(2, 3))
    assert by_array(x, labels) == by_shape(x, labels) == sg.cross_entropy(x, labels)


def test_captured_arrays_are_constants_recorded_once() -> None:
    w = np.arange(3.0)
    graph = sg.trace(lambda x: x * w + w, (3,))
    assert len(graph.constants) == 1
    assert graph(np.ones(3)).tolist() == [0.0, 2.0, 4.0]


def test_numpy_on_the_left() -> None:
    graph = sg.trace(lambda x: np.array([1.0, 2.0]) * x - np.array([1.0, 1.0]) @ x, (2,))
    assert graph(np.array([3.0, 4.0])).tolist() == [-4.0, 1.0]


def test_graphs_compose() -> None:
    """A graph called on variables is recorded into their trace."""
    inner = sg.trace(lambda x: sg.relu(x) * 2, (3,))
    outer = sg.trace(lambda x: inner(x) + inner(-x), (3,))
    assert outer(np.array([-1.0, 0.0, 2.0])).tolist() == [2.0, 0.0, 4.0]


def test_exact_run() -> None:
    graph = sg.trace(lambda x: sg.avg_pool(x, (3,)) / 7, (3,))
    (value,) = graph(sg.exact([1, 2, 0.5]))
    assert (value.numerator, value.denominator) == (1, 6)
    (from_integers,) = graph(np.array([1, 2, 4]))
    assert (from_integers.numerator, from_integers.denominator) == (1, 3)


def test_shape_error_names_the_users_line_and_prints_the_table() -> None:
    def net(x):
        x = sg.relu(x)
        x = sg.max_pool(x, (3, 7))  # this line
        return x * 2

    with pytest.raises(sg.ShapeError) as caught:
        sg.trace(net, (4, 9, 5))
    text = "".join(traceback.format_exception(caught.value))
    assert str(caught.value).startswith("max_pool [W2]: window of 7 cells does not fit 5 + 0 + 0")
    assert "in net, test_trace.py:" in text
    assert "x = sg.max_pool(x, (3, 7))  # this line" in caught.value.__notes__[0]
    table = caught.value.__notes__[1]
    assert "built so far" in table
    assert "relu" in table
    assert "4x9x5" in table


def test_run_error_names_the_layer() -> None:
    graph = sg.trace(lambda x: sg.exp(sg.relu(x)), (2,))
    with pytest.raises(sg.ScalarError, match="exact rationals have no exp") as caught:
        graph(sg.exact([1, 2]))
    assert "in layer exp, test_trace.py:" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(3),), "graph: takes 2 arguments (params, x); got 1"),
        (({"w": np.zeros((4, 3, 3, 3))}, np.zeros((2, 3, 6, 6))), "graph: params lacks b"),
        (({"w": 0, "b": 0, "c": 0}, 0), "graph: params has unknown c"),
        ((np.zeros(3), 0), "graph: params must have entries w, b; got a bare ndarray"),
        (({"w": np.zeros(3), "b": 0}, 0), "graph: input params.w must have shape (4, 3, 3, 3); got (3,)"),
    ],
)
def test_call_errors(args, message: str) -> None:
    graph = sg.trace(small_net, SHAPES, (2, 3, 6, 6))
    with pytest.raises(sg.ShapeError) as caught:
        graph(*args)
    assert str(caught.value) == message


def test_python_cannot_branch_on_a_variable() -> None:
    with pytest.raises(sg.SpecgradError, match="cannot branch"):
        sg.trace(lambda x: x if x else -x, ())


def test_a_leaked_variable_is_refused() -> None:
    leaked = []
    sg.trace(lambda x: leaked.append(x) or x * 1, (2,))
    with pytest.raises(sg.SpecgradError, match="belongs to another graph"):
        sg.trace(lambda x: x + leaked[0], (2,))


def test_indices_and_numbers_do_not_mix() -> None:
    with pytest.raises(sg.ShapeError, match="labels must be integers"):
        sg.trace(sg.cross_entropy, (2, 3), (2,))
    with pytest.raises(sg.ShapeError, match="must be numbers, not an index"):
        sg.trace(lambda i: sg.relu(i), np.array([1, 2]))
    with pytest.raises(sg.ShapeError, match=r"indices must lie in 0\.\.2; got -1"):
        sg.cross_entropy(np.zeros((1, 3)), np.array([-1]))


def test_exact_and_float_do_not_mix() -> None:
    with pytest.raises(sg.ScalarError) as caught:
        sg.conv(np.ones((1, 1, 1)), None, np.array([[1, 2]]))
    assert "cannot mix exact numbers and floats; got int64 (exact), float64" in str(caught.value)


def test_observer_sees_every_layer() -> None:
    seen = []
    graph = sg.trace(lambda x: sg.relu(x * 2), (2,))
    call(graph, (np.ones(2),), lambda node, value: seen.append((node.name, value.tolist())))
    assert seen == [("mul", [2.0, 2.0]), ("relu", [2.0, 2.0])]


def test_table() -> None:
    """Known figures: parameters and multiply-adds by hand, receptive fields from the window relation."""

    def net(p, x):
        x = sg.relu(sg.conv(p["w"], p["b"], x, stride=2, padding=1))
        x = sg.max_pool(x, (3, 3), stride=2)
        x = sg.conv_transpose(p["up"], None, x, stride=2)
        return sg.global_avg_pool(x, rank=2)

    graph = sg.trace(net, {"w": (8, 3, 3, 3), "b": (8,), "up": (8, 2, 2, 2)}, (1, 3, 32, 32))
    rows = [line.split() for line in str(graph).splitlines()]
    assert rows[0] == ["name", "operator", "shape", "parameters", "multiply-adds", "receptive", "field"]
    assert rows[3] == ["conv", "conv", "k3", "s2", "p1", "1x8x16x16", "224", f"{8 * 27 * 256:,}", "3x3"]
    assert rows[5] == ["max_pool", "max_pool", "k3", "s2", "1x8x7x7", "7x7"]
    assert rows[6] == ["conv_transpose", "conv_transpose", "k2", "s2", "1x2x14x14", "64", f"{64 * 49:,}", "7x7"]
    assert rows[7][-1] == "all"
    assert str(graph).splitlines()[-1] == "5 layers, 11 nodes, 288 parameters, 58,432 multiply-adds"
    assert len(sg.table(graph, detail=True).splitlines()) > len(str(graph).splitlines())


def test_graphs_with_different_derivatives_print_differently() -> None:
    """Maxima that break ties in three ways, and roots of sums of powers."""
    shown = {}
    for ties in ("all", "split", "first"):
        for name, net in (
            ("global", lambda x, t=ties: sg.global_max_pool(x, rank=1, ties=t)),
            ("amax", lambda x, t=ties: sg.amax(x, 1, ties=t)),
            ("amin", lambda x, t=ties: sg.amin(x, 1, ties=t)),
        ):
            if name == "global" or ties != "first":
                shown[name, ties] = str(sg.trace(net, (2, 3))).splitlines()[3].split("  ")[1].strip()
    assert shown == {
        ("global", "all"): "amax ties=all",
        ("global", "split"): "amax ties=split",
        ("global", "first"): "global_max_pool: max_pool k3 s3",
        ("amax", "all"): "amax ties=all",
        ("amax", "split"): "amax ties=split",
        ("amin", "all"): "amin: amax ties=all",
        ("amin", "split"): "amin: amax ties=split",
    }
    cubes, squares = (str(sg.trace(lambda x, q=p: sg.lp_pool(x, (2,), p=q), (4,))) for p in (3, 2))
    assert "lp_pool: power exponent=3, avg_pool k2 s2" in cubes
    assert cubes != squares


def test_receptive_field_is_what_the_derivative_says() -> None:
    """The printed width is the widest support of any row of the Jacobian, counted cell by cell."""
    from specgrad.graph.drawing.summary import receptive_fields

    nets = {
        "two convs": lambda x: sg.conv(np.ones((1, 1, 3)), None, sg.conv(np.ones((1, 1, 3)), None, x, dilation=2)),
        "pool and up": lambda x: sg.conv_transpose(np.ones((1, 1, 2)), None, sg.avg_pool(x, (2,)), stride=2),
        "up and conv": lambda x: sg.conv(
            np.ones((1, 1, 3)), None, sg.conv_transpose(np.ones((1, 1, 4)), None, sg.avg_pool(x, (3,)), stride=2)
        ),
        "skip": lambda x: sg.concat([x, sg.conv(np.ones((1, 1, 5)), None, x, padding=2)], axis=0),
        "slice": lambda x: sg.slice(sg.conv(np.ones((1, 1, 2)), None, x), None, slice(1, 20, 3)),
    }
    for name, net in nets.items():
        graph = sg.trace(net, (1, 31))
        field = receptive_fields(graph.nodes, {0})[graph.output_positions[0]]
        jacobian = np.array([sg.jvp(graph)(np.ones((1, 31)), row.reshape(1, 31))[1].ravel() for row in np.eye(31)]).T
        spans = [np.nonzero(row)[0] for row in jacobian if row.any()]
        assert field is not None
        assert field[-1] is not None
        assert field[-1].width == max(s.max() - s.min() + 1 for s in spans), name


def test_a_graph_called_inside_a_trace_stays_the_same_function() -> None:
    """Constants of float32 are numbers: var + eps is no sum of float32 because another trace calls the graph."""
    var = np.float32([0.0, 0.1])
    graph = sg.trace(lambda x: x / (x.builder.constant(var) + 1e-5), (2,))
    nested = sg.trace(lambda x: graph(x) + 0, (2,))
    lifted = dataclasses.replace(nested, constants={p: sg.exact(a) for p, a in nested.constants.items()})
    assert list(lifted(sg.exact([3, 5]))) == [
        Fraction(3) / Fraction(1e-5),
        5 / (Fraction(float(var[1])) + Fraction(1e-5)),
    ]
