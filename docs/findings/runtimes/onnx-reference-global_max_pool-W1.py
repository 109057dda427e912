# Written by specgrad, which may overwrite or remove this file.
# global_max_pool(x(1, 1, 1), rank=1)
# onnx 1.23.2: differs: y has shape (1, 1), must have (1, 1, 1)
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# GlobalMaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a450a150a0178120179220d476c6f62616c4d6178506f6f6c12087175657374696f6e5a170a017812120a100801120c"
    "0a0208010a0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([nan], np.float32).reshape(1, 1, 1)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
