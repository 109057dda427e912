# Written by specgrad, which may overwrite or remove this file.
# exp(x(1, 1, 1))
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is inf, must be nan within 4.47e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Exp, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a3b0a0b0a0178120179220345787012087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a02"
    "080162090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([nan], np.float32).reshape(1, 1, 1)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
