"""ONNX Runtime, pooling with SAME padding: dilation is left out, and a stride beyond the kernel shifts the windows."""

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8, "uint8": np.uint8}


def answer(kind, operator, attributes, cells):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 22]>
g ({kind}[1,1,{cells}] x) => ({kind}[a,b,c] y) {{ y = {operator}<auto_pad="SAME_UPPER", {attributes}>(x) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    x = np.arange(1, cells + 1).astype(TYPES[kind]).reshape(1, 1, cells)
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
    except Exception:
        return "not implemented"
    try:
        return [float(v) for v in session.run(None, {"x": x})[0].ravel()]
    except Exception:
        return "refused"


wrong = []
print("right  : cells 1..6, kernel 2, dilation 2: ceil(6 / 1) = 6 windows; cells 1..3, kernel 1, stride 3: cell 1")
for kind in TYPES:
    for operator in ("MaxPool", "AveragePool", "LpPool") if "int" not in kind else ("MaxPool",):
        p = ", p=1" if operator == "LpPool" else ""
        dilated = answer(kind, operator, f"kernel_shape=[2], dilations=[2]{p}", 6)
        strided = answer(kind, operator, f"kernel_shape=[1], strides=[3]{p}", 3)
        shown = f"{len(dilated)} windows" if isinstance(dilated, list) else dilated
        print(f"{kind:7}: {operator}: {shown}; {strided}")
        bad = (isinstance(dilated, list) and len(dilated) != 6) or (isinstance(strided, list) and strided != [1.0])
        wrong += [kind] if bad else []
print("verdict:", "wrong in " + ", ".join(dict.fromkeys(wrong)) if wrong else "right")
