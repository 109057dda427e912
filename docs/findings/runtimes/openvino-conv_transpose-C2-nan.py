# Written by specgrad, which may overwrite or remove this file.
# conv_transpose(x(1, 2, 2), w(2, 1, 1), stride=(1,), padding=((1, 0),), dilation=(1,), groups=2, output_padding=(0,)), written with output_shape
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is nan, must be 0.0 within 5.88e-38
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# ConvTranspose, opset 22, one node
MODEL = bytes.fromhex(
    "080a3ad3010a89010a01780a0177120179220d436f6e765472616e73706f73652a100a0964696c6174696f6e734001a00107"
    "2a0c0a0567726f75701802a001022a130a0c6b65726e656c5f73686170654001a001072a150a0e6f75747075745f70616464"
    "696e674000a001072a130a0c6f75747075745f73686170654001a001072a0e0a07737472696465734001a001071208717565"
    "7374696f6e5a170a017812120a100801120c0a0208010a0208020a0208025a170a017712120a100801120c0a0208020a0208"
    "010a02080162090a017912040a02080142040a001016"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([-inf, 0, -inf, -inf], np.float32).reshape(1, 2, 2)
w = np.array([0, 0], np.float32).reshape(2, 1, 1)
must_be = np.array([0, nan], float).reshape(1, 2, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
