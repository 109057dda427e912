"""`specgrad tolerance accuracy`: executions of every layer stay within its total, for all inputs of a box."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("torch")

from specgrad.bounds import Box
from specgrad.errors import SpecgradError
from specgrad.graph.graph import INPUT
from specgrad.rounding import Arithmetic, radius
from specgrad.safety.accuracy.per_layer import Accuracy, accuracy

F32 = np.float32


def small_net(p: Any, x: Any) -> Any:
    x = sg.relu(sg.conv(p["w"], p["b"], x, padding=1))
    x = sg.max_pool(x, (2,), stride=2)
    return sg.linear(p["fc"], p["fb"], sg.flatten(x, 1))


def bound_graph(rng: np.random.Generator) -> sg.Graph:
    shapes = {"w": (3, 2, 3), "b": (3,), "fc": (4, 9), "fb": (4,)}
    p = {k: rng.normal(size=s).astype(F32) for k, s in shapes.items()}
    return sg.trace(lambda x: small_net(p, x), (1, 2, 6))


def runs(graph: sg.Graph, x: Any, exact: bool) -> dict[str, Any]:
    """Every node by the specification: on rationals, or on float32, node by node."""
    values: list[Any] = []
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            value = sg.exact(x) if exact else x
        elif node.op.name == "constant":
            value = sg.exact(graph.constants[i]) if exact else graph.constants[i]
        else:
            given = [values[a] if isinstance(a, int) else a.value for a in node.args]
            value = sg.apply(node.op, *given, **node.params)
        values.append(value if exact else np.asarray(value, dtype=F32) if node.kind == "real" else value)
    return {n.name: (v, n.group) for n, v in zip(graph.nodes, values, strict=True)}


def farthest(graph: sg.Graph, proven: Accuracy, x: Any) -> float:
    """The largest error of a layer over its total."""
    exact, got = runs(graph, x, True), runs(graph, x, False)
    last = {group: name for name, (_, group) in exact.items()}
    most = 0.0
    for layer in proven.layers:
        y, z = exact[last[layer.name]][0], got[last[layer.name]][0]
        error = max(abs(Fraction(float(b)) - Fraction(a)) for a, b in zip(np.ravel(y), np.ravel(z), strict=True))
        assert error <= Fraction(layer.total), (layer, float(error))
        most = max(most, float(error / Fraction(layer.total)) if layer.total else 0.0)
    return most


@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("width", [0.0, 0.01, 1.0])
def test_executions_stay_within(width: float, execution: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(3):
        graph, x = bound_graph(rng), rng.normal(size=(1, 2, 6)).astype(F32)
        box = Box(x.astype(float), np.nextafter(x + F32(width), x).astype(float) if width else x.astype(float))
        proven = accuracy(graph, box, arithmetic=Arithmetic(execution=execution))
        assert proven.verdict == "bounded"
        for _ in range(3):
            inside = (box.low + (box.high - box.low) * rng.uniform(0, 1, x.shape)).astype(F32)
            farthest(graph, proven, np.clip(inside, box.low, box.high).astype(F32))


def test_an_execution_that_attains_it() -> None:
    """(1 + 2**-12)**2 misses by 2**-24: the bound is 2**-24 times the product. Half of it would be wrong."""
    a = F32(1 + 2.0**-12)
    graph = sg.trace(lambda x: x * float(a), (1,))
    proven = accuracy(graph, Box([float(a)], [float(a)]), arithmetic=Arithmetic(execution="node"))
    assert 0.9 < farthest(graph, proven, np.array([a])) <= 1


def test_at_a_point_it_is_the_radius() -> None:
    """Forwards, without what bounds know besides: no layer's total is far from what `radius` says there."""
    rng = np.random.default_rng(5)
    graph, x = bound_graph(rng), rng.normal(size=(1, 2, 6)).astype(F32)
    for execution in ("node", "fused"):
        arithmetic = Arithmetic(execution=execution)
        proven = accuracy(graph, Box(x.astype(float), x.astype(float)), arithmetic=arithmetic)
        report = radius(graph, x, arithmetic=arithmetic, keep=True)
        last = {n.group: n.name for n in graph.nodes}
        for layer in proven.layers:
            ball = report.nodes[last[layer.name]]
            assert layer.total <= 1.5 * float(ball.radius.max())
            assert layer.total >= 0.5 * float(ball.radius.max())


def test_the_parts_sum_to_the_total() -> None:
    graph = bound_graph(np.random.default_rng(0))
    for layer in accuracy(graph, Box(-np.ones((1, 2, 6)), np.ones((1, 2, 6)))).layers:
        assert layer.total <= layer.propagated + layer.introduced <= layer.total * (1 + 1e-9)
    first = accuracy(graph, Box(-np.ones((1, 2, 6)), np.ones((1, 2, 6)))).layers[0]
    assert first.propagated < 1e-36 < first.introduced  # an input may be read as 0


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_functions_and_quotients(execution: str) -> None:
    """Softmax, layer and batch norm, sigmoid: torch in float32 against float64."""
    import torch

    rng = np.random.default_rng(1)
    mean, var = rng.normal(size=4).astype(F32), rng.uniform(1, 2, 4).astype(F32)

    def net(x: Any) -> Any:
        y = sg.batch_norm(x, mean, var)
        return sg.softmax(sg.sigmoid(sg.layer_norm(y, (6,))) * 3, -1)

    graph = sg.trace(net, (1, 4, 6))
    x = rng.normal(size=(1, 4, 6)).astype(F32) * 3
    box = Box(x - 0.01, x + 0.01)
    proven = accuracy(graph, box, arithmetic=Arithmetic(execution=execution))
    assert proven.verdict == "bounded"
    run = sg.compile(graph, "torch")
    for _ in range(20):
        inside = np.clip((x + rng.uniform(-0.01, 0.01, x.shape)).astype(F32), box.low, box.high).astype(F32)
        got, exact = (run(torch.from_numpy(inside).to(t)).double() for t in (torch.float32, torch.float64))
        assert float((got - exact).abs().max()) <= proven.outputs[0].total
    assert proven.outputs[0].total < 0.5


def test_unbounded_layers_are_named() -> None:
    graph = sg.trace(lambda x: sg.relu(sg.exp(x)) * 2, (2,))
    proven = accuracy(graph, Box([0.0, 0.0], [1.0, 100.0]))
    assert (proven.verdict, proven.unbounded[0]) == ("unbounded", "exp")
    assert proven.sentences() == ["unbounded on this box: nothing is proven of exp, relu, mul"]
    assert proven.layers[-1].to_json()["total"] is None


def test_a_box_that_cannot_be() -> None:
    graph = sg.trace(lambda x: x + 1, (1,))
    with pytest.raises(SpecgradError, match="the ends of a box must be finite"):
        accuracy(graph, Box([-np.inf], [1.0]))


def test_an_error_that_is_not_counted_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what a product introduces, and nothing of what comes in: both are caught by executions."""
    from specgrad.safety.accuracy import per_layer

    a = F32(1 + 2.0**-12)
    graph = sg.trace(lambda x: sg.relu(x * float(a)), (1,))
    box, by_node = Box([float(a)], [float(a)]), Arithmetic(execution="node")
    right = per_layer.ErrorPropagation._carried
    monkeypatch.setattr(per_layer.ErrorPropagation, "_carried", lambda self, *args: right(self, *args) * 0)
    with pytest.raises(AssertionError):
        farthest(graph, accuracy(graph, box, arithmetic=by_node), np.array([a]))
    monkeypatch.setattr(per_layer.ErrorPropagation, "_carried", right)
    farthest(graph, accuracy(graph, box, arithmetic=by_node), np.array([a]))


def test_a_subnormal_input_that_is_read_as_0() -> None:
    graph = sg.trace(lambda x: x * 2.0**100, (1,))
    tiny = float(F32(1e-40))
    proven = accuracy(graph, Box([tiny], [tiny]), arithmetic=Arithmetic(execution="node"))
    assert proven.layers[0].total >= tiny * 2.0**100
    kept = accuracy(graph, Box([tiny], [tiny]), arithmetic=Arithmetic(execution="node", flush=False))
    assert kept.layers[0].total < 1e-15


@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("low", [0.0, -(2.0**-125)])
def test_a_box_that_reaches_below_the_normal_numbers(low: float, execution: str) -> None:
    """2**-127 is in it and may be read as 0, which 2**100 times that shows: rounding of the largest is far less."""
    graph = sg.trace(lambda x: x * 2.0**100, (1,))
    box, flushed = Box([low], [2.0**-125]), 2.0**-127 * 2.0**100
    assert accuracy(graph, box, arithmetic=Arithmetic(execution=execution)).layers[0].total >= flushed
    kept = accuracy(graph, box, arithmetic=Arithmetic(execution=execution, flush=False))
    assert kept.layers[0].total < flushed / 2**20


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_a_softmax_whose_logits_range_widely(execution: str) -> None:
    """Ranges of exp overflow; exponents are shifted all the same. PyTorch stays within."""
    import torch

    rng = np.random.default_rng(2)
    w = (rng.normal(size=(5, 8)) * 20).astype(F32)
    graph = sg.trace(lambda x: sg.softmax(sg.linear(w, None, x), -1), (1, 8))
    proven = accuracy(graph, Box(-np.ones((1, 8)), np.ones((1, 8))), arithmetic=Arithmetic(execution=execution))
    assert proven.verdict == "bounded"
    softmax = proven.layers[-1]
    assert 0 < softmax.propagated < softmax.total < 1e-3
    run, most = sg.compile(graph, "torch"), 0.0
    for _ in range(200):
        x = rng.uniform(-1, 1, (1, 8)).astype(F32)
        got = run(torch.from_numpy(x)).double().numpy()
        logits = x.astype(float) @ w.astype(float).T
        z = np.exp(logits - logits.max())
        most = max(most, float(np.abs(got - z / z.sum()).max()))
    assert 0 < most <= softmax.total


def test_only_a_softmax_is_taken_for_one() -> None:
    """Another divisor, another shift, other axes: no bound of softmax."""
    from specgrad.safety.accuracy.softmax import match_softmax

    def parts(x: Any, axis: int, other: int) -> Any:
        z = sg.exp(x - sg.amax(x, axis, keepdims=True))
        return z / sg.sum(z, other, keepdims=True)

    def is_one(net: Any) -> bool:
        graph = sg.trace(net, (3, 3))
        return match_softmax(graph, len(graph.nodes) - 1) is not None

    assert is_one(lambda x: parts(x, 1, 1))
    assert not is_one(lambda x: parts(x, 1, 0))
    assert not is_one(lambda x: sg.exp(x) / sg.sum(sg.exp(x), 1, keepdims=True))
    assert not is_one(lambda x: sg.exp(x - sg.amax(x * 2, 1, keepdims=True)) / sg.sum(x, 1, keepdims=True))

    def turned(x: Any) -> Any:
        """The sums of columns, one beside each row."""
        z = sg.exp(x - sg.amax(x, 0, keepdims=True))
        return z / sg.broadcast(sg.reshape(sg.sum(z, 0), (3, 1)), (3, 3))

    assert not is_one(turned)
