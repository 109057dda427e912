# LRN over three channels, alpha = 3, beta = 0.5, bias = 1: x / sqrt(1 + squares of itself and its neighbours).
import math

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 6, 1, 1]) for n in "xy"]
node = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=3.0, beta=0.5, bias=1.0)
graph = helper.make_graph([node], "lrn", info[:1], info[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

print("onnxruntime", onnxruntime.__version__)
for first in (1, 1000, 10000):
    row = [first, 0.7, 0.7, 0.7, 0.7, 0.7]
    sums = [sum(v**2 for v in row[max(0, c - 1) : c + 2]) for c in range(6)]
    right = [round(v / math.sqrt(1 + total), 4) for v, total in zip(row, sums, strict=True)]
    got = session.run(None, {"x": np.float32(row).reshape(1, 6, 1, 1)})[0].ravel()
    print(f"channel 0 is {first}: channels 2 to 5 must be {right[2:]}, got {[round(float(v), 4) for v in got[2:]]}")
