# Written by specgrad, which may overwrite or remove this file.
# lp_pool(x(1, 1, 2), kernel=(2,), stride=(1,), padding=0, p=2)
# onnx 1.23.2: differs: y[0, 0, 0] is 1.4142135381698608, must be nan within 4.47e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# LpPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a7c0a4c0a017812017922064c70506f6f6c2a130a0c6b65726e656c5f73686170654002a001072a080a01701802a001"
    "022a0d0a047061647340004000a001072a0e0a07737472696465734001a0010712087175657374696f6e5a170a017812120a"
    "100801120c0a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([1, nan], np.float32).reshape(1, 1, 2)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
