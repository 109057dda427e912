"""ONNX Runtime, Resize to a given size: the scale is rounded before the cell is chosen."""

from fractions import Fraction

import numpy as np
import onnx.parser
import onnxruntime as ort

TYPES = {"float16": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8, "uint8": np.uint8}
cell = (Fraction(0) + Fraction(1, 2)) / Fraction(1, 7) - Fraction(1, 2)  # half_pixel, output cell 0 of 1, from 7
wrong = []
print(f"right  : 7 cells to 1, half_pixel, floor: coordinate {cell} exactly, so cell {int(cell)}")
for kind, dtype in TYPES.items():
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 19]>
g ({kind}[7] x, int64[1] s) => ({kind}[n] y) {{
y = Resize<mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="floor">(x, , , s) }}""")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        seen = session.run(None, {"x": np.arange(7).astype(dtype), "s": np.array([1])})[0].item()
    except Exception:
        seen = "not implemented"
    print(f"{kind:7}: {f'cell {int(seen)}' if not isinstance(seen, str) else seen}")
    wrong += [kind] if seen not in (int(cell), "not implemented") else []
print("verdict:", "wrong in " + ", ".join(wrong) if wrong else "right")
