"""Modules with symbolic sizes: exported once at the defaults, and again for every other size.

`torch.export` can leave sizes open by itself, but takes every such size to be at least 2 without saying so, and what a
module's Python decides by a size is then lost. Exported again, the module decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from specgrad.errors import ParameterError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.node import INPUT, Node, Program
from specgrad.graph.ir.symbolic import SymbolicProgram
from specgrad.scalar import Array
from specgrad.window import SymbolicSize, size_at, symbolic, symbols_in

Shapes = Sequence[tuple[Any, ...]]


def named_shapes(example: Sequence[Tensor], shapes: Shapes) -> Shapes:
    """Return the shapes with names turned into symbolic sizes; one shape per example, with as many axes.

    ParameterError if they do not fit.
    """
    if len(shapes) != len(example) or any(len(s) != e.ndim for s, e in zip(shapes, example, strict=True)):
        given = [tuple(e.shape) for e in example]
        raise ParameterError("from_torch", f"shapes must have one shape per example {given}; got {shapes}", rule="P5")
    sizes: dict[str, SymbolicSize] = {}

    def size(n: Any, given: int) -> Any:
        if not isinstance(n, str):
            if n != given:
                raise ParameterError("from_torch", f"the example has size {given} where shapes says {n}", rule="P5")
            return n
        new = symbolic(n if "=" in n else f"{n}={given}")
        (symbol,) = symbols_in(new)
        return sizes.setdefault(symbol.name, new)

    pairs = zip(shapes, example, strict=True)
    return [tuple(size(n, k) for n, k in zip(shape, e.shape, strict=True)) for shape, e in pairs]


@dataclass(frozen=True, eq=False)
class Reexport:
    """Exports a module again at other sizes; its parameters and buffers are those of the first export.

    read imports a module, types are those of its inputs, shapes have symbolic sizes, weights are by name.
    """

    read: Callable[..., Graph]
    module: nn.Module
    types: tuple[torch.dtype, ...]
    shapes: Shapes
    weights: Mapping[str, Array]

    def __call__(self, sizes: Mapping[str, int]) -> Graph:
        shapes = ([size_at(n, sizes) for n in shape] for shape in self.shapes)
        graph = self.read(self.module, *(torch.zeros(*s, dtype=t) for s, t in zip(shapes, self.types, strict=True)))
        known = {i: self.weights.get(graph.nodes[i].name) for i in graph.constants}
        first = {i: a for i, a in known.items() if a is not None and a.shape == graph.constants[i].shape}
        return replace(graph, constants={**graph.constants, **first})


def import_open(read: Callable[..., Graph], module: nn.Module, example: Sequence[Tensor], shapes: Shapes) -> Graph:
    """Return the graph at the default sizes, those of the example unless a name gives another.

    `read` imports an exported `module` at fixed sizes; `shapes` names those that stay open. ParameterError for names of
    sizes that do not fit the inputs.
    """
    named = named_shapes(example, shapes)
    types = tuple(e.dtype for e in example)
    reexport = Reexport(read, module, types, named, {})
    graph = reexport({s.name: s.default for shape in named for n in shape for s in symbols_in(n)})
    own = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    weights = {graph.nodes[i].name: a for i, a in graph.constants.items() if graph.nodes[i].name in own}
    nodes = [graph.nodes[p] for p in graph.input_positions]
    inputs = tuple(Node(INPUT, (), {}, s, n.kind, n.name, n.name) for n, s in zip(nodes, named, strict=True))
    program = Program(inputs, graph.names, tuple(range(len(inputs))), (), graph.single, {})
    return replace(graph, open=SymbolicProgram(program, reimport=replace(reexport, weights=weights)))
