"""LeakyRelu: NaN is said to need a NaN; 0 * -inf makes one."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 16]>
g (float[1] x) => (float[n] y) { y = LeakyRelu<alpha=0.0>(x) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([-np.inf], np.float32)})[0].item()
formula = 0.0 * -np.inf
print("text   :", "NaN only if x is NaN, or x is negative and alpha is NaN: so a number for alpha = 0, x = -inf")
print("runtime:", f"onnxruntime {seen}")
print("right  :", f"{formula}, by the text's own alpha * x")
print("verdict:", "wrong" if np.isnan(formula) else "right")
