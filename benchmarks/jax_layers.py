"""Ten networks over a dozen layers, and three builders of those layers: plain JAX in either layout, and specgrad.

A builder hands out parameters in the order in which layers ask for them. `Shapes` asks without computing: its values
are shapes, channels first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import specgrad as sg

Shape = tuple[int, ...]
Value = Any


class Layers(Protocol):
    """What the networks are made of. Channels are counted on the shape of a value."""

    def conv(self, x: Value, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Value: ...
    def up(self, x: Value, out: int) -> Value: ...
    def bn(self, x: Value) -> Value: ...
    def norm(self, x: Value) -> Value: ...
    def act(self, x: Value, name: str) -> Value: ...
    def max_pool(self, x: Value, k: int, stride: int, pad: int = 0) -> Value: ...
    def avg_pool(self, x: Value, k: int) -> Value: ...
    def dense(self, x: Value, out: int) -> Value: ...
    def flat(self, x: Value) -> Value: ...
    def mean(self, x: Value) -> Value: ...
    def add(self, x: Value, y: Value) -> Value: ...
    def scale(self, x: Value, factors: Value) -> Value: ...
    def concat(self, xs: list[Value]) -> Value: ...
    def channels(self, x: Value) -> int: ...


# --- builders ---------------------------------------------------------------------------------------------------------


class Shapes:
    """Values are shapes (N, C, *spatial); records the shapes of the parameters."""

    def __init__(self, rank: int) -> None:
        self.rank, self.shapes = rank, []  # type: ignore[var-annotated]

    def initial(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        if len(shape) == 1:
            return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
        return (rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]))).astype(np.float32)

    def conv(self, x: Shape, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Shape:
        self.shapes.append((out, x[1] // groups, *(k,) * self.rank))
        self.shapes.extend([(out,)] * bias)
        return (x[0], out, *((n + 2 * (k // 2) - k) // stride + 1 for n in x[2:]))

    def up(self, x: Shape, out: int) -> Shape:
        self.shapes.extend([(x[1], out, *(2,) * self.rank), (out,)])
        return (x[0], out, *(2 * n for n in x[2:]))

    def bn(self, x: Shape) -> Shape:
        self.shapes.extend([(x[1],)] * 4)
        return x

    def norm(self, x: Shape) -> Shape:
        self.shapes.extend([(x[1],)] * 2)
        return x

    def act(self, x: Shape, name: str) -> Shape:
        return x

    def max_pool(self, x: Shape, k: int, stride: int, pad: int = 0) -> Shape:
        return (*x[:2], *((n + 2 * pad - k) // stride + 1 for n in x[2:]))

    def avg_pool(self, x: Shape, k: int) -> Shape:
        return (*x[:2], *(n // k for n in x[2:]))

    def dense(self, x: Shape, out: int) -> Shape:
        self.shapes.extend([(out, x[-1]), (out,)])
        return (x[0], out)

    def flat(self, x: Shape) -> Shape:
        return (x[0], math.prod(x[1:]))

    def mean(self, x: Shape) -> Shape:
        return x[:2]

    def add(self, x: Shape, y: Shape) -> Shape:
        assert x == y
        return x

    def scale(self, x: Shape, factors: Shape) -> Shape:
        assert x[:2] == factors
        return x

    def concat(self, xs: list[Shape]) -> Shape:
        return (xs[0][0], sum(x[1] for x in xs), *xs[0][2:])

    def channels(self, x: Shape) -> int:
        return x[1]


class Given:
    """Hands out the parameters, one after the other."""

    def __init__(self, params: list[Value], rank: int) -> None:
        self.params, self.rank = iter(params), rank

    def take(self, count: int) -> list[Value]:
        return [next(self.params) for _ in range(count)]


class Bare(Given):
    """Plain JAX as its users write it."""

    def __init__(self, params: list[Value], rank: int, last: bool) -> None:
        super().__init__(params, rank)
        self.last, self.axis = last, -1 if last else 1
        cells = "DHW"[3 - rank :]
        names = ("N" + cells + "C", cells + "IO", "N" + cells + "C"), ("NC" + cells, "OI" + cells, "NC" + cells)
        self.names = names[0] if last else names[1]

    def _per_channel(self, v: jax.Array) -> jax.Array:
        return v if self.last else v.reshape(v.shape + (1,) * self.rank)

    def _over(self, sizes: Any, other: Any) -> tuple[Any, ...]:
        """Per axis of a value: something for the spatial axes, something else for batch and channels."""
        cells = (sizes,) * self.rank
        return (other, *cells, other) if self.last else (other, other, *cells)

    def conv(self, x: Value, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Value:
        (w,) = self.take(1)
        pads, strides = ((k // 2, k // 2),) * self.rank, (stride,) * self.rank
        y = lax.conv_general_dilated(x, w, strides, pads, dimension_numbers=self.names, feature_group_count=groups)
        return y + self._per_channel(self.take(1)[0]) if bias else y

    def up(self, x: Value, out: int) -> Value:
        """A transposed convolution 2x2 of stride 2, as everyone writes it: the input dilated, the kernel flipped."""
        w, b = self.take(2)
        if self.last:  # kept as (*kernel, out, in), by `turned`
            w = jnp.flip(jnp.swapaxes(w, -1, -2), tuple(range(self.rank)))
        else:
            w = jnp.flip(jnp.swapaxes(w, 0, 1), tuple(range(2, self.rank + 2)))
        ones, pads, two = (1,) * self.rank, ((1, 1),) * self.rank, (2,) * self.rank
        y = lax.conv_general_dilated(x, w, ones, pads, lhs_dilation=two, dimension_numbers=self.names)
        return y + self._per_channel(b)

    def bn(self, x: Value) -> Value:
        mean, var, scale, shift = map(self._per_channel, self.take(4))
        return (x - mean) * (scale / jnp.sqrt(var + 1e-5)) + shift

    def norm(self, x: Value) -> Value:
        scale, shift = map(self._per_channel, self.take(2))
        mean = jnp.mean(x, self.axis, keepdims=True)
        var = jnp.var(x, self.axis, keepdims=True)
        return (x - mean) / jnp.sqrt(var + 1e-5) * scale + shift

    def act(self, x: Value, name: str) -> Value:
        if name == "gelu":
            return jax.nn.gelu(x, approximate=False)
        return getattr(jax.nn, {"hardswish": "hard_swish", "hardsigmoid": "hard_sigmoid"}.get(name, name))(x)

    def max_pool(self, x: Value, k: int, stride: int, pad: int = 0) -> Value:
        window, pads = (self._over(k, 1), self._over(stride, 1)), self._over((pad, pad), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, *window, pads)

    def avg_pool(self, x: Value, k: int) -> Value:
        return lax.reduce_window(x, 0.0, lax.add, self._over(k, 1), self._over(k, 1), "VALID") / k**self.rank

    def dense(self, x: Value, out: int) -> Value:
        w, b = self.take(2)
        return x @ w.T + b

    def flat(self, x: Value) -> Value:
        return (jnp.moveaxis(x, -1, 1) if self.last else x).reshape((x.shape[0], -1))

    def mean(self, x: Value) -> Value:
        return jnp.mean(x, tuple(range(1, 1 + self.rank)) if self.last else tuple(range(2, 2 + self.rank)))

    def add(self, x: Value, y: Value) -> Value:
        return x + y

    def scale(self, x: Value, factors: Value) -> Value:
        return x * jnp.expand_dims(factors, tuple(range(1, 1 + self.rank) if self.last else range(2, 2 + self.rank)))

    def concat(self, xs: list[Value]) -> Value:
        return jnp.concatenate(xs, self.axis)

    def channels(self, x: Value) -> int:
        return int(x.shape[self.axis])


class Ours(Given):
    """specgrad, channels first."""

    def conv(self, x: Value, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Value:
        w, b = self.take(2) if bias else (*self.take(1), None)
        return sg.conv(w, b, x, stride=stride, padding=k // 2, groups=groups)

    def up(self, x: Value, out: int) -> Value:
        w, b = self.take(2)
        return sg.conv_transpose(w, b, x, stride=2)

    def bn(self, x: Value) -> Value:
        return sg.batch_norm(x, *self.take(4))

    def norm(self, x: Value) -> Value:
        scale, shift = (sg.reshape(v, (v.shape[0], *(1,) * self.rank)) for v in self.take(2))
        centred = x - sg.mean(x, 1, keepdims=True)
        return centred / sg.sqrt(sg.mean(centred**2, 1, keepdims=True) + 1e-5) * scale + shift

    def act(self, x: Value, name: str) -> Value:
        return sg.relu6(x + 3) / 6 if name == "hardsigmoid" else getattr(sg, name)(x)

    def max_pool(self, x: Value, k: int, stride: int, pad: int = 0) -> Value:
        return sg.max_pool(x, (k,) * self.rank, stride=stride, padding=pad)

    def avg_pool(self, x: Value, k: int) -> Value:
        return sg.avg_pool(x, (k,) * self.rank)

    def dense(self, x: Value, out: int) -> Value:
        w, b = self.take(2)
        return sg.linear(w, b, x)

    def flat(self, x: Value) -> Value:
        return sg.flatten(x, 1)

    def mean(self, x: Value) -> Value:
        return sg.global_avg_pool(x, rank=self.rank, keepdims=False)

    def add(self, x: Value, y: Value) -> Value:
        return x + y

    def scale(self, x: Value, factors: Value) -> Value:
        return x * sg.reshape(factors, (*factors.shape, *(1,) * self.rank))

    def concat(self, xs: list[Value]) -> Value:
        return sg.concat(xs, axis=1)

    def channels(self, x: Value) -> int:
        return int(x.shape[1])


# --- networks ---------------------------------------------------------------------------------------------------------


def conv_bn(f: Layers, x: Value, out: int, k: int, act: str = "", stride: int = 1, groups: int = 1) -> Value:
    y = f.bn(f.conv(x, out, k, stride, groups))
    return f.act(y, act) if act else y


def resnet18(f: Layers, x: Value) -> Value:
    x = f.max_pool(conv_bn(f, x, 64, 7, "relu", 2), 3, 2, 1)
    for width in (64, 128, 256, 512):
        for i in range(2):
            stride = 2 if i == 0 and width > 64 else 1
            y = conv_bn(f, conv_bn(f, x, width, 3, "relu", stride), width, 3)
            x = f.act(f.add(y, conv_bn(f, x, width, 1, stride=stride) if stride > 1 else x), "relu")
    return f.dense(f.mean(x), 1000)


def resnet50(f: Layers, x: Value) -> Value:
    x = f.max_pool(conv_bn(f, x, 64, 7, "relu", 2), 3, 2, 1)
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            stride = 2 if i == 0 and width > 64 else 1
            y = conv_bn(f, conv_bn(f, x, width, 1, "relu"), width, 3, "relu", stride)
            y = conv_bn(f, y, 4 * width, 1)
            x = f.act(f.add(y, x if i else conv_bn(f, x, 4 * width, 1, stride=stride)), "relu")
    return f.dense(f.mean(x), 1000)


def mobilenetv2(f: Layers, x: Value) -> Value:
    x = conv_bn(f, x, 32, 3, "relu6", 2)
    stages = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for expansion, out, blocks, first in stages:
        for i in range(blocks):
            stride, c = 1 if i else first, f.channels(x)
            y = conv_bn(f, x, c * expansion, 1, "relu6") if expansion > 1 else x
            y = conv_bn(f, y, c * expansion, 3, "relu6", stride, c * expansion)
            y = conv_bn(f, y, out, 1)
            x = f.add(x, y) if stride == 1 and c == out else y
    return f.dense(f.mean(conv_bn(f, x, 1280, 1, "relu6")), 1000)


def inverted(
    f: Layers, x: Value, wide: int, out: int, k: int, stride: int, act: str, squeezed: int, gates: tuple[str, str]
) -> Value:
    """Expand, depthwise, squeeze and excite (unless `squeezed` is 0), project; with a shortcut where shapes allow."""
    c = f.channels(x)
    y = conv_bn(f, x, wide, 1, act) if wide != c else x
    y = conv_bn(f, y, wide, k, act, stride, wide)
    if squeezed:
        y = f.scale(y, f.act(f.dense(f.act(f.dense(f.mean(y), squeezed), gates[0]), wide), gates[1]))
    y = conv_bn(f, y, out, 1)
    return f.add(x, y) if stride == 1 and c == out else y


def mobilenetv3(f: Layers, x: Value) -> Value:
    """MobileNetV3-Small."""
    x = conv_bn(f, x, 16, 3, "hardswish", 2)
    blocks = (16, 16, 3, 2, "relu", 8), (72, 24, 3, 2, "relu", 0), (88, 24, 3, 1, "relu", 0)
    blocks += (96, 40, 5, 2, "hardswish", 24), *[(240, 40, 5, 1, "hardswish", 64)] * 2
    blocks += (120, 48, 5, 1, "hardswish", 32), (144, 48, 5, 1, "hardswish", 40)
    blocks += (288, 96, 5, 2, "hardswish", 72), *[(576, 96, 5, 1, "hardswish", 144)] * 2
    for block in blocks:
        x = inverted(f, x, *block, gates=("relu", "hardsigmoid"))
    x = f.act(f.dense(f.mean(conv_bn(f, x, 576, 1, "hardswish")), 1024), "hardswish")
    return f.dense(x, 1000)


def efficientnet(f: Layers, x: Value) -> Value:
    """EfficientNet-B0."""
    x = conv_bn(f, x, 32, 3, "silu", 2)
    stages = (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5)
    for expansion, out, blocks, first, k in (*stages, (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)):
        for i in range(blocks):
            c = f.channels(x)
            x = inverted(f, x, c * expansion, out, k, 1 if i else first, "silu", c // 4, ("silu", "sigmoid"))
    return f.dense(f.mean(conv_bn(f, x, 1280, 1, "silu")), 1000)


def unet(f: Layers, x: Value) -> Value:
    double = lambda x, c: f.act(f.conv(f.act(f.conv(x, c, 3, bias=True), "relu"), c, 3, bias=True), "relu")
    skips = []
    for width in (16, 32, 64, 128):
        skips.append(double(x, width))
        x = f.max_pool(skips[-1], 2, 2)
    x = double(x, 256)
    for width in (128, 64, 32, 16):
        x = double(f.concat([skips.pop(), f.up(x, width)]), width)
    return f.conv(x, 2, 1, bias=True)


def densenet(f: Layers, x: Value) -> Value:
    x = f.max_pool(conv_bn(f, x, 64, 7, "relu", 2), 3, 2, 1)
    for stage, layers in enumerate((4, 4, 4)):
        for _ in range(layers):
            y = f.conv(f.act(f.bn(x), "relu"), 128, 1)
            x = f.concat([x, f.conv(f.act(f.bn(y), "relu"), 32, 3)])
        if stage < 2:
            x = f.avg_pool(f.conv(f.act(f.bn(x), "relu"), f.channels(x) // 2, 1), 2)
    return f.dense(f.mean(f.act(f.bn(x), "relu")), 1000)


def convnext(f: Layers, x: Value) -> Value:
    x = f.norm(f.conv(x, 48, 4, 4))
    for stage, (width, blocks) in enumerate(((48, 2), (96, 2), (192, 2))):
        x = f.conv(f.norm(x), width, 2, 2, bias=True) if stage else x
        for _ in range(blocks):
            y = f.norm(f.conv(x, width, 7, groups=width, bias=True))
            y = f.conv(f.act(f.conv(y, 4 * width, 1, bias=True), "gelu"), width, 1, bias=True)
            x = f.add(x, y)
    return f.dense(f.mean(x), 1000)


def cnn3d(f: Layers, x: Value) -> Value:
    for width in (16, 32, 64):
        x = conv_bn(f, conv_bn(f, x, width, 3, "relu"), width, 3, "relu")
        x = f.max_pool(x, 2, 2)
    return f.dense(f.mean(x), 10)


def lenet(f: Layers, x: Value) -> Value:
    x = f.max_pool(f.act(f.conv(x, 6, 5, bias=True), "relu"), 2, 2)
    x = f.max_pool(f.act(f.conv(x, 16, 5, bias=True), "relu"), 2, 2)
    for width in (120, 84):
        x = f.act(f.dense(f.flat(x) if width == 120 else x, width), "relu")
    return f.dense(x, 10)


class Network(NamedTuple):
    net: Callable[[Any, Any], Any]
    shapes: tuple[Shape, ...]
    rank: int = 2


IMAGES = (8, 3, 64, 64), (2, 3, 160, 160), (1, 3, 224, 224)
NETWORKS = {
    "ResNet-18": Network(resnet18, IMAGES),
    "ResNet-50": Network(resnet50, IMAGES),
    "MobileNetV2": Network(mobilenetv2, IMAGES),
    "MobileNetV3": Network(mobilenetv3, IMAGES),
    "EfficientNet": Network(efficientnet, IMAGES),
    "U-Net": Network(unet, ((4, 3, 64, 64), (1, 3, 160, 160), (1, 3, 224, 224))),
    "DenseNet": Network(densenet, IMAGES),
    "ConvNeXt": Network(convnext, IMAGES),
    "3-D CNN": Network(cnn3d, ((2, 1, 16, 16, 16), (1, 1, 32, 32, 32)), 3),
    "LeNet": Network(lenet, ((32, 1, 28, 28), (8, 1, 64, 64))),
}
