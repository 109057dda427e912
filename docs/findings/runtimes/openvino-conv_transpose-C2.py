# Written by specgrad, which may overwrite or remove this file.
# conv_transpose(x(1, 1, 1), w(1, 1, 1), stride=(1,), padding=((1, 0),), dilation=(2,), groups=1, output_padding=(1,))
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is 1.0, must be 0.0 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# ConvTranspose, opset 22, one node
MODEL = bytes.fromhex(
    "080a3acd010a83010a01780a0177120179220d436f6e765472616e73706f73652a100a0964696c6174696f6e734002a00107"
    "2a0c0a0567726f75701801a001022a130a0c6b65726e656c5f73686170654001a001072a150a0e6f75747075745f70616464"
    "696e674001a001072a0d0a047061647340014000a001072a0e0a07737472696465734001a0010712087175657374696f6e5a"
    "170a017812120a100801120c0a0208010a0208010a0208015a170a017712120a100801120c0a0208010a0208010a02080162"
    "090a017912040a02080142040a001016"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([1], np.float32).reshape(1, 1, 1)
w = np.array([1], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
