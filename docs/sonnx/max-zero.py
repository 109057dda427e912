"""Max(+0, -0), five times in one tensor: ordered in the text of Max, equal in the new text of MaxPool."""

import numpy as np
import onnx.parser
import onnxruntime as ort

seen = {}
for kind, dtype in {"float16": np.float16, "float": np.float32, "double": np.float64}.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 13]>
g ({kind}[5] a, {kind}[5] b) => ({kind}[n] y) {{ y = Max(a, b) }}""")
    y = ort.InferenceSession(model.SerializeToString()).run(None, {"a": np.zeros(5, dtype), "b": -np.zeros(5, dtype)})[
        0
    ]
    seen[kind] = " ".join("-0" if sign else "+0" for sign in np.signbit(y))
print("text   :", "+0 in every cell by the order in Max; either zero, in MaxPool")
print("runtime:", "onnxruntime " + "; ".join(f"{kind} {row}" for kind, row in seen.items()))
print("right  :", "+0 in every cell (IEEE 754-2019, maximum), or either zero, but one of the two in every text")
print("verdict:", "right" if set(seen.values()) == {"+0 +0 +0 +0 +0"} else "ambiguous")
