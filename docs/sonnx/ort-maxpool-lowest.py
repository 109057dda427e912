"""ONNX Runtime, MaxPool and GlobalMaxPool: a window of -inf alone, or of the least integer alone."""

import numpy as np
import onnx.parser
import onnxruntime as ort

KINDS = {"float16": -np.inf, "float": -np.inf, "double": -np.inf, "int8": -128, "uint8": 0}
TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8, "uint8": np.uint8}


def answer(kind, call, outputs, results):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[1,1,2] x) => ({kind}[a,b,c] y{outputs}) {{ {results} = {call}(x) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except Exception:
        return "not implemented"
    return [float(v.item()) for v in session.run(None, {"x": np.full((1, 1, 2), KINDS[kind], TYPES[kind])})]


wrong = []
print("right  : the cells' own value, index 0 (-4 was reported of version 1.23.2)")
for kind, value in KINDS.items():
    plain = answer(kind, "MaxPool<kernel_shape=[2]>", "", "y")
    indexed = answer(kind, "MaxPool<kernel_shape=[2]>", ", int64[a,b,c] i", "y, i")
    whole = answer(kind, "GlobalMaxPool", "", "y") if "int" not in kind else "not in ONNX"
    print(f"{kind:7}: cells {value}: MaxPool {plain}, with Indices {indexed}, GlobalMaxPool {whole}")
    wrong += [kind] if plain != [value] or indexed != [value, 0] or whole == [-3.4028234663852886e38] else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
