"""Half models and a NumPy runtime for them, in an arithmetic of choice; nothing here is ours."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from specgrad.check.runtimes import Runtime

PROGRAM = '''
import ml_dtypes, numpy as np, onnx
from onnx import numpy_helper

def conv(x, w, b, arithmetic):
    """3x3, padding 1; terms are added one by one in the type of sums."""
    operands, sums, store = arithmetic
    x, w, b = (a.astype(operands).astype(sums) for a in (x, w, b))
    n, c, h, v = x.shape
    padded = np.zeros((c, h + 2, v + 2), sums)
    padded[:, 1:-1, 1:-1] = x[0]
    total = np.zeros((len(w), h, v), sums)
    for i in range(c):
        for p in range(3):
            for q in range(3):
                total = (total + w[:, i, p, q, None, None] * padded[i, p : p + h, q : q + v]).astype(sums)
    total = total if LOST == "bias" else (total + b[:, None, None]).astype(sums)
    return total[None].astype(store)

def run(model, /, **inputs):
    graph = onnx.load_from_string(model.tobytes()).graph
    v = {t.name: numpy_helper.to_array(t) for t in graph.initializer} | inputs
    types = {1: np.float32, 10: np.float16}
    for node in graph.node:
        a = [v[i] for i in node.input]
        if node.op_type == "Cast":
            y = a[0].astype(types[node.attribute[0].i])
        elif node.op_type == "Relu":
            y = np.maximum(a[0], a[0].dtype.type(0))
        else:
            y = conv(*a, ARITHMETIC.get(node.name, (a[0].dtype, np.float32, a[0].dtype))).astype(a[0].dtype)
        v[node.output[0]] = y
    return [v[o.name] for o in graph.output]
'''

BFLOAT16 = "(ml_dtypes.bfloat16, np.float32, np.float32)"
HALF_SUMS = "(np.float16, np.float16, np.float16)"
HALF_RESULT = "(np.float32, np.float32, np.float16)"


def numpy_runtime(arithmetic: dict[str, str] | None = None, lost: str = "") -> Runtime:
    """arithmetic: layer -> (operands, sums, results); else float32 sums, results in the type of the layer."""
    table = ", ".join(f"{name!r}: {types}" for name, types in (arithmetic or {}).items())
    head = "import ml_dtypes, numpy as np\n"
    return Runtime("numpy", ("numpy",), lambda q: "", f"{head}ARITHMETIC = {{{table}}}\nLOST = {lost!r}\n{PROGRAM}")


def model(*types: int) -> Any:
    """One convolution and a relu per type, with casts between them."""
    rng = np.random.default_rng(0)
    stored, nodes, last, now, channels = {}, [], "x", types[0], 3
    for k, kind in enumerate(types):
        if kind != now:
            nodes.append(helper.make_node("Cast", [last], [f"cast{k}"], name=f"cast{k}", to=kind))
            last, now = f"cast{k}", kind
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        stored[f"w{k}"] = (rng.normal(size=(8, channels, 3, 3)) / np.sqrt(9 * channels)).astype(dtype)
        stored[f"b{k}"] = rng.normal(size=8).astype(dtype)
        names = [last, f"w{k}", f"b{k}"]
        nodes.append(helper.make_node("Conv", names, [f"c{k}"], name=f"conv{k}", kernel_shape=[3, 3], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"], name=f"relu{k}"))
        last, channels = f"r{k}", 8
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", types[0], [1, 3, 10, 10])],
        [helper.make_tensor_value_info(last, types[-1], None)],
        [numpy_helper.from_array(a, n) for n, a in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT
DATA = np.random.default_rng(1).normal(size=(1, 3, 10, 10)).astype(np.float32)
