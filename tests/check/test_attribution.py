"""Which layer explains the difference at the output: mistakes planted in one layer of ten networks."""

from __future__ import annotations

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from planted import MISTAKES, example, network, recorded  # noqa: E402
from slices import each  # noqa: E402
from specgrad.check import audit, audit_recorded  # noqa: E402
from specgrad.check.auditing.attribution import difference  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_workers")
SEEDS = each(1, 10)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_layer_with_the_mistake_is_named_first(seed: int, mistake: str) -> None:
    model, x = network(seed), example(seed)
    plant, kind = MISTAKES[mistake]
    names = [n.name for n in model.graph.node if n.op_type == kind]
    layer = names[seed % len(names)]
    found = audit_recorded(model, recorded(model, x, plant(model, layer))).attribution
    assert found is not None
    assert found.largest(1)[0][0] == layer
    # A squashing network may leave of a mistake no more than rounding; then nobody explains 9 tenths of it.
    assert found.shares[layer] > 0.9 or found.output.absolute < 20 * found.estimate
    assert found.explained == pytest.approx(1, abs=0.1), "the first order holds"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_honest_run_blames_nobody(seed: int) -> None:
    """Shares sum to 1, and the estimate is of the size of what is seen: within 4 deviations, and not far above."""
    model, x = network(seed), example(seed)
    found = audit_recorded(model, recorded(model, x)).attribution
    assert found is not None
    assert found.explained == pytest.approx(1, abs=0.02)
    assert found.output.absolute < 4 * found.estimate < 400 * found.output.absolute


def test_shares_are_what_leaving_a_mistake_out_says() -> None:
    """An independent way: put each layer's own error alone into the ONNX reference's network in double precision."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    model, x = network(3), example(3)
    values = recorded(model, x)
    found = audit_recorded(model, values).attribution
    assert found is not None
    doubled = _in_double(model)
    end = model.graph.output[0].name
    exact = ReferenceEvaluator(doubled).run(None, {"x": x.astype(np.float64)})[0]
    d = values[end] - exact
    total = 0.0
    for node in model.graph.node:
        local = _in_double(model)
        own = next(n for n in local.graph.node if n.name == node.name)
        feeds = {i: values[i].astype(np.float64) for i in own.input if i in values}
        one = onnx.ModelProto()
        one.CopyFrom(local)
        del one.graph.node[:], one.graph.input[:], one.graph.output[:]
        one.graph.node.append(own)
        one.graph.input.extend(helper.make_tensor_value_info(k, 11, v.shape) for k, v in feeds.items())
        one.graph.output.append(onnx.ValueInfoProto(name=own.output[0]))
        error = values[own.output[0]] - ReferenceEvaluator(one).run(None, feeds)[0]
        bumped = _in_double(model)
        at = [n.name for n in bumped.graph.node].index(node.name)
        bumped.graph.node[at].output[0] = "clean"
        bumped.graph.initializer.append(numpy_helper.from_array(error, "bump"))
        nodes = list(bumped.graph.node)
        del bumped.graph.node[:]
        bump = helper.make_node("Add", ["clean", "bump"], [own.output[0]])
        bumped.graph.node.extend([*nodes[: at + 1], bump, *nodes[at + 1 :]])
        moved = ReferenceEvaluator(bumped).run(None, {"x": x.astype(np.float64)})[0] - exact
        share = float((moved * d).sum() / (d * d).sum())
        assert found.shares[node.name] == pytest.approx(share, abs=1e-3)
        total += share
    assert total == pytest.approx(1, abs=0.01)


def _in_double(model):
    from onnx import TensorProto, numpy_helper

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for info in (*copy.graph.input, *copy.graph.output):
        info.type.tensor_type.elem_type = TensorProto.DOUBLE
    return copy


def test_units_in_the_last_place() -> None:
    exact = np.array([1.0, -4.0])
    got = np.float32([1.0, -4.0])
    got[1] = np.nextafter(np.float32(-4.0), np.float32(-8))
    found = difference(got, exact)
    assert (found.ulps, found.index) == (1.0, (1,))
    assert difference(np.float32([np.nan]), np.array([1.0])).absolute == 0
    assert difference(np.zeros((0,), np.float32), np.zeros(0)).absolute == 0
    assert difference(np.float32([1e-3]), np.zeros(1)).relative == np.inf
    assert difference(np.zeros(1, np.float32), np.zeros(1)).relative == 0


def test_the_whole_model_shows_no_useless_radius(tmp_path) -> None:
    """Twelve wide convolutions: the proven radius is beyond all values, and is not shown as if it said something."""
    from onnx import TensorProto, helper

    from planted import Builder

    b = Builder(0)
    x = "x"
    for k in range(12):
        x = b.node("Relu", f"relu{k}", [b.conv(f"conv{k}", x, 24 if k else 3, 24)])
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 12, 12]), (x, None))]
    graph = helper.make_graph(b.nodes, "deep", [info[0]], [info[1]], b.stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    audited = audit(model, "onnxruntime", example(0), tolerance_seconds=0)  # with time, a proven tolerance says more
    assert audited.verdict == "rounding"
    row = audited.to_json()["whole"]
    assert "allowed" not in row
    assert "larger than the values" in row["detail"]


def test_the_command_says_which_layer(tmp_path, command) -> None:
    model, x = network(0), example(0)
    layer = next(n.name for n in model.graph.node if n.op_type == "BatchNormalization")
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "values.npz", **recorded(model, x, MISTAKES["wrong eps"][0](model, layer)))
    code, shown, _ = command("audit", "net.onnx", "--recorded", "values.npz")
    assert code == 1
    assert "largest difference at the output" in shown
    assert f"to first order: {layer} " in shown
    said = json.loads(command("audit", "net.onnx", "--recorded", "values.npz", "--json")[1])
    assert said["attribution"]["order"] == "first"
    row = next(r for r in said["layers"] if r["layer"] == layer)
    assert row["share"] > 0.9
    assert {"absolute", "relative", "ulps"} <= row["difference"].keys()


def test_bytes_given_to_a_model_are_numbers() -> None:
    """A model that begins with bytes: dequantised, averaged, and run one unit off."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"], name="a"),
        helper.make_node("GlobalAveragePool", ["a"], ["y"], name="y"),
    ]
    stored = [numpy_helper.from_array(np.array(v), k) for k, v in (("s", np.float32(0.017)), ("z", np.uint8(3)))]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        stored,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 4, 4)).astype(np.uint8)
    a = (x.astype(np.int32) - 3).astype(np.float32) * np.float32(0.017)
    y = a.mean((2, 3), keepdims=True) + np.float32(0.25)
    found = audit_recorded(model, {"x": x, "a": a, "y": y})
    assert (found.verdict, found.first_divergent.name) == ("differs", "y")
    assert found.attribution is not None
    assert found.attribution.largest(1)[0][0] == "y"


@pytest.mark.parametrize("cells", [1, 4])
def test_an_answer_of_another_shape_is_a_verdict(cells: int, tmp_path) -> None:
    """ONNX Runtime pads SAME with dilation for the window without it: cells are missing, and one cell broadcasts."""
    info = onnx.helper.make_tensor_value_info
    pool = onnx.helper.make_node(
        "MaxPool", ["x"], ["y"], name="pool", kernel_shape=[2], dilations=[2], auto_pad="SAME_LOWER"
    )
    graph = onnx.helper.make_graph([pool], "g", [info("x", 1, [1, 1, cells + 1])], [info("y", 1, None)])
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "pool.onnx")
    audited = audit(str(tmp_path / "pool.onnx"), "onnxruntime", np.ones((1, 1, cells + 1), np.float32))
    assert audited.verdict == "differs"
    assert f"has shape (1, 1, {cells}), must have (1, 1, {cells + 1})" in str(audited)
