# Written by specgrad, which may overwrite or remove this file.
# max_pool_indices(x(1, 1, 1), kernel=(1,), stride=(1,), padding=0)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is -3.4028234663852886e+38, must be -inf within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a8d010a4c0a01781201791207696e646963657322074d6178506f6f6c2a130a0c6b65726e656c5f73686170654001a0"
    "01072a0d0a047061647340004000a001072a0e0a07737472696465734001a0010712087175657374696f6e5a170a01781212"
    "0a100801120c0a0208010a0208010a02080162090a017912040a020801620f0a07696e646963657312040a02080742040a00"
    "1016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    y = [np.array(v) for v in compiled({"x": x}).to_tuple()]
    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2] + (1,) * (x.ndim - 2)) * x[0, 0].size
    y[1] = y[1] - first  # ONNX counts over batch and channels too
    return y

x = np.array([-inf], np.float32).reshape(1, 1, 1)
must_be = np.array([-inf], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
