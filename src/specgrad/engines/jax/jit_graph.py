"""Graphs as one function of JAX: every node by its kernel, the winners of a maximum searched once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.symbolic import PerGraph
from specgrad.graph.ir.tree import transform
from specgrad.window import Shape, Window

from ..base import Kernel, number, refuse_integers
from . import pool as jax_pool
from .layouts import Last, first, last, turned, turned_steps
from .lowerings import ENGINE, NOT_NUMBERS
from .mesh import adjoint, align_varying, struct_like

Array = jax.Array

Values = list[Any]
Search = tuple[int, Window]  # for the winners among the cells of one value
Routes = dict[Search, jax_pool.MaxRoute]
Step = Callable[[Values, Routes], Any]


def _node_function(graph: Graph, node: Node) -> Callable[[Values], Array]:
    """Return a node as a function from all values so far, by position, to its own; its kernel is looked up once."""
    shapes = [() if isinstance(a, NumberArg) else graph.nodes[a].shape for a in node.args]
    compute: Kernel = ENGINE.kernel_for(node.op, shapes, node.params)
    args = [(number(a.value), None) if isinstance(a, NumberArg) else (None, a) for a in node.args]
    return lambda values: compute(*[given if at is None else first(values[at]) for given, at in args])


def _shared_searches(graph: Graph) -> dict[int, Step]:
    """Return steps for nodes that share one search for winners, by position.

    These are max_pool and winner of one x and window, and take and put along that winner.
    """
    searches: dict[Arg, Search] = {i: _search_of(n) for i, n in enumerate(graph.nodes) if n.op.name == "winner"}
    steps: dict[int, Step] = {}
    for i, node in enumerate(graph.nodes):
        if node.op.name in ("winner", "max_pool") and _search_of(node) in searches.values():
            steps[i] = partial(_search_winners, node=node)
        elif node.op.name in ("take", "put"):
            search = searches.get(node.args[1])
            if search is not None and _follows_window(graph, node, search[1]):
                steps[i] = partial(_follow_route, node=node, search=search, shape=graph.nodes[search[0]].shape)
    return steps


def _search_of(node: Node) -> Search:
    """Return (position of x, window): the search for winners that a max_pool or a winner needs."""
    return node.operands()[0], node.params["window"]


def _follows_window(graph: Graph, node: Node, window: Window) -> bool:
    """Return whether a take or put reads the cells of the window that made its index, none missing."""
    if window.has_empty and not node.params["empty"]:
        return False  # it refuses the index of an empty window
    if node.op.name == "put":
        return bool(node.params["size"] == window.size)
    x = graph.nodes[node.operands()[0]].shape
    return node.params["rank"] == window.rank and x[-window.rank :] == window.size


def _search_winners(values: Values, routes: Routes, *, node: Node) -> Array | Last:
    """Return the value of a max_pool or winner node from the values so far; a new search is stored in `routes`."""
    position, window = search = _search_of(node)
    x, lies_last = values[position], isinstance(values[position], Last)
    if search not in routes:
        routes[search] = jax_pool.routed_max(x.cells if lies_last else x, window, int(lies_last))
    value, route = routes[search]
    if node.op.name == "winner":
        value = jax_pool.winner_of(route, (x.cells if lies_last else x).shape, window, int(lies_last))
    return Last(value) if lies_last else value


def _follow_route(values: Values, routes: Routes, *, node: Node, search: Search, shape: Shape) -> Array | Last:
    """Return the value of a take or put node by the route in `routes` of a search that has run; `shape` is that of
    x.
    """
    route, x, v = routes[search].route, values[search[0]], values[node.operands()[0]]
    lie, shape = (last, turned(shape)) if isinstance(x, Last) else (first, shape)
    v, _ = align_varying([lie(v), lie(x)])
    y = route(v) if node.op.name == "take" else adjoint(route, struct_like(v, shape), v)
    return Last(y) if isinstance(x, Last) else y


def compile_graph(graph: Graph, *, jit: bool = True) -> Compiled | CompiledOpen:
    """Return the graph as a function of JAX arrays with the graph's structure of arguments and results.

    Every kernel is looked up here, once; a call runs them one after the other inside one jax.jit, whose `lower` it has
    (results flat, in the order of the graph's outputs). With symbolic sizes there is one such function for each. A call
    raises ShapeError or ScalarError for arguments that do not fit.
    """
    if graph.open is not None:
        return CompiledOpen(graph, jit)
    shared = _shared_searches(graph)
    lying_last = turned_steps(graph, shared)
    steps = {
        i: lying_last[i] if i in lying_last else _node_function(graph, node)
        for i, node in enumerate(graph.nodes)
        if node.op not in (INPUT, CONSTANT) and i not in shared
    }
    constants = {i: constant(c) for i, c in graph.constants.items()}

    positions = graph.output_positions

    def compute(*args: Any) -> list[Array]:
        values: Values = [None] * len(graph.nodes)
        routes: Routes = {}
        for i, v in (constants | bind_inputs(graph, args)).items():
            values[i] = checked(graph.nodes[i], v)
        for i in range(len(values)):
            if i in steps:
                values[i] = steps[i](values)
            elif i in shared:
                values[i] = shared[i](values, routes)
        return [first(values[i]) for i in positions]

    return Compiled(compute, graph, jit)


class Compiled:
    """A function from arguments to the outputs of a graph, in their structure: `compute`, which gives them flat,
    compiled if `jit`.

    A class, for jax.jit copies the attributes of a function that it wraps: a `lower` among them would be its own.
    """

    def __init__(self, compute: Callable[..., list[Array]], graph: Graph, jit: bool) -> None:
        self._jitted = jax.jit(compute)
        self._program, self._graph = self._jitted if jit else compute, graph

    def __call__(self, *args: Any) -> Any:
        values = dict(zip(self._graph.output_positions, self._program(*args), strict=True))
        results = transform(lambda _, position: values[position], self._graph.outputs)  # here: jit would sort dicts
        return results[0] if self._graph.single else results

    def lower(self, *args: Any) -> Any:
        """Return jax.jit's own lowering; its results are flat, in the order of the graph's outputs."""
        return self._jitted.lower(*args)


class CompiledOpen:
    """A graph with symbolic sizes: one function for each of the sizes that it is called with, compiled if `jit`."""

    def __init__(self, graph: Graph, jit: bool) -> None:
        self._graph, self._compiled = graph, PerGraph(partial(compile_graph, jit=jit))

    def __call__(self, *args: Any) -> Any:
        return self._compiled(self._graph.fitted(args))(*args)

    def lower(self, *args: Any) -> Any:
        """Return jax.jit's lowering of the program for the sizes of these arguments."""
        return self._compiled(self._graph.fitted(args)).lower(*args)


def checked(node: Node, value: Any) -> Any:
    """Return the value; raise ScalarError for integers where the node is real, but for bare Python numbers ([P6])."""
    dtype = getattr(value, "dtype", None)
    if node.kind == "real" and dtype in NOT_NUMBERS and not getattr(value, "weak_type", False):
        refuse_integers("graph", "jax", dtype, f"input {node.name}")
    return value


def constant(c: np.ndarray[Any, Any]) -> Array:
    """Return a captured NumPy array c for JAX; exact numbers become float64."""
    return jnp.asarray(c.astype(np.float64) if c.dtype == object else c)
