"""Bounds of many subproblems at once, with slopes and multipliers found by gradient steps.

A subproblem cuts the ranges of some cells z, at kinks of the functions that read them: least <= z <= most. There the
functions are straight, or bend less, and for any numbers m

    min C.y  >=  min (C.y - sum_k m_k * (z_k - c_k))        over the executions of the subproblem,

c being `least` where m > 0 and `most` where m < 0: every term of the sum is not negative. (Both sides of one cell never
serve together: b*(z - least) + b*(most - z) is a constant, and lost.) The bound holds for any lower lines through the
kink of a convex function and any m whose side is cut, so they are looked for in float32, and the last evaluation alone
is rigorous: it counts the deployed network's rounding and our own, as crown does. z is a node's reference
(specgrad.bounds.linear.intermediate.forward_pass), one number per execution: a subproblem is a set of executions,
and the two sides of a cut cover them all, its point lying in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.box import Box, balls_of
from specgrad.bounds.interval_bounds import box_context
from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.intermediate.tighten import walk
from specgrad.bounds.linear.propagation.adam import Adam
from specgrad.bounds.linear.propagation.backward import State, backward
from specgrad.bounds.linear.relaxation.bound_layers import BoundRelaxed, BoundUnary, Interval
from specgrad.bounds.linear.relaxation.formulas import LinearRelaxation
from specgrad.bounds.linear.relaxation.input_ball import InputBall
from specgrad.graph.graph import Graph
from specgrad.graph.ir.node import bind_inputs
from specgrad.op import apply
from specgrad.ops.elementwise import SIGN
from specgrad.properties.property import Case
from specgrad.rounding import slack_constants
from specgrad.rounding.arithmetic import Arithmetic
from specgrad.scalar import Array

from ..input_split.interval_cache import outward
from ..input_split.search import Boxes
from ..shared.float32_bounds import FastBackward, QuickLines, flat
from .maxima import maxima, quantised

Chosen = tuple[Mapping[int, Tensor], Mapping[int, Tensor], Mapping[int, Tensor]]  # slopes, multipliers, pulls
MAX_INPUTS_TO_REBOUND, MAX_CELLS_TO_REBOUND = 64, 4096  # where layers are bounded again when an input is cut
RATE, DECAY = 0.097, 0.97  # of the steps on slopes, which lie in 0..1; multipliers take the same steps


def root_forward(
    graph: Graph,
    low: Array,
    high: Array,
    arithmetic: Arithmetic | None = None,
    ball: InputBall | None = None,
) -> ForwardPass:
    """Return crown's forward pass over `graph` on the input box low..high, and in a ball if given, for the deployed
    network.

    `arithmetic` are the executions meant; None: float32, fused. ParameterError or UnsupportedError for an arithmetic
    that cannot be bounded.
    """
    rules = box_context(graph, True, arithmetic, "torch")
    forward = ForwardPass(
        graph, rules, bind_inputs(graph, balls_of((Box(low, high),), rules.arithmetic)), input_ball=ball
    )
    walk(forward, {})
    return forward


def input_ball(case: Case) -> InputBall | None:
    """Return the norm ball of a case with rounding included, as bounds take it; None if the case has none."""
    outer = case.outer_ball()
    if case.ball is None or outer is None:
        return None
    return InputBall(case.ball.norm, torch.from_numpy(outer[0]), outer[1])


PARTS = ("limits", "slopes", "multipliers", "candidate_taps", "tap_multipliers", "known")


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch of subproblems: one objective row each over the cells of node `at`, with the splits and free parameters
    below it.

    rows             (boxes, cells of `at`): the objectives, C in the literature
    limits           node -> (boxes, 2, *shape): least and most of its cells by splits, infinite where there is none
    slopes           nonlinear function -> (boxes, *shape) in 0..1: lower slope between its two slopes (alpha)
    multipliers      node -> (boxes, *shape): m, positive for z >= least, negative for z <= most (beta)
    candidate_taps   maximum -> bool (boxes, taps, windows): which taps may win
    tap_multipliers  maximum -> (boxes, taps, windows): b, not negative, of taps that have lost (maxima.py)
    known            node -> (boxes, 2, *shape): intervals of split inputs, and what follows for other nodes
    """

    at: int
    rows: Tensor
    limits: Mapping[int, Tensor]
    slopes: Mapping[int, Tensor]
    multipliers: Mapping[int, Tensor]
    candidate_taps: Mapping[int, Tensor]
    tap_multipliers: Mapping[int, Tensor]
    known: Mapping[int, Tensor]

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, index: Tensor) -> Problems:
        """Return the subproblems at `index`, a mask or positions."""
        parts = {name: {k: v[index] for k, v in getattr(self, name).items()} for name in PARTS}
        return Problems(self.at, self.rows[index], **parts)

    @staticmethod
    def joined(parts: Sequence[Problems]) -> Problems:
        """Concatenate `parts`, batches of subproblems of one node."""

        def join(name: str) -> dict[int, Tensor]:
            """Concatenate one dictionary of tensors, key by key."""
            return {k: torch.cat([getattr(p, name)[k] for p in parts]) for k in getattr(parts[0], name)}

        rows = torch.cat([p.rows for p in parts])
        return Problems(parts[0].at, rows, **{name: join(name) for name in PARTS})

    def without(self, i: int, boxes: Tensor, windows: Tensor, lost: Tensor) -> Problems:
        """Return the subproblems with taps `lost` (k, taps) ruled out in windows[k] of maximum i in boxes[k]."""
        left = self.candidate_taps[i].clone()
        left[boxes, :, windows] &= ~lost
        return replace(self, candidate_taps={**self.candidate_taps, i: left})

    def cut(self, z: int, boxes: Tensor, cells: Tensor, point: float, side: int) -> Problems:
        """Return the subproblems with cells[k] of node z split at `point` in boxes[k]: z <= point (side 0) or >= (side
        1).
        """
        limits, end = self.limits[z].clone(), 1 - side
        each = flat(limits, 2)
        nearer = torch.maximum if side else torch.minimum
        each[boxes, end, cells] = nearer(each[boxes, end, cells], each.new_tensor(point))
        return replace(self, limits={**self.limits, z: limits})

    def split_input(self, x: int, boxes: Tensor, cells: Tensor, points: Tensor, side: int) -> Problems:
        """Return the subproblems with input cells[k] of boxes[k] up to points[k] (side 0), or from the next float32 on
        (side 1).
        """
        known = self.known[x].clone()
        new = torch.nextafter(points, torch.full_like(points, torch.inf)) if side else points
        flat(known, 2)[boxes, 1 - side, cells] = new
        return replace(self, known={**self.known, x: known})

    def multiplier_range(self, z: int) -> Interval:
        """Least and greatest multiplier of every cell of node z: 0 on a side that no split bounds, else unlimited."""
        least, most = self.limits[z].unbind(1)
        return torch.where(most < torch.inf, -torch.inf, 0.0), torch.where(least > -torch.inf, torch.inf, 0.0)

    def offsets(self, z: int) -> Interval:
        """Split points `least` and `most` of node z, 0 where there is none (its multiplier is 0 too)."""
        least, most = self.limits[z].unbind(1)
        return least.nan_to_num(neginf=0.0), most.nan_to_num(posinf=0.0)

    @property
    def cut_nodes(self) -> list[int]:
        """Nodes with a finite split point in some subproblem."""
        return [z for z, limits in self.limits.items() if bool(limits.isfinite().any())]


def kinks(layer: BoundUnary) -> tuple[float, ...]:
    """Points where a unary function may be split: its kinks as float32 numbers, 0 for sign; a nearby point is sound
    too.

    sign is cut at 0, where it is 0: -1 or 0 on one side, 0 or 1 on the other.
    """
    curve = layer.node.op.curve
    if layer.node.op is SIGN:
        return (0.0,)
    points = () if curve is None else (float(np.float32(float(k))) for k in curve.kinks(layer.node.params))
    return tuple(c for c in points if math.isfinite(c))


def convex_slopes(layer: BoundUnary) -> tuple[float, float] | None:
    """(left, right) if the layer's function is max(left*z, right*z), else None; slope*z is a lower line for all slopes
    between.
    """
    curve, node = layer.node.op.curve, layer.node
    if curve is None or tuple(curve.pieces(node.params) or ()) != (0,):
        return None
    below, at, above = apply(node.op, torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64), **node.params).tolist()
    return (-below, above) if at == 0 and -below <= above else None


def _next_below(x: Tensor) -> Tensor:
    """Return the next float64 number below x."""
    return torch.nextafter(x, torch.full_like(x, -torch.inf))


class Bounder:
    """Bounds subproblems of one input box, from crown's forward pass over it.

    kinked   function -> its input, for those with a kink inside the range of some cell
    points   input -> the kinks of the functions that read it, in order, as float32 numbers
    bent     of the convex ones with their only kink at 0, where they are 0: their slopes on both sides
    maxima   those with a window that more than one tap may win
    """

    def __init__(self, forward: ForwardPass) -> None:
        self.forward, self.state, self.graph = forward, forward.state, forward.graph
        self.kinked: dict[int, int] = {}
        self.points: dict[int, tuple[float, ...]] = {}
        self.bent: dict[int, tuple[float, float]] = {}
        for i, layer in self.state.layers.items():
            if isinstance(layer, BoundUnary) and bool(
                self._has_point_inside(z := layer.sources[0], kinks(layer)).any()
            ):
                self.kinked[i] = z
                self.points[z] = tuple(sorted({*self.points.get(z, ()), *kinks(layer)}))
                if (slopes := convex_slopes(layer)) is not None:
                    self.bent[i] = slopes
        self.maxima = maxima(self.state)
        (self.output,) = self.graph.output_positions
        self.quick = FastBackward(self.state)

    def _has_point_inside(self, z: int, points: Sequence[float]) -> Tensor:
        """Bool mask of the cells of node z with one of the points inside their intervals."""
        low, high = self.state.intervals[z]
        inside = [(low < c) & (high > c) for c in points]
        return torch.stack(inside).any(0) if inside else low > high

    def unstable(self, z: int) -> Tensor:
        """Bool mask of the cells of node z with a kink inside their intervals."""
        return self._has_point_inside(z, self.points[z])

    def start(self, rows: Tensor, at: int | None = None) -> Problems:
        """Return one subproblem per row over the cells of node `at` (None: the output), without splits, with crown's
        own slopes.
        """
        at = self.output if at is None else at
        limits, slopes, multipliers = {}, {}, {}
        for i, z in self.kinked.items():
            if z < at:
                low, high = self.state.intervals[z]
                shape = (len(rows), *low.shape[1:])
                ends = torch.tensor([-torch.inf, torch.inf]).view(1, 2, *(1,) * (low.ndim - 1))
                limits[z] = ends.expand(len(rows), 2, *low.shape[1:]).clone()
                multipliers[z] = torch.zeros(shape)
                if i in self.bent:
                    slopes[i] = (high > -low).float().expand(shape).clone()
        below = {i: m for i, m in self.maxima.items() if i < at}
        left = {i: m.inside.expand(len(rows), *m.inside.shape).clone() for i, m in below.items()}
        pulls = {i: torch.zeros(v.shape) for i, v in left.items()}
        known = {} if at != self.output else {i: self._root_interval(i, len(rows)) for i in self.renewed}
        return Problems(at, rows, limits, slopes, multipliers, left, pulls, known)

    def _root_interval(self, i: int, count: int) -> Tensor:
        """Interval of node i on the whole box in float32, rounded outward, (count, 2, *shape)."""
        ends = torch.stack([outward(end, side)[0] for end, side in zip(self.state.intervals[i], (-1, 1), strict=True)])
        return ends.expand(count, *ends.shape).clone()

    @cached_property
    def renewed(self) -> list[int]:
        """The input node, then the nodes whose intervals are recomputed after an input split; empty if inputs cannot be
        split.
        """
        inputs = [i for i in self.graph.input_positions if i in self.state.layers]
        if len(inputs) != 1:
            return []
        is_small = len(self.state.intervals[inputs[0]][0].flatten()) <= MAX_INPUTS_TO_REBOUND
        cells = (
            sum(len(layer.cells) for layer in self._batched_bounds.narrowed) if is_small else MAX_CELLS_TO_REBOUND + 1
        )
        return inputs + (
            [layer.node for layer in self._batched_bounds.narrowed] if cells <= MAX_CELLS_TO_REBOUND else []
        )

    @cached_property
    def _batched_bounds(self) -> Boxes:
        """Return the object that bounds hidden nodes on many parts of the input box at once."""
        rows = torch.zeros((1, math.prod(self.graph.nodes[self.output].shape)), dtype=torch.float64)
        return Boxes(self.forward, rows, torch.zeros(1, dtype=torch.float64), [0])

    def rebound_layers(self, problems: Problems) -> tuple[Problems, Tensor]:
        """Return all the subproblems, with the layers' intervals computed again from their parts of the input; and
        which of them may hold an execution, as a bool mask.

        Those of which the mask says False stay in: the caller leaves them out. Nothing is computed, and the mask is
        True, where `renewed` names no layer.
        """
        if len(self.renewed) < 2:
            return problems, torch.ones(len(problems), dtype=torch.bool)
        layers, count = self._batched_bounds.narrowed, len(problems)
        x, ends = (
            self.renewed[0],
            {layer.node: self.ends(problems, layer.node) for layer in self._batched_bounds.narrowed},
        )
        before = [torch.cat([flat(ends[n.node][k])[:, n.cells] for n in layers], 1) for k in (0, 1)]
        low, high = (flat(end) for end in self.ends(problems, x))
        parts = [
            torch.arange(count)[k : k + self._batched_bounds.batch] for k in range(0, count, self._batched_bounds.batch)
        ]
        renewed = [self._batched_bounds.bounds(low[k], high[k], (before[0][k], before[1][k])) for k in parts]
        alive, after = torch.cat([n[2] for n in renewed]), [torch.cat([n[4][k] for n in renewed]) for k in (0, 1)]
        known = dict(problems.known)
        for n in layers:
            new = known[n.node].clone()
            for k, side in ((0, -1), (1, 1)):
                flat(new, 2)[:, k, n.cells] = outward(after[k][:, n.columns], side)
            known[n.node] = new
        return replace(problems, known=known), alive

    # --- rigorous ---------------------------------------------------------------------------------------------------

    def ends(self, problems: Problems, z: int) -> Interval:
        """(lower, upper) of node z in every subproblem: the root's interval, splits and recomputed
        bounds intersected.
        """
        low, high = self.state.intervals[z]
        for part in (problems.limits, problems.known):
            if z in part:
                least, most = part[z].to(low).unbind(1)
                low, high = torch.maximum(low, least), torch.minimum(high, most)
        return low, high

    def all_ends(self, problems: Problems) -> dict[int, Interval]:
        """Intervals of all nodes that may be narrower than at the root in some subproblem."""
        changed = {z for z, v in problems.known.items() if bool((v != self._root_interval(z, 1)).any())}
        return {z: self.ends(problems, z) for z in {*problems.limits, *changed}}

    def left(self, problems: Problems) -> dict[int, Tensor]:
        """Return the candidate taps of the maxima that are split, bool (taps, boxes, *shape), by position: which may
        still win.
        """
        cut = {
            i: self.maxima[i] for i, v in problems.candidate_taps.items() if bool((v != self.maxima[i].inside).any())
        }
        return {i: m.shaped(problems.candidate_taps[i]) for i, m in cut.items()}

    def decided(self, problems: Problems) -> list[int]:
        """Return the positions of maxima with a window of which splits have left one tap."""
        return [i for i, v in problems.candidate_taps.items() if bool(self.maxima[i].alone(v).any())]

    def slope(self, i: int, share: Tensor) -> Tensor:
        """Return the lower slope of function i in float64: the one at `share` (0..1) of the way from its least to its
        largest slope.
        """
        left, right = self.bent[i]
        return (left + share.double().clamp(0, 1) * (right - left)).clamp(left, right)

    def _state_of(self, problems: Problems) -> State:
        """Return the root's backward state with the subproblems' intervals, candidate taps and slopes."""
        ends = {**self.state.intervals, **self.all_ends(problems)}
        state = replace(self.state, intervals=ends, cached_relaxations={}, candidate_taps=self.left(problems))
        for i, share in problems.slopes.items():
            layer = state.layers[i]
            assert isinstance(layer, BoundRelaxed)
            fold = state.duplicate_fold(i)
            low, high = ends[self.kinked[i]] if fold is None else fold.intersect_duplicates(ends[self.kinked[i]])
            lines, is_open = layer.relaxation((low, high)), (low < 0) & (high > 0)
            below = torch.where(is_open, self.slope(i, share), lines.lower_slope)
            slack = 0.0 if self.bent[i] == (0, 1) else slack_constants.LINE * sum(map(abs, self.bent[i]))  # as rounded
            lower = torch.where(is_open, -slack * torch.maximum(-low, high), lines.lower)
            state.cached_relaxations[i] = state._offset_by_errors(
                i, layer, LinearRelaxation(below, lower, lines.upper_slope, lines.upper)
            )
        return state

    @torch.no_grad()
    def lower(self, problems: Problems) -> Tensor:
        """Return a lower bound of every problem's objective, row . (value of its node `at`), as float64 (problems,).

        Targets are not subtracted. At the output it holds for every float32 execution. At a hidden node it holds
        for the node's reference, from which values differ by up to the node's deviation.
        """
        seeds = {problems.at: problems.rows.reshape(len(problems), 1, *self.graph.nodes[problems.at].shape)}
        pushed, constant = self._tap_multiplier_terms(problems, quantised(self._free_parameters(problems)[2]))
        for z in problems.cut_nodes:
            m = problems.multipliers[z].nan_to_num(0.0, 0.0, 0.0).clamp(*problems.multiplier_range(z)).to(problems.rows)
            least, most = (end.to(m) for end in problems.offsets(z))
            terms = flat(m.clamp(min=0) * least + m.clamp(max=0) * most)
            sizes, offset = terms.abs().sum(1), torch.maximum(least.abs(), most.abs())
            if z in pushed:  # the sum is rounded: it stands for another multiplier of the same sign
                sizes = sizes + flat(pushed[z].abs() * offset).sum(1)
            pushed[z] = pushed[z] + m if z in pushed else m
            constant = _next_below(constant + _next_below(terms.sum(1) - self.state.own_rounding(z) * sizes))
        seeds |= {z: -p.unsqueeze(1) for z, p in pushed.items()}
        state = self._state_of(problems)
        lower: Tensor = backward(state, seeds)[:, 0]
        if any(
            state.duplicate_fold(i) is not None for i in state.layers
        ):  # slopes were looked for in the network as it is
            apart = replace(state, folds=dict.fromkeys(state.layers))
            lower = torch.fmax(lower, backward(apart, seeds)[:, 0])
        lower = torch.where(constant == 0, lower, _next_below(lower + constant))
        if problems.at != self.output:  # a reference, which the subproblem is about
            return lower
        return lower - self.forward.slack(self.output, problems.rows[None])[0]

    def _tap_multiplier_terms(
        self, problems: Problems, pulls: Mapping[int, Tensor]
    ) -> tuple[dict[int, Tensor], Tensor]:
        """Objectives that the multipliers `pulls` of maxima's taps add at the nodes that maxima read, and a constant
        per box, rounded down.
        """
        pushed: dict[int, Tensor] = {}
        constant = next(iter(pulls.values()), problems.rows).new_zeros(len(problems))
        for i, b in pulls.items():
            seeds, fixed, sizes = self.maxima[i].multiplier_objectives(problems.candidate_taps[i], b)
            for s, seed in seeds.items():
                shaped = -seed.reshape(len(problems), *self.graph.nodes[s].shape)
                pushed[s] = pushed[s] + shaped if s in pushed else shaped
            constant = _next_below(constant + _next_below(fixed - self.state.own_rounding(i) * sizes))
        return pushed, constant

    # --- optimised --------------------------------------------------------------------------------------------------

    def lines(self, problems: Problems) -> QuickLines:
        """Relaxations of all layers in float32 for these problems, without what slopes and multipliers change."""
        return self.quick.lines(self.all_ends(problems), self.bent, self.left(problems))

    def estimate(
        self, problems: Problems, lines: QuickLines, chosen: Chosen | None = None, seen: dict[int, Tensor] | None = None
    ) -> Tensor:
        """Non-rigorous float32 lower bound per subproblem by the relaxations `lines`; `seen` collects coefficients by
        node.

        `chosen` are slopes and multipliers in place of those of the subproblems.
        """
        slopes, multipliers, pulls = chosen or self._free_parameters(problems)
        pushed, constant = self._tap_multiplier_terms(problems, pulls)
        for z, m in multipliers.items():
            pushed[z] = pushed[z] + m if z in pushed else m
            if any(self.points[z]):
                least, most = problems.offsets(z)
                constant = constant + flat(m.clamp(min=0) * least + m.clamp(max=0) * most).sum(1)
        return self.quick.lower(problems.at, problems.rows.float(), lines, slopes, pushed, seen) + constant.float()

    def _free_parameters(self, problems: Problems) -> Chosen:
        """Slopes, multipliers and tap multipliers that matter: those of what is split."""
        multipliers = {z: problems.multipliers[z] for z in problems.cut_nodes}
        return dict(problems.slopes), multipliers, {i: problems.tap_multipliers[i] for i in self.decided(problems)}

    def optimised(
        self, problems: Problems, steps: int, targets: Tensor, decay: float = DECAY
    ) -> tuple[Problems, Tensor]:
        """Optimise slopes and multipliers by Adam; return the subproblems with the best and their rigorous bounds.

        It ends after `steps` steps, or once every estimate exceeds its target; `decay` is that of the learning rate.
        """
        lines = self.lines(problems)
        slopes, multipliers, pulls = chosen = tuple(
            {k: v.clone().requires_grad_(True) for k, v in some.items()} for some in self._free_parameters(problems)
        )
        allowed = {z: problems.multiplier_range(z) for z in multipliers}
        adam = Adam([v for some in chosen for v in some.values()], RATE, decay)
        best, kept = torch.full((len(problems),), -torch.inf), problems
        for step in range(steps + 1):
            lower = self.estimate(problems, lines, (slopes, multipliers, pulls))
            better = lower.detach() > best
            best, kept = torch.where(better, lower.detach(), best), _with_better(kept, chosen, better)
            nothing_moves = not lower.requires_grad  # no function is bent, or all of them stand in a max_pool's lines
            if step == steps or nothing_moves or bool((best > targets + MARGIN).all()):
                break
            adam.step(torch.autograd.grad(lower.sum(), adam.parameters, allow_unused=True))
            with torch.no_grad():
                for v in slopes.values():
                    v.clamp_(0, 1)
                for z, v in multipliers.items():
                    v.clamp_(*allowed[z])
                for v in pulls.values():
                    v.clamp_(min=0)
        return kept, self.lower(kept)


MARGIN = 1e-4  # float32 bounds this far above their target are taken for proven, to be checked by the rigorous one


def _with_better(kept: Problems, chosen: Sequence[Mapping[int, Tensor]], where: Tensor) -> Problems:
    """Return the subproblems `kept` with the parameters `chosen` (slopes, multipliers, tap multipliers) where `where`
    is true.
    """
    everywhere = bool(where.all())

    def merged(old: Tensor, new: Tensor) -> Tensor:
        new = new.detach()
        return new.clone() if everywhere else torch.where(where.view(-1, *(1,) * (new.ndim - 1)), new, old)

    slopes, multipliers, pulls = (
        {k: merged(v, new[k]) if k in new else v for k, v in old.items()}
        for old, new in zip((kept.slopes, kept.multipliers, kept.tap_multipliers), chosen, strict=True)
    )
    return replace(kept, slopes=slopes, multipliers=multipliers, tap_multipliers=pulls)
