"""Bounds on derivatives: vjp is a graph, so bounds of it are bounds on gradients, and on Lipschitz constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ParameterError, ShapeError
from ..graph.graph import Graph
from ..graph.ir.tree import Tree, leaves, transform
from ..graph.transforms.autodiff import vjp
from ..rounding.slack_constants import long_slack
from ..scalar import Array
from .batched_boxes import fitted, split_boxes, stack
from .box import Bounds, Box, box_like, example_of, numpy_of
from .crown_bounds import crown
from .discontinuities import jumps, through_stops
from .interval_bounds import ibp

DUAL = {1: np.inf, 2: 2, np.inf: 1}


def gradient_box(graph: Graph, *boxes: Tree, cotangent: Any, method: str = "crown") -> tuple[Box, ...]:
    """Return boxes that hold cotangent.Jacobian for all inputs in the box, in exact arithmetic: one per varying input.

    It is the derivative of the function: stop_gradient counts as the identity, and where the network may jump (a
    comparison, a sign, a winner's position that the box leaves open) the ends are infinite.

    Parameters
    ----------
    graph : Graph
        The network.
    *boxes : Box, array or structure of them
        As for `crown`.
    cotangent : array_like
        Of the only output, of its shape.
    method : str, default "crown"
        "crown", or "ibp": cheaper and wider.

    Returns
    -------
    tuple of Box
        One per varying input, of its shape.

    Raises
    ------
    ShapeError
        For arguments that do not fit, and for several outputs.
    ParameterError
        For another method ([P5]).

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.sum(sg.relu(x)), (2,))
    >>> (box,) = gradient_box(graph, Box([-1.0, 1.0], [1.0, 2.0]), cotangent=1.0)
    >>> box.low, box.high
    (array([0., 1.]), array([1., 1.]))
    """
    graph = fitted(graph, boxes)
    if (several := split_boxes(graph, boxes)) is not None:
        each = [gradient_box(graph, *one, cotangent=cotangent, method=method) for one in several]
        return tuple(map(stack, zip(*each, strict=True)))
    whole = through_stops(graph)
    if jumps(whole, boxes):
        return tuple(_unbounded_like(leaf, example_of(boxes)) for leaf in leaves(boxes) if isinstance(leaf, Box))
    return _gradient_box(whole, boxes, cotangent, method)


def _gradient_box(graph: Graph, args: tuple[Any, ...], cotangent: Any, method: str) -> tuple[Box, ...]:
    """Return boxes of cotangent.Jacobian for a graph without discontinuities.

    `args` are the graph's arguments, boxes among them; `method` is "crown" or "ibp". One box per varying argument.
    ShapeError for several outputs, ParameterError for another method.
    """
    derivative = vjp(graph, _names_of_boxes(graph, args))
    given = (*args, numpy_of(cotangent).astype(float).reshape(_output_shape(graph)))
    bounds = _output_bounds(derivative, given, method)
    return tuple(leaves(bounds.outputs[len(graph.outputs) :]))


def _unbounded_like(box: Box, example: Any) -> Box:
    """Return the box from -inf to inf with the shape of `box`, in arrays of the kind of `example`."""
    return box_like(Box(np.full(box.shape, -np.inf), np.full(box.shape, np.inf)), example)


def _output_bounds(graph: Graph, given: tuple[Any, ...], method: str) -> Bounds:
    """Bound the outputs of a graph on the boxes `given` in exact arithmetic by "crown" or "ibp"; ParameterError for
    another method.
    """
    if method == "crown":
        return crown(graph, *given, deployed=False)
    if method == "ibp":
        return ibp(graph, *given, deployed=False)
    raise ParameterError("lipschitz", f'method must be "crown" or "ibp"; got {method!r}', rule="P5")


def _names_of_boxes(graph: Graph, args: tuple[Any, ...]) -> list[str]:
    """Return the dotted names of the leaves of `args` that are boxes."""
    names: list[str] = []
    for name, arg in zip(graph.names, args, strict=True):
        transform(lambda path, leaf: names.append(path) if isinstance(leaf, Box) else None, arg, name)
    return names


def _output_shape(graph: Graph) -> tuple[int, ...]:
    """Shape of the only output; raise ShapeError if there are several."""
    if len(graph.output_positions) != 1:
        raise ShapeError("lipschitz", f"needs a graph with one output; got {len(graph.output_positions)}")
    return graph.nodes[graph.output_positions[0]].shape


def lipschitz(graph: Graph, *boxes: Tree, norm: float = 2, method: str = "crown") -> Array:
    """Return for every output cell a number L_k with abs(y_k(x) - y_k(z)) <= L_k * norm(x - z), x and z in the box.

    It is the dual norm of a box that holds every gradient: of `norm` 2 the 2-norm, of inf the sum, of 1 the largest.
    Holds for the network in exact arithmetic: a box is convex, and a network that does not jump in it is differentiable
    almost everywhere. It is inf where the network may jump (see `gradient_box`).

    Parameters
    ----------
    graph : Graph
        The network.
    *boxes : Box, array or structure of them
        As for `crown`; of several boxes each has its numbers.
    norm : float, default 2
        1, 2 or inf.
    method : str, default "crown"
        "crown", or "ibp": cheaper and wider.

    Returns
    -------
    array
        Of the shape of the output.

    Raises
    ------
    ParameterError
        For another norm, and another method ([P5]).
    ShapeError
        For arguments that do not fit, and for several outputs.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.linear(np.array([[3.0, 4.0]]), None, x), (2,))
    >>> lipschitz(graph, Box([0.0, 0.0], [1.0, 1.0])).round(6)
    array([5.])
    """
    if norm not in DUAL:
        raise ParameterError("lipschitz", f"norm must be 1, 2 or inf; got {norm}", rule="P5")
    graph = fitted(graph, boxes)
    shape = _output_shape(graph)
    if (several := split_boxes(graph, boxes)) is not None:
        return np.stack([lipschitz(graph, *one, norm=norm, method=method) for one in several])
    whole = through_stops(graph)
    if jumps(whole, boxes):
        return np.full(shape, np.inf)
    constants = np.zeros(shape)
    for cell in np.ndindex(shape):
        cotangent = np.zeros(shape)
        cotangent[cell] = 1.0
        ends = _gradient_box(whole, boxes, cotangent, method)
        sizes = np.concatenate([np.maximum(np.abs(numpy_of(b.low)), np.abs(numpy_of(b.high))).ravel() for b in ends])
        constants[cell] = _norm_upper(sizes, DUAL[norm])
    return constants


def _norm_upper(sizes: Array, norm: float) -> float:
    """Upper bound of the norm (1, 2 or inf) of `sizes`, numbers >= 0, scaled so that squares do not underflow."""
    largest = float(sizes.max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return float(np.nextafter(largest * np.linalg.norm(sizes / largest, norm) * long_slack(sizes.size), np.inf))
