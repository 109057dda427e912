"""ONNX files that leave sizes open: one graph, seven batches, on both engines, in audits, bounds and certificates."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import specgrad as sg
from specgrad.bounds import Box, certify, crown, ibp
from specgrad.check import audit
from specgrad.errors import SpecgradError
from specgrad.interop import from_onnx
from specgrad.rounding import radius

pytestmark = pytest.mark.usefixtures("little_optimised")

BATCHES = (1, 2, 3, 5, 7, 8, 16)
RNG = np.random.default_rng(0)
KERNEL, BIAS = RNG.normal(size=(4, 1, 3, 3)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
MATRIX = RNG.normal(size=(3, 64)).astype(np.float32)


def model(shape: tuple = ("batch", 1, 8, 8)) -> onnx.ModelProto:
    """conv, relu, a reshape whose target is computed from the shape of its input as exporters write it, and a Gemm."""
    constants = {"w": KERNEL, "b": BIAS, "m": MATRIX, "zero": np.array(0), "rest": np.array([-1])}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zero_row"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["r", "target"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "m"], ["y"], name="fc", transB=1),
    ]
    constants["zero_row"] = np.array([0])
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    ends = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(nodes, "net", *ends, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def by_torch(x: np.ndarray) -> np.ndarray:
    """The same network in PyTorch's own words, in float32."""
    y = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, KERNEL, BIAS)), stride=2, padding=1).relu()
    return (y.flatten(1) @ torch.from_numpy(MATRIX).T).numpy()


def test_a_negative_size_is_an_open_one() -> None:
    """Paddle's exporter writes a batch of -1, and ONNX Runtime takes any batch then."""
    graph = from_onnx(model((-1, 1, 8, 8)))
    assert graph.open is not None
    assert list(graph.open.defaults.values()) == [1]
    assert from_onnx(model((-1, 1, -1, 8)), input_shapes={"x": (3, 1, 8, 8)}).nodes[0].shape == (3, 1, 8, 8)
    with pytest.raises(SpecgradError, match=r"input 'x' has unknown sizes \(None, 1, None, 8\)"):
        from_onnx(model((-1, 1, -1, 8)))
    x = RNG.normal(size=(2, 1, 8, 8)).astype(np.float32)
    found = audit(model((-1, 1, 8, 8)), "onnxruntime", x)
    assert found.verdict == "rounding"
    (name,) = graph.open.defaults
    assert np.allclose(graph.at(**{name: 2})(x).astype(float), by_torch(x), atol=1e-5)


def test_one_graph_serves_every_batch() -> None:
    """Both engines, rounding radii, interval and linear bounds; PyTorch's own network lies in all of them."""
    graph = from_onnx(model())
    assert graph.open.defaults == {"batch": 1}
    module, jitted = sg.compile(graph, "torch"), sg.compile(graph, "jax", jit=False)
    for n in BATCHES:
        x = RNG.normal(size=(n, 1, 8, 8)).astype(np.float32)
        y, ball = by_torch(x), radius(graph, x).outputs
        assert (abs(ball.value - y) <= ball.radius).all()
        for found in (module(torch.from_numpy(x)), jitted(x)):
            assert (abs(ball.value - np.asarray(found, np.float64)) <= ball.radius).all()
        for bounds in (ibp, crown):
            assert bounds(graph, Box(x - 0.01, x + 0.01)).outputs.contains(y).all()
        fresh = from_onnx(model(), input_shapes={"x": x.shape})
        assert graph.at(batch=n).nodes == fresh.nodes
        assert graph.at(batch=n).values == fresh.values
        boxes = Box(np.stack([x, x + 1]), np.stack([x, x + 1]))
        assert crown(graph, boxes).outputs.low.shape == (2, n, 3)


@pytest.mark.parametrize("n", BATCHES)
def test_audits_take_the_batch_of_the_inputs(n: int) -> None:
    pytest.importorskip("onnxruntime")
    audited = audit(model(), "onnxruntime", RNG.normal(size=(n, 1, 8, 8)).astype(np.float32))
    assert audited.verdict == "rounding"
    assert audited.layers[0].shape == (n, 4, 4, 4)


def test_open_files_are_certified() -> None:
    """A batch of 1 by default; of several where x has as many, or the property as many cells."""
    x = RNG.normal(size=(1, 1, 8, 8)).astype(np.float32)
    label, path = int(by_torch(x).argmax()), model().SerializeToString()
    assert certify(path, (x, label, 1e-4)).verdict == "holds"
    assert certify(path, (x.ravel(), label, 1e-4)).verdict == "holds"
    two = np.concatenate([x, x * 0])
    largest = int(by_torch(two).argmax())
    assert np.diff(np.sort(by_torch(two).ravel()))[-1] > 0.1  # so that it must hold
    for stated in (two, two.ravel()):
        assert certify(path, (stated, largest, 1e-4)).verdict == "holds"
    assert certify(path, (x.ravel(), label, 1e-4), shape=(1, 1, 8, 8)).verdict == "holds"


def test_what_is_deployed_has_one_size() -> None:
    """Digests in certificates are those of a closed graph; constants that were rounded belong to one size."""
    from specgrad.graph.files.save import to_json
    from specgrad.proof.base.deployed_graph import deployed_graph

    graph = sg.trace(lambda x: sg.relu(sg.linear(MATRIX, None, x)), ("N", 64))
    closed = sg.trace(lambda x: sg.relu(sg.linear(MATRIX, None, x)), (1, 64))
    assert to_json(deployed_graph(graph)) == to_json(deployed_graph(closed))


def test_spatial_sizes_may_be_bound_again() -> None:
    shape = ("N", 1, "H", "W")
    small = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2]),
            helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            helper.make_node("GlobalAveragePool", ["p"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(KERNEL, "w")],
    )
    file = helper.make_model(small, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    graph = from_onnx(file, input_shapes={"x": ("N", 1, "H=20", "W=17")})
    assert graph.nodes[0].shape == (1, 1, 20, 17)
    for given in ((1, 1, 20, 17), (2, 1, 31, 16), (1, 1, 8, 40)):
        assert graph.at(x=given).nodes == from_onnx(file, input_shapes={"x": given}).nodes
    with pytest.raises(SpecgradError, match="input x has size 1 in axis 1; got 3"):
        graph.at(x=(1, 3, 20, 17))


def test_two_unnamed_batches_are_two_sizes() -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, 3]) for n in "ab"]
    concat = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    graph = helper.make_graph([concat], "g", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    read = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert read(np.ones((2, 3)), np.ones((5, 3))).shape == (7, 3)


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model(), path)
    graph = from_onnx(path)
    shared = {graph.nodes[i].name: a for i, a in graph.constants.items()}
    again = graph.at(batch=4)
    assert all(a is shared[again.nodes[i].name] for i, a in again.constants.items() if again.nodes[i].name in "wbm")
    assert pickle.loads(pickle.dumps(graph)).at(batch=3).nodes == graph.at(batch=3).nodes
    other = model()
    other.graph.node[0].attribute[0].ints[0] = 0  # of pads
    onnx.save(other, path)
    with pytest.raises(SpecgradError, match="has changed since it was read; read it again"):
        graph.at(batch=6)


def test_a_graph_that_reads_its_file_again_is_saved_at_one_size(tmp_path: Path) -> None:
    graph = from_onnx(model())
    with pytest.raises(SpecgradError, match=r"reads its model again for other sizes.* save graph.at\(...\) instead"):
        sg.save(graph, tmp_path / "net.json")
    sg.save(graph.at(batch=2), tmp_path / "net.json")
    assert sg.load(tmp_path / "net.json").nodes == graph.at(batch=2).nodes
