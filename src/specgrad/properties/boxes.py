"""The box of a property's input variables: which cells are one variable, and the bounds of each.

Cells that a property declares equal, X_0 == X_5, are one variable. That is how two networks read one input: each has
its own tensor, and the query says that they are equal.

Bounds follow from inequalities of one input and from sums of several (bound propagation): from c.x <= k and bounds of
the others follows c_i*x_i <= k - sum over j != i of the least c_j*x_j. This is repeated until nothing changes, at most
MAX_ROUNDS times. The sums stay rows of the property: the box need not be the smallest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..scalar import nearest_float
from .property import PropertyError
from .vnnlib1 import LinearExpression, Parsed, combine


def merge_equal_cells(parsed: Parsed) -> tuple[Parsed, tuple[int, ...]]:
    """Return the property `parsed` over merged variables, of which assertions say that they are equal, and the variable
    index of every input cell.

    >>> from .vnnlib1 import parse
    >>> text = "".join(f"(declare-const {n} Real)" for n in ("X_0", "X_1", "X_2", "Y_0"))
    >>> text += "(assert (and (<= X_0 X_2) (>= X_0 X_2))) (assert (<= (+ X_0 X_1 X_2) 1))"
    >>> same, variables = merge_equal_cells(parse(text))
    >>> variables, [atom.terms for atom in same.common]
    ((0, 1, 0), [{'X_0': Fraction(2, 1), 'X_1': Fraction(1, 1)}])
    """
    count = len(parsed.inputs)
    below = {pair for atom in parsed.common if (pair := _ordered_pair(atom)) is not None}
    equal = {pair for pair in below if pair[::-1] in below}
    if not equal:
        return parsed, tuple(range(count))
    parents = list(range(count))
    for i, j in equal:
        a, b = _root(parents, i), _root(parents, j)
        parents[max(a, b)] = min(a, b)
    roots = [_root(parents, i) for i in range(count)]
    number = {root: k for k, root in enumerate(sorted(set(roots)))}
    variables = tuple(number[root] for root in roots)
    names = {f"X_{i}": f"X_{v}" for i, v in enumerate(variables)}
    common = _rename_variables([atom for atom in parsed.common if _ordered_pair(atom) not in equal], names)
    alternatives = [tuple(_rename_variables(c, names)) for c in parsed.alternatives]
    return replace(parsed, common=tuple(common), alternatives=alternatives), variables


def _ordered_pair(atom: LinearExpression) -> tuple[int, int] | None:
    """Return (i, j) if the inequality `atom` is X_i <= X_j; else None."""
    if len(atom.terms) != 2 or atom.constant or atom.strict or any(n[0] != "X" for n in atom.terms):
        return None
    (a, c), (b, d) = atom.terms.items()
    if c != -d:
        return None
    return (int(a[2:]), int(b[2:])) if c > 0 else (int(b[2:]), int(a[2:]))


def _root(parents: list[int], i: int) -> int:
    """Return the representative of i in the union-find forest `parents`, whose paths it shortens on the way."""
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


def _rename_variables(atoms: Sequence[LinearExpression], names: dict[str, str]) -> list[LinearExpression]:
    """Return the inequalities `atoms` with variables renamed by `names`; coefficients of equal names are added, zeros
    dropped.
    """
    return [
        replace(
            combine(*((1, LinearExpression({names.get(n, n): c}, Fraction(0))) for n, c in atom.terms.items())),
            constant=atom.constant,
            strict=atom.strict,
        )
        for atom in atoms
    ]


MAX_ROUNDS = 16
DERIVED_BOUND_BITS = 128  # of a derived bound, which is rounded outward

VariableNamer = Callable[[int], str]


@dataclass(frozen=True, eq=False)  # equal if the same object: alternatives that add no bound share one
class VariableBounds:
    """Lower (`low`) and upper (`high`) bounds of input variables, by their index; a variable that is missing has no
    such bound.
    """

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
        """Tighten all variables of the inequality `atom` in place; return whether a bound changed."""
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
        """Return the least value of c * the variable `name` within the bounds; None if it is unbounded."""
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
        """Return (low, high) of variables 0..count-1; raise PropertyError that names, by `name_of`, one without a
        bound.
        """
        for i in range(count):
            if i not in self.low or i not in self.high:
                raise PropertyError(f"input {name_of(i)} has no {'upper' if i in self.low else 'lower'} bound")
        return tuple(self.low[i] for i in range(count)), tuple(self.high[i] for i in range(count))


def _shorten_outward(bound: Fraction, above: bool) -> Fraction:
    """Return `bound`, or if it is long one of DERIVED_BOUND_BITS bits outside it (`above` or below), so that numbers
    stay short.
    """
    if bound.numerator.bit_length() + bound.denominator.bit_length() <= 2 * DERIVED_BOUND_BITS:
        return bound
    unit = Fraction(2) ** (bound.numerator.bit_length() - bound.denominator.bit_length() - DERIVED_BOUND_BITS)
    return (math.ceil if above else math.floor)(bound / unit) * unit
