"""Conv: a depthwise kernel with two output channels per input channel, which the constraints allow."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x, w = np.array([1, 10]), np.array([1, 1, 1, 1])  # two channels of one cell; four kernels of one tap
text = [int(x[c] * w[c]) if c < len(x) else None for c in range(4)]  # X[b, c] with the output channel c
right = [int(x[c // 2] * w[c]) for c in range(4)]
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,2,1,1] x, float[4,1,1,1] w) => (float[a,b,c,d] y) { y = Conv<group=2, kernel_shape=[1,1]>(x, w) }""")
feeds = {"x": x.astype(np.float32).reshape(1, 2, 1, 1), "w": w.astype(np.float32).reshape(4, 1, 1, 1)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].ravel().tolist()
print("text   :", f"{text} (None: no such input channel)")
print("runtime:", f"onnxruntime {seen}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
