# Written by specgrad, which may overwrite or remove this file.
# max_pool(x(1, 1, 1), kernel=(3,), stride=(3,), padding='same_lower', dilation=(2,))
# onnxruntime 1.31.1, onnx 1.23.2: differs: y[0, 0, 0] is -3.4028234663852886e+38, must be 0.0 within 0
import os
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import numpy as np
from numpy import inf, nan  # noqa: F401
import onnxruntime

# MaxPool, opset 22, one node
MODEL = bytes.fromhex(
    "080a3a91010a610a017812017922074d6178506f6f6c2a190a086175746f5f706164220a53414d455f4c4f574552a001032a"
    "100a0964696c6174696f6e734002a001072a130a0c6b65726e656c5f73686170654003a001072a0e0a077374726964657340"
    "03a0010712087175657374696f6e5a170a017812120a100801120c0a0208010a0208010a02080162090a017912040a020801"
    "42040a001016"
)

def run(x):
    session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})

x = np.array([0], np.float32).reshape(1, 1, 1)
must_be = np.array([0], float).reshape(1, 1, 1)
got = run(x)[0]
print("must be", must_be.shape, must_be.ravel().tolist())
print("got    ", got.shape, got.ravel().tolist())
