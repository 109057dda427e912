"""ONNX Runtime, ReduceMax, ReduceMin and TopK: a NaN that is not first is passed over, or spoils the order."""

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}
wrong = []
print("right  : nan from both reductions; TopK of 1, nan, 3, 2: nan and 3, or 3 and 2")
for kind, dtype in TYPES.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[4] x, int64[1] k) => ({kind} high, {kind} low, {kind}[n] top, int64[n] at) {{
high = ReduceMax<keepdims=0>(x)
low = ReduceMin<keepdims=0>(x)
top, at = TopK<axis=0>(x, k)
}}""")
    x = np.array([1, np.nan, 3, 2], dtype)
    high, low, top, _ = ort.InferenceSession(model.SerializeToString()).run(None, {"x": x, "k": np.array([2])})
    print(f"{kind:7}: ReduceMax {high.item()}, ReduceMin {low.item()}, TopK {top.tolist()}")
    wrong += [kind] if not np.isnan([high, low]).all() else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
