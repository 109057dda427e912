"""ONNX Runtime, linear Resize of integers: the mean is cut off towards 0, not rounded. ONNX does not say which."""

from fractions import Fraction

import numpy as np
import onnx.parser
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator


def mean(x, o):  # half_pixel, 4 cells to 7
    at = (o + Fraction(1, 2)) * Fraction(4, 7) - Fraction(1, 2)
    left = int(at)
    return x[left] + (at - left) * (x[left + 1] - x[left])


differs = []
for kind, cells in (("int8", [0, 100, -100, 50]), ("uint8", [0, 100, 200, 50])):
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 19]>
g ({kind}[1,1,1,4] x, int64[4] s) => ({kind}[a,b,c,d] y) {{
y = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(x, , , s) }}""")
    feeds = {"x": np.array(cells, kind).reshape(1, 1, 1, 4), "s": np.array([1, 1, 1, 7])}
    seen = ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0].ravel().tolist()
    reference = ReferenceEvaluator(model).run(None, feeds)[0].ravel().tolist()
    exact = [f"{float(mean(cells, o)):.2f}" for o in (1, 2, 4, 5)]
    picked = [[row[o] for o in (1, 2, 4, 5)] for row in (seen, reference)]
    print(f"{kind:7}: exactly {', '.join(exact)}: {picked[0]}; onnx reference {picked[1]}")
    differs += [kind] if seen != reference else []
print("right  : one of the two, and the text must say which")
print("verdict:", "not decided: " + ", ".join(differs) if differs else "right")
