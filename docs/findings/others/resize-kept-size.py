# Resize by 1.4 of two cells gives two cells at other places: the second lies at 1.5/1.4 - 0.5 = 4/7. Some copy instead.
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)


def resize(scales):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    shapes = [1, 1, *[2] * (len(scales) - 2)], [1, 1, *[None] * (len(scales) - 2)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", shapes, strict=True)]
    stored = [numpy_helper.from_array(np.array(scales, np.float32), "scales")]
    graph = helper.make_graph([node], "resize", info[:1], info[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()


def by_onnxruntime(model, x):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def by_openvino(model, x):
    core = openvino.Core()
    return core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]


row = np.array([[[0, 100]]], np.float32)
square = np.array([[[[0, 100], [0, 100]]]], np.float32)
print("onnxruntime", onnxruntime.__version__ + ", openvino", openvino.__version__.split("-")[0])
for text, model, x in (("by 1.4", resize([1, 1, 1.4]), row), ("by 2 and 1.4", resize([1, 1, 2, 1.4]), square)):
    got = [np.array(run(model, x)).reshape(-1, 2)[0] for run in (by_onnxruntime, by_openvino)]
    told = ", ".join(
        f"{name} [{a:.2f}, {b:.2f}]" for name, (a, b) in zip(("onnxruntime", "openvino"), got, strict=True)
    )
    print(f"{text}: a row must be [0.00, {100 * 4 / 7:.2f}], got {told}")
