# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 6), kernel=(1,), stride=(2,), padding='same_lower', dilation=(1,))
# onnx 1.23.2: differs: y[0, 0, 1] is nan, must be 0.0 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a91010a610a017812017922074d6178506f6f6c2a190a086175746f5f706164220a53414d455f4c4f574552a001032a"
    "100a0964696c6174696f6e734001a001072a130a0c6b65726e656c5f73686170654001a001072a0e0a077374726964657340"
    "02a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a02080662090a017912040a020801"
    "42040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([0, 0, 0, nan, 0, 0], np.float32).reshape(1, 1, 6)
must_be = np.array([0, 0, 0], float).reshape(1, 1, 3)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
