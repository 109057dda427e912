# Written by specgrad, which may overwrite or remove this file.
# avg_pool(x(1, 1, 1), kernel=(3,), stride=(3,), padding=((0, 0),), ceil=True)
# onnx 1.23.2: differs: y[0, 0, 0] is 0.0, must be 1.0 within 2.38e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# AveragePool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3aa3010a730a0178120179220b41766572616765506f6f6c2a100a096365696c5f6d6f64651801a001022a180a11636f"
    "756e745f696e636c7564655f7061641801a001022a130a0c6b65726e656c5f73686170654003a001072a0d0a047061647340"
    "004000a001072a0e0a07737472696465734003a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a"
    "0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([1], np.float32).reshape(1, 1, 1)
must_be = np.array([1], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
