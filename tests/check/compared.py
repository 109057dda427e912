"""Pairs of ONNX files: one small network, and what optimisers, exporters and mistakes make of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

SHAPE = (1, 2, 6, 6)
RNG = np.random.default_rng(7)
WEIGHTS: dict[str, np.ndarray] = {
    "w1": RNG.normal(size=(4, 2, 3, 3)),
    "w2": RNG.normal(size=(4, 1, 3, 3)),
    "b2": RNG.normal(size=4),
    "fc": RNG.normal(size=(4, 4)),
    "fcb": RNG.normal(size=4),
}
for _k in ("1", "2"):
    WEIGHTS |= {f"{n}{_k}": RNG.normal(size=4) for n in ("gamma", "beta", "mean")}
    WEIGHTS[f"var{_k}"] = RNG.uniform(0.5, 2, size=4)
WEIGHTS = {name: a.astype(np.float32) for name, a in WEIGHTS.items()}

Node = tuple[str, list[str], str, dict[str, Any]]  # operator, inputs, output and name, attributes
NODES: list[Node] = [
    ("Conv", ["x", "w1"], "conv1", {"pads": [1, 1, 1, 1]}),
    ("BatchNormalization", ["conv1", "gamma1", "beta1", "mean1", "var1"], "bn1", {"epsilon": 1e-3}),
    ("Clip", ["bn1", "zero", "six"], "act1", {}),
    ("Conv", ["act1", "w2", "b2"], "conv2", {"pads": [1, 1, 1, 1], "group": 4, "strides": [2, 2]}),
    ("BatchNormalization", ["conv2", "gamma2", "beta2", "mean2", "var2"], "bn2", {"epsilon": 1e-3}),
    ("Relu", ["bn2"], "act2", {}),
    ("MaxPool", ["act2"], "pool", {"kernel_shape": [2, 2]}),
    ("GlobalAveragePool", ["pool"], "mean", {}),
    ("Flatten", ["mean"], "flat", {}),
    ("Gemm", ["flat", "fc", "fcb"], "y", {"transB": 1}),
]
LIMITS = {"zero": np.float32(0), "six": np.float32(6)}


def model(nodes: list[Node], weights: dict[str, np.ndarray], opset: int = 17) -> ModelProto:
    info = helper.make_tensor_value_info
    made = [helper.make_node(op, ins, [out], name=out, **attributes) for op, ins, out, attributes in nodes]
    used = {name for _, ins, _, _ in nodes for name in ins}
    given = [numpy_helper.from_array(np.asarray(a), name) for name, a in {**weights, **LIMITS}.items() if name in used]
    graph = helper.make_graph(made, "g", [info("x", 1, SHAPE)], [info("y", 1, None)], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def original() -> ModelProto:
    return model(NODES, WEIGHTS)


def edited(change: Callable[[dict[str, Node], dict[str, np.ndarray]], None]) -> ModelProto:
    """The network with nodes (by name, in order) and weights changed in place."""
    nodes, weights = copy.deepcopy({n[2]: n for n in NODES}), {k: v.copy() for k, v in WEIGHTS.items()}
    change(nodes, weights)
    return model(list(nodes.values()), weights)


def _replace(nodes: dict[str, Node], name: str, *new: Node) -> None:
    """New nodes in the place of one; the last gives its value."""
    items = list(nodes.items())
    nodes.clear()
    for key, node in items:
        nodes.update({n[2]: n for n in new} if key == name else {key: node})


# --- the same function ------------------------------------------------------------------------------------------------


def left_over(nodes: Any, w: Any) -> None:
    """Identity and Dropout, as exporters leave them."""
    _replace(nodes, "act1", ("Clip", ["bn1", "zero", "six"], "a", {}), ("Identity", ["a"], "act1", {}))
    _replace(nodes, "flat", ("Flatten", ["mean"], "f", {}), ("Dropout", ["f"], "flat", {}))


def matmul_and_add(nodes: Any, w: Any) -> None:
    w["fct"] = np.ascontiguousarray(w["fc"].T)
    _replace(nodes, "y", ("MatMul", ["flat", "fct"], "p", {}), ("Add", ["fcb", "p"], "y", {}))


def pad_apart(nodes: Any, w: Any) -> None:
    w["pads"] = np.int64([0, 0, 1, 1, 0, 0, 1, 1])
    _replace(nodes, "conv1", ("Pad", ["x", "pads"], "padded", {}), ("Conv", ["padded", "w1"], "conv1", {}))


def other_words(nodes: Any, w: Any) -> None:
    """min(max(x, 0), 6), a mean over axes, a reshape, a maximum before the relu."""
    _replace(nodes, "act1", ("Max", ["bn1", "zero"], "m", {}), ("Min", ["six", "m"], "act1", {}))
    _replace(nodes, "act2", ("MaxPool", ["bn2"], "act2", {"kernel_shape": [2, 2]}))
    _replace(nodes, "pool", ("Relu", ["act2"], "pool", {}))
    _replace(nodes, "mean", ("ReduceMean", ["pool"], "mean", {"axes": [2, 3], "keepdims": 0}))
    _replace(nodes, "flat", ("Identity", ["mean"], "flat", {}))


def unfused(nodes: Any, w: Any) -> None:
    """Batch normalisation in its own words, and the bias after the convolution."""
    w["eps"] = np.float32(1e-3)
    for name in ("gamma1", "beta1", "mean1", "var1"):
        w[f"{name}c"] = w[name].reshape(4, 1, 1)
    parts = [("Add", ["var1c", "eps"], "v", {}), ("Sqrt", ["v"], "s", {}), ("Div", ["gamma1c", "s"], "g", {})]
    parts += [("Mul", ["conv1", "g"], "scaled", {}), ("Mul", ["mean1c", "g"], "m0", {})]
    _replace(nodes, "bn1", *parts, ("Sub", ["beta1c", "m0"], "shift", {}), ("Add", ["scaled", "shift"], "bn1", {}))
    w["b2c"] = w["b2"].reshape(1, 4, 1, 1)
    _replace(nodes, "conv2", ("Conv", ["act1", "w2"], "c0", nodes["conv2"][3]), ("Add", ["c0", "b2c"], "conv2", {}))


# --- other functions --------------------------------------------------------------------------------------------------


def fused(nodes: Any, w: Any) -> None:
    """The first batch normalisation folded into the convolution, in float32, as optimisers do."""
    scale = w["gamma1"] / np.sqrt(w["var1"] + np.float32(1e-3))
    w["w1"] = w["w1"] * scale.reshape(-1, 1, 1, 1)
    w["b1"] = w["beta1"] - w["mean1"] * scale
    _replace(nodes, "bn1", ("Identity", ["conv1"], "bn1", {}))
    _replace(nodes, "conv1", ("Conv", ["x", "w1", "b1"], "conv1", {"pads": [1, 1, 1, 1]}))


def other_eps(nodes: Any, w: Any) -> None:
    nodes["bn2"][3]["epsilon"] = 1e-5


def quantised(nodes: Any, w: Any) -> None:
    """Weights on a grid of 8 bits."""
    for name in ("w1", "w2", "fc"):
        step = np.float32(abs(w[name]).max() / 127)
        w[name] = np.rint(w[name] / step).astype(np.float32) * step


def wrong_pad(nodes: Any, w: Any) -> None:
    nodes["conv2"][3]["pads"] = [0, 0, 2, 2]


def no_bias(nodes: Any, w: Any) -> None:
    del nodes["conv2"][1][2]


def swapped(nodes: Any, w: Any) -> None:
    """Relu before the batch normalisation."""
    _replace(nodes, "bn2", ("Relu", ["conv2"], "bn2", {}))
    _replace(nodes, "act2", ("BatchNormalization", ["bn2", *NODES[4][1][1:]], "act2", {"epsilon": 1e-3}))


def transposed(nodes: Any, w: Any) -> None:
    nodes["y"][3]["transB"] = 0


def one_ulp(nodes: Any, w: Any) -> None:
    w["w2"][3, 0, 1, 1] = np.nextafter(w["w2"][3, 0, 1, 1], np.float32(9))


def no_six(nodes: Any, w: Any) -> None:
    nodes["act1"][1].pop()


SAME = (left_over, matmul_and_add, pad_apart, other_words, unfused)
OTHER: dict[Callable[[Any, Any], None], tuple[str, bool]] = {
    fused: ("conv1", True),
    other_eps: ("bn2", True),
    quantised: ("conv1", True),
    wrong_pad: ("conv2", False),
    no_bias: ("conv2", True),
    swapped: ("bn2", False),
    transposed: ("y", True),
    one_ulp: ("conv2", True),
    no_six: ("act1", False),
}
"""The first layer that is not the other's, and whether the structure, up to weights, is the same."""


def optimised(proto: ModelProto, level: str, path: str) -> ModelProto:
    """What ONNX Runtime makes of a model at a level of optimisation, as it saves it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = path, 3
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(path)
