# Written by specgrad, which may overwrite or remove this file.
# log_softmax(x(1, 1, 2), axis=-1)
# onnx 1.23.2: differs: y[0, 0, 0] is -inf, must be -1072875.0 within 0.128
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# LogSoftmax, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a580a280a0178120179220a4c6f67536f66746d61782a140a046178697318ffffffffffffffffff01a0010212087175"
    "657374696f6e5a170a017812120a100801120c0a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([-1072875, 0], np.float32).reshape(1, 1, 2)
must_be = np.array([-1072875, 0], float).reshape(1, 1, 2)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
