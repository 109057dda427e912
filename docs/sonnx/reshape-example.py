"""Reshape, Example 3: 0 and -1 together with allowzero = 1, which the text's own rule forbids."""

import numpy as np
import onnx.parser
import onnxruntime as ort


def answer(allowzero):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
g (float[2,5] x, int64[2] s) => (float[a,b] y) {{ y = Reshape<allowzero={allowzero}>(x, s) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = {"x": np.zeros((2, 5), np.float32), "s": np.array([0, -1])}
    try:
        return str(ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0].shape)
    except Exception:
        return "refused"


print("text   :", "allowzero 1, shape [0, -1]: (2, 5)")
print("runtime:", f"onnxruntime, allowzero 1: {answer(1)}; allowzero 0: {answer(0)}")
print("right  :", "allowzero 1: refused; the example wants allowzero 0")
print("verdict:", "wrong" if answer(1) == "refused" else "right")
