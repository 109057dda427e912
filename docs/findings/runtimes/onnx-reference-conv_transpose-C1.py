# Written by specgrad, which may overwrite or remove this file.
# conv_transpose(x(1, 3, 1), w(3, 1, 1), b(3,), stride=(1,), padding=((0, 0),), dilation=(1,), groups=3, output_padding=(0,))
# onnx 1.23.2: differs: y[0, 2, 0] is 1.0, must be 3.0 within 3.58e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# ConvTranspose, opset 22, one node
MODEL = bytes.fromhex(
    "080a3ae1010a86010a01780a01770a0162120179220d436f6e765472616e73706f73652a100a0964696c6174696f6e734001"
    "a001072a0c0a0567726f75701803a001022a130a0c6b65726e656c5f73686170654001a001072a150a0e6f75747075745f70"
    "616464696e674000a001072a0d0a047061647340004000a001072a0e0a07737472696465734001a001071208717565737469"
    "6f6e5a170a017812120a100801120c0a0208010a0208030a0208015a170a017712120a100801120c0a0208030a0208010a02"
    "08015a0f0a0162120a0a08080112040a02080362090a017912040a02080142040a001016"
)

def run(x, w, b):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x, "w": w, "b": b})

x = np.array([0, nan, 0], np.float32).reshape(1, 3, 1)
w = np.array([0, 0, 0], np.float32).reshape(3, 1, 1)
b = np.array([1, 2, 3], np.float32)
must_be = np.array([1, nan, 3], float).reshape(1, 3, 1)
got = run(x, w, b)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
