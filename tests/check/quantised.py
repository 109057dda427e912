"""Quantised models and a NumPy runtime for them, correct or with a planted mistake; nothing here is ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader

from specgrad.check.runtimes import Runtime

PROGRAM = '''
import numpy as np, onnx
from onnx import numpy_helper

def pairs(columns, rows):
    """vpmaddubsw: neighbouring products are added in 16 bits."""
    total = 0
    for k in range(0, len(columns), 2):
        part = rows[:, k : k + 2] @ columns[k : k + 2]
        total = total + np.clip(part, -(2**15), 2**15 - 1)
    return total

def whole(q, w, q_zero):
    """The same without mistakes."""
    global MISTAKE
    kept, MISTAKE = MISTAKE, ""
    total = conv(q, w, q_zero, 0)
    MISTAKE = kept
    return total

def conv(q, w, q_zero, w_zero):
    """3x3, padding 1; columns in the order channel, row, column."""
    n, c, h, v = q.shape
    padded = np.full((n, c, h + 2, v + 2), int(q_zero), np.int64)
    padded[:, :, 1:-1, 1:-1] = q
    columns = np.stack([padded[0, i, a : a + h, b : b + v] for i in range(c) for a in range(3) for b in range(3)])
    columns, rows = columns.reshape(len(columns), -1), w.astype(np.int64).reshape(len(w), -1)
    raw = pairs(columns, rows) if MISTAKE == "saturating pairs" else rows @ columns
    zero = 0 if MISTAKE == "lost zero point" else int(q_zero)
    return (raw - zero * rows.sum(1, keepdims=True)).reshape(1, len(w), h, v)

def store(y, scale, zero):
    v = (y / scale).astype(np.float32)
    if MISTAKE == "half away from zero":
        whole = np.sign(v) * np.floor(np.abs(v) + np.float32(0.5))
    else:
        whole = np.rint(v)
    low, high = np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max
    if MISTAKE == "wrong bound":
        high -= 1
    return np.clip(whole + zero.astype(np.int64), low, high).astype(zero.dtype)

def run(model, /, **inputs):
    graph = onnx.load_from_string(model.tobytes()).graph
    v = {t.name: numpy_helper.to_array(t) for t in graph.initializer} | inputs
    for node in graph.node:
        a = [v[i] for i in node.input]
        if node.op_type == "QuantizeLinear":
            y = store(a[0], a[1], a[2])
        elif node.op_type == "QLinearConv":
            ws = np.roll(a[4], 1) if MISTAKE == "shifted scales" else a[4]
            total = conv(a[0], a[3], a[2], a[5]) + a[8].reshape(-1, 1, 1).astype(np.int64)
            y = store(total.astype(np.float32) * (a[1] * ws).reshape(-1, 1, 1), a[6], a[7])
        elif node.op_type == "Conv":  # in floats where its result is asked for, else merged into an integer kernel
            made = {n.output[0]: n for n in graph.node}
            (q, xs, xz), (w, ws, wz) = ([v[i] for i in made[i].input] for i in node.input)
            merged = not {o.name for o in graph.output} & {*node.input, *node.output}
            total = conv(q, w, xz, wz) if merged else whole(q, w, xz)
            y = (total * (np.float64(xs) * ws.reshape(-1, 1, 1))).astype(np.float32)
        elif node.op_type == "ConvInteger":
            y = conv(a[0], a[1], a[2], 0).astype(np.int32) + (MISTAKE == "one more")
        else:
            scale = a[1].reshape(-1, 1, 1, 1) if a[1].ndim else a[1]
            y = (a[0].astype(np.float32) - a[2].astype(np.float32).reshape(np.shape(scale))) * scale
        v[node.output[0]] = y
    return [v[o.name] for o in graph.output]
'''


def numpy_runtime(mistake: str = "") -> Runtime:
    return Runtime("numpy", ("numpy",), lambda q: "", f"MISTAKE = {mistake!r}\n{PROGRAM}")


def model(
    seed: int,
    *,
    exact_scales: bool = False,
    integer: bool = False,
    qdq: bool = False,
    channels: tuple[int, int] = (4, 8),
) -> Any:
    """QuantizeLinear, QLinearConv (or ConvInteger), DequantizeLinear: 3x3, padding 1, scales per channel.

    qdq    DequantizeLinear, Conv, QuantizeLinear in place of QLinearConv
    """
    rng = np.random.default_rng(seed)
    cin, cout = channels
    ws = 2.0 ** rng.integers(-9, -6, cout) if exact_scales else rng.uniform(0.002, 0.02, cout)
    stored = {
        "xs": np.float32(0.03125 if exact_scales else 0.0237),
        "xz": np.uint8(120),
        "w": rng.integers(-128, 128, (cout, cin, 3, 3)).astype(np.int8),
        "ws": ws.astype(np.float32),
        "wz": np.zeros(cout, np.int8),
        "ys": np.float32(0.25 if exact_scales else 0.31),
        "yz": np.uint8(130),
        "b": rng.integers(-3000, 3000, cout).astype(np.int32),
    }
    shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="first")]
    if integer:
        nodes += [helper.make_node("ConvInteger", ["q", "w", "xz"], ["y"], name="conv", **shape)]
    elif qdq:
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["xd"], name="x back"),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="w back", axis=0),
            helper.make_node("Conv", ["xd", "wd"], ["c"], name="conv", **shape),
            helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["p"], name="second"),
            helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"], name="last"),
        ]
    else:
        reads = ["q", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
        nodes += [helper.make_node("QLinearConv", reads, ["p"], name="conv", **shape)]
        nodes += [helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"], name="last")]
    kind = TensorProto.INT32 if integer else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, cin, 12, 12])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data(seed: int, cin: int = 4, *, ties: bool = False) -> np.ndarray:
    """Numbers, or multiples of half a step of the first scale: every one of them a tie or a whole number."""
    rng = np.random.default_rng(seed)
    if ties:
        return (rng.integers(-200, 200, (1, cin, 12, 12)) * np.float32(0.03125 / 2)).astype(np.float32)
    return (rng.normal(size=(1, cin, 12, 12)) * 1.5).astype(np.float32)


# --- for ONNX Runtime's quantisation ------------------------------------------------------------------------------


def float_model() -> Any:
    """conv-relu-max_pool-conv-relu, a residual, a depthwise conv, an average, a matrix product."""
    rng = np.random.default_rng(0)
    stored: dict[str, np.ndarray] = {}

    def weight(name: str, *shape: int) -> str:
        stored[name] = (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        return name

    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", weight("w1", 8, 3, 3, 3), weight("b1", 8)], ["c1"], name="conv1", **same),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", weight("w2", 8, 8, 3, 3), weight("b2", 8)], ["c2"], name="conv2", **same),
        helper.make_node("Add", ["c2", "m"], ["s"], name="residual"),
        helper.make_node("Conv", ["s", weight("w3", 8, 1, 3, 3)], ["c3"], name="conv3", group=8, **same),
        helper.make_node("Relu", ["c3"], ["r3"], name="relu3"),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"], name="average"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", weight("w4", 5, 8), weight("b4", 5)], ["y"], name="fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


DATA = data(9, 3)


class Calibration(CalibrationDataReader):
    """Three batches."""

    def __init__(self) -> None:
        self.batches = iter([{"x": data(seed, 3)} for seed in range(3)])

    def get_next(self) -> Any:
        return next(self.batches, None)
