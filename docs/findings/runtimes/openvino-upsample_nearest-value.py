# Written by specgrad, which may overwrite or remove this file.
# upsample_nearest(x(1, 1, 1, 1), factor=(3, 3))
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0, 0] is 0.88671875, must be 0.8860041499137878 within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Resize, opset 22, one node
MODEL = bytes.fromhex(
    "080a3acb010a770a01780a000a067363616c65731201792206526573697a652a2f0a1e636f6f7264696e6174655f7472616e"
    "73666f726d6174696f6e5f6d6f6465220a6173796d6d6574726963a001032a120a046d6f646522076e656172657374a00103"
    "2a180a0c6e6561726573745f6d6f64652205666c6f6f72a0010312087175657374696f6e2a1e0804100142067363616c6573"
    "4a100000803f0000803f00004040000040405a1b0a017812160a14080112100a0208010a0208010a0208010a02080162090a"
    "017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([0.8860041499137878], np.float32).reshape(1, 1, 1, 1)
must_be = np.array([0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878, 0.8860041499137878], float).reshape(1, 1, 3, 3)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
