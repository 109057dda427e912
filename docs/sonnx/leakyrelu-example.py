"""LeakyRelu (float), Example 1: the value, and the version of the operator."""

import onnx.defs

text, right = -0.95, round(0.01 * -9.5, 6)
versions = sorted(s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == "LeakyRelu")
print("text   :", f"alpha 0.01, x -9.5: {text}; based on version 14")
print("runtime:", f"onnx has versions {versions}")
print("right  :", f"{right}; version 16")
print("verdict:", "right" if text == right and 14 in versions else "wrong")
