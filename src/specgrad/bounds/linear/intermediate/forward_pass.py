"""The balls of a graph's nodes in order, and what the backward pass needs to know of each: layer, errors, sizes.

What is bounded is one *reference* value per node. By node it is the value that is stored, the only one there is, and
each layer adds its rounding. Fused, runtimes merge nodes and compute cheap ones again for every reader, so a node may
have several values, each within its `deviation` of the reference:

    convolution, matrix product     is computed once. The reference is its value where nothing linear follows it, else
                                    its exact map. Deviations of what it reads, through absolute weights, are its error;
                                    of a later sum too, whose cells read one cell of it several times: it may be
                                    multiplied out into each of them, and each may read other values. Where several
                                    nodes read a cell, and one of them is linear, its values are apart by that at once
    the rest of its region          the reference is the exact map; the region's rounding is a deviation of the result
    relu, max_pool, functions       the reference is the function of the reference; deviations pass as far as the
                                    function is steep, or jumps (specgrad.bounds.linear.intermediate.deviation)

Boxes of the backward pass (state.ends) hold references, balls hold every value. A split by sign splits the reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from specgrad.bounds.interval_bounds import REAL, checked, is_unbounded
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.ops.elementwise import DIV
from specgrad.rounding.ball import SLACK, Ball, Expansion, hull
from specgrad.rounding.context import Context, at_least_1, exact_error
from specgrad.rounding.fusion_region import region_input
from specgrad.rounding.layers.softmax import lost_below
from specgrad.rounding.linear import magnitude, stored_error, underflow
from specgrad.rounding.propagate import (
    continues_region,
    feeds_later_sum,
    most_readers,
    node_ball,
    recomputed_per_reader,
)
from specgrad.rounding.slack_constants import MIDDLE, MOST, RANGE, SINGLE_FLUSH
from specgrad.scalar import Array

from ..propagation.backward import SUMS, State
from ..propagation.budget import ComputeBudget
from ..relaxation.bound_layers import (
    BoundConv,
    BoundJoint,
    BoundLayer,
    BoundLinear,
    BoundOpaque,
    BoundRelaxed,
    BoundSelect,
    Centre,
    rows_dot,
    tensor,
)
from ..relaxation.input_ball import BoundInputBall, InputBall
from ..relaxation.multi_input import BoundBilinear, BoundMaximum, BoundQuotient, BoundScatter, candidates
from ..relaxation.select_layer import layer_of
from ..relaxation.softmax import (
    BoundSoftmax,
    SoftmaxNodes,
    exp_relative_error,
    exp_sum_error,
    match_exp_sum,
    match_shift_by_max,
    quotient_error,
)
from ..relaxation.step_functions import STEP_OFFSET, BoundStep
from .deviation import output_deviation

SINGLE_BOXES = 2.0**-10  # radii of the inputs as a share of their sizes, from which on float32 is good enough


@dataclass(eq=False)
class ForwardPass:
    """One pass over a graph, node by node: balls of all values, and the State that backward bounds need.

    depth              layers that mix cells, or need a relaxation, between a node and the inputs
    local_error_balls  of linear layers: the ball with nothing carried in, its radius being the region's own rounding
    region_deviation   of linear layers: deviations carried in, as the rest of the region sees them
    expanded_deviation deviations carried in where kernels may be multiplied out into several cells, each reading its
                       own values
    deviation          bound of how far any value of a node may be from its reference
    relaxation_depth   relaxations between a node and the inputs
    closed_share       share of cells that a short pass decided the last time, by its depth (tighten.py)
    rules              arithmetic of the executions and its rounding rules (specgrad.rounding)
    budget             seconds and bytes that the work may take
    input_ball         a ball that the only input lies in, besides its box
    input_extent       of the inputs' boxes: the sum of their radii, and of their sizes
    unbounded          names of nodes without finite bounds; infeasible: some interval became empty
    """

    graph: Graph
    rules: Context
    inputs: dict[int, Any]
    budget: ComputeBudget = field(default_factory=ComputeBudget)
    input_ball: InputBall | None = None
    balls: list[Ball] = field(default_factory=list)
    depth: dict[int, int] = field(default_factory=dict)
    local_error_balls: dict[int, Ball] = field(default_factory=dict)
    region_deviation: dict[int, Array] = field(default_factory=dict)
    expanded_deviation: dict[int, Array] = field(default_factory=dict)
    deviation: dict[int, Array] = field(default_factory=dict)
    relaxation_depth: dict[int, int] = field(default_factory=dict)
    closed_share: dict[int, float] = field(default_factory=dict)
    input_extent: Array = field(default_factory=lambda: np.zeros(2))
    unbounded: list[str] = field(default_factory=list)
    infeasible: bool = False

    def __post_init__(self) -> None:
        read = Counter(a for n in self.graph.nodes for a in n.operands()) + Counter(self.graph.output_positions)
        self.state = State(len(self.graph.nodes), readers=read, budget=self.budget)
        self._faster = self.state.with_float32_conv()
        self._parallel = {state.fast: state.with_parallel_lines() for state in (self.state, self._faster)}
        fused = self.rules.arithmetic.fused
        self.summed = feeds_later_sum(self.graph, self.rules) if fused else frozenset()
        self.recomputed_per_reader = recomputed_per_reader(self.graph, self.rules) if fused else frozenset()

    @property
    def layers(self) -> dict[int, BoundLayer]:
        """Bound layers of the varying nodes, by position."""
        return self.state.layers

    @property
    def fast(self) -> State:
        """State for tightening hidden nodes: with float32 convolutions where that is accurate and fast enough."""
        return self._faster if self._is_single else self.state

    @property
    def short(self) -> State:
        """Return the State for backward passes that end after few layers: both lines of a relaxation have one slope,
        unless some layer has several sources.
        """
        if any(isinstance(layer, BoundJoint) for layer in self.layers.values()):  # which have no lines
            return self._faster if self._is_single else self.state
        return self._parallel[self._is_single]

    @property
    def _is_single(self) -> bool:
        """Whether float32 convolutions are used for hidden nodes: the input box is wide, and some convolution gains."""
        radii, sizes = self.input_extent
        return bool(radii > SINGLE_BOXES * sizes) and any(
            isinstance(layer, BoundConv) and layer.uses_float32 for layer in self.layers.values()
        )

    def truncation_nodes(self, i: int, rung: int) -> list[int]:
        """Relaxed layers that are `rung` relaxations or more below node i, where a short pass ends; empty if there are
        none.
        """
        level = self.relaxation_depth.get(i, 0) - rung
        return [j for j, k in self.relaxation_depth.items() if k <= level and isinstance(self.layers[j], BoundRelaxed)]

    def visit(self, i: int) -> None:
        """Append the ball of node i to `balls` and, if it varies, register its bound layer.

        Nodes go in order, each once. A node without finite bounds is added to `unbounded`.
        """
        node = self.graph.nodes[i]
        ball = node_ball(self.graph, i, node, self.balls, self.inputs, self.rules)
        self.balls.append(checked(node, ball, [self.balls[a] for a in node.operands()]))
        if is_unbounded(node, self.balls[i]) or (node.kind == "real" and np.max(self.balls[i].size, initial=0) > MOST):
            self.unbounded.append(node.name)
        if node.op is INPUT or node.op is CONSTANT:
            if isinstance(self.inputs.get(i), Ball):
                self._add_input(i, node)
        elif self._depends_on_boxes(i, node):
            self._add_layer(i, node)
        elif self._is_exact_copy(i, node) or self._is_looked_up(i, node):
            self._add_input(i, node)

    def _add_input(self, i: int, node: Node) -> None:
        """Register node i as an input: one value, bounded by its ball alone."""
        self.deviation[i] = np.zeros(node.shape)
        self.input_extent += self.balls[i].radius.sum(), self.balls[i].size.sum()
        known = node.op is INPUT and self.input_ball is not None
        layer = (
            BoundInputBall(i, node, self.input_ball)
            if known and self.input_ball is not None
            else BoundOpaque(i, node, ())
        )
        self._register_layer(layer, 0, np.zeros(node.shape), self.balls[i].size)

    def _is_exact_copy(self, i: int, node: Node) -> bool:
        """Whether the node only moves or selects exact inputs, without any sum: then it is registered as an input."""
        read = [a for a in node.operands() if a in self.layers]
        if node.kind != "real" or not read or not self.balls[i].is_exact or self.balls[i].expansion is not None:
            return False
        return all(self.balls[a].is_exact and isinstance(self.layers[a], BoundOpaque) for a in read)

    def _is_looked_up(self, i: int, node: Node) -> bool:
        """Whether the node is exactly what an input of indices chooses, as rows of an embedding: all that follows
        rounds, and may be bounded backwards as if that were the input.
        """
        if node.kind != "real" or not self.balls[i].is_exact or self.balls[i].expansion is not None:
            return False
        return any(self.graph.nodes[a].kind == "index" and a not in self.rules.constants for a in node.operands())

    def _depends_on_boxes(self, i: int, node: Node) -> bool:
        """Whether the node depends on the input boxes: through its operands' values, or through undecided indices."""
        depends = any(a in self.layers or self._is_undecided_index(a) for a in node.operands())
        return depends and node.kind == "real" and bool(self.balls[i].radius.any())

    def _is_undecided_index(self, a: int) -> bool:
        """Whether node `a` is an index that the boxes leave undecided."""
        return self.graph.nodes[a].kind == "index" and not self.balls[a].is_exact

    def _add_layer(self, i: int, node: Node) -> None:
        """Make and register the bound layer of node i, with its error, size and deviation."""
        layer = self._make_layer(i, node)
        if isinstance(layer, BoundOpaque) or self.unbounded:
            error, size = np.zeros(node.shape), self.balls[i].size
        elif isinstance(layer, BoundLinear | BoundBilinear) and not node.op.transcendental:
            error, size = self._linear_error(i, node)
            size = size * (1 if isinstance(layer, BoundLinear) else 4)  # a product has four terms of that size
        elif isinstance(layer, BoundQuotient):
            error, size = self._quotient_error(i, node)
        elif isinstance(layer, BoundScatter):
            error, size = self._put_error(i, node)
        elif isinstance(layer, BoundSoftmax):
            error, size = self._softmax_error(layer), self.balls[i].size
        else:
            error, size = self._function_error(i, node)
            if isinstance(layer, BoundMaximum):
                size = sum((self._largest_size(a) for a in node.operands()), size)
        self.deviation[i] = np.zeros(node.shape)
        if self.rules.arithmetic.fused and not self.unbounded:
            error = self._set_deviation(i, node, layer, error)
        mixes = not node.op.exact or not isinstance(layer, BoundLinear)
        depth = max((self.depth[s] for s in layer.sources), default=0) + int(mixes)
        self._register_layer(layer, depth, error, size)
        if not self.unbounded:
            self._narrow_softmax(i, layer)
        if not self.rules.arithmetic.fused and not isinstance(layer, BoundSoftmax):
            self.state.merged |= {(s, i) for s in layer.sources if self.same_region(s, i)}

    def _make_layer(self, i: int, node: Node) -> BoundLayer:
        """Return the bound layer of node i; opaque where errors of a softmax are unbounded or an index has no
        candidates.
        """
        sources = tuple(a for a in node.operands() if a in self.layers)
        open_ = [a for a in node.operands() if self._is_undecided_index(a)]
        if open_:
            gy, index = (self.balls[a] for a in node.operands()[:2])
            known = node.op.name == "put" and index.candidates is not None
            return BoundScatter(i, node, sources, gy, index) if known else BoundOpaque(i, node, sources)
        if (gate := self._make_select(i, node)) is not None:
            return gate
        if node.op in STEP_OFFSET and sources:
            return BoundStep(i, node, sources, self.rules.arithmetic.tiny if self.rules.arithmetic.flush else 0.0)
        layer = layer_of(self.graph, i, self.layers, self._constant_balls(node))
        if isinstance(layer, BoundSoftmax) and (self.unbounded or not np.isfinite(self._softmax_error(layer)).all()):
            return BoundOpaque(i, node, sources)
        return layer

    def _constant_balls(self, node: Node) -> dict[int, Ball]:
        """Balls of the node's operands that do not vary, by position."""
        return {a: self.balls[a] for a in node.operands() if a not in self.layers}

    def _register_layer(self, layer: BoundLayer, depth: int, error: Array, size: Array) -> None:
        """Store a layer in the state with its depth, error bound and size, and its ball as interval."""
        i, state = layer.position, self.state
        state.layers[i], self.depth[i] = layer, depth
        below = max((self.relaxation_depth[s] for s in layer.sources), default=0)
        self.relaxation_depth[i] = below + int(isinstance(layer, BoundRelaxed))
        state.errors[i], state.sizes[i] = tensor(error)[None], tensor(size)[None]
        if isinstance(layer, BoundConv):
            state.underflow_losses[i] = (
                layer.float32_roundings * SINGLE_FLUSH * float(self._largest_size(layer.sources[0]).sum())
            )
            self._set_centre(layer)
        self._set_interval(i)

    def _set_centre(self, layer: BoundConv) -> None:
        """Store the middle of what convolution `layer` reads, if objectives may go through it in float32."""
        (source,), node = layer.sources, layer.node
        low, high = self.balls[source].low, self.balls[source].high
        if not (self._is_single and layer.uses_float32 and np.isfinite(low).all() and np.isfinite(high).all()):
            return
        middle = low / 2 + high / 2
        sizes = [np.zeros(s.shape) if k == 2 else s for k, s in enumerate(self._argument_sizes(node))]
        sizes[0] = np.maximum(high - middle, middle - low) * MIDDLE
        reach = np.broadcast_to(magnitude(self.rules, node.op, sizes, node.params) * SUMS, node.shape)
        point = tensor(middle)[None]
        self.state.centres[layer.position] = Centre(point, layer.image(point), tensor(reach)[None])

    def _set_interval(self, i: int) -> None:
        """Set the interval of node i in the state to that of its ball."""
        self.state.intervals[i] = tensor(self.balls[i].low)[None], tensor(self.balls[i].high)[None]

    def narrow(self, i: int, low: Array, high: Array) -> None:
        """Replace the interval of node i's reference by low..high, and narrow its ball; an empty interval sets
        `infeasible`.
        """
        self.infeasible |= bool((low > high).any())
        low, high = np.minimum(low, high), np.maximum(low, high)
        if i in self.layers:
            self.state.intervals[i] = tensor(low)[None], tensor(high)[None]
        apart, old = self.deviation.get(i, 0.0) * SLACK, self.balls[i]
        new = hull(*_intersect_ball(low - apart, high + apart, old), old.value)
        e = old.expansion  # which is about the old middle
        if e is not None:
            e = replace(e, carried=(e.carried + np.abs(new.value - old.value)) * SLACK)
        self.balls[i] = Ball(new.value, new.radius, expansion=e, ends=new.ends)

    def interval(self, i: int) -> tuple[Array, Array]:
        """(lower, upper) of node i's reference as new arrays."""
        if i not in self.layers:
            return self.balls[i].low.copy(), self.balls[i].high.copy()
        low, high = (end[0].numpy().copy() for end in self.state.intervals[i])
        return low, high

    @property
    def varies(self) -> bool:
        """Whether every layer is bounded, and the only output depends on the input.

        Where it does not, its ball is all there is to know (`output_bounds`): no line, no cut and no slope moves it.
        """
        return not self.unbounded and self.graph.output_positions[0] in self.layers

    def slack(self, p: int, rows: Tensor) -> Tensor:
        """Bound (boxes, rows) of abs(rows.(value - reference)) of node p, for rows (boxes, rows, cells)."""
        return rows_dot(rows.abs(), tensor(self.deviation[p]).reshape(1, -1)) * SUMS

    # --- several values of one node ---------------------------------------------------------------------------------

    def _set_deviation(self, i: int, node: Node, layer: BoundLayer, error: Array) -> Array:
        """Set the deviation of node i from its reference.

        Return the error, per cell, that the layer itself must still be charged. `error` bounds its own rounding.
        """
        if isinstance(layer, BoundSoftmax):
            self.deviation[i] = error
            return np.zeros(node.shape)
        if not isinstance(layer, BoundLinear | BoundBilinear | BoundQuotient) or node.op.transcendental:
            self.deviation[i] = output_deviation(self.rules, node, self.balls, self.deviation, i) + error
            return np.zeros(node.shape)
        sources, repeats = self._argument_positions(node), most_readers(self.graph, i) > 1
        values = [self.deviation.get(a) for a in sources]
        inside = [a for a in sources if a >= 0 and self.same_region(a, i)]
        read = self.expanded_deviation if repeats else self.region_deviation
        nothing, carried = (
            np.zeros(node.shape),
            self.propagated_deviation(node, self._argument_deviations(sources, inside, read)),
        )
        self.expanded_deviation[i] = (
            carried
            if repeats
            else self.propagated_deviation(node, self._argument_deviations(sources, inside, self.expanded_deviation))
        )
        if i in self.recomputed_per_reader:
            self.region_deviation[i] = self.expanded_deviation[i]
            self.deviation[i] = self.expanded_deviation[i] + error
            return nothing
        once = node.op.kernel or i in self.rules.stored_nodes
        common, self.region_deviation[i] = (carried, nothing) if once else (nothing, carried)
        if once and i not in self.summed:
            return common + error
        moves = not self.summed & set(node.operands()) and not (repeats and inside)
        if node.op.exact and moves:  # layout of values, not of sums to come, nor of one that each reader computes
            error = exact_error(self.rules, node, self.balls[i], self._constant_balls(node))
            self.deviation[i] = self.propagated_deviation(node, values) + error
        else:
            self.deviation[i] = self.region_deviation[i] + error
        return common

    def _argument_deviations(
        self, sources: Sequence[int], inside: Sequence[int], read: dict[int, Array]
    ) -> list[Array | None]:
        """Return the deviations of the nodes `sources`: from `read` for those in `inside` (same region), else the
        stored ones; None for a node without.
        """
        return [read[a] if a in inside else self.deviation.get(a) for a in sources]

    def _argument_positions(self, node: Node) -> list[int]:
        """Positions of the node's arguments, -1 for numbers."""
        return [a if isinstance(a, int) else -1 for a in node.args]

    def propagated_deviation(self, node: Node, reads: Sequence[Array | None]) -> Array:
        """Deviation of the result of a linear node, from deviations of its arguments through absolute weights; or of a
        quotient: x'/y' - x/y = (x' - x)/y' - x/y*(y' - y)/y'.

        `reads` are those deviations in order, None for an argument without.
        """
        total: Array | float = 0.0
        sizes, groups = self._argument_sizes(node), node.op.linear_groups(len(node.args)) or ((0,),)
        for k, apart in enumerate(reads):
            if apart is not None and apart.any() and k == 1 and node.op is DIV:
                with np.errstate(all="ignore"):
                    total = total + sizes[0] / sizes[1] * apart / sizes[1]
            elif apart is not None and apart.any():
                group = next(g for g in groups if k in g)
                given = [np.zeros(s.shape) if j in group else s for j, s in enumerate(sizes)]
                given[k] = apart
                with np.errstate(all="ignore"):
                    total = total + magnitude(self.rules, node.op, given, node.params)
        return np.asarray(np.broadcast_to(total, node.shape)) * SUMS

    # --- errors of a layer ------------------------------------------------------------------------------------------

    def _linear_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """Return (error, size), per cell, of node i, a linear layer: its own rounding, its inputs being exact, and the
        sum of the absolute values of its terms.
        """
        known = {a: self._without_incoming_error(a, i) for a in node.operands()}
        rules = replace(self.rules, reach=self.balls[i].size)
        self.local_error_balls[i] = node_ball(self.graph, i, node, known, self.inputs, rules)
        with np.errstate(all="ignore"):
            size = magnitude(self.rules, node.op, self._argument_sizes(node), node.params)
        return self.local_error_balls[i].radius, np.broadcast_to(size, node.shape)

    def _argument_sizes(self, node: Node) -> list[Array]:
        """Largest absolute values of the node's arguments; of a divisor the least one."""
        sizes = [self._largest_size(a) if isinstance(a, int) else np.asarray(abs(float(a.value))) for a in node.args]
        if node.op.name == "div" and isinstance(node.args[1], int):
            sizes[1] = self.balls[node.args[1]].least
        return sizes

    def _largest_size(self, a: int) -> Array:
        """Largest absolute value of every cell of node a; of an index its value."""
        ball = self.balls[a]
        return ball.value if ball.value.dtype.kind == "i" else ball.size

    def _without_incoming_error(self, a: int, user: int) -> Ball:
        """Ball of argument `a` with no error carried in: its radius belongs to the layers below.

        An exact operator's rule may look at the radius itself, so it gets none. `user` is the position of the node that
        reads it; in one region with it, errors of `a` count as its own.
        """
        ball, node = self.balls[a], self.graph.nodes[user]
        if a not in self.layers:
            return ball
        if self.same_region(a, user):
            return self.local_error_balls[a]
        nothing, size = np.zeros(ball.shape), ball.size
        inner = Expansion(node.group, nothing, size, size, at_least_1(size), region_input(a, ball.value.size))
        return Ball(ball.value, nothing if node.op.exact else ball.radius, expansion=inner, ends=ball.ends)

    def same_region(self, source: int, user: int) -> bool:
        """Whether a runtime may compute nodes `source` and `user` in one kernel: rounding of both is then counted at
        the user. A divisor is a number that is computed before.
        """
        shadow, node = self.local_error_balls.get(source), self.graph.nodes[user]
        if shadow is None or shadow.expansion is None or source in self.rules.stored_nodes:
            return False
        if node.op is DIV and node.args[1] == source:
            return False
        return shadow.expansion.group == node.group or continues_region(self.graph, user, self.rules)

    def _function_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """Return (error, size), per cell, of node i, a nonlinear layer.

        error   how far the computed range reaches beyond the exact one, at its worse end; inf if that has no end
        size    the largest absolute value that the node's ball holds
        """
        size = self.balls[i].size
        if node.op.exact:
            return exact_error(self.rules, node, self.balls[i], self._constant_balls(node)), size
        real = replace(self.rules, arithmetic=REAL, undecided=set())
        ball, exact = self.balls[i], node_ball(self.graph, i, node, self.balls, self.inputs, real)
        with np.errstate(invalid="ignore"):
            wider = np.maximum(np.maximum(ball.high - exact.high, exact.low - ball.low), 0.0)
        return np.where(np.isfinite(exact.radius), wider, np.inf) + RANGE * size, size

    def _quotient_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """Return (error, size), per cell, of node i, x/y with a y that varies: its own rounding at any x and y of their
        balls, and what the terms of the plane that touches it add up to.

        The rounding grows with abs(x) and is convex in abs(y), so that it is that of one end of y's range; but for a
        reciprocal that may be subnormal, of which both ends are added.
        """
        divisor = node.operands()[-1]
        x, y = self._argument_sizes(node)[0], self.balls[divisor]
        rules = replace(self.rules, reach=self.balls[i].size)
        known = {a: self._without_incoming_error(a, i) for a in node.operands()}
        least, most = (
            node_ball(self.graph, i, node, known | {divisor: Ball(end, 0 * end)}, self.inputs, rules)
            for end in (y.least, y.size)
        )
        ends = least.radius, most.radius
        error = np.where(y.size > rules.arithmetic.format.largest_divisor, sum(ends), np.maximum(*ends))
        self.local_error_balls[i] = replace(least, value=self.balls[i].value, radius=error)
        with np.errstate(all="ignore"):
            return error, np.broadcast_to(4 * (x / y.least) * (y.size / y.least), node.shape)

    def _put_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """Return (error, size) of a scatter-add: the roundings of cells that several values are added to, with the
        radius of constant values, and 4 times the sizes.
        """
        gy, index = (self.balls[a] for a in node.operands())
        varies = node.operands()[0] in self.layers
        destinations = candidates(index, math.prod(node.params["size"]))
        sizes, visits, radii = (
            scatter_to_candidates(v, destinations, node) for v in (gy.size, np.ones(gy.shape), gy.radius)
        )
        count = np.maximum(visits - 1, 0)
        stores = int(self.rules.arithmetic.stores)
        error = stored_error(self.rules.arithmetic, sizes, count, stores) + underflow(
            self.rules.arithmetic, count, stores
        )
        return np.where(count == 0, 0.0, error) * SUMS + (0.0 if varies else radii * SUMS), 4 * sizes

    # --- softmax ------------------------------------------------------------------------------------------------------

    def _softmax_error(self, layer: BoundSoftmax) -> Array:
        """Error bound of a softmax layer: the rounding of all its nodes, as one error of the result."""
        parts, (_, most) = layer.parts, layer.interval(self.state.intervals[layer.parts.source])
        least = np.maximum(float(bool(parts.shift)) / 2, self.balls[parts.total[-1]].low)
        taps = layer.node.shape[parts.axis]
        with np.errstate(all="ignore"):
            return quotient_error(self.rules.arithmetic, self._exp_error(parts), taps, most[0].numpy(), least)

    def _exp_error(self, parts: SoftmaxNodes) -> Array:
        """Return a bound of the relative error of the exponentials of the softmax `parts`, against those of its
        source's reference; of those that underflow however they are computed the sum charges what is lost.
        """
        z = parts.exponent
        moved = self.deviation[z] if z in self.layers else self.balls[z].radius
        if parts.shift:
            moved = self._value_error(z) + self._shift_error(parts.source, z, parts.shift)
            moved = np.where(self.balls[z].high < lost_below(self.rules.arithmetic.format.tiny), 0.0, moved)
        return exp_relative_error(self.rules.arithmetic, moved, parts.axis)

    def _shift_error(self, source: int, user: int, chain: Sequence[int]) -> float:
        """Return a bound of how far the maximum that node `user` subtracts may be from the largest reference of the
        cells of `source`.

        `chain` are the nodes between the maximum and `user`; each adds its own rounding error.
        """
        read = [*chain, source] if self.same_region(source, user) else chain
        return float(sum(np.max(self._value_error(p)) for p in read))

    def _value_error(self, p: int) -> Array:
        """Bound per cell of how far values of node p may be from its exact function of what it reads."""
        return self.deviation[p] + self.state.errors[p][0].numpy() if p in self.layers else self.balls[p].radius

    def _narrow_softmax(self, i: int, layer: BoundLayer) -> None:
        """Narrow the interval of node i, whose bound layer is `layer`, if it is part of a softmax: its result lies in
        the softmax's interval, x - max x is at most 0, the sum of exponentials at least 1.
        """
        low, high = self.interval(i)
        error = self.state.errors[i][0].numpy() * SLACK
        if isinstance(layer, BoundSoftmax):
            least, most = (end[0].numpy() for end in layer.interval(self.state.intervals[layer.parts.source]))
            low, high = np.maximum(low, least - error), np.minimum(high, most + error)
        elif (chain := match_shift_by_max(self.graph, i)) is not None:
            top = error + self._shift_error(self.graph.nodes[i].operands()[0], i, chain)
            low, high = np.minimum(low, top), np.minimum(high, top)
        elif (parts := match_exp_sum(self.graph, i)) is not None:
            taps = self.graph.nodes[parts.numerator].shape[parts.axis]
            relative, lost = exp_sum_error(self.rules.arithmetic, self._exp_error(parts), taps)
            one = np.maximum(1 - relative - lost, 0.0).reshape(low.shape) / SLACK
            low, high = np.maximum(low, one), np.maximum(high, one)
        else:
            return
        self.narrow(i, low, high)
        ball = self.balls[i]
        if (e := ball.expansion) is not None:  # its inputs move it no farther than that
            self.balls[i] = replace(ball, expansion=replace(e, carried=np.minimum(e.carried, ball.radius)))

    # --- gates --------------------------------------------------------------------------------------------------------

    def _make_select(self, i: int, node: Node) -> BoundSelect | None:
        """Return a BoundSelect for select(c, x, 0) or select(c, 0, x) with a varying condition c; else None."""
        if node.op.name != "select" or not isinstance(node.args[0], int) or node.args[0] not in self.layers:
            return None
        c = self.balls[node.args[0]]
        holds, fails = (
            np.broadcast_to(m, node.shape) for m in ((c.low > 0) | (c.high < 0), (c.low == 0) & (c.high == 0))
        )
        for x, other, keeps, drops in ((1, 2, holds, fails), (2, 1, fails, holds)):
            source = node.args[x]
            if isinstance(source, int) and source in self.layers and self._is_zero(node.args[other]):
                return BoundSelect(i, node, source, keeps, drops)
        return None

    def _is_zero(self, a: Any) -> bool:
        """Whether argument `a` is 0 everywhere."""
        return not self.balls[a].size.any() if isinstance(a, int) else a.value == 0


def _intersect_ball(low: Array, high: Array, old: Ball) -> tuple[Array, Array]:
    """Intersection of low..high with a ball's interval, cell by cell; low..high itself where that is empty."""
    least, most = np.fmax(low, old.low), np.fmin(high, old.high)
    return np.where(least <= most, least, low), np.where(least <= most, most, high)


def scatter_to_candidates(values: Array, destinations: tuple[Array, Array], node: Node) -> Array:
    """Return the output of a scatter-add node with each of `values` added at every cell where it may go.

    `destinations` are (cells, mask of valid ones), each (*shape of values, most), as `candidates` returns them: for
    values >= 0 an upper bound.
    """
    size = node.params["size"]
    cells, possible = destinations
    lead = values.shape[: values.ndim - len(size)]
    total = np.zeros((math.prod(lead), math.prod(size) + 1))
    plane = np.arange(math.prod(lead)).reshape(*lead, *(1,) * (cells.ndim - len(lead)))
    np.add.at(total, (np.broadcast_to(plane, cells.shape), cells), np.where(possible, values[..., None], 0.0))
    return total[:, :-1].reshape(node.shape)


def apply_signs(sign: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Intersect the interval low..high with split signs: -1 keeps what is not positive, 1 what is not negative, 0
    everything.
    """
    return np.where(sign > 0, np.maximum(low, 0.0), low), np.where(sign < 0, np.minimum(high, 0.0), high)
