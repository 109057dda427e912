"""Models with nodes that have no meaning here, values that another device recorded, devices by name."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from specgrad import UnsupportedError  # noqa: E402
from specgrad.check import audit, audit_recorded, runtime  # noqa: E402
from specgrad.check.models.recorded import read_recorded  # noqa: E402
from specgrad.errors import ParameterError  # noqa: E402
from specgrad.interop import from_onnx  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_workers")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)


def value(name: str, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def weights(name: str, *shape: int):
    return numpy_helper.from_array((RNG.normal(size=shape) / 4).astype(np.float32), name)


def model(unknown: list, after: str = "u", domains=(("", 17), ("com.microsoft", 1))):
    """conv1, an unknown part from c1 to `after`, relu, conv2."""
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        *unknown,
        helper.make_node("Relu", [after], ["r"], name="relu"),
        helper.make_node("Conv", ["r", "w2"], ["y"], name="conv2"),
    ]
    stored = [weights("w1", 4, 3, 3, 3), weights("w2", 2, 4, 3, 3)]
    graph = helper.make_graph(nodes, "net", [value("x", [1, 3, 8, 8])], [value("y", None)], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains], ir_version=10)


NORM = helper.make_node("LpNormalization", ["c1"], ["u"], name="norm", axis=1)  # ONNX infers its shape
CUSTOM = helper.make_node("Trilu", ["c1"], ["u"], name="lower", domain="com.microsoft")  # and of this one none
BOTH = [
    helper.make_node("Trilu", ["c1"], ["g"], name="lower", domain="com.microsoft"),
    helper.make_node("LpNormalization", ["g"], ["u"], name="norm", axis=1),
]


@pytest.mark.parametrize("unknown", [[NORM], [CUSTOM], BOTH], ids=["inferred", "shown", "both"])
def test_one_unknown_node_costs_one_layer(unknown) -> None:
    audited = audit(model(unknown), "onnxruntime", X)
    kinds = {layer.name: layer.verdict.kind for layer in audited.layers}
    passed = {node.name for node in unknown}
    assert {name for name, kind in kinds.items() if kind == "not examined"} == passed
    assert {kinds[n] for n in ("conv1", "relu", "conv2")} <= {"exact", "rounding"}
    assert list(kinds) == ["conv1", *[n.name for n in unknown], "relu", "conv2"], "in the order of the file"
    assert audited.verdict == "partly examined"
    assert audited.whole.kind == "not examined"
    assert audited.run is None, "the exact outputs are not known"
    c = audited.coverage
    assert (c.layers, c.of_layers) == (3, 3 + len(passed))
    assert c.multiply_adds == c.of_multiply_adds == 4 * 64 * 27 + 2 * 36 * 36
    assert set(c.uncounted) == passed
    assert audit(model(unknown), "onnxruntime", X, partial=True).verdict == "rounding"


def test_a_fault_behind_an_unknown_node_is_still_seen() -> None:
    """The recorded values of conv2 are wrong by a wrong pad: the layer before is unknown, and that excuses nothing."""
    file = model([NORM])
    values = recorded(file, ["c1", "u", "r"])
    values["y"] = np.roll(values["y"], 1, axis=-1)
    audited = audit_recorded(file, values)
    assert audited.verdict == "differs"
    assert audited.first_divergent is not None
    assert audited.first_divergent.name == "conv2"


def recorded(file, names) -> dict[str, np.ndarray]:
    shown = onnx.ModelProto()
    shown.CopyFrom(file)
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    session = ort.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"x": X, **dict(zip([o.name for o in shown.graph.output], session.run(None, {"x": X}), strict=True))}


def test_what_nobody_recorded_is_not_examined() -> None:
    file = model([NORM])
    values = recorded(file, ["c1"])  # neither u nor r: conv2 depends on a value that nobody knows
    audited = audit_recorded(file, values)
    kinds = {layer.name: layer.verdict.kind for layer in audited.layers}
    assert kinds == {"conv1": "rounding", "norm": "not examined", "conv2": "not examined"}
    assert audited.coverage.multiply_adds == 4 * 64 * 27
    assert audited.coverage.of_multiply_adds == 4 * 64 * 27 + 2 * 36 * 36 or audited.coverage.uncounted == ("norm",)


def test_what_an_unknown_node_reads_is_no_output_of_the_model() -> None:
    """It is one of the part that is examined: a layer that was recorded there is named, and its coverage is told."""
    file = model([NORM])
    values = recorded(file, ["c1"])
    audited = audit_recorded(file, values)
    assert not audited.outputs_only
    assert "1 of 3 layers were judged" in str(audited)
    values["c1"] = values["c1"] + 1
    first = audit_recorded(file, values).first_divergent
    assert first is not None
    assert first.name == "conv1"


def test_nothing_judged_is_no_yes() -> None:
    graph = helper.make_graph(
        [helper.make_node("LpNormalization", ["x"], ["y"], name="norm", axis=1)],
        "net",
        [value("x", [1, 3, 8, 8])],
        [value("y", None)],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    assert audit(file, "onnxruntime", X).verdict == "partly examined"
    assert audit(file, "onnxruntime", X, partial=True).verdict == "cannot tell"


def test_all_unknown_nodes_are_named_at_once() -> None:
    with pytest.raises(UnsupportedError) as error:
        from_onnx(model(BOTH))
    text = str(error.value)
    assert "2 nodes are not supported" in text
    assert "Trilu 'lower'" in text
    assert "LpNormalization 'norm'" in text
    assert ".md" not in text


def test_a_partial_graph_means_the_rest() -> None:
    """What the unknown node reads is an output, what it gives is an input; between them the meaning is exact."""
    torch = pytest.importorskip("torch")
    file = model([NORM])
    graph = from_onnx(file, partial=True)
    assert graph.names == ("x", "u")
    u = RNG.normal(size=(1, 4, 8, 8))
    y, c1 = graph(X.astype(np.float64), u)
    w1, w2 = (torch.from_numpy(numpy_helper.to_array(t).astype(np.float64)) for t in file.graph.initializer)
    wanted = torch.nn.functional.conv2d(torch.from_numpy(u).relu(), w2)
    np.testing.assert_allclose(y, wanted.numpy(), rtol=1e-12, atol=1e-12)
    first = torch.nn.functional.conv2d(torch.from_numpy(X.astype(np.float64)), w1, padding=1)
    np.testing.assert_allclose(c1, first.numpy(), rtol=1e-12, atol=1e-12)


# --- recorded values ---


def known_model():
    return model([], after="c1")


def test_recorded_values_are_judged_as_a_run_is(tmp_path) -> None:
    file = known_model()
    onnx.save(file, tmp_path / "net.onnx")
    values = recorded(file, ["c1", "r"])
    np.savez(tmp_path / "values.npz", **values)
    audited = audit_recorded(str(tmp_path / "net.onnx"), read_recorded(tmp_path / "values.npz"))
    assert audited.verdict == "rounding"
    assert [layer.name for layer in audited.layers] == ["conv1", "relu", "conv2"]
    np.savez(tmp_path / "named.npz", **{"deep/a%2Fb": X})
    assert set(read_recorded(tmp_path / "named.npz")) == {"deep/a/b"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: v.pop("x"), "the inputs x of the model were not recorded"),
        (lambda v: v.update(y=v["y"].transpose(0, 2, 3, 1)), "axes in another order"),
        (lambda v: [v.pop(n) for n in ("c1", "r", "y")], "none of the arrays is a value of the model"),
        (lambda v: v.update(r=v["r"].astype(str)), "r is of type <U32, not of numbers; save it as float32"),
        (lambda v: v.update(y=v["y"].astype(np.float16).view("V2")), "y is of type |V2, not of numbers"),
    ],
)
def test_recorded_values_that_do_not_fit_are_refused(change, text: str) -> None:
    file = known_model()
    values = recorded(file, ["c1", "r"])
    change(values)
    with pytest.raises(ParameterError, match=re.escape(text)):
        audit_recorded(file, values)


def test_foreign_arrays_are_said() -> None:
    file = known_model()
    audited = audit_recorded(file, {**recorded(file, ["c1", "r"]), "extra": X})
    assert any("extra" in note for note in audited.notes)


def test_the_command_takes_recorded_values(tmp_path, command) -> None:
    file = model([NORM])
    onnx.save(file, tmp_path / "net.onnx")
    np.savez(tmp_path / "values.npz", **recorded(file, ["c1", "u", "r"]))

    code, out, err = command("audit", "net.onnx", "--recorded", "values.npz", "--json")
    assert code == 2, err
    said = json.loads(out)
    assert said["verdict"] == "partly examined"
    assert said["coverage"]["layers"] == 3
    assert [row["verdict"] for row in said["layers"]][1] == "not examined"
    assert command("audit", "net.onnx", "--recorded", "values.npz", "--partial")[0] == 0
    _, shown, _ = command("audit", "net.onnx", "--recorded", "values.npz")
    assert "3 of 4 layers were judged, 100 % of" in shown
    assert "(those of norm are not counted)" in shown
    assert command("audit", "net.onnx", "--recorded", "values.npz", "--runtime", "onnxruntime")[0] == 3
    assert command("audit", "net.onnx")[0] == 3
    assert command("audit", "net.onnx", "--recorded", "nothing.npz")[0] == 3


def test_a_model_with_an_unknown_node_is_shown_and_explained(tmp_path, command) -> None:
    onnx.save(model([NORM]), tmp_path / "net.onnx")
    code, shown, err = command("show", "net.onnx")
    assert code == 0, err
    assert "not examined: LpNormalization norm: the operator is not known\n" in shown
    assert "conv2" in shown
    code, _, err = command("explain", "net.onnx", "--layer", "conv1", "--output", "0,0,0,0")
    assert code == 0, err
    assert command("certify", "net.onnx", "--input", "x.npy", "--label", "0", "--eps", "0.1")[0] != 0


# --- devices ---


def test_a_device_that_is_not_there_is_no_cpu() -> None:
    """ONNX Runtime takes the CPU without a word; openvino refuses by itself."""
    audited = audit(known_model(), "onnxruntime:CUDAExecutionProvider", X)
    assert audited.verdict == "refuses"
    assert audited.runtime == "onnxruntime:CUDAExecutionProvider"
    assert audit(known_model(), "onnxruntime:CPUExecutionProvider", X).verdict == "rounding"
    with pytest.raises(ParameterError, match="no device"):
        runtime("onnx-reference:GPU")
    with pytest.raises(ParameterError, match="no device"):
        runtime("onnxruntime:x'); import os")
