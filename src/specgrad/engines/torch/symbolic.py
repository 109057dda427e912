"""Modules of graphs with symbolic sizes: one owner of parameters and constants, one program for each size."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, fx, nn
from torch.func import functional_call

from specgrad.errors import ParameterError, SpecgradError
from specgrad.graph.graph import Graph
from specgrad.graph.ir.symbolic import PerGraph, PerSize
from specgrad.graph.ir.tree import Tree
from specgrad.window import Shape

from .fx_graph import Compiled, checked_floats, module_of, place_constants


class OpenCompiled(Compiled):
    """`Compiled` of a graph with symbolic sizes: the same parameters and constants at every size."""

    def __init__(self, graph: Graph, parameters: Tree | None = None) -> None:
        super().__init__(graph, parameters)
        self._others = self._programs()

    def _programs(self) -> PerSize[Compiled]:
        """Return the cache of compiled programs by the sizes of the arguments."""
        return PerSize(self.graph, self._program_at, first=1 if self._owns else 0)

    def _program_at(self, bound: Graph) -> Compiled:
        """Return the program of `bound`, the graph at certain sizes, without parameters of its own."""
        other = Compiled(bound)
        other._owns = self._owns
        other._prepare_call()
        return other

    def forward(self, *args: Any) -> Any:
        """Run the program for the sizes of these arguments, with the parameters of this module.

        ScalarError for tensors that are no floats.
        """
        other = self._others(args)
        try:
            values = other._bind(args)
        except SpecgradError:
            self._others.fitted(args)  # says it in the words of the open graph
            raise
        for i, name in other._numbers:
            checked_floats(values[i], name)
        self._share_constants(other)
        own = [getattr(self, name) for name in self._own]
        return self._in_output_structure(other.graph_module(*own, *values))

    def _share_constants(self, other: Compiled) -> None:
        """Let the program `other`, at other sizes, use our constants, again whenever ours were moved or replaced."""
        ours = self.graph_module._buffers
        shared = other.__dict__.get("_shared", ())
        if len(shared) != len(ours) or any(a is not b for a, b in zip(shared, ours.values(), strict=True)):
            other.graph_module._buffers.update(self._constants_for(other.graph))
            other.__dict__["_shared"] = tuple(ours.values())

    def _constants_for(self, bound: Graph) -> dict[str, Any]:
        """Return our constants by the attribute names of the program of the graph `bound`, at other sizes (matched by
        node name).
        """
        ours = {self.graph.nodes[p].name: getattr(self.graph_module, f"constant_{p}") for p in self.graph.constants}
        places = {f"constant_{p}": bound.nodes[p].name for p in bound.constants}
        fitted = _tensors_at_sizes(ours, self.graph, bound)
        return {place: fitted[name] for place, name in places.items() if name in fitted}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k != "_others"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._others = self._programs()


class OpenModule(nn.Module):
    """Module of a graph with symbolic sizes, with the graph's constants under their own names.

    ParameterError for a trainable constant that is repeated along an open size.
    """

    def __init__(self, graph: Graph, trainable: Collection[str]) -> None:
        super().__init__()
        for name in sorted(_shapes_before_broadcast(graph).keys() & set(trainable)):
            text = f"trainable {name!r} is repeated along an open size; make it an argument of the graph"
            raise ParameterError("to_torch", text, rule="P5")
        place_constants(self, graph, trainable)
        self.__dict__["_graph"] = graph
        self.__dict__["_programs"] = PerGraph(_fx_program)

    def forward(self, *args: Any) -> Any:
        """Run the program for the sizes of these arguments, with the parameters and buffers of this module."""
        program = self.__dict__["_programs"](self.__dict__["_graph"].fitted(args))
        own = (*self.named_parameters(remove_duplicate=False), *self.named_buffers(remove_duplicate=False))
        return functional_call(program[1], _tensors_at_sizes(dict(own), self.__dict__["_graph"], program[0]), args)


def _fx_program(bound: Graph) -> tuple[Graph, fx.GraphModule]:
    """Return the graph at known sizes, `bound`, and its fx module, which owns no parameters."""
    return bound, module_of(bound, ())


def _tensors_at_sizes(ours: dict[str, Tensor], graph: Graph, bound: Graph) -> dict[str, Tensor]:
    """Return the tensors `ours` of a graph at the sizes of the graph `bound`; those broadcast to a symbolic shape are
    expanded again.
    """
    shapes = {bound.nodes[p].name: bound.nodes[p].shape for p in bound.constants}
    cells = _shapes_before_broadcast(graph)
    return {
        name: tensor[tuple(slice(n) for n in cells[name])].expand(shapes[name]) if name in cells else tensor
        for name, tensor in ours.items()
        if name in shapes
    }


def _shapes_before_broadcast(graph: Graph) -> dict[str, Shape]:
    """Return the shape before broadcasting of each constant, by name, that is broadcast to a symbolic shape."""
    assert graph.open is not None
    program = graph.open.program
    pairs = ((program.nodes[p], a.shape) for p, a in program.constants.items())
    return {node.name: shape for node, shape in pairs if shape != node.shape}


def compile_graph(graph: Graph, *, parameters: Tree | None = None) -> Compiled:
    """Return the graph as a PyTorch module; `parameters` are values that the module owns and trains."""
    return Compiled(graph, parameters) if graph.open is None else OpenCompiled(graph, parameters)
