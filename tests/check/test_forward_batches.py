"""Batches of samples: what they prove is true of each sample, by exact numbers and by executions steered apart."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check import preserve
from specgrad.errors import UnsupportedError
from specgrad.rounding import Arithmetic, radius

pytest.importorskip("torch")
import torch

from deciding import exact_argmax, exact_outputs, executed, trained
from models import SMALL
from specgrad.interop import from_torch
from specgrad.partition.stacked_graph import stack_samples

batches = import_module("specgrad.check.decisions.forward_batches")
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]


def in_batches(monkeypatch: pytest.MonkeyPatch, each: int) -> None:
    monkeypatch.setattr(batches, "samples_at_once", lambda graph: each)


# --- the stacked graph ------------------------------------------------------------------------------------------------

ROW, TABLE = np.float32([[1, 2, 3]]), np.arange(12.0).reshape(4, 3)
ONES = np.ones((3, 2), np.float32)
EDGES = np.float32([[[1, 2, 4]], [[1, 1, 1]]])


def joined(x: Any, then: Any) -> Any:
    """Rows of all samples below each other, then each sample as one row."""
    y = then(sg.reshape(x, (4, 3)))
    return sg.reshape(y, (1, 4 * y.shape[1]))


APART: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a row added to every sample": (lambda x: x + ROW, (1, 3)),
    "samples joined with rows": (lambda x: joined(x, lambda y: y @ ONES), (1, 4, 3)),
    "a table joined with rows": (lambda x: joined(x, lambda y: y * TABLE), (1, 4, 3)),
    "samples last": (lambda x: sg.permute(x, (1, 2, 0)) * 2, (1, 2, 3)),
    "a part of a row": (lambda x: x[:, 1:3] - x[:, :2], (1, 4)),
    "a stride": (lambda x: sg.max_pool(sg.conv(EDGES, None, x, padding=1, stride=2), (2,)), (1, 1, 9)),
    "a softmax": (lambda x: sg.softmax(x, axis=1), (1, 4)),
    "a sum": (lambda x: x - sg.sum(x, 1, keepdims=True), (1, 4)),
}
MIXED: dict[str, Any] = {
    "a softmax over samples": lambda x: sg.softmax(x, axis=0),
    "a sum over samples": lambda x: x - sg.sum(x, 0, keepdims=True),
    "a maximum over samples": lambda x: sg.concat([x, sg.amax(x, 0, keepdims=True)], axis=1),
    "a running sum over samples": lambda x: sg.cumsum(x, 0),
    "the first sample": lambda x: sg.gather(x, np.array([0])),
    "samples doubled": lambda x: sg.concat([x, x], axis=0),
    "one that depends on none": lambda x: (x, ROW),
}


@pytest.mark.parametrize("name", APART)
def test_every_sample_of_a_stacked_graph_is_the_graph_of_one(name: str) -> None:
    """Bit for bit, by the specification in float64."""
    fn, shape = APART[name]
    graph = sg.trace(fn, shape)
    x = np.random.default_rng(0).integers(-8, 9, (5, *shape[1:])).astype(float)
    stacked = stack_samples(graph, 5)
    y = stacked.graph(x)
    for k in range(5):
        np.testing.assert_array_equal(stacked.of_sample(y, 0, k), graph(x[k : k + 1]))


@pytest.mark.parametrize("name", MIXED)
def test_samples_that_meet_are_refused(name: str) -> None:
    """One sample cannot tell a sum over samples from none; five must not be stacked."""
    with pytest.raises(UnsupportedError, match="sample"):
        stack_samples(sg.trace(MIXED[name], (1, 3)), 5)


@pytest.mark.parametrize("name", SMALL)
def test_imported_networks_stacked(name: str) -> None:
    """The module itself, in float64, agrees sample by sample; names, by which formats and stores go, stay."""
    module, x = SMALL[name]()
    graph = from_torch(module, x[:1])
    x = torch.randn(3, *x.shape[1:], dtype=torch.float64)
    stacked = stack_samples(graph, 3)
    y = radius(stacked.graph, x.numpy(), backend="torch").outputs.value
    with torch.no_grad():
        np.testing.assert_allclose(y, module.double()(x).numpy(), rtol=1e-9, atol=1e-9)
    assert {n.name for n in graph.nodes} <= {n.name for n in stacked.graph.nodes}


def half_sums(name: str) -> Any:
    """Half factors and sums, called `name`, beside a row that is added to every sample in float32."""
    onnx = pytest.importorskip("onnx")
    of, make, array = onnx.TensorProto, onnx.helper.make_node, onnx.numpy_helper.from_array
    nodes = [
        make("Cast", ["x"], ["c"], to=of.FLOAT),
        make("Add", ["c", "row"], ["a"]),
        make("MatMul", ["x", "w"], [name]),
    ]
    nodes += [make("Cast", [name], ["d"], to=of.FLOAT), make("Concat", ["d", "a"], ["y"], axis=1)]
    weights = np.float32([[-100, -100]]), np.float16([[1, 1], [2**-12, 0]])
    sizes = onnx.helper.make_tensor_value_info
    ends = [sizes("x", of.FLOAT16, ["N", 2])], [sizes("y", of.FLOAT, ["N", 4])]
    graph = onnx.helper.make_graph(nodes, "g", *ends, [array(a, n) for a, n in zip(weights, ("row", "w"), strict=True)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", ["broadcast", "concat", "repeated", "repeated_2"])
def test_formats_go_by_names_that_a_repeated_constant_does_not_take(name: str) -> None:
    """1 - 2**-13 is below 1, and 1 as a half: of a sum stored as half the other class is the first of equal ones."""
    x = np.float16([[1, -0.5]] * 3)
    exact = [
        sum(Fraction(float(a)) * b for a, b in zip(x[0], w, strict=True)) for w in ((1, Fraction(1, 2**12)), (1, 0))
    ]
    assert exact[0] < exact[1]
    assert float(np.float16(float(exact[0]))) == float(np.float16(float(exact[1])))
    assert preserve(half_sums(name), x, runtimes=()).verdict == "not proven"


def test_a_graph_with_two_nodes_of_one_name_is_not_stacked() -> None:
    """The second would get another name, and lose its format."""
    graph = sg.trace(lambda x: sg.relu(x) * 2, (1, 3))
    twins = replace(graph, nodes=tuple(replace(n, name="x") for n in graph.nodes))
    with pytest.raises(UnsupportedError, match="shares its name"):
        stack_samples(twins, 3)


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_margins_in_batches_are_those_of_exact_arithmetic(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every sample, the last of a batch and those of the last, shorter batch too; and its own tolerance."""
    in_batches(monkeypatch, 5)
    graph, x = trained(seed)
    scale = np.float32(2.0) ** np.arange(12).reshape(-1, 1, 1, 1) / 8
    x = x[:12] * scale
    result = preserve(graph, x, runtimes=())
    assert [s.number for s in result.samples] == list(range(12))
    for s in result.samples:
        y = exact_outputs(graph, x[s.number : s.number + 1])
        assert s.decision == exact_argmax(graph, x[s.number : s.number + 1])
        first, second = s.between
        assert abs(y[first] - y[second] - Fraction(s.margin)) < Fraction(s.tolerance)


@pytest.mark.parametrize("seed", SEEDS)
def test_executions_stay_in_the_balls_of_a_batch(seed: int) -> None:
    """Random executions of every sample alone, by the independent executor, and its exact outputs."""
    graph, x = trained(seed)
    x = x[:6] * np.float32([1, 100, 0.01, 3, 1000, 0.5]).reshape(-1, 1, 1, 1)
    stacked = stack_samples(graph, 6)
    ball = radius(stacked.graph, x.astype(float), backend="torch").outputs
    for k in range(6):
        low, high = (stacked.of_sample(end, 0, k).ravel() for end in (ball.low, ball.high))
        for run in range(3):
            y = executed(graph, x[k : k + 1], f"{seed}/{k}/{run}").ravel()
            assert (low <= y).all()
            assert (y <= high).all()
        exact = exact_outputs(graph, x[k : k + 1])
        assert all(Fraction(a) <= v <= Fraction(b) for a, v, b in zip(low, exact, high, strict=True))
        alone = radius(graph, x[k : k + 1].astype(float), backend="torch").outputs
        assert (stacked.of_sample(ball.radius, 0, k) <= 1.25 * alone.radius).all()


@pytest.mark.parametrize("decision", ["argmax", "top-2", "threshold:0.5", "mask"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_label_is_lost_in_batches(seed: int, decision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample by sample: what is decided is the same, what is proven alone is proven in a batch."""
    graph, x = trained(seed)
    in_batches(monkeypatch, 1)
    alone = preserve(graph, x[:9], decision, runtimes=())
    in_batches(monkeypatch, 4)
    together = preserve(graph, x[:9], decision, runtimes=())
    for a, b in zip(alone.samples, together.samples, strict=True):
        assert (a.number, a.decision, a.decisions, a.between) == (b.number, b.decision, b.decisions, b.between)
        assert b.verdict == "proven" or b.verdict == a.verdict
        assert b.margin == pytest.approx(a.margin, abs=1e-12)
        assert a.tolerance <= 1.25 * b.tolerance <= 1.6 * a.tolerance


def test_pixels_of_every_sample_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many decisions a sample: counted for each, and the nearest to turning is one of its own cells."""
    in_batches(monkeypatch, 3)
    w, b = np.float32([[[[1.0]]], [[[-1.0]]]]), np.float32([100, 100])
    graph = sg.trace(lambda x: sg.conv(w, b, x), (1, 1, 2, 2))
    x = np.float32([[[[1, 2], [3, 4]]], [[[-5, 6], [7, -0.5]]], [[[2**-9, 1], [1, 1]]], [[[9, 9], [9, -2]]]])
    result = preserve(graph, x, "mask", runtimes=())
    assert [(s.decisions, s.unproven, s.decision) for s in result.samples] == [(4, 0, None)] * 4
    nearest = [[0, 4], [7, 3], [0, 4], [7, 3]]
    assert [s.margin for s in result.samples] == [2, 1, 2**-8, 4]
    assert [sorted(s.between) for s in result.samples] == [sorted(pair) for pair in nearest]


def test_a_sample_that_is_not_finite_spoils_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not proven, and says why; its neighbours are."""
    in_batches(monkeypatch, 4)
    graph, x = trained(0)
    x = x[:6].copy()
    x[1, 0, 2, 3] = np.nan
    x[4, 0, 0, 0] = np.inf
    result = preserve(graph, x, runtimes=())
    assert [s.verdict for s in result.samples] == ["proven", "not proven", "proven", "proven", "not proven", "proven"]
    assert {result.samples[k].reason for k in (1, 4)} == {"the sample is not finite"}


def test_what_batches_settle_never_reaches_crown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass of balls for three batches, and nothing else."""
    in_batches(monkeypatch, 4)
    preserving = import_module("specgrad.check.decisions.preserve")
    monkeypatch.setattr(preserving, "margins_at", lambda *_: pytest.fail("judged alone"))
    asked = []
    ball_of = batches.radius
    monkeypatch.setattr(batches, "radius", lambda g, *a, **k: asked.append(len(a[0])) or ball_of(g, *a, **k))
    graph, x = trained(0)
    result = preserve(graph, x[:10], runtimes=(), arithmetic=Arithmetic(execution="node"))
    assert result.verdict == "proven"
    assert asked == [4, 4, 2]
