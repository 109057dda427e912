"""A graph as backward bound propagation sees it: which nodes vary, which are linear, which need a relaxation.

For an objective A.y of a node y = f(x) a layer gives an objective of x and a constant with A.f(x) >= A'.x + c:

    linear      A' is the operator's own cotangent rule, with the objectives as leading axes (torch.func.vmap)
    cell, taps  A' takes the lower line where A >= 0 and the upper one elsewhere (specgrad.bounds.relax)
    opaque      A' = 0: the interval of the node itself

Objectives have the shape (boxes, rows, *shape of the node).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..graph.graph import Graph, Node, NumberArg
from ..graph.run import evaluate
from ..graph.trace import Trace
from ..op import Op, Params, apply
from ..scalar import Array
from ..window import Shape, Window
from . import relax
from .relax import Lines

Backward = tuple[list[tuple[int, Tensor]], Tensor]  # objectives by position, constants (boxes, rows)


@dataclass(eq=False)
class Layer:
    """One node that varies with the inputs; `sources` are the varying nodes it reads."""

    position: int
    node: Node
    sources: tuple[int, ...]

    is_linear = False

    def lines(self, boxes: Sequence[tuple[Tensor, Tensor]]) -> Lines | None:
        """The relaxation on the boxes of the sources, each end (boxes, *shape)."""
        return None

    def back(self, a: Tensor, lines: Any) -> Backward:
        raise NotImplementedError


def rows_dot(a: Tensor, v: Tensor) -> Tensor:
    """(boxes, rows, *shape) with (boxes or 1, *shape): one number per row."""
    cells = math.prod(v.shape[1:])
    return (a.reshape(*a.shape[:2], cells) @ v.reshape(v.shape[0], cells, 1)).squeeze(-1)


# --- linear -----------------------------------------------------------------------------------------------------------


def adjoint(op: Op, args: Sequence[Any], params: Params, shape: Shape, wanted: Sequence[int]) -> Callable[..., Any]:
    """The cotangents of the arguments `wanted` as a function of gy alone: the operator's own rule, and nothing else.

    args are tensors, numbers, or shapes where an argument varies.
    """
    t = Trace(share=True)
    values, given = [], {}
    for k, a in enumerate(args):
        if isinstance(a, Tensor | tuple):
            var = t.input(f"x{k}", tuple(a) if isinstance(a, tuple) else tuple(a.shape), _kind(a))
            values.append(var)
            if isinstance(a, Tensor):
                given[var.position] = a
        else:
            values.append(a)
    y, gy = t.input("y", shape), t.input("gy", shape)
    found = op.cotangents(gy, y, values, params)
    graph = t.graph(("gy",), (gy,), tuple(found[k] for k in wanted), False)
    names = {t.nodes[p].name: v for p, v in given.items()}
    return _Adjoint(graph, names)


def _kind(a: Any) -> Any:
    return "index" if isinstance(a, Tensor) and not a.dtype.is_floating_point else "real"


class _Adjoint:
    def __init__(self, graph: Graph, given: dict[str, Tensor]) -> None:
        self.graph, self.given = graph, given
        self.places = {i: n.name for i, n in enumerate(graph.nodes) if n.op.name == "input"}

    def __call__(self, gy: Tensor) -> tuple[Tensor, ...]:
        values = {i: gy if name == "gy" else self.given[name] for i, name in self.places.items()}
        found = evaluate(self.graph, values)
        return tuple(found[p] for p in self.graph.outputs)


class Linear(Layer):
    """Jointly linear in its sources, the other arguments being constant."""

    is_linear = True

    def __init__(self, position: int, node: Node, args: Sequence[Any]) -> None:
        """args: a tensor or number per constant argument, a position (in a 1-tuple) per varying one."""
        varying = [k for k, a in enumerate(args) if isinstance(a, tuple)]
        super().__init__(position, node, tuple(args[k][0] for k in varying))
        self.args, self.varying = args, varying

    def prepare(self, shapes: dict[int, Shape]) -> Linear:
        given = [shapes[a[0]] if isinstance(a, tuple) else a for a in self.args]
        self._adjoint = adjoint(self.node.op, given, self.node.params, self.node.shape, self.varying)
        self.constant = self._constant(given)
        return self

    def _constant(self, given: Sequence[Any]) -> Tensor | None:
        """The value where every source is 0; None where it is 0."""
        group = next(g for g in self.node.op.linear_groups(len(given)) if set(self.varying) <= set(g))
        if all(k in self.varying for k in group):
            return None
        tensors = [torch.zeros(a, dtype=torch.float64) if isinstance(a, tuple) else a for a in given]
        value: Tensor = apply(self.node.op, *tensors, **self.node.params)
        return value.detach()[None]

    def back(self, a: Tensor, lines: Any) -> Backward:
        flat = a.flatten(0, 1)
        found = torch.func.vmap(self._adjoint)(flat)
        parts = [(p, g.reshape(a.shape[:2] + g.shape[1:])) for p, g in zip(self.sources, found, strict=True)]
        zero = a.new_zeros(a.shape[:2])
        return parts, zero if self.constant is None else rows_dot(a, self.constant)


class Identity(Layer):
    """stop_gradient: the same value, though it has no derivative."""

    is_linear = True

    def back(self, a: Tensor, lines: Any) -> Backward:
        return [(self.sources[0], a)], a.new_zeros(a.shape[:2])


# --- relaxed ----------------------------------------------------------------------------------------------------------


def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """The parts that take the lower and the upper line."""
    positive = a.clamp(min=0)
    return positive, a - positive


class Cell(Layer):
    """A function of one cell."""

    def lines(self, boxes: Sequence[tuple[Tensor, Tensor]]) -> Lines:
        low, high = boxes[0]
        if self.node.op.name == "relu":
            return relax.relu(low, high)
        kinks, curvature = relax.CELLS[self.node.op.name](low, high, self.node.params)
        f = lambda x: apply(self.node.op, x, **self.node.params)
        return relax.hull(f, low, high, kinks, curvature)

    def back(self, a: Tensor, lines: Lines) -> Backward:
        positive, negative = split(a)
        down, up = lines.lower_slope.unsqueeze(1), lines.upper_slope.unsqueeze(1)
        constant = rows_dot(positive, lines.lower) + rows_dot(negative, lines.upper)
        return [(self.sources[0], positive * down + negative * up)], constant


class Gate(Layer):
    """select(c, a, b) with an open condition: a, b, or where it is open anything that one of them is.

    With one of them 0 (as in every derivative) an open cell lies between 0 and the other.
    """

    def __init__(self, position: int, node: Node, source: int, keeps: Tensor, drops: Tensor) -> None:
        super().__init__(position, node, (source,))
        self.keeps, self.drops = keeps, drops

    def lines(self, boxes: Sequence[tuple[Tensor, Tensor]]) -> Lines:
        found = relax.gate(*boxes[0])
        slopes = [torch.where(self.keeps, 1.0, torch.where(self.drops, 0.0, s)) for s in found[::2]]
        decided = self.keeps | self.drops
        ends = [torch.where(decided, 0.0, c) for c in found[1::2]]
        return Lines(slopes[0], ends[0], slopes[1], ends[1])

    back = Cell.back


class Taps(Layer):
    """The largest (or smooth largest) of the taps of every window; with_zero: of 0 as well, for relu before it."""

    def __init__(self, position: int, node: Node, source: int, shape: Shape, window: Window, with_zero: bool) -> None:
        super().__init__(position, node, (source,))
        self.shape, self.window, self.with_zero = shape, window, with_zero
        self.lead = shape[: len(shape) - window.rank]

    @cached_property
    def index(self) -> Tensor:
        """(taps, *out): the flat cell of every tap; one past the last for a padded one."""
        cells = math.prod(self.window.size)
        position = np.arange(cells).reshape(self.window.size)
        found = np.full((self.window.taps_count, *self.window.out), cells)
        for tap in self.window.taps():
            number = int(np.ravel_multi_index(tap.position, self.window.kernel))
            found[(number, *tap.outs)] = position[tap.ins]
        return torch.from_numpy(found)

    @property
    def inside(self) -> Tensor:
        return (self.index < math.prod(self.window.size)).view(-1, *(1,) * (1 + len(self.lead)), *self.window.out)

    def read(self, x: Tensor) -> Tensor:
        """(boxes, *shape) as (taps, boxes, *lead, *out); 0 at padded taps."""
        flat = x.flatten(x.ndim - self.window.rank)
        wide = torch.nn.functional.pad(flat, (0, 1))
        found: Tensor = wide[..., self.index.flatten()].reshape(flat.shape[:-1] + self.index.shape)
        return found.movedim(found.ndim - 1 - self.window.rank, 0)

    def spread(self, a: Tensor) -> Tensor:
        """The transpose of `read` on rows: (taps, boxes, rows, *lead, *out) to (boxes, rows, *shape)."""
        moved = a.movedim(0, a.ndim - 1 - self.window.rank).flatten(a.ndim - 1 - self.window.rank)
        total = a.new_zeros((*moved.shape[:-1], math.prod(self.window.size) + 1))
        total = total.index_add(-1, self.index.flatten(), moved)
        return total[..., :-1].reshape(moved.shape[:-1] + self.window.size)

    def lines(self, boxes: Sequence[tuple[Tensor, Tensor]]) -> Lines:
        low, high = (self.read(end) for end in boxes[0])
        inside = self.inside.expand(low.shape)
        if self.node.op.name == "smooth_max_pool":
            padded = (
                self.window.taps_count - inside.sum(0) if self.node.params["padded"] == "zero" else inside.sum(0) * 0
            )
            return relax.smooth_largest(low, high, inside, padded, float(self.node.params["beta"]))
        if not self.with_zero:
            return relax.largest(low, high, inside)
        ones = torch.ones_like(inside[:1])
        low, high, inside = (
            torch.cat([t, z]) for t, z in ((low, 0.0 * low[:1]), (high, 0.0 * high[:1]), (inside, ones))
        )
        found = relax.largest(low, high, inside)
        return Lines(found.lower_slope[:-1], found.lower, found.upper_slope[:-1], found.upper)

    def back(self, a: Tensor, lines: Lines) -> Backward:
        positive, negative = split(a)
        down, up = lines.lower_slope.unsqueeze(2), lines.upper_slope.unsqueeze(2)
        constant = rows_dot(positive, lines.lower) + rows_dot(negative, lines.upper)
        return [(self.sources[0], self.spread(positive * down + negative * up))], constant


class Opaque(Layer):
    """Nothing but the node's own interval."""


# --- which is which ------------------------------------------------------------------------------------------------


def tensor(x: Array) -> Tensor:
    return torch.from_numpy(np.array(x))


def layer_of(graph: Graph, i: int, varying: set[int], constants: dict[int, Array], gates: dict[int, Any]) -> Layer:
    """The layer of node i, given which nodes vary and what the others are."""
    node = graph.nodes[i]
    args: list[Any] = [
        a.value if isinstance(a, NumberArg) else (a,) if a in varying else tensor(constants[a]) for a in node.args
    ]
    moving = [k for k, a in enumerate(args) if isinstance(a, tuple)]
    name = node.op.name
    if name == "stop_gradient":
        return Identity(i, node, args[0])
    if node.kind == "real" and _jointly_linear(node.op, len(args), moving):
        return Linear(i, node, args).prepare({a: graph.nodes[a].shape for a in node.operands()})
    if name == "relu" or name in relax.CELLS:
        return Cell(i, node, args[0])
    if name in ("max_pool", "smooth_max_pool"):
        return _taps(graph, i, node, args[0][0], varying)
    if name == "select" and i in gates:
        return Gate(i, node, *gates[i])
    return Opaque(i, node, tuple(a[0] for a in args if isinstance(a, tuple)))


def _jointly_linear(op: Op, count: int, moving: Sequence[int]) -> bool:
    return any(set(moving) <= set(group) for group in op.linear_groups(count))


def _taps(graph: Graph, i: int, node: Node, source: int, varying: set[int]) -> Taps:
    """relu and max_pool as one: 0 is one more tap."""
    before = graph.nodes[source]
    fused = node.op.name == "max_pool" and before.op.name == "relu"
    source = before.operands()[0] if fused else source
    return Taps(i, node, source, graph.nodes[source].shape, node.params["window"], fused)
