"""Decisions from a network's outputs (argmax, top-k, thresholds), as comparisons of cells that must not flip.

    argmax        the largest along the axis of classes, the first of equal ones; one decision per remaining cell
    top-K         the set of the K largest along that axis, the first of equal ones
    threshold:T   per cell: y > T
    mask          per pixel: argmax over the channels, or, where there is one channel, y > 0 (mask:T: y > T)

The axis of classes is the second one (batch, classes, ...) or the only one, unless `axis` says another. A decision is
the same on two executions if every comparison comes out the same; equal cells are decided by their index, so the later
one needs to be no larger.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from ...errors import ParameterError
from ...rounding import FORMATS
from ...scalar import Array, float_above, float_below
from ...window import Shape

DECISION_NAMES = "argmax, top-K (top-5), threshold:T (threshold:0.5), mask, mask:T"
THRESHOLD = -1
"""In place of a second cell: the threshold."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """sign * (y[larger] - (y[smaller] or the threshold)) > 0, or >= 0 where not `strict`; one per entry.

    place     which decision it belongs to
    limits    the threshold as exact number and as the format has it: the smaller and the larger of both
    """

    larger: Array
    smaller: Array
    sign: Array
    strict: Array
    place: Array
    limits: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0))

    def __len__(self) -> int:
        return len(self.larger)

    def only(self, which: Array) -> Comparisons:
        """Return the comparisons that `which`, a mask or indices, selects."""
        larger, smaller, sign = self.larger[which], self.smaller[which], self.sign[which]
        return Comparisons(larger, smaller, sign, self.strict[which], self.place[which], self.limits)

    def rows(self, outputs: int) -> Array:
        """Return the comparisons as linear objectives (comparisons, outputs), without the threshold."""
        rows = np.zeros((len(self), outputs))
        k = np.arange(len(self))
        rows[k, self.larger] = self.sign
        second = self.smaller != THRESHOLD
        rows[k[second], self.smaller[second]] = -1.0
        return rows

    def demand(self) -> Array:
        """Return what each row must exceed (or reach, if not strict): 0, or the threshold on the harder side."""
        low, high = float_below(self.limits[0]), float_above(self.limits[1])
        return np.where(self.smaller != THRESHOLD, 0.0, np.where(self.sign > 0, high, -low))

    def margins(self, y: Array) -> Array:
        """Return how far outputs y are on the right side of each comparison."""
        with np.errstate(invalid="ignore"):
            second = np.where(self.smaller == THRESHOLD, 0.0, y[np.maximum(self.smaller, 0)])
            return np.asarray(self.sign * y[self.larger] - second - self.demand())

    def hold(self, rows: Array) -> Array:
        """Return which comparisons hold, given values or lower bounds of `rows` times the outputs; false for NaN.

        The threshold is not subtracted from them: what `margins` gives must not be passed.
        """
        demand = self.demand()
        return np.asarray(np.where(self.strict, rows > demand, rows >= demand))


@dataclass(frozen=True)
class Decision:
    """What is decided from the outputs; `parse` reads it.

    kind    "argmax": the class with the largest output. "top": the set of the `count` largest. "threshold": per cell,
            whether it exceeds `level`. "mask": per pixel the largest channel; of one channel whether it exceeds `level`
    axis    of the classes; None: the second, or the only one. ParameterError where the outputs have no such axis

    >>> Decision("argmax").of(np.array([[1.0, 3.0, 3.0]]))
    array([1])
    >>> Decision("top", count=2).of(np.array([[1.0, 3.0, 3.0]]))
    array([[1, 2]])
    >>> Decision("threshold", level=Fraction(1, 2)).of(np.array([[0.5, 0.6]]))
    array([0, 1])
    """

    kind: Literal["argmax", "top", "threshold", "mask"]
    count: int = 1
    level: Fraction = Fraction(0)
    axis: int | None = None

    def __str__(self) -> str:
        number = str(float(self.level)) if Fraction(float(self.level)) == self.level else str(self.level)
        named = {
            "argmax": "argmax",
            "top": f"top-{self.count}",
            "threshold": f"threshold:{number}",
            "mask": f"mask:{number}" if self.level else "mask",
        }[self.kind]
        return named if self.axis is None else f"{named} along axis {self.axis}"

    def said(self) -> str:
        """Return in words what of the outputs stays the same: the largest class, the first five, ..."""
        return {
            "argmax": "the largest output, the first of equal ones",
            "top": f"the set of the {self.count} largest outputs, the first of equal ones",
            "threshold": f"which outputs are larger than {float(self.level):g}",
            "mask": f"the class of every pixel (one channel: larger than {float(self.level):g})",
        }[self.kind]

    def of(self, y: Array) -> Array:
        """Return the decisions that outputs y lead to: one row each, classes or 0 and 1."""
        if self._is_by_level(y.shape):
            return np.asarray(y.ravel().astype(float) > float(self.level)).astype(int)
        cells = self.by_class(y)
        if self.kind == "top":
            return np.sort(_rank_classes(cells)[: self.count], axis=0).T
        return np.asarray(np.argmax(cells, axis=0))

    def comparisons(self, y: Array, dtype: str = "float32") -> Comparisons:
        """Return what must hold so that every execution, whose outputs have the format `dtype`, decides as outputs y
        do.

        ParameterError if y is empty, has no such axis of classes, or has no more of them than are selected.
        """
        if not y.size:
            raise ParameterError("preserve", f"the output has shape {y.shape}: nothing is decided", rule="P5")
        if self._is_by_level(y.shape):
            cells = np.arange(y.size)
            limits = sorted((self.level, _threshold_in_format(self.level, dtype)))
            above = y.ravel() > float(limits[1])
            sign = np.where(above, 1.0, -1.0)
            return Comparisons(cells, np.full(y.size, THRESHOLD), sign, above, cells, (limits[0], limits[1]))
        index = self.by_class(np.arange(y.size).reshape(y.shape))
        cells = self.by_class(y)
        kept = self._checked_count(cells)
        ranked = _rank_classes(cells)
        pairs: Any = np.broadcast_arrays(ranked[:kept, None], ranked[None, kept:], np.arange(cells[0].size))
        b, w, p = (each.ravel() for each in pairs)
        return Comparisons(index[b, p], index[w, p], np.ones(b.size), w < b, p)

    def keeps_rows_apart(self, shape: Shape) -> bool:
        """Return whether every decision from outputs of this shape is made from one cell along their first axis."""
        return self._is_by_level(shape) or self._class_axis(shape) % len(shape) != 0

    def _is_by_level(self, shape: Shape) -> bool:
        """Return whether, in outputs of this shape, cells are compared with the threshold `level`, not with each
        other.
        """
        one = len(shape) < 2 or shape[self._class_axis(shape)] == 1
        return self.kind == "threshold" or (self.kind == "mask" and one)

    def _class_axis(self, shape: Shape) -> int:
        """Return the axis of classes: the given one, else the second, or the only one; ParameterError if the shape has
        none.
        """
        axis = self.axis if self.axis is not None else min(1, len(shape) - 1)
        if not -len(shape) <= axis < len(shape) or not shape:
            raise ParameterError("preserve", f"the output of shape {shape} has no axis {axis} of classes", rule="P5")
        return axis

    def by_class(self, y: Array) -> Array:
        """Return the output y as (classes, decisions): the axis of classes first, others flattened."""
        moved = np.moveaxis(y, self._class_axis(y.shape), 0)
        return moved.reshape(len(moved), -1)

    def _checked_count(self, cells: Array) -> int:
        """Return how many classes of `cells` (classes, decisions) are selected; raise ParameterError if that is all of
        them.
        """
        if self.count >= len(cells) or not cells.size:
            text = f"{self} of {len(cells)} classes, shape {cells.shape}: nothing is decided"
            raise ParameterError("preserve", text, rule="P5")
        return self.count


def _rank_classes(cells: Array) -> Array:
    """Return class indices of `cells` (classes, decisions) from the largest value down, the first of equal ones
    first.
    """
    return np.argsort(-cells, axis=0, kind="stable")


def _threshold_in_format(level: Fraction, dtype: str) -> Fraction:
    """Return a threshold `level` rounded to the format `dtype`: a program may compare with either."""
    form = FORMATS[dtype]
    if not level or form.digits >= FORMATS["float64"].digits:
        return Fraction(float(level))
    power = max(np.frexp(float(level))[1] - 1, form.lowest) - (form.digits - 1)
    return Fraction(round(level / Fraction(2) ** int(power))) * Fraction(2) ** int(power)


def parse(text: Any) -> Decision:
    """Return the decision that `text` names; a Decision stays itself, and ParameterError for other words.

    >>> str(parse("top-5")), str(parse("threshold:0.5")), str(parse("mask"))
    ('top-5', 'threshold:0.5', 'mask')
    >>> parse("largest")
    Traceback (most recent call last):
    specgrad.errors.ParameterError: preserve [P5]: unknown decision 'largest'; there are argmax, top-K (top-5), threshold:T (threshold:0.5), mask, mask:T
    """  # noqa: E501
    if isinstance(text, Decision):
        return text
    word, _, number = str(text).partition(":")
    if word in ("argmax", "mask") and not number and ":" not in str(text):
        return Decision("argmax" if word == "argmax" else "mask")
    if word.startswith("top-") and word[4:].isdecimal() and int(word[4:]) > 0 and not number:
        return Decision("top", count=int(word[4:]))
    if word in ("threshold", "mask") and (level := _threshold_of(number)) is not None:
        return Decision("threshold" if word == "threshold" else "mask", level=level)
    raise ParameterError("preserve", f"unknown decision {str(text)[:40]!r}; there are {DECISION_NAMES}", rule="P5")


def _threshold_of(text: str) -> Fraction | None:
    """Return the threshold that `text` states as an exact Fraction; None if it is no number or too long."""
    try:
        value = Fraction(text)
        return value if abs(value) < 2**100 and len(text) < 40 else None
    except (ValueError, ZeroDivisionError):
        return None
