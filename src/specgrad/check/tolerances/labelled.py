"""A tolerance with its label: proven where a proof is in reach and says something, else estimated, else unknown."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specgrad.deadline import time_left
from specgrad.errors import SpecgradError, TimeLimitError
from specgrad.rounding import Arithmetic
from specgrad.scalar import upward

from ..models.load import ModelAtPoints, at_points
from .estimate import EstimatedTolerance, estimate_at, is_useful
from .tolerance import Progress, Tolerance, tolerance_at

USEFUL_SHARE = 0.01  # of the outputs' spread: a wider proof is no tolerance for a test
OUT_OF_TIME = "the time was over before a proof ended; --seconds gives more"


@dataclass(frozen=True, eq=False)
class LabelledTolerance:
    """A tolerance in one of three forms, and what it rests on.

    form        "proven", "estimated", or "unknown"
    proven      what was proven, useful or not; None if nothing was in time
    estimated   what is usual; None if no estimate is known
    reason      why it is not proven; "" if it is
    seconds     how long it took
    notes       what else a reader should know, in sentences
    """

    form: Literal["proven", "estimated", "unknown"]
    proven: Tolerance | None
    estimated: EstimatedTolerance | None
    reason: str
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> str:
        """Return the form ("proven", "estimated" or "unknown"), which other results call the verdict."""
        return self.form

    @property
    def text(self) -> str:
        """The tolerance in a few digits, not below it; "" if it is unknown, or another one for every output."""
        if self.form == "proven" and self.proven is not None:
            return self.proven.text
        usual = self.estimated if self.form == "estimated" else None
        return upward(usual.tolerance, 2) if usual is not None and usual.is_one_for_all else ""

    def sentences(self) -> list[str]:
        """Return what is proven or estimated in words, and why it is not proven."""
        said = []
        if self.form == "proven" and self.proven is not None:
            said = self.proven.sentences()
            said[-1] += "  # proven"
        elif self.form == "estimated" and self.estimated is not None:
            said = self.estimated.sentences()
        return [*said, *([f"Not proven: {self.reason}."] if self.reason else [])]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: the keys of a proof, null unless it is proven and useful, and what is estimated under
        "estimated".
        """
        data = self.proven.to_json() if self.proven is not None else _nothing_proven()
        if self.form != "proven":
            data |= dict.fromkeys(("tolerance", "pairwise_tolerance", "rtol", "atol", "largest"))
            data |= {"outputs": [], "layers": {}}
        data |= {"reason": self.reason, "notes": list(self.notes), "seconds": self.seconds}
        return data | {"estimated": None if self.estimated is None else self.estimated.to_json()}


def _nothing_proven() -> dict[str, Any]:
    """Return the keys unbounded, points and deployment, with the values that they have where nothing is proven."""
    return {"unbounded": [], "points": None, "deployment": {}}


def labelled_tolerance(
    model: Any,
    inputs: Sequence[Any],
    stored: Collection[str] = (),
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> LabelledTolerance:
    """Return the tolerance of a model at the given inputs, within the time limit that holds here.

    options   `arithmetic` and `points`, as `tolerance` has them
    stored    names of nodes whose results the runtime is known to round and store
    progress  is told (what, done, total)
    """
    start, options = time.monotonic(), options or {}
    arithmetic, points = options.get("arithmetic") or Arithmetic(), bool(options.get("points"))
    try:
        at = at_points(model, inputs, "tolerance", arithmetic, points)
    except TimeLimitError:
        return LabelledTolerance("unknown", None, None, OUT_OF_TIME, seconds=time.monotonic() - start)
    estimated, notes = None, []
    if progress is not None:
        progress("errors that are usual", 0, 1)
    try:
        estimated = estimate_at(at, arithmetic)
    except TimeLimitError:
        notes.append("nothing was estimated: out of time")
    except SpecgradError as error:
        notes.append(f"nothing was estimated: {error}")
    proven, reason = _try_proof(at, arithmetic, stored, points, progress)
    known = estimated is not None and estimated.is_useful
    form: Literal["proven", "estimated", "unknown"] = "proven" if not reason else "estimated" if known else "unknown"
    if form == "unknown" and estimated is not None:
        notes.append("what is usual is estimated to be larger than the outputs: rounding may decide them")
    own = () if proven is None else proven.notes
    return LabelledTolerance(form, proven, estimated, reason, (*own, *notes), time.monotonic() - start)


def _try_proof(
    at: ModelAtPoints, arithmetic: Arithmetic, stored: Collection[str], points: bool, progress: Progress | None
) -> tuple[Tolerance | None, str]:
    """Return the proof for the model `at` its points, in `arithmetic`, if there is one, and why it is of no use; "" if
    it is.

    `stored` and `points` are those of `tolerance`; `progress` is told (what, done, total).
    """
    left = time_left()
    try:
        proven = tolerance_at(at, arithmetic, stored, points, None if left == float("inf") else left, progress)
    except TimeLimitError:
        return None, OUT_OF_TIME
    if proven.verdict == "unbounded":
        names = ", ".join(proven.unbounded[:3])
        return proven, f"nothing is proven of {names}" if names else "nothing is proven"
    if not is_useful(proven.tolerances, proven.exact, USEFUL_SHARE):
        return proven, f"what is proven is wider than {USEFUL_SHARE:.0%} of the outputs' spread"
    return proven, ""
