"""MaxPool: three guards against empty windows, and a window that passes all of them."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import torch

n, k, dilation, lo, hi = 1, 2, 2, 1, 1
extent = dilation * (k - 1) + 1
guards = {"pads < kernel": max(lo, hi) < k, "pads <= kernel": max(lo, hi) <= k, "extent > pads": extent > max(lo, hi)}
windows = n + lo + hi - extent + 1
read = [[i for t in range(k) if 0 <= (i := o + dilation * t - lo) < n] for o in range(windows)]

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22]>
g (float[1,1,1,1] x) => (float[a,b,c,d] y, int64[a,b,c,d] i)
{ y, i = MaxPool<kernel_shape=[2,2], dilations=[2,2], pads=[1,1,1,1]>(x) }""")
x = np.full((1, 1, 1, 1), 7, np.float32)
y, i = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
ty, ti = torch.nn.functional.max_pool2d(torch.tensor(x), 2, 1, 1, 2, return_indices=True)

print("text   :", ", ".join(f"{g} {'holds' if h else 'fails'}" for g, h in guards.items()))
print("runtime:", f"onnxruntime {y.item():g} index {i.item()}; torch {ty.item():g} index {ti.item()}; the input is 7")
print("right  :", f"the one window of an axis reads cells {read[0]}: refuse")
print("verdict:", "wrong" if all(guards.values()) and not all(read) else "right")
