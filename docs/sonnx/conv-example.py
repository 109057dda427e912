"""Conv: the worked example's sizes."""

import numpy as np
import onnx.parser
import onnxruntime as ort

sizes, kernel, pads, strides = (8, 8), (3, 2), (2 + 2, 1 + 2), (3, 2)
rule = tuple((n + p - 2 * k) // s + 1 for n, k, p, s in zip(sizes, kernel, pads, strides, strict=True))
right = tuple((n + p - 2 * (k - 1) - 1) // s + 1 for n, k, p, s in zip(sizes, kernel, pads, strides, strict=True))
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,8,8] x, float[1,1,3,2] w) => (float[a,b,c,d] y)
{ y = Conv<kernel_shape=[3,2], dilations=[2,2], strides=[3,2], pads=[2,1,2,2]>(x, w) }""")
feeds = {"x": np.zeros((1, 1, 8, 8), np.float32), "w": np.zeros((1, 1, 3, 2), np.float32)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].shape[2:]
print("text   :", f"(4, 4) in the example, {rule} by the text's own size rule")
print("runtime:", f"onnxruntime {seen}")
print("right  :", right)
print("verdict:", "right" if right == (4, 4) else "wrong")
