"""A hunt for unsound bounds: random networks, attacked in float32 and sampled in exact arithmetic, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import torch

import specgrad as sg
from specgrad.bounds import Bounds, Box
from specgrad.graph.graph import Graph
from specgrad.graph.run import call

Layer = Callable[[Any], Any]


# --- random networks ----------------------------------------------------------------------------------------------


class Drawn:
    """One random network: layers are drawn while it is traced; weights are constants of the graph."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"bounds/{seed}")
        self.draw = np.random.default_rng(seed)
        self.rank = self.rng.randint(1, 3)
        self.integer = self.rng.random() < 0.4  # whole weights and boxes: ties everywhere
        self.transcendental = False

    def numbers(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        if self.integer:
            return self.draw.integers(-2, 3, shape).astype(np.float32)
        fan = max(1, int(np.prod(shape[1:])))
        return (self.draw.normal(size=shape) * scale / np.sqrt(fan)).astype(np.float32)

    def ints(self, *choices: int) -> tuple[int, ...]:
        return tuple(self.rng.choice(choices) for _ in range(self.rank))

    def graph(self) -> Graph:
        size = {1: 9, 2: 6, 3: 4}[self.rank]
        shape = (self.rng.choice((1, 1, 2)), self.rng.choice((1, 2, 4)), *self.ints(size, size - 1))
        return sg.trace(self.network, shape)

    def network(self, x: Any) -> Any:
        for _ in range(self.rng.randint(2, 5)):
            x = self.tried(x)
        x = sg.flatten(x, 1)
        return sg.linear(self.numbers(3, x.shape[1]), self.numbers(3), x) if self.rng.random() < 0.7 else x

    def tried(self, x: Any) -> Any:
        for _ in range(20):  # a window may not fit
            try:
                return self.rng.choice(LAYERS)(self, x)
            except sg.SpecgradError:
                continue
        return x

    # layers

    def conv(self, x: Any) -> Any:
        c = x.shape[1]
        groups = self.rng.choice([g for g in (1, 1, 2, 4) if c % g == 0])
        out = groups * self.rng.randint(1, 2)
        w, b = (
            self.numbers(out, c // groups, *self.ints(1, 2, 3)),
            self.numbers(out) if self.rng.random() < 0.7 else None,
        )
        padding = tuple((p, q) for p, q in zip(self.ints(0, 1, 2), self.ints(0, 1), strict=True))
        return sg.conv(w, b, x, stride=self.ints(1, 1, 2), padding=padding, dilation=self.ints(1, 1, 2), groups=groups)

    def conv_transpose(self, x: Any) -> Any:
        if max(x.shape[2:]) > 5:
            raise sg.SpecgradError("hunt", "large enough")
        w = self.numbers(x.shape[1], 2, *self.ints(1, 2))
        return sg.conv_transpose(w, self.numbers(2), x, stride=self.ints(1, 2), dilation=self.ints(1, 1, 2))

    def max_pool(self, x: Any) -> Any:
        return sg.max_pool(
            x, self.ints(1, 2, 3), stride=self.ints(1, 2, 2, 3), padding=self.rng.choice((0, 0, 1)),
            dilation=self.ints(1, 1, 2), ceil=self.rng.random() < 0.3,
        )  # fmt: skip

    def relu_max_pool(self, x: Any) -> Any:
        return self.max_pool(sg.relu(x))

    def avg_pool(self, x: Any) -> Any:
        return sg.avg_pool(
            x, self.ints(1, 2, 3), stride=self.ints(1, 2, 2), padding=self.rng.choice((0, 0, 1)),
            ceil=self.rng.random() < 0.3, count_include_pad=self.rng.random() < 0.5,
            divisor=self.rng.choice((None, None, 3, -2)),
        )  # fmt: skip

    def smooth(self, x: Any) -> Any:
        self.transcendental = True
        options = {"beta": self.rng.choice((1.0, 3.0, -2.0)), "padded": self.rng.choice(("zero", "ignore"))}
        return sg.smooth_max_pool(
            x, self.ints(1, 2, 3), stride=self.ints(1, 2), padding=self.rng.choice((0, 1)), **options
        )

    def adaptive(self, x: Any) -> Any:
        pool = self.rng.choice((sg.adaptive_avg_pool, sg.adaptive_max_pool))
        return pool(x, self.ints(1, 2, 3))

    def whole(self, x: Any) -> Any:
        pool = self.rng.choice((sg.global_avg_pool, sg.global_max_pool))
        return sg.broadcast(pool(x, rank=self.rank), x.shape) + x

    def activation(self, x: Any) -> Any:
        f = self.rng.choice((sg.relu, sg.relu, sg.relu6, sg.abs, lambda t: sg.leaky_relu(t, 0.25), self.clamped))
        return f(x)

    def clamped(self, x: Any) -> Any:
        return sg.clamp(x, -1, self.rng.choice((None, 0.5)))

    def bent(self, x: Any) -> Any:
        self.transcendental = True
        return self.rng.choice((sg.sigmoid, sg.tanh, sg.silu, sg.gelu, sg.softplus, sg.hardswish))(x)

    def residual(self, x: Any) -> Any:
        w = self.numbers(x.shape[1], x.shape[1], *(3,) * self.rank)
        return x + sg.conv(w, None, sg.relu(x), padding=1)

    def joined(self, x: Any) -> Any:
        return sg.concat([x, sg.relu(sg.neg(x))], 1) if x.shape[1] < 5 else x

    def norm(self, x: Any) -> Any:
        self.transcendental = True  # a square root
        c = x.shape[1]
        return sg.batch_norm(x, self.numbers(c), np.abs(self.numbers(c)) + 0.5, self.numbers(c), self.numbers(c))

    def larger(self, x: Any) -> Any:
        return self.rng.choice((sg.maximum, sg.minimum))(x, x * self.rng.choice((0.5, -1)))


LAYERS = [
    Drawn.conv, Drawn.conv, Drawn.conv, Drawn.conv_transpose, Drawn.max_pool, Drawn.max_pool, Drawn.relu_max_pool,
    Drawn.avg_pool, Drawn.avg_pool, Drawn.smooth, Drawn.adaptive, Drawn.whole, Drawn.activation, Drawn.activation,
    Drawn.activation, Drawn.bent, Drawn.residual, Drawn.joined, Drawn.norm, Drawn.larger,
]  # fmt: skip


def boxed(drawn: Drawn, graph: Graph) -> Box:
    """A box whose ends are float32 numbers, some of its sides without width."""
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = drawn.numbers(*shape, scale=4.0)
    reach = np.float32(drawn.rng.choice((0, 1)) if drawn.integer else drawn.rng.choice((0.01, 0.1, 0.5)))
    low, high = middle - reach * drawn.draw.integers(0, 2, shape).astype(np.float32), middle + reach
    return Box(low, high)


# --- executions -----------------------------------------------------------------------------------------------------


def with_constants(graph: Graph, convert: Callable[[Any], Any]) -> Graph:
    """The same graph for another kind of numbers."""
    keeps = convert is not torch.tensor  # positions stay NumPy's integers beside exact numbers
    constants = {p: a if keeps and a.dtype.kind == "i" else convert(a) for p, a in graph.constants.items()}
    return replace(graph, constants=constants)


def layers_of(graph: Graph, *args: Any) -> dict[str, Any]:
    """Every computed layer, by name."""
    found: dict[str, Any] = {}
    call(graph, args, lambda node, value: found.__setitem__(node.name, value))
    return found


def projected(x: torch.Tensor, box: Box) -> torch.Tensor:
    low, high = (torch.tensor(np.asarray(e, dtype=np.float32)) for e in (box.low, box.high))
    return torch.minimum(torch.maximum(x, low), high)


def attacks(graph: Graph, box: Box, seed: int, count: int, steps: int) -> Iterator[torch.Tensor]:
    """Corners, and projected gradient ascent on single cells of the outputs, up and down, in float32."""
    rng = torch.Generator().manual_seed(seed)
    width = torch.tensor(np.asarray(box.high - box.low, dtype=np.float32))
    start = torch.tensor(np.asarray(box.low, dtype=np.float32))
    for _ in range(count):
        x = projected(start + width * torch.randint(0, 2, box.shape, generator=rng), box)
        yield x
        size = torch.cat([y.flatten() for y in sg.tree.leaves(graph(x))]).numel()
        goal, sign = int(torch.randint(size, (), generator=rng)), float(torch.randint(2, (), generator=rng)) * 2 - 1
        x = projected(start + width * torch.rand(box.shape, generator=rng), box)
        for _ in range(steps):
            x = x.detach().requires_grad_()
            y = torch.cat([y.flatten() for y in sg.tree.leaves(graph(x))])[goal]
            if not y.requires_grad:
                break
            (g,) = torch.autograd.grad(y, x)
            x = projected(x.detach() + sign * width / 4 * g.sign(), box)
        yield x.detach()


def exact_points(box: Box, seed: int, count: int) -> Iterator[np.ndarray]:
    """Rational points of the box: corners and thirds."""
    rng = Random(seed)
    low, high = sg.exact(np.asarray(box.low)), sg.exact(np.asarray(box.high))
    for k in range(count):
        share = [Fraction(rng.randint(0, 1)) if k % 2 else Fraction(rng.randint(0, 3), 3) for _ in range(low.size)]
        yield low + np.array(share, dtype=object).reshape(low.shape) * (high - low)


# --- the check -------------------------------------------------------------------------------------------------------


def outside(bounds: Bounds, layers: dict[str, Any]) -> list[str]:
    """Layers with a cell outside its box."""
    found = []
    for name, value in layers.items():
        if name in bounds.layers and name not in bounds.unbounded and not _inside(bounds.layers[name], value):
            found.append(name)
    return found


def _inside(box: Box, value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(box.contains(value).all())
    low, high = np.asarray(box.low), np.asarray(box.high)
    for v, a, b in zip(np.asarray(value, dtype=object).flat, low.flat, high.flat, strict=True):
        if not _between(v, float(a), float(b)):
            return False
    return True


def _between(v: Any, a: float, b: float) -> bool:
    """Exactly; a ball of python-flint must overlap, for all we know of its value is that it lies within."""
    if hasattr(v, "mid"):
        lower, upper = float(v.lower()), float(v.upper())
        return lower <= np.nextafter(b, np.inf) and upper >= np.nextafter(a, -np.inf)
    below = a == -np.inf or Fraction(a) <= v
    return bool(below and (b == np.inf or v <= Fraction(b)))


def outputs_outside(bounds: Bounds, values: Any) -> bool:
    """Where something is unbounded nothing is claimed, and a NaN may be."""
    boxes, found = sg.tree.leaves(bounds.outputs), sg.tree.leaves(values)
    if bounds.unbounded:
        return False
    return not all(_inside(box, value) for box, value in zip(boxes, found, strict=True))
