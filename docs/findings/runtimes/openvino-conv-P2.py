# Written by specgrad, which may overwrite or remove this file.
# conv(x(1, 1, 1, 2), w(1, 1, 1, 1), stride=(1, 1), padding=((0, 1), (0, 0)), dilation=(1, 1), groups=1)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0, 0] is nan, must be -inf within 0.000596
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Conv, opset 22, one node
MODEL = bytes.fromhex(
    "080a3abe010a6d0a01780a01771201792204436f6e762a120a0964696c6174696f6e7340014001a001072a0c0a0567726f75"
    "701801a001022a150a0c6b65726e656c5f736861706540014001a001072a110a04706164734000400040014000a001072a10"
    "0a077374726964657340014001a0010712087175657374696f6e5a1b0a017812160a14080112100a0208010a0208010a0208"
    "010a0208025a1b0a017712160a14080112100a0208010a0208010a0208010a02080162090a017912040a02080142040a0010"
    "16"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([-inf, -inf], np.float32).reshape(1, 1, 1, 2)
w = np.array([1], np.float32).reshape(1, 1, 1, 1)
must_be = np.array([-inf, -inf, 0, 0], float).reshape(1, 1, 2, 2)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
