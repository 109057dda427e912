"""Tanh near 0: the reference algorithm has an absolute bound and no relative accuracy; the page does not say so."""

import math

import numpy as np
import onnx.parser
import onnxruntime as ort

x = np.float32(2.0**-26)
t = np.exp(np.float32(2) * -x)
y = float((1 - t) / (1 + t))
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1] x) => (float[n] y) { y = Tanh(x) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([x])})[0].item()
right = math.tanh(float(x))
print("text   :", f"tanh(2**-26) by its algorithm, in float32: {y}, relative error {abs(y / right - 1):g}")
print("runtime:", f"onnxruntime relative error {abs(seen / right - 1):.1g}")
print("right  :", f"{right!r}; near 0 use expm1, or say that only the absolute bound 2u is promised")
print("verdict:", "ambiguous" if y == 0 else "right")
