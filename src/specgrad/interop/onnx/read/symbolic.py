"""Sizes that an ONNX file leaves open: the file is read once at the defaults, and again for every other size.

Inside such files shapes are computed from the sizes of the inputs by nodes of all kinds, so reading again is the
derivation that leaves nothing out. What is read again must be the same file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from specgrad.graph.ir.node import INPUT, Node, Program
from specgrad.graph.ir.symbolic import SymbolicProgram
from specgrad.scalar import Array
from specgrad.window import Shape, SymbolicSize, size_at, symbolic, symbols_in

from ..file import ModelError, declared_size, shown
from .model import OnnxGraph

Given = Mapping[str, Sequence[Any]]


def input_dims(model: onnx.ModelProto) -> dict[str, list[int | None] | None]:
    """Return the declared sizes of the inputs by name; None for an open size, or for an undeclared shape."""
    initial = {t.name for t in model.graph.initializer}
    return {
        i.name: [declared_size(d) for d in i.type.tensor_type.shape.dim]
        if i.type.tensor_type.HasField("shape")
        else None
        for i in model.graph.input
        if i.name not in initial
    }


def open_shapes(model: onnx.ModelProto, given: Given) -> dict[str, tuple[Any, ...]]:
    """Return the shapes of the inputs that have a symbolic size: named in `given`, or an open batch axis."""
    initial = {t.name for t in model.graph.initializer}
    symbols: dict[str, SymbolicSize] = {}
    shapes = {i.name: _symbolic_shape(i, given, symbols) for i in model.graph.input if i.name not in initial}
    return {name: s for name, s in shapes.items() if any(isinstance(n, SymbolicSize) for n in s)}


def _symbolic_shape(info: onnx.ValueInfoProto, given: Given, symbols: dict[str, SymbolicSize]) -> tuple[Any, ...]:
    """Return the shape of an input, with symbolic sizes for names in `given` and for an open batch axis."""
    if info.name in given:
        return tuple(_symbol(n, symbols) if isinstance(n, str) else n for n in given[info.name])
    dims = list(info.type.tensor_type.shape.dim)
    sizes: list[Any] = [declared_size(d) for d in dims]
    if sizes and sizes[0] is None and None not in sizes[1:]:
        name = dims[0].dim_param if dims[0].dim_param.isidentifier() else _unused_name(symbols)
        sizes[0] = _symbol(name, symbols)
    return tuple(sizes)


def _symbol(text: str, symbols: dict[str, SymbolicSize]) -> SymbolicSize:
    """Return the symbolic size of this name, the same for equal names."""
    size = symbolic(text)
    (symbol,) = symbols_in(size)
    return symbols.setdefault(symbol.name, size)


def _unused_name(symbols: Mapping[str, SymbolicSize]) -> str:
    """Return a name for an axis without one."""
    return "N" if "N" not in symbols else next(f"N_{k}" for k in range(2, 10**6) if f"N_{k}" not in symbols)


@dataclass(frozen=True, eq=False)
class Reimport:
    """Imports a model again at other sizes, if the file is unchanged; weights are those of the first import."""

    read: Callable[..., OnnxGraph]
    source: Any
    digest: str
    given: Given
    shapes: Mapping[str, tuple[Any, ...]]
    weights: Mapping[str, Array]

    def __call__(self, sizes: Mapping[str, int]) -> OnnxGraph:
        if _digest(self.source) != self.digest:
            raise ModelError(f"{shown(str(self.source))} has changed since it was read; read it again")
        graph = self.read(self.source, {**self.given, **_shapes_at(self.shapes, sizes)})
        again = _weights(graph, self.weights)
        for name, array in again.items():
            if array.dtype != object and array.tobytes() != self.weights[name].tobytes():
                raise ModelError(f"the data of {shown(name)} has changed since it was read; read the model again")
        first = {graph.values[name]: self.weights[name] for name in again}
        return replace(graph, constants={**graph.constants, **first})


def _weights(graph: OnnxGraph, names: Iterable[str]) -> dict[str, Array]:
    """Return the constants that hold these initializers, by name."""
    places = {name: graph.values[name] for name in names if name in graph.values}
    return {name: graph.constants[p] for name, p in places.items() if p in graph.constants}


def _shapes_at(shapes: Mapping[str, tuple[Any, ...]], sizes: Mapping[str, int]) -> dict[str, Shape]:
    """Return the shapes at these values of their symbols."""
    return {name: tuple(size_at(n, sizes) for n in shape) for name, shape in shapes.items()}


def _digest(source: Any) -> str:
    """Return the SHA-256 of a model's bytes."""
    data = Path(source).read_bytes() if isinstance(source, str | os.PathLike) else bytes(source)
    return hashlib.sha256(data).hexdigest()


def import_open(
    read: Callable[..., OnnxGraph], source: Any, given: Given, shapes: Mapping[str, Any], initializers: Iterable[str]
) -> OnnxGraph:
    """Return the graph at the default sizes; for other sizes it imports the file again.

    read           imports a source at given shapes or arrays of inputs
    given          what the caller says of inputs, by name
    shapes         symbolic shapes, by input name
    initializers   names of the parameters in the file
    """
    source = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source
    digest = _digest(source)
    defaults = {s.name: s.default for shape in shapes.values() for n in shape for s in symbols_in(n)}
    graph = read(source, {**given, **_shapes_at(shapes, defaults)})
    weights = _weights(graph, initializers)
    nodes = [graph.nodes[p] for p in graph.input_positions]
    inputs = tuple(Node(INPUT, (), {}, shapes.get(n.name, n.shape), n.kind, n.name, n.name) for n in nodes)
    program = Program(inputs, graph.names, tuple(range(len(inputs))), (), graph.single, {})
    return replace(
        graph, open=SymbolicProgram(program, reimport=Reimport(read, source, digest, given, shapes, weights))
    )
