# Written by specgrad, which may overwrite or remove this file.
# global_max_pool(x(1, 1, 2), rank=1)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is 0.0, must be nan within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# GlobalMaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a450a150a0178120179220d476c6f62616c4d6178506f6f6c12087175657374696f6e5a170a017812120a100801120c"
    "0a0208010a0208010a02080262090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([nan, 0], np.float32).reshape(1, 1, 2)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
