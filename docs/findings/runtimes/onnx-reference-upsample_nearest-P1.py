# Written by specgrad, which may overwrite or remove this file.
# upsample_nearest(x(1, 1, 2), factor=(2,))
# onnx 1.23.2: differs: y[0, 0, 1] is nan, must be 0.0 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnx
from onnx.reference import ReferenceEvaluator

# Resize, opset 22, one node
MODEL = bytes.fromhex(
    "080a3ac3010a770a01780a000a067363616c65731201792206526573697a652a2f0a1e636f6f7264696e6174655f7472616e"
    "73666f726d6174696f6e5f6d6f6465220a6173796d6d6574726963a001032a120a046d6f646522076e656172657374a00103"
    "2a180a0c6e6561726573745f6d6f64652205666c6f6f72a0010312087175657374696f6e2a1a0803100142067363616c6573"
    "4a0c0000803f0000803f000000405a170a017812120a100801120c0a0208010a0208010a02080262090a017912040a020801"
    "42040a001016"
)

def run(x):
    return ReferenceEvaluator(onnx.load_from_string(MODEL)).run(None, {"x": x})

x = np.array([0, nan], np.float32).reshape(1, 1, 2)
must_be = np.array([0, 0, nan, nan], float).reshape(1, 1, 4)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
