"""Backward bounds in float32 and without rounding errors: to look for slopes and splits, never to prove anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from specgrad.bounds.linear.propagation.backward import State, propagate_in_reverse
from specgrad.bounds.linear.relaxation.bound_layers import (
    BoundJoint,
    BoundLayer,
    BoundLinear,
    BoundOpaque,
    BoundRelaxed,
    Interval,
    positive_negative,
)
from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation

LARGEST_MATRIX = 1 << 23  # cells of a linear layer that is kept as one matrix


def flat(x: Tensor, lead: int = 1) -> Tensor:
    """Return x with all axes after the first `lead` as one: (boxes, cells); works for scalars and for no boxes."""
    return x.reshape(*x.shape[:lead], math.prod(x.shape[lead:]))


@dataclass(frozen=True, eq=False)
class QuickLines:
    """Relaxations of all layers in float32, for non-rigorous backward bounds.

    bent       of functions with a free lower slope: (range of the slope, its start, upper slope, upper offset)
    others     relaxations of all other layers
    intervals  (lower, upper) of every node
    inputs     (middle, radius) of inputs that are split
    candidate_taps  maximum -> bool (boxes, taps, windows): which taps may win
    fast       False: coefficients are in float32 already, see `State.fast`
    """

    bent: Mapping[int, tuple[Tensor, Tensor, Tensor, Tensor]]
    others: Mapping[int, LinearRelaxation]
    intervals: Mapping[int, Interval]
    candidate_taps: Mapping[int, Tensor] = field(default_factory=dict)
    inputs: Mapping[int, Any] = field(default_factory=dict)
    fast: bool = False

    def centre(self, i: int) -> None:
        """Return None: nothing is proven by these bounds, so no rounding is charged."""

    def interval(self, i: int) -> Interval:
        """Return (lower, upper) bounds of node i in float32."""
        return self.intervals[i]

    def relaxation(self, i: int) -> LinearRelaxation:
        """Relaxation of layer i without free slopes."""
        return self.others[i]

    def of(self, i: int, slopes: Mapping[int, Tensor]) -> LinearRelaxation:
        """Relaxation of layer i, with its free lower slope (if any) at the share slopes[i]."""
        if i not in self.bent:
            return self.others[i]
        room, start, up, offset = self.bent[i]
        return LinearRelaxation(torch.addcmul(start, room, slopes[i]), torch.zeros_like(start), up, offset)

    def changed(self, i: int, boxes: Tensor, cells: Tensor, new: LinearRelaxation, count: int) -> QuickLines:
        """Return a copy with the lines `new` at cells[k] of function i in boxes[k], of `count` boxes; their slopes are
        fixed.
        """
        old, single = self.bent.get(i), tuple(t.float() for t in new)
        values = single if old is None else (torch.zeros_like(single[0]), *single[::2], single[3])
        parts = [t.expand(count, *t.shape[1:]).clone() for t in (old or self.others[i])]
        for part, value in zip(parts, values, strict=True):
            flat(part)[boxes, cells] = value
        if old is None:
            return replace(self, others={**self.others, i: LinearRelaxation(*parts)})
        return replace(self, bent={**self.bent, i: (parts[0], parts[1], parts[2], parts[3])})

    def decided(self, i: int, boxes: Tensor, cells: Tensor, new: LinearRelaxation | None, left: Tensor) -> QuickLines:
        """Return a copy with lines `new` (taps, k) for window cells[k] of maximum i in boxes[k]; None: other candidate
        taps only.

        `left` (taps, boxes, *shape) marks the taps that may win from then on.
        """
        if new is None:
            return replace(self, candidate_taps={**self.candidate_taps, i: left})
        parts = []
        for old, value in zip(self.others[i], new, strict=True):
            taps = old.ndim > self.others[i].lower.ndim
            shape = (len(old), left.shape[1], *old.shape[2:]) if taps else (left.shape[1], *old.shape[1:])
            part = old.expand(shape).clone()
            at = (..., boxes, cells)
            flat(part, 2 if taps else 1)[at] = value.float()
            parts.append(part)
        return replace(self, others={**self.others, i: LinearRelaxation(*parts)})


class FastBackward:
    """Non-rigorous backward bounds on one box in float32; objectives have one row per box: (boxes, *shape).

    `state` has the layers and intervals.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.linear = {i: _linear_step(layer) for i, layer in state.layers.items() if isinstance(layer, BoundLinear)}
        self.inputs: dict[int, Interval] = {}
        for i, layer in state.layers.items():
            if isinstance(layer, BoundOpaque):
                low, high = state.intervals[i]
                self.inputs[i] = (low / 2 + high / 2).float().flatten(), (high / 2 - low / 2).float().flatten()

    def lines(
        self,
        split_ends: Mapping[int, Interval],
        bent: Mapping[int, tuple[float, float]],
        left: Mapping[int, Tensor],
    ) -> QuickLines:
        """Return the relaxations on the given intervals, without what slopes and multipliers change.

        split_ends   intervals in place of those of the state, by node
        bent         least and largest lower slope of functions whose slope is chosen, by node
        left         which taps of a maximum may win, by node
        """
        of_bent: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        others: dict[int, LinearRelaxation] = {}
        for i, layer in self.state.layers.items():
            if not isinstance(layer, BoundRelaxed):
                continue
            source = layer.sources[0]
            low, high = split_ends.get(source, self.state.intervals[source])
            lines = layer.relaxation((low, high), left.get(i))
            if i in bent and source in split_ends:
                (least, most), is_open = bent[i], (low < 0) & (high > 0)
                of_bent[i] = (
                    is_open.float() * (most - least),
                    torch.where(is_open, least, lines.lower_slope).float(),
                    lines.upper_slope.float(),
                    lines.upper.float(),
                )
            else:
                others[i] = LinearRelaxation(*(t.float() for t in lines))
        inputs = {
            i: (flat(low / 2 + high / 2).float(), flat(high / 2 - low / 2).float())
            for i, (low, high) in split_ends.items()
            if i in self.inputs
        }
        return QuickLines(of_bent, others, {**self.state.intervals, **split_ends}, left, inputs)

    def lower(
        self,
        at: int,
        rows: Tensor,
        lines: QuickLines,
        slopes: Mapping[int, Tensor],
        pushed: Mapping[int, Tensor],
        seen: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Return an estimated lower bound per box of the objectives `rows` of node `at`.

        `lines` and `slopes` are the relaxations, `pushed` what multipliers subtract, by node; `seen` collects
        coefficients of nonlinear layers and inputs by node.
        """
        parts: dict[int, Tensor] = {z: -p for z, p in pushed.items()}
        parts[at] = rows.reshape(len(rows), *self.state.layers[at].node.shape)

        def step(i: int, a: Tensor) -> tuple[Any, float]:
            if seen is not None and i not in self.linear:
                seen[i] = a.detach()
            if i in lines.inputs:
                middle, reach = lines.inputs[i]
                return (flat(a) * middle).sum(1) - (flat(a).abs() * reach).sum(1), 0.0
            if i in self.inputs:
                middle, reach = self.inputs[i]
                return flat(a) @ middle - flat(a).abs() @ reach, 0.0
            pulled, constant = self._back_through(i, a, lines, slopes)
            for s, part in zip(self.state.layers[i].sources, pulled, strict=True):
                parts[s] = parts[s] + part if s in parts else part
            return constant, 0.0

        total: Tensor = propagate_in_reverse(self.state.layers, parts, step, rows.new_zeros(len(rows)), 0.0)[0]
        return total

    def _back_through(
        self, i: int, a: Tensor, lines: QuickLines, slopes: Mapping[int, Tensor]
    ) -> tuple[list[Tensor], Any]:
        """Coefficients of the sources of layer i, and a constant per box, from its own coefficients `a`.

        A bent layer takes the lower slope that `slopes` chooses in 0..1 of its range in `lines`; others their line
        there.
        """
        if i in self.linear:
            pulled_and_constant: tuple[list[Tensor], Any] = self.linear[i](a)
            return pulled_and_constant
        positive, negative = positive_negative(a)
        if i in lines.bent:
            room, start, up, offset = lines.bent[i]
            down = torch.addcmul(start, room, slopes[i])
            return [torch.addcmul(positive * down, negative, up)], flat(negative * offset).sum(1)
        layer = self.state.layers[i]
        wide = a.unsqueeze(1)  # joint layers compute with boxes, which are float64
        back = layer.bound_backward(wide.double() if isinstance(layer, BoundJoint) else wide, lines)
        constant = back.constant - back.lost
        assert isinstance(constant, Tensor)
        return [part.squeeze(1).float() for part in back.coefficients], constant.squeeze(1).float()


def _linear_step(layer: BoundLinear) -> Any:
    """Return the function (boxes, *shape) -> (coefficients of the sources, constant per box) of a linear layer."""
    constant = None if layer.constant is None else layer.constant.float().flatten()
    pull = _matrix_step(layer) or _batched_adjoint(layer)

    def back(a: Tensor) -> tuple[list[Tensor], Any]:
        return pull(a), 0.0 if constant is None else flat(a) @ constant

    return back


def _batched_adjoint(layer: BoundLayer) -> Any:
    """Return the layer's adjoint in float32, mapped over boxes."""
    assert isinstance(layer, BoundLinear)
    args = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in layer.args]
    single = BoundLinear(layer.position, layer.node, layer.sources, args)
    return lambda a: list(torch.func.vmap(single.adjoint_fn)(a))


def _matrix_step(layer: BoundLinear) -> Any:
    """Return a function from coefficients of `layer`, a contraction, to those of its source by one matrix product; None
    if it is none or too large.
    """
    cells = math.prod(layer.node.shape)
    shapes = [a for a in layer.args if isinstance(a, tuple)]
    if layer.node.op.name != "contract" or len(shapes) != 1 or cells * math.prod(shapes[0]) > LARGEST_MATRIX:
        return None
    unit = torch.eye(cells, dtype=torch.float64).reshape(1, cells, *layer.node.shape)
    matrix = layer.adjoint(unit)[0].reshape(cells, -1).float()
    return lambda a: [(flat(a) @ matrix).reshape(len(a), *shapes[0])]
