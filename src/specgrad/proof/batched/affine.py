"""Linear nodes y = J x + b in fixed point, as objectives on their way back meet them.

The weights of J are rounded to integers J' over 2**frac_bits, and so is b to b'. What that changes,
abs(J - J') abs(x) + abs(b - b'), is an error of the node, found here over rationals; whatever is left is exact. J' is
the operator's own adjoint rule, run on integers: as one matrix where that is small, else on the rows themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import INPUT, Graph, Node
from specgrad.op import run_spec
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import COLUMN_BITS, ReplayError, cells, rational, rationals, round_scaled, zeros
from ..exact.replay import absolute, adjoint

FACTORS = ("contract", "conv", "conv_transpose", "mul")  # linear in each factor: weights are scaled by a power of two
UNSCALED = ("add", "sub", "neg", "reshape", "permute", "slice", "pad", "concat", "broadcast", "sum")  # of 0, 1 and -1
DIVIDED = ("avg_pool", "div")  # each result is a sum of cells times a number of its own
WINDOWED = ("conv", "conv_transpose")  # their specifications take any leading axes
MATRIX, WINDOWED_MATRIX = 1 << 22, 1 << 16  # cells of a matrix that is kept
SPARSE = 16  # of so many cells of a matrix at most one is not 0: then the others are left out


class Affine:
    """One linear node with its constant arguments at their values; `back` maps rows of y to rows of the varying
    arguments.

    shapes      of all arguments
    varying     which arguments vary
    sizes       per varying argument: how many cells it has
    frac_bits   of J', so that coefficients get as many more
    offset      b, over rationals
    off         abs(J - J') times the largest absolute values of the arguments, over rationals
    """

    def __init__(self, node: Node, fixed: Sequence[Array], varying: Sequence[int], sizes: Sequence[Array]) -> None:
        """Prepare `back`.

        `fixed` are all arguments (zeros for varying ones), `sizes` bounds of abs of each varying one. UnsupportedError
        for an operator that leaves cannot be replayed through.
        """
        self.node, self.varying = node, list(varying)
        self.shapes = [f.shape for f in fixed]
        self.size, self.sizes = math.prod(node.shape), [math.prod(self.shapes[k]) for k in varying]
        self.offset = cells(run_spec(node.op, fixed, node.params))
        self.frac_bits, self.off, self.back = 0, zeros(node.shape), self._moved_coefficients
        if node.op.name in FACTORS:
            self._scale(fixed, sizes)
        elif node.op.name in DIVIDED:
            self._prepare_average(fixed, sizes)
        elif node.op.name not in UNSCALED:
            raise UnsupportedError(node.op.name, f"leaves cannot be replayed through node {node.name}")
        elif not self._is_moved():
            self._prepare_adjoint([np.zeros(s, dtype=np.int64) for s in self.shapes])

    # --- weights --------------------------------------------------------------------------------------------------

    def _scale(self, fixed: Sequence[Array], sizes: Sequence[Array]) -> None:
        """Round weights to integers over 2**frac_bits, with as many bits as a column's sum allows.

        `fixed` are the exact constant arguments, `sizes` bounds of absolute values of the varying ones.
        """
        largest = max(abs(v) for f in fixed for v in f.flat)
        self.frac_bits = COLUMN_BITS - 1 - int(largest).bit_length()
        scaled = [round_scaled(f, self.frac_bits) for f in fixed]
        while (column := self._largest_column_sum(scaled)) > 1 << COLUMN_BITS:
            self.frac_bits -= max(1, (column - 1).bit_length() - COLUMN_BITS)
            scaled = [round_scaled(f, self.frac_bits) for f in fixed]
        rounded = [rationals(s) * rational(2) ** -self.frac_bits for s in scaled]
        given = [cells(np.abs(f - r)) for f, r in zip(fixed, rounded, strict=True)]
        for k, size in zip(self.varying, sizes, strict=True):
            given[k] = size
        self.off = cells(absolute(self.node.op, given, self.node.params) - self._constant_term(given))
        self._prepare_adjoint(scaled)

    def _constant_term(self, given: Sequence[Array]) -> Array:
        """Return what the constant arguments among `given` add to y, which is no part of J."""
        only = [zeros(g.shape) if k in self.varying else g for k, g in enumerate(given)]
        return cells(run_spec(self.node.op, only, self.node.params))

    def _largest_column_sum(self, scaled: Sequence[Array]) -> int:
        """Return the largest sum of absolute weights with which one cell of an argument is read.

        ReplayError if it may not fit 64 bits. `scaled` are the weights as integers.
        """
        if max(int(np.abs(s).max(initial=0)) for s in scaled) * self.size >= 1 << 62:
            raise ReplayError(f"node {self.node.name} has too many cells for whole numbers of 64 bits")
        sums = self._adjoint([np.abs(s) for s in scaled], np.ones(self.node.shape, dtype=np.int64))
        return max(int(s.max(initial=0)) for s in sums)

    def _prepare_average(self, fixed: Sequence[Array], sizes: Sequence[Array]) -> None:
        """Prepare y = share * (the sum of what it reads), with a share per cell of y, which is rounded.

        UnsupportedError unless only what is divided varies, cell by cell. `fixed` are the exact constant arguments,
        `sizes` bounds of absolute values of the varying ones.
        """
        if self.varying != [0] or (self.node.op.name == "div" and self.shapes[0] != self.node.shape):
            raise UnsupportedError(self.node.op.name, f"leaves cannot be replayed through node {self.node.name}")
        ones = zeros(self.shapes[0]) + rational(1)
        count = cells(self._sum_read(ones))
        whole = cells(run_spec(self.node.op, [ones, *fixed[1:]], self.node.params))
        share = cells(whole / np.where(count == 0, rational(1), count))
        self.frac_bits = COLUMN_BITS - 1 - int(max(self._spread_back(cells(np.abs(share))[None]).flat)).bit_length()
        weight = round_scaled(share, self.frac_bits)
        assert int(self._spread_back(np.asarray(np.abs(weight))[None]).max()) <= 1 << COLUMN_BITS
        changed = np.abs(share - rationals(weight) * rational(2) ** -self.frac_bits)
        self.off = cells(changed * self._sum_read(sizes[0]))
        self.back = lambda a: (self._spread_back(a.reshape(-1, *self.node.shape) * weight).reshape(len(a), -1),)

    def _sum_read(self, x: Array) -> Array:
        """Return the sum of the cells of x that every cell of y reads."""
        if self.node.op.name == "div":
            return x
        window: Window = self.node.params["window"]
        y = zeros(self.node.shape)
        for tap in window.taps():
            tap.add_to_outputs(y, tap.read_inputs(x))
        return y

    def _spread_back(self, y: Array) -> Array:
        """Return the adjoint of `_sum_read` on rows (rows, *shape of y): each cell added to those it is read from."""
        if self.node.op.name == "div":
            return y
        window: Window = self.node.params["window"]
        shape = (len(y), *self.shapes[0])
        x = zeros(shape) if y.dtype == object else np.zeros(shape, dtype=np.int64)
        for tap in window.taps():
            tap.add_to_inputs(x, tap.read_outputs(y))
        return x

    # --- the way back ---------------------------------------------------------------------------------------------

    def _moved_coefficients(self, a: Array) -> Sequence[Array]:
        """Return coefficients `a` (rows, cells) after layout, add, sub and neg: cells are moved, or change their
        sign.
        """
        if self.node.op.name == "permute":
            axes = np.argsort([0, *(1 + p for p in self.node.params["order"])])
            return (a.reshape(-1, *self.node.shape).transpose(axes).reshape(len(a), -1),)
        flipped = {"neg": (0,), "sub": (1,)}.get(self.node.op.name, ())
        return [-a if k in flipped else a for k in self.varying]

    def _is_moved(self) -> bool:
        """Return whether moving cells and changing signs is the whole adjoint: no argument is broadcast, cut or
        padded.
        """
        if self.node.op.name in ("add", "sub"):
            return all(self.shapes[k] == self.node.shape for k in self.varying)
        return self.node.op.name in ("neg", "reshape", "permute")

    def _prepare_adjoint(self, scaled: Sequence[Array]) -> None:
        """Set `back` to the adjoint at the integer weights `scaled`: cell by cell, as a matrix, on all rows at once, or
        row by row.
        """
        name, cells = self.node.op.name, self.size * sum(self.sizes)
        if name == "mul" and all(s in (self.node.shape, ()) for s in self.shapes):
            weight = scaled[1 - self.varying[0]].ravel()
            self.back = lambda a: (a * weight,)
        elif cells <= (WINDOWED_MATRIX if name in WINDOWED else MATRIX):
            matrices = self._adjoint_by_rows(scaled, np.eye(self.size, dtype=np.int64))
            products = [_multiply_by(m) for m in matrices]
            self.back = lambda a: [product(a) for product in products]
        elif name in WINDOWED and self.varying == [0]:
            self.back = lambda a: [
                x.reshape(len(a), -1) for x in self._adjoint(scaled, a.reshape(-1, *self.node.shape))
            ]
        else:
            self.back = lambda a: self._adjoint_by_rows(scaled, a)

    def _adjoint_by_rows(self, scaled: Sequence[Array], a: Array) -> Sequence[Array]:
        """Return the adjoint of every row of `a`, at integer weights `scaled`: per varying argument (rows, its
        cells).
        """
        each = [self._adjoint(scaled, row.reshape(self.node.shape)) for row in a]
        return [np.array([e[k].ravel() for e in each]).reshape(len(a), n) for k, n in enumerate(self.sizes)]

    def _adjoint(self, scaled: Sequence[Array], y: Array) -> Sequence[Array]:
        """Return the cotangents of the varying arguments for y, at integer weights `scaled`, in int64."""
        return on_int64(self._adjoint_graph, [*scaled, y])

    @cached_property
    def _adjoint_graph(self) -> Graph:
        """Return the adjoint of the node's operator in its varying arguments as a graph."""
        return adjoint(self.node.op, self.shapes, self.node.params, self.varying)


def _multiply_by(matrix: Array) -> Callable[[Array], Array]:
    """Return the function a -> a @ matrix; a sparse matrix is multiplied by its nonzero cells alone.

    >>> matrix = np.zeros((3, 20), dtype=np.int64)
    >>> matrix[1, 4], matrix[2, 4], matrix[0, 19] = 5, 7, 1
    >>> _multiply_by(matrix)(np.array([[2, 1, 10]]))[0, [3, 4, 19]].tolist()
    [0, 75, 2]
    """
    columns, rows = np.nonzero(matrix.T)
    if not len(rows) or len(rows) * SPARSE > matrix.size:
        return lambda a: a @ matrix
    weights, (read, starts) = matrix[rows, columns], np.unique(columns, return_index=True)

    def product(a: Array) -> Array:
        """Return a @ matrix by sums over nonzero cells."""
        x = np.zeros((len(a), matrix.shape[1]), dtype=a.dtype)
        x[:, read] = np.add.reduceat(a[:, rows] * weights, starts, axis=1)
        return x

    return product


def on_int64(graph: Graph, args: Sequence[Array]) -> list[Array]:
    """Return a graph's outputs by its operators' specifications on int64 arrays `args`; what overflows wraps around.

    UnsupportedError if a node's result has another dtype, or a number stands among its arguments. (Called in the usual
    way, graphs make exact fractions of whole numbers.)
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


def frac_bits_for(total: Any, most: int) -> int:
    """Return a number of binary places with which numbers that add up to `total`, a rational >= 0, stay below 2**most.

    It may be one less than the largest such number; for a total of 0 it is `most`.

    >>> frac_bits_for(rational(5, 2), 36), frac_bits_for(rational(1, 1000), 36)
    (34, 44)
    """
    p, q = int(total.p), int(total.q)
    return most - (p.bit_length() - q.bit_length() + 1) if p else most
