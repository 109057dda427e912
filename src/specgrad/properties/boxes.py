"""Bounds of single inputs, from inequalities of one input and from sums of several (bound propagation).

From c.x <= k and bounds of the others follows c_i*x_i <= k - sum over j != i of the least c_j*x_j. This is repeated
until nothing changes, at most MAX_ROUNDS times. The sums stay rows of the property: the box need not be the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..scalar import nearest_float
from .property import PropertyError
from .vnnlib1 import LinearExpression

MAX_ROUNDS = 16
DERIVED_BOUND_BITS = 128  # of a derived bound, which is rounded outward

VariableNamer = Callable[[int], str]


@dataclass(frozen=True, eq=False)  # equal if the same object: alternatives that add no bound share one
class VariableBounds:
    """Lower and upper bounds of input variables, by their index; a variable that is missing has no such bound."""

    low: dict[int, Fraction]
    high: dict[int, Fraction]

    def tightened(self, atoms: Sequence[LinearExpression]) -> VariableBounds:
        """Return the bounds with `atoms`: c*X + k <= 0 bounds X from above if c > 0, else from below."""
        if not atoms:
            return self
        low, high = dict(self.low), dict(self.high)
        for atom in atoms:
            ((name, slope),) = atom.terms.items()
            i, bound = int(name[2:]), -atom.constant / slope
            if slope > 0:
                high[i] = min(high.get(i, bound), bound)
            else:
                low[i] = max(low.get(i, bound), bound)
        return VariableBounds(low, high)

    def implied(self, sums: Sequence[LinearExpression]) -> VariableBounds:
        """Return the bounds tightened by what `sums`, each an inequality of several inputs, imply for each input.

        >>> total = LinearExpression({"X_0": Fraction(1), "X_1": Fraction(2)}, Fraction(-4))  # X_0 + 2*X_1 <= 4
        >>> VariableBounds({0: Fraction(0), 1: Fraction(0)}, {}).implied([total]).high
        {0: Fraction(4, 1), 1: Fraction(2, 1)}
        """
        if not sums:
            return self
        bounds = VariableBounds(dict(self.low), dict(self.high))
        for _ in range(MAX_ROUNDS):
            changed = [bounds._improve(s) for s in sums]
            if bounds.empty_variable() is not None or not any(changed):
                break
        return bounds

    def _improve(self, atom: LinearExpression) -> bool:
        """Tighten all variables of one inequality in place; return whether a bound changed."""
        least = {name: self._least_product(name, c) for name, c in atom.terms.items()}
        unknown = [name for name, value in least.items() if value is None]
        if len(unknown) > 1:
            return False
        total = sum((v for v in least.values() if v is not None), Fraction(0))
        changed = False
        for name in unknown or atom.terms:
            rest = total - (least[name] or 0)
            changed |= self._tighten_one(
                int(name[2:]), (-atom.constant - rest) / atom.terms[name], atom.terms[name] > 0
            )
        return changed

    def _least_product(self, name: str, c: Fraction) -> Fraction | None:
        """Return the least value of c * variable within the bounds; None if it is unbounded."""
        end = (self.low if c > 0 else self.high).get(int(name[2:]))
        return None if end is None else c * end

    def _tighten_one(self, i: int, bound: Fraction, above: bool) -> bool:
        """Set an upper (`above`) or lower bound of variable i if it is tighter; return whether it is."""
        bound = _shorten_outward(bound, above)
        ends = self.high if above else self.low
        if i in ends and not (bound < ends[i] if above else bound > ends[i]):
            return False
        ends[i] = bound
        return True

    def empty_variable(self) -> int | None:
        """Return the first variable whose lower bound is above its upper bound; None if there is none."""
        both = self.low.keys() & self.high.keys()
        return next((i for i in sorted(both) if self.low[i] > self.high[i]), None)

    def refuse_if_empty(self, name_of: VariableNamer) -> None:
        """Raise PropertyError if some variable has a lower bound above its upper bound."""
        i = self.empty_variable()
        if i is not None:
            low, high = nearest_float(self.low[i]), nearest_float(self.high[i])
            raise PropertyError(f"input {name_of(i)} has lower bound {low} above upper bound {high}")

    def box(self, count: int, name_of: VariableNamer) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Return (low, high) of variables 0..count-1; raise PropertyError that names one without a bound."""
        for i in range(count):
            if i not in self.low or i not in self.high:
                raise PropertyError(f"input {name_of(i)} has no {'upper' if i in self.low else 'lower'} bound")
        return tuple(self.low[i] for i in range(count)), tuple(self.high[i] for i in range(count))


def _shorten_outward(bound: Fraction, above: bool) -> Fraction:
    """Return `bound`, or if it is long one of DERIVED_BOUND_BITS bits outside it, so that numbers stay short."""
    if bound.numerator.bit_length() + bound.denominator.bit_length() <= 2 * DERIVED_BOUND_BITS:
        return bound
    unit = Fraction(2) ** (bound.numerator.bit_length() - bound.denominator.bit_length() - DERIVED_BOUND_BITS)
    return (math.ceil if above else math.floor)(bound / unit) * unit
