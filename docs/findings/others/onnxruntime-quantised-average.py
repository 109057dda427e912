# Means of 2x2 cells of 100, of five rows, stride 2, ceil_mode: the last window has one row, and hangs over by one.
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
x = np.full((1, 1, 5, 4), 100, np.float32)
scale, zero = numpy_helper.from_array(np.float32(1), "s"), numpy_helper.from_array(np.uint8(0), "z")
info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("y", (1, 1, 3, 2)))]


def last_row(count_include_pad, level):
    """x quantised without loss, averaged between DequantizeLinear and QuantizeLinear, and dequantised."""
    window = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": count_include_pad}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["b"], **window),
        helper.make_node("QuantizeLinear", ["b", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "average", info[:1], info[1:], [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0][0, 0, -1].tolist()


print("onnxruntime", onnxruntime.__version__)
for include in (0, 1):
    apart, merged = (last_row(include, level) for level in ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL"))
    print(f"count_include_pad={include}: the last row must be [100.0, 100.0], as it stands {apart}, merged {merged}")
