"""A network cell by cell, as the checker that is proven in verified/ reads it: inputs, sums, relus, maxima, kinked
functions.

Linear nodes between two nonlinear nodes are a region. Each cell of a region is multiplied out into products of numbers
and a cell that the region reads, by running the operators' own specifications on formal sums. `roundings` is the R of
specgrad.proof.exact.rounding_counts; `shared` and `once` say which values are computed once
(docs/reference/executions.md).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.scalar import Array

from ..base.rationals import ReplayError
from ..exact.rounding_counts import (
    CELLWISE,
    KERNELS,
    RoundingCount,
    cells_per_argument,
    count_after_node,
    fan_out,
    feeds_later_sum,
    is_layout,
    is_linear,
    quotient_roundings,
    recomputed_per_reader,
    region_input,
    roundings,
)
from ..exact.rounding_counts import CONSTANT as FIXED
from .piecewise_linear import PiecewiseLinear, piecewise_linear

Dyadic = tuple[int, int]  # m * 2**e
MAX_EXPONENT = 127  # float32 holds 2**127
DYADIC_EXPONENT = -120  # numbers that are none over a power of two are rounded to this many places
REORDERING = {"reshape", "permute", "slice"}  # every cell is a cell of the argument


def dyadic(x: Fraction) -> Dyadic:
    """Return (m, e) with x = m * 2**e, m odd or 0; raise ReplayError if x is not dyadic.

    >>> dyadic(Fraction(3, 4)), dyadic(Fraction(40)), dyadic(Fraction(0))
    ((3, -2), (5, 3), (0, 0))
    """
    if x.denominator & (x.denominator - 1):
        raise ReplayError(f"the proven checker knows whole numbers over powers of two; got {x}")
    if not x:
        return 0, 0
    up = (x.numerator & -x.numerator).bit_length() - 1
    return x.numerator >> up, up - (x.denominator.bit_length() - 1)


def to_dyadic(x: Fraction) -> tuple[Dyadic, bool]:
    """Return (m, e) with m * 2**e equal to `x`, or within 2**DYADIC_EXPONENT of it if x is not dyadic; and whether it
    was rounded.

    >>> to_dyadic(Fraction(3, 4)), to_dyadic(Fraction(1, 3))[1]
    (((3, -2), False), True)
    """
    if x.denominator & (x.denominator - 1):
        return dyadic(Fraction(round(x * 2**-DYADIC_EXPONENT), 2**-DYADIC_EXPONENT)), True
    return dyadic(x), False


class FormalSum:
    """A linear expression in cells, kept as it was built: `kind` says what `a` and `b` are.

    "add"      a + b, both FormalSum
    "mul"      a * b, a FormalSum times a Fraction
    "cell"     the cell with the number a
    "number"   the Fraction a
    "mark"     the FormalSum a; b says whether it is shared, that is a sum that is computed once
    """

    __slots__ = ("a", "b", "kind")

    def __init__(self, kind: str, a: Any, b: Any = None) -> None:
        self.kind, self.a, self.b = kind, a, b

    def __add__(self, other: Any) -> Any:
        """Return the sum with a FormalSum or a number."""
        if isinstance(other, FormalSum):
            return FormalSum("add", self, other)
        return self if other == 0 else FormalSum("add", self, FormalSum("number", Fraction(other)))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Any:
        """Return the product with a number."""
        return FormalSum("mul", self, _fraction_of(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        """Return the negated sum."""
        return self * -1

    def __sub__(self, other: Any) -> Any:
        """Return self - other."""
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        """Return other - self."""
        return self * -1 + other

    def __truediv__(self, other: Any) -> Any:
        """Return the quotient by a number."""
        return self * (1 / _divisor_of(other))

    def __rtruediv__(self, other: Any) -> Any:
        """Return the quotient of a number by a sum without cells; ReplayError for another."""
        return other / _divisor_of(self)

    def products(self) -> Iterator[tuple[Fraction, int, int | None, bool]]:
        """Yield (factor, e, cell or None, shared) per product, multiplied out.

        e: 2**e is at least the product of the factors, each made at least 1. shared: the product belongs to a sum
        that is computed once.

        >>> both = (FormalSum("cell", 7) * 3 + FormalSum("cell", 8)) * Fraction(1, 2) + 5
        >>> list(both.products())
        [(Fraction(3, 2), 2, 7, False), (Fraction(1, 2), 0, 8, False), (Fraction(5, 1), 3, None, False)]
        """
        todo: list[tuple[FormalSum, Fraction, int, bool | None]] = [(self, Fraction(1), 0, None)]
        while todo:
            at, factor, wide, mark = todo.pop()
            if at.kind == "add":
                todo += [(at.b, factor, wide, mark), (at.a, factor, wide, mark)]
            elif at.kind == "mul":
                todo.append((at.a, factor * at.b, wide + _bits_above(at.b), mark))
            elif at.kind == "mark":
                todo.append((at.a, factor, wide, at.b if mark is None else mark))
            elif at.kind == "cell":
                yield factor, wide, at.a, bool(mark)
            else:
                yield factor * at.a, wide + _bits_above(at.a), None, False


def _fraction_of(value: Any) -> Fraction:
    """Return a number, or the value of a formal sum without cells: specifications add to a zero of what they compute
    with.

    ReplayError if it has cells.
    """
    if not isinstance(value, FormalSum):
        return Fraction(value)
    products = list(value.products())
    if any(f and cell is not None for f, _, cell, _ in products):
        raise ReplayError("the proven checker has no products of two computed values")
    return sum((f for f, _, cell, _ in products if cell is None), Fraction(0))


def _divisor_of(value: Any) -> Fraction:
    """Return a number, or the value of a formal sum without cells; ReplayError if it has cells, or is 0."""
    if not (divisor := _fraction_of(value)):
        raise ReplayError("the proven checker has no quotients by 0")
    return divisor


def _bits_above(f: Fraction) -> int:
    """Return e >= 0 with abs(f) <= 2**e."""
    return max(0, (-(-abs(f.numerator) // f.denominator) - 1).bit_length()) if f else 0


@dataclass(frozen=True)
class Neuron:
    """One cell of the network; cells go by number, from 1 on.

    kind       "input" (has `ends`), "sum" (`products`), "relu", "max" (`sources`) or "bend" (`function`)
    products   (factor, cell or None, shared) of a sum
    roundings  R of a sum
    once       the value is computed once, however many read it
    """

    kind: str
    sources: tuple[int, ...] = ()
    ends: tuple[Fraction, Fraction] | None = None
    products: tuple[tuple[Dyadic, int | None, bool], ...] = ()
    blurred: bool = False  # some number is rounded
    roundings: int = 0
    spread: int = 0  # a power of two
    once: bool = False
    function: PiecewiseLinear | None = None


class CellNumbers:
    """Numbers of a network's cells, from 1 on, node by node in row-major order.

    numbers       of the cells of a node, in its shape, by its position; of nodes that have cells
    extra_nodes   linear nodes that a proof names: they have cells too
    """

    def __init__(self, graph: Graph, extra_nodes: Collection[int] = ()) -> None:
        self.graph, self.count = graph, 0
        self.numbers: dict[int, Array] = {}
        self.taps: dict[int, Array] = {}  # max_pool -> (taps, *shape): the tap is read inside
        self.windows: dict[int, tuple[int, ...]] = {}  # cell of a max_pool -> the cells that it reads
        self.celled = self._linear_nodes_with_cells(extra_nodes)
        for i, node in enumerate(graph.nodes):
            if i in self.celled or (node.op is not CONSTANT and not is_linear(node)):
                self._number(i, node)

    @property
    def output(self) -> Array:
        """Return the numbers of the output's cells, in its shape."""
        return self.cells_of(self.graph.output_positions[0])

    def _number(self, i: int, node: Node) -> None:
        """Number the cells of node `i`; ReplayError if a window reads nothing inside."""
        size = math.prod(node.shape)
        self.numbers[i] = np.arange(self.count + 1, self.count + size + 1, dtype=np.int64).reshape(node.shape)
        self.count += size
        if node.op.name == "max_pool":
            self._number_windows(i, node)

    def _number_windows(self, i: int, node: Node) -> None:
        """Keep which cells, and which taps inside, the windows of max_pool `i` read; ReplayError for one without."""
        read, window = self.cells_of(node.operands()[0]), node.params["window"]
        taps = list(window.taps())
        each = np.zeros((len(taps), *node.shape), dtype=np.int64)
        for t, tap in enumerate(taps):
            tap.write_outputs(each[t], tap.read_inputs(read))
        columns = each.reshape(len(taps), -1).T.tolist()
        if not all(map(any, columns)):
            raise ReplayError(f"a window of node {node.name} reads nothing inside")
        self.taps[i] = each > 0
        for cell, column in zip(self.numbers[i].ravel().tolist(), columns, strict=True):
            self.windows[cell] = tuple(c for c in column if c)

    def _linear_nodes_with_cells(self, extra_nodes: Collection[int]) -> set[int]:
        """Return the linear nodes whose own values are read: by nonlinear nodes, as the output, or by a proof
        (`extra_nodes`).
        """
        nodes = self.graph.nodes
        bent = [n for n in nodes if n.op not in (INPUT, CONSTANT) and not is_linear(n)]
        read = {a for n in bent for a in n.operands()} | {self.graph.output_positions[0], *extra_nodes}
        fixed = {i for i, n in enumerate(nodes) if n.op is CONSTANT}
        for i, n in enumerate(nodes):
            if is_linear(n) and fixed.issuperset(n.operands()):
                fixed.add(i)
        return {i for i in map(self._before_layout, read) if is_linear(nodes[i]) and i not in fixed}

    def _before_layout(self, i: int) -> int:
        """Return the position of the node whose cells layout node `i` has, in another order; `i` itself for others."""
        node = self.graph.nodes[i]
        return self._before_layout(node.operands()[0]) if node.op.name in REORDERING else i

    def cells_of(self, i: int) -> Array:
        """Return the cell numbers of node `i`, through layout; raise ReplayError if it has none."""
        node = self.graph.nodes[i]
        if i in self.numbers:
            return self.numbers[i]
        if node.op.name not in REORDERING:
            raise ReplayError(f"node {node.name} has no cells: it is a constant, or a part of a sum")
        return np.asarray(node.op.spec(self.cells_of(node.operands()[0]), **node.params))


class ScalarNetwork(CellNumbers):
    """All cells of a network on a box, in order, multiplied out.

    extra_nodes   linear nodes that a proof names: they have cells too
    unit          e: roundings are relative to 2**e
    low, high     the box, in the input's shape
    """

    def __init__(
        self, graph: Graph, low: Array, high: Array, extra_nodes: Collection[int] = (), unit: int = -24
    ) -> None:
        super().__init__(graph, extra_nodes)
        self.cells: list[Neuron] = []
        self._formal_sums: dict[int, Array] = {}
        self._rounding_counts: dict[int, RoundingCount] = {}
        self._folded: dict[int, int] = {}  # linear node -> e: what its region's constants fold to is at most 2**e
        self._divided: set[int] = set()  # linear nodes whose region divides by constants before them
        self._constant_values = {i: _exact_constant(a, graph.nodes[i].name) for i, a in graph.constants.items()}
        self._feeds_later_sum, self._recomputed, self._ends = (
            feeds_later_sum(graph),
            recomputed_per_reader(graph),
            (low, high),
        )
        self._unit = Fraction(2) ** unit
        for i, node in enumerate(graph.nodes):
            self._add_node(i, node)

    def _add_node(self, i: int, node: Node) -> None:
        """Add the cells of node `i`, or keep its formal sums if it is linear.

        ReplayError if the proven checker has no rule for it.
        """
        if node.op is INPUT:
            ends = [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(*map(np.ravel, self._ends), strict=True)]
            self._add_cells(i, [Neuron("input", ends=e) for e in ends])
        elif node.op is CONSTANT:
            pass
        elif node.kind != "real":
            raise ReplayError(f"the proven checker has no positions, as in node {node.name}")
        elif node.op.name == "relu":
            self._add_cells(i, [Neuron("relu", (c,)) for c in self._read_by(node)])
        elif node.op.name == "max_pool":
            self._add_cells(i, [Neuron("max", self.windows[c]) for c in self.numbers[i].ravel().tolist()])
        elif is_linear(node):
            self._add_linear(i, node)
        elif (f := piecewise_linear(node, self._unit)) is not None:
            self._add_cells(i, [Neuron("bend", (c,), function=f) for c in self._read_by(node)])
        else:
            raise ReplayError(f"the proven checker has no rule for node {node.name} ({node.op.name})")

    def _read_by(self, node: Node) -> list[int]:
        """Return the numbers of the cells that a node of one argument reads, in row-major order."""
        numbers: list[int] = self.cells_of(node.operands()[0]).ravel().tolist()
        return numbers

    def _add_cells(self, i: int, cells: Sequence[Neuron]) -> None:
        """Append the cells of node `i`, which is not linear, and keep formal sums that are these cells."""
        self.cells += cells
        numbers = self.numbers[i].ravel().tolist()
        self._formal_sums[i] = _object_array([FormalSum("cell", c) for c in numbers], self.graph.nodes[i].shape)

    def _add_linear(self, i: int, node: Node) -> None:
        """Keep the formal sums, roundings and constants of linear node `i`; add its cells if they are needed.

        ReplayError for a node of constants, and for a second division.
        """
        values = [self._argument_value(node, a) for a in node.args]
        shapes = [np.shape(v) for v in values]
        fixed = [isinstance(a, NumberArg) or a in self._constant_values for a in node.args]
        if all(fixed):
            if not is_layout(node):
                raise ReplayError(f"node {node.name} computes with constants; fold them first")
            self._constant_values[i] = np.asarray(node.op.spec(*values, **node.params))
            return
        form = np.asarray(node.op.spec(*values, **node.params))
        apart = i in self._recomputed
        if node.op.name in KERNELS or fan_out(node, math.prod(node.shape)) > 1 or apart:
            mark = node.op.name in KERNELS and not apart  # computed once: so is what it reads; else by each reader
            form = _object_array(
                [FormalSum("mark", v, mark) if isinstance(v, FormalSum) else v for v in form.flat], node.shape
            )
        self._formal_sums[i] = form
        self._rounding_counts[i] = self._rounding_count(i, node, shapes, fixed)
        self._check_folded_constants(i, node, values, shapes, fixed)
        divided = any(a in self._divided for a in node.operands())
        if node.op.name == "div" and divided:
            raise ReplayError(f"node {node.name} divides again: the proven checker has no combined divisors")
        if node.op.name == "div" or divided:
            self._divided.add(i)
        if i in self.celled:
            self._add_sums(i, node, form)

    def _check_folded_constants(
        self, i: int, node: Node, values: Sequence[Any], shapes: Sequence[Any], fixed: Sequence[bool]
    ) -> None:
        """Raise ReplayError if constants overflow when a runtime folds them, whether or not some cell reads them.

        `values` are the arguments of node `i`, `fixed` says which are constant; the bits that it takes are kept in
        `_folded`. `shapes` are those of the arguments.

        A weight that meets only padding stands in no cell's sum; but runtimes multiply padding, and 0 times infinity is
        NaN. Partial results are bounded as in replay, without what varies.
        """
        bits = max((self._folded.get(a, 0) for a in node.operands()), default=0) + roundings(node, shapes).bit_length()
        for k, value in enumerate(values):
            if fixed[k]:
                some = [Fraction(v) for v in np.ravel(np.asarray(value, dtype=object)) if v]
                under = node.op.name == "div" and k == 1
                bits += max((max(_bits_above(v), _bits_above(1 / v) if under else 0) for v in some), default=0)
        if "divisor" in node.params and not isinstance(node.params["divisor"], str):
            bits += _bits_above(1 / Fraction(node.params["divisor"]))
        if bits >= MAX_EXPONENT:
            raise ReplayError(f"constants folded into node {node.name} may overflow in float32")
        self._folded[i] = bits

    def _add_sums(self, i: int, node: Node, form: Array) -> None:
        """Append one "sum" cell per formal sum of `form`, the values of node i."""
        once = node.op.name in KERNELS and i not in self._feeds_later_sum | self._recomputed
        for v in form.flat:
            given = v if isinstance(v, FormalSum) else FormalSum("number", Fraction(v))
            products, wide, blurred = [], 0, False
            for number, bits, source, shared in given.products():
                (m, e), changed = to_dyadic(number)
                products.append(((m, e), source, shared))
                wide, blurred = max(wide, bits - max(0, abs(m).bit_length() - 1 + e)), blurred or changed
            sums = tuple(products), blurred, self._rounding_counts[i].total, wide, once
            self.cells.append(Neuron("sum", (), None, *sums))

    def _argument_value(self, node: Node, arg: int | NumberArg) -> Any:
        """Return the argument `arg`: constants and numbers as fractions, others as formal sums.

        ReplayError for a number that float32 lacks.
        """
        if not isinstance(arg, NumberArg):
            return self._constant_values[arg] if arg in self._constant_values else self._formal_sums[arg]
        meant, near = Fraction(arg.value), float(np.float32(float(arg.value)))
        if not math.isfinite(near) or Fraction(near) != meant:
            raise ReplayError(f"node {node.name} has a number that float32 lacks")
        return meant

    def _rounding_count(
        self, i: int, node: Node, shapes: Sequence[tuple[int, ...]], fixed: Sequence[bool]
    ) -> RoundingCount:
        """Return how many roundings a term meets up to linear node `i`, counted as in specgrad.proof.exact.replay.

        ReplayError if it has no rule. `shapes` are those of its arguments, `fixed` says which are constant.
        """
        varying = {k for k, known in enumerate(fixed) if not known}
        groups = [g for g in node.op.linear_groups(len(fixed)) if varying <= set(g)]
        if not groups or node.op.index_args:
            raise ReplayError(f"the proven checker has no rule for node {node.name} ({node.op.name})")
        by_position: dict[int, RoundingCount] = {}
        for k in groups[0]:
            arg = node.args[k]
            key = -1 - k if isinstance(arg, NumberArg) else arg
            arg_count = FIXED if fixed[k] else self._rounding_counts.get(key) or region_input(key, math.prod(shapes[k]))
            by_position[key] = arg_count
        size, count = math.prod(node.shape), roundings(node, shapes)
        spread, alone = cells_per_argument(node, size), quotient_roundings(node, count)
        return count_after_node(by_position, count, node.op.name in CELLWISE, i, size, spread, alone)


def _object_array(values: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Return `values` as an object array of the given shape."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def _exact_constant(array: Array, name: str) -> Array:
    """Return `array`, the float32 constant `name`, as fractions; raise ReplayError for other formats and infinities."""
    if array.dtype != np.float32 or not np.isfinite(array).all():
        raise ReplayError(f"constant {name} is not made of finite float32 numbers")
    return _object_array([Fraction(v) for v in array.ravel().tolist()], array.shape)
