"""The box of inputs that inequalities leave: bounds of single inputs, and what sums of several imply for each of them.

From c.x <= k and bounds of the others follows c_i*x_i <= k - sum over j != i of the least c_j*x_j. That is done until
nothing moves, or a few times: the sums stay rows of the property, so the box need not be the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .property import PropertyError, as_float
from .vnnlib1 import LinearExpression

ROUNDS = 16
BITS = 128  # of a derived bound, which is rounded outward

Called = Callable[[int], str]


@dataclass(frozen=True, eq=False)  # equal if the same object: alternatives that add no bound share one
class VariableBounds:
    """What is known of every input from below and above."""

    low: dict[int, Fraction]
    high: dict[int, Fraction]

    def tightened(self, atoms: Sequence[LinearExpression]) -> VariableBounds:
        """c*X + k <= 0 bounds X from above if c is positive, else from below."""
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
        """Bounds that follow from sums of several inputs.

        >>> total = LinearExpression({"X_0": Fraction(1), "X_1": Fraction(2)}, Fraction(-4))  # X_0 + 2*X_1 <= 4
        >>> VariableBounds({0: Fraction(0), 1: Fraction(0)}, {}).implied([total]).high
        {0: Fraction(4, 1), 1: Fraction(2, 1)}
        """
        if not sums:
            return self
        bounds = VariableBounds(dict(self.low), dict(self.high))
        for _ in range(ROUNDS):
            moved = [bounds._improve(s) for s in sums]
            if bounds.empty() is not None or not any(moved):
                break
        return bounds

    def _improve(self, atom: LinearExpression) -> bool:
        least = {name: self._least(name, c) for name, c in atom.terms.items()}
        unknown = [name for name, value in least.items() if value is None]
        if len(unknown) > 1:
            return False
        total = sum((v for v in least.values() if v is not None), Fraction(0))
        changed = False
        for name in unknown or atom.terms:
            rest = total - (least[name] or 0)
            changed |= self._enter(int(name[2:]), (-atom.constant - rest) / atom.terms[name], atom.terms[name] > 0)
        return changed

    def _least(self, name: str, c: Fraction) -> Fraction | None:
        end = (self.low if c > 0 else self.high).get(int(name[2:]))
        return None if end is None else c * end

    def _enter(self, i: int, bound: Fraction, above: bool) -> bool:
        bound = _short(bound, above)
        ends = self.high if above else self.low
        if i in ends and not (bound < ends[i] if above else bound > ends[i]):
            return False
        ends[i] = bound
        return True

    def empty(self) -> int | None:
        """An input whose bounds leave nothing."""
        both = self.low.keys() & self.high.keys()
        return next((i for i in sorted(both) if self.low[i] > self.high[i]), None)

    def refuse_if_empty(self, called: Called) -> None:
        i = self.empty()
        if i is not None:
            low, high = as_float(self.low[i]), as_float(self.high[i])
            raise PropertyError(f"input {called(i)} has lower bound {low} above upper bound {high}")

    def ends(self, count: int, called: Called) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
        """Of every input; one that is not bounded is refused by name."""
        for i in range(count):
            if i not in self.low or i not in self.high:
                raise PropertyError(f"input {called(i)} has no {'upper' if i in self.low else 'lower'} bound")
        return tuple(self.low[i] for i in range(count)), tuple(self.high[i] for i in range(count))


def _short(bound: Fraction, above: bool) -> Fraction:
    """The same where it is short, else a number of BITS bits beyond it, so that rounds do not make bounds longer."""
    if bound.numerator.bit_length() + bound.denominator.bit_length() <= 2 * BITS:
        return bound
    unit = Fraction(2) ** (bound.numerator.bit_length() - bound.denominator.bit_length() - BITS)
    return (math.ceil if above else math.floor)(bound / unit) * unit
