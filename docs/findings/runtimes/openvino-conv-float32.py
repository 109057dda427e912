# Written by specgrad, which may overwrite or remove this file.
# conv(x(1, 1, 1), w(1, 1, 1), stride=(1,), padding=((0, 0),), dilation=(1,), groups=1)
# openvino 2026.4.1, onnx 1.23.2: other arithmetic: explained by bfloat16 operands (data rounded, weights rounded), not by float32
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Conv, opset 22, one node
MODEL = bytes.fromhex(
    "080a3aac010a630a01780a01771201792204436f6e762a100a0964696c6174696f6e734001a001072a0c0a0567726f757018"
    "01a001022a130a0c6b65726e656c5f73686170654001a001072a0d0a047061647340004000a001072a0e0a07737472696465"
    "734001a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a0208015a170a017712120a10"
    "0801120c0a0208010a0208010a02080162090a017912040a02080142040a001016"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([1], np.float32).reshape(1, 1, 1)
w = np.array([1.2222143411636353], np.float32).reshape(1, 1, 1)
must_be = np.array([1.2222143411636353], float).reshape(1, 1, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
