"""Exp: the largest inputs said to give finite results give infinities in float16 and float."""

import numpy as np
import onnx.parser
import onnxruntime as ort

text = {"float16": 11.09375, "float": 88.72283935546875, "double": 709.782712893384}
kinds = {"float16": np.float16, "float": np.float32, "double": np.float64}


def exp(kind, v):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 13]>
g ({kind}[1] x) => ({kind}[n] y) {{ y = Exp(x) }}""")
    return ort.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([v], kinds[kind])})[0].item()


below = {kind: float(np.nextafter(kinds[kind](v), kinds[kind](0))) for kind, v in text.items()}
last = {kind: v if np.isfinite(exp(kind, v)) else below[kind] for kind, v in text.items()}
print("text   :", ", ".join(f"{kind} {v!r}" for kind, v in text.items()))
print("runtime:", "onnxruntime there " + ", ".join(f"{kind} {exp(kind, v):.6g}" for kind, v in text.items()))
print("right  :", ", ".join(f"{kind} {v!r}" for kind, v in last.items()))
print("verdict:", "right" if last == text else "wrong")
