"""Differentiation of graphs: a graph in, a graph out.

The derivative rules of every operator emit registered operators, so the result is an ordinary graph: it prints,
runs over every scalar, and can be differentiated again. Equal nodes are shared and dead ones dropped on the way.
A plain function stands for its graph at the shapes of each call.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Protocol, overload

from specgrad.errors import ShapeError, SpecgradError
from specgrad.op import Value
from specgrad.ops.elementwise import add
from specgrad.ops.layout import fill

from ..builder import GraphBuilder, Var, trace
from ..graph import CONSTANT, INPUT, Graph, bind, distinct
from ..ir.symbolic import DERIVATIVES
from ..ir.tree import Tree, at, leaves, transform

Wrt = int | str | Sequence[int | str] | None


class Derivative(Protocol):
    """A function from graph to graph that also takes a plain Python function."""

    @overload
    def __call__(self, graph: Graph, wrt: Wrt = None, **options: Any) -> Graph: ...
    @overload
    def __call__(self, graph: Callable[..., Any], wrt: Wrt = None, **options: Any) -> Callable[..., Any]: ...


def _also_of_functions(derivative: Callable[..., Graph]) -> Derivative:
    """Return the transformation `derivative` of graphs extended to plain functions: each call traces the function on
    its arguments.
    """
    name = derivative.__name__

    @wraps(derivative)
    def wrapped(graph: Any, wrt: Wrt = None, **options: Any) -> Any:
        if isinstance(graph, Graph):
            derived = derivative(graph, wrt, **options)
            return (
                derived if graph.open is None else replace(derived, open=graph.open.with_derivative(name, wrt, options))
            )
        count = _parameter_count(name, graph)
        call = lambda *args: derivative(trace(graph, *args[:count]), wrt, **options)(*args)
        return wraps(graph)(call) if name == "grad" else call  # a gradient takes what the function takes

    DERIVATIVES[name] = derivative
    return wrapped


def _parameter_count(name: str, fn: Any) -> int:
    """Return the number of fn's arguments; raise SpecgradError in the name of the derivative `name` if it cannot be
    known.
    """
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if not parameters or any(p.default is not p.empty or p.kind > p.POSITIONAL_OR_KEYWORD for p in parameters):
        text = "needs a graph, or a function whose arguments can be counted (no defaults, no *args)"
        raise SpecgradError(name, f"{text}; write {name}(trace(f, *examples)); got {fn!r}")
    return len(parameters)


def selected(graph: Graph, wrt: Wrt) -> tuple[list[tuple[str, Tree]], bool]:
    """Return the (name, structure) pairs to differentiate in, and whether `wrt` named just one thing.

    By default every argument made of numbers; an entry of wrt is a position, a name, or a dotted path into an argument.
    ShapeError if there is none of that name, or it holds integers.
    """
    arguments = list(zip(graph.names, graph.inputs, strict=True))
    if wrt is None:
        return [(name, tree) for name, tree in arguments if _kinds(graph, tree) == {"real"}], len(arguments) == 1
    chosen = []
    for w in (wrt,) if isinstance(wrt, int | str) else wrt:
        try:
            name, tree = arguments[w] if isinstance(w, int) else (w, _argument_at(arguments, w))
        except (KeyError, IndexError):
            raise ShapeError("wrt", f"there is no argument {w!r}; the graph takes {', '.join(graph.names)}") from None
        if _kinds(graph, tree) != {"real"}:
            raise ShapeError("wrt", f"{name} holds integers and has no derivative")
        chosen.append((name, tree))
    return chosen, isinstance(wrt, int | str)


def _kinds(graph: Graph, tree: Tree) -> set[str]:
    """Return the kinds ("real", "index") of the leaves of a structure."""
    return {graph.nodes[p].kind for p in leaves(tree)}


def _argument_at(arguments: list[tuple[str, Tree]], path: str) -> Tree:
    """Return the argument of that name, or the part of one that a dotted path names; ShapeError if it names several."""
    first, _, rest = path.partition(".")
    whole, parts = ([tree for name, tree in arguments if name == wanted] for wanted in (path, first))
    if len(whole or parts) > 1:
        raise ShapeError("wrt", f"{path!r} names {len(whole or parts)} arguments; give a position")
    return whole[0] if whole else at(dict(arguments)[first], rest)


def _copy_inputs(t: GraphBuilder, graph: Graph) -> dict[int, Var]:
    """Record the graph's inputs into `t`; return their variables by position."""
    return {p: t.leaf(graph.nodes[p].name, graph.nodes[p].shape, graph.nodes[p].kind) for p in graph.input_positions}


def _new_inputs(t: GraphBuilder, graph: Graph, tree: Tree, prefix: str) -> tuple[Tree, dict[int, Var]]:
    """Record inputs in the builder t, shaped like the nodes of `tree` and named with `prefix`; return their structure,
    and the variables by position.
    """
    by_position: dict[int, Var] = {}

    def fresh(_: str, position: int) -> Var:
        node = graph.nodes[position]
        return by_position.setdefault(position, t.leaf(prefix + node.name, node.shape))

    return transform(fresh, tree), by_position


def _replay(t: GraphBuilder, graph: Graph, inputs: dict[int, Var]) -> list[Value]:
    """Record the computation of `graph` from `inputs` (by position) into `t`; return the values of all nodes in
    order.
    """
    layers = _layer_names(graph, [node.name for node in t.nodes])
    values: list[Value] = []
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            values.append(inputs[i])
        elif node.op is CONSTANT:
            values.append(t.constant(graph.constants[i], node.name, owned=True))
        else:
            args, layer = bind(node.args, values), layers.get(node.group, node.group)
            values.append(t.record(node.op, args, node.params, name=node.name, group=layer))
    return values


def _layer_names(graph: Graph, inputs: list[str]) -> dict[str, str]:
    """Return every layer's name in the derivative by its old name; {} if no input of the derivative has a layer's
    name.
    """
    groups = dict.fromkeys(n.group for n in graph.nodes if n.op not in (INPUT, CONSTANT))
    if groups.keys().isdisjoint(inputs):
        return {}
    return dict(zip(groups, distinct(inputs, list(groups))[len(inputs) :], strict=True))


def real_outputs(graph: Graph) -> tuple[Tree, ...]:
    """Return the output structures that have a derivative; outputs of integers (pooling indices) are left out.

    SpecgradError if one structure mixes numbers and integers.
    """
    kept = []
    for tree in graph.outputs:
        kinds = {graph.nodes[p].kind for p in leaves(tree)}
        if kinds == {"real"}:
            kept.append(tree)
        elif "real" in kinds:
            raise SpecgradError("graph", "an output mixes numbers and integers; return them as separate outputs")
    return tuple(kept)


@_also_of_functions
def jvp(graph: Graph, wrt: Wrt = None) -> Graph:
    """Forward mode: a graph that pushes tangents of inputs to tangents of outputs.

    Parameters
    ----------
    graph : Graph
        The function; a Python function in place of it is traced at every call, on the shapes of the call.
    wrt : int, str or sequence, optional
        Arguments to differentiate by: positions, names or dotted paths ("params.fc1"). By default all that are made of
        numbers.

    Returns
    -------
    Graph
        (inputs, tangents of the inputs in wrt) -> (outputs, tangents of the outputs).

    Raises
    ------
    ShapeError
        For a name that no argument has, one of integers, and an input that is named twice.

    Examples
    --------
    >>> from specgrad import trace
    >>> import numpy as np
    >>> g = jvp(trace(lambda x: x * x, (1,)))
    >>> g(np.array([3.0]), np.array([1.0]))
    (array([9.]), array([6.]))
    """
    chosen, _ = selected(graph, wrt)
    _refuse_overlap(graph, chosen)
    t = GraphBuilder(share=True)
    inputs = _copy_inputs(t, graph)
    d_inputs, given = _new_inputs(t, graph, tuple(tree for _, tree in chosen), "d_")
    values = _replay(t, graph, inputs)
    tangents: list[Value | None] = [None] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            tangents[i] = given.get(i)
            continue
        dargs = [tangents[a] if isinstance(a, int) else None for a in node.args]
        t.prefix = f"jvp({node.group})"
        tangents[i] = (
            None if node.kind == "index" else node.op.tangent(values[i], bind(node.args, values), dargs, node.params)
        )
    t.prefix = "zero"

    def tangent(_: str, p: int) -> Value:
        return fill(values[p], 0) if tangents[p] is None else tangents[p]

    primal_in = transform(lambda _, p: values[p], graph.inputs)
    primal_out = transform(lambda _, p: values[p], graph.outputs)
    d_outputs = transform(tangent, real_outputs(graph))
    names = distinct(graph.names, [f"d_{name}" for name, _ in chosen])
    return t.freeze(names, primal_in + d_inputs, primal_out + d_outputs, False)


def _refuse_overlap(graph: Graph, chosen: list[tuple[str, Tree]]) -> None:
    """Raise ShapeError if `chosen` names an input twice: it has one tangent."""
    count = Counter(p for _, tree in chosen for p in set(leaves(tree)))
    for position in (p for p, n in count.items() if n > 1):
        raise ShapeError("wrt", f"{graph.nodes[position].name} is named {count[position]} times; jvp takes it once")


def _is_active(graph: Graph, sources: set[int]) -> list[bool]:
    """Return, per node, whether it depends on `sources` through real values."""
    active = [False] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        active[i] = i in sources or (node.kind == "real" and any(active[a] for a in node.operands()))
    return active


def _pull_back(
    t: GraphBuilder, graph: Graph, values: list[Value], seeds: list[tuple[int, Value]], sources: set[int]
) -> dict[int, Value]:
    """Return the cotangents of `sources` by a reverse sweep from those of some nodes (`seeds`), recorded by `t`.

    `values` are those of all nodes of `graph`, in `t`, whose `prefix` this changes.
    """
    active = _is_active(graph, sources)
    cotangents: dict[int, Value] = {}

    def receive(position: int, g: Value) -> None:
        cotangents[position] = add(cotangents[position], g) if position in cotangents else g

    for position, g in seeds:
        receive(position, g)
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if node.op is INPUT or not active[i] or i not in cotangents:
            continue
        t.prefix = f"vjp({node.group})"
        pulled = node.op.cotangents(cotangents.pop(i), values[i], bind(node.args, values), node.params)
        for a, g in zip(node.args, pulled, strict=True):
            if g is not None and isinstance(a, int) and active[a]:
                receive(a, g)
    t.prefix = "zero"
    return {p: cotangents[p] if p in cotangents else fill(values[p], 0) for p in sources}


@_also_of_functions
def vjp(graph: Graph, wrt: Wrt = None) -> Graph:
    """Reverse mode: a graph that pulls cotangents of outputs back to cotangents of inputs.

    Parameters
    ----------
    graph : Graph
        The function; a Python function in place of it is traced at every call, on the shapes of the call.
    wrt : int, str or sequence, optional
        Arguments to differentiate by: positions, names or dotted paths ("params.fc1"). By default all that are made of
        numbers.

    Returns
    -------
    Graph
        (inputs, cotangents of the outputs) -> (outputs, cotangents of the inputs in wrt). Only outputs made of numbers
        have cotangents.

    Raises
    ------
    ShapeError
        For a name that no argument has, or one of integers.
    SpecgradError
        If one structure of outputs mixes numbers and integers.

    Examples
    --------
    >>> from specgrad import trace
    >>> import numpy as np
    >>> g = vjp(trace(lambda x, y: x * y, (1,), (1,)))
    >>> g(np.array([3.0]), np.array([5.0]), np.array([1.0]))
    (array([15.]), array([5.]), array([3.]))
    >>> vjp(lambda x, y: x * y)(np.array([3.0]), np.array([5.0]), np.array([1.0]))
    (array([15.]), array([5.]), array([3.]))
    """
    chosen, _ = selected(graph, wrt)
    t = GraphBuilder(share=True)
    inputs = _copy_inputs(t, graph)
    real = real_outputs(graph)
    g_trees = tuple(_cotangent_inputs(t, graph, k, tree) for k, tree in enumerate(real))
    values = _replay(t, graph, inputs)
    seeds = list(zip(leaves(real), leaves(g_trees), strict=True))
    wanted = tuple(tree for _, tree in chosen)
    cotangents = _pull_back(t, graph, values, seeds, set(leaves(wanted)))
    primal_in = transform(lambda _, p: values[p], graph.inputs)
    primal_out = transform(lambda _, p: values[p], graph.outputs)
    names = distinct(graph.names, ["g"] if len(real) == 1 else [f"g{k}" for k in range(len(real))])
    return t.freeze(names, primal_in + g_trees, primal_out + transform(lambda _, p: cotangents[p], wanted), False)


def _cotangent_inputs(t: GraphBuilder, graph: Graph, k: int, tree: Tree) -> Tree:
    """Record inputs in the builder t for the cotangents of output k, and return their structure."""
    return transform(lambda path, p: t.leaf(f"g.{path}" if path else f"g{k}", graph.nodes[p].shape), tree)


@_also_of_functions
def grad(graph: Graph, wrt: Wrt = None, *, value: bool = False) -> Graph:
    """The gradient of a graph with one scalar output, as a graph.

    Parameters
    ----------
    graph : Graph
        A graph with one output of shape ().
    wrt : int, str or sequence, optional
        Arguments to differentiate by: positions, names or dotted paths ("params.fc1"). By default all that are made of
        numbers.
    value : bool, default False
        Also return the output.

    Returns
    -------
    Graph
        inputs -> gradient, or (value, gradient). The gradient is that of one argument if `wrt` names one or the graph
        has one, else a tuple.

    Raises
    ------
    ShapeError
        For a graph without one scalar output, and for a name that no argument has.

    Examples
    --------
    >>> from specgrad import sum, trace
    >>> import numpy as np
    >>> grad(trace(lambda x: sum(x * x), (2,)))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    outs = graph.output_positions
    if len(outs) != 1 or graph.nodes[outs[0]].shape != () or graph.nodes[outs[0]].kind != "real":
        shapes = [graph.nodes[p].shape for p in outs]
        raise ShapeError("grad", f"needs one output of shape (); got {shapes}; use vjp, or sum the output")
    chosen, single = selected(graph, wrt)
    t = GraphBuilder(share=True)
    values = _replay(t, graph, _copy_inputs(t, graph))
    t.prefix = "one"
    seed = fill(values[outs[0]], 1)
    wanted = tuple(tree for _, tree in chosen)
    cotangents = _pull_back(t, graph, values, [(outs[0], seed)], set(leaves(wanted)))
    gradients = transform(lambda _, p: cotangents[p], wanted)
    primal_in = transform(lambda _, p: values[p], graph.inputs)
    if value:
        gradients = (values[outs[0]], gradients[0] if single else gradients)
    return t.freeze(graph.names, primal_in, gradients, single and not value)
