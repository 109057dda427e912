"""Div of integers: the introduced error is said to be below one half."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 14]>
g (int32[2] a, int32[2] b) => (int32[n] y) { y = Div(a, b) }""")
feeds = {"a": np.array([7, -7], np.int32), "b": np.array([4, 4], np.int32)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].tolist()
errors = [abs(y - x / 4) for y, x in zip(seen, (7, -7), strict=True)]
print("text   :", "below 0.5")
print("runtime:", f"onnxruntime 7 / 4 = {seen[0]}, -7 / 4 = {seen[1]}: off by {errors[0]} and {errors[1]}")
print("right  :", "below 1: the quotient is truncated, not rounded")
print("verdict:", "right" if max(errors) < 0.5 else "wrong")
