# Softmax of two int8 numbers of scale 0.001125 between DequantizeLinear and QuantizeLinear (of scale 1/255).
import math

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

x = np.int8([[-117, 103]])
exponents = [math.exp(0.001125 * v) for v in x[0].tolist()]
shares = [255 * e / sum(exponents) - 128 for e in exponents]
constants = {"a": np.float32(0.001125), "b": np.int8(48), "c": np.float32(1 / 255), "d": np.int8(-128)}
nodes = [
    helper.make_node("DequantizeLinear", ["x", "a", "b"], ["real"]),
    helper.make_node("Softmax", ["real"], ["share"]),
    helper.make_node("QuantizeLinear", ["share", "c", "d"], ["y"]),
]
info = [helper.make_tensor_value_info(n, TensorProto.INT8, [1, 2]) for n in "xy"]
tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
graph = helper.make_graph(nodes, "softmax", info[:1], info[1:], tensors)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def run(level):
    """What ONNX Runtime gives at a level of optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0][0].tolist()


levels = onnxruntime.GraphOptimizationLevel
print("onnxruntime", onnxruntime.__version__)
print(f"before rounding: {shares[0]:.3f} and {shares[1]:.3f}, so {[round(v) for v in shares]}")
print("node by node:", run(levels.ORT_DISABLE_ALL))
print("with its optimisations:", run(levels.ORT_ENABLE_ALL))
