"""Backward linear bounds in exact arithmetic: the proof step of a certificate, with no floating point in it.

Every number is a python-flint rational. Operators are the specifications of the registry and their own adjoints, so a
replay and a float run share the meaning of a network and nothing else.

A sum of terms in float32 is off by at most (1+u)**R - 1 times the sum of their absolute values, where no term meets
more than R roundings, and by what underflow can cost; relu and max_pool choose, so they lose nothing but subnormal
numbers. Which sums there are, and R, say the execution models of specgrad.proof.exact.rounding_counts; what is
bounded is one reference value per node, and by node the only one (specgrad.bounds.linear.intermediate.forward_pass
says it for the float bounds). Given slopes, whatever they are, these lines are bounds:

    relu   s*x <= relu(x) for 0 <= s <= 1            relu(x) <= s*x + max(-s*l, u - s*u)   where l <= x <= u, s >= 0
    max    sum_i s_i*x_i <= max x, s in the simplex  max x <= sum_i s_i*x_i + max_i [max((1-s_i)*u_i, (1-s_i)*l_i)
                                                                                      - sum_{j != i} s_j*l_j],  s >= 0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.trace import trace
from specgrad.graph.transforms.autodiff import vjp
from specgrad.op import Op, Params, apply, run_spec
from specgrad.scalar import Array

from ..base.executions import Functions, no_rule
from ..base.rationals import (
    DIGITS,
    LARGEST,
    PLACES,
    ReplayError,
    cells,
    larger,
    outward,
    positive,
    rational,
    rationals,
    total,
    zeros,
)
from . import multi_neuron as pieces
from .activations import CURVES, computed_error, curve_lines, natural_points, ranged, through_curve
from .folded_constants import computed, is_computed, number
from .logsumexp_pool import SMOOTH, smooth_lines, through_smooth
from .logsumexp_pool import ranged as smooth_ranged
from .relu_max import NodeRange, RegionSum, chosen, known, max_lines, relu_lines, through_max, through_relu, window_max
from .rounding_counts import (
    CELLWISE,
    KERNELS,
    RoundingCount,
    begins,
    is_layout,
    joined,
    read_apart,
    roundings,
    spread,
    summed_later,
)
from .rounding_counts import CONSTANT as FIXED

SCALE = 1 << 10  # of slopes and points that nobody gave
SMALLEST = 126  # 2**-126 is its smallest normal number


@dataclass(frozen=True)
class Model:
    """The executions that a replay holds for: nodes merged or not, results rounded to nearest or either way."""

    fused: bool = True
    digits: int = DIGITS  # of the unit roundoff 2**-digits
    functions: Functions = field(default_factory=dict)  # what is assumed of exp, tanh, ...

    @staticmethod
    def of(execution: str, rounding: str, functions: Functions | None = None) -> Model:
        return Model(execution == "fused", DIGITS if rounding == "nearest" else DIGITS - 1, functions or {})


@dataclass(frozen=True, eq=False)
class Slopes:
    """Slopes of one relu or max_pool as whole numbers over `scale`: lower and upper, in the shape of its output.

    For max_pool with a leading axis of taps, in the order of the window's relation. For other functions of one cell
    they are points or slopes, as specgrad.proof.exact.activations says.
    """

    lower: Array
    upper: Array
    scale: int


# --- operators --------------------------------------------------------------------------------------------------------


def absolute(op: Op, args: Sequence[Any], params: Params) -> Array:
    """The operator on absolute values, which the arguments are."""
    if op.magnitude is not None and op.linear != "all":
        return np.asarray(op.magnitude(*args, **params))
    if op.name == "sub":
        return cells(args[0] + args[1])
    return cells(np.abs(run_spec(op, args, params)))


def adjoint(op: Op, shapes: Sequence[tuple[int, ...]], params: Params, wrt: Sequence[int]) -> Graph:
    """The graph (args, gy) -> cotangents of the arguments `wrt`: the operator's own vjp rule, and nothing beside it."""
    call = trace(lambda *args: apply(op, *args, **params), *shapes)
    whole = vjp(call, list(wrt))
    out = call.nodes[call.output_positions[0]].shape
    return trace(lambda *args: whole(*args)[1:], *shapes, out)


def growth(count: int, digits: int = DIGITS) -> Any:
    """gamma_n = n*u / (1 - n*u) >= (1 + u)**n - 1, rounded up."""
    if count >= 1 << (digits - 1):
        raise ReplayError(f"a sum has {count} roundings; nothing is proven of so many")
    return rational(-(-(count << PLACES) // ((1 << digits) - count)), 1 << PLACES)


class Replay:
    """One graph on one box of inputs, with given slopes; `lower` bounds linear functions of its output.

    Nodes go by position alone: a name is for people, and a file may give two nodes the same one.

    slopes    of each relu and max_pool
    tighten   nodes whose range is computed by backward bounds too, cell by cell
    """

    def __init__(
        self,
        graph: Graph,
        low: Array,
        high: Array,
        slopes: Mapping[int, Slopes],
        tighten: Collection[int] = (),
        model: Model | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.graph, self.slopes, self.model, self.on_step = graph, slopes, model or Model(), on_step
        self.cuts: dict[int, pieces.SplitConv] = {}
        self._adjoints: dict[int, Graph] = {}
        self._known_lines: dict[int, tuple[Array, tuple[Array, Array]]] = {}
        self._summed = summed_later(graph) if self.model.fused else set()
        self._read_apart = read_apart(graph) if self.model.fused else set()
        self.ranges: list[NodeRange] = []
        (self.output,) = graph.output_positions
        for i, node in enumerate(graph.nodes):
            self.on_step()
            self.ranges.append(self._range(i, node, low, high))
            if i in tighten:
                self.ranges[i] = self._tightened(i)

    # --- forward: ranges ----------------------------------------------------------------------------------------

    def _range(self, i: int, node: Node, low: Array, high: Array) -> NodeRange:
        if node.op is INPUT:
            ends = rationals(low), rationals(high)
            return NodeRange(*ends, ends, apart=zeros(low.shape) if self.model.fused else None)
        if node.op is CONSTANT:
            return self._constant(node, self.graph.constants[i])
        if node.kind != "real":
            raise UnsupportedError(node.op.name, f"a certificate cannot have node {node.name}: it holds positions")
        args = [self._argument(node, a) for a in node.args]
        if is_computed(node, args):
            return computed(node, args, self.model.functions)
        if node.op.name == "relu":
            return chosen(positive(args[0].low), positive(args[0].high), self._apart_of(args[0]))
        if node.op.name == "max_pool":
            window, apart = node.params["window"], self._apart_of(args[0])
            most = None if apart is None else window_max(apart, window)
            return chosen(window_max(args[0].low, window), window_max(args[0].high, window), most)
        if node.op.name in CURVES or node.op.name == SMOOTH:
            return self._curve(node, args[0])
        return self._linear(i, node, args)

    def _curve(self, node: Node, x: NodeRange) -> NodeRange:
        if x.constant:
            raise ReplayError(f"node {node.name} computes with constants; fold them before certifying")
        functions, digits = self.model.functions, self.model.digits
        if node.op.name == SMOOTH:
            r = smooth_ranged(node, x, self._apart_of(x), functions, digits)
        else:
            r = ranged(node, x, self._apart_of(x), computed_error(node, functions, x, digits))
        if (r.largest > LARGEST).any():
            raise ReplayError(f"node {node.name} may overflow in float32")
        return r

    def _apart_of(self, r: NodeRange) -> Array | None:
        """How far a value may be from its reference; None by node, where there is one value."""
        return (zeros(r.low.shape) if r.apart is None else r.apart) if self.model.fused else None

    def _constant(self, node: Node, array: Array) -> NodeRange:
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ReplayError(f"constant {node.name} is not made of finite float32 numbers")
        return known(rationals(array))

    def _argument(self, node: Node, arg: int | NumberArg) -> NodeRange:
        if not isinstance(arg, NumberArg):
            return self.ranges[arg]
        return number(arg.value, node.name)

    def _region(self, node: Node, arg: int | NumberArg) -> RegionSum | None:
        """An argument as a part of the node's own region; None for what the region reads."""
        if isinstance(arg, NumberArg) or self.ranges[arg].sum is None:
            return None
        return self.ranges[arg].sum if self.model.fused or self.graph.nodes[arg].group == node.group else None

    def _inside(self, node: Node, arg: int | NumberArg) -> bool:
        """By node: whether an argument is an inner step of the layer, which reads its exact map, not its value."""
        return not self.model.fused and self._region(node, arg) is not None

    def _linear(self, i: int, node: Node, args: Sequence[NodeRange]) -> NodeRange:
        op, params, count = node.op, node.params, roundings(node, [a.low.shape for a in args])
        varying, group = self._linear_in(node, args)
        if not varying:
            raise ReplayError(f"node {node.name} computes with constants; fold them before certifying")
        count += sum(a.formed for a in args)
        sums = [self._region(node, g) for g in node.args]
        ends = [(a.low, a.high) if s is None else (s.low, s.high) for a, s in zip(args, sums, strict=True)]
        half = rational(1, 2)
        middle = run_spec(op, [(a + b) * half for a, b in ends], params)
        spans = [(b - a) * half if k in group else np.abs(a) for k, (a, b) in enumerate(ends)]
        reach = absolute(op, spans, params)
        sizes = [a.largest if s is None else s.size for a, s in zip(args, sums, strict=True)]
        unrounded = RegionSum(
            cells(middle - reach),
            cells(middle + reach),
            absolute(op, sizes, params),
            self._most(node, args, sums, group, count),
            self._met(i, node, args, sums, group, count),
            self._apart(node, args, group, sums, spread(node, math.prod(node.shape)) > 1),
            self._apart(node, args, group, sums, True),
        )
        return self._rounded(i, node, unrounded)

    def _linear_in(self, node: Node, args: Sequence[NodeRange]) -> tuple[list[int], tuple[int, ...]]:
        """The arguments that vary, and a group in which the operator is linear that holds them."""
        op, varying = node.op, [k for k, a in enumerate(args) if not a.constant]
        groups = [g for g in op.linear_groups(len(args)) if set(varying) <= set(g)]
        if not groups or op.index_args:
            raise UnsupportedError(op.name, no_rule(node))
        return varying, groups[0]

    def _met(
        self,
        i: int,
        node: Node,
        args: Sequence[NodeRange],
        sums: Sequence[RegionSum | None],
        group: Sequence[int],
        count: int,
    ) -> RoundingCount:
        by_position: dict[int, RoundingCount] = {}
        for k in group:
            arg, s = node.args[k], sums[k]
            key = -1 - k if isinstance(arg, NumberArg) else arg
            by_position[key] = s.met if s is not None else FIXED if args[k].constant else begins(key, args[k].low.size)
        size = math.prod(node.shape)
        return joined(by_position, count, node.op.name in CELLWISE, i, size, spread(node, size))

    def _most(
        self, node: Node, args: Sequence[NodeRange], sums: Sequence[RegionSum | None], group: Sequence[int], count: int
    ) -> int:
        """A whole number that no partial result exceeds, before roundings are counted.

        Each of at most count + 1 terms has one factor of the group in which the node is linear, and one of every other.
        """
        sizes = [a.largest_factor if s is None else max(1, s.most) for a, s in zip(args, sums, strict=True)]
        if node.op.name == "div":
            sizes[1] = max(sizes[1], _largest_reciprocal(node, args[1].low))
        most = (count + 1) * max(sizes[k] for k in group)
        most *= math.prod(size for k, size in enumerate(sizes) if k not in group)
        if "divisor" not in node.params:
            return most
        given = node.params["divisor"]
        widest = 1 if isinstance(given, str) else math.ceil(abs(Fraction(given)) + 1 / abs(Fraction(given)))
        return most * (count + 1) * widest

    def _apart(
        self,
        node: Node,
        args: Sequence[NodeRange],
        group: Sequence[int],
        sums: Sequence[RegionSum | None],
        merged: bool,
    ) -> Array:
        """How far values that are apart move the exact map: what the region carries, else the argument's own.

        merged   several cells may read one cell of a kernel that nobody computes: it is multiplied out into each
        """
        if not self.model.fused:
            return zeros(node.shape)
        given = []
        for k, (a, s) in enumerate(zip(args, sums, strict=True)):
            moved = self._apart_of(a) if s is None else s.merged if merged else s.apart
            given.append(moved if k in group else np.abs(a.low))
        return absolute(node.op, given, node.params)

    def _rounded(self, i: int, node: Node, s: RegionSum) -> NodeRange:
        """What float32 makes of an exact map: the error of the reference, and how far values are apart from it."""
        grown = growth(s.met.total, self.model.digits)
        lost = rational(2 * (2 * s.met.total + 1) * s.most, 1 << SMALLEST)
        if s.most * (1 + grown) > LARGEST:
            raise ReplayError(f"node {node.name} may overflow in float32")
        error = outward(s.size * grown + lost, 1)
        low, high = outward(s.low - error, -1), outward(s.high + error, 1)
        ends = (low, high)
        if not self.model.fused:
            return NodeRange(low, high, ends, error=error, sum=s)
        nothing = zeros(node.shape)
        if i in self._read_apart:
            merged = outward(s.merged, 1)
            s = replace(s, apart=merged, merged=merged)
            return NodeRange(low, high, ends, error=nothing, apart=cells(merged + error), sum=s)
        if node.op.name in KERNELS:  # computed once: what it reads apart, it has read
            s, read = replace(s, apart=nothing, merged=outward(s.merged, 1)), outward(s.apart, 1)
            own = (read, error) if i in self._summed else (cells(read + error), nothing)
            return NodeRange(low, high, ends, error=own[0], apart=own[1], sum=s)
        return NodeRange(
            low,
            high,
            ends,
            apart=self._layout_apart(node, cells(s.apart + error)),
            sum=replace(s, apart=outward(s.apart, 1), merged=outward(s.merged, 1)),
        )

    def _layout_apart(self, node: Node, otherwise: Array) -> Array:
        """Layout of values that enter no later sum moves them, and rounds nothing; repeated sums may differ."""
        repeats = spread(node, math.prod(node.shape)) > 1 and any(self._region(node, g) is not None for g in node.args)
        if not is_layout(node) or repeats or any(a in self._summed for a in node.operands()):
            return otherwise
        return absolute(node.op, [self._apart_of(self._argument(node, g)) for g in node.args], node.params)

    def _tightened(self, i: int) -> NodeRange:
        """Backward bounds of every cell whose reference may have either sign, or that a curve reads."""
        r, curved = self.ranges[i], any(n.op.name in ALWAYS_BENT for n in self.graph.nodes if i in n.operands())
        low, high = r.ends[0].copy(), r.ends[1].copy()
        for cell in np.ndindex(low.shape):
            if low[cell] < 0 < high[cell] or (curved and low[cell] < high[cell]):
                self.on_step()
                row = zeros(low.shape)
                row[cell] = rational(1)
                low[cell] = max(low[cell], self.lower(row, at=i))
                high[cell] = min(high[cell], -self.lower(-row, at=i))
        return self._narrowed(i, outward(low, -1), outward(high, 1))

    def _narrowed(self, i: int, low: Array, high: Array) -> NodeRange:
        """What is known of a node when its reference lies in low..high; other values lie within `apart` of it."""
        r = self.ranges[i]
        apart = zeros(low.shape) if r.apart is None else r.apart
        return replace(r, low=larger(r.low, low - apart), high=cells(-larger(-r.high, -high - apart)), ends=(low, high))

    # --- backward: linear functions -----------------------------------------------------------------------------

    def lower(self, row: Array, at: int | None = None, vectors: Mapping[int, Array] | None = None) -> Any:
        """A lower bound of sum(row * y) over the box: y are the outputs' values, or the references of node `at`.

        vectors   of relus that are bounded by pieces (specgrad.proof.exact.multi_neuron)
        """
        start = self.output if at is None else at
        shape = self.graph.nodes[start].shape
        outer: dict[int, Array] = {start: cells(row).reshape(shape)}  # coefficients of values
        inner: dict[int, Array] = {}  # by node: coefficients of a layer's exact map, inside that layer
        bound, apart = rational(0), self.ranges[start].apart
        if at is None and apart is not None:
            bound -= total(np.abs(outer[start]) * apart)
        for i in range(start, -1, -1):
            node, r = self.graph.nodes[i], self.ranges[i]
            computed, mapped = outer.pop(i, None), inner.pop(i, None)
            if computed is not None and r.error is not None:
                bound -= total(np.abs(computed) * r.error)
            parts = [a for a in (computed, mapped) if a is not None]
            if parts:
                a = parts[0] if len(parts) == 1 else parts[0] + parts[1]
                if vectors and i in vectors:
                    bound += self._through_pieces(node, a, vectors[i], outer)
                else:
                    bound += self._step(i, node, a, outer, inner)
        return bound

    def _through_pieces(self, node: Node, a: Array, given: Array, outer: dict[int, Array]) -> Any:
        """Replace a relu and the convolution that it reads by what the convolution reads."""
        position, source = pieces.behind(self.graph, node)
        conv = self.graph.nodes[position]
        if self._inside(conv, source):
            raise ReplayError(f"node {node.name} is no relu of a convolution by itself")
        args = [self._argument(conv, g) for g in conv.args]
        if not all(r.constant for r in args[1:]) or args[0].constant:
            raise ReplayError(f"node {conv.name} has weights that vary, or nothing that varies")
        if position not in self.cuts:
            self.cuts[position] = pieces.cut(conv, args[1].low, args[2].low if len(args) > 2 else None, args[0])
        cut, z = self.cuts[position], self.ranges[position]
        coefficients, constant = cut.through(
            pieces.positions(a), pieces.vectors(given, node.name, cut.reach[:, 0].shape)
        )
        _add(outer, source, coefficients)
        reaches = np.where(z.ends[1] > 0, z.error, rational(0))  # relu changes no more than what it reads
        return constant - total(np.abs(a) * reaches)

    def _step(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        """Replace a node by its arguments; the constant that this leaves."""
        self.on_step()
        r = self.ranges[i]
        if node.op is INPUT or r.constant:
            return total(np.where(a > 0, a * r.low, a * r.high))
        if node.op.name in THROUGH or node.op.name in CURVES:
            (arg,) = node.operands()
            if i not in self._known_lines:
                self._known_lines[i] = self._lines(i, node, self.ranges[arg])
            below, above = self._known_lines[i]
            rule: Callable[..., tuple[Array, Any]] = THROUGH.get(node.op.name, through_curve)
            coefficients, constant = rule(node, a, below, above)
            _add(outer, arg, coefficients)
            return constant
        return self._through_linear(i, node, a, outer, inner)

    def _lines(self, i: int, node: Node, x: NodeRange) -> tuple[Any, Any]:
        """The lower and upper lines: slopes and intercepts; the lower ones of relu and max_pool have none."""
        given = self.slopes.get(i)
        if node.op.name == SMOOTH:
            if given is not None:
                raise ReplayError(
                    f"node {node.name} is a smooth maximum: its planes are the checker's own, not the file's"
                )
            return smooth_lines(node, x)
        if given is None and node.op.name in CURVES:
            given = Slopes(*natural_points(node, x, SCALE), SCALE)
        if given is None:
            raise ReplayError(f"the slopes of node {node.name} are missing")
        taps = (sum(1 for _ in node.params["window"].taps()),) if "window" in node.params else ()
        signed = node.op.name in CURVES
        for slopes in (given.lower, given.upper):
            if (
                slopes.shape != taps + node.shape
                or slopes.dtype.kind not in "iu"
                or ((slopes < 0).any() and not signed)
            ):
                raise ReplayError(f"the slopes of node {node.name} must be whole, not negative, of {taps + node.shape}")
        if signed:
            return curve_lines(node, x, given.lower, given.upper, given.scale)
        lower, upper = (cells(rationals(s) * rational(1, given.scale)) for s in (given.lower, given.upper))
        return relu_lines(node, x, lower, upper) if not taps else max_lines(node, x, lower, upper)

    def _through_linear(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        args = [self._argument(node, g) for g in node.args]
        varying, _ = self._linear_in(node, args)
        fixed = [zeros(r.low.shape) if k in varying else r.low for k, r in enumerate(args)]
        if i not in self._adjoints:
            self._adjoints[i] = adjoint(node.op, [f.shape for f in fixed], node.params, varying)
        for k, coefficients in zip(varying, self._adjoints[i](*fixed, a), strict=True):
            _add(inner if self._inside(node, node.args[k]) else outer, node.args[k], coefficients)
        offset = run_spec(node.op, fixed, node.params)
        return total(a * offset)


THROUGH: Mapping[str, Callable[..., tuple[Array, Any]]] = {
    "relu": through_relu,
    "max_pool": through_max,
    SMOOTH: through_smooth,
}
ALWAYS_BENT = (*CURVES, SMOOTH)  # wherever what they read lies


def _add(by_position: dict[int, Array], position: Any, coefficients: Array) -> None:
    by_position[position] = by_position[position] + coefficients if position in by_position else coefficients


def _largest_reciprocal(node: Node, x: Array) -> int:
    if any(v == 0 for v in x.flat):
        raise ReplayError(f"node {node.name} divides by 0")
    return max((-(-int(v.q) // abs(int(v.p))) for v in x.flat), default=1)
