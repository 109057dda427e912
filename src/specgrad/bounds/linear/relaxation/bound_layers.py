"""A graph as backward bound propagation sees it: which nodes vary, which are linear, which need a relaxation.

For an objective A.y of a node y = f(x) a layer gives an objective of x and a constant with A.f(x) >= A'.x + c:

    linear             A' is the operator's own cotangent rule, with the objectives as leading axes (torch.func.vmap)
    cell, gate, taps   A' takes the lower line where A >= 0 and the upper one elsewhere (formulas.py)
    joint              several sources: a product, the larger of two, a value put at an open position (multi_input.py)
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
from specgrad.graph.ir.node import evaluate
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

Interval = tuple[Tensor, Tensor]


def tensor(x: Array) -> Tensor:
    """Return a copy of a NumPy array as a tensor."""
    return torch.from_numpy(np.array(x))


def rows_dot(a: Tensor, v: Tensor) -> Tensor:
    """Dot product of a (boxes, rows, *shape) with v (boxes, *shape), either with 1 box: (boxes, rows)."""
    cells = math.prod(v.shape[1:])
    flat, column = a.reshape(*a.shape[:2], cells), v.reshape(v.shape[0], cells, 1)
    if flat.shape[0] == 1 and column.shape[0] > 1:
        return (flat[0] @ column[:, :, 0].T).T
    return (flat @ column).squeeze(-1)


class Centre(NamedTuple):
    """A point of what a convolution reads, about which float32 objectives are kept: each (1, *shape).

    An objective A of y = W.x + b becomes A' in float32, off by E = W^T.A - A', which adds E.x. Of x = middle + d the
    part E.middle = A.image - A'.middle is known, and added; only E.d is lost.

    middle   the point, inside the box of x
    image    W.middle
    reach    abs(W) of the largest abs(d)
    """

    middle: Tensor
    image: Tensor
    reach: Tensor

    def part(self, a: Tensor, pulled: Tensor) -> Tensor:
        """Return E.middle, (boxes, rows), for the coefficients `a` of y and `pulled` of x."""
        return rows_dot(a, self.image) - rows_dot(pulled, self.middle)


class BoundContext(Protocol):
    """What a layer may ask for during the backward pass: intervals, relaxations and undecided taps of nodes."""

    @property
    def fast(self) -> bool:
        """Whether coefficients may be propagated in float32; the rounding is charged."""

    def centre(self, i: int) -> Centre | None:
        """The point about which objectives of convolution i are kept; None where they go through it in float64."""

    def interval(self, i: int) -> Interval:
        """(lower, upper) of node i, each (boxes, *shape)."""

    def relaxation(self, i: int) -> LinearRelaxation:
        """The two lines that node i lies between, errors included."""

    @property
    def candidate_taps(self) -> Mapping[int, Tensor]:
        """Taps that may win, bool (taps, boxes, *shape), by the position of a split maximum; all may where it is
        missing.
        """


class BackwardBound(NamedTuple):
    """A.f(x) >= sum of coefficients.x + constant - lost: coefficients per source, constant and lost (boxes, rows).

    Where a layer lies between parallel lines, nothing but `lost` depends on the sign of A, so that
    A.f(x) <= sum of coefficients.x + constant + lost as well: see State.parallel.
    """

    coefficients: list[Tensor]
    constant: Tensor | float
    lost: Tensor | float = 0.0


def bound_over_interval(a: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(constant, lost), each (boxes, rows), of a.v for low <= v <= high: a.middle, and abs(a) times half the width."""
    return rows_dot(a, low / 2 + high / 2), rows_dot(a.abs(), (high / 2 - low / 2) * slack_constants.MIDDLE)


@dataclass(eq=False)
class BoundLayer:
    """Base class: how backward bounds pass one varying node, at `position` in the graph; `sources` are the varying
    nodes that it reads.
    """

    position: int
    node: Node
    sources: tuple[int, ...]

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return A' of every source and c with A.f(x) >= A'.x + c on the box, for coefficients A = a (boxes, rows,
        *shape).
        """
        raise NotImplementedError


class BoundOpaque(BoundLayer):
    """An input, or an operator without a relaxation: bounded by its own interval, no coefficients for its sources.

    cellwise   what is known of a cell does not depend on the others
    """

    cellwise = True

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.y by the node's own interval: no coefficients of sources, (constant, lost) of each
        (boxes, rows).
        """
        low, high = context.interval(self.position)
        return BackwardBound([], *bound_over_interval(a, low, high))


class BoundJoint(BoundLayer):
    """Base class of layers with several sources, or with a relaxation that depends on the objective itself."""


# --- linear ---------------------------------------------------------------------------------------------------------


class BoundLinear(BoundLayer):
    """A layer that is jointly linear in its varying sources, the other arguments being constant.

    `args`: a shape per argument that varies, a tensor or a number per constant one; position, node and sources as in
    `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], args: Sequence[Any]) -> None:
        super().__init__(position, node, sources)
        self.args = args
        self.varying = [k for k, a in enumerate(args) if isinstance(a, tuple)]

    @cached_property
    def adjoint_fn(self) -> Callable[[Tensor], tuple[Tensor, ...]]:
        """Function from one cotangent (*shape) to the cotangents of the sources."""
        return make_adjoint(self.node.op, self.args, self.node.params, self.node.shape, self.varying)

    @cached_property
    def factors(self) -> list[Tensor | None] | None:
        """Per source the factor of an elementwise map, (1, *shape), None for 1; None if the layer is
        not elementwise.
        """
        if self.node.op.receptive_field is not cellwise or any(self.args[k] != self.node.shape for k in self.varying):
            return None
        ones = self.adjoint_fn(torch.ones(self.node.shape, dtype=torch.float64))
        return [None if bool((g == 1).all()) else g.detach()[None] for g in ones]

    @property
    def node_cells(self) -> int:
        """Number of cells of the node."""
        return math.prod(self.node.shape)

    @cached_property
    def matrix(self) -> Tensor:
        """The layer as a matrix (cells, cells of its only source); exact, every entry being a single term."""
        one = torch.eye(self.node_cells, dtype=torch.float64).reshape(1, -1, *self.node.shape)
        return BoundLinear.dense(self, one)[0].detach().reshape(self.node_cells, math.prod(self.args[self.varying[0]]))

    @cached_property
    def sparse(self) -> SparseMatrix | None:
        """The layer's matrix in sparse form; None unless it is a small contraction of mostly zero weights."""
        weights = next((a for a in self.args if isinstance(a, Tensor)), None)
        if (
            self.node.op is not CONTRACT
            or weights is None
            or max(weights.numel(), self.node_cells**2) > thin.MAX_WEIGHTS
        ):
            return None
        return thin.sparse_of(self.matrix) if float((weights != 0).double().mean()) < thin.MAX_READER_SHARE else None

    @cached_property
    def constant(self) -> Tensor | None:
        """The layer's value (1, *shape) where every source is 0; None if that is 0 by linearity."""
        group = next(g for g in self.node.op.linear_groups(len(self.args)) if set(self.varying) <= set(g))
        if all(k in self.varying for k in group):
            return None
        given = [torch.zeros(a, dtype=torch.float64) if isinstance(a, tuple) else a for a in self.args]
        value: Tensor = apply(self.node.op, *given, **self.node.params)
        return value.detach()[None]

    def adjoint(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        """Coefficients of every source for coefficients `a` (boxes, rows, *shape) of the node, by the fastest rule.

        `fast` allows float32 in convolutions.
        """
        if self.factors is not None:
            return [a if f is None else a * f for f in self.factors]
        if self.sparse is not None:
            (shape,) = (self.args[k] for k in self.varying)
            return [self.sparse.adjoint(a.reshape(*a.shape[:2], -1)).reshape(*a.shape[:2], *shape)]
        return self.dense(a)

    def dense(self, a: Tensor) -> list[Tensor]:
        """Coefficients of every source for coefficients `a` (boxes, rows, *shape), by the operator's own cotangent
        rule.
        """
        cotangents = torch.func.vmap(self.adjoint_fn)(a.flatten(0, 1))
        return [g.reshape(a.shape[:2] + g.shape[1:]) for g in cotangents]

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the adjoint's coefficients of every source, and a.constant, for coefficients `a` (boxes, rows,
        *shape): exact, as the layer is linear.
        """
        pulled, centre = self.adjoint(a, context.fast), context.centre(self.position)
        constant: Tensor | float = 0.0 if self.constant is None else rows_dot(a, self.constant)
        return BackwardBound(pulled, constant if centre is None else constant + centre.part(a, pulled[0]))


class BoundConv(BoundLinear):
    """conv or conv_transpose of a varying input with constant weights, by the fastest method."""

    @cached_property
    def convolution(self) -> Convolution:
        """The convolution over the node's own window."""
        return self.with_window(self.node.params["window"])

    def with_window(self, window: Window) -> Convolution:
        """Return the convolution with the same weights over another window."""
        return Convolution(self.args[1].double(), window, self.node.params["groups"])

    @cached_property
    def uses_float32(self) -> bool:
        """Whether coefficients are propagated in float32 when that is allowed (State.fast)."""
        return self.convolution.way(True) == "single"

    def image(self, x: Tensor) -> Tensor:
        """Return W.x (1, *shape) of the input x (1, *its shape), without the bias, in float64."""
        rank = self.node.params["window"].rank
        rows = x.reshape(-1, *x.shape[x.ndim - rank - 1 :])
        moved = self.convolution.adjoint(rows, False) if self.is_transposed else self.convolution.forward(rows, False)
        return moved.reshape(1, *self.node.shape)

    @property
    def float32_roundings(self) -> int:
        """Number of float32 roundings that a term of the adjoint can meet."""
        return self.convolution.terms + slack_constants.SINGLE_OWN

    @property
    def is_transposed(self) -> bool:
        """Whether the node is a transposed convolution."""
        return self.node.op is CONV_TRANSPOSE

    def map_objectives(self, convolution: Convolution, a: Tensor, fast: bool) -> Tensor:
        """Return the coefficients of the input for coefficients `a` (rows, channels, *cells) of the output, by
        `convolution` or part of it.

        `fast` allows float32; `uses_float32` says whether that is then used.
        """
        single = fast and self.uses_float32
        return convolution.forward(a, single) if self.is_transposed else convolution.adjoint(a, single)

    def adjoint(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        """Coefficients of the input, in a list, for coefficients `a` (boxes, rows, *shape) of the convolution's
        outputs; in float32 if `fast`.
        """
        rank = self.node.params["window"].rank
        rows = a.reshape(-1, *a.shape[a.ndim - rank - 1 :])  # leading axes of the node are rows too
        moved = self.map_objectives(self.convolution, rows, fast)
        return [moved.reshape(*a.shape[: a.ndim - rank - 1], *moved.shape[1:])]


class BoundIdentity(BoundLinear):
    """An identity map: stop_gradient, which has no derivative of its own, or a maximum over no axes."""

    constant = None
    factors = None

    def adjoint(self, a: Tensor, fast: bool = False) -> list[Tensor]:
        """Coefficients of the source, in a list: those of the node, `a`, unchanged; `fast` changes nothing."""
        return [a]


def make_adjoint(
    op: Op, args: Sequence[Any], params: Params, shape: Shape, wanted: Sequence[int]
) -> Callable[..., Any]:
    """Return the function gy -> cotangents of the arguments `wanted`, by the operator's own rule for a linear map.

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
    """A constant argument of a layer: its `shape`, and whether it is `real` (else an index)."""

    shape: Shape
    real: bool


@lru_cache(maxsize=4096)
def cotangent_graph(
    op: Op, kinds: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...], shape: Shape, wanted: Shape
) -> Graph:
    """Graph from gy to the cotangents of the arguments `wanted`; `kinds` are shapes, constants and numbers. Cached.

    `names` and `values` are the operator's parameters, `shape` is that of its result.

    It does not depend on what a constant is, so networks with the same layers share it, and so do calls.
    """
    t = GraphBuilder(share=True)

    def entered(k: int, a: Any) -> Any:
        """Leaf of argument k in the graph, or the number itself."""
        if isinstance(a, _Constant):
            return t.leaf(f"x{k}", a.shape, "real" if a.real else "index")
        return t.leaf(f"x{k}", a) if isinstance(a, tuple) else a

    args = [entered(k, a) for k, a in enumerate(kinds)]
    y, gy = t.leaf("y", shape), t.leaf("gy", shape)
    cotangents = op.cotangents(gy, y, args, dict(zip(names, values, strict=True)))
    return t.freeze(("gy",), (gy,), tuple(cotangents[k] for k in wanted), False)


# --- relaxed --------------------------------------------------------------------------------------------------------


def positive_negative(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return coefficients split into max(a, 0) and min(a, 0): those that take the lower and the upper line."""
    positive = a.clamp(min=0)
    return positive, a - positive


class BoundRelaxed(BoundLayer):
    """Base class of layers that lie between two lines of their only source."""

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Two lines around the layer on a box; `candidate_taps` (taps, boxes, *shape) says which taps of a maximum may
        win.

        `ends` are (lower, upper) bounds of the source.
        """
        raise NotImplementedError

    def error_through(self, slope: Tensor, v: Tensor) -> Tensor:
        """Effect on a line of an error of at most v in the source: abs(slope).v, summed over taps."""
        return slope.abs() * v

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.y for coefficients `a` (boxes, rows, *shape) by the two lines that `context` has for
        the node.
        """
        lines = context.relaxation(self.position)
        return self.bound_between_lines(a, lines)

    def bound_between_lines(self, a: Tensor, lines: LinearRelaxation) -> BackwardBound:
        """Bound a.y for y between two lines: the lower one where a >= 0, the upper one elsewhere. `a` is (boxes, rows,
        *shape).
        """
        return BackwardBound(
            [self.source_coefficients(*positive_negative(a), lines)], *bound_over_interval(a, lines.lower, lines.upper)
        )

    def parallel(self, lines: LinearRelaxation, ends: Interval) -> LinearRelaxation:
        """Return a relaxation whose two lines have one slope, from `lines` on the box `ends`, the source's (lower,
        upper) bounds.
        """
        return relax.parallel(lines, *(self.read(end) for end in ends))

    def read(self, x: Tensor) -> Tensor:
        """Values of the source that every cell reads, (boxes, *shape), or with an axis of taps in front."""
        return x

    def source_coefficients(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        """Coefficients of the source, positive*lower_slope + negative*upper_slope, (boxes, rows, *shape of the source).

        `positive` and `negative` are the parts of the node's coefficients by sign, `lines` its relaxation.
        """
        return torch.addcmul(positive * lines.lower_slope.unsqueeze(1), negative, lines.upper_slope.unsqueeze(1))


class BoundUnary(BoundRelaxed):
    """A nonlinear function of one cell, applied to every cell."""

    def bound_between_lines(self, a: Tensor, lines: LinearRelaxation) -> BackwardBound:
        """Bound a.y for y between two lines by the middle slope and half the difference of both, which is cheaper. `a`
        is (boxes, rows, *shape).
        """
        down, low, up, high = lines
        pulled = a * ((down + up) / 2).unsqueeze(1)
        return BackwardBound(
            [pulled.addcmul_(a.abs(), ((down - up) / 2).unsqueeze(1))], *bound_over_interval(a, low, high)
        )

    def parallel(self, lines: LinearRelaxation, ends: Interval) -> LinearRelaxation:
        """Parallel lines; of relu with the chord's slope, since relu(x) >= slope*x for every slope in 0..1.

        `ends` are (lower, upper) bounds of the source.
        """
        if self.node.op.name == "relu":
            return lines._replace(lower_slope=lines.upper_slope)
        return super().parallel(lines, ends)

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two lines around the function on the box `ends`: relu's own, else a hull by kinks and curvature.

        `candidate_taps` is not used.
        """
        if self.node.op.name == "relu":
            return relax.relu(*ends)
        curve, params = self.node.op.curve, self.node.params
        assert curve is not None  # what classify looks at
        bent = None if curve.curvature is None else curve.curvature(torch, *ends, params)
        lines = relax.hull(lambda x: apply(self.node.op, x, **params), *ends, curve.kinks(params), bent)
        return lines if curve.peak is None else relax.within_unit(lines, *ends)


class BoundSelect(BoundRelaxed):
    """select(c, x, 0), as in derivatives: x where c surely holds, 0 where it surely does not, else between x and 0.

    Where it is open the value is x or 0, so it lies between them. `keeps` and `drops` are the masks of both; x is the
    node `source`.
    """

    def __init__(self, position: int, node: Node, source: int, keeps: Array, drops: Array) -> None:
        super().__init__(position, node, (source,))
        self.surely_selected, self.surely_zero = tensor(keeps), tensor(drops)

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two lines around select(c, x, 0) on the box `ends`: x where it is surely selected, 0 where surely not,
        else both.

        `candidate_taps` is not used.
        """
        relaxation = relax.gate(*ends)
        slopes = [
            torch.where(self.surely_selected, 1.0, torch.where(self.surely_zero, 0.0, s)) for s in relaxation[::2]
        ]
        offsets = [torch.where(self.surely_selected | self.surely_zero, 0.0, c) for c in relaxation[1::2]]
        return LinearRelaxation(slopes[0], offsets[0], slopes[1], offsets[1])


class BoundMaxPool(BoundRelaxed):
    """The largest (or smooth largest) tap of every window; with_zero: 0 is one more tap, for a relu merged into it.

    Lines have an axis of taps in front. The node `source` is pooled by `window`.
    """

    def __init__(self, position: int, node: Node, source: int, window: Window, with_zero: bool) -> None:
        super().__init__(position, node, (source,))
        self.window, self.with_zero = window, with_zero
        self.gaps: relax.Gaps | None = None  # where known, (taps, boxes, *lead, *out)

    @cached_property
    def index(self) -> Tensor:
        """Flat input cell of every tap, (taps, *out); one past the last cell for a padded tap."""
        cells = math.prod(self.window.size)
        position = np.arange(cells).reshape(self.window.size)
        index = np.full((self.window.taps_count, *self.window.out), cells)
        for tap in self.window.taps():
            tap.write_outputs(index[self.window.number(tap.position)], tap.read_inputs(position))
        return torch.from_numpy(index)

    def read(self, x: Tensor) -> Tensor:
        """Return what the taps of every window read from x: (taps, boxes, *lead, *out), 0 at padded taps.

        `x` holds values of the pooled node, (boxes, *lead, *size). The tap 0 of `with_zero` is not among the taps here.
        """
        flat = x.flatten(x.ndim - self.window.rank)
        wide = torch.nn.functional.pad(flat, (0, 1))
        taps: Tensor = wide[..., self.index.flatten()].reshape(flat.shape[:-1] + self.index.shape)
        return taps.movedim(taps.ndim - 1 - self.window.rank, 0)

    def inside(self, read: Tensor) -> Tensor:
        """Bool mask in the shape of `read`: whether a tap is a cell of the input, not padding."""
        bare = self.index < math.prod(self.window.size)
        return bare.view(len(bare), *(1,) * (read.ndim - bare.ndim), *bare.shape[1:]).expand(read.shape)

    def error_through(self, slope: Tensor, v: Tensor) -> Tensor:
        """Effect on a line of an error of at most v in the source: abs(slope) times v, summed over taps."""
        return (slope.abs() * self.read(v)).sum(0)

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two planes around the (smooth) maximum of each window on the box `ends`; gaps between taps are used if
        known.

        `candidate_taps` (taps, boxes, *shape) says which taps may win; None: all inside the array.
        """
        low, high = (self.read(end) for end in ends)
        if candidate_taps is not None:
            low, high = (t.expand(candidate_taps.shape) for t in (low, high))
        inside = self.inside(low) if candidate_taps is None else self.inside(low) & candidate_taps
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

    def source_coefficients(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        """Coefficients of the source: scatter-add of every tap's slopes, the transpose of `read`.

        `positive` and `negative` are the parts of the node's coefficients by sign, `lines` its relaxation.
        """
        boxes = max(len(positive), lines.lower_slope.shape[1])
        total = positive.new_zeros((boxes, *positive.shape[1 : positive.ndim - self.window.rank], *self.window.size))
        for tap in self.window.taps():
            at = self.window.number(tap.position)
            down, up = (tap.read_outputs(s[at].unsqueeze(1)) for s in (lines.lower_slope, lines.upper_slope))
            part = torch.addcmul(tap.read_outputs(positive) * down, tap.read_outputs(negative), up)
            tap.add_to_inputs(total, part)
        return total


class BoundReduceMax(BoundRelaxed):
    """The largest cell over whole axes (amax): every cell along them is a tap.

    The node `source`, of this `shape`, is reduced.
    """

    def __init__(self, position: int, node: Node, source: int, shape: Shape) -> None:
        super().__init__(position, node, (source,))
        self.shape, self.axes = shape, node.params["axes"]

    def read(self, x: Tensor) -> Tensor:
        """Return x with the reduced axes in front, as one: (boxes, *shape) to (taps, boxes, *rest)."""
        front = tuple(range(len(self.axes)))
        return x.movedim(tuple(a + 1 for a in self.axes), front).flatten(0, len(self.axes) - 1)

    def error_through(self, slope: Tensor, v: Tensor) -> Tensor:
        """Effect on a line of an error of at most v in the source: abs(slope) times v, summed over the reduced
        cells.
        """
        return (slope.abs() * self.read(v)).sum(0)

    def relaxation(self, ends: Interval, candidate_taps: Tensor | None = None) -> LinearRelaxation:
        """Return two planes around the maximum over axes on the box `ends`; `candidate_taps` (taps, boxes, *shape) may
        win, None: all.
        """
        low, high = (self.read(end) for end in ends)
        candidate_taps = torch.ones_like(low) > 0 if candidate_taps is None else candidate_taps
        return relax.largest(low.expand(candidate_taps.shape), high.expand(candidate_taps.shape), candidate_taps)

    def source_coefficients(self, positive: Tensor, negative: Tensor, lines: LinearRelaxation) -> Tensor:
        """Coefficients of the source: slopes of `lines` times the node's `positive` and `negative` coefficients, moved
        back to the reduced axes.
        """
        part = positive * lines.lower_slope.unsqueeze(2) + negative * lines.upper_slope.unsqueeze(2)
        whole = part.reshape(tuple(self.shape[a] for a in self.axes) + part.shape[1:])
        return whole.movedim(tuple(range(len(self.axes))), tuple(a + 2 for a in self.axes))
