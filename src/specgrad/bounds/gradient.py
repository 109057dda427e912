"""Bounds on derivatives: vjp is a graph, so bounds of it are bounds on gradients, and on Lipschitz constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..graph.graph import Graph
from ..graph.transform import vjp
from ..graph.tree import Tree, leaves, transform
from ..scalar import Array
from .box import Bounds, Box, numpy_of
from .crown import crown
from .ibp import ibp
from .several import separate

DUAL = {1: np.inf, 2: 2, np.inf: 1}


def gradient_box(graph: Graph, box: Tree, cotangent: Any, *, method: str = "crown") -> tuple[Box, ...]:
    """Where cotangent.Jacobian lies, for all inputs in the box, in exact arithmetic: one Box per varying input.

    box          as for `crown`
    cotangent    of the only output
    method       "crown", or "ibp": cheaper and wider

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.sum(sg.relu(x)), (2,))
    >>> (found,) = gradient_box(graph, Box([-1.0, 1.0], [1.0, 2.0]), 1.0)
    >>> found.low, found.high
    (array([0., 1.]), array([1., 1.]))
    """
    args, names = _arguments(graph, box)
    derivative = vjp(graph, names)
    given = (*args, numpy_of(cotangent).astype(float).reshape(_output_shape(graph)))
    found = _bounds(derivative, given, method)
    return tuple(leaves(found.outputs[len(graph.outputs) :]))


def _bounds(graph: Graph, given: tuple[Any, ...], method: str) -> Bounds:
    if method == "crown":
        return crown(graph, given, deployed=False)
    if method == "ibp":
        return ibp(graph, *given, deployed=False)
    raise ParameterError("lipschitz", f'method must be "crown" or "ibp"; got {method!r}', rule="P5")


def _arguments(graph: Graph, box: Tree) -> tuple[tuple[Any, ...], list[str]]:
    """The arguments, and the dotted names of those that vary."""
    args = box if isinstance(box, tuple) else (box,)
    names: list[str] = []
    for name, arg in zip(graph.names, args, strict=True):
        transform(lambda path, leaf: names.append(path) if isinstance(leaf, Box) else None, arg, name)
    return args, names


def _output_shape(graph: Graph) -> tuple[int, ...]:
    if len(graph.output_positions) != 1:
        raise ShapeError("lipschitz", f"needs a graph with one output; got {len(graph.output_positions)}")
    return graph.nodes[graph.output_positions[0]].shape


def lipschitz(graph: Graph, box: Tree, *, norm: float = 2, method: str = "crown") -> Array:
    """For every cell y_k of the output a number L_k with abs(y_k(x) - y_k(z)) <= L_k * norm(x - z), x and z in the box.

    box       as for `crown`; of several boxes each has its numbers
    norm      1, 2 or inf
    method    "crown", or "ibp": cheaper and wider

    It is the dual norm of a box that holds every gradient: of `norm` 2 the 2-norm, of inf the sum, of 1 the largest.
    Holds for the network in exact arithmetic; a box is convex, and networks are differentiable almost everywhere.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.linear(np.array([[3.0, 4.0]]), None, x), (2,))
    >>> lipschitz(graph, Box([0.0, 0.0], [1.0, 1.0])).round(6)
    array([5.])
    """
    if norm not in DUAL:
        raise ParameterError("lipschitz", f"norm must be 1, 2 or inf; got {norm}", rule="P5")
    shape = _output_shape(graph)
    if (several := separate(graph, box if isinstance(box, tuple) else (box,))) is not None:
        return np.stack([lipschitz(graph, one, norm=norm, method=method) for one in several])
    found = np.zeros(shape)
    for cell in np.ndindex(shape):
        cotangent = np.zeros(shape)
        cotangent[cell] = 1.0
        boxes = gradient_box(graph, box, cotangent, method=method)
        sizes = np.concatenate([np.maximum(np.abs(numpy_of(b.low)), np.abs(numpy_of(b.high))).ravel() for b in boxes])
        found[cell] = np.linalg.norm(sizes, DUAL[norm]) * (1 + 1e-9)
    return found
