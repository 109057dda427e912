"""Bounds of many subproblems at once, with slopes and multipliers found by gradient steps.

A subproblem fixes the sign of some relu inputs z. There z is linear, and s*z >= 0 holds, so for any b >= 0

    min C.y  >=  min (C.y - sum_k b_k * s_k * z_k)        over the executions of the subproblem.

The bound holds for any slopes of lower lines in 0..1 and any multipliers b, so they are looked for in float32, and the
last evaluation alone is rigorous: it counts the deployed network's rounding and our own, as crown does. z is a node's
reference (specgrad.bounds.linear.network), one number per execution: a subproblem is a set of executions, and the two
sides of a split cover them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...graph.graph import Graph
from ...graph.run import bind_inputs
from ...properties.property import Case
from ...rounding.arithmetic import Arithmetic
from ...scalar import Array
from ..box import Box, balls_of
from ..ibp import box_context
from ..linear.adam import Adam
from ..linear.backward import State, backward
from ..linear.balls import InputBall
from ..linear.layers import Ends, Relaxed
from ..linear.network import Forward
from ..linear.relaxations import Lines
from ..linear.tighten import walk
from .estimate import Quick, QuickLines

RATE, DECAY = 0.097, 0.97  # of the steps on slopes, which lie in 0..1; multipliers take the same steps


def root_forward(
    graph: Graph,
    low: Array,
    high: Array,
    arithmetic: Arithmetic | None = None,
    ball: InputBall | None = None,
) -> Forward:
    """crown's walk over a graph on one box of inputs, and in a ball if there is one, for the deployed network."""
    rules = box_context(graph, True, arithmetic, "torch")
    forward = Forward(graph, rules, bind_inputs(graph, balls_of((Box(low, high),), rules.arithmetic)), within=ball)
    walk(forward, {})
    return forward


def input_ball(case: Case) -> InputBall | None:
    """The ball of a case, as bounds take it."""
    outer = case.outer_ball()
    if case.ball is None or outer is None:
        return None
    return InputBall(case.ball.norm, torch.from_numpy(outer[0]), outer[1])


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch: one objective row each over the cells of node `at`, and what is fixed or found of the relus below it.

    rows          (boxes, cells of `at`): the objectives, C in the literature
    signs         relu input -> (boxes, *shape) of -1, 0, 1: the splits
    slopes        relu -> (boxes, *shape): the lower line's, where the relu is unstable (alpha)
    multipliers   relu input -> (boxes, *shape), not negative: of the splits (beta)
    """

    at: int
    rows: Tensor
    signs: Mapping[int, Tensor]
    slopes: Mapping[int, Tensor]
    multipliers: Mapping[int, Tensor]

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, index: Tensor) -> Problems:
        parts = ({k: v[index] for k, v in d.items()} for d in (self.signs, self.slopes, self.multipliers))
        return Problems(self.at, self.rows[index], *parts)

    @staticmethod
    def joined(parts: Sequence[Problems]) -> Problems:
        def join(name: str) -> dict[int, Tensor]:
            return {k: torch.cat([getattr(p, name)[k] for p in parts]) for k in getattr(parts[0], name)}

        rows = torch.cat([p.rows for p in parts])
        return Problems(parts[0].at, rows, join("signs"), join("slopes"), join("multipliers"))


class Bounder:
    """Bounds of subproblems of one box, from crown's walk over it.

    relus   relu -> its input, for those with a cell that may have either sign
    """

    def __init__(self, forward: Forward) -> None:
        self.forward, self.state, self.graph = forward, forward.state, forward.graph
        nodes = self.graph.nodes
        pairs = {i: nodes[i].operands()[0] for i in self.state.layers if nodes[i].op.name == "relu"}
        self.relus = {i: z for i, z in pairs.items() if bool(self.unstable(z).any())}
        (self.output,) = self.graph.output_positions
        self.quick = Quick(self.state)

    def unstable(self, z: int) -> Tensor:
        """Cells of a relu's input that may have either sign."""
        low, high = self.state.ends[z]
        return (low < 0) & (high > 0)

    def start(self, rows: Tensor, at: int | None = None) -> Problems:
        """One problem per row, nothing split, with crown's own slopes."""
        at = self.output if at is None else at
        signs, slopes, multipliers = {}, {}, {}
        for i, z in self.relus.items():
            if z < at:
                low, high = self.state.ends[z]
                shape = (len(rows), *low.shape[1:])
                signs[z] = torch.zeros(shape, dtype=torch.int8)
                slopes[i] = (high > -low).float().expand(shape).clone()
                multipliers[z] = torch.zeros(shape)
        return Problems(at, rows, signs, slopes, multipliers)

    # --- rigorous ---------------------------------------------------------------------------------------------------

    def ends(self, problems: Problems, z: int) -> Ends:
        """The box of a relu's input in every problem."""
        low, high = self.state.ends[z]
        sign = problems.signs[z]
        return torch.where(sign > 0, low.clamp(min=0), low), torch.where(sign < 0, high.clamp(max=0), high)

    def _state(self, problems: Problems) -> State:
        """The root's state with the problems' boxes and slopes."""
        ends = {**self.state.ends, **{z: self.ends(problems, z) for z in problems.signs}}
        state = replace(self.state, ends=ends, kept_lines={})
        for i, slope in problems.slopes.items():
            layer = state.layers[i]
            assert isinstance(layer, Relaxed)
            low, high = ends[self.relus[i]]
            lines = layer.lines((low, high))
            below = torch.where((low < 0) & (high > 0), slope.to(low).clamp(0, 1), lines.lower_slope)
            state.kept_lines[i] = state._moved(i, layer, Lines(below, lines.lower, lines.upper_slope, lines.upper))
        return state

    @torch.no_grad()
    def lower(self, problems: Problems) -> Tensor:
        """A lower bound per problem, rigorous for every float32 execution."""
        seeds = {problems.at: problems.rows.reshape(len(problems), 1, *self.graph.nodes[problems.at].shape)}
        for z, multiplier in problems.multipliers.items():
            if bool(problems.signs[z].any()):
                seeds[z] = -(multiplier.to(problems.rows).clamp(min=0) * problems.signs[z]).unsqueeze(1)
        lower: Tensor = backward(self._state(problems), seeds)[:, 0]
        if problems.at != self.output:  # a reference, which the subproblem is about
            return lower
        return lower - self.forward.slack(self.output, problems.rows[None])[0]

    # --- optimised --------------------------------------------------------------------------------------------------

    def lines(self, problems: Problems) -> QuickLines:
        """What stays fixed while slopes and multipliers are looked for."""
        return self.quick.lines({z: self.ends(problems, z) for z in problems.signs}, self.relus)

    def optimised(self, problems: Problems, steps: int, targets: Tensor) -> tuple[Problems, Tensor]:
        """Better slopes and multipliers, and their rigorous bounds; stops when every bound reaches its target."""
        lines, rows = self.lines(problems), problems.rows.float()
        split = {z: s for z, s in problems.signs.items() if bool(s.any())}
        slopes = {k: v.clone().requires_grad_(True) for k, v in problems.slopes.items()}
        multipliers = {z: problems.multipliers[z].clone().requires_grad_(True) for z in split}
        adam = Adam([*slopes.values(), *multipliers.values()], RATE, DECAY)
        best, kept = torch.full((len(problems),), -torch.inf), problems
        for step in range(steps + 1):
            pushed = {z: multipliers[z] * s for z, s in split.items()}
            lower = self.quick.lower(problems.at, rows, lines, slopes, pushed)
            better = lower.detach() > best
            best, kept = torch.where(better, lower.detach(), best), _better(kept, slopes, multipliers, better)
            nothing_moves = not lower.requires_grad  # no unstable relu, or all of them in a max_pool's lines
            if step == steps or nothing_moves or bool((best > targets + MARGIN).all()):
                break
            adam.step(torch.autograd.grad(lower.sum(), adam.parameters, allow_unused=True))
            with torch.no_grad():
                for v in slopes.values():
                    v.clamp_(0, 1)
                for v in multipliers.values():
                    v.clamp_(min=0)
        return kept, self.lower(kept)


MARGIN = 1e-4  # float32 bounds this far above their target are taken for proven, to be checked by the rigorous one


def _better(kept: Problems, slopes: Mapping[int, Tensor], multipliers: Mapping[int, Tensor], where: Tensor) -> Problems:
    def merge(old: Mapping[int, Tensor], new: Mapping[int, Tensor]) -> dict[int, Tensor]:
        mask = {k: where.view(-1, *(1,) * (v.ndim - 1)) for k, v in new.items()}
        return {k: torch.where(mask[k], new[k].detach(), v) if k in new else v for k, v in old.items()}

    if bool(where.all()):
        taken = ({k: new[k].detach().clone() if k in new else v for k, v in old.items()}
                 for old, new in ((kept.slopes, slopes), (kept.multipliers, multipliers)))  # fmt: skip
        return Problems(kept.at, kept.rows, kept.signs, *taken)
    return Problems(kept.at, kept.rows, kept.signs, merge(kept.slopes, slopes), merge(kept.multipliers, multipliers))
