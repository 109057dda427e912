"""QuantizeLinear: "rounded to the nearest even integer", and infinities."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x = np.array([1, 3, 2.5, np.inf, -np.inf], np.float32)
text = [int(2 * np.rint(v / 2)) for v in x[:3]]  # the nearest even integer
right = [int(np.rint(v)) for v in x[:3]]  # the nearest integer, ties to even
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (float[5] x, float s, uint8 z) => (uint8[a] y) { y = QuantizeLinear(x, s, z) }""")
feeds = {"x": x, "s": np.array(1, np.float32), "z": np.array(0, np.uint8)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].tolist()
print("text   :", f"{text} for 1, 3, 2.5; infinities depend on the implementation")
print("runtime:", f"onnxruntime {seen[:3]}; +inf, -inf: {seen[3:]}")
print("right  :", f"{right}; [255, 0], which the text's own clamp gives")
print("verdict:", "right" if text == right else "wrong")
