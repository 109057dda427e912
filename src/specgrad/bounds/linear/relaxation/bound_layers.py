"""A graph as backward bound propagation sees it: which nodes vary, which are linear, which need a relaxation.

For an objective A.y of a node y = f(x) a layer gives an objective of x and a constant with A.f(x) >= A'.x + c:

    linear             A' is the operator's own cotangent rule, with the objectives as leading axes (torch.func.vmap)
    cell, gate, taps   A' takes the lower line where A >= 0 and the upper one elsewhere (relaxations.py)
    joint              several sources: a product, the larger of two, a value put at an open position (joint.py)
    opaque             A' = 0: the interval of the node itself, as for an input

Objectives have the shape (boxes, rows, *shape of the node), ends of boxes (boxes, *shape).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from specgrad.graph.builder import GraphBuilder
from specgrad.graph.graph import Graph, Node
from specgrad.graph.ir.interpreter import evaluate
from specgrad.op import Op, Params, apply
from specgrad.ops.contract import CONTRACT
from specgrad.ops.conv import CONV_TRANSPOSE
from specgrad.ops.elementwise import cellwise
from specgrad.rounding import slack_constants
from specgrad.scalar import Array
from specgrad.window import Shape, Window

from . import formulas as relax
from . import sparse_matrix as thin
from .conv_operator import Convolution
from .formulas import LinearRelaxation
from .sparse_matrix import SparseMatrix

Ends = tuple[Tensor, Tensor]


def tensor(x: Array) -> Tensor:
    return torch.from_numpy(np.array(x))


def rows_dot(a: Tensor, v: Tensor) -> Tensor:
    """(boxes, rows, *shape) with (boxes, *shape), either number of boxes being 1 or the same: one number per row."""
    cells = math.prod(v.shape[1:])
    flat, column = a.reshape(*a.shape[:2], cells), v.reshape(v.shape[0], cells, 1)
    if flat.shape[0] == 1 and column.shape[0] > 1:
        return (flat[0] @ column[:, :, 0].T).T
    return (flat @ column).squeeze(-1)


class BoundContext(Protocol):
    """What a layer is told on the way back."""

    @property
    def fast(self) -> bool:
        """Whether objectives may go through float32, which is charged."""

    def box(self, i: int) -> Ends:
        """The ends of node i, (boxes, *shape)."""

    def lines(self, i: int) -> LinearRelaxation:
        """Between which lines node i lies."""

    @property
    def left(self) -> Mapping[int, Tensor]:
        """Of maxima that are cut: which taps may win, (taps, boxes, *shape)."""


class BackwardBound(NamedTuple):
    """A.f(x) >= sum of pulled.x + constant - lost: an objective per source, and numbers (boxes, rows).

    Where a layer lies between parallel lines, nothing but `lost` depends on the sign of A, so that
    A.f(x) <= sum of pulled.x + constant + lost as well: see State.parallel.
    """

    pulled: list[Tensor]
    constant: Tensor | float
    lost: Tensor | float = 0.0


def within(a: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """A.v for a v between two ends, as constant and lost: by their middle, and half of what is between them."""
    return rows_dot(a, low / 2 + high / 2), rows_dot(a.abs(), (high / 2 - low / 2) * slack_constants.MIDDLE)


@dataclass(eq=False)
class BoundLayer:
    """One node that varies with the inputs; `sources` are the varying nodes it reads."""

    position: int
    node: Node
    sources: tuple[int, ...]

    def back(self, a: Tensor, known: BoundContext) -> BackwardBound:
        """A.f(x) >= A'.x + c on the box: A' of every source, and c."""
        raise NotImplementedError


class BoundOpaque(BoundLayer):
    """Nothing but the node's own interval: an input, or an operator without a relaxation. It hands nothing on.

    cellwise   what is known of a cell does not depend on the others
    """

    cellwise = True

    def back(self, a: Tensor, known: BoundContext) -> BackwardBound:
        low, high = known.box(self.position)
        return BackwardBound([], *within(a, low, high))


class BoundJoint(BoundLayer):
    """Of several sources, or of one whose line depends on the objective itself."""


# --- linear ---------------------------------------------------------------------------------------------------------


class BoundLinear(BoundLayer):
    """Jointly linear in its sources, the other arguments being constant.

    args: a shape per argument that varies, a tensor or a number per constant one.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], args: Sequence[Any]) -> None:
        super().__init__(position, node, sources)
        self.args = args
        self.varying = [k for k, a in enumerate(args) if isinstance(a, tuple)]

    @cached_property
    def pull(self) -> Callable[[Tensor], tuple[Tensor, ...]]:
        return adjoint(self.node.op, self.args, self.node.params, self.node.shape, self.varying)

    @cached_property
    def factors(self) -> list[Tensor | None] | None:
        """What a map of single cells multiplies each source by, (1, *shape), None for 1; None: it is no such map."""
        if self.node.op.receptive_field is not cellwise or any(self.args[k] != self.node.shape for k in self.varying):
            return None
        ones = self.pull(torch.ones(self.node.shape, dtype=torch.float64))
        return [None if bool((g == 1).all()) else g.detach()[None] for g in ones]

    @property
    def node_cells(self) -> int:
        return math.prod(self.node.shape)

    @cached_property
    def matrix(self) -> Tensor:
        """What every cell multiplies the cells of its only source by, (cells, sources): exact, being single terms."""
        one = torch.eye(self.node_cells, dtype=torch.float64).reshape(1, -1, *self.node.shape)
        return BoundLinear.dense(self, one)[0].detach().reshape(self.node_cells, math.prod(self.args[self.varying[0]]))

    @cached_property
    def thin(self) -> SparseMatrix | None:
        """Its matrix, where that is mostly zeros."""
        weights = next((a for a in self.args if isinstance(a, Tensor)), None)
        if self.node.op is not CONTRACT or weights is None or max(weights.numel(), self.node_cells**2) > thin.MOST:
            return None
        return thin.thin_of(self.matrix) if float((weights != 0).double().mean()) < thin.SHARE else None

    @cached_property
    def constant(self) -> Tensor | None:
        """The value (1, *shape) where every source is 0; None where it is 0 by linearity."""
        group = next(g for g in self.node.op.linear_groups(len(self.args)) if set(self.varying) <= set(g))
        if all(k in self.varying for k in group):
            return None
        given = [torch.zeros(a, dtype=torch.float64) if isinstance(a, tuple) else a for a in self.args]
        value: Tensor = apply(self.node.op, *given, **self.node.params)
        return value.detach()[None]

    def pulled(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        """The cotangents of the sources, for objectives (boxes, rows, *shape)."""
        if self.factors is not None:
            return [a if f is None else a * f for f in self.factors]
        if self.thin is not None:
            (shape,) = (self.args[k] for k in self.varying)
            return [self.thin.pulled(a.reshape(*a.shape[:2], -1)).reshape(*a.shape[:2], *shape)]
        return self.dense(a)

    def dense(self, a: Tensor) -> list[Tensor]:
        """By the operator's own rule, whatever its weights are."""
        cotangents = torch.func.vmap(self.pull)(a.flatten(0, 1))
        return [g.reshape(a.shape[:2] + g.shape[1:]) for g in cotangents]

    def back(self, a: Tensor, known: BoundContext) -> BackwardBound:
        return BackwardBound(self.pulled(a, known.fast), 0.0 if self.constant is None else rows_dot(a, self.constant))


class BoundConv(BoundLinear):
    """conv or conv_transpose of what varies with constant weights, by the fastest way."""

    @cached_property
    def convolution(self) -> Convolution:
        return self.over(self.node.params["window"])

    def over(self, window: Window) -> Convolution:
        """The same weights over another window."""
        return Convolution(self.args[1].double(), window, self.node.params["groups"])

    @cached_property
    def in_single(self) -> bool:
        """Whether objectives go through in float32 where that is allowed."""
        return self.convolution.way(True) == "single"

    @property
    def single_roundings(self) -> int:
        return self.convolution.terms + slack_constants.SINGLE_OWN

    @property
    def is_transposed(self) -> bool:
        return self.node.op is CONV_TRANSPOSE

    def moved(self, convolution: Convolution, a: Tensor, fast: bool) -> Tensor:
        """Objectives (rows, channels, *cells) through the convolution, or a part of it."""
        single = fast and self.in_single
        return convolution.forward(a, single) if self.is_transposed else convolution.adjoint(a, single)

    def pulled(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        rank = self.node.params["window"].rank
        rows = a.reshape(-1, *a.shape[a.ndim - rank - 1 :])  # leading axes of the node are rows too
        moved = self.moved(self.convolution, rows, fast)
        return [moved.reshape(*a.shape[: a.ndim - rank - 1], *moved.shape[1:])]


class BoundIdentity(BoundLinear):
    """stop_gradient, which has no derivative of its own; a maximum over no axes."""

    constant = None
    factors = None

    def pulled(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        return [a]


def adjoint(op: Op, args: Sequence[Any], params: Params, shape: Shape, wanted: Sequence[int]) -> Callable[..., Any]:
    """The cotangents of the arguments `wanted` as a function of gy alone: the operator's own rule, and nothing else.

    args: a shape per argument that varies (a linear map's cotangents do not read them), a tensor or a number else.
    """
    names = tuple(params)
    kinds = tuple(_Constant(tuple(a.shape), a.dtype.is_floating_point) if isinstance(a, Tensor) else a for a in args)
    graph = cotangent_graph(op, kinds, names, tuple(params[n] for n in names), shape, tuple(wanted))
    given = {f"x{k}": a for k, a in enumerate(args) if isinstance(a, Tensor)}
    names_of = {i: n.name for i, n in enumerate(graph.nodes) if n.name in given or n.name == "gy"}

    def pull(g: Tensor) -> tuple[Tensor, ...]:
        results = evaluate(graph, {i: g if name == "gy" else given[name] for i, name in names_of.items()})
        return tuple(results[p] for p in graph.outputs)

    return pull


class _Constant(NamedTuple):
    shape: Shape
    real: bool


@lru_cache(maxsize=4096)
def cotangent_graph(
    op: Op, kinds: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...], shape: Shape, wanted: Shape
) -> Graph:
    """gy -> the cotangents of the arguments that are wanted; kinds are shapes, constants and numbers.

    It does not depend on what a constant is, so networks with the same layers share it, and so do calls.
    """
    t = GraphBuilder(share=True)

    def entered(k: int, a: Any) -> Any:
        if isinstance(a, _Constant):
            return t.leaf(f"x{k}", a.shape, "real" if a.real else "index")
        return t.leaf(f"x{k}", a) if isinstance(a, tuple) else a

    args = [entered(k, a) for k, a in enumerate(kinds)]
    y, gy = t.leaf("y", shape), t.leaf("gy", shape)
    cotangents = op.cotangents(gy, y, args, dict(zip(names, values, strict=True)))
    return t.freeze(("gy",), (gy,), tuple(cotangents[k] for k in wanted), False)


# --- relaxed --------------------------------------------------------------------------------------------------------


def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """The parts that take the lower and the upper line."""
    positive = a.clamp(min=0)
    return positive, a - positive


class BoundRelaxed(BoundLayer):
    """Between two lines of its only source."""

    def lines(self, ends: Ends, left: Tensor | None = None) -> LinearRelaxation:
        """On a box; of a maximum, `left` says which taps may win, (taps, boxes, *shape)."""
        raise NotImplementedError

    def through(self, slope: Tensor, v: Tensor) -> Tensor:
        """abs(slope).v: what an error of at most v in the source can do to a line."""
        return slope.abs() * v

    def back(self, a: Tensor, known: BoundContext) -> BackwardBound:
        lines = known.lines(self.position)
        return self.between(a, lines)

    def between(self, a: Tensor, lines: LinearRelaxation) -> BackwardBound:
        """A.y for a y between two lines: the lower one where A >= 0, the upper one elsewhere."""
        return BackwardBound([self.spread(*split(a), lines)], *within(a, lines.lower, lines.upper))

    def parallel(self, lines: LinearRelaxation, ends: Ends) -> LinearRelaxation:
        """The same with one slope for both lines."""
        return relax.parallel(lines, *(self.read(end) for end in ends))

    def read(self, x: Tensor) -> Tensor:
        """What every cell reads of its source, (boxes, *shape), or with an axis of taps in front."""
        return x

    def spread(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        return torch.addcmul(positive * lines.lower_slope.unsqueeze(1), negative, lines.upper_slope.unsqueeze(1))


class BoundUnary(BoundRelaxed):
    """A function of one cell."""

    def between(self, a: Tensor, lines: LinearRelaxation) -> BackwardBound:
        """Slopes too by the middle of both and half of what is between them, which is cheaper."""
        down, low, up, high = lines
        pulled = a * ((down + up) / 2).unsqueeze(1)
        return BackwardBound([pulled.addcmul_(a.abs(), ((down - up) / 2).unsqueeze(1))], *within(a, low, high))

    def parallel(self, lines: LinearRelaxation, ends: Ends) -> LinearRelaxation:
        """relu(x) >= slope*x for every slope from 0 to 1: so the chord's serves for both."""
        if self.node.op.name == "relu":
            return lines._replace(lower_slope=lines.upper_slope)
        return super().parallel(lines, ends)

    def lines(self, ends: Ends, left: Tensor | None = None) -> LinearRelaxation:
        if self.node.op.name == "relu":
            return relax.relu(*ends)
        curve, params = self.node.op.curve, self.node.params
        assert curve is not None  # what classify looks at
        bent = None if curve.curvature is None else curve.curvature(torch, *ends, params)
        lines = relax.hull(lambda x: apply(self.node.op, x, **params), *ends, curve.kinks(params), bent)
        return lines if curve.peak is None else relax.within_unit(lines, *ends)


class BoundSelect(BoundRelaxed):
    """select(c, x, 0), as derivatives have it: x where the condition surely holds, 0 where it surely does not.

    Where it is open the value is x or 0, so it lies between them.
    """

    def __init__(self, position: int, node: Node, source: int, keeps: Array, drops: Array) -> None:
        super().__init__(position, node, (source,))
        self.keeps, self.drops = tensor(keeps), tensor(drops)

    def lines(self, ends: Ends, left: Tensor | None = None) -> LinearRelaxation:
        relaxation = relax.gate(*ends)
        slopes = [torch.where(self.keeps, 1.0, torch.where(self.drops, 0.0, s)) for s in relaxation[::2]]
        offsets = [torch.where(self.keeps | self.drops, 0.0, c) for c in relaxation[1::2]]
        return LinearRelaxation(slopes[0], offsets[0], slopes[1], offsets[1])


class BoundMaxPool(BoundRelaxed):
    """The largest (or smooth largest) tap of every window; with_zero: 0 is one more tap, for a relu before it.

    Lines have an axis of taps in front.
    """

    def __init__(self, position: int, node: Node, source: int, window: Window, with_zero: bool) -> None:
        super().__init__(position, node, (source,))
        self.window, self.with_zero = window, with_zero
        self.gaps: relax.Gaps | None = None  # where known, (taps, boxes, *lead, *out)

    @cached_property
    def index(self) -> Tensor:
        """(taps, *out): the flat cell of every tap; one past the last for a padded one."""
        cells = math.prod(self.window.size)
        position = np.arange(cells).reshape(self.window.size)
        index = np.full((self.window.taps_count, *self.window.out), cells)
        for tap in self.window.taps():
            tap.write_outputs(index[self.window.number(tap.position)], tap.read_inputs(position))
        return torch.from_numpy(index)

    def read(self, x: Tensor) -> Tensor:
        """(boxes, *lead, *size) as (taps, boxes, *lead, *out); 0 at padded taps."""
        flat = x.flatten(x.ndim - self.window.rank)
        wide = torch.nn.functional.pad(flat, (0, 1))
        taps: Tensor = wide[..., self.index.flatten()].reshape(flat.shape[:-1] + self.index.shape)
        return taps.movedim(taps.ndim - 1 - self.window.rank, 0)

    def inside(self, read: Tensor) -> Tensor:
        """Which of the cells that were read are cells of the input, in the shape of `read`."""
        bare = self.index < math.prod(self.window.size)
        return bare.view(len(bare), *(1,) * (read.ndim - bare.ndim), *bare.shape[1:]).expand(read.shape)

    def through(self, slope: Tensor, v: Tensor) -> Tensor:
        return (slope.abs() * self.read(v)).sum(0)

    def lines(self, ends: Ends, left: Tensor | None = None) -> LinearRelaxation:
        low, high = (self.read(end) for end in ends)
        if left is not None:
            low, high = (t.expand(left.shape) for t in (low, high))
        inside = self.inside(low) if left is None else self.inside(low) & left
        if self.node.op.name == "smooth_max_pool":
            missing = (~inside).sum(0) * (self.node.params["padded"] == "zero")
            return relax.smooth_largest(low, high, inside, missing, float(self.node.params["beta"]))
        gaps = self.gaps and relax.Gaps(*(g.expand(len(g), *low.shape[1:]) for g in self.gaps))
        if self.with_zero:
            gaps = gaps and gaps.with_zero(low, high)
            low, high = (torch.cat([t, torch.zeros_like(t[:1])]) for t in (low, high))
            inside = torch.cat([inside, torch.ones_like(inside[:1])])
        lines = relax.largest(low, high, inside) if gaps is None else relax.largest_by_gaps(low, high, inside, gaps)
        taps = self.window.taps_count
        return lines._replace(lower_slope=lines.lower_slope[:taps], upper_slope=lines.upper_slope[:taps])

    def spread(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        """Tap by tap into the cells that the windows read: the transpose of `read`."""
        boxes = max(len(positive), lines.lower_slope.shape[1])
        total = positive.new_zeros((boxes, *positive.shape[1 : positive.ndim - self.window.rank], *self.window.size))
        for tap in self.window.taps():
            at = self.window.number(tap.position)
            down, up = (tap.read_outputs(s[at].unsqueeze(1)) for s in (lines.lower_slope, lines.upper_slope))
            part = torch.addcmul(tap.read_outputs(positive) * down, tap.read_outputs(negative), up)
            tap.add_to_inputs(total, part)
        return total


class BoundReduceMax(BoundRelaxed):
    """The largest cell over whole axes: every cell is a tap."""

    def __init__(self, position: int, node: Node, source: int, shape: Shape) -> None:
        super().__init__(position, node, (source,))
        self.shape, self.axes = shape, node.params["axes"]

    def read(self, x: Tensor) -> Tensor:
        """(boxes, *shape) as (taps, boxes, *rest)."""
        front = tuple(range(len(self.axes)))
        return x.movedim(tuple(a + 1 for a in self.axes), front).flatten(0, len(self.axes) - 1)

    def through(self, slope: Tensor, v: Tensor) -> Tensor:
        return (slope.abs() * self.read(v)).sum(0)

    def lines(self, ends: Ends, left: Tensor | None = None) -> LinearRelaxation:
        low, high = (self.read(end) for end in ends)
        left = torch.ones_like(low) > 0 if left is None else left
        return relax.largest(low.expand(left.shape), high.expand(left.shape), left)

    def spread(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        part = positive * lines.lower_slope.unsqueeze(2) + negative * lines.upper_slope.unsqueeze(2)
        whole = part.reshape(tuple(self.shape[a] for a in self.axes) + part.shape[1:])
        return whole.movedim(tuple(range(len(self.axes))), tuple(a + 2 for a in self.axes))
