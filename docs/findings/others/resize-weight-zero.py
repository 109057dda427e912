# Linear Resize of two cells to four, corners aligned: the first output lies on the first cell. The second cell does
# not matter to it, over the numbers. Runtimes multiply it by 0, and 0 times infinity is NaN.
import numpy as np
import onnxruntime
import openvino
import torch
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
node = helper.make_node(
    "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="align_corners"
)
info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 1, 1, 2]), ("y", [1, 1, 1, 4]))]
graph = helper.make_graph(
    [node], "resize", info[:1], info[1:], [numpy_helper.from_array(np.array([1, 1, 1, 4]), "sizes")]
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
core = openvino.Core()
compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
runtimes = {
    f"onnxruntime {onnxruntime.__version__}": lambda x: session.run(None, {"x": x})[0],
    f"openvino {openvino.__version__.split('-')[0]}": lambda x: compiled([x])[0],
    f"torch {torch.__version__}": lambda x: torch.nn.functional.interpolate(
        torch.from_numpy(x), size=(1, 4), mode="bilinear", align_corners=True
    ).numpy(),
}
for name, run in runtimes.items():
    first = {str(cell): float(run(np.array([[[[1, cell]]]], np.float32)).ravel()[0]) for cell in (2.0, np.inf, np.nan)}
    print(f"{name}: y[0] of [1, 2], [1, inf], [1, nan] is", ", ".join(map(str, first.values())))
