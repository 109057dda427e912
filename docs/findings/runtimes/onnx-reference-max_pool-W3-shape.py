# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 1), kernel=(2,), stride=(2,), padding='valid', ceil=True)
# onnx 1.23.2: differs: y has shape (1, 1, 0), must have (1, 1, 1)
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a8c010a5c0a017812017922074d6178506f6f6c2a140a086175746f5f706164220556414c4944a001032a100a096365"
    "696c5f6d6f64651801a001022a130a0c6b65726e656c5f73686170654002a001072a0e0a07737472696465734002a0010712"
    "087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a02080162090a017912040a02080142040a0010"
    "16"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([0], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
