"""From an objective down to the inputs: A.y >= A'.x + c, layer by layer, with everything that rounding can add.

A deployed layer computes y = f(x) + e with abs(e) <= E on the whole box: that costs abs(A).E. Our own float64 roundings
are bounded the same way: a term of layer y meets at most `own` of them, so abs(A).M*own with M = f on absolute values.
Where y is read through two lines both move into the lines' offsets, abs(slope)*(E + M*own), and cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .layers import Ends, Joint, Layer, Linear, Opaque, Relaxed, rows_dot
from .relax import Lines

U = 2.0**-53
SUMS = 1 + 1e-6  # our sums of errors, which are never negative, are off by less


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
        return (2 * cells + self.count + 128) * U

    def size(self, i: int) -> Tensor:
        low, high = self.ends[i]
        return torch.maximum(low.abs(), high.abs())

    def charge(self, i: int) -> Tensor:
        """What abs(A) costs at a layer that does not carry it in its lines, or in its interval."""
        carries = isinstance(self.layers[i], Relaxed | Opaque)
        return torch.zeros_like(self.errors[i]) if carries else self.errors[i] + self.own(i) * self.sizes[i]

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
        found = plus(self.loose, self.paid)
        assert found is not None
        return found


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def backward(state: State, seeds: Mapping[int, Tensor], seen: dict[int, Tensor] | None = None) -> Tensor:
    """Lower bounds (boxes, rows) of the sum over nodes of seed.value, seeds being (boxes, rows, *shape).

    seen   collects the objective of every layer on the way, for whoever looks for the layer that costs most
    """
    some = next(iter(seeds.values()))
    total, lost = some.new_zeros(some.shape[:2]), some.new_zeros(some.shape[:2])
    parts = {i: Parts(outer=a) for i, a in seeds.items()}
    for i in sorted(state.layers, reverse=True):
        if i not in parts:
            continue
        part, layer = parts.pop(i), state.layers[i]
        a = part.whole
        if seen is not None:
            seen[i] = a.detach()
        if isinstance(layer, Opaque):
            least, slack = interval(state, i, a)
            total, lost = total + least, lost + slack
        elif isinstance(layer, Linear):
            if layer.constant is not None:
                total = total + rows_dot(a, layer.constant)
            lost = lost + linear_loss(state, i, part)
            for s, pulled in zip(layer.sources, layer.back(a), strict=True):
                parts.setdefault(s, Parts()).add("inner" if (s, i) in state.merged else "outer", pulled)
        elif isinstance(layer, Joint):
            several, constant = layer.back(a, [state.ends[s] for s in layer.sources])
            total = total + constant
            if part.loose is not None:
                lost = lost + rows_dot(part.loose.abs(), state.charge(i))
            for s, pulled in zip(layer.sources, several, strict=True):
                parts.setdefault(s, Parts()).add("outer", pulled)
        elif isinstance(layer, Relaxed):
            pulled, constant = layer.back(a, state.lines(i))
            total = total + constant
            parts.setdefault(layer.sources[0], Parts()).add("paid", pulled)
    return finished(total, lost)


def interval(state: State, i: int, a: Tensor) -> tuple[Tensor, Tensor]:
    """The least of A.x over the box, and our own rounding of it."""
    return least(a, state.ends[i], state.own(i))


def least(a: Tensor, ends: Ends, own: float) -> tuple[Tensor, Tensor]:
    low, high = ends
    size = a.abs()
    reach = (high - low) / 2 * (1 + 8 * U)
    found = rows_dot(a, low / 2 + high / 2) - rows_dot(size, reach)
    return found, rows_dot(size, own * torch.maximum(low.abs(), high.abs()))


def linear_loss(state: State, i: int, part: Parts) -> Tensor | float:
    """abs(A).(E + M*own) for what has not been paid; E only where the value leaves its kernel."""
    lost: Tensor | float = 0.0
    if part.outer is not None:
        lost = rows_dot(part.outer.abs(), state.errors[i] + state.own(i) * state.sizes[i])
    if part.inner is not None:
        lost = lost + rows_dot(part.inner.abs(), state.own(i) * state.sizes[i])
    return lost


def finished(total: Tensor, lost: Tensor) -> Tensor:
    """What is left for certain; nothing where a NaN came up."""
    found = total - lost * SUMS - 1e-250
    return found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
