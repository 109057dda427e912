"""What each cell of a linear node is: a formal sum of products, read off the operator's own specification.

The specification runs over arrays of `Sum`: symbols with + - * /, that remember every term and cancel nothing. A term
is a sign and factors; a factor is a cell of an argument, or a number, or one over it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.op import run_spec


class Cell(NamedTuple):
    """One cell of a node's value."""

    node: int
    index: int


class Literal(NamedTuple):
    """A number of the graph that is no array: what a format makes of it is the runtime's affair."""

    value: Fraction


class Factor(NamedTuple):
    of: Cell | Literal
    divides: bool = False


class Term(NamedTuple):
    sign: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Sum:
    """A formal sum of terms: the scalar that specifications are run on."""

    terms: tuple[Term, ...]

    def __add__(self, other: Any) -> Sum:
        return Sum(self.terms + as_sum(other).terms)

    __radd__ = __add__

    def __neg__(self) -> Sum:
        return Sum(tuple(Term(-t.sign, t.factors) for t in self.terms))

    def __sub__(self, other: Any) -> Sum:
        return self + -as_sum(other)

    def __mul__(self, other: Any) -> Sum:
        return Sum(tuple(Term(a.sign * b.sign, a.factors + b.factors) for a in self.terms for b in as_sum(other).terms))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Sum:
        (d,) = as_sum(other).terms  # a quotient by a sum is no sum of terms
        inverse = tuple(Factor(f.of, not f.divides) for f in d.factors)
        return Sum(tuple(Term(t.sign * d.sign, t.factors + inverse) for t in self.terms))


def as_sum(x: Any) -> Sum:
    """Numbers are terms of one literal; 0 is no term and 1 has no factor."""
    if isinstance(x, Sum):
        return x
    value = Fraction(int(x) if isinstance(x, np.integer) else x)
    if value == 0:
        return Sum(())
    literal = () if abs(value) == 1 else (Factor(Literal(abs(value))),)
    return Sum((Term(1 if value > 0 else -1, literal),))


LINEAR = {
    "add", "sub", "neg", "mul", "div", "conv", "conv_transpose", "contract", "sum", "avg_pool", "avg_spread",
    "reshape", "permute", "slice", "pad", "concat", "broadcast",
}  # fmt: skip
ONCE = {"conv", "conv_transpose", "contract", "conv_weight"}  # computed once, however many read the result


def varies(graph: Graph, known: Collection[int] = ()) -> list[bool]:
    """Whether a node depends on an input of the graph that is not `known` beforehand."""
    found: list[bool] = []
    for i, node in enumerate(graph.nodes):
        found.append((node.op is INPUT and i not in known) or any(found[a] for a in node.operands()))
    return found


def is_linear(node: Node, varying: Sequence[bool]) -> bool:
    """Linear, or affine, in what varies; constants may stand anywhere."""
    if node.op.name not in LINEAR:
        return False
    moving = [k for k, a in enumerate(node.args) if isinstance(a, int) and varying[a]]
    if node.op.name == "div" and 1 in moving:
        return False
    return not moving or any(set(moving) <= set(g) for g in node.op.linear_groups(len(node.args)))


def formula(graph: Graph, node: Node) -> list[tuple[Term, ...]]:
    """The terms of every cell, flat."""
    arrays = [_symbols(graph, a) for a in node.args]
    cells = np.asarray(run_spec(node.op, arrays, node.params), dtype=object)
    return [as_sum(c).terms for c in cells.flat]


def _symbols(graph: Graph, arg: int | NumberArg) -> Any:
    if isinstance(arg, NumberArg):
        cells = np.empty((), dtype=object)
        cells[()] = as_sum(Fraction(arg.value))
        return cells
    shape = graph.nodes[arg].shape
    found = np.empty(shape, dtype=object)
    for i, where in enumerate(np.ndindex(shape)):
        found[where] = Sum((Term(1, (Factor(Cell(arg, i)),)),))
    return found


def formulas(graph: Graph, varying: Sequence[bool]) -> dict[int, list[tuple[Term, ...]]]:
    """Of every linear node, by position."""
    return {
        i: formula(graph, node)
        for i, node in enumerate(graph.nodes)
        if node.op not in (INPUT, CONSTANT) and is_linear(node, varying)
    }
