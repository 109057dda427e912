"""Small ONNX networks of a seed, what ONNX Runtime computes for all their values, and mistakes in one layer."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.stored: list[onnx.TensorProto] = []

    def array(self, name: str, value) -> str:
        self.stored.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def node(self, kind: str, name: str, inputs: list[str], **attributes) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def conv(self, name: str, x: str, cin: int, cout: int, kernel: int = 3, group: int = 1, **attributes) -> str:
        scale = (cin // group * kernel**2) ** -0.5
        w = self.array(f"{name}_w", self.rng.normal(size=(cout, cin // group, kernel, kernel)) * scale)
        b = self.array(f"{name}_b", self.rng.normal(size=cout) * 0.3)
        pads = [kernel // 2] * 4
        return self.node("Conv", name, [x, w, b], kernel_shape=[kernel] * 2, pads=pads, group=group, **attributes)

    def norm(self, name: str, x: str, c: int) -> str:
        r = self.rng
        values = (r.normal(size=c), r.normal(size=c), r.normal(size=c), r.uniform(0.2, 1, c))
        rest = [self.array(f"{name}_{k}", v) for k, v in zip(("scale", "bias", "mean", "var"), values, strict=True)]
        return self.node("BatchNormalization", name, [x, *rest], epsilon=1e-5)


def network(seed: int) -> onnx.ModelProto:
    """Convolutions with batch-norms, activations, pools and residuals by chance, and a linear head."""
    b = Builder(seed)
    c, size, x = 3, 12, "x"
    for k in range(int(b.rng.integers(3, 6))):
        wide = int(b.rng.choice([4, 6, 8]))
        y = b.conv(f"conv{k}", x, c, wide, int(b.rng.choice([1, 3])) if k else 3)
        c = wide
        if b.rng.random() < 0.7 or k == 0:
            y = b.norm(f"norm{k}", y, c)
        y = b.node(str(b.rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu"])), f"act{k}", [y])
        if b.rng.random() < 0.5:
            y = b.node("Add", f"add{k}", [y, b.conv(f"deep{k}", y, c, c, group=c)])
        if b.rng.random() < 0.4 and size > 4:
            pool = str(b.rng.choice(["MaxPool", "AveragePool"]))
            y, size = b.node(pool, f"pool{k}", [y], kernel_shape=[2, 2], strides=[2, 2]), size // 2
        x = y
    x = b.node("GlobalAveragePool", "mean", [x])
    x = b.node("Flatten", "flat", [x])
    w, bias = b.array("fc_w", b.rng.normal(size=(5, c))), b.array("fc_b", b.rng.normal(size=5))
    x = b.node("Gemm", "fc", [x, w, bias], transB=1)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 12, 12]), (x, None))]
    graph = helper.make_graph(b.nodes, f"net{seed}", [info[0]], [info[1]], b.stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def example(seed: int) -> np.ndarray:
    return np.random.default_rng([seed, 1]).normal(size=(2, 3, 12, 12)).astype(np.float32)


def every_value(model: onnx.ModelProto, x: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes for these values, node by node."""
    import onnxruntime

    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {"x": x, **dict(zip(names, session.run(None, {"x": x}), strict=True))}


def recorded(model: onnx.ModelProto, x: np.ndarray, run: onnx.ModelProto | None = None) -> dict[str, np.ndarray]:
    """The values of `model` as `run`, a version of it with a mistake, computes them."""
    return every_value(model if run is None else run, x, [o for n in model.graph.node for o in n.output])


# --- mistakes in one layer ---


def as_bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounded to nearest even in 8 significant bits."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _stored(model: onnx.ModelProto, name: str) -> onnx.TensorProto:
    return next(t for t in model.graph.initializer if t.name == name)


def _change(model: onnx.ModelProto, name: str, change) -> None:
    tensor = _stored(model, name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor)), name))


def bfloat16_layer(model: onnx.ModelProto, layer: str) -> onnx.ModelProto:
    """A convolution whose operands are rounded to bfloat16."""
    copy = _copy(model)
    node = next(n for n in copy.graph.node if n.name == layer)
    _change(copy, node.input[1], as_bfloat16)
    at = list(copy.graph.node).index(node)
    short = [
        helper.make_node("Cast", [node.input[0]], ["short"], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", ["short"], ["again"], to=TensorProto.FLOAT),
    ]
    node.input[0] = "again"
    nodes = list(copy.graph.node)
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes[:at], *short, *nodes[at:]])
    return copy


def short_bias(model: onnx.ModelProto, layer: str) -> onnx.ModelProto:
    """A bias without its last twelve bits."""
    copy = _copy(model)
    node = next(n for n in copy.graph.node if n.name == layer)
    _change(copy, node.input[2], lambda b: (b.view(np.uint32) & np.uint32(0xFFFFF000)).view(np.float32))
    return copy


def wrong_eps(model: onnx.ModelProto, layer: str) -> onnx.ModelProto:
    """A batch-norm with another epsilon."""
    copy = _copy(model)
    node = next(n for n in copy.graph.node if n.name == layer)
    next(a for a in node.attribute if a.name == "epsilon").f = 1e-3
    return copy


MISTAKES = {"bfloat16 layer": (bfloat16_layer, "Conv"), "short bias": (short_bias, "Conv")}
MISTAKES |= {"wrong eps": (wrong_eps, "BatchNormalization")}
