"""The balls of a graph's nodes in order, and what the backward pass needs to know of each: layer, errors, sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph.graph import CONSTANT, INPUT, Graph, Node
from ..rounding.arithmetic import Arithmetic
from ..rounding.ball import SLACK, Ball, Expansion, hull
from ..rounding.context import Context
from ..rounding.linear import magnitude, stored_error, underflow
from ..rounding.report import fusible, node_ball
from ..scalar import Array
from .backward import State, U
from .classify import layer_of
from .ibp import checked, is_unbounded
from .joint import Bilinear, Larger, Routed, candidates
from .layers import Gate, Layer, Linear, Opaque, tensor


@dataclass(eq=False)
class Forward:
    """One walk over a graph, node by node.

    depth      how many layers that mix cells, or need a relaxation, stand between a node and the inputs
    shadows    of linear layers: the ball with nothing carried in, so that its radius is the layer's own error
    """

    graph: Graph
    rules: Context
    inputs: dict[int, Any]
    balls: list[Ball] = field(default_factory=list)
    depth: dict[int, int] = field(default_factory=dict)
    shadows: dict[int, Ball] = field(default_factory=dict)
    unbounded: list[str] = field(default_factory=list)
    infeasible: bool = False

    def __post_init__(self) -> None:
        self.state = State(len(self.graph.nodes))

    @property
    def layers(self) -> dict[int, Layer]:
        return self.state.layers

    def visit(self, i: int) -> None:
        """The ball of node i; its layer, if it varies."""
        node = self.graph.nodes[i]
        ball = node_ball(self.graph, i, node, self.balls, self.inputs, self.rules)
        self.balls.append(checked(node, ball, [self.balls[a] for a in node.operands()]))
        if is_unbounded(node, self.balls[i]):
            self.unbounded.append(node.name)
        if node.op is INPUT or node.op is CONSTANT:
            if isinstance(self.inputs.get(i), Ball):
                self._enter(Opaque(i, node, ()), 0, np.zeros(node.shape), self.balls[i].size)
        elif self._varies(i, node):
            self._add(i, node)

    def _varies(self, i: int, node: Node) -> bool:
        """Whether the node depends on the boxes: through numbers, or through positions that they leave open."""
        depends = any(a in self.layers or self._is_open(a) for a in node.operands())
        return depends and node.kind == "real" and bool(self.balls[i].radius.any())

    def _is_open(self, a: int) -> bool:
        return self.graph.nodes[a].kind == "index" and not self.balls[a].is_exact

    def _add(self, i: int, node: Node) -> None:
        layer = self._layer(i, node)
        if isinstance(layer, Opaque) or self.unbounded:
            error, size = np.zeros(node.shape), self.balls[i].size
        elif isinstance(layer, Linear | Bilinear) and not node.op.transcendental:
            error, size = self._linear_error(i, node)
            size = size * (1 if isinstance(layer, Linear) else 4)  # a product has four terms of that size
        elif isinstance(layer, Routed):
            error, size = self._put_error(i, node)
        else:
            error, size = self._function_error(i, node)
            if isinstance(layer, Larger):
                size = sum((self._size(a) for a in node.operands()), size)
        mixes = not node.op.exact or not isinstance(layer, Linear)
        depth = max((self.depth[s] for s in layer.sources), default=0) + int(mixes)
        self._enter(layer, depth, error, size)
        self.state.merged |= {(s, i) for s in layer.sources if self._merged(s, i)}

    def _layer(self, i: int, node: Node) -> Layer:
        sources = tuple(a for a in node.operands() if a in self.layers)
        open_ = [a for a in node.operands() if self._is_open(a)]
        if open_:
            gy, index = (self.balls[a] for a in node.operands()[:2])
            known = node.op.name == "put" and index.candidates is not None
            return Routed(i, node, sources, gy, index) if known else Opaque(i, node, sources)
        if (gate := self._gate(i, node)) is not None:
            return gate
        known_values = {a: self.balls[a].value for a in node.operands() if a not in self.layers}
        return layer_of(self.graph, i, self.layers, known_values)

    def _enter(self, layer: Layer, depth: int, error: Array, size: Array) -> None:
        i, state = layer.position, self.state
        state.layers[i], self.depth[i] = layer, depth
        state.errors[i], state.sizes[i] = tensor(error)[None], tensor(size)[None]
        self._set_ends(i)

    def _set_ends(self, i: int) -> None:
        self.state.ends[i] = tensor(self.balls[i].low)[None], tensor(self.balls[i].high)[None]

    def narrow(self, i: int, low: Array, high: Array) -> None:
        """Replace the box of node i; where nothing is left of it, no execution fits."""
        self.infeasible |= bool((low > high).any())
        new = hull(np.minimum(low, high), np.maximum(low, high), self.balls[i].value)
        self.balls[i] = Ball(new.value, new.radius, expansion=self.balls[i].expansion, ends=new.ends)
        if i in self.layers:
            self._set_ends(i)

    # --- errors of a layer ------------------------------------------------------------------------------------------

    def _linear_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """What the layer adds to its inputs' own errors, and the operator on absolute values."""
        known = {a: self._opened(a, fusible(node), node.op.exact) for a in node.operands()}
        self.shadows[i] = node_ball(self.graph, i, node, known, self.inputs, self.rules)
        sizes = [self._size(a) if isinstance(a, int) else np.asarray(abs(float(a.value))) for a in node.args]
        with np.errstate(all="ignore"):
            size = magnitude(self.rules, node.op, sizes, node.params)
        return self.shadows[i].radius, np.broadcast_to(size, node.shape)

    def _size(self, a: int) -> Array:
        ball = self.balls[a]
        return ball.value if ball.value.dtype.kind == "i" else ball.size

    def _opened(self, a: int, group: str, exact: bool) -> Ball:
        """An argument with nothing carried in: its radius belongs to the layers below.

        An exact operator's rule may look at the radius itself, so it gets none.
        """
        ball = self.balls[a]
        if a not in self.layers:
            return ball
        shadow = self.shadows.get(a)
        if shadow is not None and shadow.expansion is not None and shadow.expansion.group == group:
            return shadow
        nothing = Expansion(group, np.zeros(ball.shape), ball.size, ball.size, 0, 0)
        return Ball(ball.value, np.zeros(ball.shape) if exact else ball.radius, expansion=nothing, ends=ball.ends)

    def _merged(self, source: int, user: int) -> bool:
        shadow = self.shadows.get(source)
        group = fusible(self.graph.nodes[user])
        return (
            user in self.shadows
            and shadow is not None
            and shadow.expansion is not None
            and shadow.expansion.group == group
        )

    def _function_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """How much wider the deployed range is than the real one; the size of the result."""
        size = self.balls[i].size
        if node.op.exact and not self.rules.arithmetic.flush:
            return np.zeros(node.shape), size
        real = Context(Arithmetic("real"), self.rules.evaluate, largest=self.rules.largest, centred=True)
        ball, exact = (node_ball(self.graph, i, node, self.balls, self.inputs, run) for run in (self.rules, real))
        with np.errstate(invalid="ignore"):
            wider = np.maximum(np.maximum(ball.high - exact.high, exact.low - ball.low), 0.0)
        return np.where(np.isfinite(exact.radius), wider, np.inf) + 64 * U * size, size

    def _put_error(self, i: int, node: Node) -> tuple[Array, Array]:
        """Roundings where values meet in a cell; the radius of a constant; what may come together in size."""
        gy, index = (self.balls[a] for a in node.operands())
        varies = node.operands()[0] in self.layers
        found = candidates(index, math.prod(node.params["size"]))
        sizes, visits, radii = (scattered(v, found, node) for v in (gy.size, np.ones(gy.shape), gy.radius))
        count = np.maximum(visits - 1, 0)
        stores = int(self.rules.arithmetic.inner is not self.rules.arithmetic.format)
        error = stored_error(self.rules.arithmetic, sizes, count, stores) + underflow(
            self.rules.arithmetic, count, stores
        )
        return np.where(count == 0, 0.0, error) * SLACK + (0.0 if varies else radii * SLACK), 4 * sizes

    # --- gates --------------------------------------------------------------------------------------------------------

    def _gate(self, i: int, node: Node) -> Gate | None:
        """select(c, x, 0) or select(c, 0, x) with an open c: where it is surely x, and where surely 0."""
        if node.op.name != "select" or not isinstance(node.args[0], int) or node.args[0] not in self.layers:
            return None
        c = self.balls[node.args[0]]
        holds, fails = (
            np.broadcast_to(m, node.shape) for m in ((c.low > 0) | (c.high < 0), (c.low == 0) & (c.high == 0))
        )
        for x, other, keeps, drops in ((1, 2, holds, fails), (2, 1, fails, holds)):
            source = node.args[x]
            if isinstance(source, int) and source in self.layers and self._is_zero(node.args[other]):
                return Gate(i, node, source, keeps, drops)
        return None

    def _is_zero(self, a: Any) -> bool:
        return not self.balls[a].size.any() if isinstance(a, int) else a.value == 0


def scattered(values: Array, found: tuple[Array, Array], node: Node) -> Array:
    """The sum, cell by cell, of every value at each of its candidates."""
    size = node.params["size"]
    cells, possible = found
    lead = values.shape[: values.ndim - len(size)]
    total = np.zeros((math.prod(lead), math.prod(size) + 1))
    plane = np.arange(math.prod(lead)).reshape(*lead, *(1,) * (cells.ndim - len(lead)))
    np.add.at(total, (np.broadcast_to(plane, cells.shape), cells), np.where(possible, values[..., None], 0.0))
    return total[:, :-1].reshape(node.shape)


def signs_of(splits: Mapping[int, Array], i: int, ball: Ball) -> tuple[Array, Array]:
    """The box of node i after its splits: -1 keeps what is not positive, 1 what is not negative."""
    sign = splits[i]
    return np.where(sign > 0, np.maximum(ball.low, 0.0), ball.low), np.where(
        sign < 0, np.minimum(ball.high, 0.0), ball.high
    )
