"""ConvInteger: padding with 0 before the zero point is subtracted."""

import numpy as np
import onnx.parser
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

x, zero_point = 5, 3
text = (x - zero_point) + 8 * (0 - zero_point)  # a 3x3 kernel of ones, one cell, padding 1
right = x - zero_point
model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
g (uint8[1,1,1,1] x, uint8[1,1,3,3] w, uint8 z) => (int32[a,b,c,d] y)
{ y = ConvInteger<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w, z) }""")
feeds = {"x": np.full((1, 1, 1, 1), x, np.uint8), "w": np.ones((1, 1, 3, 3), np.uint8), "z": np.uint8(zero_point)}
feeds["z"] = np.array(zero_point, np.uint8)
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item()
reference = ReferenceEvaluator(model).run(None, feeds)[0].item()
print("text   :", text)
print("runtime:", f"onnxruntime {seen}; onnx reference {reference}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
