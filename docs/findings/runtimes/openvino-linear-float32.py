# Written by specgrad, which may overwrite or remove this file.
# linear(x(1, 1), w(1, 1))
# openvino 2026.4.1, onnx 1.23.2: other arithmetic: explained by bfloat16 operands (data rounded, weights rounded), not by float32
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Gemm, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a5f0a1e0a01780a0177120179220447656d6d2a0d0a067472616e73421801a0010212087175657374696f6e5a130a01"
    "78120e0a0c080112080a0208010a0208015a130a0177120e0a0c080112080a0208010a02080162090a017912040a02080142"
    "040a001016"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU")
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([1], np.float32).reshape(1, 1)
w = np.array([-0.15210847556591034], np.float32).reshape(1, 1)
must_be = np.array([-0.15210847556591034], float).reshape(1, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
