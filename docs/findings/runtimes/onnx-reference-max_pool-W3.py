# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 2), kernel=(2,), stride=(1,), padding=((1, 0),), ceil=True)
# onnx 1.23.2: differs: y[0, 0, 0] is 2.0, must be 1.0 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a85010a550a017812017922074d6178506f6f6c2a100a096365696c5f6d6f64651801a001022a130a0c6b65726e656c"
    "5f73686170654002a001072a0d0a047061647340014000a001072a0e0a07737472696465734001a001071208717565737469"
    "6f6e5a170a017812120a100801120c0a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([1, 2], np.float32).reshape(1, 1, 2)
must_be = np.array([1, 2], float).reshape(1, 1, 2)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
