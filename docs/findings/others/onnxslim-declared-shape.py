# The graph computes (3, 1, 4); the file declares (1, cells) for it. onnxslim takes the target of Reshape from there.
import logging

import numpy as np
import onnxruntime
import onnxslim
from onnx import helper, numpy_helper

logging.disable(logging.WARNING)


def known(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


nodes = [
    helper.make_node("Shape", ["x"], ["shape"]),
    helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
    helper.make_node("Unsqueeze", ["rows", "axes"], ["first"]),
    helper.make_node("Concat", ["first", "rest"], ["target"], axis=0),
    helper.make_node("Reshape", ["x", "target"], ["y"]),
]
ends = [helper.make_tensor_value_info("x", 1, ["rows", 4])], [helper.make_tensor_value_info("y", 1, [1, "cells"])]
graph = helper.make_graph(nodes, "g", *ends, [known("zero", 0), known("axes", [0]), known("rest", [1, 4])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
shapes = []
for each in (model, onnxslim.slim(model)):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(each.SerializeToString(), options, providers=["CPUExecutionProvider"])
    shapes.append(session.run(None, {"x": np.ones((3, 4), np.float32)})[0].shape)
print("onnxslim", onnxslim.__version__ + ", onnxruntime", onnxruntime.__version__)
print(f"must be {shapes[0]}, after onnxslim {shapes[1]}")
