# Written by specgrad, which may overwrite or remove this file.
# softplus(x(1, 1, 1, 1))
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0, 0] is -1.9073486328125e-06, must be 2.544631172440535e-13 within 4.47e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Softplus, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a440a100a01781201792208536f6674706c757312087175657374696f6e5a1b0a017812160a14080112100a0208010a"
    "0208010a0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([-29], np.float32).reshape(1, 1, 1, 1)
must_be = np.array([2.544631172440859e-13], float).reshape(1, 1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
