"""A hunt for unsound bounds: random networks, attacked in float32 and sampled in exact arithmetic, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import torch

import drawn_windows
import specgrad as sg
from specgrad.bounds import Bounds, Box, crown, ibp
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.graph.graph import Graph
from specgrad.graph.ir.node import call
from specgrad.op import Op, apply
from specgrad.window import Strided

Layer = Callable[[Any], Any]


# --- random networks ----------------------------------------------------------------------------------------------


class Drawn:
    """One random network: layers are drawn while it is traced; weights are constants of the graph."""

    def __init__(self, seed: int, layers: Sequence[Any] = ()) -> None:
        self.layers = layers or LAYERS
        self.rng = Random(f"bounds/{seed}")
        self.draw = np.random.default_rng(seed)
        self.rank = self.rng.randint(1, 3)
        self.integer = self.rng.random() < 0.4  # whole weights and boxes: ties everywhere
        self.transcendental = False

    @property
    def lift(self) -> Callable[[Any], Any]:
        """What turns numbers into exact ones, once the network is drawn."""
        return sg.balls if self.transcendental else sg.exact

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
                return self.rng.choice(self.layers)(self, x)
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
        """To given sizes, or over a window of any kind."""
        pool, out = self.rng.choice((sg.adaptive_avg_pool, sg.adaptive_max_pool)), self.ints(1, 2, 3)
        own = Random(f"{x.shape}/{out}")
        return drawn_windows.pooled(own, x, self.rank, empty=True) if own.random() < 0.5 else pool(x, out)

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
        return self.rng.choice((sg.sigmoid, sg.tanh, sg.silu, sg.gelu, sg.softplus, sg.hardswish, sg.sin, sg.cos))(x)

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


def boxed(drawn: Drawn, graph: Graph, dtype: torch.dtype = torch.float32) -> Box:
    """A box whose ends the format holds, some sides without width, or all of them: then only rounding is left."""
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = drawn.numbers(*shape, scale=4.0)
    reach = np.float32(drawn.rng.choice((0, 1)) if drawn.integer else drawn.rng.choice((0, 0.01, 0.1, 0.5)))
    ends = middle - reach * drawn.draw.integers(0, 2, shape).astype(np.float32), middle + reach
    return Box(*(torch.tensor(end).to(dtype).double().numpy() for end in ends))


# --- single operators -------------------------------------------------------------------------------------------------


def operator_case(op: Op, seed: int) -> tuple[Graph, list[Any]]:
    """One call as a graph: indices are constants; of the other arguments one varies in a box, or all do."""
    rng = Random(f"bounds/{op.name}/{seed}")
    args, params = op.cases(rng)
    real = [k for k in range(len(args)) if k not in op.index_args]
    chosen = real if seed % 2 else [rng.choice(real)] if real else []
    fixed = {k: a if k in op.index_args else a.astype(np.float32) for k, a in enumerate(args) if k not in chosen}
    boxes = [_around(args[k].astype(np.float32), rng.choice((0.0, 0.0625, 0.25)), rng) for k in chosen]

    def call(*given: Any) -> Any:
        values = dict(zip(chosen, given, strict=True)) | fixed
        return apply(op, *(values[k] for k in range(len(args))), **params)

    return sg.trace(call, *(b.shape for b in boxes)), boxes


def _around(x: np.ndarray, reach: float, rng: Random) -> Box:
    sides = np.array([rng.choice((0.0, 1.0)) for _ in range(x.size)]).reshape(x.shape)
    return Box(x - np.float32(reach) * sides.astype(np.float32), x + np.float32(reach))


# --- executions -----------------------------------------------------------------------------------------------------


def with_constants(graph: Graph, convert: Callable[[Any], Any]) -> Graph:
    """The same graph for another kind of numbers; positions stay NumPy's integers beside exact numbers."""
    constants = {p: a if a.dtype.kind == "i" else convert(a) for p, a in graph.constants.items()}
    return replace(graph, constants=constants)


def on_torch(graph: Graph, dtype: torch.dtype = torch.float32) -> Graph:
    constants = {p: torch.tensor(a) if a.dtype.kind == "i" else single(a, dtype) for p, a in graph.constants.items()}
    return replace(graph, constants=constants)


# --- what a network has ---------------------------------------------------------------------------------------------


def features(graph: Graph) -> set[str]:
    """Operators of a graph, with what is particular about their attributes: "max_pool overlap", "conv rank 3"."""
    found = set()
    for node in graph.nodes:
        found.add(node.op.name)
        window, params = node.params.get("window"), node.params
        marks = [k for k in ("divisor", "padded") if k in params]
        found |= {f"{node.op.name} {k} {params[k]}" for k in marks}
        found |= {f"{node.op.name} {word}" for word in _window_words(window)} if window is not None else set()
        found |= {f"{node.op.name} groups"} if params.get("groups", 1) > 1 else set()
        found |= {f"{node.op.name} negative beta"} if params.get("beta", 1) < 0 else set()
    return found


def _window_words(window: Any) -> set[str]:
    words = {f"rank {window.rank}"}
    for a in window.axes:
        if not isinstance(a, Strided):
            return words | {"cells"}
        words |= {"dilation"} if a.dilation > 1 and a.kernel > 1 else set()
        words |= {"overlap"} if a.stride < a.kernel else set()
        words |= {"padding"} if a.lo or a.hi else set()
        words |= {"ceil"} if a.out > a.floor_out else set()
    return words


def layers_of(graph: Graph, *args: Any) -> dict[str, Any]:
    """Every computed layer, by name."""
    found: dict[str, Any] = {}
    call(graph, args, lambda node, value: found.__setitem__(node.name, value))
    return found


def single(x: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An array of numbers that the format holds, as a tensor."""
    return torch.as_tensor(np.array(x)).to(dtype)


def numbers_of(results: Any) -> torch.Tensor:
    """All outputs that are numbers, flat; positions of winners are not."""
    parts = [y.flatten() for y in sg.tree.leaves(results) if y.dtype.is_floating_point]
    return torch.cat(parts) if parts else torch.zeros(0)


def attacks(run: Any, boxes: Sequence[Box], seed: int, count: int, steps: int, dtype: torch.dtype = torch.float32):
    """Corners, and projected gradient ascent on single cells of the outputs, up and down, in the format of `dtype`."""
    rng = torch.Generator().manual_seed(seed)
    ends = [(single(b.low, dtype), single(b.high, dtype)) for b in boxes]
    for _ in range(count):
        corner = tuple(torch.where(torch.rand(a.shape, generator=rng) < 0.5, a, b) for a, b in ends)
        yield corner
        size = numbers_of(run(*corner)).numel()
        if size:
            goal, sign = int(torch.randint(size, (), generator=rng)), float(torch.randint(2, (), generator=rng)) * 2 - 1
            yield _climbed(run, ends, goal, sign, steps, rng)


def _climbed(run: Any, ends: Any, goal: int, sign: float, steps: int, rng: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Signed gradient steps of a quarter of the box, from a random point, back into the box after each."""
    project = lambda x, a, b: torch.minimum(torch.maximum(x, a), b)
    xs = [project(a + (b - a) * torch.rand(a.shape, generator=rng).to(a.dtype), a, b) for a, b in ends]
    for _ in range(steps):
        xs = [x.detach().requires_grad_() for x in xs]
        y = numbers_of(run(*xs))[goal]
        if not y.requires_grad:
            break
        found = torch.autograd.grad(y, xs, allow_unused=True)
        moves = [torch.zeros_like(x) if g is None else sign * g.sign() for x, g in zip(xs, found, strict=True)]
        xs = [project(x.detach() + (b - a) / 4 * m, a, b) for x, m, (a, b) in zip(xs, moves, ends, strict=True)]
    return tuple(x.detach() for x in xs)


def exact_points(boxes: Sequence[Box], seed: int, count: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Rational points of the boxes: corners and thirds."""
    rng = Random(seed)
    ends = [(sg.exact(np.asarray(b.low)), sg.exact(np.asarray(b.high))) for b in boxes]
    for k in range(count):
        yield tuple(_between_ends(low, high, rng, 1 if k % 2 else 3) for low, high in ends)


def _between_ends(low: np.ndarray, high: np.ndarray, rng: Random, parts: int) -> np.ndarray:
    share = np.empty(low.size, dtype=object)
    share[:] = [Fraction(rng.randint(0, parts), parts) for _ in range(low.size)]
    return low + share.reshape(low.shape) * (high - low)


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
    return not all(box is None or _inside(box, value) for box, value in zip(boxes, found, strict=True))


# --- hunts ------------------------------------------------------------------------------------------------------------


def both(graph: Graph, given: tuple[Any, ...], **options: Any) -> list[Bounds]:
    return [crown(graph, *given, **options), ibp(graph, *given, **options)]


def escaped(kind: str, bounds: list[Bounds], run: Any, points: Any) -> list[str]:
    """Layers and outputs that leave their boxes at some point."""
    problems = []
    for x in points:
        try:
            layers, outputs = layers_of(run, *x), run(*x)
        except sg.ScalarError:  # balls around 0 do not tell on which side of a kink a value lies: no sample
            continue
        problems += [f"{kind} {name}" for b in bounds for name in outside(b, layers)]
        problems += [f"{kind} output"] * any(outputs_outside(b, outputs) for b in bounds)
    return problems


def escapes(
    graph: Graph, given: tuple[Any, ...], seed: int, count: int, steps: int, lift: Any, samples: int = 2
) -> list[str]:
    """Attacks in float32 on the deployed bounds; exact samples against these and against the real ones.

    given   a Box per argument that varies, then arrays
    """
    boxes, fixed = [g for g in given if isinstance(g, Box)], [g for g in given if not isinstance(g, Box)]
    deployed, real = both(graph, given), both(graph, given, deployed=False)
    run, rest = on_torch(graph), tuple(single(g) for g in fixed)
    attacked = (x + rest for x in attacks(lambda *x: run(*x, *rest), boxes, seed, count, steps))
    exact, others = with_constants(graph, lift), tuple(lift(np.asarray(g, dtype=float)) for g in fixed)
    sampled = [tuple(map(lift, x)) + others for x in exact_points(boxes, seed, samples)]
    return escaped("deployed", deployed, run, attacked) + escaped("real", deployed + real, exact, sampled)


def hunted(seed: int, count: int = 3, steps: int = 4, layers: Sequence[Any] = ()) -> list[str]:
    """What is outside its box, for one random network."""
    drawn = Drawn(seed, layers)
    graph = drawn.graph()
    return escapes(graph, (boxed(drawn, graph),), seed, count, steps, drawn.lift)


def hunted_two_sided(seed: int, count: int = 3, steps: int = 4, layers: Sequence[Any] = ()) -> list[str]:
    """The same where all passes from hidden cells go between parallel lines, which short ones of deep networks do."""
    with mock.patch.object(ForwardPass, "fast", ForwardPass.short):
        return hunted(seed, count, steps, layers)


def hunted_gradient(seed: int, count: int = 2, steps: int = 2, layers: Sequence[Any] = ()) -> list[str]:
    """The same for the derivative graph of a random network, with a fixed cotangent."""
    drawn = Drawn(seed, layers)
    graph = sg.vjp(drawn.graph())
    box = boxed(drawn, graph)
    g = drawn.draw.integers(-2, 3, graph.nodes[graph.input_positions[1]].shape).astype(np.float32)
    return escapes(graph, (box, g), seed, count, steps, drawn.lift, samples=0 if drawn.transcendental else 2)
