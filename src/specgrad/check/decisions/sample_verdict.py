"""The verdict on one sample of data, made of the margins of its decisions; those of many samples are made at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np

from ..models.checkpoint import RecordError
from .margins import DecisionMargins, DecisionProblem

Kind = Literal["proven", "not proven", "differs"]


@dataclass(frozen=True)
class Sample:
    """The verdict on one sample.

    decision          a class, a list of classes, 0 or 1; None where there are many decisions
    decisions         how many there are, and `unproven` how many of them are not proven
    margin            of the comparison that is nearest to turning: its reference value
    tolerance         what executions may take from it; the decision is proven where the margin is larger
    between           the two outputs that are compared there, flat; one for a threshold
    estimated         how many of those not proven correct executions are estimated to keep: no proof
    executions        two that differ: name, decision, outputs by their flat number
    outside           runtimes whose outputs lie outside the proven bounds: they execute something else
    number, verdict   of the sample among all, and what is proven of it
    reason            why nothing is proven; "" otherwise
    seconds           how long it took
    """

    number: int
    verdict: Kind
    decision: Any
    decisions: int
    unproven: int
    margin: float | None
    tolerance: float | None
    between: list[int]
    seconds: float
    reason: str = ""
    executions: list[dict[str, Any]] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    estimated: int = 0

    @classmethod
    def read(cls, data: Mapping[str, Any], number: int) -> Sample:
        """Return the sample of this number that the JSON `data` of a checkpoint state; RecordError if they state
        none.
        """
        data = {k: v for k, v in data.items() if k != "number"}
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING} - {"number"}
        if not required <= data.keys() <= ENTRIES.keys() or not all(ENTRIES[k](v) for k, v in data.items()):
            raise RecordError(f"sample {number} is not recorded as it is written")
        return cls(number=number, **data)

    @property
    def ratio(self) -> float:
        """Margin over tolerance: proven above 1. Infinite where the tolerance is 0, 0 where nothing is known."""
        if self.margin is None or self.tolerance is None:
            return 0.0
        return self.margin / self.tolerance if self.tolerance else np.inf

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON data, by name; reason, executions and outside are left out if empty."""
        data = asdict(self)
        return {k: v for k, v in data.items() if v or k not in ("reason", "executions", "outside")}


def _is_count(value: Any) -> bool:
    """Return whether a value is a whole number that a float holds, from 0."""
    return type(value) is int and 0 <= value <= 1 << 53


def _is_number(value: Any) -> bool:
    """Return whether a value is a number that a float holds."""
    return type(value) in (int, float) and abs(value) < 1e308


def _is_execution(value: Any) -> bool:
    """Return whether a value is an execution as a sample has it: a name, a decision, outputs by flat number."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "decision" not in value:
        return False
    outputs, asked = value.get("outputs"), value.get("asked", [])
    if not isinstance(outputs, dict) or not isinstance(asked, list):
        return False
    by_number = all(k.isascii() and k.isdigit() and _is_number(v) for k, v in outputs.items())
    return by_number and all(isinstance(a, dict) and {"who", "outcome"} <= a.keys() for a in asked)


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return whether a value is a list of what `holds`."""
    return lambda value: isinstance(value, list) and all(map(holds, value))


ENTRIES: dict[str, Callable[[Any], bool]] = {
    "verdict": lambda v: v in ("proven", "not proven", "differs"),
    "decision": lambda v: v is None or isinstance(v, int | list),
    **dict.fromkeys(("decisions", "unproven", "estimated"), _is_count),
    **dict.fromkeys(("margin", "tolerance"), lambda v: v is None or _is_number(v)),
    "between": _list_of(_is_count),
    "seconds": _is_number,
    "reason": lambda v: isinstance(v, str),
    "executions": _list_of(_is_execution),
    "outside": _list_of(lambda v: isinstance(v, str)),
}
"""What a checkpoint may hold of a sample."""


def sample_verdicts(
    question: DecisionProblem, margins: DecisionMargins, first: int, count: int, seconds: float
) -> list[Sample]:
    """Return the verdicts that `margins` prove of `count` samples, numbered from `first` on.

    margins  of the decisions of all these samples, those of a sample side by side
    seconds  that all of them took
    """
    c, proven = margins.comparisons, margins.proven
    decided = question.decision.of(margins.value.reshape(margins.shape))
    each, cells = len(decided) // count, margins.value.size // count
    unproven = np.bincount(np.unique(c.place[~proven]) // each, minlength=count).tolist()
    worst = margins.worst_of(c.place // each)
    pairs = np.stack([c.larger[worst], c.smaller[worst]], axis=1).tolist()
    numbers = [
        [_finite_or_none(x) for x in a[worst].tolist()] for a in (margins.margin, margins.tolerance, margins.low)
    ]
    said = decided.tolist()
    return [
        Sample(
            first + k,
            "not proven" if unproven[k] else "proven",
            said[k] if each == 1 else None,
            each,
            unproven[k],
            margin,
            tolerance,
            [i - k * cells for i in pairs[k] if i >= 0],
            round(seconds / count, 4),
            "" if low is not None else "nothing is proven of the outputs: overflow is possible",
        )
        for k, (margin, tolerance, low) in enumerate(zip(*numbers, strict=True))
    ]


def _finite_or_none(x: float) -> float | None:
    """Return x, or None if it is not finite."""
    return x if math.isfinite(x) else None
