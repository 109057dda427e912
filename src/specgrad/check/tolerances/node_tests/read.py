"""A node test as a graph that takes its floating-point inputs: what steers the operator is a constant of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from specgrad.errors import SpecgradError, UnsupportedError
from specgrad.graph.graph import Graph
from specgrad.interop.model import open_model
from specgrad.interop.onnx.file import FLOATS
from specgrad.rounding import Arithmetic
from specgrad.scalar import Array

from ...models.load import graph_of
from .load import NodeTest

WHO = "node test"


@dataclass(frozen=True, eq=False)
class ReadTest:
    """The `graph` of a test, the `inputs` that it takes, and the `arithmetic` that its numbers are computed in.

    formats   names of nodes -> formats, of those with fewer digits than the arithmetic has
    """

    graph: Graph
    inputs: tuple[Array, ...]
    arithmetic: Arithmetic
    formats: dict[str, str]


def read_test(test: NodeTest, execution: str = "fused") -> ReadTest:
    """Return the test as a graph at its inputs, for the class of executions `execution`, in float32, or in float64
    where the model declares that.

    SpecgradError, with the reason, for a test that is not read: what has no meaning here is refused, never guessed.
    """
    names = [end.name for end in test.model.graph.input]
    for name, array in zip(names, test.inputs, strict=True):
        if array is None:
            raise UnsupportedError(WHO, f"input {name} is no tensor of a type that is read, or not stored in its own")
    given = {name: np.asarray(array) for name, array in zip(names, test.inputs, strict=True)}
    arithmetic = Arithmetic("float64" if _declares_float64(test) else "float32", execution=execution)
    reason: SpecgradError | None = None
    for fixed in _fixed_inputs(test, given):
        try:
            return _read_at(test, given, fixed, arithmetic)
        except SpecgradError as error:
            reason = reason if len(fixed) > len(_steering(test, given)) else error
    raise reason or UnsupportedError(WHO, "it is not read")


def _fixed_inputs(test: NodeTest, given: dict[str, Array]) -> Iterator[tuple[str, ...]]:
    """Yield which inputs to read as constants, each set only tried where the one before is refused: none; integers and
    booleans; of a single node all but the first, where that is a float: scales, an exponent.

    Never all of them, if a float is among them: what is computed from constants while reading is not rounded.
    """
    yield ()
    yield _steering(test, given)
    names = list(given)
    if len(test.model.graph.node) == 1 and names and _is_float(test, names[0]):
        yield tuple(names[1:])


def _steering(test: NodeTest, given: dict[str, Array]) -> tuple[str, ...]:
    """Return the names of inputs that hold integers or booleans."""
    return tuple(name for name in given if not _is_float(test, name))


def _is_float(test: NodeTest, name: str) -> bool:
    """Return whether the input `name` is declared as one of the floats that are read."""
    (end,) = (end for end in test.model.graph.input if end.name == name)
    return end.type.tensor_type.elem_type in FLOATS


def _declares_float64(test: NodeTest) -> bool:
    """Return whether an input or an output is of float64."""
    ends = (*test.model.graph.input, *test.model.graph.output)
    return any(end.type.tensor_type.elem_type == TensorProto.DOUBLE for end in ends)


def _read_at(test: NodeTest, given: dict[str, Array], fixed: tuple[str, ...], arithmetic: Arithmetic) -> ReadTest:
    """Return the test as a graph, with the inputs `fixed` as constants."""
    model: Any = open_model(test.model, WHO).at_values({name: given[name] for name in fixed})
    rest = tuple(array for name, array in given.items() if name not in fixed)
    graph, formats = graph_of(model, rest, WHO, arithmetic)
    return ReadTest(graph, rest, arithmetic, formats)
