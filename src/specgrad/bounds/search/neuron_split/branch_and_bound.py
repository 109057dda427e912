"""Branch and bound over neuron splits: open subproblems are split in two until every one is proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.intermediate.tighten import output_bounds
from specgrad.proof.base.split_tree import Split, Tree

from ..shared.float32_bounds import QuickLines
from ..shared.open_report import at_work
from .branching import Axis, choices
from .subproblems import Bounder, Problems

Progress = Callable[[str, int, int], None]
BATCH, FIRST_STEPS, STEPS = 64, 40, 15
LAST_STEPS, LAST_DECAY = 100, 0.93  # where nothing else is left to cut
MAX_BATCH, MAX_BATCH_CELLS = 1024, 1 << 17  # problems of small networks at once: each step has a price of its own


# --- narrower boxes ---------------------------------------------------------------------------------------------------


def narrowed(forward: ForwardPass, deadline: float, steps: int = 15, progress: Progress | None = None) -> Bounder:
    """Tighten the intervals of splittable nodes in `forward`, with slopes optimised per cell by `steps` steps, layer by
    layer, until the deadline; return a Bounder of them.

    `progress` is told (what, done, total).
    """
    bounder = Bounder(forward)
    inputs = sorted(bounder.points)
    for number, z in enumerate(inputs):
        if not any(other < z for other in inputs):
            continue
        cells = np.flatnonzero(bounder.unstable(z).numpy())
        low, high = (end[0].numpy().copy() for end in bounder.state.intervals[z])
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
        forward.state.cached_relaxations.clear()
        bounder = Bounder(forward)
    return bounder


# --- where to cut -----------------------------------------------------------------------------------------------------


class Splitter:
    """Chooses the split of every subproblem: candidates are scored, and the best few are bounded by `bounder`: `tried`
    of each kind, at most twice as many in all.
    """

    def __init__(self, bounder: Bounder, tried: int = 3) -> None:
        self.bounder, self.tried, self.choices = bounder, tried, choices(bounder)
        self.axis = next((k for k, choice in enumerate(self.choices) if isinstance(choice, Axis)), -1)

    def choose(self, problems: Problems) -> tuple[Tensor, Tensor]:
        """Return (number of the candidate kind in `choices`, flat cell) per subproblem, what to split next.

        The number is -1 where nothing can be split.
        """
        if not self.choices:
            return torch.full((len(problems),), -1), torch.zeros(len(problems), dtype=torch.int64)
        lines, candidates, seen = self.bounder.lines(problems), [], dict[int, Tensor]()
        self._estimate(problems, lines, seen)
        for k, choice in enumerate(self.choices):
            score = choice.scores(problems, lines, seen)
            top = score.topk(min(self.tried, score.shape[1]), 1)
            candidates.append((top.values, torch.full_like(top.indices, k), top.indices))
        values, numbers, cells = (torch.cat(c, 1) for c in zip(*candidates, strict=True))
        # Inputs only where nothing else is left: by one score for both, safenlp 4061 (30 inputs) was open after 32,647
        # problems in twice the time that kinks alone need for all of it (34,009).
        other = (numbers != self.axis) & (values > 0)
        values = torch.where((numbers == self.axis) & other.any(1, keepdim=True), 0.0, values)
        order = values.argsort(1, descending=True)[:, : 2 * self.tried]
        values, numbers, cells = (t.gather(1, order) for t in (values, numbers, cells))
        each = range(values.shape[1])
        gains = torch.stack(
            [self._bound_after_split(problems, lines, numbers[:, k], cells[:, k], values[:, k]) for k in each], 1
        )
        best = gains.argmax(1, keepdim=True)
        number, cell = numbers.gather(1, best)[:, 0], cells.gather(1, best)[:, 0]
        return torch.where(values.gather(1, best)[:, 0] > 0, number, -1), cell

    @torch.no_grad()
    def _estimate(self, problems: Problems, lines: QuickLines, seen: dict[int, Tensor] | None = None) -> Tensor:
        """Float32 bound per subproblem by the relaxations `lines`, without gradients; `seen` collects coefficients by
        node.
        """
        return self.bounder.estimate(problems, lines, None, seen)

    def _bound_after_split(
        self, problems: Problems, lines: QuickLines, number: Tensor, cell: Tensor, score: Tensor
    ) -> Tensor:
        """Float32 bound of the worse side after a split, without optimisation; -inf where the score is 0.

        Per subproblem it is split at `cell` of candidate `number` of `choices`; `lines` are the relaxations before.
        """
        sides = []
        for side in (0, 1):
            after = lines
            for k in number.unique().tolist():
                boxes = torch.nonzero(number == k)[:, 0]
                after = self.choices[k].lines_after(problems, after, boxes, cell[boxes], side)
            sides.append(self._estimate(problems, after))
        return torch.where(score > 0, torch.minimum(*sides), -torch.inf)

    def divided(self, problems: Problems, number: Tensor, cell: Tensor, side: int) -> Problems:
        """Return every subproblem split at its cell, on one side (0 or 1); `number` says which kind of candidates the
        cell is of.
        """
        for k in number.unique().tolist():
            boxes = torch.nonzero(number == k)[:, 0]
            problems = self.choices[k].divided(problems, boxes, cell[boxes], side)
        return problems

    def renewed(self, problems: Problems, number: Tensor) -> tuple[Problems, Tensor]:
        """Return the subproblems, with all layers of those whose input was split recomputed.

        And a mask of those that may hold an execution. `number` says by which candidates each was split.
        """
        alive, mine = torch.ones(len(problems), dtype=torch.bool), number == self.axis
        if not bool(mine.any()):
            return problems, alive
        new, alive[mine] = self.bounder.rebound_layers(problems.chosen(mine))
        known = {z: v.clone() for z, v in problems.known.items()}
        for z, v in known.items():
            v[mine] = new.known[z]
        return replace(problems, known=known), alive

    def cuts(self, problems: Problems, number: Tensor, cell: Tensor) -> list[Split]:
        """Return the chosen splits as entries of a split tree: per subproblem, candidates `number` at `cell`."""
        each = enumerate(zip(number.tolist(), cell.tolist(), strict=True))
        return [self.choices[k].cut(problems, box, c) for box, (k, c) in each]


# --- the search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Result of a search.

    bounds    proven lower bound per row
    problems  subproblems that were bounded
    settled   whether every row reaches its target
    trees     per row: how its executions were split
    worst     per row: number and margin of the open part with the least margin; None where none is open
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
    """Prove row.y >= target for every row by splitting open subproblems, until all are proven or `seconds` are over.

    `bounder` bounds the network; rows are (rows, outputs), targets (rows,).

    most   how many subproblems may be bounded
    progress   is told (what, done, total)
    """
    begun = time.monotonic()
    deadline = begun + seconds
    if bounder.output not in bounder.state.layers:  # nothing varies but by rounding, so nothing can be cut
        fixed = output_bounds(bounder.forward, rows.numpy())[0]
        least = torch.as_tensor(np.asarray(fixed), dtype=torch.float64)
        return Outcome(least, len(rows), bool((least >= targets).all()), [Tree() for _ in rows], [None] * len(rows))
    trees = [Tree() for _ in rows]
    problems, bounds = bounder.optimised(bounder.start(rows), FIRST_STEPS, targets)
    first, count, splitter, size = bounds.clone(), len(rows), Splitter(bounder), _batch_size(bounder)
    todo = OpenSubproblems(
        problems, bounds, torch.arange(len(rows)), torch.zeros(len(rows), dtype=torch.int64), bounds != bounds
    )
    is_open = ~(bounds >= targets)  # a NaN proves nothing
    proven = torch.where(is_open, torch.inf, bounds)  # per row: the least bound of problems that are closed
    todo, stuck = todo.chosen(is_open), todo.chosen(torch.zeros(len(rows), dtype=torch.bool))
    while len(todo.problems) and time.monotonic() < deadline and count < most:
        order = (todo.bounds - targets[todo.row]).argsort(descending=True)
        batch, rest = todo.chosen(order[:size]), todo.chosen(order[size:])
        number, cell = splitter.choose(batch.problems)
        last = ((number < 0) | (number == splitter.axis)) & ~batch.refined
        if bool(last.any()):  # no kink and no winner is left: layers once more, and multipliers by smaller steps
            refined, batch = batch.chosen(last), batch.chosen(~last)
            number, cell = number[~last], cell[~last]
            some, alive = bounder.rebound_layers(refined.problems)
            some, lower = bounder.optimised(some, LAST_STEPS, targets[refined.row], LAST_DECAY)
            lower = torch.maximum(lower, refined.bounds)
            lower = torch.where(alive, lower, torch.fmax(lower, targets[refined.row]))
            is_open = ~(lower >= targets[refined.row])
            proven.scatter_reduce_(0, refined.row[~is_open], lower[~is_open], "amin")
            refined = replace(refined, problems=some, bounds=lower, refined=torch.ones_like(is_open))
            rest = OpenSubproblems.joined([rest, refined.chosen(is_open)])
        if bool((number < 0).any()):  # nothing left to cut, and still open: rounding, or relaxations of other kinds
            stuck = OpenSubproblems.joined([stuck, batch.chosen(number < 0)])
            batch, cell, number = batch.chosen(number >= 0), cell[number >= 0], number[number >= 0]
        if len(number):
            made = splitter.cuts(batch.problems, number, cell)
            halves = Problems.joined([splitter.divided(batch.problems, number, cell, side) for side in (0, 1)])
            row, part = torch.cat([batch.row] * 2), _enter_splits(trees, batch, made)
            halves, alive = splitter.renewed(halves, torch.cat([number] * 2))
            halves, lower = bounder.optimised(halves, STEPS, targets[row])
            lower = torch.maximum(lower, torch.cat([batch.bounds] * 2))
            lower = torch.where(alive, lower, torch.fmax(lower, targets[row]))  # no execution: anything holds
            count += len(halves)
            is_open = ~(lower >= targets[row])
            proven.scatter_reduce_(0, row[~is_open], lower[~is_open], "amin")
            rest = OpenSubproblems.joined(
                [rest, OpenSubproblems(halves, lower, row, part, torch.zeros_like(is_open)).chosen(is_open)]
            )
        todo = rest
        if progress is not None:
            worst_open = float((todo.bounds - targets[todo.row]).min()) if len(todo.row) else None
            said = at_work("branch and bound", worst_open, count, begun)
            progress(said, count - len(todo.row) - len(stuck.row), count)
    left = OpenSubproblems.joined([todo, stuck])
    least = proven.scatter_reduce(0, left.row, left.bounds, "amin")
    worst = [_worst_open(left, k, float(targets[k])) for k in range(len(rows))]
    return Outcome(torch.maximum(first, least), count, not len(left.row), trees, worst)


@dataclass(frozen=True, eq=False)
class OpenSubproblems:
    """Open subproblems with their bounds, the row each is about, and its part of that row's split tree.

    refined   whether its multipliers are as good as many small steps make them
    problems  the subproblems themselves, as one batch
    """

    problems: Problems
    bounds: Tensor
    row: Tensor
    part: Tensor
    refined: Tensor

    def chosen(self, index: Tensor) -> OpenSubproblems:
        """Return the subproblems at `index`, a mask or positions."""
        tensors = (getattr(self, name)[index] for name in ("bounds", "row", "part", "refined"))
        return OpenSubproblems(self.problems.chosen(index), *tensors)

    @staticmethod
    def joined(parts: Sequence[OpenSubproblems]) -> OpenSubproblems:
        """Concatenate `parts`, several batches of open subproblems of one row set."""
        tensors = (torch.cat([getattr(p, name) for p in parts]) for name in ("bounds", "row", "part", "refined"))
        return OpenSubproblems(Problems.joined([p.problems for p in parts]), *tensors)


def _batch_size(bounder: Bounder) -> int:
    """Number of subproblems to bound at once: the fewer, the more cells the nodes that can be split have."""
    cells = sum(bounder.state.intervals[z][0].numel() for z in bounder.points)
    return max(BATCH, min(MAX_BATCH, MAX_BATCH_CELLS // max(1, cells)))


def _enter_splits(trees: list[Tree], batch: OpenSubproblems, cuts: list[Split]) -> Tensor:
    """Enter the splits `cuts` of a batch in its rows' trees; return the new part numbers, first all of side 0, then all
    of side 1.
    """
    each = zip(batch.row.tolist(), batch.part.tolist(), cuts, strict=True)
    numbers = [trees[row].divide(part, cut) for row, part, cut in each]
    return torch.tensor(numbers, dtype=torch.int64).T.flatten()


def _worst_open(left: OpenSubproblems, row: int, target: float) -> tuple[int, float] | None:
    """Return (part number, margin) of the open subproblem of `row` with the least bound in `left`.

    None if none is open. A margin is the bound minus `target`.
    """
    mine = left.chosen(left.row == row)
    if not len(mine.row):
        return None
    k = int(mine.bounds.argmin())
    return int(mine.part[k]), float(mine.bounds[k]) - target
