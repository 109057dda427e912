"""Branch and bound on relu splits: backward bounds of many subproblems at once, with slopes and multipliers optimised.

A subproblem fixes the sign of some relu inputs z. There z is linear, and s*z >= 0 holds, so for any b >= 0

    min C.y  >=  min (C.y - sum_k b_k * s_k * z_k)        over the executions of the subproblem.

Slopes of lower lines and multipliers b are found by gradient steps. The bound holds whatever they are, so its last
evaluation alone is rigorous: it counts the deployed network's rounding and our own, as crown does. z is the value that
float32 computes, whose sign is what the relu sees: a subproblem is a set of float32 executions, and the two sides of a
split cover them all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..graph.graph import Graph
from ..graph.run import bind_inputs
from ..scalar import Array
from .box import Box, balls_of
from .crown import Pass
from .ibp import box_context
from .layers import Opaque, rows_dot, split
from .relax import Lines

Progress = Callable[[str, int, int], None]

U = 2.0**-53
BATCH, FIRST_STEPS, STEPS = 64, 30, 15
RATE, DECAY = 0.1, 0.98  # of the optimiser's steps on slopes, which lie in 0..1


def root_pass(graph: Graph, low: Array, high: Array) -> Pass:
    """crown's walk over a graph on one box of inputs, for the deployed float32 network."""
    found = Pass(graph, box_context(graph, True, None, "torch"), {})
    found.run(bind_inputs(graph, balls_of((Box(low, high),))))
    return found


@dataclass(frozen=True, eq=False)
class Problems:
    """A batch: one row of the objective each, signs of relu inputs, and the slopes and multipliers found so far.

    signs    relu input -> (boxes, *shape) of -1, 0, 1
    slopes   relu -> (boxes, *shape) of the lower line
    """

    rows: Tensor
    signs: Mapping[int, Tensor]
    slopes: Mapping[int, Tensor]
    multipliers: Mapping[int, Tensor]

    def __len__(self) -> int:
        return len(self.rows)

    def chosen(self, index: Tensor) -> Problems:
        parts = ({k: v[index] for k, v in d.items()} for d in (self.signs, self.slopes, self.multipliers))
        return Problems(self.rows[index], *parts)

    @staticmethod
    def joined(parts: Sequence[Problems]) -> Problems:
        def join(name: str) -> dict[int, Tensor]:
            return {k: torch.cat([getattr(p, name)[k] for p in parts]) for k in getattr(parts[0], name)}

        rows = torch.cat([p.rows for p in parts])
        return Problems(rows, join("signs"), join("slopes"), join("multipliers"))


@dataclass(eq=False)
class Bounder:
    """Bounds of subproblems, from the balls, layers and errors of one pass over the root."""

    root: Pass
    relus: dict[int, int] = field(init=False)
    """relu -> its input, for those that some cell leaves open."""

    def __post_init__(self) -> None:
        nodes = self.root.graph.nodes
        found = {i: nodes[i].operands()[0] for i in self.root.layers if nodes[i].op.name == "relu"}
        self.ends = {z: self.root.ends_of(z) for z in found.values()}
        self.relus = {i: z for i, z in found.items() if bool(self._open(z).any())}
        (self.output,) = self.root.graph.output_positions
        self.fused = {layer.sources[0] for layer in self.root.layers.values() if getattr(layer, "with_zero", False)}

    def _open(self, z: int) -> Tensor:
        low, high = self.ends[z]
        return (low < 0) & (high > 0)

    def start(self, rows: Tensor) -> Problems:
        """One problem per row, nothing split, with crown's own slopes."""
        signs, slopes, multipliers = {}, {}, {}
        for i, z in self.relus.items():
            low, high = self.ends[z]
            shape = (len(rows), *low.shape[1:])
            signs[z] = torch.zeros(shape, dtype=torch.int8)
            slopes[i] = (high > -low).to(rows).expand(shape).clone()
            multipliers[z] = torch.zeros(shape, dtype=rows.dtype)
        return Problems(rows, signs, slopes, multipliers)

    # --- one evaluation -----------------------------------------------------------------------------------------

    def _ends(self, problems: Problems, z: int) -> tuple[Tensor, Tensor]:
        low, high = self.ends[z] if z in self.ends else self.root.ends_of(z)
        if z not in problems.signs:
            return low, high
        sign = problems.signs[z]
        return torch.where(sign > 0, low.clamp(min=0), low), torch.where(sign < 0, high.clamp(max=0), high)

    def _lines(self, problems: Problems, i: int) -> Lines | None:
        layer = self.root.layers[i]
        ends = [self._ends(problems, s) for s in layer.sources]
        lines = layer.lines(ends)
        if i not in problems.slopes or lines is None:
            return lines
        low, high = ends[0]
        lower = torch.where((low < 0) & (high > 0), problems.slopes[i].clamp(0, 1), lines.lower_slope)
        return Lines(lower, lines.lower, lines.upper_slope, lines.upper)

    def lower(self, problems: Problems, *, rigorous: bool = True, seen: dict[int, Tensor] | None = None) -> Tensor:
        """A lower bound per problem; `seen` collects the coefficients of every relu, and of the input."""
        root = self.root
        outer: dict[int, Tensor] = {self.output: self._seed(problems)}
        inner: dict[int, Tensor] = {}
        for z, multiplier in problems.multipliers.items():
            outer[z] = -(multiplier.clamp(min=0) * problems.signs[z]).unsqueeze(1)
        total = problems.rows.new_zeros((len(problems), 1))
        lost = torch.zeros_like(total)
        for i in sorted(root.layers, reverse=True):
            parts = [d.pop(i) for d in (outer, inner) if i in d]
            if not parts:
                continue
            a = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            layer = root.layers[i]
            if seen is not None and (i in self.relus or isinstance(layer, Opaque)):
                seen[i] = a.detach().squeeze(1)
            if isinstance(layer, Opaque):
                low, high = root.ends_of(i)
                total = total + rows_dot(a, low / 2 + high / 2) - rows_dot(a.abs(), (high - low) / 2 * (1 + 8 * U))
                if rigorous:
                    lost = lost + root._own(i) * rows_dot(a.abs(), torch.maximum(low.abs(), high.abs()))
                continue
            lines = self._lines(problems, i)
            pulled, constant = layer.back(a, lines)
            total = total + constant
            if rigorous:
                lost = lost + rows_dot(a.abs(), root._own(i) * root._magnitude(i, lines))
                lost = lost + rows_dot(parts[0].abs() if len(parts) == 2 else a.abs(), root.errors[i])
            for s, part in pulled:
                into = inner if root._stays(s, i) else outer
                into[s] = into[s] + part if s in into else part
        found = (total - lost * (1 + 1e-6) - 1e-250).squeeze(1)
        return found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def _seed(self, problems: Problems) -> Tensor:
        return problems.rows.reshape(len(problems), 1, *self.root.graph.nodes[self.output].shape)

    # --- many evaluations ---------------------------------------------------------------------------------------

    def optimised(self, problems: Problems, steps: int, target: Tensor) -> tuple[Problems, Tensor]:
        """Better slopes and multipliers, and the best rigorous bound; stops when every bound reaches its target."""
        slopes = {k: v.clone().requires_grad_(True) for k, v in problems.slopes.items()}
        multipliers = {k: v.clone().requires_grad_(True) for k, v in problems.multipliers.items()}
        optimiser = torch.optim.Adam(
            [{"params": list(slopes.values()), "lr": RATE}, {"params": list(multipliers.values()), "lr": RATE / 2}]
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, DECAY)
        moving = Problems(problems.rows, problems.signs, slopes, multipliers)
        best = torch.full((len(problems),), -torch.inf, dtype=problems.rows.dtype)
        kept = problems
        for step in range(steps + 1):
            found = self.lower(moving, rigorous=False)
            better = found.detach() > best
            kept, best = _better(kept, moving, better), torch.where(better, found.detach(), best)
            if step == steps or bool((best >= target).all()):
                break
            optimiser.zero_grad()
            torch.autograd.backward(-found.sum())
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                for v in slopes.values():
                    v.clamp_(0, 1)
                for v in multipliers.values():
                    v.clamp_(min=0)
        with torch.no_grad():
            return kept, self.lower(kept)


def _better(kept: Problems, moving: Problems, where: Tensor) -> Problems:
    def merge(old: Mapping[int, Tensor], new: Mapping[int, Tensor]) -> dict[int, Tensor]:
        return {k: torch.where(where.view(-1, *(1,) * (v.ndim - 1)), new[k].detach(), v) for k, v in old.items()}

    slopes, multipliers = merge(kept.slopes, moving.slopes), merge(kept.multipliers, moving.multipliers)
    return Problems(kept.rows, kept.signs, slopes, multipliers)


# --- which relu to split ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Splitter:
    """Chooses, per problem, the relu cell whose split promises most: scored first, the best few tried."""

    bounder: Bounder
    tried: int = 4

    def choose(self, problems: Problems) -> tuple[Tensor, Tensor]:
        """(which relu, which flat cell) per problem; the relu is a position among the bounder's, -1 if none is open."""
        scores = self._scores(problems)
        candidates = []
        for k, score in enumerate(scores):
            top = score.topk(min(self.tried, score.shape[1]), 1)
            candidates.append((top.values, torch.full_like(top.indices, k), top.indices))
        values, numbers, cells = (torch.cat(c, 1) for c in zip(*candidates, strict=True))
        order = values.argsort(1, descending=True)[:, : 2 * self.tried]
        values, numbers, cells = (t.gather(1, order) for t in (values, numbers, cells))
        each = range(values.shape[1])
        gains = torch.stack([self._try(problems, numbers[:, k], cells[:, k], values[:, k]) for k in each], 1)
        best = gains.argmax(1, keepdim=True)
        number, cell = numbers.gather(1, best)[:, 0], cells.gather(1, best)[:, 0]
        return torch.where(values.gather(1, best)[:, 0] > 0, number, -1), cell

    def _scores(self, problems: Problems) -> list[Tensor]:
        """How much of the bound a relu's two lines may give away; 0 where it is settled."""
        seen: dict[int, Tensor] = {}
        with torch.no_grad():
            self.bounder.lower(problems, rigorous=False, seen=seen)
        found = []
        for i, z in self.bounder.relus.items():
            low, high = self.bounder._ends(problems, z)
            open_ = (low < 0) & (high > 0)
            if i not in seen:
                found.append(torch.zeros((len(problems), low[0].numel()), dtype=low.dtype))
                continue
            positive, negative = split(seen[i])
            slope = problems.slopes[i].clamp(0, 1)
            below = torch.minimum(-slope * low, (1 - slope) * high)
            above = -low * high / torch.where(open_, high - low, 1.0)
            found.append(torch.where(open_, positive * below - negative * above, 0.0).flatten(1))
        return found

    def _try(self, problems: Problems, number: Tensor, cell: Tensor, score: Tensor) -> Tensor:
        """The worse of the two bounds after a split, without optimisation."""
        with torch.no_grad():
            halves = (divided(self.bounder, problems, number, cell, sign) for sign in (-1, 1))
            low, high = (self.bounder.lower(half, rigorous=False) for half in halves)
        return torch.where(score > 0, torch.minimum(low, high), -torch.inf)


def divided(bounder: Bounder, problems: Problems, number: Tensor, cell: Tensor, sign: int) -> Problems:
    """Every problem with one more sign."""
    signs = dict(problems.signs)
    for k, z in enumerate(bounder.relus.values()):
        rows = torch.nonzero(number == k)[:, 0]
        if len(rows):
            new = signs[z].clone()
            new.flatten(1)[rows, cell[rows]] = sign
            signs[z] = new
    return Problems(problems.rows, signs, problems.slopes, problems.multipliers)


# --- the search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a search has shown: a lower bound per row, how many problems it took, and whether all targets are met."""

    bounds: Tensor
    problems: int
    settled: bool


def branch(
    bounder: Bounder,
    rows: Tensor,
    targets: Tensor,
    *,
    seconds: float,
    most: int = 1 << 30,
    progress: Progress | None = None,
) -> Outcome:
    """Prove row.y >= target for every row, splitting what is open, until all is settled or the time is over.

    most   how many subproblems may be bounded
    """
    deadline = time.monotonic() + seconds
    number = torch.arange(len(rows))
    problems, bounds = bounder.optimised(bounder.start(rows), FIRST_STEPS, targets)
    best, count, splitter = bounds.clone(), len(rows), Splitter(bounder)
    open_ = bounds < targets
    problems, bounds, number = problems.chosen(open_), bounds[open_], number[open_]
    while len(problems) and time.monotonic() < deadline and count < most:
        order = (bounds - targets[number]).argsort(descending=True)
        taken, rest = order[:BATCH], order[BATCH:]
        batch = problems.chosen(taken)
        relu, cell = splitter.choose(batch)
        if bool((relu < 0).any()):  # nothing left to split, and still open: rounding, or relaxations of other kinds
            break
        halves = Problems.joined([divided(bounder, batch, relu, cell, sign) for sign in (-1, 1)])
        numbers = torch.cat([number[taken]] * 2)
        halves, found = bounder.optimised(halves, STEPS, targets[numbers])
        found = torch.maximum(found, torch.cat([bounds[taken]] * 2))
        count += len(halves)
        open_ = found < targets[numbers]
        problems = Problems.joined([problems.chosen(rest), halves.chosen(open_)])
        bounds, number = torch.cat([bounds[rest], found[open_]]), torch.cat([number[rest], numbers[open_]])
        if progress is not None:
            progress("branch and bound", count - len(problems), count)
    for row in range(len(rows)):
        left = bounds[number == row]
        best[row] = left.min() if len(left) else torch.maximum(best[row], targets[row])
    return Outcome(best, count, not len(problems))
