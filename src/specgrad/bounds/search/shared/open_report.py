"""Why a property is neither proven nor broken: how far the search came, what is left open, and what would help."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specgrad.proof.base.split_tree import OpenPart, Tree

CELLS = 3  # inputs of an open part that are named
LEAST = 0.01  # share that is settled, from which on the rest of the time is guessed


@dataclass(frozen=True)
class OpenReport:
    """Report on an inconclusive search: how far it came, and why it ended.

    problems  sub-problems that were bounded; seconds that it took
    settled   the share of the box of inputs that is settled; None: not known, as where kinks are cut
    part      the open part whose margin is least
    inside    the node that is the input, in cuts of that part
    rounding  whether its bound would do if nothing were rounded
    layer     the layer that loses most of that bound, and its share of the loss
    """

    problems: int
    seconds: float
    settled: float | None = None
    part: OpenPart | None = None
    inside: int = 0
    rounding: bool = False
    layer: tuple[str, float] | None = None

    @property
    def rate(self) -> float:
        """Return subproblems per second; 0 if no time passed."""
        return self.problems / self.seconds if self.seconds > 0 else 0.0

    @property
    def more(self) -> float | None:
        """Estimated seconds for the rest, if it is like what is settled; None if there is no estimate."""
        if self.rounding or self.settled is None or not LEAST <= self.settled < 1:
            return None
        return self.seconds * (1 - self.settled) / self.settled

    def said(self) -> str:
        """Return the report in one line of text.

        >>> from specgrad.proof.base.split_tree import Split
        >>> splits = [(Split(0, 1, 0.5), 0), (Split(0, 1, 0.25), 1), (Split(4, 7), 1)]
        >>> part = OpenPart([0.0, 0.25], [1.0, 0.5], splits, -0.1)
        >>> OpenReport(300, 60.0, 0.75, part, layer=("relu_2", 0.5)).said()
        '300 subproblems were not enough (5 per second); the worst open one lacks 0.1: input 1 from 0.25 to 0.5, \
1 cell of a layer; 75 % is settled: the rest may take 20 s more; relu_2 loses most there (50 %)'
        >>> OpenReport(300, 60.0, 0.75, part, rounding=True).said().split("; ")[-1]
        'rounding decides there: more time will not help, a smaller box of inputs may'
        """
        if not self.problems:
            return "the time was over before any subproblem was bounded"
        parts = [f"{self.problems:,} subproblems were not enough ({_two_digits(self.rate)} per second)"]
        if self.part is not None and math.isfinite(self.part.margin):
            where = ", ".join(self._split_texts(self.part))
            parts.append(f"the worst open one lacks {-self.part.margin:.3g}{f': {where}' if where else ''}")
        if self.rounding:
            parts.append("rounding decides there: more time will not help, a smaller box of inputs may")
        elif self.settled is not None:
            share = f"{100 * self.settled:.3g} % is settled" if self.settled > 0 else "nothing is settled yet"
            parts.append(share if self.more is None else f"{share}: the rest may take {_two_digits(self.more)} s more")
        if self.layer is not None and not self.rounding:
            parts.append(f"{self.layer[0]} loses most there ({100 * self.layer[1]:.0f} %)")
        return "; ".join(parts)

    def _split_texts(self, part: OpenPart) -> list[str]:
        """Return texts on the inputs that were split most to reach `part`, and on how many other cells were."""
        cut = Counter(c.cell for c, _ in part.cuts if c.node == self.inside)
        most = sorted(cell for cell, _ in cut.most_common(CELLS))
        said = [f"input {cell} from {part.low[cell]:.4g} to {part.high[cell]:.4g}" for cell in most]
        said += [f"{len(cut) - CELLS} more inputs"] if len(cut) > CELLS else []
        cells = len({(c.node, c.cell) for c, _ in part.cuts if c.node != self.inside})
        return said + ([f"{cells} cell{'s' * (cells > 1)} of {'layers' if cells > 1 else 'a layer'}"] if cells else [])

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `problems`, `rate`, `settled` (share of the box), `seconds_more`, `rounding`, `margin`,
        `box` and `layer`.

        `box` lists the inputs that were split, each with its low and high end; `layer` has name and share of the
        largest loss. null where nothing is known.
        """
        data: dict[str, Any] = {"problems": self.problems, "rate": self.rate, "settled": self.settled}
        data |= {"seconds_more": self.more, "rounding": self.rounding}
        data["margin"] = None if self.part is None or not math.isfinite(self.part.margin) else self.part.margin
        cut = sorted({c.cell for c, _ in self.part.cuts if c.node == self.inside}) if self.part else []
        ends = [(c, self.part.low[c], self.part.high[c]) for c in cut] if self.part else []
        data["box"] = [{"input": c, "low": low, "high": high} for c, low, high in ends]
        data["layer"] = None if self.layer is None else {"name": self.layer[0], "share": self.layer[1]}
        return data


def _two_digits(x: float) -> str:
    """Return a number as text with two digits, or as an integer from 10 on."""
    return f"{x:,.0f}" if x >= 10 else f"{x:.2g}"


def at_work(name: str, worst: float | None, count: int, begun: float) -> str:
    """Progress text of a search: its name, the worst open margin, and subproblems per second.

    `count` subproblems since `begun`, a time of time.monotonic.

    >>> at_work("input splits", -0.125, 0, time.monotonic() + 9)
    'input splits, worst -0.125'
    """
    said = "" if worst is None else f", worst {worst:.3g}"
    seconds = time.monotonic() - begun
    return f"{name}{said}" + (f", {count / seconds:.3g}/s" if seconds > 0 else "")


def share_of(tree: Tree, parts: Iterable[int]) -> float:
    """Share of the whole box that some parts of a split tree are, each split halving its part.

    >>> from specgrad.proof.base.split_tree import Split
    >>> tree = Tree()
    >>> below, above = tree.divide(0, Split(0, 0, 0.5))
    >>> share_of(tree, [above]), share_of(tree, tree.divide(above, Split(0, 0, 0.75))), share_of(tree, [])
    (0.5, 0.5, 0)
    """
    depths: list[int] = []
    for parent in tree.parents:  # a part is younger than the one that it was cut from
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return sum(2.0 ** -depths[part] for part in parts)
