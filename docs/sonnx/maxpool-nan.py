"""MaxPool: a NaN in the window. Three texts, three answers; two runtimes, two answers."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import torch

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,4] x) => (float[a,b,c] y) { y = MaxPool<kernel_shape=[4]>(x) }""")
session = ort.InferenceSession(model.SerializeToString())
rows = [np.float32(row).reshape(1, 1, 4) for row in ([np.nan, 2, 3, 4], [1, np.nan, 2, 3], [1, 2, 3, np.nan])]
seen = [session.run(None, {"x": x})[0].item() for x in rows]
other = [torch.nn.functional.max_pool1d(torch.tensor(x), 4).item() for x in rows]
absorbing = [float(np.max(x)) for x in rows]
lowest = [float(np.nanmax(x)) for x in rows]
print("text   :", f"NaN absorbs: {absorbing}; NaN is -inf: {lowest}; Max_F: not defined")
print("runtime:", f"onnxruntime {seen}; torch {other}")
print("right  :", f"{absorbing}, once the text says so")
print("verdict:", "right" if absorbing == lowest else "ambiguous")
