"""Conv: which entry of kernel_shape belongs to which axis of W."""

import numpy as np
import onnx.parser
import onnxruntime as ort


def answer(kernel_shape):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,8,8] x, float[1,1,3,2] w) => (float[a,b,c,d] y) {{ y = Conv<kernel_shape={kernel_shape}>(x, w) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    feeds = {"x": np.zeros((1, 1, 8, 8), np.float32), "w": np.zeros((1, 1, 3, 2), np.float32)}
    try:
        return f"output {ort.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0].shape[2:]}"
    except Exception:
        return "refused"


text, right = [2, 3], [3, 2]  # of a kernel with dW_2 = 3 rows and dW_3 = 2 columns
print("text   :", f"kernel_shape {text}")
print("runtime:", f"onnxruntime: {text} {answer(text)}; {right} {answer(right)}")
print("right  :", f"kernel_shape {right}")
print("verdict:", "right" if text == right else "wrong")
