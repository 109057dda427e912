# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 1), kernel=(1,), stride=(2,), padding='same_lower')
# onnx 1.23.2: differs: y has shape (1, 1, 0), must have (1, 1, 1)
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a7f0a4f0a017812017922074d6178506f6f6c2a190a086175746f5f706164220a53414d455f4c4f574552a001032a13"
    "0a0c6b65726e656c5f73686170654001a001072a0e0a07737472696465734002a0010712087175657374696f6e5a170a0178"
    "12120a100801120c0a0208010a0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([0], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
