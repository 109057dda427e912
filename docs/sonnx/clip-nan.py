"""Clip with min > max and NaN data: the text gives max, its real formula and ONNX Runtime NaN."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 13]>
g (float[2] x, float l, float m) => (float[n] y) { y = Clip(x, l, m) }""")
feeds = {"x": np.array([np.nan, 30], np.float32), "l": np.array(20, np.float32), "m": np.array(10, np.float32)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].tolist()
text = [10.0, 10.0]
right = np.minimum(10, np.maximum(feeds["x"], 20)).tolist()
print("text   :", text)
print("runtime:", f"onnxruntime {seen}")
print("right  :", f"{right}: min(max, max(x, min)), and NaN data stays NaN as it does for min <= max")
print("verdict:", "right" if np.array_equal(text, right, equal_nan=True) else "wrong")
