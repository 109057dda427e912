# Written by specgrad, which may overwrite or remove this file.
# log_softmax(x(1, 1, 1, 2), axis=-1)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0, 1] is -inf, must be nan within 6.51e-07
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# LogSoftmax, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a5c0a280a0178120179220a4c6f67536f66746d61782a140a046178697318ffffffffffffffffff01a0010212087175"
    "657374696f6e5a1b0a017812160a14080112100a0208010a0208010a0208010a02080262090a017912040a02080142040a00"
    "1016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([nan, 0], np.float32).reshape(1, 1, 1, 2)
must_be = np.array([nan, nan], float).reshape(1, 1, 1, 2)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
