"""A property to test by: adding a constant to every cell shall not move the index of the maximum."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,2] x) => (float[a,b,c] y, int64[a,b,c] i) { y, i = MaxPool<kernel_shape=[2]>(x) }""")
session = ort.InferenceSession(model.SerializeToString())
x = np.array([[[1, 1 + 2**-23]]], np.float32)
before, after = (session.run(None, {"x": v})[1].item() for v in (x, x + np.float32(1024)))
print("text   :", "the index stays")
print("runtime:", f"onnxruntime {before}, after adding 1024: {after}")
print("right  :", "the sums are equal in float32 (1025), and the first wins: 1, then 0")
print("verdict:", "right" if before == after else "wrong")
