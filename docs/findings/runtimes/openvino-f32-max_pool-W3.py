# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 1), kernel=(2,), stride=(2,), padding=((1, 1),), ceil=True)
# openvino 2026.4.1, onnx 1.23.2: differs: y has shape (1, 1, 2), must have (1, 1, 1)
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a85010a550a017812017922074d6178506f6f6c2a100a096365696c5f6d6f64651801a001022a130a0c6b65726e656c"
    "5f73686170654002a001072a0d0a047061647340014001a001072a0e0a07737472696465734002a001071208717565737469"
    "6f6e5a170a017812120a100801120c0a0208010a0208010a02080162090a017912040a02080142040a001016"
)

def run(x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled({"x": x}).to_tuple()]

x = np.array([0], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
