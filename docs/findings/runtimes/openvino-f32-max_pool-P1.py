# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 1), kernel=(1,), stride=(1,), padding=((0, 0),))
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is -3.4028234663852886e+38, must be nan within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a730a430a017812017922074d6178506f6f6c2a130a0c6b65726e656c5f73686170654001a001072a0d0a0470616473"
    "40004000a001072a0e0a07737472696465734001a0010712087175657374696f6e5a170a017812120a100801120c0a020801"
    "0a0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([nan], np.float32).reshape(1, 1, 1)
must_be = np.array([nan], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
