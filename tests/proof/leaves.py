"""Leaves of small networks, their bounds over rationals, and executions inside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

import drawn_windows
import specgrad as sg
from executor import FUNCTIONS, Setting, execute
from program import Program
from specgrad.proof.base.rationals import cells, rational, rationals, zeros
from specgrad.proof.batched.leaves import SLOPE_SCALE, Batch, Leaves, Root
from specgrad.proof.exact.node_ranges import NodeRange, max_lines, relu_lines
from specgrad.proof.exact.replay import ExecutionModel, Replay
from steered import aims

NOTHING = Fraction(10**9)  # above what any of these networks computes


def dense(seed: int, widths: tuple[int, ...] = (3, 6, 6, 2)) -> sg.Graph:
    """Matrix products with biases and relus, one residual sum."""
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(b, a)).astype(np.float32) for a, b in pairwise(widths)]
    biases = [rng.normal(size=len(w)).astype(np.float32) / 4 for w in weights]

    def net(x: Any) -> Any:
        for w, b in zip(weights[:-1], biases, strict=False):
            y = sg.relu(sg.linear(w, b, x))
            x = sg.sub(sg.mul(y, 0.75), x) if y.shape == x.shape else y
        return sg.linear(weights[-1], biases[-1], x)

    return sg.trace(net, (1, widths[0]))


def pooled(seed: int) -> sg.Graph:
    """Convolution, relu, a pool of each kind, scale and shift, a matrix product."""
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(2, 1, 2, 2)).astype(np.float32), rng.normal(size=(2, 2, 2, 1)).astype(np.float32)
    scale, shift = rng.normal(size=(2, 1, 2, 3, 3)).astype(np.float32)
    kinds = [
        lambda y: sg.max_pool(y, (2, 2), stride=1, padding=1),
        lambda y: sg.avg_pool(y, (3, 2), stride=2, padding=1, count_include_pad=False),
        lambda y: sg.max_pool(y, (2, 1), stride=1),
        lambda y: sg.permute(sg.pad(y, ((0, 0), (0, 0), (1, 0), (0, 1))), (0, 2, 1, 3)),
    ]

    def features(x: Any) -> Any:
        y = sg.relu(sg.conv(w, w[:, 0, 0, 0], x, padding=((1, 1), (0, 0))))
        y = sg.add(sg.mul(y[:, :, :3], scale), shift)
        y = kinds[seed % 4](y)
        return sg.flatten(sg.relu(sg.conv(v[:, :1] if y.shape[1] == 1 else _fit(v, y), None, y)), 1)

    def _fit(v: np.ndarray, y: Any) -> np.ndarray:
        return np.resize(v, (2, y.shape[1], 2, 1))

    size = sg.trace(features, (1, 1, 3, 4)).nodes[-1].shape[1]
    last = rng.normal(size=(2, size)).astype(np.float32)
    return sg.trace(lambda x: sg.linear(last, None, features(x)), (1, 1, 3, 4))


def windowed(seed: int) -> sg.Graph:
    """A pool over a window of any kind, of inputs or behind scale, shift and relu; perhaps another pool behind it.

    Only averages have windows of padding alone: certificates refuse maxima of nothing by name.
    """
    rng, numbers = Random(f"windowed/{seed}"), np.random.default_rng(seed)
    bare = seed % 6 == 4
    lead, window = drawn_windows.under_axes(rng, alike=bare, empty=seed % 3 == 0)
    shape = (*lead, *window.size)
    scale, shift = numbers.normal(size=(2, *shape)).astype(np.float32)

    def net(x: Any) -> Any:
        y = x if bare else sg.add(sg.mul(x, scale), shift)
        y = drawn_windows.over(rng, sg.relu(y) if seed % 2 else y, window, largest=seed % 3 != 0)
        again = seed % 4 == 0 and np.prod(y.shape) < 40
        y = sg.reshape(drawn_windows.pooled(rng, y, window.rank) if again else y, (1, -1))
        return sg.linear(numbers.normal(size=(2, y.shape[1])).astype(np.float32), None, y)

    return sg.trace(net, shape)


KINDS: tuple[Callable[[Any], Any], ...] = (
    sg.tanh,
    sg.sigmoid,
    lambda x: sg.exp(sg.mul(x, 0.5)),
    sg.hardswish,
    lambda x: sg.leaky_relu(x, 0.1),
    sg.abs,
    lambda x: sg.clamp(x, -0.4, 0.75),
    sg.relu6,
)


def curved(seed: int) -> sg.Graph:
    """Matrix products with biases, a function after each, one of them beside a relu."""
    rng = np.random.default_rng(seed)
    f, g = KINDS[seed % len(KINDS)], KINDS[int(rng.integers(len(KINDS)))]
    w, v, last = (rng.normal(size=s).astype(np.float32) for s in ((5, 3), (4, 5), (2, 4)))
    b, c = (rng.normal(size=s).astype(np.float32) for s in (5, 4))
    scale = np.float32(rng.choice((0.5, 1, 4)))

    def net(x: Any) -> Any:
        y = f(sg.linear(w * scale, b, x))
        z = sg.linear(v, c, sg.sub(y, sg.relu(y)) if seed % 3 == 0 else y)
        return sg.linear(last, None, sg.relu(g(z)) if seed % 5 == 0 else g(z))

    return sg.trace(net, (1, 3))


def smoothed(seed: int) -> sg.Graph:
    """Smooth maxima of any sharpness, overlapping, padded in both ways, one after the other and beside a relu."""
    rng = np.random.default_rng(seed)
    beta, second = float(rng.choice((0.1, 1, 3, -2, 20))), float(rng.choice((0.7, -1, 5)))
    padded = ("zero", "ignore")[seed % 2]
    w, last = rng.normal(size=(2, 1, 2)).astype(np.float32), rng.normal(size=(2, 8)).astype(np.float32)

    def net(x: Any) -> Any:
        y = sg.conv(w, None, x, padding=1)
        y = sg.smooth_max_pool(y, (2,), beta=beta, stride=1, padding=seed // 2 % 2, padded=padded)
        z = sg.sub(y, sg.relu(y)) if seed % 3 == 0 else sg.mul(y, 0.75)
        z = sg.smooth_max_pool(z[:, :, :4], (3,), beta=second, stride=1, padding=1, padded=padded)
        return sg.linear(last, None, sg.flatten(z, 1))

    return sg.trace(net, (1, 1, 4))


def network(seed: int) -> sg.Graph:
    return dense(seed) if seed % 2 else pooled(seed // 2)


@dataclass(frozen=True, eq=False)
class Case:
    """A network on a box, some parts of it, and an objective."""

    graph: sg.Graph
    model: ExecutionModel
    low: np.ndarray
    high: np.ndarray
    leaves: Leaves
    row: np.ndarray
    narrow: bool

    def root(self) -> Root:
        return Root(self.graph, self.low, self.high, self.model)

    def bounds(self) -> list[Fraction]:
        """Per leaf; NOTHING where it is said to hold no execution."""
        found = self.root().margins(self.leaves, [(self.row[None], (Fraction(0),))], self.narrow)
        return [NOTHING if found.empty[n] else found.fraction(n, 0) for n in range(len(self.leaves))]


def case(
    seed: int,
    width: float = 0.5,
    parts: int = 4,
    hints: bool = True,
    of: Callable[[int], sg.Graph] = network,
) -> Case:
    """Boxes of all sizes, points among them; any slopes and multipliers."""
    rng, graph = np.random.default_rng(seed), of(seed)
    shape = graph.nodes[graph.input_positions[0]].shape
    low = rng.normal(size=shape).astype(np.float32)
    high = (low + rng.uniform(0, width, shape)).astype(np.float32)
    share = np.sort(rng.uniform(size=(2, parts, *shape)), axis=0)
    share[:, 0] = share[0, 0]  # a point
    share[0, 1], share[1, 1] = 0.0, 1.0  # the whole
    least, most = (np.clip((low + s * (high - low)).astype(np.float32), low, high) for s in share)
    row = rng.integers(-3, 4, 2)
    slopes, multipliers = {}, {}
    for i, node in enumerate(graph.nodes):
        if hints and node.op.name == "relu":
            slopes[i] = rng.integers(0, SLOPE_SCALE + 1, (parts, 1, *node.shape)).astype(np.int16)
            pair = rng.integers(0, 1 << 19, (2, parts, 1, *node.shape)) * rng.integers(0, 2, (2, parts, 1, *node.shape))
            multipliers[node.operands()[0]] = (pair[0], pair[1])
    leaves = Leaves(least, most, slopes=slopes, multipliers=multipliers)
    functions = {name: (Fraction(units), kind) for name, (_, units, kind) in FUNCTIONS.items()}
    model = ExecutionModel(fused=bool(seed // 2 % 2), functions=functions)
    return Case(graph, model, low, high, leaves, row, bool(rng.integers(0, 2)))


# --- over rationals ---------------------------------------------------------------------------------------------------


class Exact(Replay):
    """One leaf of a batch over rationals: with the root's roundings, the leaf's ranges and the usual slopes."""

    def __init__(self, root: Root, batch: Batch, leaf: int) -> None:
        self.__dict__.update({k: v for k, v in vars(root).items() if k not in ("layers", "starts")})
        self._lines_cache: dict[int, Any] = {}
        self.ranges = [self._leaf(i, r, batch, leaf) for i, r in enumerate(root.ranges)]

    def _leaf(self, i: int, r: NodeRange, batch: Batch, leaf: int) -> NodeRange:
        if r.constant:
            return r
        scale = rational(2) ** -batch.layers[i].frac_bits
        ends = [rationals(e[min(leaf, len(e) - 1)].reshape(r.low.shape)) * scale for e in batch.ranges.ends(i)]
        return replace(r, low=ends[0], high=ends[1], ends=(ends[0], ends[1]))

    def _lines(self, i: int, node: Any, x: NodeRange) -> Any:
        low, high = x.ends
        if node.op.name == "relu":
            is_open = (low < 0) & (high > 0)
            upper = np.where(is_open, high / np.where(is_open, high - low, rational(1)), rational(0))
            return relu_lines(node, x, rationals((high > -low).astype(int)), cells(upper))
        return max_lines(node, x, *_winners(node, low, high))


def _winners(node: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One tap each, by loops over the windows: the largest middle below, the largest upper end above."""
    window = node.params["window"]
    taps = list(window.taps())
    lower, upper = zeros((len(taps), *node.shape)), zeros((len(taps), *node.shape))
    inside: dict[tuple[int, ...], list[tuple[int, Any, Any]]] = {}
    numbers = np.arange(np.prod(node.shape)).reshape(node.shape)
    for t, tap in enumerate(taps):
        ends = (tap.read_inputs(end).flat for end in (low, high))
        read = zip(tap.read_outputs(numbers).flat, *ends, strict=True)
        for cell, a, b in read:
            inside.setdefault(np.unravel_index(cell, node.shape), []).append((t, a, b))
    for cell, seen in inside.items():
        t, *_ = max(seen, key=lambda each: (each[1] + each[2], -each[0]))
        least = max(a for _, a, _ in seen)
        lower[(t, *cell)] = rational(1)
        k, a, b = max(seen, key=lambda each: (each[2], -each[0]))
        top = max([least, *(v for u, _, v in seen if u != k)])
        upper[(k, *cell)] = (b - top) / (b - a) if a < b else rational(0)
    return lower, upper


# --- executions -------------------------------------------------------------------------------------------------------


def least(given: Case, leaf: int, runs: int, seed: int = 0) -> tuple[Fraction, list[Any]]:
    """The least value of the objective in some executions on a leaf, steered towards small ones; the executions."""
    rng, program = Random(f"{seed}/{leaf}"), Program(given.graph)
    low, high = given.leaves.low[leaf], given.leaves.high[leaf]
    setting = Setting(model="fused" if given.model.fused else "node")
    (output,), found, all_runs = given.graph.output_positions, [], []
    for _ in range(runs):
        share = np.array([rng.choice((0.0, 1.0, rng.random())) for _ in range(low.size)]).reshape(low.shape)
        x = np.clip((low + share * (high - low)).astype(np.float32), low, high)
        cell = rng.randrange(len(given.row))
        aim = aims(given.graph, [x], output, cell, -1 if given.row[cell] > 0 else 1)
        run = execute(program, [x], setting, rng, aim if rng.random() < 0.5 else None)
        found += [sum(int(r) * Fraction(v) for r, v in zip(given.row, y, strict=True)) for y in run.values[output]]
        all_runs.append(run)
    return min(found), all_runs


def below(seed: int, runs: int, of: Callable[[int], sg.Graph]) -> list[int]:
    """Leaves on which some execution lies below the bound."""
    given = case(seed, width=(0.0, 0.4, 2.0)[seed % 3], hints=bool(seed % 2), of=of)
    return [n for n, b in enumerate(given.bounds()) if least(given, n, runs)[0] < b]
