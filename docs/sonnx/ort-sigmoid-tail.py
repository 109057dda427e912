"""ONNX Runtime, Sigmoid of negative numbers: the absolute error is small, the relative error is 1."""

import math

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}
wrong = []
print("right  : " + ", ".join(f"sigmoid({x}) = {1 / (1 + math.exp(-x)):.6g}" for x in (-15, -18, -50)))
for kind, dtype in TYPES.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 13]>
g ({kind}[3] x) => ({kind}[n] y) {{ y = Sigmoid(x) }}""")
    seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([-15, -18, -50], dtype)})[0]
    print(f"{kind:7}: " + ", ".join(f"{float(v):.3g}" for v in seen))
    lost = seen[2] == 0 if kind == "double" else seen[1] == 0
    wrong += [kind] if lost and kind != "float16" else []  # float16 has no number near 1e-8
print("verdict:", "all relative accuracy lost in " + ", ".join(wrong) if wrong else "right")
