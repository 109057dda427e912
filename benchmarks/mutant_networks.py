"""Small networks of the layers that people use, as ONNX files drawn from a seed: what toolchains are let loose on.

    model, inputs = network(seed)

Convolutions with batch normalisations, residual sums, gates, pools, resizes, shuffles of channels, layer and group
normalisations in one operator or in many, attention, feed-forward layers, quantised convolutions; in the spellings of
several exporters (constants as nodes, shapes that are computed, identities that were left over).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mutant_judges import in_float32

Array = np.ndarray
OPSETS = (13, 17, 18, 20)
ROUND_WEIGHTS = 0.25  # share of arrays that hold few digits, so that folding rounds nothing


class Drawing:
    """A network that grows node by node from the input "x"."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"mutant network {seed}")
        self.numbers = np.random.default_rng(seed)
        self.opset = self.rng.choice(OPSETS)
        self.nodes: list[Any] = []
        self.arrays: dict[str, Array] = {}
        self.input: tuple[int, ...] = ()
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem.lower()}_{self.count}"

    def node(self, operator: str, *args: Any, outputs: int = 1, **attributes: Any) -> Any:
        """The name of the result; arrays among the arguments become initializers, or Constant nodes."""
        names = [a if isinstance(a, str) else self.constant(a) for a in args]
        out = [self.name(operator) for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, names, out, name=out[0], **attributes))
        return out[0] if outputs == 1 else out

    def constant(self, value: Any) -> str:
        array = np.asarray(value, np.float32 if np.asarray(value).dtype.kind == "f" else None)
        name = self.name("c")
        if array.size < 9 and self.rng.random() < 0.3:
            tensor = numpy_helper.from_array(array, name)
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        else:
            self.arrays[name] = array
        return name

    def model(self, *outputs: str) -> onnx.ModelProto:
        info = lambda name, shape: helper.make_tensor_value_info(name, 1, shape)
        given = [numpy_helper.from_array(a, name) for name, a in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "g", [info("x", self.input)], [info(y, None) for y in outputs], given)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        found = onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)
        for mine, known in zip(made.graph.output, found.graph.output, strict=True):
            mine.CopyFrom(known)
        return made

    def shape(self, x: str) -> tuple[int, ...]:
        """The shape of a result, of the input or of a node."""
        if x == "x":
            return self.input
        ((y,),) = in_float32(self.model(x), [{"x": np.zeros(self.input, np.float32)}])
        return tuple(y.shape)

    def weights(self, *shape: int, size: float = 0.0) -> Array:
        size = size or 1 / np.sqrt(max(1, np.prod(shape[1:])))
        w = size * self.numbers.normal(size=shape)
        return (np.rint(w * 16) / 16 if self.rng.random() < ROUND_WEIGHTS else w).astype(np.float32)

    def positive(self, *shape: int) -> Array:
        v = self.numbers.uniform(0.5, 2, shape)
        return (np.rint(v * 4) / 4 if self.rng.random() < ROUND_WEIGHTS else v).astype(np.float32)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share


Layer = Callable[[Drawing, str], str]

# --- functions of one cell --------------------------------------------------------------------------------------------


def activation(d: Drawing, x: str) -> str:
    kinds: dict[str, Layer] = {
        "relu": lambda d, x: d.node("Relu", x),
        "relu6": lambda d, x: d.node("Clip", x, np.float32(0), np.float32(6)),
        "leaky": lambda d, x: d.node("LeakyRelu", x, alpha=d.rng.choice((0.1, 0.25))),
        "prelu": lambda d, x: d.node("PRelu", x, d.positive(d.shape(x)[1], *[1] * (len(d.shape(x)) - 2))),
        "sigmoid": lambda d, x: d.node("Sigmoid", x),
        "tanh": lambda d, x: d.node("Tanh", x),
        "silu": lambda d, x: d.node("Mul", x, d.node("Sigmoid", x)),
        "elu": lambda d, x: d.node("Elu", x, alpha=d.rng.choice((1.0, 0.5))),
        "hardsigmoid": lambda d, x: d.node("HardSigmoid", x, alpha=d.rng.choice((0.2, 1 / 6)), beta=0.5),
        "hardswish": hard_swish,
        "gelu": gelu,
        "softplus": lambda d, x: d.node("Softplus", x),
    }
    return kinds[d.rng.choice(list(kinds))](d, x)


def hard_swish(d: Drawing, x: str) -> str:
    if d.opset >= 14 and d.chance(0.4):
        return str(d.node("HardSwish", x))
    inner = d.node("Clip", d.node("Add", x, np.float32(3)), np.float32(0), np.float32(6))
    return str(d.node("Div", d.node("Mul", x, inner), np.float32(6)))


def gelu(d: Drawing, x: str) -> str:
    if d.opset >= 20 and d.chance(0.5):
        return str(d.node("Gelu", x, approximate=d.rng.choice(("none", "tanh"))))
    inner = d.node("Erf", d.node("Div", x, np.float32(np.sqrt(2))))
    return str(d.node("Mul", d.node("Mul", x, d.node("Add", inner, np.float32(1))), np.float32(0.5)))


def left_over(d: Drawing, x: str) -> str:
    return str(d.node(d.rng.choice(("Identity", "Dropout")), x))


# --- images -----------------------------------------------------------------------------------------------------------


def plain_conv(d: Drawing, x: str, channels: int = 0, stride: int = 0, **more: Any) -> str:
    c = d.shape(x)[1]
    channels, k = channels or d.rng.choice((2, 4, c)), d.rng.choice((1, 2, 3, 3))
    group = c if channels == c and d.chance(0.3) else 2 if c % 2 == channels % 2 == 0 and d.chance(0.2) else 1
    how: dict[str, Any] = {"group": group, "strides": [stride or d.rng.choice((1, 1, 2))] * 2, **more}
    if not more and d.chance(0.2):
        how["auto_pad"] = d.rng.choice(("SAME_UPPER", "SAME_LOWER"))
    elif not more:
        dilation = d.rng.choice((1, 1, 2))
        reach = dilation * (k - 1)
        low = [reach // 2] * 2 if d.chance(0.8) else [d.rng.randint(0, reach) for _ in range(2)]
        how |= {"dilations": [dilation] * 2, "pads": [*low, *(reach - n for n in low)]}
    bias = [d.weights(channels, size=0.5)] if d.chance(0.5) else []
    return str(d.node("Conv", x, d.weights(channels, c // group, k, k), *bias, **how))


def batch_norm(d: Drawing, x: str) -> str:
    c = d.shape(x)[1]
    beta, mean = d.weights(c, size=0.5), d.weights(c, size=0.5)
    if d.chance(0.75):
        eps = d.rng.choice((1e-5, 1e-3))
        return str(d.node("BatchNormalization", x, d.positive(c), beta, mean, d.positive(c), epsilon=eps))
    spread = lambda a: a.reshape(1, c, *[1] * (len(d.shape(x)) - 2))
    scaled = d.node(d.rng.choice(("Mul", "Div")), d.node("Sub", x, spread(mean)), spread(d.positive(c)))
    return str(d.node("Add", scaled, spread(beta)))


def conv(d: Drawing, x: str) -> str:
    y = plain_conv(d, x)
    y = batch_norm(d, y) if d.chance(0.6) else y
    return activation(d, y) if d.chance(0.7) else y


def residual(d: Drawing, x: str) -> str:
    y = plain_conv(d, x, d.shape(x)[1], 1, auto_pad="SAME_UPPER")
    y = batch_norm(d, y) if d.chance(0.5) else y
    y = d.node("Add", *((x, y) if d.chance(0.5) else (y, x)))
    return str(d.node("Relu", y)) if d.chance(0.6) else str(y)


def mean_over(d: Drawing, x: str, axes: list[int], keep: int = 1) -> str:
    if d.opset >= 18:
        return str(d.node("ReduceMean", x, np.int64(axes), keepdims=keep))
    return str(d.node("ReduceMean", x, axes=axes, keepdims=keep))


def gate(d: Drawing, x: str) -> str:
    c = d.shape(x)[1]
    y = d.node("GlobalAveragePool", x) if d.chance(0.6) else mean_over(d, x, [2, 3])
    y = d.node("Relu", d.node("Conv", y, d.weights(2, c, 1, 1), d.weights(2)))
    y = d.node("Conv", y, d.weights(c, 2, 1, 1), d.weights(c))
    y = d.node("Sigmoid", y) if d.chance(0.6) else d.node("HardSigmoid", y)
    return str(d.node("Mul", *((x, y) if d.chance(0.5) else (y, x))))


def pool(d: Drawing, x: str) -> str:
    how: dict[str, Any] = {"kernel_shape": [d.rng.choice((2, 3))] * 2, "strides": [d.rng.choice((1, 2))] * 2}
    if d.chance(0.5):
        how["pads"] = [d.rng.randint(0, 1) for _ in range(4)]
    if d.chance(0.6):
        return str(d.node("MaxPool", x, ceil_mode=0, **how))
    return str(d.node("AveragePool", x, count_include_pad=d.rng.randint(0, 1), **how))


def resize(d: Drawing, x: str) -> str:
    mode = d.rng.choice(("nearest", "nearest", "linear"))
    at = d.rng.choice(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    more = {"nearest_mode": d.rng.choice(("floor", "round_prefer_floor", "ceil"))} if mode == "nearest" else {}
    scales = np.float32([1, 1, d.rng.choice((2, 1.5)), 2])
    return str(d.node("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=at, **more))


def padded(d: Drawing, x: str) -> str:
    pads = np.int64([0, 0, d.rng.randint(0, 2), d.rng.randint(0, 2)] * 2)
    mode = d.rng.choice(("constant", "constant", "reflect", "edge"))
    if min(d.shape(x)[2:]) < 3 or mode == "constant":
        x = d.node("Pad", x, pads, np.float32(d.rng.choice((0, 0, 0.5))))
        return plain_conv(d, x)
    return str(d.node("Pad", x, pads, mode=mode))


def shuffle(d: Drawing, x: str) -> str:
    n, c, h, w = d.shape(x)
    if c % 2:
        return activation(d, x)
    y = d.node("Reshape", x, np.int64([n, 2, c // 2, h, w]))
    return str(d.node("Reshape", d.node("Transpose", y, perm=[0, 2, 1, 3, 4]), np.int64([n, c, h, w])))


def split_and_join(d: Drawing, x: str) -> str:
    c = d.shape(x)[1]
    if c % 2:
        return str(d.node("Concat", x, plain_conv(d, x, 2, 1, auto_pad="SAME_LOWER"), axis=1))
    if d.chance(0.5):
        more = {"num_outputs": 2} if d.opset >= 18 else {}
        one, two = d.node("Split", x, outputs=2, axis=1, **more)
    else:
        ends = np.int64([[0, c // 2], [c // 2, c]])
        one, two = (d.node("Slice", x, e[:1], e[1:], np.int64([1])) for e in ends)
    one = activation(d, plain_conv(d, one, c // 2, 1, auto_pad="SAME_UPPER"))
    return str(d.node("Concat", *((one, two) if d.chance(0.5) else (two, one)), axis=1))


def transposed_conv(d: Drawing, x: str) -> str:
    c = d.shape(x)[1]
    how = {"strides": [d.rng.choice((1, 2))] * 2, "pads": [d.rng.randint(0, 1) for _ in range(4)]}
    return str(d.node("ConvTranspose", x, d.weights(c, 2, 3, 3), d.weights(2), **how))


def scale_and_shift(d: Drawing, x: str) -> str:
    c = d.shape(x)[1]
    y = d.node("Mul", *((x, d.positive(c, 1, 1)) if d.chance(0.7) else (d.positive(1, c, 1, 1), x)))
    y = d.node(d.rng.choice(("Add", "Sub")), y, d.weights(c, 1, 1, size=0.5))
    return plain_conv(d, y) if d.chance(0.5) else str(y)


def channels_last_norm(d: Drawing, x: str) -> str:
    y = layer_norm(d, str(d.node("Transpose", x, perm=[0, 2, 3, 1])))
    y = linear(d, y, d.shape(y)[-1]) if d.chance(0.5) else y
    return str(d.node("Transpose", y, perm=[0, 3, 1, 2]))


def group_norm(d: Drawing, x: str) -> str:
    n, c, h, w = d.shape(x)
    groups = 2 if c % 2 == 0 else 1
    y = d.node("Reshape", x, np.int64([n, groups, -1]))
    y = d.node("InstanceNormalization", y, d.positive(groups), d.weights(groups), epsilon=1e-3)
    y = d.node("Reshape", y, np.int64([n, c, h, w]))
    return str(d.node("Add", d.node("Mul", y, d.positive(1, c, 1, 1)), d.weights(1, c, 1, 1)))


def quantised_conv(d: Drawing, x: str) -> str:
    """Weights on a grid of 8 bits, and the image too, as ONNX Runtime writes it."""
    c = d.shape(x)[1]
    if d.opset < 19:  # onnx's reference has no older ones
        return conv(d, x)
    on_grid = lambda v, scale, zero: d.node("DequantizeLinear", d.node("QuantizeLinear", v, scale, zero), scale, zero)
    y = on_grid(x, np.float32(d.rng.choice((0.05, 1 / 32))), np.uint8(128)) if d.chance(0.5) else x
    w = d.constant(np.asarray(d.numbers.integers(-127, 128, (4, c, 3, 3)), np.int8))
    steps = (0.01 * d.positive(4)).astype(np.float32)
    w = d.node("DequantizeLinear", w, steps, np.zeros(4, np.int8), axis=0)
    return str(d.node("Relu", d.node("Conv", y, w, d.weights(4), pads=[1, 1, 1, 1])))


IMAGE: tuple[Layer, ...] = (*[conv] * 8, residual, residual, gate, pool, resize, padded, shuffle, split_and_join)
IMAGE += (transposed_conv, scale_and_shift, channels_last_norm, group_norm, quantised_conv, left_over, activation)

# --- rows of tokens ---------------------------------------------------------------------------------------------------


def linear(d: Drawing, x: str, cells: int = 0) -> str:
    n, cells = d.shape(x)[-1], cells or d.rng.choice((3, 4))
    if len(d.shape(x)) == 2 and d.chance(0.7):
        turned = d.rng.randint(0, 1)
        w = d.weights(*((cells, n) if turned else (n, cells)), size=n**-0.5)
        return str(d.node("Gemm", x, w, d.weights(cells), transB=turned))
    y = d.node("MatMul", x, d.weights(n, cells, size=n**-0.5))
    if d.chance(0.2):
        return str(y)
    return str(d.node("Add", *((y, d.weights(cells)) if d.chance(0.6) else (d.weights(cells), y))))


def layer_norm(d: Drawing, x: str) -> str:
    n = d.shape(x)[-1]
    if d.opset >= 17 and d.chance(0.5):
        return str(d.node("LayerNormalization", x, d.positive(n), d.weights(n), axis=-1, epsilon=1e-3))
    apart = d.node("Sub", x, mean_over(d, x, [-1]))
    square = d.node("Pow", apart, np.float32(2)) if d.chance(0.6) else d.node("Mul", apart, apart)
    deep = d.node("Sqrt", d.node("Add", mean_over(d, square, [-1]), np.float32(1e-3)))
    return str(d.node("Add", d.node("Mul", d.node("Div", apart, deep), d.positive(n)), d.weights(n)))


def attention(d: Drawing, x: str) -> str:
    n, t, c = d.shape(x)
    heads = 2 if c % 2 == 0 else 1
    q, k, v = (split_heads(d, linear(d, x, c), heads, turned=name == "k") for name in "qkv")
    scale = np.float32((c // heads) ** -0.5)
    where = d.rng.choice(("before", "product", "quotient"))
    q = d.node("Mul", q, scale) if where == "before" else q
    scores = d.node("MatMul", q, k)
    if where != "before":
        scores = d.node(*("Mul", scores, scale) if where == "product" else ("Div", scores, np.float32(1 / scale)))
    y = d.node("MatMul", d.node("Softmax", scores, axis=-1), v)
    y = d.node("Reshape", d.node("Transpose", y, perm=[0, 2, 1, 3]), np.int64([n, t, c]))
    return str(d.node("Add", x, linear(d, str(y), c)))


def split_heads(d: Drawing, x: str, heads: int, turned: bool) -> str:
    n, t, c = d.shape(x)
    y = d.node("Reshape", x, np.int64([n, -1, heads, c // heads] if d.chance(0.5) else [0, t, heads, c // heads]))
    return str(d.node("Transpose", y, perm=[0, 2, 3, 1] if turned else [0, 2, 1, 3]))


def feed_forward(d: Drawing, x: str) -> str:
    c = d.shape(x)[-1]
    y = linear(d, x, 4)
    return str(d.node("Add", linear(d, gelu(d, y) if d.chance(0.5) else d.node("Relu", y), c), x))


def weighted_rows(d: Drawing, x: str) -> str:
    axis = d.rng.choice((1, -1))
    return str(d.node("Mul", x, d.node("Softmax", x, axis=axis)))


def gathered(d: Drawing, x: str) -> str:
    t = d.shape(x)[1]
    return str(d.node("Gather", x, np.int64(d.rng.choices(range(t), k=3)), axis=1))


def computed_shape(d: Drawing, x: str) -> str:
    """A reshape to and fro, whose target is computed from the shape, as exporters write it."""
    size = d.node("Shape", x)
    first = d.node("Unsqueeze", d.node("Gather", size, np.int64(0)), np.int64([0]))
    y = d.node("Reshape", x, d.node("Concat", first, np.int64([-1]), axis=0))
    y = activation(d, y) if d.chance(0.5) else y
    return str(d.node("Reshape", y, size))


ROWS: tuple[Layer, ...] = (linear, layer_norm, attention, attention, feed_forward, weighted_rows, gathered)
ROWS += (computed_shape, left_over)


# --- networks ---------------------------------------------------------------------------------------------------------


def head(d: Drawing, x: str) -> str:
    """To rows of numbers: pooled or flattened, a product, and often a softmax."""
    if len(d.shape(x)) == 4:
        x = d.node("GlobalAveragePool", x) if d.chance(0.6) else x
        x = d.node("Flatten", x) if d.chance(0.5) else d.node("Reshape", x, np.int64([1, -1]))
    else:
        x = mean_over(d, x, [1], 0) if d.chance(0.5) else d.node("Flatten", x)
    y = linear(d, x, 3)
    return str(d.node("Softmax", y, axis=-1)) if d.chance(0.4) else y


def to_rows(d: Drawing, x: str) -> str:
    n, c, h, w = d.shape(x)
    return str(d.node("Transpose", d.node("Reshape", x, np.int64([n, c, h * w])), perm=[0, 2, 1]))


def network(seed: int) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """A model of two to four layers, and the shapes of its inputs."""
    d, y = Drawing(seed), "x"
    image = d.chance(0.65)
    d.input = (1, d.rng.choice((2, 3, 4)), *(d.rng.randint(4, 7) for _ in range(2)))
    if not image:
        d.input = (1, d.rng.randint(2, 4), d.rng.choice((3, 4)))
    for _ in range(d.rng.randint(1, 3)):
        y = d.rng.choice(IMAGE if image else ROWS)(d, y)
        if image and np.prod(d.shape(y)) > 1500:
            y = str(d.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]))
    if image and d.chance(0.15):
        y = d.rng.choice(ROWS)(d, to_rows(d, y))
    y = head(d, y) if d.chance(0.5) or y == "x" else y
    return d.model(y), {"x": d.input}
