"""MatMul, introduced error: (1 + u**2) is printed where the proof has (1 + u)**2."""

from fractions import Fraction

import numpy as np
import onnx.parser
import onnxruntime as ort

u, n = Fraction(1, 2**24), 1
a = np.float32(1 + 2**-23)
exact = Fraction(float(a)) ** 2
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1] a, float[1,1] b) => (float[p,q] y) { y = MatMul(a, b) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"a": np.full((1, 1), a), "b": np.full((1, 1), a)})
error = abs(Fraction(seen[0].item()) - exact)
text = ((1 + u**2) * ((1 + u) ** n - 1) / u - n) * exact
right = ((1 + u) ** 2 * ((1 + u) ** n - 1) / u - n) * exact
print("text   :", f"error at most {float(text):.3g}")
print("runtime:", f"onnxruntime, (1 + 2**-23)**2: error {float(error):.3g}, {float(error / text):.0f} times as much")
print("right  :", f"at most {float(right):.3g}")
print("verdict:", "wrong" if text < error <= right else "right")
