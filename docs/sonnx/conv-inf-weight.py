"""Conv: a tap in the padding under a weight that is infinite. Is it 0 * inf, or absent?"""

import numpy as np
import onnx.parser
import onnxruntime as ort
import torch

x, w = np.full((1, 1, 1), 2, np.float32), np.array([[[np.inf, 1, 1]]], np.float32)
padded = 0.0 * float(w[0, 0, 0]) + 2 * 1 + 0 * 1
absent = 2.0
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,1] x, float[1,1,3] w) => (float[a,b,c] y) { y = Conv<kernel_shape=[3], pads=[1,1]>(x, w) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x, "w": w})[0].item()
other = torch.nn.functional.conv1d(torch.tensor(x), torch.tensor(w), padding=1).item()
print("text   :", f"0 * inf is computed: {padded}; padding is left out: {absent}")
print("runtime:", f"onnxruntime {seen}; torch {other}")
print("right  :", f"{padded}, if padding is a 0 that is multiplied; the text must say so")
print("verdict:", "ambiguous")
