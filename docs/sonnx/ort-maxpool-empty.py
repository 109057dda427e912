"""ONNX Runtime, MaxPool: a window without a cell of the input."""

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8, "uint8": np.uint8}
wrong = []
print("right  : refused, or a value that the text names; no index outside 0..0. The input is one cell, 7")
for kind, dtype in TYPES.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[1,1,1,1] x) => ({kind}[a,b,c,d] y, int64[a,b,c,d] i)
{{ y, i = MaxPool<kernel_shape=[2,2], dilations=[2,2], pads=[1,1,1,1]>(x) }}""")
    y, i = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.full((1, 1, 1, 1), 7, dtype)})
    print(f"{kind:7}: {float(y.item()):g} index {i.item()}")
    wrong += [kind] if i.item() != 0 else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
