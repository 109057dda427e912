"""Branch and bound on relu splits, and narrower boxes of relu inputs before it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...proof.tree import Cut, Tree
from ..linear.layers import Taps, split
from ..linear.network import Forward
from ..linear.relaxations import Lines
from .estimate import QuickLines
from .subproblems import Bounder, Problems

Progress = Callable[[str, int, int], None]
BATCH, FIRST_STEPS, STEPS = 64, 40, 15
MOST, CELLS = 1024, 1 << 17  # problems of small networks at once: each step has a price of its own


# --- narrower boxes ---------------------------------------------------------------------------------------------------


def narrowed(forward: Forward, deadline: float, steps: int = 15, progress: Progress | None = None) -> Bounder:
    """The boxes of relu inputs with slopes optimised for every cell and end, layer by layer, while there is time."""
    bounder = Bounder(forward)
    inputs = sorted(bounder.relus.values())
    for number, z in enumerate(inputs):
        if not any(other < z for other in inputs):
            continue
        cells = np.flatnonzero(bounder.unstable(z).numpy())
        low, high = (end[0].numpy().copy() for end in bounder.state.ends[z])
        for start in range(0, len(cells), BATCH):
            if time.monotonic() > deadline:
                break
            chosen = cells[start : start + BATCH]
            rows = torch.zeros((len(chosen), low.size), dtype=torch.float64)
            rows[torch.arange(len(chosen)), torch.from_numpy(chosen)] = 1.0
            both = bounder.start(torch.cat([rows, -rows]), at=z)
            lower = bounder.optimised(both, steps, torch.zeros(2 * len(chosen)))[1].numpy()
            low.reshape(-1)[chosen] = np.maximum(low.reshape(-1)[chosen], lower[: len(chosen)])
            high.reshape(-1)[chosen] = np.minimum(high.reshape(-1)[chosen], -lower[len(chosen) :])
            if progress is not None:
                progress("narrowing boxes", number, len(inputs))
        forward.narrow(z, low, high)
        forward.state.kept_lines.clear()
        bounder = Bounder(forward)
    return bounder


# --- which relu to split ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Splitter:
    """Chooses, per problem, the relu cell whose split promises most: scored first, the best few tried."""

    bounder: Bounder
    tried: int = 3

    def choose(self, problems: Problems) -> tuple[Tensor, Tensor]:
        """(which relu, which flat cell) per problem; the relu by its number among the bounder's, -1 if none is open."""
        if not self.bounder.relus:
            return torch.full((len(problems),), -1), torch.zeros(len(problems), dtype=torch.int64)
        lines, candidates = self.bounder.lines(problems), []
        for k, score in enumerate(self._scores(problems, lines)):
            top = score.topk(min(self.tried, score.shape[1]), 1)
            candidates.append((top.values, torch.full_like(top.indices, k), top.indices))
        values, numbers, cells = (torch.cat(c, 1) for c in zip(*candidates, strict=True))
        order = values.argsort(1, descending=True)[:, : 2 * self.tried]
        values, numbers, cells = (t.gather(1, order) for t in (values, numbers, cells))
        each = range(values.shape[1])
        gains = torch.stack([self._try(problems, lines, numbers[:, k], cells[:, k], values[:, k]) for k in each], 1)
        best = gains.argmax(1, keepdim=True)
        number, cell = numbers.gather(1, best)[:, 0], cells.gather(1, best)[:, 0]
        return torch.where(values.gather(1, best)[:, 0] > 0, number, -1), cell

    @torch.no_grad()
    def _estimate(self, problems: Problems, lines: QuickLines, seen: dict[int, Tensor] | None = None) -> Tensor:
        pushed = {z: problems.multipliers[z] * s for z, s in problems.signs.items()}
        rows = problems.rows.float()
        return self.bounder.quick.lower(problems.at, rows, lines, problems.slopes, pushed, seen)

    def _scores(self, problems: Problems, lines: QuickLines) -> list[Tensor]:
        """How much of the bound a relu's two lines may give away; 0 where it is settled."""
        seen: dict[int, Tensor] = {}
        self._estimate(problems, lines, seen)
        scores = []
        for i, z in self.bounder.relus.items():
            low, high = (end.float() for end in self.bounder.ends(problems, z))
            unstable = (low < 0) & (high > 0)
            if i not in seen:
                scores.append(torch.where(unstable, self._pooled(z, seen) * torch.minimum(-low, high), 0.0).flatten(1))
                continue
            positive, negative = split(seen[i])
            slope = problems.slopes[i]
            below = torch.minimum(-slope * low, (1 - slope) * high)
            above = -low * high / torch.where(unstable, high - low, 1.0)
            scores.append(torch.where(unstable, positive * below - negative * above, 0.0).flatten(1))
        return scores

    def _pooled(self, z: int, seen: Mapping[int, Tensor]) -> Tensor:
        """Of a relu that max_pool has taken over: how much the objective sees of the windows that read a cell."""
        low = self.bounder.state.ends[z][0].float()
        total = torch.zeros_like(low)
        for i, layer in self.bounder.state.layers.items():
            if isinstance(layer, Taps) and layer.sources == (z,) and i in seen:
                ones = torch.ones((layer.window.taps_count, 1, *layer.node.shape))
                each = seen[i].abs().unsqueeze(1)
                total = total + layer.spread(each, 0 * each, Lines(ones, ones[0], ones, ones[0])).squeeze(1)
        return total

    def _try(self, problems: Problems, lines: QuickLines, number: Tensor, cell: Tensor, score: Tensor) -> Tensor:
        """The worse of the two bounds after a split, without optimisation."""
        relus = list(self.bounder.relus)
        sides = [self._estimate(problems, lines.settled(relus, number, cell, sign)) for sign in (-1, 1)]
        return torch.where(score > 0, torch.minimum(*sides), -torch.inf)


def divided(bounder: Bounder, problems: Problems, number: Tensor, cell: Tensor, sign: int) -> Problems:
    """Every problem with one more sign."""
    signs = dict(problems.signs)
    for k, z in enumerate(bounder.relus.values()):
        rows = torch.nonzero(number == k)[:, 0]
        if len(rows):
            new = signs[z].clone()
            new.flatten(1)[rows, cell[rows]] = sign
            signs[z] = new
    return Problems(problems.at, problems.rows, signs, problems.slopes, problems.multipliers)


# --- the search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a search has shown: a lower bound per row, how many problems it took, and whether all targets are met.

    trees   how every row's executions were divided
    worst   per row: the number of the open part whose margin is least, and that margin; None where none is open
    """

    bounds: Tensor
    problems: int
    settled: bool
    trees: list[Tree]
    worst: list[tuple[int, float] | None]


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
    number, part, trees = torch.arange(len(rows)), torch.zeros(len(rows), dtype=torch.int64), [Tree() for _ in rows]
    problems, bounds = bounder.optimised(bounder.start(rows), FIRST_STEPS, targets)
    first, count, splitter, size = bounds.clone(), len(rows), Splitter(bounder), _batch(bounder)
    open_ = ~(bounds >= targets)  # a NaN proves nothing
    proven = torch.where(open_, torch.inf, bounds)  # per row: the least bound of problems that are closed
    problems, bounds, number, part = problems.chosen(open_), bounds[open_], number[open_], part[open_]
    while len(problems) and time.monotonic() < deadline and count < most:
        order = (bounds - targets[number]).argsort(descending=True)
        taken, rest = order[:size], order[size:]
        batch = problems.chosen(taken)
        relu, cell = splitter.choose(batch)
        if bool((relu < 0).any()):  # nothing left to split, and still open: rounding, or relaxations of other kinds
            break
        halves = Problems.joined([divided(bounder, batch, relu, cell, sign) for sign in (-1, 1)])
        numbers, parts = (
            torch.cat([number[taken]] * 2),
            _entered(trees, bounder, number[taken], part[taken], relu, cell),
        )
        halves, lower = bounder.optimised(halves, STEPS, targets[numbers])
        lower = torch.maximum(lower, torch.cat([bounds[taken]] * 2))
        count += len(halves)
        open_ = ~(lower >= targets[numbers])
        proven.scatter_reduce_(0, numbers[~open_], lower[~open_], "amin")
        problems = Problems.joined([problems.chosen(rest), halves.chosen(open_)])
        bounds, number = torch.cat([bounds[rest], lower[open_]]), torch.cat([number[rest], numbers[open_]])
        part = torch.cat([part[rest], parts[open_]])
        if progress is not None:
            progress("branch and bound", count - len(problems), count)
    least = proven.scatter_reduce(0, number, bounds, "amin")
    worst = [_worst(bounds, part, number == k, float(targets[k])) for k in range(len(rows))]
    return Outcome(torch.maximum(first, least), count, not len(problems), trees, worst)


def _batch(bounder: Bounder) -> int:
    """How many problems at once."""
    cells = sum(bounder.state.ends[z][0].numel() for z in bounder.relus.values())
    return max(BATCH, min(MOST, CELLS // max(1, cells)))


def _entered(trees: list[Tree], bounder: Bounder, number: Tensor, part: Tensor, relu: Tensor, cell: Tensor) -> Tensor:
    """The numbers of both parts of every problem in its row's tree: first all below 0, then all above."""
    inputs = list(bounder.relus.values())
    each = zip(number.tolist(), part.tolist(), relu.tolist(), cell.tolist(), strict=True)
    numbers = [trees[row].divide(p, Cut(inputs[r], c)) for row, p, r, c in each]
    return torch.tensor(numbers, dtype=torch.int64).T.flatten()


def _worst(bounds: Tensor, part: Tensor, mine: Tensor, target: float) -> tuple[int, float] | None:
    if not bool(mine.any()):
        return None
    k = int(bounds[mine].argmin())
    return int(part[mine][k]), float(bounds[mine][k]) - target
