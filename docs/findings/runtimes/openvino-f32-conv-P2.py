# Written by specgrad, which may overwrite or remove this file.
# conv(x(1, 1, 2, 2, 1), w(3, 1, 2, 2, 2), stride=(1, 1, 2), padding=((0, 0), (1, 1), (0, 1)), dilation=(1, 1, 1), groups=1)
# openvino 2026.4.1, onnx 1.23.2: differs: y[0, 1, 0, 1, 0] is inf, must be nan within 0.00954
import numpy as np
from numpy import inf, nan  # noqa: F401
import openvino

# Conv, opset 22, one node
MODEL = bytes.fromhex(
    "080a3ad0010a770a01780a01771201792204436f6e762a140a0964696c6174696f6e73400140014001a001072a0c0a056772"
    "6f75701801a001022a170a0c6b65726e656c5f7368617065400240024002a001072a150a0470616473400040014000400040"
    "014001a001072a120a0773747269646573400140014002a0010712087175657374696f6e5a1f0a0178121a0a18080112140a"
    "0208010a0208010a0208020a0208020a0208015a1f0a0177121a0a18080112140a0208030a0208010a0208020a0208020a02"
    "080262090a017912040a02080142040a001016"
)

def run(x, w):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(MODEL), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [np.array(v) for v in compiled({"x": x, "w": w}).to_tuple()]

x = np.array([-inf, 0, 0, -inf], np.float32).reshape(1, 1, 2, 2, 1)
w = np.array([0, 0, 1, 0, 0, 0, 1, 0, 2, 1, -1, -1, -1, 1, 0, 0, 1, 2, -1, 0, -1, 0, -1, 0], np.float32).reshape(3, 1, 2, 2, 2)
must_be = np.array([-inf, nan, nan, inf, nan, inf, inf, nan, inf], float).reshape(1, 3, 1, 3, 1)
got = run(x, w)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
