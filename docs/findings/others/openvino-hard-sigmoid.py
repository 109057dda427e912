# min(relu(x + 3), 6) * c is a hard sigmoid for OpenVINO where c is within 1e-4 of 1/6: it multiplies by 0x3e2aaaaa, the
# number below 1/6, instead. x * clip(x + 3, 0, 6) / 6 becomes x * clip(x/6 + 1/2, 0, 1), which cancels near -3.
import numpy as np
import openvino
from onnx import TensorProto, helper, numpy_helper


def compiled(nodes, numbers):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    constants = [numpy_helper.from_array(np.float32(v), name) for name, v in numbers.items()]
    graph = helper.make_graph([helper.make_node(*n) for n in nodes], "hard", info[:1], info[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    core = openvino.Core()
    return core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})


SIGMOID = [("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["r"]), ("Min", ["r", "n"], ["q"]), ("Mul", ["q", "c"], ["y"])]
SWISH = [
    ("Add", ["x", "b"], ["a"]),
    ("Clip", ["a", "o", "n"], ["k"]),
    ("Mul", ["x", "k"], ["p"]),
    ("Div", ["p", "n"], ["y"]),
]
print("openvino", openvino.__version__.split("-")[0])
for c in (0.1667, 0.1666, 0.16666667):
    got = float(compiled(SIGMOID, {"b": 3, "n": 6, "c": c})([np.float32([4])])[0][0])
    print(f"6 * {c} must be {np.float32(6) * np.float32(c):.9g}, got {got:.9g}")
x = np.float32([-2.9999])
right = float(x[0]) * (float(x[0]) + 3) / 6
got = float(compiled(SWISH, {"b": 3, "n": 6, "o": 0})([x])[0][0])
print(f"x*clip(x+3,0,6)/6 at -2.9999 must be {right:.9g}, got {got:.9g}")
