"""Three networks as ONNX files, and mistakes that exporters and compilers make, each planted in a copy of the file.

What a mistake computes comes from a runtime that reads the copy; nothing of specgrad is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from planted import Builder, _change, _copy

SHAPES = {"image": (1, 3, 16, 16), "mixer": (1, 6, 16), "upsample": (1, 3, 8, 8)}


def _model(b: Builder, name: str, output: str) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", SHAPES[name]), (output, None))]
    graph = helper.make_graph(b.nodes, name, ends[:1], ends[1:], b.stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def image() -> onnx.ModelProto:
    """Convolutions, one of them dilated and one with a stride, batch-norm, both pools, a square linear layer."""
    b = Builder(0)
    y = b.node("Relu", "relu0", [b.norm("norm0", b.conv("conv0", "x", 3, 8), 8)])
    y = b.node("MaxPool", "max", [y], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=0)
    w, bias = b.array("wide_w", b.rng.normal(size=(8, 8, 3, 3)) * 0.12), b.array("wide_b", b.rng.normal(size=8) * 0.3)
    y = b.node("Conv", "wide", [y, w, bias], kernel_shape=[3, 3], pads=[2] * 4, dilations=[2, 2])
    y = b.node("Relu", "relu1", [y])
    y = b.node("AveragePool", "mean", [y], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=0)
    y = b.node("Relu", "relu2", [b.conv("conv1", y, 8, 8, strides=[2, 2])])
    y = b.node("Flatten", "flat", [b.node("GlobalAveragePool", "all", [y])])
    w, bias = b.array("fc0_w", b.rng.normal(size=(8, 8)) * 0.5), b.array("fc0_b", b.rng.normal(size=8) * 0.3)
    y = b.node("Relu", "relu3", [b.node("Gemm", "fc0", [y, w, bias], transB=1)])
    w, bias = b.array("fc1_w", b.rng.normal(size=(5, 8)) * 0.5), b.array("fc1_b", b.rng.normal(size=5) * 0.3)
    return _model(b, "image", b.node("Gemm", "fc1", [y, w, bias], transB=1))


def mixer() -> onnx.ModelProto:
    """Layer normalisation, a square product, an activation, a residual."""
    b = Builder(1)

    def norm(name: str, y: str) -> str:
        rest = [b.array(f"{name}_scale", b.rng.normal(size=16)), b.array(f"{name}_bias", b.rng.normal(size=16) * 0.3)]
        return b.node("LayerNormalization", name, [y, *rest], axis=-1, epsilon=1e-5)

    y = b.node("MatMul", "mix0", [norm("norm0", "x"), b.array("mix0_w", b.rng.normal(size=(16, 16)) / 4)])
    y = b.node("Add", "add", [b.node("LeakyRelu", "act", [y], alpha=0.01), "x"])
    y = b.node("MatMul", "mix1", [norm("norm1", y), b.array("mix1_w", b.rng.normal(size=(16, 4)) / 4)])
    return _model(b, "mixer", y)


def upsample() -> onnx.ModelProto:
    """A decoder: two convolutions around a resize, a map of numbers between 0 and 1."""
    b = Builder(2)
    y = b.node("Relu", "relu0", [b.conv("conv0", "x", 3, 8, strides=[2, 2])])
    scales = b.array("scales", [1, 1, 2, 2])
    y = b.node("Resize", "resize", [y, "", scales], mode="linear", coordinate_transformation_mode="half_pixel")
    y = b.node("Sigmoid", "sigmoid", [b.conv("conv1", y, 8, 2)])
    return _model(b, "upsample", y)


NETWORKS = {"image": image, "mixer": mixer, "upsample": upsample}


def points(name: str, count: int = 4) -> list[np.ndarray]:
    rng = np.random.default_rng(list(name.encode()))
    return [rng.normal(size=SHAPES[name]).astype(np.float32) for _ in range(count)]


# --- mistakes ---------------------------------------------------------------------------------------------------------


def _set(layer: str, **attributes) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Attributes of one node, others or new ones."""

    def change(model: onnx.ModelProto) -> onnx.ModelProto:
        copy = _copy(model)
        node = next(n for n in copy.graph.node if n.name == layer)
        kept = [a for a in node.attribute if a.name not in attributes]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in attributes.items())])
        return copy

    return change


def _array(name: str, change_of: Callable[[np.ndarray], np.ndarray]) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    def change(model: onnx.ModelProto) -> onnx.ModelProto:
        copy = _copy(model)
        _change(copy, name, lambda a: np.ascontiguousarray(change_of(a), np.float32))
        return copy

    return change


def _kind(layer: str, kind: str) -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Another operator in the place of one."""

    def change(model: onnx.ModelProto) -> onnx.ModelProto:
        copy = _copy(model)
        node = next(n for n in copy.graph.node if n.name == layer)
        node.op_type = kind
        del node.attribute[:]
        return copy

    return change


@dataclass(frozen=True)
class Fault:
    """What is wrong, in which network, and whether its effect can be seen at all."""

    text: str
    network: str
    change: Callable[[onnx.ModelProto], onnx.ModelProto]
    seen: bool = True


FAULTS = (
    Fault("conv: pads on one side", "image", _set("conv0", pads=[0, 0, 2, 2])),
    Fault("avg-pool: padding counted", "image", _set("mean", count_include_pad=1)),
    Fault("conv: bias dropped", "image", _array("wide_b", np.zeros_like)),
    Fault("batch-norm: eps 1e-3, not 1e-5", "image", _set("norm0", epsilon=1e-3)),
    Fault("conv: stride 1, not 2", "image", _set("conv1", strides=[1, 1])),
    Fault("conv: dilation 1, not 2", "image", _set("wide", dilations=[1, 1], pads=[1] * 4)),
    Fault("linear: weight transposed", "image", _set("fc0", transB=0)),
    Fault("max-pool: ceil_mode", "image", _set("max", ceil_mode=1)),
    Fault("relu left out", "image", _kind("relu0", "Identity")),
    Fault("weights as float16", "image", _array("conv1_w", lambda w: w.astype(np.float16)), seen=False),
    Fault("batch-norm: eps 1.01e-5, not 1e-5", "image", _set("norm0", epsilon=1.01e-5), seen=False),
    Fault("layer-norm: eps 1e-3, not 1e-5", "mixer", _set("norm0", epsilon=1e-3)),
    Fault("layer-norm: eps 1e-6, not 1e-5", "mixer", _set("norm0", epsilon=1e-6), seen=False),
    Fault("matmul: weight transposed", "mixer", _array("mix0_w", np.transpose)),
    Fault("leaky relu: slope 0.02, not 0.01", "mixer", _set("act", alpha=0.02)),
    Fault("resize: nearest, not linear", "upsample", _set("resize", mode="nearest")),
    Fault(
        "resize: asymmetric, not half_pixel", "upsample", _set("resize", coordinate_transformation_mode="asymmetric")
    ),
    Fault("conv: pads of SAME_LOWER, not SAME_UPPER", "upsample", _set("conv0", pads=[0, 0, 1, 1])),
)
