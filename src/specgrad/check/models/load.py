"""Load a model as a graph at the sizes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError, UnsupportedError, need
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.graph.ir.tree import Tree, leaves, match, transform, walk
from specgrad.rounding import FORMATS, Arithmetic
from specgrad.window import Shape


def graph_of(model: Any, inputs: Sequence[Any], who: str, arithmetic: Arithmetic) -> tuple[Graph, dict[str, str]]:
    """Return the graph that takes these inputs, and {node: format} of nodes that the model computes with fewer digits.

    model   a Graph, an ONNX file (path, bytes or ModelProto) or a PyTorch module. Operators without a meaning here are
            refused by name, and so are graphs from which a partial import left them out
    """
    if is_file(model):
        graph = _from_file(model, inputs, who)
        formats = graph.formats
    elif isinstance(model, Graph):
        _refuse_partial_import(model, who)
        graph, formats = model.fitted(tuple(inputs)), getattr(model, "formats", {})
        for name, pattern, tree in zip(graph.names, graph.inputs, inputs, strict=False):
            for path, position, given in match(pattern, tree, name):
                _check_shape(path, np.shape(given), graph.nodes[position].shape, who)
    elif hasattr(model, "state_dict"):
        graph, formats = _from_module(model, inputs)
    else:
        text = f"model must be a Graph, an ONNX file or a PyTorch module; got {type(model).__name__}"
        raise ParameterError(who, text, rule="P5")
    digits = arithmetic.format.digits
    fewer = {name: f for name, f in formats.items() if f not in FORMATS or FORMATS[f].digits < digits}
    if not any(n.name in fewer and _does_arithmetic(n) for n in graph.nodes):
        fewer = {}
    if not fewer:
        _refuse_halves(graph, who, digits)
    return graph, fewer


def graph_in_one_format(model: Any, inputs: Sequence[Any], who: str, arithmetic: Arithmetic) -> Graph:
    """Return the graph of a model that computes in the arithmetic's format alone; others are refused.

    Bounds over boxes are of one format: they do not say what overflows in float16, or wraps in int32.
    """
    graph, formats = graph_of(model, inputs, who, arithmetic)
    if formats:
        kinds = ", ".join(sorted(set(formats.values())))
        raise UnsupportedError(who, f"the model computes in {kinds} too; over boxes only one format is known")
    return graph


def _does_arithmetic(node: Node) -> bool:
    """Return whether a node computes; crops, transposes and casts merely move numbers."""
    return not (node.op.exact or node.op is INPUT or node.op is CONSTANT)


def _from_module(module: Any, inputs: Sequence[Any]) -> tuple[Graph, dict[str, str]]:
    """Return the graph of a PyTorch module, and the format of its nodes if it is a half module."""
    need("torch", "PyTorch modules need")
    from .run_torch import HALVES, float_type, half_type, meaning_of

    kind = float_type(module)  # a meaning does not depend on the numbers, and tracing asks for this type
    given = [np.asarray(a).astype(kind) if np.asarray(a).dtype.kind == "f" else np.asarray(a) for a in inputs]
    graph, half = meaning_of(module, given), half_type(module)
    return graph, {} if half is None else {n.name: HALVES[half] for n in graph.nodes if n.kind == "real"}


def _refuse_partial_import(graph: Graph, who: str) -> None:
    """Raise UnsupportedError for a graph from which unsupported nodes were left out."""
    if left_out := getattr(graph, "unexamined", ()):
        names = ", ".join(f"{u.operator} {u.layer}" for u in left_out[:3])
        raise UnsupportedError(who, f"the graph leaves out what has no meaning here: {names}")


def _refuse_halves(graph: Graph, who: str, digits: int) -> None:
    """Raise ParameterError for a graph with float16 constants that does not say what computes in float16."""
    for i, array in graph.constants.items():
        if array.dtype == np.float16 and digits > FORMATS["float16"].digits:
            text = f"constant {graph.nodes[i].name!r} is of float16, so the model computes in it somewhere"
            raise ParameterError(who, f"{text}; give dtype float16, in which everything is stored", rule="P5")


def is_file(model: Any) -> bool:
    """Return whether `model` is an ONNX model: a path, the bytes of a file, or a ModelProto."""
    return isinstance(model, str | Path | bytes) or hasattr(model, "SerializeToString")


def _from_file(model: Any, inputs: Sequence[Any], who: str) -> Any:
    """Return the graph of an ONNX file at the shapes of the inputs."""
    need("onnx", "ONNX files need")
    from specgrad.interop import from_onnx
    from specgrad.interop.onnx import input_dims

    declared = input_dims(model)
    if len(declared) != len(inputs):
        names = ", ".join(declared)
        raise ParameterError(who, f"the model takes {len(declared)} inputs ({names}); got {len(inputs)}")
    shapes = {name: np.shape(given) for name, given in zip(declared, inputs, strict=True)}
    for name, shape in shapes.items():
        _check_shape(name, shape, declared[name], who)
    return from_onnx(model, input_shapes=shapes)


def _check_shape(name: str, shape: Shape, dims: Sequence[int | None] | None, who: str) -> None:
    """Raise ShapeError unless `shape` fits `dims` (None: any); hint at --points if its first axis counts points."""

    def fits(given: Shape) -> bool:
        return dims is None or (
            len(given) == len(dims) and all(d in (None, n) for d, n in zip(dims, given, strict=True))
        )

    if not fits(shape):
        several = fits(shape[1:]) or fits((1, *shape[1:]))
        hint = "; if its first axis counts points, say so (--points, points=True)" if several else ""
        wanted = ", ".join("open" if d is None else str(d) for d in dims or ())
        raise ShapeError(who, f"input {name} must have shape ({wanted}); got {shape}{hint}")


def points_of(model: Any, inputs: tuple[Tree, ...], who: str) -> list[tuple[Tree, ...]]:
    """Return the points, one after the other, of inputs whose first axis counts points.

    A point keeps that axis, with length 1, unless the model takes an axis less.

    >>> import specgrad as sg
    >>> [x.shape for (x,) in points_of(sg.trace(sg.relu, (1, 3)), (np.zeros((4, 3)),), "tolerance")]
    [(1, 3), (1, 3), (1, 3), (1, 3)]
    >>> [x.shape for (x,) in points_of(sg.trace(sg.relu, (3,)), (np.zeros((2, 3)),), "tolerance")]
    [(3,), (3,)]
    """
    counts = {np.shape(leaf)[:1] for leaf in leaves(inputs)}
    if len(counts) != 1 or counts == {()}:
        raise ShapeError(who, f"the first axis of every input must count the points; got {_shapes(inputs)}")
    ((count,),) = counts
    less = [_takes_less(model, number, tree) for number, tree in enumerate(inputs)]

    def taken(k: int, number: int, tree: Tree) -> Tree:
        return transform(lambda path, a: np.asarray(a)[k] if less[number][path] else np.asarray(a)[k : k + 1], tree)

    return [tuple(taken(k, number, tree) for number, tree in enumerate(inputs)) for k in range(count)]


def _takes_less(model: Any, number: int, tree: Tree) -> dict[str, bool]:
    """Return {path: whether the model takes an axis less than that leaf of argument `number` has}."""
    if isinstance(model, Graph):
        pattern = model.inputs[number] if number < len(model.inputs) else None
        ranks = {path: len(model.nodes[position].shape) for path, position in walk(pattern)}
    elif is_file(model):
        from specgrad.interop.onnx import input_dims

        dims = [*input_dims(model).values(), None, *(None for _ in range(number))][number]
        ranks = {} if dims is None else {"": len(dims)}
    else:
        ranks = {}
    return {path: np.ndim(leaf) == ranks.get(path, -1) + 1 for path, leaf in walk(tree)}


def _shapes(inputs: tuple[Tree, ...]) -> str:
    """Return the shapes of all inputs as text."""
    return ", ".join(str(np.shape(leaf)) for leaf in leaves(inputs))
