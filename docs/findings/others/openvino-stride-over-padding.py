# Two convolutions of one tap, both padded by 1, the second with stride 2. OpenVINO moves the stride into the first.
import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper

w, b = np.array([[[2]]], np.float32), np.array([1], np.float32)
x = np.array([[[1, 2, 3]]], np.float32)


def conv(x, stride):
    """2*x + 1 on x between two zeros, every stride-th cell."""
    return 2 * np.pad(x, [(0, 0), (0, 0), (1, 1)])[..., ::stride] + 1


stored = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
nodes = [
    helper.make_node("Conv", ["x", "w", "b"], ["h"], kernel_shape=[1], pads=[1, 1]),
    helper.make_node("Conv", ["h", "w", "b"], ["y"], kernel_shape=[1], pads=[1, 1], strides=[2]),
]
info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 1, 3]), ("y", [1, 1, None]))]
graph = helper.make_graph(nodes, "strides", info[:1], info[1:], stored)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = np.array(compiled([x])[0])
print("openvino", openvino.__version__.split("-")[0])
print("must be", conv(conv(x, 1), 2).ravel().tolist())
print("got    ", got.ravel().tolist())
