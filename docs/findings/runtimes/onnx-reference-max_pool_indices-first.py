# Written by specgrad, which may overwrite or remove this file.
# max_pool_indices(x(2, 1, 1), kernel=(1,), stride=(1,), padding=0)
# onnx 1.23.2: differs: indices[1, 0, 0] is -1.0, must be 0.0 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a8d010a4c0a01781201791207696e646963657322074d6178506f6f6c2a130a0c6b65726e656c5f73686170654001a0"
    "01072a0d0a047061647340004000a001072a0e0a07737472696465734001a0010712087175657374696f6e5a170a01781212"
    "0a100801120c0a0208020a0208010a02080162090a017912040a020801620f0a07696e646963657312040a02080742040a00"
    "1016"
)

def run(x):
    y = ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})
    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2] + (1,) * (x.ndim - 2)) * x[0, 0].size
    y[1] = y[1] - first  # ONNX counts over batch and channels too
    return y

x = np.array([0, 0], np.float32).reshape(2, 1, 1)
must_be = np.array([0, 0], float).reshape(2, 1, 1)
got = run(x)[1]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
