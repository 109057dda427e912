# Written by specgrad, which may overwrite or remove this file.
# max_pool_indices(x(1, 1, 1), kernel=(1,), stride=(2,), padding='same_lower')
# onnx 1.23.2: differs: y has shape (1, 1, 0), must have (1, 1, 1)
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a99010a580a01781201791207696e646963657322074d6178506f6f6c2a190a086175746f5f706164220a53414d455f"
    "4c4f574552a001032a130a0c6b65726e656c5f73686170654001a001072a0e0a07737472696465734002a001071208717565"
    "7374696f6e5a170a017812120a100801120c0a0208010a0208010a02080162090a017912040a020801620f0a07696e646963"
    "657312040a02080742040a001016"
)

def run(x):
    y = ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})
    first = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2] + (1,) * (x.ndim - 2)) * x[0, 0].size
    y[1] = y[1] - first  # ONNX counts over batch and channels too
    return y

x = np.array([0], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
