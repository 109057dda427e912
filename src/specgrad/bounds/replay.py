"""Backward linear bounds in exact arithmetic: the proof step of a certificate, with no floating point in it.

Every number is a python-flint rational. Operators are the specifications of the registry and their own adjoints, so a
replay and a float run share the meaning of a network and nothing else.

A layer in float32 computes y = f(x) + e with f linear and abs(e) <= gamma_n * f_abs(abs(x)), in any order of its n
roundings, and what underflow can cost; relu and max_pool choose, so they lose nothing but subnormal numbers. Given
slopes, whatever they are, these lines are bounds:

    relu   s*x <= relu(x) for 0 <= s <= 1            relu(x) <= s*x + max(-s*l, u - s*u)   where l <= x <= u, s >= 0
    max    sum_i s_i*x_i <= max x, s in the simplex  max x <= sum_i s_i*x_i + max_i [max((1-s_i)*u_i, (1-s_i)*l_i)
                                                                                      - sum_{j != i} s_j*l_j],  s >= 0
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from ..graph.trace import trace
from ..graph.transform import vjp
from ..op import Op, Params, apply, run_spec
from ..rounding.report import fusible
from ..scalar import Array
from . import replay_pieces as pieces
from .replay_lines import LOST, Range, chosen, max_lines, relu_lines, through_max, through_relu, window_max
from .replay_numbers import PLACES, ReplayError, outward, positive, rational, rationals, total, zeros

DIGITS = 24  # of float32: its unit roundoff is 2**-24
LARGEST = ((1 << DIGITS) - 1) << (128 - DIGITS)  # float32's largest number


@dataclass(frozen=True, eq=False)
class Slopes:
    """Slopes of one relu or max_pool as whole numbers over `scale`: lower and upper, in the shape of its output.

    For max_pool with a leading axis of taps, in the order of the window's relation.
    """

    lower: Array
    upper: Array
    scale: int


# --- operators --------------------------------------------------------------------------------------------------------


def absolute(op: Op, args: Sequence[Array], params: Params) -> Array:
    """The operator on absolute values, which the arguments are."""
    if op.magnitude is not None and op.linear != "all":
        return np.asarray(op.magnitude(*args, **params))
    if op.name == "sub":
        return np.asarray(args[0] + args[1])
    return np.abs(run_spec(op, args, params))


def adjoint(op: Op, shapes: Sequence[tuple[int, ...]], params: Params, wrt: Sequence[int]) -> Graph:
    """The graph (args, gy) -> cotangents of the arguments `wrt`: the operator's own vjp rule, and nothing beside it."""
    call = trace(lambda *args: apply(op, *args, **params), *shapes)
    whole = vjp(call, list(wrt))
    out = call.nodes[call.output_positions[0]].shape
    return trace(lambda *args: whole(*args)[1:], *shapes, out)


def growth(count: int) -> Any:
    """gamma_n = n*u / (1 - n*u), rounded up."""
    if count >= 1 << (DIGITS - 1):
        raise ReplayError(f"a layer has {count} roundings in one sum; nothing is proven of so many")
    return rational(-(-(count << PLACES) // ((1 << DIGITS) - count)), 1 << PLACES)


class Replay:
    """One graph on one box of inputs, with given slopes; `lower` bounds linear functions of its output.

    tighten   names of nodes whose range is computed by backward bounds too, cell by cell
    """

    def __init__(
        self, graph: Graph, low: Array, high: Array, slopes: Mapping[str, Slopes], tighten: Collection[str] = ()
    ) -> None:
        self.graph, self.slopes = graph, slopes
        self.cuts: dict[int, pieces.Cut] = {}
        self._adjoints: dict[int, Graph] = {}
        self._known_lines: dict[str, tuple[Array, tuple[Array, Array]]] = {}
        self.ranges: list[Range] = []
        (self.output,) = graph.output_positions
        for i, node in enumerate(graph.nodes):
            self.ranges.append(self._range(i, node, low, high))
            if node.name in tighten:
                self.ranges[i] = self._tightened(i)

    # --- forward: ranges ----------------------------------------------------------------------------------------

    def _range(self, i: int, node: Node, low: Array, high: Array) -> Range:
        if node.op is INPUT:
            return Range(rationals(low), rationals(high))
        if node.op is CONSTANT:
            return self._constant(node, self.graph.constants[i])
        if node.kind != "real":
            raise UnsupportedError(node.op.name, f"a certificate cannot have node {node.name}: it holds positions")
        args = [self._argument(node, a) for a in node.args]
        if node.op.name == "relu":
            return chosen(positive(args[0].low), positive(args[0].high))
        if node.op.name == "max_pool":
            return chosen(*(window_max(end, node.params["window"]) for end in (args[0].low, args[0].high)))
        return self._linear(node, args)

    def _constant(self, node: Node, array: Array) -> Range:
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ReplayError(f"constant {node.name} is not made of finite float32 numbers")
        exact = rationals(array)
        return Range(exact, exact, constant=True)

    def _argument(self, node: Node, arg: int | NumberArg) -> Range:
        if not isinstance(arg, NumberArg):
            return self.ranges[arg]
        if rationals(np.float32(arg.value)) != rationals(arg.value):
            raise ReplayError(f"the number {arg.value} in node {node.name} is no float32 number")
        exact = rationals(arg.value)
        return Range(exact, exact, constant=True)

    def _merged(self, node: Node, arg: int | NumberArg) -> bool:
        """Whether an argument is an inner step of the node's own layer."""
        if isinstance(arg, NumberArg) or self.ranges[arg].size is None:
            return False
        return fusible(self.graph.nodes[arg]) == fusible(node)

    def _ends(self, node: Node, arg: int | NumberArg, r: Range) -> tuple[Array, Array]:
        """Of an argument: of its layer's exact map inside the layer, of float32 values outside it."""
        return r.exact_ends if r.exact_ends is not None and self._merged(node, arg) else (r.low, r.high)

    def _linear(self, node: Node, args: Sequence[Range]) -> Range:
        op, params = node.op, node.params
        varying, group = self._linear_in(node, args)
        if not varying:
            if not op.exact:
                raise ReplayError(f"node {node.name} computes with constants; fold them before certifying")
            value = run_spec(op, [a.low for a in args], params)
            return Range(value, value, constant=True)
        ends = [self._ends(node, g, a) for a, g in zip(args, node.args, strict=True)]
        lows, highs = [low for low, _ in ends], [high for _, high in ends]
        half = rational(1, 2)
        middle = run_spec(op, [(a + b) * half for a, b in zip(lows, highs, strict=True)], params)
        spans = [(b - a) * half if k in group else np.abs(a) for k, (a, b) in enumerate(zip(lows, highs, strict=True))]
        reach = absolute(op, spans, params)
        return self._rounded(node, args, middle - reach, middle + reach)

    def _linear_in(self, node: Node, args: Sequence[Range]) -> tuple[list[int], tuple[int, ...]]:
        """The arguments that vary, and a group in which the operator is linear that holds them."""
        op, varying = node.op, [k for k, a in enumerate(args) if not a.constant]
        groups = [g for g in op.linear_groups(len(args)) if set(varying) <= set(g)]
        if not groups or op.index_args:
            text = f"a certificate has no rule for node {node.name}; it has for linear operators, relu and max_pool"
            raise UnsupportedError(op.name, text)
        if not op.exact and op.roundings is None:
            raise UnsupportedError(op.name, "declares no count of roundings, so nothing is proven of float32")
        return varying, groups[0]

    def _rounded(self, node: Node, args: Sequence[Range], low: Array, high: Array) -> Range:
        """The ends of the exact map, with what float32 adds to them."""
        op, lost = node.op, rational(1, 1 << LOST)
        merged = [self._merged(node, g) for g in node.args]
        plain = [a.plain if m else a.largest for a, m in zip(args, merged, strict=True)]
        sizes = [a.size if m else a.largest + lost for a, m in zip(args, merged, strict=True)]
        own = 0 if op.exact or op.roundings is None else op.roundings(*(a.low.shape for a in args), **node.params)
        count = own + sum(a.count for a, m in zip(args, merged, strict=True) if m)
        size = absolute(op, sizes, node.params) + lost * (2 * own + 1)
        least = absolute(op, plain, node.params)
        error = outward(size * growth(count) + (size - least), 1)
        if (size + error > LARGEST).any():
            raise ReplayError(f"node {node.name} may overflow in float32")
        ends = outward(low - error, -1), outward(high + error, 1)
        return Range(*ends, False, (low, high), error, count, least, size)

    def _tightened(self, i: int) -> Range:
        """Backward bounds of every cell that may have either sign."""
        r = self.ranges[i]
        low, high = r.low.copy(), r.high.copy()
        for cell in np.ndindex(low.shape):
            if low[cell] < 0 < high[cell]:
                row = zeros(low.shape)
                row[cell] = rational(1)
                low[cell] = max(low[cell], self.lower(row, at=i))
                high[cell] = min(high[cell], -self.lower(-row, at=i))
        return Range(outward(low, -1), outward(high, 1), False, r.exact_ends, r.error, r.count, r.plain, r.size)

    # --- backward: linear functions -----------------------------------------------------------------------------

    def lower(self, row: Array, at: int | None = None, vectors: Mapping[str, Array] | None = None) -> Any:
        """A lower bound of sum(row * y) over the box, y being a node's float32 value (the output's unless said).

        vectors   of relus that are bounded by pieces (specgrad.bounds.replay_pieces)
        """
        start = self.output if at is None else at
        shape = self.graph.nodes[start].shape
        outer: dict[int, Array] = {start: row.reshape(shape)}  # coefficients of float32 values
        inner: dict[int, Array] = {}  # coefficients of a layer's exact map, inside that layer
        bound = rational(0)
        for i in range(start, -1, -1):
            node, r = self.graph.nodes[i], self.ranges[i]
            computed, mapped = outer.pop(i, None), inner.pop(i, None)
            if computed is not None and r.error is not None:
                bound -= total(np.abs(computed) * r.error)
            parts = [a for a in (computed, mapped) if a is not None]
            if parts:
                a = parts[0] if len(parts) == 1 else parts[0] + parts[1]
                if vectors and node.name in vectors:
                    bound += self._through_pieces(node, a, vectors[node.name], outer)
                else:
                    bound += self._step(i, node, a, outer, inner)
        return bound

    def _through_pieces(self, node: Node, a: Array, given: Array, outer: dict[int, Array]) -> Any:
        """Replace a relu and the convolution that it reads by what the convolution reads."""
        position = node.operands()[0] if node.op.name == "relu" else None
        conv = None if position is None else self.graph.nodes[position]
        source = conv.args[0] if conv is not None and conv.op.name == "conv" else None
        if conv is None or position is None or not isinstance(source, int) or self._merged(conv, source):
            raise ReplayError(f"node {node.name} is no relu of a convolution by itself")
        args = [self._argument(conv, g) for g in conv.args]
        if not all(r.constant for r in args[1:]) or args[0].constant:
            raise ReplayError(f"node {conv.name} has weights that vary, or nothing that varies")
        if position not in self.cuts:
            self.cuts[position] = pieces.cut(conv, args[1].low, args[2].low if len(args) > 2 else None, args[0])
        cut, z = self.cuts[position], self.ranges[position]
        coefficients, constant = cut.through(pieces.positions(a), pieces.vectors(given, node.name, cut))
        _add(outer, source, coefficients)
        reaches = np.where(z.high > 0, z.error, rational(0))  # relu changes no more than what it reads
        return constant - total(np.abs(a) * reaches)

    def _step(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        """Replace a node by its arguments; the constant that this leaves."""
        r = self.ranges[i]
        if node.op is INPUT or r.constant:
            return total(np.where(a > 0, a * r.low, a * r.high))
        if node.op.name in ("relu", "max_pool"):
            (arg,) = node.operands()
            if node.name not in self._known_lines:
                self._known_lines[node.name] = self._lines(node, self.ranges[arg])
            below, above = self._known_lines[node.name]
            rule = through_relu if node.op.name == "relu" else through_max
            coefficients, constant = rule(node, a, below, above)
            _add(outer, arg, coefficients)
            return constant
        return self._through_linear(i, node, a, outer, inner)

    def _lines(self, node: Node, x: Range) -> tuple[Array, tuple[Array, Array]]:
        """The lower slopes, and the upper slopes with their intercepts, of a relu or max_pool."""
        given = self.slopes.get(node.name)
        if given is None:
            raise ReplayError(f"the slopes of node {node.name} are missing")
        taps = () if node.op.name == "relu" else (sum(1 for _ in node.params["window"].taps()),)
        for slopes in (given.lower, given.upper):
            if slopes.shape != taps + node.shape or slopes.dtype.kind not in "iu" or (slopes < 0).any():
                raise ReplayError(f"the slopes of node {node.name} must be whole, not negative, of {taps + node.shape}")
        lower, upper = (rationals(s) * rational(1, given.scale) for s in (given.lower, given.upper))
        return relu_lines(node, x, lower, upper) if not taps else max_lines(node, x, lower, upper)

    def _through_linear(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        args = [self._argument(node, g) for g in node.args]
        varying, _ = self._linear_in(node, args)
        fixed = [zeros(r.low.shape) if k in varying else r.low for k, r in enumerate(args)]
        if i not in self._adjoints:
            self._adjoints[i] = adjoint(node.op, [f.shape for f in fixed], node.params, varying)
        for k, coefficients in zip(varying, self._adjoints[i](*fixed, a), strict=True):
            _add(inner if self._merged(node, node.args[k]) else outer, node.args[k], coefficients)
        offset = run_spec(node.op, fixed, node.params)
        return total(a * offset)


def _add(found: dict[int, Array], position: Any, coefficients: Array) -> None:
    found[position] = found[position] + coefficients if position in found else coefficients
