"""Pow of floats: cases that overlap. The first that applies gives NaN, a later one a number."""

import numpy as np
import onnx.parser
import onnxruntime as ort

a, b = np.array([-2, -1, 1], np.float32), np.array([np.inf, np.inf, np.nan], np.float32)
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 15]>
g (float[3] a, float[3] b) => (float[n] y) { y = Pow(a, b) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})[0].tolist()
first, later, right = [np.nan] * 3, [np.inf, 1.0, 1.0], [np.inf, 1.0, 1.0]
print("text   :", f"(-2)**inf, (-1)**inf, 1**NaN: first case {first}, later cases {later}")
print("runtime:", f"onnxruntime {seen}")
print("right  :", f"{right} (IEEE 754-2019, 9.2.1)")
print("verdict:", "right" if np.array_equal(first, later, equal_nan=True) else "ambiguous")
