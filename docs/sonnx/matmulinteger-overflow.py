"""The guide to tests: from how many products of 255 * 255 on does MatMulInteger overflow?"""

import numpy as np
import onnx.parser
import onnxruntime as ort

text = (2**32 - 1) // 255**2 + 1
right = (2**31 - 1) // 255**2 + 1  # the result is int32, signed


def dot(n):
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
g (uint8[1,{n}] a, uint8[{n},1] b) => (int32[p,q] y) {{ y = MatMulInteger(a, b) }}""")
    feeds = {"a": np.full((1, n), 255, np.uint8), "b": np.full((n, 1), 255, np.uint8)}
    return ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item()


print("text   :", f"first overflow at {text} terms")
print("runtime:", f"onnxruntime {right - 1} terms: {dot(right - 1)}; {right} terms: {dot(right)}")
print("right  :", f"first overflow at {right} terms")
print("verdict:", "right" if text == right else "wrong")
