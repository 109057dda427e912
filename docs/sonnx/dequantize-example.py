"""DequantizeLinear, Example 2: its values, its prose, and what float can hold."""

import numpy as np
import onnx.parser
import onnxruntime as ort

x, zero_point = np.array([-(2**31), 2**31 - 1]), 100
wrapped = (x - zero_point).astype(np.int32)
right = [int(v) for v in wrapped.astype(np.float32)]
shown, prose = [2147483548, -2147483749], [2147483548, 2147483547]
model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
g (int32[2] x, float s, int32 z) => (float[a] y) { y = DequantizeLinear(x, s, z) }""")
feeds = {"x": x.astype(np.int32), "s": np.array(1, np.float32), "z": np.array(zero_point, np.int32)}
seen = [int(v) for v in ort.InferenceSession(model.SerializeToString()).run(None, feeds)[0]]
print("text   :", f"{shown} in the formula, {prose} in the prose")
print("runtime:", f"onnxruntime {seen}")
print("right  :", f"{right}: the differences {wrapped.tolist()} rounded to float")
print("verdict:", "right" if shown == prose == right else "wrong")
