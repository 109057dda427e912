"""MaxPool: Indices count the batch and the channel too."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import torch

x = np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)
text = [int(sample.argmax()) for sample in x[:, 0]]  # h * W + w
right = [int(sample.argmax()) + b * 4 for b, sample in enumerate(x[:, 0])]
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[2,1,2,2] x) => (float[a,b,c,d] y, int64[a,b,c,d] i) { y, i = MaxPool<kernel_shape=[2,2]>(x) }""")
seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})[1].ravel().tolist()
other = torch.nn.functional.max_pool2d(torch.tensor(x), 2, return_indices=True)[1].ravel().tolist()
print("text   :", text)
print("runtime:", f"onnxruntime {seen}; torch {other} (its own rule: per plane)")
print("right  :", f"{right} (ONNX)")
print("verdict:", "right" if text == right else "wrong")
