"""ConvInteger: the holes of a dilated kernel become 0 - w_zero_point."""

import numpy as np
import onnx.parser
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

x, w, zero_point = np.arange(9).reshape(3, 3), np.array([[2, 3], [4, 5]]), 1
dilated = np.zeros((3, 3), int)
dilated[::2, ::2] = w
text = int((x * (dilated - zero_point)).sum())
right = int((x[::2, ::2] * (w - zero_point)).sum())
model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
g (uint8[1,1,3,3] x, uint8[1,1,2,2] w, uint8 p, uint8 q) => (int32[a,b,c,d] y)
{ y = ConvInteger<kernel_shape=[2,2], dilations=[2,2]>(x, w, p, q) }""")
feeds = {"x": x.reshape(1, 1, 3, 3), "w": w.reshape(1, 1, 2, 2), "p": np.array(0), "q": np.array(zero_point)}
feeds = {name: value.astype(np.uint8) for name, value in feeds.items()}
seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].item()
reference = ReferenceEvaluator(model).run(None, feeds)[0].item()
print("text   :", text)
print("runtime:", f"onnxruntime {seen}; onnx reference {reference}")
print("right  :", right)
print("verdict:", "right" if text == right else "wrong")
