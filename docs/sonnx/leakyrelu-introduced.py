"""LeakyRelu: the only introduced error that is stated is 0, for ideal arithmetic; in floats alpha * x rounds."""

from fractions import Fraction

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1] x) => (float[n] y) { y = LeakyRelu<alpha=0.1>(x) }""")
x = np.array([-1 - 2**-23], np.float32)
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0].item()
exact = Fraction(float(np.float32(0.1))) * Fraction(x.item())
error = abs(Fraction(seen) - exact)
right = Fraction(1, 2**24) * abs(exact)
print("text   :", "0 in ideal arithmetic; nothing for floats")
print("runtime:", f"onnxruntime off by {float(error):.3g}")
print("right  :", f"at most u * max(|alpha * x|, least normal number) for x < 0, here {float(right):.3g}; 0 otherwise")
print("verdict:", "ambiguous" if 0 < error <= right else "right")
