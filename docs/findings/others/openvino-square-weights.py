# One array of weights, as many in as out, read both ways: y = x @ w.T and z = x @ w. OpenVINO computes x @ w.T twice.
import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper

w = np.array([[0, 1], [2, 3]], np.float32)
x = np.array([[0, 1]], np.float32)
info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in "xyz"]
nodes = [
    helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
    helper.make_node("MatMul", ["x", "t"], ["y"]),
    helper.make_node("MatMul", ["x", "w"], ["z"]),
]
graph = helper.make_graph(nodes, "both_ways", info[:1], info[1:], [numpy_helper.from_array(w, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
got = compiled([x])
print("openvino", openvino.__version__.split("-")[0])
for k, (name, right) in enumerate({"x @ w.T": x @ w.T, "x @ w": x @ w}.items()):
    print(f"{name:8} must be {right.ravel().tolist()}, got {np.array(got[k]).ravel().tolist()}")
