"""ONNX Runtime, MaxPool and GlobalMaxPool: what becomes of a NaN depends on its place, the type and the outputs."""

import numpy as np
import onnx.parser
import onnxruntime as ort

KINDS = {"float16": np.float16, "float": np.float32, "double": np.float64}
ROWS = [[np.nan, 2, 3, 4], [1, np.nan, 2, 3], [1, 2, 3, np.nan]]


def answers(kind, call, outputs, results):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[1,1,4] x) => ({kind}[a,b,c] y{outputs}) {{ {results} = {call}(x) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except Exception:
        return "not implemented"
    return [session.run(None, {"x": np.array(r, KINDS[kind]).reshape(1, 1, 4)})[0].item() for r in ROWS]


wrong = []
print("right  : nan in every cell; the rows hold NaN first, second, last")
for kind in KINDS:
    asked = {
        "MaxPool": answers(kind, "MaxPool<kernel_shape=[4]>", "", "y"),
        "MaxPool with Indices": answers(kind, "MaxPool<kernel_shape=[4]>", ", int64[a,b,c] i", "y, i"),
        "GlobalMaxPool": answers(kind, "GlobalMaxPool", "", "y"),
    }
    for name, seen in asked.items():
        print(f"{kind:7}: {name} {seen}")
        wrong += [kind] if isinstance(seen, list) and not all(np.isnan(seen)) else []
print("verdict:", "wrong in " + ", ".join(dict.fromkeys(wrong)) if wrong else "right")
