"""MaxPool: what the size formula gives for a spatial axis of size 0."""

import numpy as np
import onnx.parser
import onnxruntime as ort


def size(n, k, pads):
    return n + pads - (k - 1) - 1 + 1


model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,0] x) => (float[a,b,c] y) { y = MaxPool<kernel_shape=[2], pads=[1,1]>(x) }""")
options = ort.SessionOptions()
options.log_severity_level = 4
session = ort.InferenceSession(model.SerializeToString(), options)
try:
    answer = str(session.run(None, {"x": np.zeros((1, 1, 0), np.float32)})[0].shape)
except Exception:
    answer = "refused"
computed = {"k=1": size(0, 1, 0), "k=2, pads 1+1": size(0, 2, 2), "k=3": size(0, 3, 0)}
print("text   :", "0 for every kernel and padding")
print("runtime:", f"onnxruntime, k=2, pads 1+1: {answer}")
print("right  :", ", ".join(f"{name} gives {n}" for name, n in computed.items()) + ", by the text's own formula")
print("verdict:", "right" if set(computed.values()) == {0} else "wrong")
