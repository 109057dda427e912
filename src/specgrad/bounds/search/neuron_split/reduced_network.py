"""A relu network on one box without the relus that are decided there: to look for bounds in float32, never to prove.

A decided relu is linear, so the open cells alone are left. z are their inputs in order, e in -1..1 the inputs of the
network as shares of their box, and the rest is folded into three constants:

    z = M e + L relu(z) + c         L is strictly lower triangular
    row.y = m e + l relu(z) + k     for every objective

A bound of an objective goes back through the cells (a, the coefficient of relu(z); b, that of z):

    b = a * slope, less s*multiplier where the sign s of z is fixed; then a of the cells below grows by b L
    row.y >= k + sum of b c + sum of min(a, 0) * offset - |m + b M|

Its gradient is one walk forward: e = -sign(m + b M) is where the minimum is, and z = M e + L r + c there, r being the
line that was taken, is the derivative by b. A cell has one number to choose, t: the slope of its lower line, in 0..1,
where it is open, and the multiplier, not negative, where its sign is fixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from specgrad.bounds.linear.propagation.adam import EPSILON
from specgrad.bounds.linear.propagation.backward import State, propagate_in_reverse
from specgrad.bounds.linear.relaxation.bound_layers import BoundLinear, BoundOpaque, BoundUnary

from ..shared.float32_bounds import FastBackward, flat

ROWS = 256  # that are folded at once
LARGEST = 1 << 23  # numbers of M and L together: from there on layer by layer is faster
RATE, DECAY = 0.1, 0.97  # of the steps on slopes, which lie in 0..1
MULTIPLIERS = 0.3  # of the steps on multipliers, in mean sizes of the coefficients of their relu
LOWER = 1e-3  # what a lower line gives away counts this much in the choice of a cell
LITTLE = 0.01  # of the largest gain, added to all of them
KEPT = 0.9  # problems that are done leave a batch when this share of it is left


def can_fold(state: State) -> bool:
    """Return whether relus are the only nonlinear layers, no two read one node, and few enough cells are unstable, but
    some.
    """
    relus = [layer for layer in state.layers.values() if isinstance(layer, BoundUnary) and layer.node.op.name == "relu"]
    rest = [layer for layer in state.layers.values() if layer not in relus]
    plain = all(isinstance(layer, BoundLinear) or (type(layer) is BoundOpaque and not layer.sources) for layer in rest)
    if not plain or not relus or len({layer.sources[0] for layer in relus}) < len(relus):
        return False
    inputs = sum(state.intervals[layer.position][0].numel() for layer in rest if isinstance(layer, BoundOpaque))
    count = sum(len(open_cells(state, layer.sources[0])) for layer in relus)
    return 0 < count * (inputs + count) <= LARGEST


def open_cells(state: State, z: int) -> Tensor:
    """Return the flat numbers of the cells of node z whose interval in the state holds both signs."""
    low, high = (end[0].flatten() for end in state.intervals[z])
    return torch.nonzero((low < 0) & (high > 0))[:, 0]


@dataclass(eq=False)
class Objectives:
    """Coefficients m (inputs) and l (cells) and constant k of some rows, row.y = m e + l relu(z) + k."""

    inputs: Tensor
    cells: Tensor
    constant: Tensor

    def chosen(self, index: Tensor) -> Objectives:
        """Return the objectives of the subproblems at `index`, positions along the first axis."""
        return Objectives(self.inputs[index], self.cells[index], self.constant[index])


@dataclass(frozen=True, eq=False)
class BoundWithArgmin:
    """A bound per subproblem, and what its gradient needs: coefficients of relu(z) (above), of z (below), the minimiser
    e.

    least   the minimiser e, at which the bound is taken
    """

    bound: Tensor
    above: Tensor
    below: Tensor
    least: Tensor


@dataclass(frozen=True, eq=False)
class ImprovedBounds:
    """Bounds per subproblem, the parameters t that give them, and what each cell may lose there.

    bound, chosen and scores, in this order; (subproblems,) and (subproblems, cells).
    """

    bound: Tensor
    chosen: Tensor
    scores: Tensor


class ReducedNetwork:
    """The unstable cells of a relu network on one box, with everything else folded into constants; float32.

    `state` has the intervals and layers of the whole network, `quick` its float32 bounds on the box.

    relus   (relu, its input, the flat open cells) in order; spans: where each stands among all cells
    """

    def __init__(self, state: State, quick: FastBackward) -> None:
        self.state, self.quick = state, quick
        self.relus: list[tuple[int, int, Tensor]] = []
        self.spans: list[slice] = []
        ends, count = [], 0
        for i in sorted(state.layers):
            layer = state.layers[i]
            if not isinstance(layer, BoundLinear | BoundOpaque):
                z = layer.sources[0]
                cells = open_cells(state, z)
                self.relus.append((i, z, cells))
                self.spans.append(slice(count, count := count + len(cells)))
                ends.append([end[0].flatten()[cells] for end in state.intervals[z]])
        self.count = count
        low, high = (torch.cat(each) for each in zip(*ends, strict=True))
        self.low, self.high = low.float(), high.float()
        self.chord = (high / (high - low)).float()
        self.offset = (-low * high / (high - low)).float()
        self.numbers = {i: k for k, (i, _, _) in enumerate(self.relus)}
        self.reach = torch.cat([quick.inputs[i][1] for i in sorted(quick.inputs)])
        self.moving = torch.nonzero(self.reach > 0)[:, 0]
        parts = [self._cell_objectives(z, cells) for _, z, cells in self.relus]
        self.matrix = torch.cat([p.inputs for p in parts])
        self.lower = torch.cat([p.cells for p in parts])
        self.constant = torch.cat([p.constant for p in parts])
        self.back, self.forth = self.matrix.contiguous(), self.matrix.T.contiguous()

    # --- what is folded ---------------------------------------------------------------------------------------------

    def _cell_objectives(self, z: int, cells: Tensor) -> Objectives:
        """Return the flat cells `cells` of node z as objectives over inputs and unstable cells, one row each."""
        if not len(cells):
            return Objectives(torch.zeros((0, len(self.moving))), torch.zeros((0, self.count)), torch.zeros(0))
        size = math.prod(self.state.layers[z].node.shape)
        parts = [self.objectives(z, torch.nn.functional.one_hot(c, size).float()) for c in cells.split(ROWS)]
        each = ([getattr(p, name) for p in parts] for name in ("inputs", "cells", "constant"))
        return Objectives(*map(torch.cat, each))

    @torch.no_grad()
    def objectives(self, at: int, rows: Tensor) -> Objectives:
        """Return rows (rows, cells of node `at`) expressed by the inputs and the unstable cells below it, and
        constants.
        """
        parts: dict[int, Tensor] = {at: rows.reshape(len(rows), *self.state.layers[at].node.shape)}
        cells = torch.zeros((len(rows), self.count))
        inputs = {i: torch.zeros((len(rows), len(self.quick.inputs[i][1]))) for i in sorted(self.quick.inputs)}

        def step(i: int, a: Tensor) -> tuple[Tensor | float, float]:
            if i in inputs:
                middle, reach = self.quick.inputs[i]
                inputs[i] = flat(a) * reach
                return flat(a) @ middle, 0.0
            if i in self.quick.linear:
                pulled, constant = self.quick.linear[i](a)
            else:
                _, z, open_ = self.relus[self.numbers[i]]
                cells[:, self.spans[self.numbers[i]]] = flat(a)[:, open_]
                low = self.state.intervals[z][0]
                pulled, constant = [a * (low >= 0)], 0.0
            for s, part in zip(self.state.layers[i].sources, pulled, strict=True):
                parts[s] = parts[s] + part if s in parts else part
            return constant, 0.0

        total = propagate_in_reverse(self.state.layers, parts, step, torch.zeros(len(rows)), 0.0)[0]
        return Objectives(torch.cat([inputs[i] for i in sorted(inputs)], 1)[:, self.moving], cells, total)

    # --- bounds -----------------------------------------------------------------------------------------------------

    def bound(self, objectives: Objectives, sign: Tensor, chosen: Tensor) -> BoundWithArgmin:
        """Return a float32 bound of every subproblem, which is not rigorous, and where it is attained.

        `objectives` are the subproblems' rows; `sign` is -1, 0 (open) or 1 per cell, `chosen` is t: slopes and
        multipliers.
        """
        is_open = sign == 0
        down, multiplier = torch.where(is_open, chosen, sign.clamp(min=0)), sign * chosen
        up, offset = torch.where(is_open, self.chord, down), is_open * self.offset
        above, below = objectives.cells.clone(), torch.empty_like(chosen)
        for span in reversed(self.spans):
            if span.stop < self.count:
                above[:, span].addmm_(below[:, span.stop :], self.lower[span.stop :, span])
            a = above[:, span]
            positive = a.clamp(min=0)
            below[:, span] = torch.addcmul(positive * down[:, span], a - positive, up[:, span]) - multiplier[:, span]
        inputs = torch.addmm(objectives.inputs, below, self.back)
        bound = objectives.constant + below @ self.constant + (above.clamp(max=0) * offset).sum(1)
        return BoundWithArgmin(bound - inputs.abs().sum(1), above, below, inputs.sign_().neg_())

    def gradient(self, taken: BoundWithArgmin, sign: Tensor, chosen: Tensor) -> Tensor:
        """Gradient of every bound by t, `chosen`; `taken` is the bound with where its minimum is, `sign` the sides, 0
        if open.
        """
        is_open = sign == 0
        upper = is_open & (taken.above < 0)
        slope = torch.where(upper, self.chord, torch.where(is_open, chosen, sign.clamp(min=0)))
        offset = upper * self.offset
        z = torch.addmm(self.constant, taken.least, self.forth)
        r = torch.empty_like(z)
        for span in self.spans:
            if span.start:
                z[:, span].addmm_(r[:, : span.start], self.lower[span, : span.start].T)
            r[:, span] = torch.addcmul(offset[:, span], slope[:, span], z[:, span])
        return z * torch.where(is_open, taken.above.clamp(min=0), -sign)

    def improved(
        self, objectives: Objectives, sign: Tensor, chosen: Tensor, steps: int, goal: Tensor
    ) -> ImprovedBounds:
        """Return the best t of `steps` Adam steps per subproblem, with its bound and scores.

        One stops above its `goal`. `sign` has the side of each cell, 0 if open; `chosen` is the t to begin with.
        """
        best = torch.full((len(sign),), -torch.inf)
        kept, above = chosen.clone(), torch.zeros_like(chosen)
        rows, signs = torch.arange(len(sign)), sign
        first, second = torch.zeros_like(chosen), torch.zeros_like(chosen)
        rate: Tensor | None = None
        for step in range(steps + 1):
            taken = self.bound(objectives, sign, chosen)
            better = torch.nonzero(taken.bound > best[rows])[:, 0]
            where = rows[better]
            best[where], kept[where] = taken.bound[better], chosen[better]
            above[where] = taken.above[better]
            left = torch.nonzero(best[rows] <= goal[rows])[:, 0]
            if step == steps or not len(left):
                break
            if rate is None:
                rate = torch.where(sign == 0, RATE, MULTIPLIERS * self._layer_means(taken.above))
            if len(left) < KEPT * len(rows):
                rows, objectives, sign, chosen = rows[left], objectives.chosen(left), sign[left], chosen[left]
                first, second, rate = first[left], second[left], rate[left]
                taken = BoundWithArgmin(*(getattr(taken, n)[left] for n in ("bound", "above", "below", "least")))
            gradient = self.gradient(taken, sign, chosen)
            first.lerp_(gradient, 0.1)
            second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            n = step + 1
            length = DECAY**step / (1 - 0.9**n) * math.sqrt(1 - 0.999**n)
            chosen = torch.addcdiv(chosen, first * rate, second.sqrt().add_(EPSILON), value=length).clamp_(min=0)
            chosen = torch.where(sign == 0, chosen.clamp(max=1), chosen)
        return ImprovedBounds(best, kept, self._cell_losses(signs, kept, above))

    def _cell_losses(self, sign: Tensor, chosen: Tensor, above: Tensor) -> Tensor:
        """What each unstable cell may lose, mostly by its upper line: the lower one has its best slope already.

        `sign` is 0 where a cell is open, `chosen` its lower slope, `above` the coefficient of its relu.
        """
        upper = self.offset * -above.clamp(max=0)
        lower = torch.minimum(-chosen * self.low, (1 - chosen) * self.high) * above.clamp(min=0)
        return (sign == 0) * torch.add(upper, lower, alpha=LOWER)

    def _layer_means(self, above: Tensor) -> Tensor:
        """Return the mean absolute coefficient in `above` of each relu layer, repeated for its cells: (rows of `above`,
        cells).
        """
        means = [above[:, s].abs().mean(1, keepdim=True).expand(-1, s.stop - s.start) for s in self.spans]
        return torch.cat(means, 1)

    def position(self, cell: int) -> tuple[int, int]:
        """(node that the relu reads, flat cell of it) of an unstable cell's number; IndexError if there is no such
        number.
        """
        for (_, z, cells), span in zip(self.relus, self.spans, strict=True):
            if cell < span.stop:
                return z, int(cells[cell - span.start])
        raise IndexError(cell)

    # --- which cell to split ----------------------------------------------------------------------------------------

    def split(self, objectives: Objectives, sign: Tensor, better: ImprovedBounds, tried: int) -> Tensor:
        """Cell to split per subproblem: among the `tried` best scores the largest product of both gains; -1 if none is
        unstable.

        `sign` holds the splits made, `better` the bounds and scores without a further one.
        """
        top = better.scores.topk(min(tried, self.count), 1)
        gains = []
        for cell in top.indices.unsqueeze(2).unbind(1):
            t = better.chosen.scatter(1, cell, 0.0)
            sides = [self.bound(objectives, sign.scatter(1, cell, s), t).bound for s in (-1.0, 1.0)]
            gains.append(torch.stack(sides, 1) - better.bound.unsqueeze(1))
        both = torch.stack(gains, 1).clamp(min=0)
        value = (both + LITTLE * both.amax((1, 2), keepdim=True)).prod(2)  # so that one side alone counts too
        best = torch.where(top.values > 0, value, -1.0).argmax(1, keepdim=True)
        cell = top.indices.gather(1, best)[:, 0]
        return torch.where(top.values.gather(1, best)[:, 0] > 0, cell, -1)
