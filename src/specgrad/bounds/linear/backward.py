"""From an objective down to the inputs: A.y >= A'.x + c, layer by layer, with everything that rounding can add.

A deployed layer computes y = f(x) + e with abs(e) <= E on the whole box: that costs abs(A).E. Our own float64 roundings
are bounded the same way: a term of layer y meets at most `own` of them, so abs(A).M*own with M = f on absolute values.
Where y is read through two lines both move into the lines' offsets, abs(slope)*(E + M*own), and cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...rounding import ledger
from .layers import Ends, Joint, Layer, Linear, Opaque, Relaxed, rows_dot
from .relaxations import Lines

Objective = TypeVar("Objective")
SUMS = ledger.SUMS


@dataclass(eq=False)
class Parts:
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


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


@dataclass(eq=False)
class State:
    """What is known of every node that varies.

    ends     the box, (boxes, *shape)
    errors   E: what a deployed execution adds at this layer, (1, *shape)
    sizes    M: the layer on absolute values, (1, *shape)
    merged   (source, user): a runtime may compute both in one kernel, so the rounding is counted at the user
    """

    count: int
    layers: dict[int, Layer] = field(default_factory=dict)
    ends: dict[int, Ends] = field(default_factory=dict)
    errors: dict[int, Tensor] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)
    merged: set[tuple[int, int]] = field(default_factory=set)
    kept_lines: dict[int, Lines] = field(default_factory=dict)
    slopes: Mapping[int, Tensor] = field(default_factory=dict)

    def own(self, i: int) -> float:
        """Roundings of ours that a term of this layer can meet, times the unit roundoff of float64."""
        cells = self.ends[i][0][0].numel()
        return (2 * cells + self.count + ledger.OWN) * ledger.U

    def size(self, i: int) -> Tensor:
        low, high = self.ends[i]
        return torch.maximum(low.abs(), high.abs())

    def box(self, i: int) -> Ends:
        return self.ends[i]

    def charge(self, i: int) -> Tensor:
        """What abs(A) costs at a layer that does not carry it in its lines, or in its interval."""
        carries = isinstance(self.layers[i], Relaxed | Opaque)
        return torch.zeros_like(self.errors[i]) if carries else self.errors[i] + self.own(i) * self.sizes[i]

    def paid_by(self, source: int, user: int) -> str:
        """Who pays for the rounding of the source: the user's lines, or its kernel, or nobody before the source."""
        layer = self.layers[user]
        inner = isinstance(layer, Linear) and (source, user) in self.merged
        return "paid" if isinstance(layer, Relaxed) else "inner" if inner else "outer"

    def loss(self, i: int, part: Parts) -> Tensor | float:
        """abs(A).(E + M*own) for what has not been paid; E only where the value leaves its kernel."""
        layer, own = self.layers[i], self.own(i)
        if isinstance(layer, Opaque):
            return rows_dot(part.whole.abs(), own * self.size(i))
        if isinstance(layer, Joint):
            return 0.0 if part.loose is None else rows_dot(part.loose.abs(), self.charge(i))
        lost: Tensor | float = 0.0
        if isinstance(layer, Linear) and part.outer is not None:
            lost = rows_dot(part.outer.abs(), self.errors[i] + own * self.sizes[i])
        if isinstance(layer, Linear) and part.inner is not None:
            lost = lost + rows_dot(part.inner.abs(), own * self.sizes[i])
        return lost

    def lines(self, i: int) -> Lines:
        """The layer's lines with all errors in their offsets: its own, and those of a linear layer below it."""
        if i not in self.kept_lines:
            layer = self.layers[i]
            assert isinstance(layer, Relaxed)
            self.kept_lines[i] = self._moved(i, layer, self._steered(i, layer.lines(self.ends[layer.sources[0]])))
        return self.kept_lines[i]

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

    def _steered(self, i: int, lines: Lines) -> Lines:
        if i not in self.slopes:
            return lines
        low, high = self.ends[self.layers[i].sources[0]]
        lower = torch.where((low < 0) & (high > 0), self.slopes[i].clamp(0, 1), lines.lower_slope)
        return lines._replace(lower_slope=lower)

    def _moved(self, i: int, layer: Relaxed, lines: Lines) -> Lines:
        source, own = layer.sources[0], self.own(i)
        below = own * self.size(source) + self.charge(source)
        down, up = (
            (layer.through(slope, below) + own * offset.abs() + self.errors[i]) * SUMS
            for slope, offset in ((lines.lower_slope, lines.lower), (lines.upper_slope, lines.upper))
        )
        return Lines(lines.lower_slope, lines.lower - down, lines.upper_slope, lines.upper + up)


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


def backward(state: State, seeds: Mapping[int, Tensor], seen: dict[int, Tensor] | None = None) -> Tensor:
    """Lower bounds (boxes, rows) of the sum over nodes of seed.value, seeds being (boxes, rows, *shape).

    seen   collects the objective of every layer on the way, for whoever looks for the layer that costs most
    """
    noted = {i: Parts(outer=a) for i, a in seeds.items()}

    def step(i: int, part: Parts) -> tuple[Any, Any]:
        layer, a = state.layers[i], part.whole
        if seen is not None:
            seen[i] = a.detach()
        pulled, constant = layer.back(a, state)
        for s, below in zip(() if isinstance(layer, Opaque) else layer.sources, pulled, strict=True):
            noted.setdefault(s, Parts()).add(state.paid_by(s, i), below)
        return constant, state.loss(i, part)

    some = next(iter(seeds.values()))
    nothing = some.new_zeros(some.shape[:2])
    return finished(*descend(state.layers, noted, step, nothing, nothing))


def finished(total: Tensor, lost: Tensor) -> Tensor:
    """What is left for certain; nothing where a NaN came up."""
    lower = total - lost * SUMS - ledger.UNDERFLOW
    return lower.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
