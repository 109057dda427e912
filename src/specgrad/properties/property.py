"""Properties of a network: which inputs, and what their outputs must never be.

A property is stated by its counterexamples, as VNN-LIB does: it holds if no input of a case's box has outputs that
satisfy all inequalities of one of its alternatives. Numbers are rationals, exactly as written. Inequalities may name
inputs too (specgrad.properties.interface): X_0 <= X_1 is one that every counterexample must satisfy.

A box is written in decimals; what a user feeds is float32. Which inputs are meant:

    a proof          covers every float32 number of the smallest float32 box that holds the box: `Case.outer`. So it
                     covers what any input of the box becomes when it is rounded to float32, in whatever direction.
    a counterexample is a point of the box itself, compared exactly, and the nearest float32 numbers, which the network
                     is run on: `Case.nearest`, specgrad.properties.points. Where they lie in the box, they are the
                     point; where a cell is 0.1..0.1, the point is 0.1, and the network reads 0.100000001490...

The same for inequalities that name inputs: rounding may move an input cell by `spacing`, so a proof excludes c.x <= k
with k larger by abs(c).spacing (`Alternative.limits`); the point of a counterexample satisfies it as written (`exact`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import SpecgradError, quoted
from ..scalar import Array
from .ball import NORMS, NormBall, size_above
from .interface import PropertyInterface
from .number import exactly, limit

LARGEST_FLOAT32 = ((1 << 24) - 1) << 104
MOST_ENTRIES = 1 << 25  # of the rows of all alternatives: inequalities x outputs, 8 bytes each


class PropertyError(SpecgradError, ValueError):
    """A property that is malformed, or says more than we understand."""

    def __init__(self, text: str, line: int | None = None) -> None:
        self.text = text
        super().__init__("vnnlib", quoted(text if line is None else f"line {line}: {text}"))

    def at(self, line: int) -> PropertyError:
        """The same, with the line where it was found."""
        return PropertyError(self.text, line)


@dataclass(frozen=True, eq=False)
class Alternative:
    """A region of outputs: rows @ y <= limits. The rows hold whole numbers, the limits are rationals.

    limits   what a proof excludes
    exact    what a counterexample keeps, where that is less: rows that name inputs
    strict   numbers of rows that a counterexample keeps without equality
    """

    rows: Array
    limits: tuple[Fraction, ...]
    exact: tuple[Fraction, ...] | None = None
    strict: frozenset[int] = frozenset()

    def contains(self, y: Array) -> bool:
        """Whether these outputs, taken at their exact values, lie in the region.

        >>> region = Alternative(np.array([[1.0, -1.0]]), (Fraction(0),), strict=frozenset({0}))
        >>> region.contains(np.array([1.0, 2.0])), region.contains(np.array([2.0, 2.0]))
        (True, False)
        """
        values = np.ravel(y).tolist()
        if not all(map(math.isfinite, values)):
            return False
        exact = [Fraction(v) for v in values]
        sums = (self.total(row, exact) for row in self.rows)
        kept = self.limits if self.exact is None else self.exact
        pairs = enumerate(zip(sums, kept, strict=True))
        return all(total < limit if k in self.strict else total <= limit for k, (total, limit) in pairs)

    def decided(self, low: Sequence[Fraction | None], high: Sequence[Fraction | None]) -> bool | None:
        """Whether all outputs between two ends lie in the region, or none of them does; None: neither is known.

        An end that is None is not known.

        >>> region, ends = Alternative(np.array([[1.0]]), (Fraction(1),)), (Fraction(0), Fraction(1), Fraction(2))
        >>> [region.decided([a], [b]) for a in ends for b in ends if a <= b]
        [True, True, None, True, None, False]
        """
        kept = self.limits if self.exact is None else self.exact
        inside = True
        for k, (row, top) in enumerate(zip(self.rows, kept, strict=True)):
            least, most = (_end(row, low, high, side) for side in (-1, 1))
            if least is not None and (least >= top if k in self.strict else least > top):
                return False
            inside &= most is not None and (most < top if k in self.strict else most <= top)
        return True if inside else None

    @staticmethod
    def total(row: Array, values: Sequence[Fraction]) -> Fraction:
        """row.values, exactly."""
        return sum((Fraction(c) * Fraction(values[j]) for j, c in enumerate(row.tolist()) if c), Fraction(0))


def _end(row: Array, low: Sequence[Fraction | None], high: Sequence[Fraction | None], side: int) -> Fraction | None:
    """The least, or the largest, value of row.y for y between the ends; None: not known."""
    total = Fraction(0)
    for c, ends in zip(row.tolist(), zip(low, high, strict=True), strict=True):
        end = ends[int(c * side > 0)]
        if c and end is None:
            return None
        total += Fraction(c) * (end or 0)
    return total


@dataclass(frozen=True, eq=False)
class Case:
    """One box of inputs, flat, as rationals; a counterexample's outputs lie in one of the alternatives.

    ball   inputs lie in it too, where there is one; the box then holds its hull, or what limits leave of that
    seen   inputs that stand among the values, behind the outputs: rows name them
    """

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    alternatives: tuple[Alternative, ...]
    ball: NormBall | None = None
    seen: tuple[int, ...] = ()

    def outer(self) -> tuple[Array, Array]:
        """The smallest float32 box, in float64, that holds every input and every input rounded to float32."""
        return _float32(self.low, -1), _float32(self.high, 1)

    @cached_property
    def nearest(self) -> tuple[Array, Array]:
        """The first and the last float32 number of every cell; of a cell that has none, what its ends are rounded to.

        >>> tenth = Fraction(1, 10)
        >>> [end.tolist() for end in Case((tenth, tenth), (tenth, Fraction(1)), ()).nearest]
        [[0.10000000149011612, 0.10000000149011612], [0.10000000149011612, 1.0]]
        """
        low, high = _float32(self.low, 1), _float32(self.high, -1)
        none = np.flatnonzero(low > high)
        low[none], high[none] = (nearest_float32([end[i] for i in none]) for end in (self.low, self.high))
        return low, high

    def has(self, x: Any) -> bool:
        """Whether an input, floats or rationals, lies in the box, and in the ball if there is one, compared exactly."""
        values = np.ravel(x).tolist()
        if not all(map(math.isfinite, values)):
            return False
        cells = [Fraction(v) for v in values]
        ends = zip(self.low, cells, self.high, strict=True)
        return all(low <= v <= high for low, v, high in ends) and (self.ball is None or self.ball.has(cells))

    def values(self, y: Array, point: Sequence[Fraction]) -> list[Any]:
        """The outputs, and behind them the inputs that rows name, as they are at a point."""
        flat = np.ravel(y).tolist()
        return flat[: len(flat) - len(self.seen)] + [point[i] for i in self.seen]

    def outer_ball(self) -> tuple[Array, float] | None:
        """A centre and a radius in float64 of a ball that holds every input, and every input rounded to float32."""
        if self.ball is None:
            return None
        center = np.array([as_float(c) for c in self.ball.center])
        moved = [spacing(low, high) for low, high in zip(self.low, self.high, strict=True)]
        off = [c - Fraction(float(v)) for c, v in zip(self.ball.center, center, strict=True)]
        norm = self.ball.norm
        return center, float_above(self.ball.radius + size_above(moved, norm) + size_above(off, norm))

    def contains(self, y: Array, point: Sequence[Fraction] | None = None) -> bool:
        """Whether these outputs belong to a counterexample; where the point is given, it is what rows name."""
        values = y if point is None or not self.seen else np.array(self.values(y, point), dtype=object)
        return any(a.contains(values) for a in self.alternatives)

    def decided(
        self, low: Sequence[Fraction | None], high: Sequence[Fraction | None], point: Sequence[Fraction]
    ) -> bool | None:
        """Whether all outputs between two ends belong to a counterexample, or none does; None: neither is known."""
        count = len(low) - len(self.seen)
        named = [point[i] for i in self.seen]
        answers = {a.decided([*low[:count], *named], [*high[:count], *named]) for a in self.alternatives}
        return True if True in answers else None if None in answers else False


@dataclass(frozen=True, eq=False)
class Property:
    """Cases that share nothing but the network: any counterexample of any case breaks the property.

    >>> text = "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
    >>> text += "(assert (>= X_0 0)) (assert (<= X_0 0.5)) (assert (<= Y_0 (+ Y_1 0.25)))"
    >>> from specgrad.properties.vnnlib import read_text
    >>> stated = read_text(text)
    >>> stated.cases[0].high, stated.cases[0].alternatives[0].rows, stated.cases[0].alternatives[0].limits
    ((Fraction(1, 2),), array([[ 1., -1.]]), (Fraction(1, 4),))
    """

    inputs: int
    outputs: int
    cases: tuple[Case, ...]
    left_out: int = 0
    """Conjunctions of a text that no input or no output can satisfy, such as X_0 <= 0 and X_0 >= 1."""
    interface: PropertyInterface | None = None
    """Where inputs are variables and outputs are values in another way than one by one."""

    @property
    def cells(self) -> int:
        """Of all inputs of the networks."""
        return self.inputs if self.interface is None else len(self.interface.variables)


def spacing(low: Fraction, high: Fraction) -> Fraction:
    """How far rounding to float32, in whatever direction, may move a number between these.

    >>> spacing(Fraction(-1, 10), Fraction(3, 2)) == Fraction(1, 2**23), spacing(Fraction(1, 2), Fraction(1, 2))
    (True, Fraction(0, 1))
    """
    if low == high and _float32([low], 1) == _float32([low], -1):
        return Fraction(0)
    size = max(abs(low), abs(high))
    power = size.numerator.bit_length() - size.denominator.bit_length()  # 2**power is at most one binade below size
    return Fraction(2) ** (max(power + (size >= Fraction(2) ** power) - 1, -126) - 23)


def refuse_wide(atoms: int, outputs: int) -> None:
    """Inequalities x outputs, before their rows are made."""
    if atoms * outputs > MOST_ENTRIES:
        raise PropertyError(f"{atoms} inequalities over {outputs} outputs have over {MOST_ENTRIES} coefficients")


def robustness(
    x: Any,
    label: int,
    eps: Fraction | float,
    outputs: int,
    *,
    low: Any = None,
    high: Any = None,
    norm: str = "inf",
) -> Property:
    """No input within eps of x has an output as large as the label's.

    low, high   limits of any input
    norm        how far an input is: "inf" cell by cell, "2" by the root of the sum of squares, "1" by the sum

    >>> robust = robustness([0.5, 1.0], 1, Fraction(1, 4), 3, high=1)
    >>> robust.cases[0].high
    (Fraction(3, 4), Fraction(1, 1))
    >>> len(robust.cases[0].alternatives)
    2
    """
    radius = exactly("robustness", "eps", eps)
    least, most = limit("robustness", "low", low, -1), limit("robustness", "high", high, 1)
    if radius < 0:
        raise PropertyError(f"eps must not be negative; got {eps}")
    cells = [exactly("robustness", "a cell of x", v) for v in np.ravel(np.asarray(x))]
    if type(label) is not int or not 0 <= label < outputs:
        raise PropertyError(f"label must be one of 0..{outputs - 1}; got {label}")
    if outputs == 1:
        raise PropertyError("the only output is always the largest, so there is nothing to prove")
    if norm not in NORMS:
        raise PropertyError(f"norm must be one of {', '.join(NORMS)}; got {norm!r}")
    lowest = [c - radius if least is None else max(c - radius, least) for c in cells]
    highest = [c + radius if most is None else min(c + radius, most) for c in cells]
    if any(a > b for a, b in zip(lowest, highest, strict=True)):
        raise PropertyError("x lies outside low..high by more than eps")
    refuse_wide(outputs - 1, outputs)
    others = [j for j in range(outputs) if j != label]
    rows = np.zeros((len(others), 1, outputs))
    for k, j in enumerate(others):
        rows[k, 0, label], rows[k, 0, j] = 1, -1
    alternatives = tuple(Alternative(row, (Fraction(0),)) for row in rows)
    ball = None if norm == "inf" else NormBall(norm, tuple(cells), radius)
    return Property(len(cells), outputs, (Case(tuple(lowest), tuple(highest), alternatives, ball),))


def as_float(value: Fraction) -> float:
    """The nearest float64 number, which may be infinite."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def float_above(value: Fraction) -> float:
    """The least float64 number that is not below, which may be infinite."""
    near = as_float(value)
    return near if math.isinf(near) or Fraction(near) >= value else math.nextafter(near, math.inf)


def towards_zero(exact: Fraction) -> float:
    """A float64 number that is not larger in size, so that a margin is not shown larger than it is.

    >>> towards_zero(Fraction(1, 3)) < Fraction(1, 3)
    True
    """
    near = as_float(exact)
    return near if abs(Fraction(near) if math.isfinite(near) else exact) <= abs(exact) else math.nextafter(near, 0)


def nearest_float32(values: Sequence[Fraction]) -> Array:
    """Rounded to nearest, of two to the even one, at once: by way of float64 some numbers would be rounded twice.

    >>> nearest_float32([Fraction(1, 10), 1 + Fraction(1, 2**24), 1 + Fraction(1, 2**24) + Fraction(1, 2**80)]).tolist()
    [0.10000000149011612, 1.0, 1.0000001192092896]
    """
    below, above = _float32(values, -1), _float32(values, 1)
    nearest = below.copy()
    for i in map(int, np.flatnonzero(below != above)):
        beyond = 2 * values[i] - Fraction(float(below[i])) - Fraction(float(above[i]))
        is_even = not int(np.float32(below[i]).view(np.uint32)) & 1
        nearest[i] = above[i] if beyond > 0 or (beyond == 0 and not is_even) else below[i]
    return nearest


def _float32(values: Sequence[Fraction], direction: int) -> Array:
    """The nearest float32 numbers not above (-1) or not below (1) the values, in float64."""
    if any(abs(v) > LARGEST_FLOAT32 for v in values):
        raise PropertyError("an input bound is no float32 number: it is too large")
    wide = np.array([v.numerator / v.denominator for v in values])
    near = wide.astype(np.float32)
    beyond = near.astype(float)
    wrong = (beyond - wide) * direction < 0
    for i in map(int, np.flatnonzero(beyond == wide)):  # rounding to float64 hides which side the rational is on
        p, q = float(wide[i]).as_integer_ratio()
        wrong[i] = (p * values[i].denominator - q * values[i].numerator) * direction < 0
    return np.where(wrong, np.nextafter(near, np.float32(direction * np.inf)), near).astype(float)
