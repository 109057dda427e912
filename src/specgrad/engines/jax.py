"""The JAX engine: one line per operator, and graphs as one jitted function.

Linear and structural lines rely on JAX's own differentiation, which for a linear map can only be that map. The others
carry the rules of their records (`ours`, `linear`); max_pool carries the route of its first winner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import ShapeError
from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from ..graph.run import bind_inputs
from ..graph.tree import transform
from ..op import Op, Params
from ..scalar import Number
from ..window import Shape, Window
from . import jax_conv, jax_pool
from .base import Engine, Lowering, Plan, refuse_integers
from .jax_mesh import aligned, struct_like
from .jax_rules import Unknown, linear, ours

Array = jax.Array


def _simple(function: Callable[..., Array]) -> Lowering:
    """function(*arrays, **params) as it stands; JAX differentiates it."""
    return lambda *_, **params: partial(function, **params) if params else function


# --- elementwise ------------------------------------------------------------------------------------------------


def _mask(test: Callable[[Any, Any], Array]) -> Lowering:
    return _simple(lambda a, b: test(a, b).astype(jnp.result_type(a, b)))


def _select(c: Array, a: Any, b: Any) -> Array:
    return jnp.where(c != 0, a, b).astype(jnp.result_type(c, a, b))


def _power(x: Array, *, exponent: Number) -> Array:
    if exponent == int(exponent):
        return lax.integer_pow(x, int(exponent))
    if 2 * exponent == int(2 * exponent):
        return lax.integer_pow(jnp.sqrt(x), int(2 * exponent))
    return jnp.power(x, float(exponent))


def _clamp(x: Array, *, low: Number | None, high: Number | None) -> Array:
    y = x if low is None else jnp.maximum(x, float(low))
    return y if high is None else jnp.minimum(y, float(high))


def _sigmoid(x: Array) -> Array:
    """No exponent is positive, so nothing overflows and the lower tail keeps its digits."""
    e = jnp.exp(-jnp.abs(x))
    return jnp.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(x: Array, *, beta: Number) -> Array:
    z = x * float(beta)
    return (jnp.maximum(z, 0) + jnp.log1p(jnp.exp(-jnp.abs(z)))) / float(beta)


def _normal_pdf(x: Array) -> Array:
    return jnp.exp(-(x * x) / 2) / math.sqrt(2 * math.pi)


def _normal_cdf(x: Array) -> Array:
    """erfc rather than erf: the lower tail is not a difference."""
    return lax.erfc(-x / math.sqrt(2)) / 2


# --- positions --------------------------------------------------------------------------------------------------


def _planes(x: Array, rank: int) -> Array:
    """(planes, cells): the last `rank` axes as one, everything before them as another."""
    lead = x.shape[: x.ndim - rank]
    return x.reshape((math.prod(lead), math.prod(x.shape[x.ndim - rank :])))


def _positions(name: str, where: Array, cells: int, empty: bool) -> tuple[Array, Any]:
    """Positions that JAX can read, and a factor: 1, or NaN for a position outside, which only jit lets through."""
    low = -1 if empty else 0
    if not isinstance(where, jax.core.Tracer) and where.size:
        least, most = int(where.min()), int(where.max())
        if least < low or most >= cells:
            raise ShapeError(name, f"indices must lie in {low}..{cells - 1}; got {least}..{most}")
        return jnp.maximum(where, 0) if empty else where, 1
    outside = (where < low) | (where >= cells)
    return jnp.clip(where, 0, cells - 1), jnp.where(outside, math.nan, 1)


def _take(x: Array, i: Array, *, rank: int, empty: bool) -> Array:
    cells, where = _planes(x, rank), _planes(i, rank)
    if not cells.shape[1]:
        return jnp.zeros(i.shape, x.dtype)
    at, factor = _positions("take", where, cells.shape[1], empty)
    y = (jnp.take_along_axis(cells, at, axis=1) * factor).astype(x.dtype)
    return (jnp.where(where == -1, jnp.zeros((), x.dtype), y) if empty else y).reshape(i.shape)


def _rows(where: Array) -> Array:
    return lax.broadcasted_iota(where.dtype, where.shape, 0)


def _dropped(where: Array, cells: int) -> Array:
    """-1 as a position outside: JAX would count it from the end."""
    return jnp.where(where < 0, cells, where)


def _put(gy: Array, i: Array, *, size: Shape, empty: bool) -> Array:
    values, where, cells = _planes(gy, len(size)), _planes(i, len(size)), math.prod(size)
    at, factor = _positions("put", where, cells, empty)
    at, values = jnp.where(where == -1, cells, at) if empty else at, (values * factor).astype(gy.dtype)
    flat = jnp.zeros((where.shape[0], cells), gy.dtype).at[_rows(where), at].add(values, mode="drop")
    return flat.reshape((*gy.shape[: gy.ndim - len(size)], *size))


def _last_writer(i: Array, *, rank: int, cells: int) -> Array:
    """The largest position that names a cell is its last writer."""
    where = _planes(i, rank)
    position = lax.broadcasted_iota(where.dtype, where.shape, 1)
    target = _dropped(where, cells)
    last = jnp.full((where.shape[0], cells + 1), -1, where.dtype).at[_rows(where), target].max(position)
    keeps = (where >= 0) & (jnp.take_along_axis(last, target, axis=1) == position)
    return jnp.where(keeps, where, -1).reshape(i.shape)


def _amax(x: Array, *, axes: Shape, ties: str) -> Array:
    return jnp.max(x, axis=axes) if axes else x


def _contract(x: Array, z: Array, *, spec: str) -> Array:
    return jnp.einsum(spec, x, z, precision=lax.Precision.HIGHEST)


def _pad(x: Array, *, widths: Sequence[tuple[int, int, int]]) -> Array:
    return lax.pad(x, jnp.zeros((), x.dtype), widths)


# --- the table --------------------------------------------------------------------------------------------------

TABLE: dict[str, Lowering] = {
    # layout
    "fill": _simple(lambda x, *, value: jnp.full_like(x, float(value))),
    "reshape": _simple(lambda x, *, shape: lax.reshape(x, shape)),
    "permute": _simple(lambda x, *, order: lax.transpose(x, order)),
    "slice": _simple(lambda x, *, ranges: lax.slice(x, *zip(*ranges, strict=True)) if ranges else x),
    "pad": _simple(_pad),
    "concat": _simple(lambda *xs, axis: lax.concatenate(xs, axis)),
    "broadcast": _simple(lambda x, *, shape: jnp.broadcast_to(x, shape)),
    "sum": _simple(lambda x, *, axes: jnp.sum(x, axis=axes)),
    # arithmetic
    "add": _simple(jnp.add),
    "sub": _simple(jnp.subtract),
    "mul": _simple(jnp.multiply),
    "div": ours("div", jnp.divide),
    "neg": _simple(jnp.negative),
    "greater": _mask(jnp.greater),
    "greater_equal": _mask(jnp.greater_equal),
    "less": _mask(jnp.less),
    "equal": _mask(jnp.equal),
    "select": _simple(_select),
    "maximum": ours("maximum", jnp.maximum),
    "minimum": ours("minimum", jnp.minimum),
    "stop_gradient": _simple(lax.stop_gradient),
    "exp": ours("exp", jnp.exp),
    "log": ours("log", jnp.log),
    "sqrt": ours("sqrt", jnp.sqrt),
    "sign": ours("sign", jnp.sign),
    "abs": ours("abs", jnp.abs),
    "power": ours("power", _power),
    # activations
    "relu": ours("relu", lambda x: jnp.maximum(x, 0)),
    "leaky_relu": ours("leaky_relu", lambda x, *, slope: jnp.where(x > 0, x, x * float(slope))),
    "relu6": ours("relu6", lambda x: jnp.minimum(jnp.maximum(x, 0), 6)),
    "clamp": ours("clamp", _clamp),
    "hardswish": ours("hardswish", lambda x: x * jnp.minimum(jnp.maximum(x + 3, 0), 6) / 6),
    "tanh": ours("tanh", jnp.tanh),
    "sigmoid": ours("sigmoid", _sigmoid),
    "silu": ours("silu", lambda x: x * _sigmoid(x)),
    "softplus": ours("softplus", _softplus),
    "normal_pdf": ours("normal_pdf", _normal_pdf),
    "normal_cdf": ours("normal_cdf", _normal_cdf),
    "gelu": ours("gelu", lambda x: x * _normal_cdf(x)),
    # contraction and convolution
    "contract": _simple(_contract),
    "conv": linear("conv", jax_conv.conv, leading=(0,)),
    "conv_transpose": linear("conv_transpose", jax_conv.conv_transpose, leading=(0,)),
    "conv_weight": linear("conv_weight", jax_conv.conv_weight, leading=()),
    # pooling
    "avg_pool": linear("avg_pool", jax_pool.avg_pool, leading=(0,)),
    "avg_spread": linear("avg_spread", jax_pool.avg_spread, leading=(0,)),
    "max_pool": lambda x, *, window: partial(jax_pool.max_pool, window=window),
    "winner": lambda x, *, window: partial(jax_pool.winner, window=window),
    "take": _simple(_take),
    "put": _simple(_put),
    "last_writer": _simple(_last_writer),
    "amax": ours("amax", _amax),
    "smooth_max_pool": ours("smooth_max_pool", jax_pool.smooth_max),
    "smooth_pull": linear("smooth_pull", jax_pool.smooth_pull, leading=(0, 1, 2)),
    "smooth_push": linear("smooth_push", jax_pool.smooth_push, leading=(0, 1, 2)),
}


class JaxEngine(Engine):
    """The shared engine; a value that is unknown while we transpose stays unknown."""

    def run(self, op: Op, args: Sequence[Any], params: Params) -> Any:
        if any(type(a) is Unknown for a in args):
            return Unknown.__specgrad_apply__(op, args, params)
        return super().run(op, args, params)


INTEGERS = frozenset(np.dtype(t) for t in ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64))))
ENGINE = JaxEngine("jax", jax.Array, TABLE, INTEGERS)
run = ENGINE.run


# --- graphs -----------------------------------------------------------------------------------------------------

Values = list[Any]


def _literal(number: Number) -> Number:
    return float(number) if isinstance(number, Fraction) else number


def _step(graph: Graph, node: Node) -> Callable[[Values], Array]:
    """A node as a function of all values so far: its plan, looked up once."""
    shapes = [() if isinstance(a, NumberArg) else graph.nodes[a].shape for a in node.args]
    plan: Plan = ENGINE.plan(node.op, shapes, node.params)
    args = [(_literal(a.value), None) if isinstance(a, NumberArg) else (None, a) for a in node.args]
    return lambda values: plan(*[number if at is None else values[at] for number, at in args])


def _routed(graph: Graph) -> dict[int, Callable[[Values, dict[Any, jax_pool.Routed]], Array]]:
    """Nodes that share one search for winners: max_pool and winner of one x and window, and take and put along it."""
    key = {i: (n.args[0], n.params["window"]) for i, n in enumerate(graph.nodes) if n.op.name == "winner"}
    steps: dict[int, Callable[[Values, dict[Any, jax_pool.Routed]], Array]] = {}
    for i, node in enumerate(graph.nodes):
        if node.op.name in ("winner", "max_pool") and (node.args[0], node.params["window"]) in key.values():
            steps[i] = partial(_search, node=node)
        elif node.op.name in ("take", "put") and node.args[1] in key and _along(graph, node, key[node.args[1]][1]):
            steps[i] = partial(_follow, node=node, key=key[node.args[1]], shape=graph.nodes[key[node.args[1]][0]].shape)
    return steps


def _along(graph: Graph, node: Node, window: Window) -> bool:
    """Whether the cells that a take or put means are those of the window that made its index."""
    return (
        node.params["size"] == window.size
        if node.op.name == "put"
        else (node.params["rank"] == window.rank and graph.nodes[node.args[0]].shape[-window.rank :] == window.size)
    )


def _search(values: Values, found: dict[Any, jax_pool.Routed], *, node: Node) -> Array:
    x, window = values[node.args[0]], node.params["window"]
    key = (node.args[0], window)
    if key not in found:
        found[key] = jax_pool.routed_max(x, window)
    value, route = found[key]
    return value if node.op.name == "max_pool" else jax_pool.winner_of(route, x.shape, window)


def _follow(values: Values, found: dict[Any, jax_pool.Routed], *, node: Node, key: Any, shape: Shape) -> Array:
    route = found[key].route
    v, _ = aligned([values[node.args[0]], values[key[0]]])
    if node.op.name == "take":
        return route(v)
    (cells,) = jax.linear_transpose(route, struct_like(v, shape))(v)
    return cells


def compile_graph(graph: Graph, *, jit: bool = True) -> Callable[..., Any]:
    """The graph as a function of JAX arrays with the graph's own structure of arguments and results.

    Every plan is looked up here, once; a call runs them one after the other inside one jax.jit, whose `lower` it has
    (results flat, in the order of the graph's outputs).
    """
    shared = _routed(graph)
    plans = {
        i: _step(graph, node)
        for i, node in enumerate(graph.nodes)
        if node.op not in (INPUT, CONSTANT) and i not in shared
    }
    constants = {i: _constant(c) for i, c in graph.constants.items()}

    positions = graph.output_positions

    def compute(*args: Any) -> list[Array]:
        values: Values = [None] * len(graph.nodes)
        found: dict[Any, jax_pool.Routed] = {}
        for i, v in (constants | bind_inputs(graph, args)).items():
            values[i] = _checked(graph.nodes[i], v)
        for i in range(len(values)):
            if i in plans:
                values[i] = plans[i](values)
            elif i in shared:
                values[i] = shared[i](values, found)
        return [values[i] for i in positions]

    program = jax.jit(compute) if jit else compute

    def call(*args: Any) -> Any:
        found = dict(zip(positions, program(*args), strict=True))
        results = transform(lambda _, position: found[position], graph.outputs)  # here: jit would sort dicts
        return results[0] if graph.single else results

    if jit:
        call.lower = program.lower  # type: ignore[attr-defined]  # jax.jit's own; its results are flat
    return call


def _checked(node: Node, value: Any) -> Any:
    """[P6] Numbers must be floats here; a bare Python number takes the type of what it meets."""
    dtype = getattr(value, "dtype", None)
    if node.kind == "real" and dtype in INTEGERS and not getattr(value, "weak_type", False):
        refuse_integers("graph", "jax", dtype, f"input {node.name}")
    return value


def _constant(c: np.ndarray[Any, Any]) -> Array:
    return jnp.asarray(c.astype(np.float64) if c.dtype == object else c)
