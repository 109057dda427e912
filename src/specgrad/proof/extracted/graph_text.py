"""Writes a graph, by attributes and weights, for the checker that is proven in verified/: it compiles the cells itself.

Nothing is multiplied out here, and no window is walked: that the program's cells have the operators' values is theorem
`compiled_values`. What has no word below is refused, and goes as cells (scalar_network.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fractions import Fraction

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.scalar import Array
from specgrad.window import Window
from specgrad.window.axis import Adaptive, Axis, Strided

from ..base.rationals import ReplayError
from ..exact.rounding_counts import is_layout, is_linear
from .piecewise_linear import piecewise_linear
from .scalar_network import dyadic

MANTISSA_BITS = 24  # of float32


class NotDescribedError(ReplayError):
    """Raised if a graph has a node that the proven compiler has no operator for; the text names it."""


class GraphText:
    """A graph as integers in the format of programs/check/main.ml: `words`.

    celled   linear nodes whose values are read as cells
    ends     both ends of the box, in the input's shape
    number   returns the place of a number m * 2**e in the question's list of numbers
    unit     unit roundoff

    NotDescribedError for an operator or a constant that the format has no word for.
    """

    def __init__(
        self,
        graph: Graph,
        celled: Collection[int],
        ends: tuple[Array, Array],
        number: Callable[[tuple[int, int]], int],
        unit: Fraction,
    ) -> None:
        self.graph, self._celled, self._ends, self._number, self._unit = graph, celled, ends, number, unit
        self._constants = dict(graph.constants)
        self._places: dict[int, int] = {}  # node -> its number in the text
        self._texts: list[list[int]] = []
        for i, node in enumerate(graph.nodes):
            self._describe(i, node)
        out = self._places[graph.output_positions[0]]
        self.words = [len(self._texts), *(word for text in self._texts for word in text), out]

    def _describe(self, i: int, node: Node) -> None:
        """Add node `i`, or keep its value if it is a layout of constants; NotDescribedError without words."""
        if node.op is CONSTANT:
            return None
        if node.op is INPUT:
            ends = [self._numbers(np.asarray(e)) for e in self._ends]
            if any(np.shape(e) != tuple(node.shape) for e in self._ends):
                raise NotDescribedError(f"input {node.name} has not the shape of the box")
            return self._add(i, node, [0, *ends[0], *ends[1]])
        values = [self._constant(a) for a in node.args]
        if is_linear(node) and all(v is not None for v in values):
            if not is_layout(node):
                raise NotDescribedError(f"node {node.name} computes with constants; fold them first")
            self._constants[i] = np.asarray(node.op.spec(*values, **node.params))
            return None
        word = WORDS.get(node.op.name)
        if word is not None:
            return self._add(i, node, word(self, node, values))
        f = None if node.kind != "real" else piecewise_linear(node, self._unit)
        if f is None:
            raise NotDescribedError(f"the proven compiler has no operator for node {node.name} ({node.op.name})")
        head = [6, self._read(node, 0), *map(self._fraction, (f.start, f.rise, f.relative, f.absolute)), len(f.turns)]
        return self._add(i, node, [*head, *(self._fraction(x) for turn in f.turns for x in turn)])

    def _add(self, i: int, node: Node, words: Sequence[int]) -> None:
        """Add a node's shape, whether it is celled, and its operator's words."""
        self._places[i] = len(self._texts)
        self._texts.append([*_listed(node.shape), int(i in self._celled), *words])

    def _constant(self, arg: int | NumberArg) -> Array | None:
        """Return the value of a constant argument, None for one that is computed.

        NotDescribedError for a number that float32 lacks.
        """
        if not isinstance(arg, NumberArg):
            return self._constants.get(arg)
        near = np.float32(float(arg.value))
        if not np.isfinite(near) or Fraction(float(near)) != Fraction(arg.value):
            raise NotDescribedError(f"{arg.value} is no float32 number")
        return np.asarray(near)

    def _read(self, node: Node, k: int) -> int:
        """Return the number of the node that argument `k` of `node` is; NotDescribedError for a constant."""
        arg = node.args[k]
        if isinstance(arg, NumberArg) or arg not in self._places:
            raise NotDescribedError(f"node {node.name} ({node.op.name}) reads a constant where it should vary")
        return self._places[arg]

    def _numbers(self, array: Array) -> list[int]:
        """Return the places of all numbers of a float32 array, in row-major order.

        NotDescribedError for other formats and infinities.
        """
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise NotDescribedError("a constant is not made of finite float32 numbers")
        fraction, exponent = np.frexp(array.astype(np.float64).ravel())
        mantissa = (fraction * 2**MANTISSA_BITS).astype(np.int64)
        low = np.where(mantissa == 0, 1, mantissa & -mantissa)
        exponent = np.where(mantissa == 0, 0, exponent - MANTISSA_BITS + np.log2(low).astype(np.int64))
        return [self._number(pair) for pair in zip((mantissa // low).tolist(), exponent.tolist(), strict=True)]

    def _fraction(self, x: Fraction) -> int:
        """Return the place of a number; NotDescribedError if it is not over a power of two."""
        try:
            return self._number(dyadic(x))
        except ReplayError as error:
            raise NotDescribedError(str(error)) from None

    def _filled(self, value: Array, node: Node) -> list[int]:
        """Return the places of a constant in the shape of a node."""
        return self._numbers(np.broadcast_to(np.asarray(value), node.shape))

    # --- operators ------------------------------------------------------------------------------------------------

    def _conv(self, node: Node, values: Sequence[Array | None]) -> list[int]:
        """Return the words of conv or conv_transpose, whose window is that of the conv of which it is the adjoint.

        NotDescribedError for weights that are computed.
        """
        transposed, weights = node.op.name == "conv_transpose", values[1]
        x, window = self._shape(node, 0), node.params["window"]
        sizes = (node.shape, x) if transposed else (x, node.shape)
        if weights is None or window.size != sizes[0][2:] or window.out != sizes[1][2:]:
            raise NotDescribedError(f"node {node.name} is no {node.op.name} with constant weights")
        bias = [0] if len(values) < 3 else [1, *self._bias(node, values[2])]
        head = [2 if transposed else 1, x[0], node.params["groups"], sizes[0][1], sizes[1][1]]
        return [*head, *self._axes(window.axes), *self._numbers(np.asarray(weights)), *bias, self._read(node, 0)]

    def _bias(self, node: Node, bias: Array | None) -> list[int]:
        """Return the places of a bias; NotDescribedError for one that is computed."""
        if bias is None:
            raise NotDescribedError(f"node {node.name} has a bias that is computed")
        return self._numbers(np.asarray(bias))

    def _shape(self, node: Node, k: int) -> tuple[int, ...]:
        """Return the shape of argument `k` of `node`."""
        arg = node.args[k]
        return () if isinstance(arg, NumberArg) else tuple(self.graph.nodes[arg].shape)

    def _axes(self, axes: Sequence[Axis], lead: Sequence[int] = ()) -> list[int]:
        """Return the words of axes, after those that each cell reads at its own place; NotDescribedError for others."""
        words: list[int] = [len(lead) + len(axes)]
        for n in lead:
            words += [0, n, 1, 1, 1, 0, 0, n]
        for a in axes:
            if isinstance(a, Strided):
                words += [0, a.size, a.kernel, a.stride, a.dilation, a.lo, a.hi, a.out]
            elif isinstance(a, Adaptive):
                words += [1, a.size, a.out]
            else:
                raise NotDescribedError(f"the proven compiler has no axes as {a}")
        return words

    def _pool(self, node: Node, values: Sequence[Array | None]) -> list[int]:
        """Return the words of avg_pool or max_pool."""
        window: Window = node.params["window"]
        axes = self._axes(window.axes, node.shape[: len(node.shape) - window.rank])
        if node.op.name == "max_pool":
            return [4, *axes, self._read(node, 0)]
        divisor = node.params["divisor"]
        kinds = {"padded": [0], "inside": [1]}
        words = kinds[divisor] if isinstance(divisor, str) else [2, self._fraction(Fraction(divisor))]
        return [3, *axes, *words, self._read(node, 0)]

    def _contract(self, node: Node, values: Sequence[Array | None]) -> list[int]:
        """Return the words of a contraction with a constant; NotDescribedError for any other."""
        left, out = node.params["spec"].replace(" ", "").split("->")
        both = left.split(",")
        if len(both) != 2 or (values[0] is None) == (values[1] is None):
            raise NotDescribedError(f"node {node.name} is no contraction with one constant")
        k = 0 if values[0] is None else 1
        weights = np.asarray(values[1 - k])
        extents = dict(zip(both[k], self._shape(node, k), strict=True))
        extents |= dict(zip(both[1 - k], weights.shape, strict=True))
        letters = [c for c in dict.fromkeys(left.replace(",", "")) if c not in out]
        every = [*out, *letters]
        at = [[every.index(c) for c in word] for word in (both[k], both[1 - k])]
        words = [12, *_listed([extents[c] for c in letters]), *_listed(at[0]), *_listed(at[1])]
        return [*words, *_listed(weights.shape), *self._numbers(weights), self._read(node, k)]

    def _cellwise(self, node: Node, values: Sequence[Array | None]) -> list[int]:
        """Return the words of add, sub, mul or neg; NotDescribedError where values repeat or two are multiplied."""
        name = node.op.name
        if name == "neg":
            return [11, self._read(node, 0)]
        given = [v is not None for v in values]
        if any(v is None and self._shape(node, k) != tuple(node.shape) for k, v in enumerate(values)):
            raise NotDescribedError(f"node {node.name} repeats cells while it computes")
        if not any(given):
            if name == "mul":
                raise NotDescribedError(f"node {node.name} multiplies two computed values")
            return [7 if name == "add" else 8, self._read(node, 0), self._read(node, 1)]
        k = given.index(False)
        constant = np.asarray(values[1 - k])
        if name == "sub" and k == 1:  # c - x
            x = [*_listed(self._shape(node, 1)), 0, 11, self._read(node, 1)]
            self._texts.append(x)
            return [10, *self._filled(constant, node), len(self._texts) - 1]
        if name == "sub":
            constant = -constant
        return [9 if name == "mul" else 10, *self._filled(constant, node), self._read(node, k)]

    def _layout(self, node: Node, values: Sequence[Array | None]) -> list[int]:
        """Return the words of reshape, permute, slice, pad, broadcast or concat; NotDescribedError for odd padding."""
        name, params = node.op.name, node.params
        if name == "concat":
            return [13, 5, params["axis"], *_listed([self._read(node, k) for k in range(len(node.args))])]
        x = self._read(node, 0)
        if name == "permute":
            return [13, 1, *_listed(params["order"]), x]
        if name == "slice":
            return [
                13,
                2,
                *_listed([a for a, _, _ in params["ranges"]]),
                *_listed([s for _, _, s in params["ranges"]]),
                x,
            ]
        if name == "pad":
            lows, _, between = zip(*params["widths"], strict=True)
            if any(between) or min(lows) < 0:
                raise NotDescribedError(f"node {node.name} pads between cells, or cuts them off")
            return [13, 3, *_listed(lows), self._fraction(Fraction(params.get("value", 0))), x]
        return [13, {"reshape": 0, "broadcast": 4}[name], x]


Words = Callable[[GraphText, Node, Sequence[Array | None]], list[int]]
WORDS: dict[str, Words] = {
    **dict.fromkeys(("conv", "conv_transpose"), GraphText._conv),
    **dict.fromkeys(("avg_pool", "max_pool"), GraphText._pool),
    "contract": GraphText._contract,
    **dict.fromkeys(("add", "sub", "mul", "neg"), GraphText._cellwise),
    **dict.fromkeys(("reshape", "permute", "slice", "pad", "broadcast", "concat"), GraphText._layout),
    "relu": lambda text, node, values: [5, text._read(node, 0)],
}
"""By the operator's name: its words, given the node and its constant arguments."""


def _listed(values: Sequence[int]) -> list[int]:
    """Return a list of integers with its length in front."""
    return [len(values), *map(int, values)]
