"""Unusual layers: faults that the proof calls rounding, and correct executions that must not be flagged."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from specgrad.check import audit, audit_recorded, tolerance  # noqa: E402
from specgrad.check.auditing.audit import (  # noqa: E402
    Audit,
    Coverage,
    merge_audits,
)
from specgrad.check.auditing.layer import LayerVerdict  # noqa: E402
from specgrad.check.tolerances import point_bounds  # noqa: E402
from specgrad.check.tolerances.estimate import EstimatedTolerance, estimate_tolerance  # noqa: E402
from specgrad.check.tolerances.labelled import labelled_tolerance  # noqa: E402
from specgrad.check.verdicts import usual as usual_module  # noqa: E402
from specgrad.check.verdicts.judge import Verdict  # noqa: E402
from specgrad.check.verdicts.rounded_weights import ROUNDED, rounded_to_bits  # noqa: E402
from specgrad.deadline import time_limit  # noqa: E402
from specgrad.rounding.usual_error import UsualError  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_workers")
RNG = np.random.default_rng(7)
W = (RNG.normal(size=(8, 256, 3, 3)) / 48).astype(np.float32)
B = (RNG.normal(size=8) / 8).astype(np.float32)
X = RNG.uniform(0, 1, size=(1, 256, 8, 8)).astype(np.float32)


def layer() -> onnx.ModelProto:
    """One convolution of 2,304 terms, as deep layers have them."""
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def conv(w: np.ndarray = W, b: np.ndarray = B, x: np.ndarray = X) -> np.ndarray:
    """The layer by PyTorch in float32, with other numbers."""
    return np.asarray(torch.conv2d(*(torch.from_numpy(np.ascontiguousarray(a)) for a in (x, w, b)), padding=1).numpy())


def half(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float16).astype(np.float32)


def int16(w: np.ndarray) -> np.ndarray:
    scale = np.abs(w).max((1, 2, 3), keepdims=True).astype(float) / 32767
    return (np.rint(w / scale) * scale).astype(np.float32)


FAULTS = {
    "weights of 11 bits": lambda: conv(w=rounded_to_bits(W, 11)),
    "weights in float16": lambda: conv(w=half(W)),
    "weights in int16": lambda: conv(w=int16(W)),
    "weights times 1 + 1e-5": lambda: conv(w=(W.astype(float) * (1 + 1e-5)).astype(np.float32)),
    "weights times 1 + 1e-6": lambda: (conv().astype(float) * (1 + 1e-6)).astype(np.float32),
    "output plus 1e-5": lambda: conv() + np.float32(1e-5),
    "input in float16": lambda: conv(x=half(X)),
    "bias in float16": lambda: conv(b=half(B)),
    "one channel times 1 + 1e-4": lambda: conv(w=W * np.float32([1 + 1e-4, *[1] * 7]).reshape(8, 1, 1, 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_within_the_proof_is_unusual(fault: str) -> None:
    audited = audit_recorded(layer(), {"x": X, "y": FAULTS[fault]()})
    assert audited.layers[0].verdict.ratio < 1, "the proof allows it: else there is nothing to show"
    assert (audited.verdict, audited.layers[0].verdict.kind) == ("unusual", "unusual")
    assert "an estimate, not a proof" in str(audited)
    noted = audit_recorded(layer(), {"x": X, "y": FAULTS[fault]()}, unusual="note")
    assert noted.verdict == "rounding"
    assert noted.layers[0].verdict.kind == "unusual", "it is still told"


@pytest.mark.parametrize("form", ROUNDED)
def test_rounded_weights_are_named(form: str) -> None:
    (found,) = audit_recorded(layer(), {"x": X, "y": conv(w=ROUNDED[form](W))}).layers
    assert form in str(found.verdict) or found.verdict.kind == "differs"


def permuted() -> np.ndarray:
    order = RNG.permutation(256)
    return conv(w=W[:, order], x=X[:, order])


def halves() -> np.ndarray:
    return conv(w=W[:, :99], x=X[:, :99]) + conv(w=W[:, 99:], b=np.zeros_like(B), x=X[:, 99:])


@pytest.mark.parametrize("execution", [conv, permuted, halves])
def test_correct_executions_are_usual(execution) -> None:
    audited = audit_recorded(layer(), {"x": X, "y": execution()})
    assert audited.verdict == "rounding"
    assert 0.05 < audited.layers[0].usual.rms < 1.5


def test_the_word_goes_when_the_thresholds_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted mistake: thresholds that nothing reaches leave every fault unseen."""
    for name in ("MAX_RMS", "MAX_CHANNEL", "MAX_PEAK", "MAX_GAIN", "RUN_FACTOR"):
        monkeypatch.setattr(usual_module, name, np.inf)
    assert audit_recorded(layer(), {"x": X, "y": FAULTS["input in float16"]()}).verdict == "rounding"


def test_dead_channels_are_not_flagged() -> None:
    """Subnormal weights, which runtimes may flush."""
    w = W.copy()
    w[3] = 1e-39
    model = layer()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    flushed = conv(w=np.where(np.abs(w) < 2.0**-126, 0, w).astype(np.float32), b=B)
    assert audit_recorded(model, {"x": X, "y": flushed}).verdict in ("rounding", "exact")


def one_node(
    kind: str, given: dict[str, np.ndarray], constants: dict[str, np.ndarray], **attributes
) -> onnx.ModelProto:
    """One ONNX node that reads its inputs, then its constants."""
    node = helper.make_node(kind, [*given, *constants], ["y"], name="layer", **attributes)
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in given.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ends, [y], [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def kind_of(model: onnx.ModelProto, given: dict[str, np.ndarray], y: np.ndarray) -> str:
    return audit_recorded(model, {**given, "y": y}, tolerance_seconds=0).layers[0].verdict.kind


def added_in_order(x: np.ndarray) -> np.ndarray:
    """The sum along the last axis in float32, one after another."""
    total = np.zeros(x.shape[:-1], np.float32)
    for k in range(x.shape[-1]):
        total = total + x[..., k]
    return total


def test_a_sum_may_begin_with_a_large_bias() -> None:
    """Then all roundings have the size of the bias, as those of ONNX Runtime have at 4,096 terms."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 300)).astype(np.float32) / 1000, rng.normal(size=(300, 8)).astype(np.float32) / 10
    c = (rng.normal(size=8) * 1e4).astype(np.float32)
    y = np.broadcast_to(c, (8, 8))
    for k in range(300):
        y = y + x[:, k : k + 1] * w[k]
    assert kind_of(one_node("Gemm", {"x": x}, {"w": w, "c": c}), {"x": x}, y) == "rounding"


def test_cells_that_hold_the_same_number_count_once() -> None:
    """A constant image: every pixel rounds alike, so that many cells are one observation."""
    w = np.float32(RNG.normal(size=(2, 1, 3, 3)).repeat(128, 1))
    x = np.full((1, 128, 9, 9), 0.3, np.float32)
    y = added_in_order(np.float32(0.3) * w.reshape(2, -1))
    got = np.broadcast_to(y.reshape(1, 2, 1, 1), (1, 2, 7, 7)).astype(np.float32)
    assert kind_of(one_node("Conv", {"x": x}, {"w": w}), {"x": x}, got) == "rounding"


def test_the_mean_of_equal_numbers_is_not_flagged() -> None:
    """All roundings of its sum have one sign; the division behind it does not make them independent."""
    x = np.full((646, 39), -0.0033502765, np.float32)
    y = added_in_order(x)[:, None] / np.float32(39)
    assert kind_of(one_node("ReduceMean", {"x": x}, {"axes": np.array([1])}), {"x": x}, y) == "rounding"


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_rounded_positions_of_a_resize_are_not_flagged(mode: str) -> None:
    import onnxruntime

    x = RNG.normal(size=(1, 3, 11, 10)).astype(np.float32)
    sizes = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.array([1, 3, 26, 24])}
    model = one_node("Resize", {"x": x}, sizes, mode="linear", coordinate_transformation_mode=mode)
    (y,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert kind_of(model, {"x": x}, y) in ("rounding", "exact")


def test_flushed_scales_of_a_normalisation_are_not_flagged() -> None:
    """A runtime that flushes a subnormal scale to zero gives zeros: the proof allows it, and it is usual."""
    x = RNG.normal(size=(1, 2, 6, 6)).astype(np.float32)
    model = one_node("InstanceNormalization", {"x": x}, {"s": np.float32([1e-39] * 2), "b": np.zeros(2, np.float32)})
    assert kind_of(model, {"x": x}, np.zeros_like(x)) in ("rounding", "exact")


def test_a_running_sum_shares_its_errors() -> None:
    """Sums of one row share their terms, and so their errors: no slope is looked at."""
    x = np.float32(np.random.default_rng(1).choice([-0.1] + 9 * [0.1], size=(8, 1000)))
    y = np.stack([added_in_order(x[:, : k + 1]) for k in range(1000)], -1)
    assert kind_of(one_node("CumSum", {"x": x}, {"axis": np.array(1)}), {"x": x}, y) == "rounding"


def test_a_wide_allowance_is_said_in_the_layers_line() -> None:
    """Of 9,216 terms the proof allows more than a thousandth of the values."""
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(9216, 4)).astype(np.float32), rng.normal(size=(2, 9216)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    (found,) = audit_recorded(model, {"x": x, "y": x @ w}).layers
    assert found.verdict.kind == "rounding"
    assert found.remarks == (f"what is allowed is {found.allowed_share:.2g} of the values",)


# --- the headline -----------------------------------------------------------------------------------------------------


def lstm(sign: float, **attributes: Any) -> onnx.ModelProto:
    rng, size = np.random.default_rng(0), 16
    w = (rng.normal(size=(1, 4 * size, 8)) / 3).astype(np.float32)
    r = (rng.normal(size=(1, 4 * size, size)) / 3 * sign).astype(np.float32)
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R"], ["l"], name="lstm", hidden_size=size, **attributes),
        helper.make_node("Relu", ["l"], ["y"], name="relu"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [5, 1, 8]), ("y", None))]
    tensors = [numpy_helper.from_array(w, "W"), numpy_helper.from_array(r, "R")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def negated(folder, **attributes: Any) -> None:
    """Write a network, and what a device showed that negates its recurrent weights."""
    import onnxruntime

    shown = lstm(-1, **attributes)
    shown.graph.output.append(onnx.ValueInfoProto(name="l"))
    x = np.random.default_rng(1).normal(size=(5, 1, 8)).astype(np.float32)
    values = onnxruntime.InferenceSession(shown.SerializeToString()).run(None, {"x": x})
    onnx.save(lstm(1, **attributes), folder / "net.onnx")
    np.savez(folder / "values.npz", x=x, y=values[0], l=values[1])


def test_an_lstm_with_negated_weights_differs(tmp_path, command) -> None:
    negated(tmp_path)
    code, out, _ = command("audit", "net.onnx", "--recorded", "values.npz", "--tolerance-seconds", "0", "--json")
    said = json.loads(out)
    assert (code, said["verdict"], said["first_divergent"]["layer"]) == (1, "differs", "lstm")
    assert said["coverage"]["multiply_adds"] == said["coverage"]["of_multiply_adds"] == 5 * 64 * (8 + 16)


def test_an_lstm_that_was_not_examined_is_said_first(tmp_path, command) -> None:
    """Runtimes disagree about the threshold that lacks: the other layer is exact, and nothing is known of the LSTM."""
    negated(tmp_path, activations=["Sigmoid", "Tanh", "ThresholdedRelu"])
    code, out, _ = command("audit", "net.onnx", "--recorded", "values.npz", "--json")
    said = json.loads(out)
    assert (code, said["verdict"]) == (2, "partly examined")
    assert said["coverage"]["multiply_adds"] == 0
    assert said["coverage"]["of_multiply_adds"] == 5 * 64 * (8 + 16), "by its shapes"
    code, out, _ = command("audit", "net.onnx", "--recorded", "values.npz", "--partial")
    assert code == 0
    assert "1 of 2 layers were judged, 0 % of 7,680 multiply-adds" in out.splitlines()[1]


def test_a_useless_bound_of_the_whole_is_a_note() -> None:
    """Twelve layers of 256 terms: what all may do together is wider than the values, and every layer is rounding."""
    rng = np.random.default_rng(3)
    names, nodes, tensors = ["x"], [], []
    for k in range(12):
        tensors.append(numpy_helper.from_array((rng.normal(size=(256, 256)) / 11).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("MatMul", [names[-1], f"w{k}"], [f"m{k}"], name=f"fc{k}"))
        nodes.append(helper.make_node("Relu", [f"m{k}"], [f"r{k}"], name=f"relu{k}"))
        names.append(f"r{k}")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 256]), (names[-1], None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    x = rng.normal(size=(1, 256)).astype(np.float32)
    audited = audit(model, "onnxruntime", x, tolerance_seconds=0)
    assert audited.whole.kind == "cannot tell"
    assert audited.verdict == "rounding"
    assert audited.run is not None
    assert audited.run.times < usual_module.RUN_FACTOR


def test_a_wrong_run_with_right_layers_is_unusual() -> None:
    """The layers, exposed, are right; the run as it is gives other numbers, within a bound that allows anything."""
    audited = audit(layer(), "onnxruntime", X)
    assert audited.verdict == "rounding"
    far = replace(audited, run=usual_module.RunEstimate(1e-3, 1e-5))
    assert far.verdict == "unusual"
    assert replace(far, unusual="note").verdict == "rounding"


def an_audit(kinds: list[str], whole: str, **options) -> Audit:
    """An audit with layers of these verdicts."""
    layers = tuple(LayerVerdict(f"l{k}", "op", (1,), Verdict(kind)) for k, kind in enumerate(kinds))
    covered = Coverage(sum(kind != "not examined" for kind in kinds), len(kinds), 0, 0)
    return Audit("m", "r", {}, layers, Verdict(whole), coverage=covered, **options)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_run_that_is_no_number_is_unusual(value: float) -> None:
    """An open bound excuses it, so that nothing else would tell."""
    estimate = UsualError([np.ones(4)], [np.full(4, 1e-7)], [np.zeros(4, bool)], [False])
    assert usual_module.compare_run([np.float32([1, value, 1, 1])], estimate).is_unusual


def test_cells_without_an_estimate_excuse_no_others() -> None:
    estimate = UsualError([np.ones(2)], [np.array([1e-7, np.inf])], [np.zeros(2, bool)], [False])
    assert usual_module.compare_run([np.float32([2, 1])], estimate).is_unusual
    assert not usual_module.compare_run([np.float32([1, 2])], estimate).is_unusual


def test_a_point_that_was_not_examined_is_not_outvoted() -> None:
    """Unusual at one point, out of time at the other: as a note it must not become "rounding"."""
    both = merge_audits([an_audit(["unusual"], "rounding"), an_audit(["not examined"], "not examined")])
    assert both.verdict == "unusual"
    assert replace(both, unusual="note").verdict == "partly examined"
    mixed = merge_audits([an_audit(["exact", "exact"], "exact"), an_audit(["exact", "not examined"], "not examined")])
    assert [layer.verdict.kind for layer in mixed.layers] == ["exact", "not examined"]
    assert mixed.verdict == "partly examined"


def test_what_was_left_out_is_no_yes() -> None:
    """A run as it is of which nothing is known, points or outputs that time did not reach."""
    assert an_audit(["rounding"], "cannot tell", left_out=("the run as it is",)).verdict == "partly examined"
    late = an_audit(["exact", "not examined"], "not examined", outputs_only=True, left_out=("all outputs",))
    assert late.verdict == "partly examined"
    assert "not examined: all outputs" in str(late)
    assert replace(late, partial=True).verdict == "exact"


def test_no_time_for_the_run_as_it_is_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are judged in time, the run as it is, which gave other numbers, is not."""
    from specgrad.check.auditing import layer as layer_module

    monkeypatch.setattr(layer_module.AuditContext, "model_verdict_in_time", lambda *_: Verdict("not examined"))
    monkeypatch.setattr(layer_module.AuditContext, "run_estimate", lambda _: None)
    assert audit(layer(), "onnxruntime", X).verdict == "rounding", "the same numbers as the layer's"
    monkeypatch.setattr(layer_module.AuditContext, "has_run_of_its_own", True)
    audited = audit(layer(), "onnxruntime", X)
    assert audited.verdict == "partly examined"
    assert "not examined: the run as it is" in str(audited)


def test_outputs_of_different_sizes_have_lines_of_their_own() -> None:
    """One number for all would be above the smaller output: no such number is printed, in words or JSON."""
    import specgrad as sg

    w, x = RNG.normal(size=(64, 64)).astype(np.float32), RNG.normal(size=64).astype(np.float32)
    both = estimate_tolerance(sg.trace(lambda x: (w @ x * 1e6, w @ x * 1e-6), (64,)), x)
    assert both.is_useful
    assert not both.is_one_for_all
    atols = [float(line.split("atol=")[1].split(")")[0]) for line in both.assert_lines]
    assert all(10 * d < atol < spread for d, atol, spread in zip(both.deviations, atols, both.spreads, strict=True))
    assert all("estimated, not proven" in line for line in both.assert_lines)
    assert both.to_json()["atol"] is None
    wide = EstimatedTolerance(("y",), (1.0,), (13.0,))
    assert not wide.is_useful, "two executions would be farther apart than the cells"
    assert wide.to_json()["tolerance"] is None


def test_a_wide_forward_bound_does_not_end_a_proof() -> None:
    """24 layers: carried forwards the bound is 1e6 times the outputs and more, backwards a hundredth of them."""
    import specgrad as sg

    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(32, 32)) / 4).astype(np.float32) for _ in range(24)]

    def net(x):
        for w in weights:
            x = sg.relu(w @ x)
        return weights[0] @ x

    graph, x = sg.trace(net, (32,)), rng.uniform(size=32).astype(np.float32)
    forwards = sg.rounding.radius(graph, x, backend="torch").outputs
    assert forwards.radius.max() > 1e6 * np.ptp(forwards.value)
    with time_limit(120):
        labelled = labelled_tolerance(graph, [x])
    assert labelled.form == "proven"
    assert labelled.proven.tolerance < 0.01 * np.ptp(forwards.value)


def test_going_backwards_through_a_large_network_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of ResNet-18 at 224 takes an hour: the note says so, and an audit says why its allowance is wide."""
    import specgrad as sg
    from specgrad.check.tolerances.allowance import Clock, allowance
    from specgrad.rounding import Arithmetic

    w = (RNG.normal(size=(64, 64, 3, 3)) / 24).astype(np.float32)

    def net(x):
        for _ in range(6):
            x = sg.relu(sg.conv(w, None, x, padding=1))
        return sg.mean(x, (2, 3))

    small, large = (sg.trace(net, (1, 64, n, n)) for n in (2, 56))
    assert point_bounds.out_of_reach(small, 10) == ""
    assert point_bounds.out_of_reach(large, 120).startswith("going backwards takes ")
    x = RNG.uniform(size=(1, 64, 2, 2)).astype(np.float32)
    monkeypatch.setattr(point_bounds, "BACKWARD_RATE", 1.0)  # of a slow machine
    late = tolerance(small, x, seconds=100)
    assert "bounds were carried forwards alone: going backwards takes" in " ".join(late.notes)
    assert allowance(small, [x], Arithmetic(), Clock(100), tight=0).why.startswith("going backwards takes ")


def test_a_model_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from specgrad.interop import model as module

    read, graph_for = [], module.Model.graph_for
    monkeypatch.setattr(module.Model, "graph_for", lambda self, *a: (read.append(1), graph_for(self, *a))[1])
    assert labelled_tolerance(layer(), [X]).estimated is not None
    assert len(read) == 1


def test_nothing_is_begun_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run of the model and no reverse pass: what remains is to say so."""
    from specgrad.process import Process

    monkeypatch.setattr(Process, "run", lambda *_: pytest.fail("the model was run"))
    late = audit(layer(), "onnxruntime", X, seconds=0)
    assert late.verdict == "cannot tell"
    assert any(note.startswith("out of time") for note in late.notes)


def test_a_reverse_pass_that_would_take_too_long_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from specgrad.check.auditing import attribution

    monkeypatch.setattr(attribution, "REVERSE_COST", 1e9)
    audited = audit(layer(), "onnxruntime", X, seconds=300)
    assert audited.verdict == "rounding"
    assert audited.attribution is None
    assert any("which layers explain the difference was not asked" in note for note in audited.notes)
