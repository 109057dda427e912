# Written by specgrad, which may overwrite or remove this file.
# softmax(x(1, 1, 1, 2), axis=-1)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0, 0] is 0.0, must be nan within 5.36e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Softmax, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a590a250a01781201792207536f66746d61782a140a046178697318ffffffffffffffffff01a0010212087175657374"
    "696f6e5a1b0a017812160a14080112100a0208010a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([0, nan], np.float32).reshape(1, 1, 1, 2)
must_be = np.array([nan, nan], float).reshape(1, 1, 1, 2)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
