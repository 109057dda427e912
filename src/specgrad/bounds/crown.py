"""Backward linear bounds (CROWN) that hold for the deployed network.

Layer by layer A.y is bounded by A'.x + c from the objective down to the inputs, where the box gives a number. A
deployed layer computes y = f(x) + e with abs(e) <= E on the whole box, so every layer costs abs(A).E more; our own
float64 roundings are bounded the same way, by abs(A).M with M = f on absolute values. Before a relaxation is made, the
box of its input is narrowed by the same propagation, where that can help.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ParameterError, ShapeError
from ..graph.graph import CONSTANT, INPUT, Graph
from ..graph.run import bind_inputs
from ..graph.tree import Tree, transform
from ..rounding.arithmetic import Arithmetic
from ..rounding.ball import Ball, Expansion, hull
from ..rounding.context import Context
from ..rounding.linear import magnitude
from ..rounding.report import fusible, node_ball
from ..scalar import Array
from .box import Bounds, Box, balls_of, box_like, box_of, example_of, numpy_of
from .ibp import box_context, checked, is_unbounded
from .layers import Layer, Linear, Opaque, Taps, layer_of, rows_dot, tensor

U = 2.0**-53
CHUNK = 1 << 25  # cells of an objective at a node that are held at once


def crown(
    graph: Graph,
    box: Tree,
    objective: Any = None,
    *,
    deployed: bool = True,
    arithmetic: Arithmetic | None = None,
    splits: Mapping[str, Any] | None = None,
) -> Bounds:
    """Bounds of the outputs, or of linear objectives of them, for all inputs in the box, by backward propagation.

    box          a Box, or a tuple with a Box or an array (or a structure of them) per argument of the graph
    objective    rows (S, n) over the outputs, flattened one after the other; None: every output by itself
    deployed     True: for every execution in `arithmetic` (float32 unless given), in any order of summation, as well as
                 for exact arithmetic; False: for exact arithmetic alone
    splits       name of a relu, or of its input, -> array of -1, 0, 1: only executions whose inputs of that relu are
                 negative (or 0), any, positive (or 0)

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x) - x, (1,))
    >>> found = crown(graph, Box([-1.0], [2.0]), deployed=False).outputs
    >>> bool(abs(found.low) < 1e-9), bool(abs(found.high - 1) < 1e-9)
    (True, True)
    """
    args = box if isinstance(box, tuple) else (box,)
    example = example_of(args)
    pass_ = Pass(graph, box_context(graph, deployed, arithmetic, "torch"), splits or {})
    pass_.run(bind_inputs(graph, balls_of(args)))
    rows = _rows(graph, objective)
    ends = pass_.output_ends(rows)
    return _answer(graph, pass_, objective is not None, ends, example)


def real_outputs(graph: Graph) -> list[int]:
    """Positions of the outputs that are numbers, as often as they are outputs; positions of winners have no bounds."""
    return [p for p in graph.output_positions if graph.nodes[p].kind == "real"]


def _rows(graph: Graph, objective: Any) -> Array:
    outs = sum(math.prod(graph.nodes[p].shape) for p in real_outputs(graph))
    if objective is None:
        return np.eye(outs)
    rows = numpy_of(objective).astype(float)
    if rows.ndim != 2 or rows.shape[1] != outs:
        raise ShapeError("crown", f"objective must be rows (S, {outs}) over the flattened outputs; got {rows.shape}")
    return rows


def _answer(graph: Graph, pass_: Pass, given: bool, ends: tuple[Array, Array], example: Any) -> Bounds:
    low, high = ends
    outputs: dict[int, Box] = {}
    start = 0
    for p in real_outputs(graph):
        box = box_of(pass_.balls[p])
        if not given:
            count = math.prod(box.shape)
            cells = [e[start : start + count].reshape(box.shape) for e in ends]
            box, start = _met(box, *cells), start + count
        outputs[p] = box_like(box, example)
    tree = transform(lambda _, p: outputs.get(p), graph.outputs)
    layers = {
        n.name: box_like(box_of(b), example) for n, b in zip(graph.nodes, pass_.balls, strict=True) if n.kind == "real"
    }
    rows = box_like(Box(low, np.maximum(low, high)), example) if given else None
    return Bounds(tree[0] if graph.single else tree, layers, rows, tuple(pass_.unbounded), pass_.infeasible)


def _met(box: Box, low: Array, high: Array) -> Box:
    """Both boxes hold."""
    low, high = np.maximum(box.low, low), np.minimum(box.high, high)
    return Box(np.minimum(low, high), np.maximum(low, high))


@dataclass(eq=False)
class Pass:
    """One walk over a graph: balls of all nodes, and of the varying ones their layers, errors and magnitudes."""

    graph: Graph
    rules: Context
    splits: Mapping[str, Any]
    balls: list[Ball] = field(default_factory=list)
    layers: dict[int, Layer] = field(default_factory=dict)
    shadows: dict[int, Ball] = field(default_factory=dict)
    errors: dict[int, Tensor] = field(default_factory=dict)
    sizes: dict[int, Tensor] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    unbounded: list[str] = field(default_factory=list)
    infeasible: bool = False

    # --- forward --------------------------------------------------------------------------------------------------

    def run(self, inputs: dict[int, Any]) -> None:
        self.signs = _signs(self.graph, self.splits)
        users = {a: node.op.name for node in self.graph.nodes for a in node.operands() if node.op.name in _REFINE}
        for i, node in enumerate(self.graph.nodes):
            ball = checked(node, node_ball(self.graph, i, node, self.balls, inputs, self.rules), self._args(i))
            self.balls.append(ball)
            if is_unbounded(node, ball):
                self.unbounded.append(node.name)
            if node.op is INPUT or node.op is CONSTANT:
                if isinstance(inputs.get(i), Ball):
                    self._enter(Opaque(i, node, ()), 0)
            elif node.kind == "real" and any(a in self.layers for a in node.operands()) and ball.radius.any():
                self._add(i, inputs)
                if i in users and not self.unbounded:
                    self._narrow(i, users[i])
            if i in self.signs:
                self._split(i)

    def _args(self, i: int) -> list[Ball]:
        return [self.balls[a] for a in self.graph.nodes[i].operands()]

    def _enter(self, layer: Layer, depth: int) -> None:
        i = layer.position
        self.layers[i], self.depth[i] = layer, depth
        zero = np.zeros(layer.node.shape)
        self.errors[i], self.sizes[i] = tensor(zero)[None], tensor(self.balls[i].size)[None]

    def _add(self, i: int, inputs: dict[int, Any]) -> None:
        node = self.graph.nodes[i]
        layer = layer_of(
            self.graph, i, set(self.layers), {a: self.balls[a].value for a in node.operands()}, self._gates(i)
        )
        mixes = not node.op.exact or not layer.is_linear
        self._enter(layer, max(self.depth[s] for s in layer.sources) + int(mixes))
        if isinstance(layer, Opaque) or self.unbounded:
            return
        if isinstance(layer, Linear) and not node.op.transcendental:
            error, size = self._linear_error(i, inputs)
        else:
            error, size = self._function_error(i, inputs)
        self.errors[i], self.sizes[i] = tensor(error)[None], tensor(size)[None]

    def _gates(self, i: int) -> dict[int, Any]:
        """select(c, x, 0) or select(c, 0, x) with an open c: source, where it is surely x, and where surely 0."""
        node = self.graph.nodes[i]
        if node.op.name != "select" or not isinstance(node.args[0], int):
            return {}
        c = self.balls[node.args[0]]
        shape = node.shape
        first, second = (
            np.broadcast_to((c.low > 0) | (c.high < 0), shape),
            np.broadcast_to((c.low == 0) & (c.high == 0), shape),
        )
        for source, zero, keeps, drops in ((1, 2, first, second), (2, 1, second, first)):
            a, z = node.args[source], node.args[zero]
            value = (
                0 if not isinstance(z, int) and z.value == 0 else self.balls[z].size.any() if isinstance(z, int) else 1
            )
            if isinstance(a, int) and a in self.layers and not value:
                return {i: (a, tensor(keeps), tensor(drops))}
        return {}

    def _linear_error(self, i: int, inputs: dict[int, Any]) -> tuple[Array, Array]:
        """What the layer adds to its inputs' own errors, and the operator on absolute values."""
        node = self.graph.nodes[i]
        group = fusible(node)
        known: dict[int, Ball] = {a: self._opened(a, group, node.op.exact) for a in node.operands()}
        shadow = node_ball(self.graph, i, node, known, inputs, self.rules)  # type: ignore[arg-type]
        self.shadows[i] = shadow
        sizes = [np.asarray(abs(float(a.value))) if not isinstance(a, int) else self._size(a) for a in node.args]
        with np.errstate(all="ignore"):
            return shadow.radius, np.broadcast_to(magnitude(self.rules, node.op, sizes, node.params), node.shape)

    def _size(self, a: int) -> Array:
        ball = self.balls[a]
        return ball.value if ball.value.dtype.kind == "i" else ball.size

    def _opened(self, a: int, group: str, exact: bool) -> Ball:
        """A varying argument with nothing carried in: its radius belongs to the layers below.

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

    def _function_error(self, i: int, inputs: dict[int, Any]) -> tuple[Array, Array]:
        """How much wider the deployed range is than the real one; the size of the result."""
        node = self.graph.nodes[i]
        if node.op.exact and not self.rules.arithmetic.flush:
            return np.zeros(node.shape), self.balls[i].size
        real = Context(Arithmetic("real"), self.rules.evaluate, largest=self.rules.largest, centred=True)
        ball, exact = (node_ball(self.graph, i, node, self.balls, inputs, run) for run in (self.rules, real))
        with np.errstate(invalid="ignore"):
            wider = np.maximum(np.maximum(ball.high - exact.high, exact.low - ball.low), 0.0)
        wider = np.where(np.isfinite(exact.radius), wider, np.inf)
        return wider + 64 * U * ball.size, ball.size

    # --- narrower boxes before a relaxation ---------------------------------------------------------------------------

    def _narrow(self, i: int, user: str) -> None:
        """Bounds of the input of a relaxation, where intervals leave something open."""
        ball, shape = self.balls[i], self.graph.nodes[i].shape
        if i not in self.layers or self.depth[i] < 2 or isinstance(self.layers[i], Opaque):
            return
        open_ = (ball.low < 0) & (ball.high > 0) if user == "relu" else ball.radius > 0
        cells = np.flatnonzero(open_)
        if not len(cells):
            return
        low, high = ball.low.copy().ravel(), ball.high.copy().ravel()
        step = max(1, CHUNK // max(1, 2 * max(int(np.prod(self.graph.nodes[p].shape)) for p in self.layers)))
        for start in range(0, len(cells), step):
            chosen = cells[start : start + step]
            seeds = torch.zeros((1, len(chosen), ball.value.size), dtype=torch.float64)
            seeds[0, torch.arange(len(chosen)), torch.from_numpy(chosen)] = 1.0
            found = self.backward({i: torch.cat([seeds, -seeds], 1).view(1, -1, *shape)})[0].numpy()
            low[chosen] = np.maximum(low[chosen], found[: len(chosen)])
            high[chosen] = np.minimum(high[chosen], -found[len(chosen) :])
        self._replace(i, low.reshape(shape), high.reshape(shape))

    def _replace(self, i: int, low: Array, high: Array) -> None:
        old = self.balls[i]
        self.infeasible |= bool((low > high).any())
        low, high = np.minimum(low, high), np.maximum(low, high)
        new = hull(low, high, old.value)
        self.balls[i] = Ball(new.value, new.radius, expansion=old.expansion, ends=new.ends)

    def _split(self, i: int) -> None:
        ball, sign = self.balls[i], self.signs[i]
        low, high = (
            np.where(sign > 0, np.maximum(ball.low, 0.0), ball.low),
            np.where(sign < 0, np.minimum(ball.high, 0.0), ball.high),
        )
        self._replace(i, low, high)

    # --- backward -----------------------------------------------------------------------------------------------------

    def ends_of(self, i: int) -> tuple[Tensor, Tensor]:
        ball = self.balls[i]
        return tensor(ball.low)[None], tensor(ball.high)[None]

    def backward(self, seeds: dict[int, Tensor]) -> Tensor:
        """Lower bounds (boxes, rows) of the sum over nodes of seed.value."""
        outer, inner = dict(seeds), dict[int, Tensor]()
        some = next(iter(seeds.values()))
        total, lost = some.new_zeros(some.shape[:2]), some.new_zeros(some.shape[:2])
        for i in sorted(self.layers, reverse=True):
            parts = [d.pop(i) for d in (outer, inner) if i in d]
            if not parts:
                continue
            a = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            layer, own = self.layers[i], self._own(i)
            if isinstance(layer, Opaque):
                low, high = self.ends_of(i)
                middle, reach = low / 2 + high / 2, (high - low) / 2 * (1 + 8 * U)
                total = total + rows_dot(a, middle) - rows_dot(a.abs(), reach)
                lost = lost + own * rows_dot(a.abs(), torch.maximum(low.abs(), high.abs()))
                continue
            lines = self._lines(i)
            pulled, constant = layer.back(a, lines)
            total = total + constant
            lost = lost + rows_dot(a.abs(), own * self._magnitude(i, lines))
            if self.errors[i].any():
                lost = lost + rows_dot(parts[0].abs() if len(parts) == 2 else a.abs(), self.errors[i])
            for s, part in pulled:
                into = inner if self._stays(s, i) else outer
                into[s] = into[s] + part if s in into else part
        found = total - lost * (1 + 1e-6) - 1e-250
        return found.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def _own(self, i: int) -> float:
        """Roundings of ours that a term of this layer can meet, in float64."""
        return (2 * self.balls[i].value.size + len(self.graph.nodes) + 128) * U

    def _magnitude(self, i: int, lines: Any) -> Tensor:
        if lines is None:
            return self.sizes[i]
        low, high = self.ends_of(self.layers[i].sources[0])
        size = torch.maximum(low.abs(), high.abs())
        layer = self.layers[i]
        if isinstance(layer, Taps):
            size = layer.read(size)
            slopes = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs())
            size = (slopes * size).sum(0)
        else:
            size = torch.maximum(lines.lower_slope.abs(), lines.upper_slope.abs()) * size
        return size + torch.maximum(lines.lower.abs(), lines.upper.abs()) + self.sizes[i]

    def _lines(self, i: int) -> Any:
        layer = self.layers[i]
        return layer.lines([self.ends_of(s) for s in layer.sources])

    def _stays(self, source: int, user: int) -> bool:
        """Whether a runtime may merge both into one kernel: then the rounding is counted once, at the layer's end."""
        shadow = self.shadows.get(source)
        group = fusible(self.graph.nodes[user])
        return (
            user in self.shadows
            and shadow is not None
            and shadow.expansion is not None
            and shadow.expansion.group == group
        )

    def output_ends(self, rows: Array) -> tuple[Array, Array]:
        """Low and high of every row."""
        both = tensor(np.concatenate([rows, -rows]))[None]
        if self.unbounded or not len(rows):
            nothing = np.full(len(rows), np.inf)
            return -nothing, nothing
        found = self._objective(both).numpy()[0]
        return found[: len(rows)], -found[len(rows) :]

    def _objective(self, rows: Tensor) -> Tensor:
        fixed, slack = rows.new_zeros(rows.shape[:2]), rows.new_zeros(rows.shape[:2])
        seeds, start = dict[int, Tensor](), 0
        for p in real_outputs(self.graph):
            ball = self.balls[p]
            part = rows[:, :, start : start + ball.value.size]
            start += ball.value.size
            if p in self.layers:
                seed = part.reshape(*part.shape[:2], *ball.shape)
                seeds[p] = seeds[p] + seed if p in seeds else seed
            else:
                value, radius = tensor(ball.value).reshape(1, -1), tensor(ball.radius).reshape(1, -1)
                fixed = fixed + rows_dot(part, value)
                slack = slack + rows_dot(part.abs(), radius + self._own(p) * value.abs())
        found = self.backward(seeds) if seeds else 0 * fixed
        return found + fixed - slack * (1 + 1e-6) - 4 * U * (found.abs() + fixed.abs())


_REFINE = {"relu", "max_pool", "smooth_max_pool", "sigmoid", "tanh", "silu", "gelu", "leaky_relu", "relu6", "clamp"}
_REFINE |= {"hardswish", "softplus", "abs", "exp", "log", "sqrt", "power", "mul", "div", "maximum", "minimum", "amax"}
_REFINE |= {"greater", "greater_equal", "less", "equal", "sign", "winner"}


def _signs(graph: Graph, splits: Mapping[str, Any]) -> dict[int, Array]:
    names = {n.name: i for i, n in enumerate(graph.nodes)}
    found = {}
    for name, given in splits.items():
        if name not in names:
            raise ParameterError("crown", f"splits name {name!r}, which is no layer of the graph", rule="P5")
        i = names[name]
        i = graph.nodes[i].operands()[0] if graph.nodes[i].op.name == "relu" else i
        sign = numpy_of(given)
        if sign.shape != graph.nodes[i].shape:
            raise ShapeError("crown", f"splits of {name} must have shape {graph.nodes[i].shape}; got {sign.shape}")
        found[i] = sign
    return found
