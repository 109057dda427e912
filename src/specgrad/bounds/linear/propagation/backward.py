"""From an objective down to the inputs: A.y >= A'.x + c, layer by layer, with everything that rounding can add.

A deployed layer computes y = f(x) + e with abs(e) <= E on the whole box: that costs abs(A).E. Our own float64 roundings
are bounded the same way: a term of layer y meets at most `own` of them, so abs(A).M*own with M = f on absolute values.
Where y is read through two lines both move into the lines' offsets, abs(slope)*(E + M*own), and cost nothing per row.

`state` is what the pass knows of every node (`State`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from specgrad.deadline import check_time
from specgrad.rounding import slack_constants

from ..relaxation.bound_layers import (
    BoundConv,
    BoundJoint,
    BoundLayer,
    BoundLinear,
    BoundOpaque,
    BoundRelaxed,
    BoundUnary,
    Centre,
    Interval,
    rows_dot,
)
from ..relaxation.formulas import LinearRelaxation
from .budget import ComputeBudget
from .duplicate_relus import DuplicateFold, DuplicateRelus, find_duplicates, make_fold

Objective = TypeVar("Objective")
SUMS = slack_constants.SUMS


@dataclass(eq=False)
class ObjectiveParts:
    """Coefficients of one node's value in the objective, each (boxes, rows, *shape) or None, by who pays for its
    rounding:

    absorbed       reached through a relaxation or an elementwise map, whose own offsets hold the node's error
    kernel_output  reached by a kernel that reads the stored value: error E and our own rounding are still to be charged
    kernel_inner   reached by a kernel that contains the node: E is charged there, only our own rounding is left
    """

    absorbed: Tensor | None = None
    kernel_output: Tensor | None = None
    kernel_inner: Tensor | None = None

    def add(self, kind: str, a: Tensor) -> None:
        """Add coefficients `a` to the field named `kind`."""
        old = getattr(self, kind)
        setattr(self, kind, a if old is None else old + a)

    @property
    def unabsorbed(self) -> Tensor | None:
        """Coefficients whose rounding has not been charged yet (kernel_output + kernel_inner); None if there
        are none.
        """
        return plus(self.kernel_output, self.kernel_inner)

    @property
    def total(self) -> Tensor:
        """All coefficients of the node, (boxes, rows, *shape)."""
        whole = plus(self.unabsorbed, self.absorbed)
        assert whole is not None
        return whole


def times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Product a*b of two optional tensors, None standing for 1."""
    return b if a is None else a if b is None else a * b


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return the sum a + b of two optional tensors, None standing for 0."""
    return b if a is None else a if b is None else a + b


class Chain(NamedTuple):
    """A run of elementwise linear maps, each read only by the next, merged into one map.

    a.y = (a*factor).x + a.constant, x being the value of node `source`; None stands for 1 and for 0. Rounding of all
    its maps is charged at the first one (State.rounding_cost).

    inner        positions of the maps between the first one and `source`
    absorbed_as  the field of ObjectiveParts that the coefficients of `source` are added to
    """

    source: int
    inner: tuple[int, ...]
    absorbed_as: str
    factor: Tensor | None
    constant: Tensor | None


@dataclass(eq=False)
class State:
    """What the backward pass knows of every varying node, by the node's position in the graph.

    count               nodes of the graph
    layers              the bound layer of a node
    intervals           (lower, upper) of a node's reference value, each (boxes, *shape)
    errors              E: bound of the rounding error that a deployed execution adds at the layer, (1, *shape)
    sizes               M: the layer on absolute values, (1, *shape)
    merged              (source, user): a runtime may compute both in one kernel, so rounding is counted at the user
    slopes              lower slopes of relus to use in place of the default ones (alpha), (boxes, *shape)
    readers             how often a node is read, as an operand or an output
    candidate_taps      of split maxima: which taps may win, bool (taps, boxes, *shape)
    centres             of convolutions that may propagate in float32: the point about which objectives are kept
    underflow_losses    what float32 coefficients can lose at a convolution below the normal numbers
    fast                convolutions may propagate coefficients in float32
    parallel            both lines of every relaxation have one slope: one pass then gives lower and upper bounds
    budget              seconds and bytes that the work may take
    cached_relaxations  of a node, computed once
    cached_costs        `rounding_cost` of a node, computed once

    `chains`, `duplicates` and `folds` are computed once too, per node; None where a node has none.
    """

    count: int
    layers: dict[int, BoundLayer] = field(default_factory=dict)
    intervals: dict[int, Interval] = field(default_factory=dict)
    errors: dict[int, Tensor] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)
    merged: set[tuple[int, int]] = field(default_factory=set)
    cached_relaxations: dict[int, LinearRelaxation] = field(default_factory=dict)
    slopes: Mapping[int, Tensor] = field(default_factory=dict)
    readers: Mapping[int, int] = field(default_factory=dict)
    candidate_taps: Mapping[int, Tensor] = field(default_factory=dict)
    chains: dict[int, Chain | None] = field(default_factory=dict)
    cached_costs: dict[int, Tensor] = field(default_factory=dict)
    centres: dict[int, Centre] = field(default_factory=dict)
    underflow_losses: dict[int, float] = field(default_factory=dict)
    duplicates: dict[int, DuplicateRelus | None] = field(default_factory=dict)
    folds: dict[int, DuplicateFold | None] = field(default_factory=dict)
    fast: bool = False
    parallel: bool = False
    budget: ComputeBudget = field(default_factory=ComputeBudget)

    def with_float32_conv(self) -> State:
        """Return a copy that propagates through convolutions in float32 where that is much faster; known facts are
        shared.
        """
        return replace(self, fast=True, cached_relaxations={}, chains={}, cached_costs={}, folds={})

    def with_parallel_lines(self) -> State:
        """Return a copy whose relaxations have parallel lines; known facts are shared. Joint layers have no such
        relaxation.
        """
        return replace(self, parallel=True, cached_relaxations={}, chains={}, cached_costs={}, folds={})

    def truncated_at(self, stops: Iterable[int]) -> State:
        """Return a copy in which the nodes `stops` are opaque: the backward pass ends there with their intervals."""
        opaque = {i: BoundOpaque(i, self.layers[i].node, ()) for i in stops}
        return replace(self, layers={**self.layers, **opaque}, chains={}, cached_costs={}, folds={})

    def sources_below(self, i: int) -> set[int]:
        """Return the nodes that node i depends on, itself not among them."""
        below: set[int] = set()
        waiting = [i]
        while waiting:
            new = set(self.layers[waiting.pop()].sources) - below
            below |= new
            waiting += new
        return below

    def own_rounding(self, i: int) -> float:
        """Bound of the relative error of one of our terms at node i: roundings that it can meet, times their unit
        roundoff.
        """
        layer = self.layers[i]
        if self.fast and isinstance(layer, BoundConv) and layer.uses_float32:
            return layer.float32_roundings * slack_constants.SINGLE
        return self._float64_rounding(self.intervals[i][0][0].numel())

    def _float64_rounding(self, cells: int) -> float:
        """Bound of the relative error of a term of float64 sums over so many cells, twice, and over nodes."""
        return (2 * cells + self.count + slack_constants.OWN) * slack_constants.U

    def centre(self, i: int) -> Centre | None:
        """Return the point about which objectives are kept that go through convolution i in float32; None: in
        float64.
        """
        return self.centres.get(i) if self.fast else None

    def own_cost(self, i: int) -> Tensor:
        """Bound of what our own roundings at node i cost per unit of abs(A), (1, *shape).

        In float32 about a centre: float32's roundings of what is not known there, and float64's of two more dot
        products, over the cells of the node and of what it reads, and of an image: at most twice those of sums so long.
        """
        centre = self.centre(i)
        if centre is None:
            return self.own_rounding(i) * self.sizes[i]
        double = 2 * self._float64_rounding(centre.image.numel() + centre.middle.numel())
        return self.own_rounding(i) * centre.reach + double * self.sizes[i]

    def size(self, i: int) -> Tensor:
        """Largest absolute value of every cell of node i in its interval, (boxes, *shape)."""
        low, high = self.intervals[i]
        return torch.maximum(low.abs(), high.abs())

    def interval(self, i: int) -> Interval:
        """(lower, upper) of node i, each (boxes, *shape)."""
        return self.intervals[i]

    def rounding_cost(self, i: int) -> Tensor:
        """Rounding cost per unit of abs(A) at node i, (1, *shape): E + `own_cost`; 0 where a relaxation or interval
        holds it.

        A map of single cells y = f*x + ... pays for its sources too: abs(A*f).charge = abs(A).(abs(f)*charge).
        """
        if i not in self.cached_costs:
            self.cached_costs[i] = (
                sum(self.rounding_cost_by_node(i).values(), start=torch.zeros_like(self.errors[i])) * SUMS
            )
        return self.cached_costs[i]

    def rounding_cost_by_node(self, i: int) -> dict[int, Tensor]:
        """Summands of `rounding_cost(i)` by the node whose rounding they are for; empty for relaxed and
        opaque layers.
        """
        layer = self.layers[i]
        if isinstance(layer, BoundRelaxed | BoundOpaque):
            return {}
        charges = {i: self.errors[i] + self.own_cost(i)}
        for s, f in zip(layer.sources, (isinstance(layer, BoundLinear) and layer.factors) or (), strict=False):
            if self.absorbs_rounding_of(i, s):
                paid = self.rounding_cost_by_node(s)
                if (s, i) in self.merged:
                    paid[s] = self.own_cost(s)
                charges |= {j: v if f is None else v * f.abs() for j, v in paid.items()}
        return charges

    def absorbs_rounding_of(self, user: int, source: int) -> bool:
        """Return whether `user` is an elementwise linear map and the only reader of the linear layer `source`."""
        layer = self.layers[user]
        maps = isinstance(layer, BoundLinear) and layer.factors is not None
        return maps and isinstance(self.layers[source], BoundLinear) and self.readers.get(source) == 1

    def absorbed_by(self, source: int, user: int) -> str:
        """Return the field of ObjectiveParts for coefficients that `user` hands to `source`: who is charged for its
        rounding.
        """
        layer = self.layers[user]
        if isinstance(layer, BoundRelaxed) or self.absorbs_rounding_of(user, source):
            return "absorbed"
        return "kernel_inner" if isinstance(layer, BoundLinear) and (source, user) in self.merged else "kernel_output"

    def rounding_loss(self, i: int, part: ObjectiveParts) -> Tensor | float:
        """Return what the objective `part` loses, (boxes, rows), to the rounding of node i: abs(A).(E + M*own) of what
        is unabsorbed, without E inside a kernel.
        """
        layer = self.layers[i]
        if isinstance(layer, BoundOpaque):
            return rows_dot(part.total.abs(), self.own_rounding(i) * self.size(i))
        if isinstance(layer, BoundJoint):
            return 0.0 if part.unabsorbed is None else rows_dot(part.unabsorbed.abs(), self.rounding_cost(i))
        lost: Tensor | float = 0.0
        if isinstance(layer, BoundLinear) and part.kernel_output is not None:
            lost = rows_dot(part.kernel_output.abs(), self.rounding_cost(i))
        if isinstance(layer, BoundLinear) and part.kernel_inner is not None:
            lost = lost + rows_dot(part.kernel_inner.abs(), self.rounding_cost(i) - self.errors[i])
        return lost

    def fold_gap_into_constant(
        self, constant: Tensor | float, lost: Tensor | float
    ) -> tuple[Tensor | float, Tensor | float]:
        """Return a layer's (constant, lost), with `lost` subtracted from the constant unless lines are parallel.

        Lines that are not parallel may lie far apart at 0, or cross before it. Then the gap between them is no rounding
        error, which `widen_by_loss` would enlarge: it belongs to the constant.
        """
        return (constant, lost) if self.parallel else (constant - lost, 0.0)

    def relaxation(self, i: int) -> LinearRelaxation:
        """Return the relaxation of layer i, its offsets widened by the rounding errors of the layer and of a linear
        source.

        Relaxations are cached.
        """
        if i not in self.cached_relaxations:
            layer = self.layers[i]
            assert isinstance(layer, BoundRelaxed)
            ends, fold = self.intervals[layer.sources[0]], self.duplicate_fold(i)
            ends = ends if fold is None else fold.intersect_duplicates(ends)
            lines = layer.relaxation(ends, self.candidate_taps.get(i))
            lines = layer.parallel(lines, ends) if self.parallel else self._with_alpha(i, lines)
            self.cached_relaxations[i] = self._offset_by_errors(i, layer, lines)
        return self.cached_relaxations[i]

    def duplicate_fold(self, i: int) -> DuplicateFold | None:
        """Return how coefficients of duplicate cells of relu i are merged; None if it has no duplicates or is no relu.

        Folds are cached.
        """
        if not isinstance(self.layers.get(i), BoundUnary):
            return None
        if i not in self.folds:
            if i not in self.duplicates:
                self.duplicates[i] = find_duplicates(self, i)
            twins = self.duplicates[i]
            self.folds[i] = None if twins is None else make_fold(self, i, twins)
        return self.folds[i]

    def chain(self, i: int) -> Chain | None:
        """Return node i and the elementwise maps below it as one map; None if node i is no such map of a single source.

        Chains are cached.
        """
        if i not in self.chains:
            self.chains[i] = self._merge_chain(i)
        return self.chains[i]

    def _elementwise_factors(self, i: int) -> list[Tensor | None] | None:
        """Return the factors of node i if it is an elementwise linear map with one source, as BoundLinear.factors; None
        for any other layer.
        """
        layer = self.layers[i]
        return layer.factors if isinstance(layer, BoundLinear) and len(layer.varying) == 1 else None

    def _merge_chain(self, i: int) -> Chain | None:
        """Return node i and the elementwise maps below it, each read once, as one map; None if i is no such map."""
        factor: Tensor | None = None
        constant: Tensor | None = None
        inner: list[int] = []
        while (factors := self._elementwise_factors(i)) is not None:
            layer = self.layers[i]
            assert isinstance(layer, BoundLinear)
            (below,) = layer.sources
            if layer.constant is not None:
                constant = plus(constant, times(layer.constant, factor))
            factor = times(factors[0], factor)
            if self.readers.get(below) != 1 or self._elementwise_factors(below) is None:
                return Chain(below, tuple(inner), self.absorbed_by(below, i), factor, constant)
            inner.append(below)
            i = below
        return None

    def with_intervals(self, ends: Mapping[int, Interval], slopes: Mapping[int, Tensor] | None = None) -> State:
        """Return a copy on other boxes, each inside the old one: subproblems, or parts of the input box.

        ends     intervals of the nodes that differ, (boxes, *shape)
        slopes   lower slopes (alpha) by the position of a relu, (boxes, *shape) in 0..1: used where the relu
                 is unstable
        """
        slopes = slopes or {}
        kept = {
            i: v
            for i, v in self.cached_relaxations.items()
            if i not in slopes and not ends.keys() & self.layers[i].sources
        }
        return replace(self, intervals={**self.intervals, **ends}, cached_relaxations=kept, slopes=slopes)

    def _with_alpha(self, i: int, lines: LinearRelaxation) -> LinearRelaxation:
        """Return `lines`, the relaxation of relu i, with its lower slopes replaced by `slopes[i]`, clamped to 0..1.

        That is where the relu is unstable; `lines` itself without such slopes.
        """
        if i not in self.slopes:
            return lines
        low, high = self.intervals[self.layers[i].sources[0]]
        lower = torch.where((low < 0) & (high > 0), self.slopes[i].clamp(0, 1), lines.lower_slope)
        return lines._replace(lower_slope=lower)

    def _offset_by_errors(
        self, i: int, layer: BoundRelaxed, lines: LinearRelaxation, cells: Tensor | None = None
    ) -> LinearRelaxation:
        """Return the relaxation with offsets moved outward by rounding errors of layer i and of its source.

        What is computed may combine both lines (BoundUnary.bound_between_lines), so our own roundings are those of
        the larger.

        cells   flat cells that `lines` is given for, as (boxes, cells); None: all cells
        """
        source, own = layer.sources[0], self.own_rounding(i)
        charge, size, error = (
            v if cells is None else v.reshape(len(v), -1)[:, cells]
            for v in (self.rounding_cost(source), self.size(source), self.errors[i])
        )
        steep = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
        rounded = layer.error_through(steep, own * (size + charge))
        rounded = rounded + own * torch.maximum(lines.lower.abs(), lines.upper.abs()) + error
        down, up = (
            (layer.error_through(slope, charge) + rounded) * SUMS for slope in (lines.lower_slope, lines.upper_slope)
        )
        return LinearRelaxation(lines.lower_slope, lines.lower - down, lines.upper_slope, lines.upper + up)


Step = Callable[[int, Objective], tuple[Any, Any]]


def propagate_in_reverse(
    layers: Iterable[int], pending: dict[int, Objective], step: Step[Objective], total: Any, lost: Any
) -> Any:
    """Run `step` from the last node with a pending objective down to the inputs; return (total, lost), summed over
    nodes.

    step(i, objective) adds what node i hands to its sources to `pending`, and returns the node's constant and loss. An
    objective may be rows, patches or float32 estimates. `layers` are positions of nodes, `pending` their objectives;
    `total` and `lost` are what the sums begin with. TimeLimitError when the command's time is over.
    """
    for i in sorted(layers, reverse=True):
        check_time("bounds")
        if i in pending:
            constant, paid = step(i, pending.pop(i))
            total, lost = total + constant, lost + paid
    if pending:  # no `assert`: what is dropped without a word would be a false proof under python -O
        raise AssertionError(f"nodes {sorted(pending)} do not vary, so what is asked of them would count as 0")
    return total, lost


OnLayer = Callable[[int, ObjectiveParts, list[Tensor], Any, Any], None]


def backward(state: State, seeds: Mapping[int, Tensor], on_layer: OnLayer | None = None) -> Tensor:
    """Lower bounds (boxes, rows) of sum over nodes of seed.value; seeds are coefficients (boxes, rows, *shape) by node.

    `on_layer`, if given, is called at every layer on the way, see `backward_two_sided`.
    """
    return backward_two_sided(state, seeds, on_layer)[0]


def lower_and_upper(state: State, rows: Tensor, run: Callable[[Tensor], Interval]) -> Interval:
    """Return (lower, upper) bounds, (boxes, rows) each, of objectives `rows` (boxes, rows, ...).

    `run` bounds objectives; unless the state's lines are parallel it is given the negatives too, and its lower bounds
    alone are used.
    """
    if state.parallel:
        return run(rows)
    low, negative = run(torch.cat([rows, -rows], 1))[0].chunk(2, 1)
    return low, -negative


def backward_two_sided(state: State, seeds: Mapping[int, Tensor], on_layer: OnLayer | None = None) -> Interval:
    """(lower, upper) bounds (boxes, rows) of sum over nodes of seed.value; upper holds only if `state.parallel`.

    on_layer   called at every node: position, its coefficients, its sources' coefficients, its constant and its loss
    """
    pending = {i: ObjectiveParts(kernel_output=a) for i, a in seeds.items()}

    def step(i: int, part: ObjectiveParts) -> tuple[Any, Any]:
        """Propagate one node's coefficients to its sources; return its constant and loss, (boxes, rows)."""
        layer, a = state.layers[i], part.total
        chain = state.chain(i) if on_layer is None else None
        if chain is not None and not pending.keys() & set(chain.inner):
            below = a if chain.factor is None else a * chain.factor
            pending.setdefault(chain.source, ObjectiveParts()).add(chain.absorbed_as, below)
            return 0.0 if chain.constant is None else rows_dot(a, chain.constant), state.rounding_loss(i, part)
        fold = state.duplicate_fold(i)
        relaxed, linear = (a, a) if fold is None else fold.merge_coefficients(a)
        back = layer.bound_backward(relaxed, state)
        coefficients, (constant, between) = back.coefficients, state.fold_gap_into_constant(back.constant, back.lost)
        lost = state.rounding_loss(i, part) + between
        if fold is not None:
            coefficients, lost = [coefficients[0] + linear], lost + rows_dot(a.abs(), fold.fold_cost)
        if on_layer is not None:
            on_layer(i, part, coefficients, constant, lost)
        for s, below in zip(() if isinstance(layer, BoundOpaque) else layer.sources, coefficients, strict=True):
            pending.setdefault(s, ObjectiveParts()).add(state.absorbed_by(s, i), below)
        return constant, lost

    some = next(iter(seeds.values()))
    nothing = some.new_zeros(some.shape[:2])
    return widen_by_loss(state, *propagate_in_reverse(state.layers, pending, step, nothing, nothing))


def widen_by_loss(state: State, total: Tensor, lost: Tensor) -> Interval:
    """Return sound (lower, upper) bounds (boxes, rows): `total` minus and plus the loss; (-inf, inf) beside a NaN or
    infinity.

    `lost` (boxes, rows) is what roundings and errors may take; our own rounding of the sums is added here.
    """
    lost = lost * SUMS + slack_constants.UNDERFLOW + (sum(state.underflow_losses.values()) if state.fast else 0.0)
    low, high = total - lost, total + lost
    known = low.isfinite() & high.isfinite()
    return torch.where(known, low, -torch.inf), torch.where(known, high, torch.inf)
