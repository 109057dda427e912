"""What `assert_conforms` returns, and what it raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..cases.op_case import OpCase
from ..conform.sample_tally import SampleTally
from ..verdicts.judge import Verdict
from .case import KernelCase


class ConformanceError(AssertionError):
    """The kernel's answer is not explained by rounding; the text has the smallest case and the expected value.

    Parameters
    ----------
    question : OpCase or KernelCase
        The smallest case that shows the fault; `case` is another name of it.
    verdict : Verdict
        The verdict on it.
    text : str
        The message.
    script : str, default ""
        A program that repeats it, of a kernel that was held against a reference.

    Examples
    --------
    >>> import specgrad as sg
    >>> try:
    ...     sg.check.assert_conforms(lambda x: np.where(x > 0, x, 0), "relu")
    ... except ConformanceError as error:
    ...     print(error.verdict.kind, error.case.operator)
    differs relu
    """

    def __init__(self, question: OpCase | KernelCase, verdict: Verdict, text: str, script: str = "") -> None:
        self.question, self.verdict, self.script = question, verdict, script
        super().__init__(text)

    @property
    def case(self) -> OpCase | KernelCase:
        """Return the smallest case that shows the fault."""
        return self.question

    def save_inputs(self, folder: str | Path = ".") -> None:
        """Write the inputs of the smallest case into `folder` as NAME.npy, as the script reads them."""
        for name, a in self.question.arrays.items():
            np.save(Path(folder) / f"{name}.npy", a)


@dataclass(frozen=True)
class ConformanceSummary:
    """How many cases were run, by verdict.

    Attributes
    ----------
    operator : str
        The operator's name, or what the reference is called.
    counts : Counter
        How many cases had each verdict.
    nearest_limit : list of Verdict
        The verdict "rounding" with the largest share of its allowance used, alone in a list; empty where there was
        none.
    samples : list of SampleTally
        What was found in samples of large results.

    Examples
    --------
    >>> ConformanceSummary("relu", Counter(exact=300, refuses=100))
    relu: 300 of 400 questions answered (300 exact, 100 refused)
    """

    operator: str
    counts: Counter[str] = field(default_factory=Counter)
    nearest_limit: list[Verdict] = field(default_factory=list, compare=False)
    samples: list[SampleTally] = field(default_factory=list, compare=False)

    def add(self, verdict: Verdict, samples: Sequence[SampleTally] = ()) -> None:
        """Count a verdict in `counts`, which rests on these samples of large results; keep it in `nearest_limit` if it
        is the one.
        """
        self.counts[verdict.kind] += 1
        self.samples.extend(samples)
        if verdict.kind == "rounding" and verdict.ratio > self.ratio:
            self.nearest_limit[:] = [verdict]

    @property
    def asked(self) -> int:
        """The number of cases that were run."""
        return self.counts.total()

    @property
    def answered(self) -> int:
        """The number of cases that the kernel did not refuse."""
        return self.asked - self.counts["refuses"]

    @property
    def judged(self) -> int:
        """The number of answers of which every cell was judged."""
        return self.counts["exact"] + self.counts["rounding"]

    @property
    def ratio(self) -> float:
        """The largest error as a part of what is allowed; 0 where all was exact."""
        return self.nearest_limit[0].ratio if self.nearest_limit else 0.0

    def missed(self, share: float) -> float:
        """Return the largest probability with which a fault in this share of the cells of every result is missed; 0
        where all cells were judged, 1 where every answer has open cells.

        >>> ConformanceSummary("relu").missed(0.01)
        0.0
        """
        if self.answered and not self.judged:
            return 1.0
        return (1.0 - share) ** self._draws if any(not s.complete for s in self.samples) else 0.0

    @property
    def _draws(self) -> int:
        """The fewest cells that were drawn independently of a result whose cells were not all judged; 0 without one."""
        return min((s.draws for s in self.samples if not s.complete), default=0)

    def __repr__(self) -> str:
        words = {"refuses": "refused"}
        parts = ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in self.counts.most_common())
        text = f"{self.operator}: {self.answered} of {self.asked} questions answered ({parts})"
        if not self._draws:
            return text
        judged, cells = (sum(getattr(s, name) for s in self.samples) for name in ("judged", "cells"))
        return f"{text}; by samples: {judged:,} of {cells:,} cells judged, {self._draws:,} drawn independently"
