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
from typing import TYPE_CHECKING, Any

import numpy as np

from specgrad.errors import UnsupportedError
from specgrad.graph.builder import trace
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.transforms.autodiff import vjp
from specgrad.op import Op, Params, apply, run_spec
from specgrad.scalar import Array

from ..base.executions import Functions, no_rule
from ..base.rationals import (
    DIGITS,
    FRAC_BITS,
    LARGEST,
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
from .node_ranges import (
    CURVED,
    SMOOTH,
    NodeRange,
    RegionSum,
    constant_range,
    folded_range,
    is_folded,
    literal_range,
    max_lines,
    relu_lines,
    selection_range,
    through_max,
    through_relu,
    window_max,
)
from .rounding_counts import (
    CELLWISE,
    KERNELS,
    RoundingCount,
    cells_per_argument,
    count_after_node,
    fan_out,
    feeds_later_sum,
    is_layout,
    quotient_roundings,
    recomputed_per_reader,
    region_input,
    roundings,
)
from .rounding_counts import CONSTANT as FIXED

if TYPE_CHECKING:
    from .multi_neuron import SplitConv

DEFAULT_POINT_SCALE = 1 << 10  # of points that the certificate does not give
SMALLEST = 126  # 2**-126 is its smallest normal number


@dataclass(frozen=True)
class ExecutionModel:
    """The executions that a replay covers: nodes merged or not, results rounded to nearest or either way.

    fused       merged regions of nodes
    digits      of the unit roundoff 2**-digits
    functions   declared errors of exp, tanh, ...
    """

    fused: bool = True
    digits: int = DIGITS  # of the unit roundoff 2**-digits
    functions: Functions = field(default_factory=dict)  # what is assumed of exp, tanh, ...

    @staticmethod
    def of(execution: str, rounding: str, functions: Functions | None = None) -> ExecutionModel:
        """Return the model for `execution` ("fused" or "node") and `rounding` ("nearest" or "any").

        `functions` is what is assumed of exp, tanh and similar functions; None: nothing.
        """
        return ExecutionModel(execution == "fused", DIGITS if rounding == "nearest" else DIGITS - 1, functions or {})


@dataclass(frozen=True, eq=False)
class Slopes:
    """Slopes of one relu or max_pool, `lower` and `upper`, integers over `scale`, in the shape of its output.

    For max_pool with a leading axis of taps, in the order of the window's relation. For other functions of one cell
    they are points or slopes, as specgrad.proof.exact.activations says.
    """

    lower: Array
    upper: Array
    scale: int


# --- operators --------------------------------------------------------------------------------------------------------


def absolute(op: Op, args: Sequence[Any], params: Params) -> Array:
    """Return the operator applied to absolute values: `args` are absolute values already, and signs of its own are
    dropped."""
    if op.magnitude is not None and op.linear != "all":
        return np.asarray(op.magnitude(*args, **params))
    if op.name == "sub":
        return cells(args[0] + args[1])
    return cells(np.abs(run_spec(op, args, params)))


def adjoint(op: Op, shapes: Sequence[tuple[int, ...]], params: Params, wrt: Sequence[int]) -> Graph:
    """Return the graph (args, gy) -> cotangents of the arguments `wrt`, made by the operator's own vjp rule.

    `shapes` are those of the arguments, `params` the operator's parameters.
    """
    call = trace(lambda *args: apply(op, *args, **params), *shapes)
    whole = vjp(call, list(wrt))
    out = call.nodes[call.output_positions[0]].shape
    return trace(lambda *args: whole(*args)[1:], *shapes, out)


def growth(count: int, digits: int = DIGITS) -> Any:
    """Return gamma_n = n*u / (1 - n*u) >= (1 + u)**n - 1 for n = `count`, u = 2**-digits, rounded up.

    ReplayError if n*u is 1/2 or more.
    """
    if count >= 1 << (digits - 1):
        raise ReplayError(f"a sum has {count} roundings; nothing is proven of so many")
    return rational(-(-(count << FRAC_BITS) // ((1 << digits) - count)), 1 << FRAC_BITS)


class Replay:
    """Bounds of one graph on one box of inputs, over rationals, for given slopes; `lower` bounds linear functions of
    its output.

    Nodes go by position alone: a name is for people, and a file may give two nodes the same one. ReplayError where the
    file lacks something, or an operator or number has no bound here.

    slopes      of each relu and max_pool
    tighten     nodes whose range is computed by backward bounds too, cell by cell
    low, high   the box, rational, in the input's shape
    model       how executions round; None: float32, nodes merged or not
    on_step     called at every node; raises when the time is over
    """

    def __init__(
        self,
        graph: Graph,
        low: Array,
        high: Array,
        slopes: Mapping[int, Slopes],
        tighten: Collection[int] = (),
        model: ExecutionModel | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.graph, self.slopes, self.model, self.on_step = graph, slopes, model or ExecutionModel(), on_step
        self.cuts: dict[int, SplitConv] = {}
        self._adjoints: dict[int, Graph] = {}
        self._lines_cache: dict[int, tuple[Array, tuple[Array, Array]]] = {}
        self._feeds_later_sum = feeds_later_sum(graph) if self.model.fused else set()
        self._recomputed = recomputed_per_reader(graph) if self.model.fused else set()
        self.ranges: list[NodeRange] = []
        (self.output,) = graph.output_positions
        for i, node in enumerate(graph.nodes):
            self.on_step()
            self.ranges.append(self._range(i, node, low, high))
            if i in tighten:
                self.ranges[i] = self._tightened(i)

    # --- forward: ranges ----------------------------------------------------------------------------------------

    def _range(self, i: int, node: Node, low: Array, high: Array) -> NodeRange:
        """Return the range of node `i` from the ranges of its arguments; that of the input is low..high.
        UnsupportedError for a node of positions.
        """
        if node.op is INPUT:
            ends = rationals(low), rationals(high)
            return NodeRange(*ends, ends, deviation=zeros(low.shape) if self.model.fused else None)
        if node.op is CONSTANT:
            return self._constant_range(node, self.graph.constants[i])
        if node.kind != "real":
            raise UnsupportedError(node.op.name, f"a certificate cannot have node {node.name}: it holds positions")
        args = [self._argument(node, a) for a in node.args]
        if is_folded(node, args):
            return folded_range(node, args, self.model.functions)
        if node.op.name == "relu":
            return selection_range(positive(args[0].low), positive(args[0].high), self._deviation_of(args[0]))
        if node.op.name == "max_pool":
            window, deviation = node.params["window"], self._deviation_of(args[0])
            most = None if deviation is None else window_max(deviation, window)
            return selection_range(window_max(args[0].low, window), window_max(args[0].high, window), most)
        if node.op.name in ALWAYS_NONLINEAR:
            return self._activation_range(node, args[0])
        return self._linear_range(i, node, args)

    def _activation_range(self, node: Node, x: NodeRange) -> NodeRange:
        """Return the range of an activation or smooth maximum of x; ReplayError if it may overflow, or x is
        constant.
        """
        if x.constant:
            raise ReplayError(f"node {node.name} computes with constants; fold them before certifying")
        functions, digits = self.model.functions, self.model.digits
        if node.op.name == SMOOTH:
            from .logsumexp_pool import logsumexp_range

            r = logsumexp_range(node, x, self._deviation_of(x), functions, digits)
        else:
            from .activations import activation_range, runtime_error_bound

            r = activation_range(node, x, self._deviation_of(x), runtime_error_bound(node, functions, x, digits))
        if (r.largest > LARGEST).any():
            raise ReplayError(f"node {node.name} may overflow in float32")
        return r

    def _deviation_of(self, r: NodeRange) -> Array | None:
        """Return how far a node's value may be from its reference, by its range r; None for execution by node, where
        there is one value.
        """
        return (zeros(r.low.shape) if r.deviation is None else r.deviation) if self.model.fused else None

    def _constant_range(self, node: Node, array: Array) -> NodeRange:
        """Return the range of the float32 constant `array`; raise ReplayError for other formats and infinities."""
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ReplayError(f"constant {node.name} is not made of finite float32 numbers")
        return constant_range(rationals(array))

    def _argument(self, node: Node, arg: int | NumberArg) -> NodeRange:
        """Return the range of `arg`: that of a node, or of a number in the program's text."""
        if not isinstance(arg, NumberArg):
            return self.ranges[arg]
        return literal_range(arg.value, node.name)

    def _region_sum(self, node: Node, arg: int | NumberArg) -> RegionSum | None:
        """Return the map of the argument `arg` if it belongs to the fusion region of `node`; None if the region reads
        its value.
        """
        if isinstance(arg, NumberArg) or self.ranges[arg].sum is None:
            return None
        return self.ranges[arg].sum if self.model.fused or self.graph.nodes[arg].group == node.group else None

    def _is_inside_layer(self, node: Node, arg: int | NumberArg) -> bool:
        """Return whether, by node, `arg` is an inner step of the same layer: its exact map is read, not a rounded
        value."""
        return not self.model.fused and self._region_sum(node, arg) is not None

    def _linear_range(self, i: int, node: Node, args: Sequence[NodeRange]) -> NodeRange:
        """Return the range of a linear node: ends of its exact map, widened by rounding.

        ReplayError if nothing in it varies.
        """
        op, params, count = node.op, node.params, roundings(node, [a.low.shape for a in args])
        varying, group = self._linear_in(node, args)
        if not varying:
            raise ReplayError(f"node {node.name} computes with constants; fold them before certifying")
        formed = sum(a.constant_roundings for a in args)
        count += formed
        sums = [self._region_sum(node, g) for g in node.args]
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
            self._magnitude_bound(node, args, sums, group, count),
            self._rounding_count(i, node, args, sums, group, count, formed),
            self._deviation(node, args, group, sums, fan_out(node, math.prod(node.shape)) > 1),
            self._deviation(node, args, group, sums, True),
        )
        return self._rounded_range(i, node, unrounded)

    def _linear_in(self, node: Node, args: Sequence[NodeRange]) -> tuple[list[int], tuple[int, ...]]:
        """Return the numbers of the arguments that vary, and a group of arguments in which the operator is linear and
        which holds them.

        UnsupportedError if there is no such group.
        """
        op, varying = node.op, [k for k, a in enumerate(args) if not a.constant]
        groups = [g for g in op.linear_groups(len(args)) if set(varying) <= set(g)]
        if not groups or op.index_args:
            raise UnsupportedError(op.name, no_rule(node))
        return varying, groups[0]

    def _rounding_count(
        self,
        i: int,
        node: Node,
        args: Sequence[NodeRange],
        sums: Sequence[RegionSum | None],
        group: Sequence[int],
        count: int,
        formed: int,
    ) -> RoundingCount:
        """Return how many roundings a term meets up to linear node `i`, its fusion region included.

        It is linear in the arguments `group`, has `count` roundings of its own, `formed` of them met by its constants
        while they were computed, and `sums` are those of merged arguments.
        """
        by_position: dict[int, RoundingCount] = {}
        for k in group:
            arg, s = node.args[k], sums[k]
            key = -1 - k if isinstance(arg, NumberArg) else arg
            by_position[key] = (
                s.roundings if s is not None else FIXED if args[k].constant else region_input(key, args[k].low.size)
            )
        size = math.prod(node.shape)
        spread, alone = cells_per_argument(node, size), quotient_roundings(node, count - formed) + formed
        return count_after_node(by_position, count, node.op.name in CELLWISE, i, size, spread, alone)

    def _magnitude_bound(
        self, node: Node, args: Sequence[NodeRange], sums: Sequence[RegionSum | None], group: Sequence[int], count: int
    ) -> int:
        """Return an integer that no partial result exceeds, before roundings are counted.

        Each of at most count + 1 terms has one factor of the group in which the node is linear, and one of every other.
        `args` are the ranges of the arguments, `sums` their maps where they are in the region.
        """
        sizes = [a.largest_factor if s is None else max(1, s.magnitude_bound) for a, s in zip(args, sums, strict=True)]
        if node.op.name == "div":
            sizes[1] = max(sizes[1], _largest_reciprocal(node, args[1].low))
        most = (count + 1) * max(sizes[k] for k in group)
        most *= math.prod(size for k, size in enumerate(sizes) if k not in group)
        if "divisor" not in node.params:
            return most
        given = node.params["divisor"]
        widest = 1 if isinstance(given, str) else math.ceil(abs(Fraction(given)) + 1 / abs(Fraction(given)))
        return most * (count + 1) * widest

    def _deviation(
        self,
        node: Node,
        args: Sequence[NodeRange],
        group: Sequence[int],
        sums: Sequence[RegionSum | None],
        merged: bool,
    ) -> Array:
        """Return how far deviations of the arguments move the exact map of `node`; the region's own where it has one.

        `group` are the arguments in which it is linear, `sums` those of merged arguments.

        merged   whether several cells may read one cell of a kernel that is multiplied out into each of them
        """
        if not self.model.fused:
            return zeros(node.shape)
        given = []
        for k, (a, s) in enumerate(zip(args, sums, strict=True)):
            moved = self._deviation_of(a) if s is None else s.merged_deviation if merged else s.deviation
            given.append(moved if k in group else np.abs(a.low))
        return absolute(node.op, given, node.params)

    def _rounded_range(self, i: int, node: Node, s: RegionSum) -> NodeRange:
        """Return the range of linear node i in float32, whose exact sum is s: the error of the reference, and the
        deviation of values from it.

        ReplayError if it may overflow.
        """
        grown = growth(s.roundings.total, self.model.digits)
        lost = rational(2 * (2 * s.roundings.total + 1) * s.magnitude_bound, 1 << SMALLEST)
        if s.magnitude_bound * (1 + grown) > LARGEST:
            raise ReplayError(f"node {node.name} may overflow in float32")
        error = outward(s.size * grown + lost, 1)
        low, high = outward(s.low - error, -1), outward(s.high + error, 1)
        ends = (low, high)
        if not self.model.fused:
            return NodeRange(low, high, ends, error=error, sum=s)
        nothing = zeros(node.shape)
        if i in self._recomputed:
            merged = outward(s.merged_deviation, 1)
            s = replace(s, deviation=merged, merged_deviation=merged)
            return NodeRange(low, high, ends, error=nothing, deviation=cells(merged + error), sum=s)
        if node.op.name in KERNELS:  # computed once: what it reads apart, it has read
            s, read = (
                replace(s, deviation=nothing, merged_deviation=outward(s.merged_deviation, 1)),
                outward(s.deviation, 1),
            )
            own = (read, error) if i in self._feeds_later_sum else (cells(read + error), nothing)
            return NodeRange(low, high, ends, error=own[0], deviation=own[1], sum=s)
        return NodeRange(
            low,
            high,
            ends,
            deviation=self._layout_deviation(node, cells(s.deviation + error)),
            sum=replace(s, deviation=outward(s.deviation, 1), merged_deviation=outward(s.merged_deviation, 1)),
        )

    def _layout_deviation(self, node: Node, otherwise: Array) -> Array:
        """Return the deviation of a layout node: that of its argument if nothing is rounded there, else the array
        `otherwise`.
        """
        repeats = fan_out(node, math.prod(node.shape)) > 1 and any(
            self._region_sum(node, g) is not None for g in node.args
        )
        if not is_layout(node) or repeats or any(a in self._feeds_later_sum for a in node.operands()):
            return otherwise
        return absolute(node.op, [self._deviation_of(self._argument(node, g)) for g in node.args], node.params)

    def _tightened(self, i: int) -> NodeRange:
        """Return the range of node `i`, narrowed by backward bounds of every cell that needs it.

        Those are cells whose reference may have either sign, or that an activation reads.
        """
        r, curved = self.ranges[i], any(n.op.name in ALWAYS_NONLINEAR for n in self.graph.nodes if i in n.operands())
        low, high = r.ends[0].copy(), r.ends[1].copy()
        for cell in np.ndindex(low.shape):
            if low[cell] < 0 < high[cell] or (curved and low[cell] < high[cell]):
                self.on_step()
                row = zeros(low.shape)
                row[cell] = rational(1)
                low[cell] = max(low[cell], self.lower(row, at=i))
                high[cell] = min(high[cell], -self.lower(-row, at=i))
        return self._with_reference_in(i, outward(low, -1), outward(high, 1))

    def _with_reference_in(self, i: int, low: Array, high: Array) -> NodeRange:
        """Return the range of node `i` if its reference lies in low..high; values are within `deviation` of it."""
        r = self.ranges[i]
        deviation = zeros(low.shape) if r.deviation is None else r.deviation
        return replace(
            r, low=larger(r.low, low - deviation), high=cells(-larger(-r.high, -high - deviation)), ends=(low, high)
        )

    # --- backward: linear functions -----------------------------------------------------------------------------

    def lower(self, row: Array, at: int | None = None, vectors: Mapping[int, Array] | None = None) -> Any:
        """Return a rational lower bound of sum(row * y) over the box.

        at        None: y are the output's values in any execution; i: y are node i's reference values, from which
                  executions deviate by at most `ranges[i].deviation`
        vectors   relu's position -> integers (positions, cells), coefficients of relus of a convolution that are
                  bounded together (specgrad.proof.exact.multi_neuron)
        """
        start = self.output if at is None else at
        shape = self.graph.nodes[start].shape
        outer: dict[int, Array] = {start: cells(row).reshape(shape)}  # coefficients of values
        inner: dict[int, Array] = {}  # by node: coefficients of a layer's exact map, inside that layer
        bound, deviation = rational(0), self.ranges[start].deviation
        if at is None and deviation is not None:
            bound -= total(np.abs(outer[start]) * deviation)
        for i in range(start, -1, -1):
            node, r = self.graph.nodes[i], self.ranges[i]
            computed, mapped = outer.pop(i, None), inner.pop(i, None)
            if computed is not None and r.error is not None:
                bound -= total(np.abs(computed) * r.error)
            parts = [a for a in (computed, mapped) if a is not None]
            if parts:
                a = parts[0] if len(parts) == 1 else parts[0] + parts[1]
                if vectors and i in vectors:
                    bound += self._through_relu_and_conv(node, a, vectors[i], outer)
                else:
                    bound += self._through_node(i, node, a, outer, inner)
        return bound

    def _through_relu_and_conv(self, node: Node, a: Array, given: Array, outer: dict[int, Array]) -> Any:
        """Replace a relu with coefficients `a` and its convolution by what the convolution reads; return the constant
        that is left.

        New coefficients go to `outer`; `given` are the certificate's vectors.

        ReplayError unless the weights are constant and nothing is merged before it.
        """
        from . import multi_neuron as pieces

        position, source = pieces.conv_behind_relu(self.graph, node)
        conv = self.graph.nodes[position]
        if self._is_inside_layer(conv, source):
            raise ReplayError(f"node {node.name} is no relu of a convolution by itself")
        args = [self._argument(conv, g) for g in conv.args]
        if not all(r.constant for r in args[1:]) or args[0].constant:
            raise ReplayError(f"node {conv.name} has weights that vary, or nothing that varies")
        if position not in self.cuts:
            self.cuts[position] = pieces.split_conv(conv, args[1].low, args[2].low if len(args) > 2 else None, args[0])
        cut, z = self.cuts[position], self.ranges[position]
        coefficients, constant = cut.through(
            pieces.by_position(a), pieces.checked_vectors(given, node.name, cut.reach[:, 0].shape)
        )
        _add_coefficients(outer, source, coefficients)
        reaches = np.where(z.ends[1] > 0, z.error, rational(0))  # relu changes no more than what it reads
        return constant - total(np.abs(a) * reaches)

    def _through_node(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        """Replace node `i`, with coefficients `a`, by its arguments, and return the constant that is left.

        Coefficients of the arguments' computed values go to `outer`; those of exact maps inside one merged layer, whose
        roundings are charged at the layer's end, to `inner`. Both are by node, and added to.
        """
        self.on_step()
        r = self.ranges[i]
        if node.op is INPUT or r.constant:
            return total(np.where(a > 0, a * r.low, a * r.high))
        if node.op.name in ("relu", "max_pool", *ALWAYS_NONLINEAR):
            (arg,) = node.operands()
            if i not in self._lines_cache:
                self._lines_cache[i] = self._lines(i, node, self.ranges[arg])
            below, above = self._lines_cache[i]
            coefficients, constant = _backward_rule(node.op.name)(node, a, below, above)
            _add_coefficients(outer, arg, coefficients)
            return constant
        return self._through_linear(i, node, a, outer, inner)

    def _lines(self, i: int, node: Node, x: NodeRange) -> tuple[Any, Any]:
        """Return the lower and upper lines of node `i`: slopes and intercepts; lower lines of relu and max_pool have no
        intercept.

        ReplayError if the certificate lacks them, or has some that do not fit.
        """
        given = self.slopes.get(i)
        if node.op.name == SMOOTH:
            if given is not None:
                raise ReplayError(
                    f"node {node.name} is a smooth maximum: its planes are the checker's own, not the file's"
                )
            from .logsumexp_pool import smooth_lines

            return smooth_lines(node, x)
        if given is None and node.op.name in CURVED:
            from .activations import default_points

            given = Slopes(*default_points(node, x, DEFAULT_POINT_SCALE), DEFAULT_POINT_SCALE)
        if given is None:
            raise ReplayError(f"the slopes of node {node.name} are missing")
        taps = (sum(1 for _ in node.params["window"].taps()),) if "window" in node.params else ()
        signed = node.op.name in CURVED
        for slopes in (given.lower, given.upper):
            if (
                slopes.shape != taps + node.shape
                or slopes.dtype.kind not in "iu"
                or ((slopes < 0).any() and not signed)
            ):
                raise ReplayError(f"the slopes of node {node.name} must be whole, not negative, of {taps + node.shape}")
        if signed:
            from .activations import curve_lines

            return curve_lines(node, x, given.lower, given.upper, given.scale)
        lower, upper = (cells(rationals(s) * rational(1, given.scale)) for s in (given.lower, given.upper))
        return relu_lines(node, x, lower, upper) if not taps else max_lines(node, x, lower, upper)

    def _through_linear(self, i: int, node: Node, a: Array, outer: dict[int, Array], inner: dict[int, Array]) -> Any:
        """Replace the linear node `i` by its varying arguments, by its adjoint; return the constant that is left.

        `a` are its coefficients; those of arguments are added to `inner` if they belong to the same layer, else to
        `outer`.
        """
        args = [self._argument(node, g) for g in node.args]
        varying, _ = self._linear_in(node, args)
        fixed = [zeros(r.low.shape) if k in varying else r.low for k, r in enumerate(args)]
        if i not in self._adjoints:
            self._adjoints[i] = adjoint(node.op, [f.shape for f in fixed], node.params, varying)
        for k, coefficients in zip(varying, self._adjoints[i](*fixed, a), strict=True):
            _add_coefficients(inner if self._is_inside_layer(node, node.args[k]) else outer, node.args[k], coefficients)
        offset = run_spec(node.op, fixed, node.params)
        return total(a * offset)


ALWAYS_NONLINEAR = (*CURVED, SMOOTH)  # on every interval, unlike relu and max_pool


def _backward_rule(name: str) -> Callable[..., tuple[Array, Any]]:
    """Return the function that replaces the nonlinear operator `name` by its argument, given coefficients and lines.

    `name` is "relu", "max_pool", SMOOTH, or that of a curve.
    """
    if name == "relu":
        return through_relu
    if name == "max_pool":
        return through_max
    if name == SMOOTH:
        from .logsumexp_pool import through_smooth

        return through_smooth
    from .activations import through_curve

    return through_curve


def _add_coefficients(by_position: dict[int, Array], position: Any, coefficients: Array) -> None:
    """Add coefficients to those of a position in `by_position`, or enter them."""
    by_position[position] = by_position[position] + coefficients if position in by_position else coefficients


def _largest_reciprocal(node: Node, x: Array) -> int:
    """Return the largest 1/abs(x), rounded up; raise ReplayError if some x is 0."""
    if any(v == 0 for v in x.flat):
        raise ReplayError(f"node {node.name} divides by 0")
    return max((-(-int(v.q) // abs(int(v.p))) for v in x.flat), default=1)
