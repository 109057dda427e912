"""Conv, MatMul: "IEEE 754" does not say in which order a sum is taken."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x = np.array([2.0**24, 1, 1, 1, 1, 1, 1, 1], np.float32)
left = np.float32(0)
for value in x:
    left += value
right = np.float32(0)
for value in x[::-1]:
    right += value
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,8] x, float[8,1] w) => (float[a,b] y) { y = MatMul(x, w) }""")
feeds = {"x": x[None], "w": np.ones((8, 1), np.float32)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item()
print("text   :", f"from the left {float(left)!r}, from the right {float(right)!r}: both are IEEE 754")
print("runtime:", "onnxruntime: one of its own orders, " + ("inside" if 2**24 <= seen <= 2**24 + 8 else "outside"))
print("right  :", f"{2.0**24 + 7!r} exactly; every order within 8 * 2**-24 of the sum of absolute values")
print("verdict:", "right" if left == right else "ambiguous")
