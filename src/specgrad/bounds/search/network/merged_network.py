"""Several inputs, outputs or networks as one graph with one input and one output: what bounds and attacks are made for.

The input holds the variables of a property (specgrad.properties.interface), the output its values: every network's
outputs, one after the other, and then the variables that inequalities name. Slices, choices of cells and joins are
exact, so an execution of the networks, each by itself, is one of the joined graph: what is proven of it holds for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.errors import ParameterError, ShapeError
from specgrad.graph.builder import trace
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves, transform
from specgrad.op import scope
from specgrad.ops.gather import gather
from specgrad.ops.layout import concat, flatten, reshape
from specgrad.properties.interface import PropertyInterface, PropertyTensor
from specgrad.properties.property import Property
from specgrad.scalar import Array


@dataclass(frozen=True, eq=False)
class NamedNetwork:
    """One network of a problem: its name there ("" if it has none), its graph, and what it was read from.

    source   an ONNX file (path or bytes), a PyTorch module, or None
    """

    name: str
    graph: Graph
    source: Any = None

    @property
    def is_module(self) -> bool:
        """Whether it was read from a PyTorch module."""
        return hasattr(self.source, "state_dict")

    @property
    def inputs(self) -> list[tuple[int, ...]]:
        """Shapes of the inputs, in order."""
        return [self.graph.nodes[p].shape for p in self.graph.input_positions]

    @property
    def outputs(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs, in order."""
        return [self.graph.nodes[p].shape for p in self.graph.output_positions]

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        """Outputs, in order, for inputs in order: arrays, or variables of another trace."""
        given = dict(zip(self.graph.input_positions, inputs, strict=True))
        trees = transform(lambda _, p: given[p], self.graph.inputs)
        return leaves(self.graph(*trees))

    def cut(self, cells: Any) -> list[Any]:
        """Return flat cells split into the inputs, in their shapes."""
        parts, start = [], 0
        for shape in self.inputs:
            parts.append(reshape(cells[start : start + math.prod(shape)], shape))
            start += math.prod(shape)
        return parts


def is_plain(graph: Graph) -> bool:
    """Whether the graph has one input and one output."""
    return len(graph.input_positions) == 1 and len(graph.output_positions) == 1


def joined(networks: Sequence[NamedNetwork], interface: PropertyInterface) -> Graph:
    """Return one graph from the property's variables to its values, made of all `networks`.

    `interface` says which cells they are. Networks that take or give indices are refused.

    >>> import specgrad as sg
    >>> both = sg.trace(lambda x, z: (x + z, x - z), (2,), (2,))
    >>> graph = joined([NamedNetwork("", both)], PropertyInterface((0, 1, 2, 2), named_inputs=(1,)))  # z: one variable
    >>> graph(np.array([1.0, 2.0, 5.0]))
    array([ 6.,  7., -4., -3.,  2.])
    """
    for network in networks:
        _refuse_indices(network)
    alone = networks[0] if len(networks) == 1 and len(networks[0].inputs) == 1 else None
    in_order = interface.variables == tuple(range(len(interface.variables)))
    shape = alone.inputs[0] if alone and in_order else (max(interface.variables) + 1,)

    def whole(x: Any) -> Any:
        flat = x if len(shape) == 1 else flatten(x)
        values, start = [], 0
        for network in networks:
            count = sum(math.prod(s) for s in network.inputs)
            chosen = interface.variables[start : start + count]
            start += count
            with scope(network.name) if network.name else scope("network"):
                inputs = [x] if alone and in_order else network.cut(_select_cells(flat, chosen))
                values += [flatten(y) for y in network.call(inputs)]
        values += [_select_cells(flat, interface.named_inputs)] if interface.named_inputs else []
        return concat(values, 0) if len(values) > 1 else values[0]

    return trace(whole, shape)


def _select_cells(flat: Any, variables: Sequence[int]) -> Any:
    """Return the cells `variables` of a flat array, by a slice if they are adjacent."""
    first = variables[0]
    if tuple(variables) == tuple(range(first, first + len(variables))):
        return flat[first : first + len(variables)]
    return gather(flat, np.array(variables), axis=0)


def _refuse_indices(network: NamedNetwork) -> None:
    """Raise ParameterError if an input or output holds integers."""
    graph = network.graph
    for what, positions in (("input", graph.input_positions), ("output", graph.output_positions)):
        for p in positions:
            if graph.nodes[p].kind != "real":
                text = f"{what} {graph.nodes[p].name!r} holds whole numbers; properties are about real ones"
                raise ParameterError("certify", text, rule="P5")


def interface_of(graph: Graph, names: Sequence[str] = ()) -> PropertyInterface:
    """Return the interface of all cells of all inputs and outputs, in order; `names` are of the outputs, in place of
    the graph's.
    """
    network = NamedNetwork("", graph)
    inputs = [PropertyTensor(n, s, "") for n, s in zip(_input_names(graph), network.inputs, strict=True)]
    named = list(names) or [graph.nodes[p].name for p in graph.output_positions]
    outputs = [PropertyTensor(n, s, "") for n, s in zip(named, network.outputs, strict=True)]
    return PropertyInterface(tuple(range(sum(t.cells for t in inputs))), (), tuple(inputs), tuple(outputs))


def _input_names(graph: Graph) -> list[str]:
    """Return the names of the graph's inputs in order."""
    return [graph.nodes[p].name for p in graph.input_positions]


def networks_of(interface: PropertyInterface, models: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return (name, model) of every declared network in order; one `equal-to` another has that one's model.

    ParameterError unless `models` has those that are needed, and no others.

    >>> inputs = PropertyTensor("A", (1,), "f"), PropertyTensor("B", (1,), "g")
    >>> two = PropertyInterface((0, 1), (), inputs, (), {"g": "f"})
    >>> networks_of(two, {"f": "f.onnx"})
    [('f', 'f.onnx'), ('g', 'f.onnx')]
    """
    names = interface.networks
    needed = [n for n in names if n not in interface.models]
    if sorted(models) != sorted(needed):
        given = ", ".join(models) or "none"
        equal = "".join(f"; {n} is equal to {m}" for n, m in interface.models.items())
        how = "; certify takes {name: model}, and specgrad verify --network NAME=FILE for each"
        raise ParameterError("certify", f"the property needs networks {', '.join(needed)}; got {given}{equal}{how}")

    def model(name: str) -> Any:
        while name in interface.models:
            name = interface.models[name]
        return models[name]

    return [(name, model(name)) for name in names]


def check_cells(networks: Sequence[NamedNetwork], question: Property) -> None:
    """Raise ShapeError unless every network has as many input and output cells as the property `question` declares for
    it.
    """
    interface = question.interface
    if interface is None or not interface.inputs:
        values = question.outputs - (0 if interface is None else len(interface.named_inputs))
        for what, shapes, count in (
            ("input", [s for n in networks for s in n.inputs], question.cells),
            ("output", [s for n in networks for s in n.outputs], values),
        ):
            if sum(math.prod(s) for s in shapes) != count:
                given = f"{what} has shape {shapes[0]}" if len(shapes) == 1 else f"{what}s have shapes {shapes}"
                raise ShapeError("certify", f"the property has {count} {what}s; the network's {given}")
        return
    for network in networks:
        graph = network.graph
        for what, positions, tensors in (
            ("input", graph.input_positions, interface.inputs),
            ("output", graph.output_positions, interface.outputs),
        ):
            shapes, names = ([getattr(graph.nodes[p], k) for p in positions] for k in ("shape", "name"))
            mine = [t for t in tensors if not network.name or t.network == network.name]
            declared = ", ".join(f"{t.name} {list(t.shape)}" for t in mine)
            if [t.cells for t in mine] != [math.prod(s) for s in shapes]:
                whose = f"network {network.name}: " if network.name else ""
                text = f"{whose}the property declares {what}s {declared}; the model has {shapes}"
                raise ShapeError("certify", text)
            if sorted(names) == sorted(t.name for t in mine) and names != [t.name for t in mine]:
                text = f"tensors go by their order; the property declares {what}s {declared}, and the model has"
                raise ShapeError("certify", f"{text} {', '.join(names)}: the same names in another order")


def outputs_of(networks: Sequence[NamedNetwork], interface: PropertyInterface, x: Array, run: Any) -> Array:
    """Return the values of the property's `interface` at its variables x, flat, then the inputs that it names.

    run(network, inputs) gives each network's outputs in order.
    """
    flat, values, start = x.reshape(-1), [], 0
    for network in networks:
        count = sum(math.prod(s) for s in network.inputs)
        cells = flat[list(interface.variables[start : start + count])]
        start += count
        values += [np.ravel(y) for y in run(network, network.cut(cells))]
    return np.concatenate([*values, flat[list(interface.named_inputs)]])
