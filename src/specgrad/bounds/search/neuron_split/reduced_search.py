"""Branch and bound on the open relus of a folded network: float32 chooses and divides, rigorous bounds close.

A problem is a few numbers per open cell, so many fit into a batch. What a float32 bound takes for closed is bounded
rigorously (reduced_bounds), in the same batch, and stays open where that fails; nothing else is bounded twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specgrad.proof.base.split_tree import Split, Tree

from ..shared.open_report import at_work
from .branch_and_bound import FIRST_STEPS, Outcome, Progress, branch
from .reduced_bounds import FoldedBounds
from .reduced_network import ImprovedBounds, Objectives, ReducedNetwork, can_fold
from .subproblems import Bounder

STEPS, TRIED = 6, 8
NUMBERS, FEWEST, MOST = 1 << 20, 64, 2048  # numbers of a batch that caches like; problems of a batch
ABOVE = 1.01  # of what rounding cost at the root: it costs nearly the same everywhere


def search(
    bounder: Bounder,
    rows: Tensor,
    targets: Tensor,
    *,
    seconds: float,
    most: int = 1 << 30,
    progress: Progress | None = None,
) -> Outcome:
    """Prove row.y >= target for every row, by the reduced network if the network allows it, else by `branch`, in at
    most `seconds`.

    `bounder` bounds the network; rows are (rows, outputs), targets (rows,).

    most   how many subproblems may be bounded
    progress   is told (what, done, total)
    """
    reads_output = max(bounder.state.layers) > bounder.output  # a relu after it would take the place of its objective
    if reads_output or not can_fold(bounder.state):
        return branch(bounder, rows, targets, seconds=seconds, most=most, progress=progress)
    deadline = time.monotonic() + seconds
    with torch.no_grad():
        return _ReducedSearch(bounder, rows, targets).run(deadline, most, progress)


@dataclass(frozen=True, eq=False)
class OpenReduced:
    """Open subproblems of a reduced network; all fields have one entry per subproblem.

    row, part  the objective row, and the part of that row's split tree
    sign       -1, 0 or 1 per cell: the split side of its relu
    chosen     t per cell: slope of an unstable relu, or multiplier of a split one
    scores     what each cell may lose; bound: the float32 bound
    """

    row: Tensor
    part: Tensor
    sign: Tensor
    chosen: Tensor
    scores: Tensor
    bound: Tensor

    def __len__(self) -> int:
        return len(self.row)

    @property
    def better(self) -> ImprovedBounds:
        """Return `bound`, `chosen` and `scores` as ImprovedBounds; no copies."""
        return ImprovedBounds(self.bound, self.chosen, self.scores)

    def take(self, index: Tensor | slice) -> OpenReduced:
        """Return the subproblems at `index`, positions or a slice."""
        return OpenReduced(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @staticmethod
    def joined(parts: Sequence[OpenReduced]) -> OpenReduced:
        """Concatenate `parts`, several batches of open subproblems, into one."""
        return OpenReduced(*(torch.cat([getattr(p, name) for p in parts]) for name in OpenReduced.__dataclass_fields__))


class Stack:
    """Open subproblems, last in first out, so that few are open at once."""

    def __init__(self) -> None:
        self.parts: list[OpenReduced] = []

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def push(self, problems: OpenReduced) -> None:
        """Add a batch of open subproblems on top, unless it is empty."""
        if len(problems):
            self.parts.append(problems)

    def pop(self, count: int) -> OpenReduced:
        """Remove and return up to `count` subproblems from the top."""
        taken, missing = list[OpenReduced](), count
        while self.parts and missing:
            last = self.parts.pop()
            if len(last) > missing:
                self.parts.append(last.take(slice(0, len(last) - missing)))
                last = last.take(slice(len(last) - missing, None))
            taken.append(last)
            missing -= len(last)
        return OpenReduced.joined(taken)


class _ReducedSearch:
    """Branch and bound on the unstable relus of one network and box, for several rows with targets.

    A row is proven where its bound, by `bounder`, is above its target; rows are (rows, outputs), targets (rows,).
    """

    def __init__(self, bounder: Bounder, rows: Tensor, targets: Tensor) -> None:
        self.bounder, self.rows, self.targets = bounder, rows, targets
        self.folded = ReducedNetwork(bounder.state, bounder.quick)
        self.objectives: Objectives = self.folded.objectives(bounder.output, rows.float())
        self.rigorous = FoldedBounds(bounder, self.folded)
        self.trees = [Tree() for _ in rows]
        self.goals = torch.full((len(rows),), torch.inf)
        self.proven = torch.full((len(rows),), torch.inf, dtype=torch.float64)
        self.size = max(FEWEST, min(MOST, NUMBERS // (self.folded.matrix.shape[1] + 8 * self.folded.count + 1)))

    def run(self, deadline: float, most: int, progress: Progress | None) -> Outcome:
        """Return the outcome of a search until all rows are proven, the deadline, or `most` subproblems; call it once.

        `progress` is told (what, done, total).
        """
        begun, root = time.monotonic(), self._root_subproblems()
        first = self._rigorous_lower(root)
        self.goals = (self.targets + ABOVE * (root.bound.double() - first).abs()).float()
        is_open = ~(first >= self.targets)  # a NaN proves nothing
        self.proven = torch.where(is_open, torch.inf, first)
        todo, stuck, count = Stack(), list[OpenReduced](), len(self.rows)
        todo.push(root.take(is_open))
        while len(todo) and time.monotonic() < deadline and count < most:
            batch = todo.pop(self.size)
            cell = self.folded.split(self._objectives(batch), batch.sign.float(), batch.better, TRIED)
            stuck.append(batch.take(cell < 0))  # nothing left to split, and still open: rounding
            batch, cell = batch.take(cell >= 0), cell[cell >= 0]
            if len(batch):
                halves = self._improve_parameters(self._split_batch(batch, cell), STEPS)
                count += len(halves)
                todo.push(self._close_proven(halves))
            if progress is not None:
                said = at_work("branch and bound", None, count, begun)
                progress(said, count - len(todo) - sum(map(len, stuck)), count)
        left = OpenReduced.joined([root.take(slice(0, 0)), *todo.parts, *stuck])
        bounds = torch.where(torch.isin(torch.arange(len(first)), left.row), first, self.proven)
        worst = [self._worst_of_row(left.take(left.row == k), k) for k in range(len(first))]
        return Outcome(torch.maximum(first, bounds), count, not len(left), self.trees, worst)

    def _root_subproblems(self) -> OpenReduced:
        """One subproblem per row without splits, optimised."""
        shape, folded = (len(self.rows), self.folded.count), self.folded
        slopes = (folded.high > -folded.low).float().expand(shape)
        number, zeros = torch.arange(len(self.rows)), torch.zeros(shape)
        whole = OpenReduced(number, 0 * number, zeros.to(torch.int8), slopes, zeros, zeros.new_zeros(len(number)))
        return self._improve_parameters(whole, FIRST_STEPS)

    def _objectives(self, problems: OpenReduced) -> Objectives:
        """Return the objectives of the rows of `problems` in the reduced network, one per subproblem."""
        return self.objectives.chosen(problems.row)

    def _improve_parameters(self, problems: OpenReduced, steps: int) -> OpenReduced:
        """Return `problems` with parameters improved by `steps` gradient steps in float32, with their new scores and
        bounds.
        """
        better = self.folded.improved(
            self._objectives(problems), problems.sign.float(), problems.chosen, steps, self.goals[problems.row]
        )
        return replace(problems, chosen=better.chosen, scores=better.scores, bound=better.bound)

    def _split_batch(self, batch: OpenReduced, cell: Tensor) -> OpenReduced:
        """Return every subproblem of the batch split at its cell, first all z <= 0, then all z >= 0.

        Rows' trees are split too.
        """
        numbers = [
            self.trees[row].divide(part, Split(*self.folded.position(c)))
            for row, part, c in zip(batch.row.tolist(), batch.part.tolist(), cell.tolist(), strict=True)
        ]
        where, both = cell.unsqueeze(1), OpenReduced.joined([batch, batch])
        sign = torch.cat([batch.sign.scatter(1, where, side) for side in (-1, 1)])
        parts = torch.tensor(numbers, dtype=torch.int64).T.flatten()
        return replace(both, part=parts, sign=sign, chosen=both.chosen.scatter(1, torch.cat([where, where]), 0.0))

    def _close_proven(self, problems: OpenReduced) -> OpenReduced:
        """Return the subproblems that stay open after rigorous bounds of those that float32 takes for proven.

        Enters the bounds of the closed ones in `proven`.
        """
        near = torch.nonzero(problems.bound > self.goals[problems.row])[:, 0]
        if not len(near):
            return problems
        row, lower = problems.row[near], self._rigorous_lower(problems.take(near))
        closed = lower >= self.targets[row]
        self.proven.scatter_reduce_(0, row[closed], lower[closed], "amin")
        is_open = torch.ones(len(problems), dtype=torch.bool)
        is_open[near[closed]] = False
        return problems.take(is_open)

    def _rigorous_lower(self, problems: OpenReduced) -> Tensor:
        """Return a rigorous lower bound for each of `problems`, computed in float64 in chunks."""
        parts = (problems.take(slice(k, k + self.size)) for k in range(0, len(problems), self.size))
        return torch.cat([self.rigorous.lower(self.rows[p.row], p.sign, p.chosen) for p in parts])

    def _worst_of_row(self, mine: OpenReduced, row: int) -> tuple[int, float] | None:
        """(part number, margin) of the subproblem with the least bound among `mine`, those of one row; None if there is
        none.
        """
        if not len(mine):
            return None
        k = int(mine.bound.argmin())
        worst = mine.take(slice(k, k + 1))
        return int(worst.part), float(self._rigorous_lower(worst)) - float(self.targets[row])
