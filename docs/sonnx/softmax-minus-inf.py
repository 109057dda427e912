"""Softmax of a slice of -inf alone: the case table gives 0, the formula and the runtimes NaN."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import torch

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 13]>
g (float[1,2] x) => (float[a,b] y) { y = Softmax<axis=1>(x) }""")
x = np.full((1, 2), -np.inf, np.float32)
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0].ravel().tolist()
other = torch.softmax(torch.tensor(x), 1).ravel().tolist()
with np.errstate(invalid="ignore"):
    e = np.exp(x - x.max())
text, right = [0.0, 0.0], (e / e.sum()).ravel().tolist()
print("text   :", f"{text} by its case for -inf; its formula with the maximum subtracted gives {right}")
print("runtime:", f"onnxruntime {seen}; torch {other}")
print("right  :", f"{right}: -inf - -inf is no number, and 0 + 0 is no distribution")
print("verdict:", "right" if text == right else "wrong")
