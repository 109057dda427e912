"""ONNX Runtime, Sign of NaN."""

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}
wrong = []
print("right  : the same for every type; nan, if NaN propagates")
for kind, dtype in TYPES.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 13]>
g ({kind}[1] x) => ({kind}[n] y) {{ y = Sign(x) }}""")
    seen = ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([np.nan], dtype)})[0].item()
    print(f"{kind:7}: {seen}")
    wrong += [kind] if not np.isnan(seen) else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
