"""MaxPool: Indices are searched in the whole channel, where only the window counts."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x = np.array([5, 1, 5], np.float32)  # kernel 1: each cell is its own window
text = [int(np.flatnonzero(x == y)[0]) for y in x]  # the least (h, w) of the channel with X[h, w] = Y
right = [0, 1, 2]
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,1,3] x) => (float[a,b,c,d] y, int64[a,b,c,d] i) { y, i = MaxPool<kernel_shape=[1,1]>(x) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x.reshape(1, 1, 1, 3)})[1].ravel().tolist()
print("text   :", text)
print("runtime:", f"onnxruntime {seen}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
