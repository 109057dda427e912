"""Load a model as a graph at the sizes of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError, UnsupportedError
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.graph.ir.tree import Tree, leaves, transform, walk
from specgrad.interop.model import Model, open_model
from specgrad.rounding import FORMATS, Arithmetic
from specgrad.scalar import Array


@dataclass(frozen=True, eq=False)
class ModelAtPoints:
    """A model that was read once, at the sizes of its inputs.

    graph     what takes one point
    formats   name of a node -> its format, where that has fewer digits than the arithmetic's
    points    the inputs, one point after the other
    """

    graph: Graph
    formats: Mapping[str, str]
    points: Sequence[tuple[Tree, ...]]


def at_points(model: Any, inputs: Sequence[Any], who: str, arithmetic: Arithmetic, points: bool) -> ModelAtPoints:
    """Return the model at one point, or at as many as the inputs' first axis counts (`points`).

    Refused beside what `graph_of` refuses: no point, numbers that are not finite, and outputs of positions alone. `who`
    names the caller in errors; `arithmetic` is what the model is read for.
    """
    opened = open_model(model, who)
    given = opened.arrays(inputs, who)
    for array in leaves(given):
        _refuse_infinities(array, who)
    each = points_of(opened, given, who) if points else [given]
    if not each:
        raise ParameterError(who, "there is no point: the first axis of the inputs has length 0")
    graph, formats = graph_of(opened, each[0], who, arithmetic)
    if not graph.real_outputs:
        raise ParameterError(who, "the model has no output of numbers: positions have no distance")
    return ModelAtPoints(graph, formats, each)


def _refuse_infinities(x: Array, who: str) -> None:
    """Raise ParameterError, in the name of `who`, for an input with a NaN or an infinity."""
    if x.dtype.kind not in "fO" or all(map(math.isfinite, x.flat) if x.dtype == object else [np.isfinite(x).all()]):
        return
    raise ParameterError(who, f"inputs must hold finite numbers; got {x.dtype} of shape {x.shape}", rule="P5")


def graph_of(model: Any, inputs: Sequence[Any], who: str, arithmetic: Arithmetic) -> tuple[Graph, dict[str, str]]:
    """Return the graph that takes these inputs, and {node: format} of nodes that the model computes with fewer digits.

    model   whatever `open_model` takes. Operators without a meaning here are refused by name, and so are graphs from
            which a partial import left them out
    who     names the caller in errors
    arithmetic   whose digits are counted against
    """
    given = open_model(model, who)
    graph = given.graph_for(inputs, who)
    formats = given.formats(graph)
    digits = arithmetic.format.digits
    fewer = {name: f for name, f in formats.items() if f not in FORMATS or FORMATS[f].digits < digits}
    if not any(n.name in fewer and _does_arithmetic(n) for n in graph.nodes):
        fewer = {}
    if not fewer:
        _refuse_halves(graph, who, digits)
    return graph, fewer


def graph_in_one_format(model: Any, inputs: Sequence[Any], who: str, arithmetic: Arithmetic) -> Graph:
    """Return the graph of a model that computes in the arithmetic's format alone; others are refused.

    Bounds over boxes are of one format: they do not say what overflows in float16, or wraps in int32. `who` names the
    caller in errors.
    """
    graph, formats = graph_of(model, inputs, who, arithmetic)
    if formats:
        kinds = ", ".join(sorted(set(formats.values())))
        raise UnsupportedError(who, f"the model computes in {kinds} too; over boxes only one format is known")
    return graph


def _does_arithmetic(node: Node) -> bool:
    """Return whether a node computes; crops, transposes and casts merely move numbers."""
    return not (node.op.exact or node.op is INPUT or node.op is CONSTANT)


def _refuse_halves(graph: Graph, who: str, digits: int) -> None:
    """Raise ParameterError for a graph with float16 constants that does not say what computes in float16.

    `digits` are those of the format asked for; `who` names the caller.
    """
    for i, array in graph.constants.items():
        if array.dtype == np.float16 and digits > FORMATS["float16"].digits:
            text = f"constant {graph.nodes[i].name!r} is of float16, so the model computes in it somewhere"
            raise ParameterError(who, f"{text}; give dtype float16, in which everything is stored", rule="P5")


def points_of(model: Any, inputs: tuple[Tree, ...], who: str) -> list[tuple[Tree, ...]]:
    """Return the points, one after the other, of inputs (`Model.arrays`) whose first axis counts points.

    A point keeps that axis, with length 1, unless the model takes an axis less. ShapeError in the name of `who` if
    inputs differ in it or have none.

    >>> import specgrad as sg
    >>> [x.shape for (x,) in points_of(sg.trace(sg.relu, (1, 3)), (np.zeros((4, 3)),), "tolerance")]
    [(1, 3), (1, 3), (1, 3), (1, 3)]
    >>> [x.shape for (x,) in points_of(sg.trace(sg.relu, (3,)), (np.zeros((2, 3)),), "tolerance")]
    [(3,), (3,)]
    """
    counts = {np.shape(leaf)[:1] for leaf in leaves(inputs)}
    if len(counts) != 1 or counts == {()}:
        raise ShapeError(who, f"the first axis of every input must count the points; got {_shapes_text(inputs)}")
    ((count,),) = counts
    opened = open_model(model, who)
    less = [_takes_one_axis_less(opened, number, tree) for number, tree in enumerate(inputs)]

    def taken(k: int, number: int, tree: Tree) -> Tree:
        return transform(lambda path, a: np.asarray(a)[k] if less[number][path] else np.asarray(a)[k : k + 1], tree)

    return [tuple(taken(k, number, tree) for number, tree in enumerate(inputs)) for k in range(count)]


def _takes_one_axis_less(model: Model, number: int, tree: Tree) -> dict[str, bool]:
    """Return {path: whether the model takes an axis less than the leaf there}, for `tree`, what was given as argument
    `number`.
    """
    if model.kind == "graph":
        graph = model.source
        ranks = {path: len(graph.nodes[position].shape) for path, position in walk(graph.inputs[number])}
    else:
        dims = None if model.kind == "torch" else model.inputs[number].dims
        ranks = {} if dims is None else {"": len(dims)}
    return {path: np.ndim(leaf) == ranks.get(path, -1) + 1 for path, leaf in walk(tree)}


def _shapes_text(inputs: tuple[Tree, ...]) -> str:
    """Return the shapes of all inputs as text."""
    return ", ".join(str(np.shape(leaf)) for leaf in leaves(inputs))
