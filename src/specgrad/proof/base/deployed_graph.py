"""The network that a certificate is about: a graph at the property's sizes, its constants rounded to float32.

Constants that a Python function captured as float64 or exact numbers are rounded: the results are the weights of the
network which is deployed, and `rounded_constants` says so. Constants of another format are refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.symbolic import sizes_of_cells
from specgrad.properties.property import Property
from specgrad.properties.vnnlib import read
from specgrad.scalar import Array

REFUSED = "certify proves things about float32; this model is executed in another format"


def at_the_property(graph: Graph, statement: Any) -> Graph:
    """Return the graph with open sizes set to those of x, or to the property's number of cells; a batch is 1 if that
    fits.

    `statement` is (x, label, eps) or a Property. PropertyError or OSError for a file of a property that cannot be read.

    >>> import specgrad as sg
    >>> graph = sg.trace(sg.relu, ("N", 3))
    >>> at_the_property(graph, (np.zeros((4, 3)), 0, 0.5)).nodes[0].shape
    (4, 3)
    """
    if graph.open is None or len(graph.input_positions) != 1:
        return graph.at()
    if isinstance(statement, tuple):
        x = np.asarray(statement[0])
        same_rank = x.ndim == len(graph.nodes[graph.input_positions[0]].shape)
        return graph.fitted((x,)) if same_rank else graph.at(**sizes_of_cells(graph.open, x.size))
    question = statement if isinstance(statement, Property) else read(statement)
    return graph.at(**sizes_of_cells(graph.open, question.cells))


def deployed_graph(graph: Graph) -> Graph:
    """Return `graph` with its constants rounded to float32; raise ShapeError unless it has one input and one output.

    >>> import specgrad as sg
    >>> deployed_graph(sg.trace(lambda x, y: sg.add(x, y), (2,), (2,)))
    Traceback (most recent call last):
    specgrad.errors.ShapeError: certify: the graph must have one input and one output; got inputs x, y
    >>> deployed_graph(sg.trace(lambda x: x * np.float16([0.5]), (1,)))
    Traceback (most recent call last):
    specgrad.errors.ParameterError: certify [P5]: constant 'constant' is of float16; certify proves things about float32
    """
    if len(graph.input_positions) != 1 or len(graph.output_positions) != 1:
        given = f"inputs {', '.join(graph.names)}" if len(graph.input_positions) != 1 else "several outputs"
        raise ShapeError("certify", f"the graph must have one input and one output; got {given}")
    return deployed_constants(graph)


def deployed_constants(graph: Graph) -> Graph:
    """Return `graph` with its constants rounded to float32, for any number of inputs and outputs.

    ParameterError for a graph that was read from a file with layers of integers: they may wrap around.
    """
    graph = graph.at()  # what is proven is proven at one size
    if layers := getattr(graph, "integer_layers", ()):
        raise ParameterError("certify", f"layer {layers[0]!r} computes with integers, which may wrap around", rule="P5")
    for i, array in graph.constants.items():
        if array.dtype.kind not in "iu" and array.dtype not in (np.float32, np.float64, object):
            text = f"constant {graph.nodes[i].name!r} is of {array.dtype}; {REFUSED}"
            raise ParameterError("certify", text, rule="P5")
    return replace(graph, constants=constants_in_float32(graph, "certify"))


def constants_in_float32(graph: Graph, where: str) -> dict[int, Array]:
    """Return {position: array} of the constants of `graph`, real numbers as float32; integers stay as they are.

    Exact numbers are rounded to float64 first, as engines and files do. ParameterError, which begins with `where`, for
    numbers that are too large for float32.
    """
    return {i: _constant_in_float32(graph.nodes[i].name, a, where) for i, a in graph.constants.items()}


def _constant_in_float32(name: str, array: Array, where: str) -> Array:
    """Return `array`, the constant `name`, as float32 if it holds real numbers; raise ParameterError for overflow."""
    if array.dtype.kind not in "fO":
        return array
    with np.errstate(over="ignore"):
        rounded: Array = array.astype(np.float32)
    if (np.isinf(rounded) & np.isfinite(array.astype(float))).any():
        raise ParameterError(where, f"constant {name!r} has numbers that are too large for float32", rule="P5")
    return rounded


def rounded_constants(graph: Graph) -> tuple[str, ...]:
    """Return a tuple of one sentence that names the constants which deployment rounds; () if it rounds none."""
    changed = [graph.nodes[i].name for i, a in graph.constants.items() if _changes_in_float32(a)]
    if not changed:
        return ()
    names = ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    return (f"constants were rounded to float32 first ({names}): the network that they make is the one that is meant",)


def _changes_in_float32(array: Array) -> bool:
    """Return whether float32 changes some number of the constant `array`; integers do not count."""
    if array.dtype.kind in "iu" or array.dtype == np.float32:
        return False
    return bool((array.astype(np.float32).astype(array.dtype) != array).any())
