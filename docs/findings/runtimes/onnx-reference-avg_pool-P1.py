# Written by specgrad, which may overwrite or remove this file.
# avg_pool(x(1, 1, 2), kernel=(2,), stride=(1,), padding=((0, 0),), count_include_pad=False)
# onnx 1.23.2: differs: y[0, 0, 0] is 0.0, must be nan within 5.61e-45
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# AveragePool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a91010a610a0178120179220b41766572616765506f6f6c2a180a11636f756e745f696e636c7564655f7061641800a0"
    "01022a130a0c6b65726e656c5f73686170654002a001072a0d0a047061647340004000a001072a0e0a077374726964657340"
    "01a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a02080262090a017912040a020801"
    "42040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([nan, 0], np.float32).reshape(1, 1, 2)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
