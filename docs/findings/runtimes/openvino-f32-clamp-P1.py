# Written by specgrad, which may overwrite or remove this file.
# clamp(x(1, 1, 1), low=-1.0, high=1.0)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 0, 0] is -1.0, must be nan within 0
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Clip, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a660a170a01780a036c6f770a04686967681201792204436c697012087175657374696f6e2a0d100142036c6f774a04"
    "000080bf2a0e10014204686967684a040000803f5a170a017812120a100801120c0a0208010a0208010a02080162090a0179"
    "12040a02080142040a001016"
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
