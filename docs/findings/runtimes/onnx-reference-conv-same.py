# Written by specgrad, which may overwrite or remove this file.
# conv(x(1, 1, 1), w(1, 1, 2), stride=(1,), padding='same_lower', dilation=(2,), groups=1)
# onnx 1.23.2: differs: y[0, 0, 0] is nan, must be 0.0 within 4.2e-45
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# Conv, opset 22, one node
MODEL = bytes.fromhex(
    "080a3ab8010a6f0a01780a01771201792204436f6e762a190a086175746f5f706164220a53414d455f4c4f574552a001032a"
    "100a0964696c6174696f6e734002a001072a0c0a0567726f75701801a001022a130a0c6b65726e656c5f73686170654002a0"
    "01072a0e0a07737472696465734001a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a"
    "0208015a170a017712120a100801120c0a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x, w):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x, "w": w})

x = np.array([-inf], np.float32).reshape(1, 1, 1)
w = np.array([0, 0], np.float32).reshape(1, 1, 2)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
