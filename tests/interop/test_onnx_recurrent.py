"""LSTM, GRU and RNN against ONNX Runtime and onnx's reference, over drawn attributes; and planted faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import specgrad as sg
from onnx_cases import info, runtime
from specgrad.check.auditing.audit import audit, audit_recorded
from specgrad.check.verdicts.judge import judge_array
from specgrad.interop import from_onnx
from specgrad.rounding import Arithmetic, radius

KINDS = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}  # gates, activations
SCALED = {"LeakyRelu": 1, "Elu": 1, "ThresholdedRelu": 1, "HardSigmoid": 2, "Affine": 2}
NAMES = ("Relu", "Tanh", "Sigmoid", "Softplus", *SCALED)
FED = ("X", "initial_h", "initial_c")
REFERENCE_LACKS = ("activations", "clip", "input_forget")


def layer(kind: str, inputs: dict[str, np.ndarray], opset: int = 22, **attributes: Any) -> onnx.ModelProto:
    """A model of one node; X and the first states are inputs, everything else stands in the file."""
    order = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")[: 8 if kind == "LSTM" else 6]
    outputs = ["Y", "Y_h", "Y_c"][: 3 if kind == "LSTM" else 2]
    attributes = {"hidden_size": inputs["R"].shape[2], **attributes}
    node = helper.make_node(kind, [n if n in inputs else "" for n in order], outputs, name="layer", **attributes)
    stored = [numpy_helper.from_array(v, k) for k, v in inputs.items() if k not in FED]
    declared = [info(n, inputs[n].shape) for n in FED if n in inputs]
    graph = helper.make_graph([node], "one", declared, [info(o, None) for o in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def attributes_of(rng: np.random.Generator, kind: str, directions: int) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    if rng.random() < 0.5:
        drawn["activations"] = [str(name) for name in rng.choice(NAMES, KINDS[kind][1] * directions)]
        for parameter, least in (("alpha", 1), ("beta", 2)):
            count = sum(SCALED.get(name, 0) >= least for name in drawn["activations"])
            if count:
                drawn[f"activation_{parameter}"] = rng.uniform(0.1, 1, count).tolist()
    if rng.random() < 0.3:
        drawn["clip"] = float(rng.uniform(0.2, 1.5))
    if kind == "LSTM" and rng.random() < 0.3:
        drawn["input_forget"] = 1
    if kind == "GRU" and rng.random() < 0.5:
        drawn["linear_before_reset"] = 1
    return drawn


def draw(seed: int, kind: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, Any]]:
    """A layer, its inputs and attributes; in layout 1 batches stand first."""
    rng = np.random.default_rng(seed)
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    directions, gates = 1 + (direction == "bidirectional"), KINDS[kind][0]
    steps, batch, inputs, hidden = (int(rng.integers(1, n)) for n in (6, 4, 5, 6))
    opset = int(rng.choice([7, 11, 14, 17, 22]))
    given = {"direction": direction, "hidden_size": hidden, **attributes_of(rng, kind, directions)}
    if opset >= 14 and rng.random() < 0.3:
        given["layout"] = 1
    turned = (1, 0, 2) if "layout" in given else (0, 1, 2)
    shapes = {
        "X": tuple(np.array((steps, batch, inputs))[list(turned)]), "W": (directions, gates * hidden, inputs),
        "R": (directions, gates * hidden, hidden), "B": (directions, 2 * gates * hidden),
        "initial_h": tuple(np.array((directions, batch, hidden))[list(turned)]),
        "initial_c": tuple(np.array((directions, batch, hidden))[list(turned)]), "P": (directions, 3 * hidden),
    }  # fmt: skip
    values = {name: (rng.normal(size=shape) * 0.7).astype(np.float32) for name, shape in shapes.items()}
    if rng.random() < 0.4:
        values["sequence_lens"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    left_out = {n for n in ("B", "initial_h", "initial_c", "P") if rng.random() < 0.5}
    left_out |= {"initial_c", "P"} if kind != "LSTM" else set()
    values = {n: v for n, v in values.items() if n not in left_out}
    return layer(kind, values, opset, **given), {n: values[n] for n in FED if n in values}, given


def opinions(model: onnx.ModelProto, feeds: dict[str, np.ndarray], given: dict[str, Any]) -> dict[str, list[Any]]:
    """What others compute: ONNX Runtime knows no layout 1, onnx's reference few attributes."""
    results = {}
    if "layout" not in given:
        results["onnxruntime"] = runtime(model, list(feeds.values()))
    if not any(name in given for name in REFERENCE_LACKS) and "sequence_lens" not in model.graph.node[0].input:
        results["reference"] = ReferenceEvaluator(model).run(None, feeds)
    return results


def check(seed: int, kind: str) -> int:
    """The number of opinions that agree with our meaning, within the radius."""
    model, feeds, given = draw(seed, kind)
    arrays = [v.astype(float) for v in feeds.values()]
    balls = radius(from_onnx(model), *arrays, arithmetic=Arithmetic(execution="node")).outputs
    others = opinions(model, feeds, given)
    for who, results in others.items():
        for actual, ball in zip(results, balls, strict=True):
            tight = np.abs(actual - ball.value).max(initial=0) < 1e-5 * max(1, np.abs(ball.value).max(initial=0))
            verdict = judge_array(who, actual, ball)
            small_tanh = kind == "RNN" and verdict.kind == "differs"  # tanh-by-sigmoid, see below
            assert tight, (seed, given, verdict)
            assert verdict.kind in ("exact", "rounding", "cannot tell") or small_tanh, (seed, given, verdict)
    return len(others)


@pytest.mark.parametrize("kind", KINDS)
def test_others_compute_the_same(kind: str) -> None:
    assert sum(check(seed, kind) for seed in range(4)) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_others_compute_the_same_in_many_cases(kind: str) -> None:
    assert sum(check(seed, kind) for seed in range(4, 400)) >= 390


def small(kind: str = "LSTM", steps: int = 5, hidden: int = 8, directions: int = 1) -> dict[str, np.ndarray]:
    rng, gates = np.random.default_rng(1), KINDS[kind][0]
    shapes = {"X": (steps, 1, 6), "W": (directions, gates * hidden, 6), "R": (directions, gates * hidden, hidden)}
    return {n: (rng.normal(size=s) / 2).astype(np.float32) for n, s in shapes.items()}


def recorded(model: onnx.ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    return {"X": x, **dict(zip([o.name for o in model.graph.output], runtime(model, [x]), strict=True))}


def audited(model: onnx.ModelProto, seen: dict[str, np.ndarray]) -> Any:
    """The layer alone: nothing is carried backwards through the whole model."""
    return audit_recorded(model, seen, of="onnxruntime", tolerance_seconds=0)


FAULTS = {
    "negated": lambda r: -r,
    "gates swapped": lambda r: np.roll(r, r.shape[2], 1),
    "1 % off": lambda r: r * np.float32(1.01),
}


PLANTED = [
    pytest.param("LSTM", "bidirectional", "gates swapped", marks=pytest.mark.slow),  # tests/check/test_usual.py has one
    ("GRU", "forward", "1 % off"),
    pytest.param("RNN", "reverse", "negated", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "direction", "fault"), PLANTED)
def test_planted_faults_of_recurrent_weights_differ(kind: str, direction: str, fault: str) -> None:
    values = small(kind, 2, 3, directions=1 + (direction == "bidirectional"))
    model = layer(kind, values, direction=direction)
    broken = layer(kind, {**values, "R": FAULTS[fault](values["R"])}, direction=direction)
    result = audited(model, recorded(broken, values["X"]))
    assert result.verdict == "differs"
    assert result.first_divergent is not None
    assert result.first_divergent.name == "layer"


@pytest.mark.slow
def test_every_step_is_judged_from_the_state_that_was_recorded() -> None:
    """A fault of one step differs there, and the steps after it do not hide it."""
    values = small("GRU", steps=6, hidden=4)
    model = layer("GRU", values)
    seen = recorded(model, values["X"])
    seen["Y"] = seen["Y"].copy()
    seen["Y"][3, 0, 0, 3] *= 1 + 2**-14
    verdict = audited(model, seen).layers[0].verdict
    assert verdict.kind == "differs"
    assert verdict.index[0] in (3, 4)
    wide = radius(from_onnx(model), values["X"].astype(float)).outputs[0].radius
    assert wide[-1].max() > 2 * verdict.allowed  # what is allowed does not grow with time


def test_gates_and_steps_have_names() -> None:
    model = layer("LSTM", small(steps=2, directions=2), direction="bidirectional")
    names = {n.name for n in from_onnx(model).nodes}
    assert {"layer.forward.t0.forget.sigmoid", "layer.reverse.t1.output.sigmoid", "layer.forward.t1.cell.tanh"} <= names


def test_derivatives_are_those_of_finite_differences() -> None:
    values = small("GRU", steps=3, hidden=4)
    graph = from_onnx(layer("GRU", values))
    x, dx = values["X"].astype(float), np.random.default_rng(2).normal(size=values["X"].shape)
    tangent = sg.jvp(graph)(x, dx)[2]
    eps = 1e-6
    wanted = (graph(x + eps * dx)[0] - graph(x - eps * dx)[0]) / (2 * eps)
    np.testing.assert_allclose(tangent, wanted, rtol=1e-6, atol=1e-8)


def test_onnx_runtime_as_a_runtime() -> None:
    for kind in ("LSTM",):
        values = small(kind, 3)
        result = audit(layer(kind, values), "onnxruntime", values["X"], tolerance_seconds=0)
        assert (result.verdict, result.coverage.is_whole) == ("rounding", True)


def test_a_tanh_by_sigmoid_is_named_and_a_fault_is_not() -> None:
    """ONNX Runtime's RNN: its error is a part of 1, which small states show."""
    values = {name: v * np.float32(0.02) for name, v in small("RNN", 3).items()}
    model = layer("RNN", values)
    seen = recorded(model, values["X"])
    result = audited(model, seen)
    assert (result.verdict, result.layers[0].verdict.arithmetic) == ("other arithmetic", "tanh-by-sigmoid")
    seen["Y"] = seen["Y"] + np.float32(1e-6)
    assert audited(model, seen).verdict == "differs"


REFUSED = {
    "too many steps": (lambda: layer("RNN", small("RNN", 700)), "700 steps in 1 directions; at most 600 are unrolled"),
    "a direction": (lambda: layer("RNN", small("RNN"), direction="sideways"), "direction='sideways' must be one of"),
    "an activation": (lambda: layer("RNN", small("RNN"), activations=["Mish"]), "activation='Mish' must be one of"),
    "a parameter that lacks": (
        lambda: layer("RNN", small("RNN"), activations=["Affine"]),
        "activation Affine needs activation_alpha",
    ),
    "parameters too many": (
        lambda: layer("RNN", small("RNN"), activation_alpha=[0.5]),
        "activation_alpha or activation_beta has more numbers than the activations take",
    ),
    "a hidden size": (lambda: layer("RNN", small("RNN"), hidden_size=3), "hidden_size contradicts"),
    "weights of another kind": (lambda: layer("GRU", small("LSTM")), "W must have shape (1, 24, 6); got (1, 32, 6)"),
    "a sequence too long": (
        lambda: layer("RNN", {**small("RNN"), "sequence_lens": np.int32([6])}),
        "sequence_lens=[6] must lie in 1..5",
    ),
    "a clip": (lambda: layer("RNN", small("RNN"), clip=-1.0), "clip=-1.0 must be positive"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(sg.SpecgradError) as caught:
        from_onnx(make())
    assert message in str(caught.value)


def test_lengths_that_are_computed_are_refused() -> None:
    values = small("RNN")
    model = layer("RNN", {**values, "sequence_lens": np.int32([5])})
    del model.graph.initializer[[t.name for t in model.graph.initializer].index("sequence_lens")]
    model.graph.input.append(info("sequence_lens", [1], TensorProto.INT32))
    with pytest.raises(sg.UnsupportedError, match="sequence_lens must be a constant"):
        from_onnx(model)
