"""Linear nodes in whole numbers: y = J x + b, as objectives on their way back meet it.

The weights of J are rounded to whole numbers J' over 2**places, and so is b to b'. What that changes,
abs(J - J') abs(x) + abs(b - b'), is an error of the node, found here over rationals; whatever is left is exact. J' is
the operator's own adjoint rule, run on whole numbers: as one matrix where that is small, else row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..graph.graph import INPUT, Graph, Node
from ..op import run_spec
from ..scalar import Array
from .fixed import COLUMN, nearest
from .numbers import ReplayError, cells, rational, rationals, zeros
from .replay import absolute, adjoint

FACTORS = ("contract", "conv", "conv_transpose", "mul")  # linear in each factor: weights are scaled by a power of two
UNSCALED = ("add", "sub", "neg", "reshape", "permute", "slice", "pad", "concat", "broadcast", "sum")  # of 0, 1 and -1
DIVIDED = ("avg_pool", "div")  # their matrices are rounded, cell by cell
MATRIX = 1 << 22  # cells of a matrix that is kept
DIVIDED_MATRIX = 1 << 18  # of one that is made over rationals

Back = Callable[[Array], Sequence[Array]]  # (rows, cells of y) -> per varying argument (rows, its cells)


class Affine:
    """One linear node, its fixed arguments at their values, the others varying.

    shapes, fixed   of all arguments; zeros stand for those that vary
    varying         which arguments vary
    sizes           per varying argument: numbers not below the absolute values of its cells
    places          of J', so that the coefficients get as many more
    offset          b, over rationals
    off             abs(J - J') sizes, over rationals
    """

    def __init__(self, node: Node, fixed: Sequence[Array], varying: Sequence[int], sizes: Sequence[Array]) -> None:
        self.node, self.varying = node, list(varying)
        self.shapes = [f.shape for f in fixed]
        self.size, self.sizes = math.prod(node.shape), [math.prod(self.shapes[k]) for k in varying]
        self.offset = cells(run_spec(node.op, fixed, node.params))
        self.places, self.off, self.back = 0, zeros(node.shape), self._unscaled
        if node.op.name in FACTORS:
            self._scale(fixed, sizes)
        elif node.op.name in DIVIDED:
            self._divide(fixed, sizes)
        elif node.op.name not in UNSCALED:
            raise UnsupportedError(node.op.name, f"leaves cannot be replayed through node {node.name}")
        elif not self._is_moved():
            self._prepare([np.zeros(s, dtype=np.int64) for s in self.shapes])

    # --- weights --------------------------------------------------------------------------------------------------

    def _scale(self, fixed: Sequence[Array], sizes: Sequence[Array]) -> None:
        """Weights as whole numbers over 2**places, with as many places as a column's sum allows."""
        largest = max(abs(v) for f in fixed for v in f.flat)
        self.places = COLUMN - 1 - int(largest).bit_length()
        scaled = [nearest(f, self.places) for f in fixed]
        while (column := self._column(scaled)) > 1 << COLUMN:
            self.places -= max(1, (column - 1).bit_length() - COLUMN)
            scaled = [nearest(f, self.places) for f in fixed]
        rounded = [rationals(s) * rational(2) ** -self.places for s in scaled]
        given = [cells(np.abs(f - r)) for f, r in zip(fixed, rounded, strict=True)]
        for k, size in zip(self.varying, sizes, strict=True):
            given[k] = size
        self.off = cells(absolute(self.node.op, given, self.node.params) - self._bias(given))
        self._prepare(scaled)

    def _bias(self, given: Sequence[Array]) -> Array:
        """What a fixed term adds, which is no part of J."""
        only = [zeros(g.shape) if k in self.varying else g for k, g in enumerate(given)]
        return cells(run_spec(self.node.op, only, self.node.params))

    def _column(self, scaled: Sequence[Array]) -> int:
        """The largest sum of absolute weights with which one cell of an argument is read."""
        if max(int(np.abs(s).max(initial=0)) for s in scaled) * self.size >= 1 << 62:
            raise ReplayError(f"node {self.node.name} has too many cells for whole numbers of 64 bits")
        graph = adjoint(self.node.op, self.shapes, self.node.params, self.varying)
        sums = self._run(graph, [np.abs(s) for s in scaled], np.ones(self.size, dtype=np.int64))
        return max(int(s.max(initial=0)) for s in sums)

    def _divide(self, fixed: Sequence[Array], sizes: Sequence[Array]) -> None:
        """A matrix over rationals, rounded to whole numbers."""
        if self.size * sum(self.sizes) > DIVIDED_MATRIX:
            text = f"leaves cannot be replayed through node {self.node.name}: over {DIVIDED_MATRIX} cells in its matrix"
            raise UnsupportedError(self.node.op.name, text)
        (exact,) = self._rows(fixed, rational)
        self.places = COLUMN - 1 - int(np.abs(exact).sum(0).max()).bit_length()
        matrix = nearest(exact, self.places)
        changed = np.abs(exact - rationals(matrix) * rational(2) ** -self.places)
        self.off = cells(changed @ sizes[0].ravel()).reshape(self.node.shape)
        assert int(np.abs(matrix).sum(0).max()) <= 1 << COLUMN
        self.back = lambda a: (a @ matrix,)

    # --- the way back ---------------------------------------------------------------------------------------------

    def _unscaled(self, a: Array) -> Sequence[Array]:
        """Cells that are moved as they are, or with their sign changed."""
        if self.node.op.name == "permute":
            axes = np.argsort([0, *(1 + p for p in self.node.params["order"])])
            return (a.reshape(-1, *self.node.shape).transpose(axes).reshape(len(a), -1),)
        flipped = {"neg": (0,), "sub": (1,)}.get(self.node.op.name, ())
        return [-a if k in flipped else a for k in self.varying]

    def _is_moved(self) -> bool:
        if self.node.op.name in ("add", "sub"):
            return all(self.shapes[k] == self.node.shape for k in self.varying)
        return self.node.op.name in ("neg", "reshape", "permute")

    def _prepare(self, scaled: Sequence[Array]) -> None:
        """The adjoint rule at these weights: a matrix, or a graph that is run for one row after the other."""
        op, params, shape = self.node.op, self.node.params, self.node.shape
        if op.name == "mul" and all(s in (shape, ()) for s in self.shapes):
            weight = scaled[1 - self.varying[0]].ravel()
            self.back = lambda a: (a * weight,)
        elif self.size * sum(self.sizes) <= MATRIX:
            matrices = self._rows(scaled, np.int64)
            self.back = lambda a: [a @ m for m in matrices]
        else:
            graph = adjoint(op, self.shapes, params, self.varying)
            self.back = lambda a: self._one_by_one(graph, scaled, a)

    def _rows(self, fixed: Sequence[Array], number: Any) -> list[Array]:
        """J per varying argument, (cells of y, its cells): the adjoint of every unit vector."""
        graph = adjoint(self.node.op, self.shapes, self.node.params, self.varying)
        one = zeros((self.size,)) if number is rational else np.zeros(self.size, dtype=np.int64)
        rows = []
        for cell in range(self.size):
            unit = one.copy()
            unit[cell] = number(1)
            rows.append([r.ravel() for r in self._run(graph, fixed, unit)])
        return [np.array([row[k] for row in rows]).reshape(self.size, n) for k, n in enumerate(self.sizes)]

    def _one_by_one(self, graph: Graph, scaled: Sequence[Array], a: Array) -> Sequence[Array]:
        each = [self._run(graph, scaled, row) for row in a]
        return [np.array([e[k].ravel() for e in each]) for k in range(len(self.varying))]

    def _run(self, graph: Graph, fixed: Sequence[Array], row: Array) -> Sequence[Array]:
        args = [*fixed, row.reshape(self.node.shape)]
        return graph(*args) if row.dtype == object else on_int64(graph, args)


def on_int64(graph: Graph, args: Sequence[Array]) -> list[Array]:
    """A graph's outputs by its operators' specifications on arrays of int64, which nothing may turn into anything else.

    (Called in the usual way, graphs make exact fractions of whole numbers.)
    """
    values: list[Any] = []
    given = iter(args)
    for node in graph.nodes:
        if node.op is INPUT:
            values.append(next(given))
        elif any(not isinstance(a, int) for a in node.args):
            raise UnsupportedError(node.op.name, "a number stands in its adjoint, which is no array of whole numbers")
        else:
            values.append(np.asarray(node.op.spec(*(values[a] for a in node.operands()), **node.params)))
            if values[-1].dtype != np.int64:
                raise UnsupportedError(node.op.name, "its specification makes other numbers of whole ones")
    return [values[i] for i in graph.output_positions]


def places_for(total: Any, most: int) -> int:
    """How many binary places numbers may have that add up to `total`, a rational >= 0, to stay below 2**most.

    >>> places_for(rational(5, 2), 36), places_for(rational(1, 1000), 36)
    (34, 44)
    """
    p, q = int(total.p), int(total.q)
    return most - (p.bit_length() - q.bit_length() + 1) if p else most
