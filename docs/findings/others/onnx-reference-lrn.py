# LRN of channels 1 to 4 over three of them, alpha = 3, beta = 1: x / (1 + squares of itself and its neighbours).
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

row = [1, 2, 3, 4]
sums = [sum(v**2 for v in row[max(0, c - 1) : c + 2]) for c in range(4)]
right = [round(v / (1 + total), 4) for v, total in zip(row, sums, strict=True)]
info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4, 1, 1]) for n in "xy"]
node = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=3.0, beta=1.0, bias=1.0)
model = helper.make_model(helper.make_graph([node], "lrn", info[:1], info[1:]))


def channels(samples):
    """What the reference gives for the first of equal samples."""
    x = np.tile(np.float32(row).reshape(1, 4, 1, 1), (samples, 1, 1, 1))
    try:
        return [round(float(v), 4) for v in ReferenceEvaluator(model).run(None, {"x": x})[0][0].ravel()]
    except IndexError:
        return "IndexError"


print("onnx", onnx.__version__)
for samples in (1, 4, 5):
    plural = "s" if samples > 1 else ""
    print(f"{samples} sample{plural}: channels must be {right}, got {channels(samples)}")
