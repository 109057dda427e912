"""A property to test by: Conv(X + Y, W) = Conv(X, W) + Conv(Y, W), as an equation in floats."""

import numpy as np
import onnx.parser
import onnxruntime as ort

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,1] x, float[1,1,1] w) => (float[a,b,c] y) { y = Conv<kernel_shape=[1]>(x, w) }""")
session = ort.InferenceSession(model.SerializeToString())


def conv(v):
    return session.run(None, {"x": np.full((1, 1, 1), v, np.float32), "w": np.full((1, 1, 1), 3, np.float32)})[0].item()


x, y = np.float32(1), np.float32(2**-24)
left, right = conv(x + y), np.float32(conv(x)) + np.float32(conv(y))
print("text   :", "equal")
print("runtime:", f"onnxruntime {float(left)!r} and {float(right)!r}")
print("right  :", f"equal to within the rounding of both sides, not bit for bit; apart by {float(right) - left:.3g}")
print("verdict:", "right" if left == right else "wrong")
