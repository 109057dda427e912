"""ONNX Runtime, QuantizeLinear of +inf: saturation, except for float16."""

import numpy as np
import onnx.parser
import onnxruntime as ort

wrong = []
print("right  : +inf saturates to 255 and 127, -inf to 0 and -128")
for kind, dtype in {"float": np.float32, "float16": np.float16}.items():
    row = []
    for target, into in {"uint8": np.uint8, "int8": np.int8}.items():
        model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
g ({kind}[2] x, {kind} s, {target} z) => ({target}[n] y) {{ y = QuantizeLinear(x, s, z) }}""")
        feeds = {"x": np.array([np.inf, -np.inf], dtype), "s": np.array(1, dtype), "z": np.array(0, into)}
        row.append(ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].tolist())
    print(f"{kind:7}: to uint8 {row[0]}, to int8 {row[1]}")
    wrong += [kind] if row != [[255, 0], [127, -128]] else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
