"""Networks of several layers where rounding matters: relus near 0, maxima that nearly tie, values read twice.

Each is written once and run twice: first on its own input, where weights are drawn and biases put cells of a layer
within a rounding of 0; then traced, with what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import specgrad as sg
from draw import Draw
from floats import FORMATS, Format
from networks import Network, constant


class Layers(Draw):
    """Layers that keep what they drew at the first run and take it again at the second."""

    def __init__(self, seed: Any, form: Format) -> None:
        super().__init__(seed, form)
        self.taste = self.rng.choice(("gentle", "gentle", "mixed"))
        self.edge = self.rng.choice((0.0, 0.3, 1.0))  # share of channels that a bias puts near 0
        self.rank = self.rng.choice((1, 1, 2))
        self.kept: list[Any] = []
        self.next = 0

    def drawn(self, make: Callable[[], Any]) -> Any:
        if self.next == len(self.kept):
            self.kept.append(make())
        self.next += 1
        return self.kept[self.next - 1]

    def chance(self, p: float = 0.5) -> bool:
        return bool(self.drawn(lambda: self.rng.random() < p))

    def weights(self, *shape: int) -> np.ndarray:
        fan = max(1, int(np.prod(shape[1:])))
        return self.drawn(lambda: self.held(self.array(*shape).astype(float) / np.sqrt(fan)))

    def bias(self, before: Any) -> np.ndarray:
        """Per channel (axis 1): any, or what brings one cell of it to 0, but for the rounding of the bias."""
        return self.drawn(lambda: self._bias(np.asarray(before, dtype=float)))

    def _bias(self, before: np.ndarray) -> np.ndarray:
        cells = np.moveaxis(before, 1, 0).reshape(before.shape[1], -1)
        picked = np.array([self.rng.choice(list(row)) for row in cells])
        near = self.numbers.random(len(picked)) < self.edge
        return self.held(np.where(near, -picked, self.numbers.normal(size=len(picked)) * 0.3))

    def conv(self, x: Any, out: int, kernel: int = 3, groups: int = 1, **window: Any) -> Any:
        w = self.weights(out, x.shape[1] // groups, *(kernel,) * self.rank)
        map_ = lambda b: sg.conv(w, b, x, groups=groups, **window)
        return map_(self.bias(map_(None)))

    def linear(self, x: Any, out: int) -> Any:
        w = self.weights(out, x.shape[1])
        return sg.linear(w, self.bias(sg.linear(w, None, x)), x)

    def norm(self, x: Any) -> Any:
        """Batch normalisation by statistics near the value's own, as nodes or as arrays."""
        stats = self.drawn(lambda: self._statistics(np.asarray(x, dtype=float)))
        nodes = self.chance() and hasattr(x, "builder")
        return sg.batch_norm(x, *((constant(x, v) for v in stats) if nodes else stats))

    def _statistics(self, x: np.ndarray) -> list[np.ndarray]:
        c, axes = x.shape[1], (0, *range(2, x.ndim))
        weight, bias = self.numbers.uniform(0.5, 1.5, c), self.numbers.normal(size=c) * 0.2
        return [self.held(v) for v in (x.mean(axes) + 0.1, x.var(axes) + 0.1, weight, bias)]

    def head(self, x: Any, out: int = 3) -> Any:
        """Flat, or averaged over positions; then a matrix product."""
        flat = self.chance()
        return self.linear(sg.flatten(x, 1) if flat else sg.global_avg_pool(x, rank=self.rank, keepdims=False), out)


# --- kinds ------------------------------------------------------------------------------------------------------------


def deep_perceptron(d: Layers, x: Any) -> Any:
    x = sg.flatten(x, 1)
    for _ in range(d.drawn(lambda: d.rng.randint(2, 4))):
        x = sg.relu(d.linear(x, 6))
    return d.linear(x, 3)


def plain_cnn(d: Layers, x: Any) -> Any:
    for _ in range(d.drawn(lambda: d.rng.randint(2, 3))):
        x = sg.relu(d.conv(x, 3, padding=1))
    return d.head(x)


def pooled_cnn(d: Layers, x: Any) -> Any:
    """Maxima of overlapping windows, after a relu: 0 ties with 0."""
    x = sg.relu(d.conv(x, 3, padding=1))
    x = sg.max_pool(x, (3,) * d.rank, stride=2, padding=1) if d.chance() else sg.avg_pool(x, (2,) * d.rank)
    x = sg.relu(d.conv(x, 3, 2))
    return d.head(x)


def residual(d: Layers, x: Any) -> Any:
    """Stem and two blocks with batch normalisation: every relu is read twice."""
    x = sg.relu(d.norm(d.conv(x, 2, padding=1)))
    for _ in range(2):
        y = sg.relu(d.norm(d.conv(x, 2, padding=1)))
        x = sg.relu(d.norm(d.conv(y, 2, padding=1)) + x)
    return d.head(x)


def inverted(d: Layers, x: Any) -> Any:
    """Wide, by channel, narrow, with relu6: MobileNetV2's block."""
    x = sg.relu6(d.norm(d.conv(x, 2, padding=1)))
    y = sg.relu6(d.norm(d.conv(x, 4, 1)))
    y = sg.relu6(d.norm(d.conv(y, 4, 3, groups=4, padding=1)))
    return d.head(x + d.norm(d.conv(y, 2, 1)))


def u_net(d: Layers, x: Any) -> Any:
    first = sg.relu(d.conv(x, 2, padding=1))
    low = sg.relu(d.conv(sg.max_pool(first, (2,) * d.rank), 2, padding=1))
    up = sg.conv_transpose(d.weights(2, 2, *(2,) * d.rank), None, low, stride=2)
    up = up[(slice(None), slice(None), *(slice(0, n) for n in first.shape[2:]))]
    short = [(0, a - b) for a, b in zip(first.shape, up.shape, strict=True)]
    return d.conv(sg.concat([first, sg.pad(up, short)], 1), 2, 1)


def read_twice(d: Layers, x: Any) -> Any:
    """What a convolution, its scale and a relu make is read by two layers whose difference counts."""
    v = d.norm(d.conv(x, 2, padding=1))
    gain = d.drawn(lambda: d.held([d.rng.choice((1.0, 8.0, 100.0))]))
    left, right = sg.relu(v) * gain, sg.relu(v) if d.chance() else sg.maximum(v, 0.0)
    return d.head(sg.conv(d.weights(2, 2, *(3,) * d.rank), None, left - right * gain, padding=1) + left)


def flipping(d: Layers, x: Any) -> Any:
    """Large terms that cancel, a relu within their rounding of 0, and a gain."""
    w, level = d.weights(3, x.shape[1], *(3,) * d.rank), d.drawn(lambda: d.held([2.0 ** d.rng.randint(4, 12)]))
    y = sg.conv(w, None, x, padding=1) + level
    back = d.drawn(lambda: d.held(-np.asarray(y, dtype=float)))
    return d.head(sg.relu(y + back) * d.drawn(lambda: d.held([64.0])) + sg.relu(-y))


def tied(d: Layers, x: Any) -> Any:
    """A maximum over channels that nearly agree."""
    w = d.weights(1, x.shape[1], *(3,) * d.rank)
    twin = d.drawn(lambda: d.held(w * (1 + 2.0 ** (2 - d.form.digits) * d.numbers.integers(-2, 3, w.shape))))
    left, right = (sg.conv(v, None, x, padding=1) for v in (w, twin))
    apart = sg.maximum(left, right) - sg.minimum(left, right)
    largest = sg.max_pool(sg.concat([left, right], 1), (2,) * d.rank)
    return d.head(apart * d.drawn(lambda: d.held([2.0**8]))), d.head(largest)


def product(d: Layers, x: Any) -> Any:
    """Two computed values multiplied, as in a gate."""
    x = sg.relu(d.conv(x, 2, padding=1))
    return d.head(d.conv(x, 2, padding=1) * sg.relu(d.conv(x, 2, padding=1)))


DEEP: dict[str, Callable[[Layers, Any], Any]] = {
    f.__name__: f
    for f in (
        deep_perceptron, plain_cnn, pooled_cnn, residual, inverted, u_net, read_twice, flipping, tied, product,
    )
}  # fmt: skip
GRADIENTS = {"gradient of a perceptron": "deep_perceptron", "gradient of a cnn": "plain_cnn"}
ALL = (*DEEP, *GRADIENTS)


def deep_network(seed: int, form: Format = FORMATS["float32"], kind: str | None = None) -> Network:
    """The network of a seed; kinds take turns."""
    name = kind or ALL[seed % len(ALL)]
    d = Layers(f"{name}/{form.name}/{seed}", form)
    size = 4 if d.rank == 2 else 8
    x = d.held(d.numbers.random((1, d.rng.choice((1, 2)), *(size,) * d.rank)))

    def net(t: Any) -> Any:
        d.next = 0
        return DEEP[GRADIENTS.get(name, name)](d, t)

    net(x.astype(float))
    graph = sg.trace(net, x.shape)
    if name not in GRADIENTS:
        return Network(name, graph, (x,))
    y = d.numbers.integers(-2, 3, graph.nodes[graph.output_positions[0]].shape).astype(np.float32)
    return Network(name, sg.vjp(graph), (x, y))
