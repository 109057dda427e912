"""A counterexample stands if what is proven does not exclude it and everybody was asked: wrong engines are planted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import certify
from specgrad.check import preserve
from specgrad.errors import ContradictionError, ParameterError
from specgrad.properties.property import Alternative, Case, Property
from specgrad.rounding import Arithmetic

torch = pytest.importorskip("torch")
pytest.importorskip("flint")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from specgrad.bounds.search.eps_search import largest_eps  # noqa: E402
from specgrad.bounds.search.network import point_enclosure, witnesses  # noqa: E402
from specgrad.bounds.search.network.pgd_attack import DeployedNetwork  # noqa: E402
from specgrad.bounds.search.network.point_enclosure import enclosed  # noqa: E402
from specgrad.interop import from_onnx, from_torch, to_onnx  # noqa: E402

Engine = Callable[[float], None]


class Gated(torch.nn.Module):
    """g*(1 - y*y) + tanh(y), which an engine once took for the gradient of tanh."""

    def forward(self, x: Any) -> Any:
        g, y = x[:, :1], x[:, 1:]
        return g * (1 - y * y) + torch.tanh(y)


def at_least(limit: float, low: float = 1.9, high: float = 2.0, inputs: int = 2) -> Property:
    """Never y >= limit."""
    box = (Fraction(low),) * inputs, (Fraction(high),) * inputs
    return Property(inputs, 1, (Case(*box, (Alternative(-np.ones((1, 1)), (-Fraction(limit),)),)),))


@pytest.fixture(scope="module")
def gated() -> sg.Graph:
    return from_torch(Gated().eval(), torch.zeros(1, 2))


@pytest.fixture
def wrong_engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Our engine computes something that is larger by so much, alone and in batches."""

    def plant(by: float) -> None:
        output = DeployedNetwork._output
        monkeypatch.setattr(DeployedNetwork, "_output", lambda self, x: output(self, x) + by)

    return plant


def test_everybody_is_asked(gated: sg.Graph, tmp_path: Path) -> None:
    module = Gated().eval()
    point = certify(gated, at_least(-4.75)).counterexample
    assert point.confirmed == ("torch", "onnxruntime")
    assert (point.exactly, point.disagree) == (True, ())
    onnx.save(to_onnx(gated), tmp_path / "net.onnx")
    assert certify(tmp_path / "net.onnx", at_least(-4.75)).counterexample.confirmed == ("torch", "onnxruntime")
    everybody = ("torch", "module", "onnxruntime")
    assert certify(gated, at_least(-4.75), source=module).counterexample.confirmed == everybody
    verdict = certify(module, at_least(-4.75), shape=(1, 2))
    assert verdict.counterexample.confirmed == everybody
    said = verdict.counterexample.said()
    assert [line.partition(":")[0] for line in said[:3]] == [f"{who} breaks it" for who in everybody]
    assert said[3] == "the exact outputs break it"
    y = math.tanh(verdict.counterexample.x[0, 1]) + verdict.counterexample.x[0, 0] * (
        1 - verdict.counterexample.x[0, 1] ** 2
    )
    for run in verdict.counterexample.to_json()["asked"]:
        assert run["y"] == pytest.approx([y], abs=1e-5)


def test_an_engine_that_computes_something_else_is_no_witness(gated: sg.Graph, wrong_engine: Engine) -> None:
    """Its counterexample is excluded by what is proven at the point: no verdict, but a fault of ours."""
    assert certify(gated, at_least(0)).verdict == "holds"
    wrong_engine(6.0)
    with pytest.raises(ContradictionError, match=r"torch computes .* at output 0, where -4\.50455.* is proven of"):
        certify(gated, at_least(0))


def test_an_engine_that_is_a_little_wrong_is_no_witness(gated: sg.Graph, wrong_engine: Engine) -> None:
    """By 24 roundings: the ball at the point is narrower."""
    wrong_engine(24 * 2.0**-22)
    with pytest.raises(ContradictionError):
        certify(gated, at_least(-4.75))


def test_where_rounding_decides_it_is_told_who_disagrees(wrong_engine: Engine) -> None:
    """x + 1 is 2 at 1, and 2 - 2**-23 for another execution: within rounding nobody is false, and both are told."""
    graph = sg.trace(lambda x: x * np.float32(1 / 3) + 1, (1, 1))
    exact = 1 + Fraction(float(np.float32(1 / 3)))
    limit = float(np.nextafter(np.float32(exact), np.float32(2)))
    assert certify(graph, at_least(limit, 1, 1, inputs=1), seconds=5).verdict != "violated"
    wrong_engine(2.0**-23)
    verdict = certify(graph, at_least(limit, 1, 1, inputs=1), seconds=5)
    assert verdict.verdict == "violated"
    assert verdict.counterexample.confirmed == ("torch",)
    assert [run.who for run in verdict.counterexample.disagree] == ["onnxruntime"]
    assert verdict.counterexample.exactly is False
    assert verdict.notes == ("at the counterexample rounding decides: onnxruntime does not break the property there",)
    assert verdict.counterexample.to_json()["asked"][1]["outcome"] == "does not break it"


def unbounded() -> sg.Graph:
    """x + 1, but for sums that may overflow on the way: nothing is proven of the output."""
    return sg.trace(
        lambda x: (x * np.float32(3e38)) * np.float32(2) * np.float32(1e-38) * np.float32(0) + x + 1, (1, 1)
    )


def test_where_nothing_is_proven_one_engine_is_not_enough(wrong_engine: Engine) -> None:
    assert not enclosed(unbounded(), np.float32([[0.5]])).is_bounded
    verdict = certify(unbounded(), at_least(1.25, 0, 0.5, inputs=1), seconds=5)
    assert verdict.counterexample is not None
    assert len(verdict.counterexample.confirmed) > 1 or verdict.counterexample.exactly
    wrong_engine(6.0)
    verdict = certify(unbounded(), at_least(5, 0, 0.5, inputs=1), seconds=5)
    assert verdict.verdict == "unknown"
    assert verdict.reason.startswith("at the input that was found only specgrad's engine breaks it")


def test_a_module_that_computes_something_else_is_not_passed_over(gated: sg.Graph) -> None:
    class Other(Gated):
        def forward(self, x: Any) -> Any:
            return super().forward(x) - 0.125

    with pytest.raises(ContradictionError, match=r"^module computes -4\.6"):
        certify(gated, at_least(-4.75), source=Other().eval())


def test_a_file_that_computes_something_else_is_not_passed_over(gated: sg.Graph, tmp_path: Path) -> None:
    onnx.save(to_onnx(sg.trace(lambda x: gated(x) - np.float32(0.125), (1, 2))), tmp_path / "other.onnx")
    with pytest.raises(ContradictionError, match=r"^onnxruntime computes -4\.6"):
        certify(gated, at_least(-4.75), source=tmp_path / "other.onnx")


def test_who_gives_no_answer_is_told(gated: sg.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Gated):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("the GPU is gone")

    class Longer(Gated):
        def forward(self, x: Any) -> Any:
            return torch.cat([super().forward(x)] * 2, 1)

    monkeypatch.setattr(witnesses, "find_spec", lambda package: None)
    for module, reason in ((Broken(), "RuntimeError: the GPU is gone"), (Longer(), "its outputs have shapes [(1, 2)]")):
        point = certify(gated, at_least(-4.75), source=module.eval()).counterexample
        assert point.confirmed == ("torch",)
        assert [run.outcome for run in point.runs] == ["breaks it", "no answer", "no answer"]
        assert point.runs[1].reason.startswith(reason)
        assert point.runs[2].reason == "onnxruntime is not installed"
        assert str(point.runs[2]) == "onnxruntime: no answer (onnxruntime is not installed)"


def test_an_execution_of_another_class_is_no_counterexample(wrong_engine: Engine) -> None:
    """Four products with constants: folded into one they may meet a rounding more than node by node."""
    constants = [np.float32(1 / n) for n in (3, 7, 11, 13)]

    def product(x: Any) -> Any:
        for c in constants:
            x = x * c
        return x

    graph, one = sg.trace(product, (1, 1)), np.float32([[1]])
    by_node = Arithmetic(execution="node")
    wide, narrow = enclosed(graph, one), enclosed(graph, one, by_node)
    y = np.nextafter(np.float32(wide.high), np.float32(0))
    assert not wide.excludes(y)
    assert narrow.excludes(y)
    wrong_engine((y - DeployedNetwork(graph).run(one)).item())
    statement = at_least(y.item(), 1, 1, inputs=1)
    assert certify(graph, statement, seconds=5).counterexample.confirmed == ("torch",)
    verdict = certify(graph, statement, seconds=5, arithmetic=by_node)
    assert verdict.counterexample is None


def test_a_source_goes_with_a_graph(gated: sg.Graph) -> None:
    with pytest.raises(ParameterError, match=r"source is the ONNX file or PyTorch module .* got int for a Graph"):
        certify(gated, at_least(0), source=3)
    with pytest.raises(ParameterError, match="got Gated for a Gated"):
        certify(Gated().eval(), at_least(0), source=Gated(), shape=(1, 2))


def whole_inputs(kind: int) -> bytes:
    """2*x of whole numbers."""
    made = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Cast", ["x"], ["a"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Mul", ["a", "w"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", kind, (1, 2))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.float32(2), "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    return bytes(onnx.helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString())


@pytest.mark.parametrize("kind", [onnx.TensorProto.UINT8, onnx.TensorProto.INT8])
def test_nobody_can_give_a_counterexample_between_whole_numbers(kind: int) -> None:
    """(1, 2) moved by 0.6: the only whole input of that box is itself, and it keeps its label; (1.6, 1.4) does not."""
    model = whole_inputs(kind)
    name = onnx.TensorProto.DataType.Name(kind)
    for given, options in ((model, {}), (from_onnx(model), {"source": model})):
        with pytest.raises(ParameterError, match=f"input 'x' is of {name}; .* a counterexample between whole ones"):
            certify(given, (np.float32([[1, 2]]), 1, 0.6), seconds=5, **options)


@pytest.mark.parametrize("choose", [sg.argmax, sg.argmin])
def test_another_position_at_the_input_is_said_as_one(choose: Any) -> None:
    graph = sg.trace(lambda x: choose(x * np.float32([1, 2]), 1), (1, 2))
    label = int(np.asarray(graph(np.ones((1, 2)))).item())
    verdict = certify(graph, (np.float32([[1, 1]]), 1 - label, 0.0), seconds=5)
    assert verdict.reason == f"at the input itself the position is {label}, not {1 - label}"


# --- what else rests on runs of our engine ---------------------------------------------------------------------------


def classifier() -> sg.Graph:
    return sg.trace(lambda x: sg.relu(sg.linear(np.float32([[1, 1], [1, -1]]), None, x)), (1, 2))


@pytest.fixture
def swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our engine gives the outputs in the other order."""
    output = DeployedNetwork._output
    monkeypatch.setattr(DeployedNetwork, "_output", lambda self, x: output(self, x).flip(0))


@pytest.mark.usefixtures("swapped")
def test_the_largest_eps_rests_on_no_engine_alone() -> None:
    with pytest.raises(ContradictionError):
        largest_eps(classifier(), np.float32([[1.0, 0.5]]), 0, seconds=10)


@pytest.mark.usefixtures("swapped")
def test_decisions_over_a_box_rest_on_no_engine_alone() -> None:
    with pytest.raises(ContradictionError):
        preserve(classifier(), np.float32([[1.0, 0.25]]), eps=0.5, runtimes=())


def test_decisions_at_a_sample_rest_on_no_engine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from specgrad.check.decisions.runtime_pool import Runtimes

    tie = sg.trace(lambda x: sg.linear(np.float32([[1, 3], [3, 1]]), None, x) * np.float32(1 / 3), (1, 2))
    sample = np.float32([[1.0, 1.0]])
    assert preserve(tie, sample, runtimes=("torch",)).samples[0].verdict != "proven"
    engine = Runtimes._run_engine
    flipped = lambda self, name, inputs: [y + np.float32([[1, 0]]) for y in engine(self, name, inputs)]
    monkeypatch.setattr(Runtimes, "_run_engine", flipped)
    with pytest.raises(ContradictionError, match=r"torch .* leaves what is proven"):
        preserve(tie, sample, runtimes=("torch",))


# --- the enclosure ----------------------------------------------------------------------------------------------------


def networks() -> Iterator[tuple[sg.Graph, Any, Any]]:
    """Small networks with an input each, and what they compute over rationals."""
    rng = Random(0)
    for _ in range(12):
        w = [[rng.randint(-8, 8) for _ in range(3)] for _ in range(4)]
        v = [[rng.randint(-8, 8) for _ in range(4)] for _ in range(2)]
        x = [Fraction(rng.randint(-64, 64), 64) for _ in range(3)]
        first, second = np.float32(w), np.float32(v)
        graph = sg.trace(lambda x, a=first, b=second: sg.linear(b, None, sg.relu(sg.linear(a, None, x))), (3,))
        hidden = [max(Fraction(0), sum((c * t for c, t in zip(row, x, strict=True)), Fraction(0))) for row in w]
        yield graph, x, [sum((c * h for c, h in zip(row, hidden, strict=True)), Fraction(0)) for row in v]


@pytest.mark.parametrize("size", [point_enclosure.WORK, 0])
def test_an_enclosure_holds_exact_values_and_excludes_others(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By balls, and by float64 where a network is too large for them."""
    monkeypatch.setattr(point_enclosure, "WORK", size)
    row = np.array([[1.0, -1.0]])
    for graph, x, y in networks():
        known = enclosed(graph, np.float32([float(v) for v in x]), rows=row)
        values = np.array([float(v) for v in y])
        assert not known.excludes(values)
        assert (known.near <= values).all()
        assert (values <= known.far).all()
        assert (known.far - known.near <= 2.0**-40).all()
        for off in ([1e-3, 0], [0, -1e-3], [math.inf, 0], [0, math.nan]):
            assert known.excludes(values + off)
        case = Case((), (), (Alternative(row, (y[0] - y[1],)),))
        below = Case((), (), (Alternative(row, (y[0] - y[1] - Fraction(1, 1000),)),))
        assert known.decides(below, ()) is False
        assert known.decides(case, ()) in (True, None)


def test_bounds_that_exclude_each_other_are_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x, _ = next(networks())
    exact = point_enclosure._exact_output_bounds
    monkeypatch.setattr(point_enclosure, "_exact_output_bounds", lambda *args: tuple(end + 1 for end in exact(*args)))
    with pytest.raises(ContradictionError, match="bounds of output 0 at one input exclude each other"):
        enclosed(graph, np.float32([float(v) for v in x]))
