"""Merge input cells that a property declares equal, X_0 == X_5, into one variable of the box.

That is how two networks read one input: each has its own tensor, and the query says that they are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from .vnnlib1 import LinearExpression, Parsed, combine


def merge_equal_cells(parsed: Parsed) -> tuple[Parsed, tuple[int, ...]]:
    """Return the property over merged variables, and the variable index of every input cell.

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
    """Return (i, j) if the inequality is X_i <= X_j; else None."""
    if len(atom.terms) != 2 or atom.constant or atom.strict or any(n[0] != "X" for n in atom.terms):
        return None
    (a, c), (b, d) = atom.terms.items()
    if c != -d:
        return None
    return (int(a[2:]), int(b[2:])) if c > 0 else (int(b[2:]), int(a[2:]))


def _root(parents: list[int], i: int) -> int:
    """Return the representative of i in a union-find forest, with path compression."""
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


def _rename_variables(atoms: Sequence[LinearExpression], names: dict[str, str]) -> list[LinearExpression]:
    """Return the inequalities with variables renamed; coefficients of equal names are added, zeros dropped."""
    return [
        replace(
            combine(*((1, LinearExpression({names.get(n, n): c}, Fraction(0))) for n, c in atom.terms.items())),
            constant=atom.constant,
            strict=atom.strict,
        )
        for atom in atoms
    ]
