"""Receptive fields and halos: the image of the window relation along one axis, exactly.

A `ReceptiveField` is periodic: output o = period*m + r depends on inputs step*m + first .. step*m + last, where
(first, last) belongs to the phase r; a phase may depend on nothing. An ordinary window has period 1; a transposed
one of stride s has period s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Span = tuple[int, int] | None  # first and last input, or nothing


@dataclass(frozen=True, slots=True)
class ReceptiveField:
    """A periodic dependency along one axis: output period*m + r depends on inputs step*m + first .. step*m + last.

    phases   (first, last) per r; None: it depends on nothing
    """

    period: int
    step: int
    phases: tuple[Span, ...]

    def of(self, o: int) -> Span:
        """Return the first and last input that output o depends on; None: on nothing."""
        m, r = divmod(o, self.period)
        span = self.phases[r]
        return None if span is None else (span[0] + self.step * m, span[1] + self.step * m)

    @property
    def width(self) -> int:
        """Return the most cells that one output depends on, from the first to the last."""
        return max((s[1] - s[0] + 1 for s in self.phases if s is not None), default=0)


def strided(step: int, first: int, last: int) -> ReceptiveField:
    """Return the field of outputs o that depend on step*o + first .. step*o + last."""
    return ReceptiveField(1, step, ((first, last),))


CELL = strided(1, 0, 0)


MAX_PHASES = 1 << 12
"""Of a relation that is written out; one with more is None: everything, which is true of any."""


def backwards(step: int, first: int, last: int) -> ReceptiveField | None:
    """Return the strided relation backwards: input i is read by the outputs o with step*o+first <= i <= step*o+last.

    None at strides above MAX_PHASES.

    >>> backwards(2, 0, 1)  # a window of 2 with stride 2: each input is read by one output
    ReceptiveField(period=2, step=1, phases=((0, 0), (0, 0)))
    """

    if step > MAX_PHASES:
        return None

    def span(i: int) -> Span:
        """Return the first and last output that read input i; None: no output does."""
        low, high = -((last - i) // step), (i - first) // step
        return (low, high) if low <= high else None

    return ReceptiveField(step, 1, tuple(span(i) for i in range(step)))


def through(outer: ReceptiveField, inner: ReceptiveField) -> ReceptiveField | None:
    """Return the field of an output that reads `outer` of values that themselves depend on `inner`; None: too long a
    period.

    >>> through(strided(2, 0, 2), strided(1, -1, 1))  # a strided window of 3 over a window of 3
    ReceptiveField(period=1, step=2, phases=((-1, 3),))
    >>> through(backwards(2, 0, 1), strided(2, 0, 1)).width  # up again after a pooling of 2
    2
    """
    repeats = inner.period // math.gcd(outer.step, inner.period)
    period = outer.period * repeats
    step = outer.step * repeats // inner.period * inner.step
    if period > MAX_PHASES:
        return None
    return ReceptiveField(period, step, tuple(_inputs_of_span(outer.of(o), inner) for o in range(period)))


def _inputs_of_span(span: Span, inner: ReceptiveField) -> Span:
    """Return the span of inputs that the span of inner outputs depends on; None: none."""
    if span is None:
        return None
    low, high = span
    # Beyond one period from either end nothing can reach further out.
    ends = {*range(low, min(high, low + inner.period) + 1), *range(max(low, high - inner.period), high + 1)}
    spans = [s for s in map(inner.of, ends) if s is not None]
    return (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else None


def union(a: ReceptiveField | None, b: ReceptiveField | None) -> ReceptiveField | None:
    """Return a field that covers both a and b.

    None (everything) if one is, if they move at different speeds, or if it takes more than MAX_PHASES phases.

    >>> union(strided(1, -1, 1), strided(1, 0, 3))
    ReceptiveField(period=1, step=1, phases=((-1, 3),))
    """
    if a is None or b is None or a.step * b.period != b.step * a.period:
        return None
    period = math.lcm(a.period, b.period)
    if period > MAX_PHASES:
        return None

    def both(o: int) -> Span:
        """Return the inputs that output o depends on in either field."""
        spans = [s for s in (a.of(o), b.of(o)) if s is not None]
        return (min(s[0] for s in spans), max(s[1] for s in spans)) if spans else None

    return ReceptiveField(period, a.step * period // a.period, tuple(both(o) for o in range(period)))
