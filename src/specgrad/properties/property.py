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

from ..errors import ParameterError, SpecgradError, quoted
from ..scalar import Array, float_above, nearest_float
from .ball import NORMS, NormBall, norm_upper_bound
from .interface import PropertyInterface

LARGEST_FLOAT32 = ((1 << 24) - 1) << 104
MAX_ROW_ENTRIES = 1 << 25  # of the rows of all alternatives: inequalities x outputs, 8 bytes each


class PropertyError(SpecgradError, ValueError):
    """A property that is malformed or not supported.

    Parameters
    ----------
    text : str
        Why.
    line : int, optional
        Number of the line of the file.

    Examples
    --------
    >>> print(PropertyError("variable X_7 is not declared", 12))
    vnnlib: line 12: variable X_7 is not declared
    """

    def __init__(self, text: str, line: int | None = None) -> None:
        self.text = text
        super().__init__("vnnlib", quoted(text if line is None else f"line {line}: {text}"))

    def at(self, line: int) -> PropertyError:
        """Return this error with the number of the line where it was found."""
        return PropertyError(self.text, line)


@dataclass(frozen=True, eq=False)
class Alternative:
    """A region of outputs: rows @ y <= limits.

    Parameters
    ----------
    rows : array, shape (S, n)
        Rows of integers over the n outputs (and named inputs).
    limits : tuple of Fraction
        What a proof excludes, one limit per row.
    exact : tuple of Fraction, optional
        Limits that a counterexample satisfies, if they are tighter (rows that name inputs).
    strict : frozenset of int, optional
        Indices of rows that a counterexample satisfies without equality.

    Examples
    --------
    >>> region = Alternative(np.array([[1.0, -1.0]]), (Fraction(0),))     # y_0 <= y_1
    >>> region.contains(np.array([1.0, 2.0]))
    True
    """

    rows: Array
    limits: tuple[Fraction, ...]
    exact: tuple[Fraction, ...] | None = None
    strict: frozenset[int] = frozenset()

    def contains(self, y: Array) -> bool:
        """Return whether outputs y, taken at their exact values, lie in the region.

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
        """Return True if all outputs in low..high lie in the region, False if none does, None if unknown.

        A bound that is None is unknown.

        >>> region, ends = Alternative(np.array([[1.0]]), (Fraction(1),)), (Fraction(0), Fraction(1), Fraction(2))
        >>> [region.decided([a], [b]) for a in ends for b in ends if a <= b]
        [True, True, None, True, None, False]
        """
        kept = self.limits if self.exact is None else self.exact
        inside = True
        for k, (row, top) in enumerate(zip(self.rows, kept, strict=True)):
            least, most = (_row_extremum(row, low, high, side) for side in (-1, 1))
            if least is not None and (least >= top if k in self.strict else least > top):
                return False
            inside &= most is not None and (most < top if k in self.strict else most <= top)
        return True if inside else None

    @staticmethod
    def total(row: Array, values: Sequence[Fraction]) -> Fraction:
        """Return the exact dot product of `row` and `values`."""
        return sum((Fraction(c) * Fraction(values[j]) for j, c in enumerate(row.tolist()) if c), Fraction(0))


def _row_extremum(
    row: Array, low: Sequence[Fraction | None], high: Sequence[Fraction | None], side: int
) -> Fraction | None:
    """Return the exact minimum (side -1) or maximum (side 1) of row.y for y in low..high (None: no end).

    None if unbounded.
    """
    total = Fraction(0)
    for c, ends in zip(row.tolist(), zip(low, high, strict=True), strict=True):
        end = ends[int(c * side > 0)]
        if c and end is None:
            return None
        total += Fraction(c) * (end or 0)
    return total


@dataclass(frozen=True, eq=False)
class Case:
    """One box of inputs, flat, as rationals, and the alternatives: regions that hold the outputs of counterexamples.

    Parameters
    ----------
    low : tuple of Fraction
        Lower ends of the box, one per input cell.
    high : tuple of Fraction
        Upper ends of the box.
    alternatives : tuple of Alternative
        Regions that hold the outputs of counterexamples.
    ball : NormBall, optional
        Inputs lie in it too, if there is one; the box then contains its bounding box within the input limits.
    named_inputs : tuple of int, optional
        Inputs that rows name: they are appended to the values, behind the outputs.

    Examples
    --------
    >>> case = Case((Fraction(0),), (Fraction(1, 2),), (Alternative(np.array([[1.0]]), (Fraction(0),)),))
    >>> case.has([0.25]), case.has([0.75])
    (True, False)
    """

    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    alternatives: tuple[Alternative, ...]
    ball: NormBall | None = None
    named_inputs: tuple[int, ...] = ()

    def outer(self) -> tuple[Array, Array]:
        """Return (low, high) in float64: the smallest float32 box with every input, also when rounded to float32.

        PropertyError for ends beyond float32.
        """
        return _float32(self.low, -1), _float32(self.high, 1)

    @cached_property
    def nearest(self) -> tuple[Array, Array]:
        """(low, high): the first and the last float32 number in each cell's interval; if it has none, its rounded ends.

        PropertyError for ends beyond float32.

        >>> tenth = Fraction(1, 10)
        >>> [end.tolist() for end in Case((tenth, tenth), (tenth, Fraction(1)), ()).nearest]
        [[0.10000000149011612, 0.10000000149011612], [0.10000000149011612, 1.0]]
        """
        low, high = _float32(self.low, 1), _float32(self.high, -1)
        none = np.flatnonzero(low > high)
        low[none], high[none] = (nearest_float32([end[i] for i in none]) for end in (self.low, self.high))
        return low, high

    def has(self, x: Any) -> bool:
        """Return whether x (floats or rationals) lies in the box, and in the ball if there is one, compared exactly."""
        values = np.ravel(x).tolist()
        if not all(map(math.isfinite, values)):
            return False
        cells = [Fraction(v) for v in values]
        ends = zip(self.low, cells, self.high, strict=True)
        return all(low <= v <= high for low, v, high in ends) and (self.ball is None or self.ball.has(cells))

    def values(self, y: Array, point: Sequence[Fraction]) -> list[Any]:
        """Return what rows read: the outputs y, and behind them the inputs that rows name, taken from `point`."""
        flat = np.ravel(y).tolist()
        return flat[: len(flat) - len(self.named_inputs)] + [point[i] for i in self.named_inputs]

    def outer_ball(self) -> tuple[Array, float] | None:
        """Return (centre, radius) in float64 of a ball with every input, rounded to float32 or not; or None."""
        if self.ball is None:
            return None
        center = np.array([nearest_float(c) for c in self.ball.center])
        moved = [spacing(low, high) for low, high in zip(self.low, self.high, strict=True)]
        off = [c - Fraction(float(v)) for c, v in zip(self.ball.center, center, strict=True)]
        norm = self.ball.norm
        return center, float_above(self.ball.radius + norm_upper_bound(moved, norm) + norm_upper_bound(off, norm))

    def contains(self, y: Array, point: Sequence[Fraction] | None = None) -> bool:
        """Return whether outputs y belong to a counterexample; rows that name inputs read them from `point`."""
        values = y if point is None or not self.named_inputs else np.array(self.values(y, point), dtype=object)
        return any(a.contains(values) for a in self.alternatives)

    def decided(
        self, low: Sequence[Fraction | None], high: Sequence[Fraction | None], point: Sequence[Fraction]
    ) -> bool | None:
        """Return True if all outputs in low..high belong to a counterexample, False if none does, None if unknown.

        `point` is the exact input, of which some cells may stand in rows.
        """
        count = len(low) - len(self.named_inputs)
        named = [point[i] for i in self.named_inputs]
        answers = {a.decided([*low[:count], *named], [*high[:count], *named]) for a in self.alternatives}
        return True if True in answers else None if None in answers else False


@dataclass(frozen=True, eq=False)
class Property:
    """A property of a network: which inputs, and what their outputs must never be.

    Parameters
    ----------
    inputs : int
        Number of input cells.
    outputs : int
        Number of output cells.
    cases : tuple of Case
        It is violated by any counterexample of any of its cases.
    left_out : int, default 0
        Conjunctions of a text that no input or no output can satisfy, such as X_0 <= 0 and X_0 >= 1.
    interface : PropertyInterface, optional
        Where inputs are variables and outputs are values in another way than one by one.

    Examples
    --------
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
    interface: PropertyInterface | None = None

    @property
    def cells(self) -> int:
        """The number of input cells of all networks."""
        return self.inputs if self.interface is None else len(self.interface.variables)


def spacing(low: Fraction, high: Fraction) -> Fraction:
    """Return how far rounding to float32, in any direction, may move a number in low..high.

    PropertyError for ends beyond float32.

    >>> spacing(Fraction(-1, 10), Fraction(3, 2)) == Fraction(1, 2**23), spacing(Fraction(1, 2), Fraction(1, 2))
    (True, Fraction(0, 1))
    """
    if low == high and _float32([low], 1) == _float32([low], -1):
        return Fraction(0)
    size = max(abs(low), abs(high))
    power = size.numerator.bit_length() - size.denominator.bit_length()  # 2**power is at most one binade below size
    return Fraction(2) ** (max(power + (size >= Fraction(2) ** power) - 1, -126) - 23)


def refuse_too_many_entries(atoms: int, outputs: int) -> None:
    """Raise PropertyError if the rows of `atoms` inequalities over so many outputs would have over MAX_ROW_ENTRIES
    coefficients.
    """
    if atoms * outputs > MAX_ROW_ENTRIES:
        raise PropertyError(f"{atoms} inequalities over {outputs} outputs have over {MAX_ROW_ENTRIES} coefficients")


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
    """Return the property that no input within `eps` of x has another output as large as that of `label`.

    Parameters
    ----------
    x : array_like
        The input, flattened.
    label : int
        Number of the output.
    eps : Fraction or float
        How far inputs may lie from x, at least 0.
    outputs : int
        Number of outputs.
    low : number, optional
        Least value of every input cell.
    high : number, optional
        Largest value of every input cell.
    norm : str, default "inf"
        How far an input is from x: "inf" is cell by cell, "2" the root of the sum of squares, "1" the sum.

    Returns
    -------
    Property
        One case, an alternative per other output.

    Raises
    ------
    PropertyError
        If eps is negative, the label is no output, there is one output only, x lies outside low..high by more than eps,
        and for another norm.

    Examples
    --------
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
    refuse_too_many_entries(outputs - 1, outputs)
    others = [j for j in range(outputs) if j != label]
    rows = np.zeros((len(others), 1, outputs))
    for k, j in enumerate(others):
        rows[k, 0, label], rows[k, 0, j] = 1, -1
    alternatives = tuple(Alternative(row, (Fraction(0),)) for row in rows)
    ball = None if norm == "inf" else NormBall(norm, tuple(cells), radius)
    return Property(len(cells), outputs, (Case(tuple(lowest), tuple(highest), alternatives, ball),))


def towards_zero(exact: Fraction) -> float:
    """Return a float64 number next to `exact`, not larger in magnitude: a margin is never shown larger than it is.

    >>> towards_zero(Fraction(1, 3)) < Fraction(1, 3)
    True
    """
    near = nearest_float(exact)
    return near if abs(Fraction(near) if math.isfinite(near) else exact) <= abs(exact) else math.nextafter(near, 0)


def nearest_float32(values: Sequence[Fraction]) -> Array:
    """Return the values rounded to the nearest float32, ties to even, in float64; rounded once, not by way of float64.

    PropertyError for values beyond float32.

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
    """Return, in float64, the nearest float32 numbers not above (direction -1) or not below (1) the values.

    PropertyError if there are none.
    """
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


# --- numbers that a caller gives --------------------------------------------------------------------------------------


def exactly(operator: str, name: str, value: Any) -> Fraction:
    """Return a finite number `value` as an exact Fraction: Python's, NumPy's, or a text such as "0.1", which is a
    tenth.

    ParameterError otherwise, with the operator and the argument's `name`.

    >>> exactly("certify", "eps", 0.5), exactly("certify", "eps", "0.1"), exactly("certify", "eps", np.float32(2))
    (Fraction(1, 2), Fraction(1, 10), Fraction(2, 1))
    >>> exactly("certify", "eps", float("nan"))
    Traceback (most recent call last):
    specgrad.errors.ParameterError: certify: eps must be one finite number; got nan [P5]
    """
    one = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    try:
        return Fraction(one)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        text = f"{name} must be one finite number; got {quoted(str(value))}"
        raise ParameterError(operator, text, rule="P5") from None


def limit(operator: str, name: str, value: Any, direction: int) -> Fraction | None:
    """Return a limit as an exact Fraction; None if there is none: `value` is None or infinite in `direction` (-1 or 1).

    `name` is the argument's, for errors. ParameterError for what is no number.

    >>> limit("certify", "low", None, -1), limit("certify", "low", -math.inf, -1), limit("certify", "high", 1, 1)
    (None, None, Fraction(1, 1))
    """
    if value is None or (isinstance(value, float | np.floating) and value == direction * math.inf):
        return None
    return exactly(operator, name, value)
