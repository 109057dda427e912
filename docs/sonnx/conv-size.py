"""Conv and ConvInteger: the rule for the size of the output."""

import numpy as np
import onnx.parser
import onnxruntime as ort

n, k, dilation, stride, pads = 5, 3, 2, 1, 0
text = (n + pads - ((dilation * k - 1) + 1)) // stride + 1
right = (n + pads - (dilation * (k - 1) + 1)) // stride + 1
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,5] x, float[1,1,3] w) => (float[a,b,c] y) { y = Conv<kernel_shape=[3], dilations=[2]>(x, w) }""")
feeds = {"x": np.ones((1, 1, 5), np.float32), "w": np.ones((1, 1, 3), np.float32)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].shape[2]
print("text   :", text)
print("runtime:", f"onnxruntime {seen}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
