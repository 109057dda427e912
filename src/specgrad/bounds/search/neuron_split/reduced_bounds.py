"""Rigorous bounds of the subproblems of a reduced network, over all cells of the full one.

They are those of Bounder.lower where relus alone bend: m*z with m = sign*t is subtracted where the sign of z is fixed,
which is not negative there, and a relu that is open lies above slope*z for any slope in 0..1. Cells that are decided
have the same lines in every problem, so lines are computed of open cells alone.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from specgrad.bounds.linear.propagation.backward import backward
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.bounds.linear.relaxation.bound_layers import BoundUnary
from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation

from ..shared.float32_bounds import flat
from .reduced_network import ReducedNetwork
from .subproblems import Bounder


class FoldedBounds:
    """Rigorous bounds of subproblems of `bounder`, at the cells of its reduced network `folded`; holds what they share:
    the root's relaxations and intervals of unstable cells.
    """

    def __init__(self, bounder: Bounder, folded: ReducedNetwork) -> None:
        self.bounder, self.folded, self.state = bounder, folded, bounder.state
        self.root, self.ends = {}, {}
        for i, z, cells in folded.relus:
            layer = self.state.layers[i]
            assert isinstance(layer, BoundUnary)
            self.root[i] = self.state._offset_by_errors(i, layer, layer.relaxation(self.state.intervals[z]))
            self.ends[i] = [flat(end)[:, cells] for end in self.state.intervals[z]]

    @torch.no_grad()
    def lower(self, rows: Tensor, sign: Tensor, chosen: Tensor) -> Tensor:
        """Lower bound per subproblem of its row, sound for every float32 execution whose z have the signs.

        `sign` and `chosen` are per unstable cell: the side, 0 if open, and the slope or multiplier t.
        """
        bounder, nodes = self.bounder, self.bounder.graph.nodes
        seeds = {bounder.output: rows.reshape(len(rows), 1, *nodes[bounder.output].shape)}
        state = replace(self.state, cached_relaxations={})
        for (i, z, cells), span in zip(self.folded.relus, self.folded.spans, strict=True):
            signs, t = sign[:, span], chosen[:, span].double().nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
            if bool(signs.any()):
                seed = rows.new_zeros((len(rows), 1, *nodes[z].shape))
                seed.view(len(rows), -1)[:, cells] = -signs * t
                seeds[z] = seed
            state.cached_relaxations[i] = self._relu_lines(i, cells, signs, t)
        return backward(state, seeds)[:, 0] - bounder.forward.slack(bounder.output, rows[None])[0]

    def _relu_lines(self, i: int, cells: Tensor, sign: Tensor, chosen: Tensor) -> LinearRelaxation:
        """Relaxation of relu i in every subproblem, recomputed at its unstable cells only.

        `sign` says on which side each of them is, 0 if open; then `chosen` is its lower slope.
        """
        if not len(cells):
            return self.root[i]
        layer = self.state.layers[i]
        assert isinstance(layer, BoundUnary)
        low, high = torch.where(sign > 0, 0.0, self.ends[i][0]), torch.where(sign < 0, 0.0, self.ends[i][1])
        lines = relax.relu(low, high)
        below = torch.where(sign == 0, chosen.clamp(max=1), lines.lower_slope)
        parts, shape = (
            self.state._offset_by_errors(i, layer, lines._replace(lower_slope=below), cells),
            self.root[i].lower.shape,
        )
        whole = [part.expand(len(sign), *shape[1:]).clone() for part in self.root[i]]
        for into, part in zip(whole, parts, strict=True):
            into.view(len(sign), -1)[:, cells] = part
        return LinearRelaxation(*whole)
