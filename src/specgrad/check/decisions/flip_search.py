"""Search two executions that decide differently: real runtimes, and summation orders that push a comparison."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specgrad.errors import ContradictionError
from specgrad.scalar import Array

from ..models.emulate import Executor, slopes
from .decision import Comparisons
from .margins import DecisionMargins, DecisionProblem
from .runtime_pool import OWN_ENGINES, Runtimes

MAX_TARGETS = 4  # comparisons that are driven either way
HOPELESS_SHARE = 0.5  # of a margin is left after all that orders can take
MAX_SHOWN_OUTPUTS = 20  # outputs of an execution that are kept where there are more


@dataclass(frozen=True, eq=False)
class Execution:
    """One execution: its name, its outputs, their decision, and whether our own code computed them (`is_ours`)."""

    name: str
    outputs: Array
    decision: Array
    is_ours: bool

    def to_json(self, place: int, cells: Array) -> dict[str, object]:
        """Return its `name`, its `decision` at one place, and `outputs` by flat cell number: all if they are few, else
        those at `cells`.
        """
        decided = self.decision[place]
        flat = self.outputs.ravel()
        few = np.arange(flat.size) if flat.size <= MAX_SHOWN_OUTPUTS else np.unique(cells)
        return {
            "name": self.name,
            "decision": decided.tolist(),
            "outputs": {str(int(k)): float(flat[k]) for k in few},
        }


class FlipSearch:
    """Searches two executions with different decisions, for one sample at a time.

    runtimes    None: only chosen orders
    executor    None: only runtimes (the model is too large to be taken apart)
    question    the model and its decision
    """

    def __init__(self, question: DecisionProblem, executor: Executor | None, runtimes: Runtimes | None) -> None:
        self.question, self.executor, self.runtimes = question, executor, runtimes

    def search(self, inputs: Sequence[Array], margins: DecisionMargins) -> tuple[list[Execution], list[str]]:
        """Return two executions of the class, at one sample (`inputs`), that decide differently, or [].

        And runtimes whose outputs are outside the class. ContradictionError if our own outputs are.
        """
        runs: list[Execution] = []
        outside: list[str] = []
        for run in itertools.chain(self._runtime_executions(inputs), self._emulated_executions(inputs, margins)):
            if not np.isfinite(run.outputs).all():
                continue
            if violates_bounds(margins, run.outputs):
                if run.is_ours:
                    raise ContradictionError(f"{run.name} leaves what is proven of every execution at a sample")
                outside.append(run.name)
                continue
            other = [r for r in runs if (r.decision != run.decision).any()]
            if other:
                return [other[0], run], outside
            runs.append(run)
        return [], outside

    def _execution(self, name: str, outputs: Sequence[Array], is_ours: bool) -> Execution:
        """Return outputs as an execution called `name`, with its decision; `is_ours` if specgrad computed it."""
        decided = np.asarray(outputs[self.question.output], np.float64)
        return Execution(name, decided, self.question.decision.of(decided), is_ours)

    def _runtime_executions(self, inputs: Sequence[Array]) -> Iterator[Execution]:
        """Yield the execution of each installed runtime on these inputs; none if no runtimes are asked."""
        if self.runtimes is not None:
            for name, outputs in self.runtimes.run(inputs).items():
                yield self._execution(name, outputs, name.partition(" ")[0] in OWN_ENGINES)

    def _emulated_executions(self, inputs: Sequence[Array], margins: DecisionMargins) -> Iterator[Execution]:
        """Yield emulated executions of one sample that push the comparisons that `margins` leave open, one way and the
        other.

        Those with the least margin come first, at most MAX_TARGETS.
        """
        if self.executor is None:
            return
        start, outputs = self.question.offset()
        open_ = np.flatnonzero(~margins.proven)
        for k in open_[np.argsort(margins.margin[open_], kind="stable")][:MAX_TARGETS]:
            aim = margins.comparisons.only(np.array([k]))
            row = np.zeros(outputs)
            row[start : start + margins.value.size] = aim.rows(margins.value.size)[0]
            steep = slopes(self.question.graph, inputs, row)
            for push, word in ((-1, "against"), (1, "for")):
                directions = {i: push * s for i, s in steep.items()}
                name = f"every sum in the order that speaks most {word} {_comparison_text(aim)}"
                run = self._execution(name, self.executor.run(inputs, directions), True)
                yield run
                if push < 0 and aim.margins(run.outputs.ravel())[0] > HOPELESS_SHARE * margins.margin[k]:
                    return  # what is farther from turning will not turn either


def _comparison_text(aim: Comparisons) -> str:
    """Return the first comparison of `aim` in words: "output 3 over output 5"; "output 3" against a threshold."""
    first, second = int(aim.larger[0]), int(aim.smaller[0])
    return f"output {first}" + (f" over output {second}" if second >= 0 else "")


def violates_bounds(margins: DecisionMargins, outputs: Array) -> bool:
    """Return whether outputs lie outside the bounds that `margins` prove of some comparison."""
    c, y = margins.comparisons, outputs.ravel()
    rows = c.sign * y[c.larger] - np.where(c.smaller >= 0, y[np.maximum(c.smaller, 0)], 0.0)
    slack = 4 * np.spacing(np.abs(rows))
    return bool(((rows + slack < margins.low) | (rows - slack > margins.high)).any())
