"""Graphs: every output of an operator must be there, and every node used; MaxPool shall have no Indices."""

import onnx.defs

outputs = [o.name for o in onnx.defs.get_schema("MaxPool", 22).outputs]
inputs = [i.name for i in onnx.defs.get_schema("Conv", 22).inputs]
one_to_one = {"MaxPool": len(outputs), "Conv": len(inputs)}
without = {"MaxPool": 1, "Conv": 2}
print("text   :", f"one to one: MaxPool has {one_to_one['MaxPool']} outputs, Conv {one_to_one['Conv']} inputs")
print("runtime:", f"onnx: MaxPool {outputs}, Conv {inputs}, the last of each optional")
print(
    "right  :", f"MaxPool without Indices has {without['MaxPool']} output, Conv without bias {without['Conv']} inputs"
)
print("verdict:", "ambiguous" if one_to_one != without else "right")
