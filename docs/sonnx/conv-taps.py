"""Conv and ConvInteger: the sums run over the kernel before dilation and read the kernel after it."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x, w, dilation = np.array([1, 10, 100, 1000, 10000]), np.array([1, 1, 1]), 2
dilated = np.zeros(dilation * (len(w) - 1) + 1, int)
dilated[::dilation] = w
text = sum(int(x[j] * dilated[j]) for j in range(len(w)))
right = sum(int(x[dilation * j] * w[j]) for j in range(len(w)))
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,5] x, float[1,1,3] w) => (float[a,b,c] y) { y = Conv<kernel_shape=[3], dilations=[2]>(x, w) }""")
feeds = {"x": x.astype(np.float32).reshape(1, 1, 5), "w": w.astype(np.float32).reshape(1, 1, 3)}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item()
print("text   :", text)
print("runtime:", f"onnxruntime {seen:g}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
