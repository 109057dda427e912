"""From an objective down to the inputs: A.y >= A'.x + c, layer by layer, with everything that rounding can add.

A deployed layer computes y = f(x) + e with abs(e) <= E on the whole box: that costs abs(A).E. Our own float64 roundings
are bounded the same way: a term of layer y meets at most `own` of them, so abs(A).M*own with M = f on absolute values.
Where y is read through two lines both move into the lines' offsets, abs(slope)*(E + M*own), and cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from specgrad.rounding import slack_constants

from ..relaxation.bound_layers import (
    BoundConv,
    BoundJoint,
    BoundLayer,
    BoundLinear,
    BoundOpaque,
    BoundRelaxed,
    BoundUnary,
    Ends,
    rows_dot,
)
from ..relaxation.formulas import LinearRelaxation
from .budget import ComputeBudget
from .duplicate_relus import DuplicateFold, DuplicateRelus, fold_of, twins_of

Objective = TypeVar("Objective")
SUMS = slack_constants.SUMS


@dataclass(eq=False)
class ObjectiveParts:
    """The objective of one node by where it comes from: through lines (errors are paid), a kernel's end, its inside."""

    paid: Tensor | None = None
    outer: Tensor | None = None
    inner: Tensor | None = None

    def add(self, kind: str, a: Tensor) -> None:
        old = getattr(self, kind)
        setattr(self, kind, a if old is None else old + a)

    @property
    def loose(self) -> Tensor | None:
        return plus(self.outer, self.inner)

    @property
    def whole(self) -> Tensor:
        whole = plus(self.loose, self.paid)
        assert whole is not None
        return whole


def times(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a * b


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


class Chain(NamedTuple):
    """A map of single cells, and those of the same kind right below it that nobody else reads, as one map.

    a.y = (a*factor).x + a.constant, x being node `source`; None stands for 1 and for 0. Everything on the way is paid
    for by its first map (State.charge).
    """

    source: int
    inner: tuple[int, ...]
    kind: str
    factor: Tensor | None
    constant: Tensor | None


@dataclass(eq=False)
class State:
    """What is known of every node that varies.

    ends     the box, (boxes, *shape)
    errors   E: what a deployed execution adds at this layer, (1, *shape)
    sizes    M: the layer on absolute values, (1, *shape)
    readers  how often a node is read, as an operand or an output
    flushed  what float32 objectives can lose at a node below the normal numbers
    fast     convolutions may go back in float32
    parallel both lines of a layer have one slope: a pass then gives both ends of what it bounds, and not one
    budget   seconds and bytes that the work may take
    left     of maxima that are cut: which taps may win, (taps, boxes, *shape)
    merged   (source, user): a runtime may compute both in one kernel, so the rounding is counted at the user
    """

    count: int
    layers: dict[int, BoundLayer] = field(default_factory=dict)
    ends: dict[int, Ends] = field(default_factory=dict)
    errors: dict[int, Tensor] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)
    merged: set[tuple[int, int]] = field(default_factory=set)
    kept_lines: dict[int, LinearRelaxation] = field(default_factory=dict)
    slopes: Mapping[int, Tensor] = field(default_factory=dict)
    readers: Mapping[int, int] = field(default_factory=dict)
    left: Mapping[int, Tensor] = field(default_factory=dict)
    chains: dict[int, Chain | None] = field(default_factory=dict)
    charges: dict[int, Tensor] = field(default_factory=dict)
    flushed: dict[int, float] = field(default_factory=dict)
    twins: dict[int, DuplicateRelus | None] = field(default_factory=dict)
    folds: dict[int, DuplicateFold | None] = field(default_factory=dict)
    fast: bool = False
    parallel: bool = False
    budget: ComputeBudget = field(default_factory=ComputeBudget)

    def faster(self) -> State:
        """The same network, what is known of it shared; convolutions go back in float32 where that saves most."""
        return replace(self, fast=True, kept_lines={}, chains={}, charges={}, folds={})

    def two_sided(self) -> State:
        """The same network, what is known of it shared, between parallel lines. Joint layers have none."""
        return replace(self, parallel=True, kept_lines={}, chains={}, charges={}, folds={})

    def stopped(self, stops: Iterable[int]) -> State:
        """The same network from some nodes on: their boxes are all that is known of them."""
        opaque = {i: BoundOpaque(i, self.layers[i].node, ()) for i in stops}
        return replace(self, layers={**self.layers, **opaque}, chains={}, charges={}, folds={})

    def own(self, i: int) -> float:
        """Roundings of ours that a term of this layer can meet, times their unit roundoff."""
        layer = self.layers[i]
        if self.fast and isinstance(layer, BoundConv) and layer.in_single:
            return layer.single_roundings * slack_constants.SINGLE
        cells = self.ends[i][0][0].numel()
        return (2 * cells + self.count + slack_constants.OWN) * slack_constants.U

    def size(self, i: int) -> Tensor:
        low, high = self.ends[i]
        return torch.maximum(low.abs(), high.abs())

    def box(self, i: int) -> Ends:
        return self.ends[i]

    def charge(self, i: int) -> Tensor:
        """What abs(A) costs at a layer that does not carry it in its lines, or in its interval.

        A map of single cells y = f*x + ... pays for its sources too: abs(A*f).charge = abs(A).(abs(f)*charge).
        """
        if i not in self.charges:
            self.charges[i] = sum(self.charges_of(i).values(), start=torch.zeros_like(self.errors[i])) * SUMS
        return self.charges[i]

    def charges_of(self, i: int) -> dict[int, Tensor]:
        """`charge` by the nodes that it is for."""
        layer = self.layers[i]
        if isinstance(layer, BoundRelaxed | BoundOpaque):
            return {}
        charges = {i: self.errors[i] + self.own(i) * self.sizes[i]}
        for s, f in zip(layer.sources, (isinstance(layer, BoundLinear) and layer.factors) or (), strict=False):
            if self.pays_for(i, s):
                paid = self.charges_of(s)
                if (s, i) in self.merged:
                    paid[s] = self.own(s) * self.sizes[s]
                charges |= {j: v if f is None else v * f.abs() for j, v in paid.items()}
        return charges

    def pays_for(self, user: int, source: int) -> bool:
        """Whether a map of single cells is the only one that reads a linear layer."""
        layer = self.layers[user]
        maps = isinstance(layer, BoundLinear) and layer.factors is not None
        return maps and isinstance(self.layers[source], BoundLinear) and self.readers.get(source) == 1

    def paid_by(self, source: int, user: int) -> str:
        """Who pays for the rounding of the source: the user's lines, or its kernel, or nobody before the source."""
        layer = self.layers[user]
        if isinstance(layer, BoundRelaxed) or self.pays_for(user, source):
            return "paid"
        return "inner" if isinstance(layer, BoundLinear) and (source, user) in self.merged else "outer"

    def loss(self, i: int, part: ObjectiveParts) -> Tensor | float:
        """abs(A).(E + M*own) for what has not been paid; E only where the value leaves its kernel."""
        layer = self.layers[i]
        if isinstance(layer, BoundOpaque):
            return rows_dot(part.whole.abs(), self.own(i) * self.size(i))
        if isinstance(layer, BoundJoint):
            return 0.0 if part.loose is None else rows_dot(part.loose.abs(), self.charge(i))
        lost: Tensor | float = 0.0
        if isinstance(layer, BoundLinear) and part.outer is not None:
            lost = rows_dot(part.outer.abs(), self.charge(i))
        if isinstance(layer, BoundLinear) and part.inner is not None:
            lost = lost + rows_dot(part.inner.abs(), self.charge(i) - self.errors[i])
        return lost

    def settled(self, constant: Tensor | float, lost: Tensor | float) -> tuple[Tensor | float, Tensor | float]:
        """What a layer gives on the way back. Lines that are not parallel may lie far apart at 0, or cross before it.

        Then what is between them there is no error, which `finished` would enlarge: it belongs to the constant.
        """
        return (constant, lost) if self.parallel else (constant - lost, 0.0)

    def lines(self, i: int) -> LinearRelaxation:
        """The layer's lines with all errors in their offsets: its own, and those of a linear layer below it."""
        if i not in self.kept_lines:
            layer = self.layers[i]
            assert isinstance(layer, BoundRelaxed)
            ends, fold = self.ends[layer.sources[0]], self.fold(i)
            ends = ends if fold is None else fold.joined(ends)
            lines = layer.lines(ends, self.left.get(i))
            lines = layer.parallel(lines, ends) if self.parallel else self._steered(i, lines)
            self.kept_lines[i] = self._moved(i, layer, lines)
        return self.kept_lines[i]

    def fold(self, i: int) -> DuplicateFold | None:
        """Which cells of a relu are others; None: none of them."""
        if not isinstance(self.layers.get(i), BoundUnary):
            return None
        if i not in self.folds:
            if i not in self.twins:
                self.twins[i] = twins_of(self, i)
            twins = self.twins[i]
            self.folds[i] = None if twins is None else fold_of(self, i, twins)
        return self.folds[i]

    def chain(self, i: int) -> Chain | None:
        """What node i and the maps below it are as one; None where it is no map of the cells of one node."""
        if i not in self.chains:
            self.chains[i] = self._chain(i)
        return self.chains[i]

    def _factor(self, i: int) -> list[Tensor | None] | None:
        layer = self.layers[i]
        return layer.factors if isinstance(layer, BoundLinear) and len(layer.varying) == 1 else None

    def _chain(self, i: int) -> Chain | None:
        factor: Tensor | None = None
        constant: Tensor | None = None
        inner: list[int] = []
        while (factors := self._factor(i)) is not None:
            layer = self.layers[i]
            assert isinstance(layer, BoundLinear)
            (below,) = layer.sources
            if layer.constant is not None:
                constant = plus(constant, times(layer.constant, factor))
            factor = times(factors[0], factor)
            if self.readers.get(below) != 1 or self._factor(below) is None:
                return Chain(below, tuple(inner), self.paid_by(below, i), factor, constant)
            inner.append(below)
            i = below
        return None

    def on(self, ends: Mapping[int, Ends], slopes: Mapping[int, Tensor] | None = None) -> State:
        """The same network on other boxes, each within the old one: splits, or halves of the inputs.

        ends     of the nodes that differ, (boxes, *shape)
        slopes   of lower lines, by the position of a relu, (boxes, *shape) within 0..1: used where its input is open
        """
        slopes = slopes or {}
        kept = {
            i: v for i, v in self.kept_lines.items() if i not in slopes and not ends.keys() & self.layers[i].sources
        }
        return replace(self, ends={**self.ends, **ends}, kept_lines=kept, slopes=slopes)

    def _steered(self, i: int, lines: LinearRelaxation) -> LinearRelaxation:
        if i not in self.slopes:
            return lines
        low, high = self.ends[self.layers[i].sources[0]]
        lower = torch.where((low < 0) & (high > 0), self.slopes[i].clamp(0, 1), lines.lower_slope)
        return lines._replace(lower_slope=lower)

    def _moved(
        self, i: int, layer: BoundRelaxed, lines: LinearRelaxation, cells: Tensor | None = None
    ) -> LinearRelaxation:
        """What is computed may be made of both lines (Cell.between), so our own roundings are those of the larger.

        cells   lines are given of these flat cells alone, as (boxes, cells)
        """
        source, own = layer.sources[0], self.own(i)
        charge, size, error = (
            v if cells is None else v.reshape(len(v), -1)[:, cells]
            for v in (self.charge(source), self.size(source), self.errors[i])
        )
        steep = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
        rounded = layer.through(steep, own * (size + charge))
        rounded = rounded + own * torch.maximum(lines.lower.abs(), lines.upper.abs()) + error
        down, up = ((layer.through(slope, charge) + rounded) * SUMS for slope in (lines.lower_slope, lines.upper_slope))
        return LinearRelaxation(lines.lower_slope, lines.lower - down, lines.upper_slope, lines.upper + up)


Step = Callable[[int, Objective], tuple[Any, Any]]


def descend(layers: Iterable[int], noted: dict[int, Objective], step: Step[Objective], total: Any, lost: Any) -> Any:
    """From the objectives that are noted down to the inputs, whatever an objective is: rows, patches, estimates.

    step(i, objective) notes what node i hands on to its sources; it returns the constant and the loss of that node.
    """
    for i in sorted(layers, reverse=True):
        if i in noted:
            constant, paid = step(i, noted.pop(i))
            total, lost = total + constant, lost + paid
    if noted:  # no `assert`: what is dropped without a word would be a false proof under python -O
        raise AssertionError(f"nodes {sorted(noted)} do not vary, so what is asked of them would count as 0")
    return total, lost


Told = Callable[[int, ObjectiveParts, list[Tensor], Any, Any], None]


def backward(state: State, seeds: Mapping[int, Tensor], told: Told | None = None) -> Tensor:
    """Lower bounds (boxes, rows) of the sum over nodes of seed.value, seeds being (boxes, rows, *shape)."""
    return swept(state, seeds, told)[0]


def both_ends(state: State, rows: Tensor, run: Callable[[Tensor], Ends]) -> Ends:
    """Lower and upper bounds of objectives (boxes, rows, ...) by `run`: of them alone, or of their negatives too."""
    if state.parallel:
        return run(rows)
    low, negative = run(torch.cat([rows, -rows], 1))[0].chunk(2, 1)
    return low, -negative


def swept(state: State, seeds: Mapping[int, Tensor], told: Told | None = None) -> Ends:
    """What `backward` gives; and upper bounds, which hold between parallel lines alone.

    told   hears of every node on the way: its position and objectives, its sources' objectives, its constant and loss
    """
    noted = {i: ObjectiveParts(outer=a) for i, a in seeds.items()}

    def step(i: int, part: ObjectiveParts) -> tuple[Any, Any]:
        layer, a = state.layers[i], part.whole
        chain = state.chain(i) if told is None else None
        if chain is not None and not noted.keys() & set(chain.inner):
            below = a if chain.factor is None else a * chain.factor
            noted.setdefault(chain.source, ObjectiveParts()).add(chain.kind, below)
            return 0.0 if chain.constant is None else rows_dot(a, chain.constant), state.loss(i, part)
        fold = state.fold(i)
        bent, linear = (a, a) if fold is None else fold.folded(a)
        back = layer.back(bent, state)
        pulled, (constant, between) = back.pulled, state.settled(back.constant, back.lost)
        lost = state.loss(i, part) + between
        if fold is not None:
            pulled, lost = [pulled[0] + linear], lost + rows_dot(a.abs(), fold.price)
        if told is not None:
            told(i, part, pulled, constant, lost)
        for s, below in zip(() if isinstance(layer, BoundOpaque) else layer.sources, pulled, strict=True):
            noted.setdefault(s, ObjectiveParts()).add(state.paid_by(s, i), below)
        return constant, lost

    some = next(iter(seeds.values()))
    nothing = some.new_zeros(some.shape[:2])
    return finished(state, *descend(state.layers, noted, step, nothing, nothing))


def finished(state: State, total: Tensor, lost: Tensor) -> Ends:
    """What is left for certain; nothing where a NaN or an infinity came up."""
    lost = lost * SUMS + slack_constants.UNDERFLOW + (sum(state.flushed.values()) if state.fast else 0.0)
    low, high = total - lost, total + lost
    known = low.isfinite() & high.isfinite()
    return torch.where(known, low, -torch.inf), torch.where(known, high, torch.inf)
