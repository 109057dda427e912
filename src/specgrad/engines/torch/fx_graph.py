"""Graphs on PyTorch: a `torch.fx.GraphModule` that calls kernels, without an interpreter of ours at run time."""

from __future__ import annotations

import copy
import keyword
import operator
import unicodedata
from collections.abc import Collection
from dataclasses import replace
from types import FunctionType
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor, fx, nn

from specgrad.errors import ParameterError, ShapeError
from specgrad.graph.graph import CONSTANT, INPUT, Arg, Graph, Node, NumberArg
from specgrad.graph.ir.node import Binder, bind_inputs
from specgrad.graph.ir.tree import Tree, leaves, transform

from ..base import number, refuse_integers
from .autograd_rules import HALF_TYPES, NOT_NUMBERS
from .lowerings import ENGINE
from .rewrites import NativeCall, before_reshapes, find_native_calls


def _named_function(name: str, compute: Any) -> Any:
    """Return `compute` itself, whose own name becomes `name` if it is a function of ours: fx prints targets by name."""
    if isinstance(compute, FunctionType) and compute.__module__.startswith("specgrad."):
        compute.__name__ = compute.__qualname__ = name
    return compute


class _Lowering:
    """Builder of the fx graph of one graph; `places` maps positions of constants to attribute names."""

    def __init__(self, graph: Graph, places: dict[int, str]) -> None:
        self.graph = graph
        self.places = places
        self.fx = fx.Graph()
        self.values: list[Any] = []
        self.calls = find_native_calls(graph)
        self.given: dict[int, Any] = {}

    def lower(self, *, standalone: bool = False) -> fx.Graph:
        """Return `fx`, the fx graph, after writing all nodes into it; it is flat in and out. Call it once.

        `standalone` makes it check its inputs and return the graph's own structure.
        """
        names = _identifiers([self.graph.nodes[p].name for p in self.graph.input_positions])
        inputs = {p: self.fx.placeholder(n) for p, n in zip(self.graph.input_positions, names, strict=True)}
        for p in inputs if standalone else ():
            node = self.graph.nodes[p]
            inputs[p] = self.fx.call_function(checked_shape, (inputs[p], node.name, node.shape))
            if node.kind == "real":
                inputs[p] = self.fx.call_function(checked_floats, (inputs[p], node.name))
        for i, node in enumerate(self.graph.nodes):
            if node.op is INPUT:
                self.values.append(inputs[i])
            elif node.op is CONSTANT:
                self.values.append(self.fx.get_attr(self.places[i]))
            else:
                self.values.append(self._fx_node(i, node))
        outputs = transform(lambda _, p: self.values[p], self.graph.outputs)
        self.fx.output((outputs[0] if self.graph.single else outputs) if standalone else tuple(leaves(outputs)))
        self.fx.eliminate_dead_code()
        self.fx.lint()
        return self.fx

    def _fx_arguments(self, node: Node) -> tuple[Any, ...]:
        """Return the arguments of a node as fx values and numbers."""
        return tuple(number(a.value) if isinstance(a, NumberArg) else self.values[a] for a in node.args)

    def _fx_node(self, i: int, node: Node) -> Any:
        """Return the fx node that computes node i: a native call's result, one reshape for a chain, or a kernel."""
        if i in self.calls:
            return self._native_result(i, self.calls[i])
        if node.op.name == "reshape":  # derivatives have chains of them, and each call costs its price
            source = before_reshapes(self.graph, i)
            if self.graph.nodes[source].shape == node.shape:
                return self.values[source]
            node = replace(node, args=(source,))
        shapes = tuple(() if isinstance(a, NumberArg) else self.graph.nodes[a].shape for a in node.args)
        shift = _is_shift(self.graph, node)
        compute = below_maximum if shift else ENGINE.kernel_for(node.op, shapes, node.params)
        return self.fx.call_function(_named_function(node.op.name, compute), self._fx_arguments(node))

    def _native_result(self, i: int, call: NativeCall) -> Any:
        """Return the fx node of the result of a native call that stands for graph node i.

        All results are taken out of the tuple and stored in `given` at once, else it would keep every one of them
        alive.
        """
        if i not in self.given:
            args = (*(self.values[a] for a in call.args), *call.numbers)
            result = self.fx.call_function(_named_function(call.name, call.compute), args)
            parts = enumerate(call.results) if len(call.results) > 1 else ()
            self.given[i] = result
            self.given.update(
                (p, self.fx.call_function(operator.getitem, (result, k))) for k, p in parts if p is not None
            )
        return self.given[i]


def _identifiers(names: list[str]) -> list[str]:
    """Return a distinct Python identifier for each name; fx writes Python and runs it, and names are data.

    >>> _identifiers(["x", "0", "if", "a.b", "a_b", "\\u00b2", ""])
    ['x', 'input_0', 'input_if', 'a_b', 'a_b_', 'input__', 'input_']
    """
    identifiers: dict[str, None] = {}
    for name in names:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
        if not plain.isidentifier() or keyword.iskeyword(plain) or plain == "self" or not plain.strip("_"):
            plain = f"input_{plain}"
        while plain in identifiers:
            plain += "_"
        identifiers[plain] = None
    return list(identifiers)


# --- softmax and cross_entropy under autocast ---------------------------------------------------------------------


def _is_node_of(position: Arg | None, graph: Graph, *names: str) -> TypeGuard[int]:
    """Return whether `position` is the position of a node of one of the operators `names`."""
    return isinstance(position, int) and graph.nodes[position].op.name in names


def _is_shift(graph: Graph, node: Node) -> bool:
    """Return whether `node` is x - max(x), with which every softmax begins."""
    if node.op.name != "sub":
        return False
    x, top = node.args
    while _is_node_of(top, graph, "broadcast", "reshape", "stop_gradient"):
        top = graph.nodes[top].args[0]
    return _is_node_of(top, graph, "amax") and graph.nodes[top].args == (x,)


def below_maximum(x: Tensor, top: Tensor) -> Tensor:
    """Return x - top; under autocast in float32, and so is what follows, as in PyTorch's own cross_entropy."""
    if x.dtype in HALF_TYPES and torch.is_autocast_enabled(x.device.type):
        x = x.float()
    return x - top


# --- modules ----------------------------------------------------------------------------------------------------------


def _flat_module(graph: Graph) -> fx.GraphModule:
    """Return the graph as an fx module with flat inputs and outputs; constants are its buffers."""
    places = {position: f"constant_{position}" for position in graph.constants}
    root = nn.Module()
    for position, array in graph.constants.items():
        root.register_buffer(places[position], _constant_tensor(array))
    return fx.GraphModule(root, _Lowering(graph, places).lower())


class Compiled(nn.Module):
    """nn.Module that computes a graph; it is called with the graph's arguments, in their structure.

    graph        the graph, all sizes known
    parameters   value of the graph's first argument: copies of its arrays become trainable nn.Parameters, named by the
                 path in it, and calls leave that argument out. None: every call gives all arguments

    `graph_module` is the torch.fx.GraphModule behind it: flat inputs (the parameters first), flat outputs.
    """

    def __init__(self, graph: Graph, parameters: Tree | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.graph_module = _flat_module(graph)
        self._owns = parameters is not None
        self._own: list[str] = []
        self._prepare_call()
        if parameters is not None:
            self._register(parameters)

    def _prepare_call(self) -> None:
        """Build the binder and checks for the arguments of a call, without those that the module owns."""
        first = 1 if self._owns else 0
        graph = self.graph
        given = Graph(graph.nodes, graph.names[first:], graph.inputs[first:], (), False, {})
        nodes = [graph.nodes[p] for p in given.input_positions]
        self._bind = Binder(given)
        self._numbers = [(i, node.name) for i, node in enumerate(nodes) if node.kind == "real"]

    def _register(self, parameters: Tree) -> None:
        """Register the leaves of `parameters` as nn.Parameters.

        ShapeError unless they are structured as the graph's parameters.
        """
        own = Graph(self.graph.nodes, self.graph.names[:1], self.graph.inputs[:1], (), False, {})
        values = bind_inputs(own, (parameters,))
        positions = leaves(own.inputs)
        names = self._free_names([self.graph.nodes[p].name.partition(".")[2] for p in positions])
        for position, name in zip(positions, names, strict=True):
            value = values[position]
            tensor = value.detach().clone() if isinstance(value, Tensor) else torch.as_tensor(np.array(value))
            self.register_parameter(name, nn.Parameter(tensor))
        self._own = names

    def _free_names(self, paths: list[str]) -> list[str]:
        """Return an attribute name per parameter path: a.b as a__b, with _ appended until it is free."""
        plain = {path for path in paths if "." not in path}
        taken, names = set(plain), []
        for path in paths:
            name = path.replace(".", "__") or "parameter"
            while hasattr(self, name) or (name in taken and path not in plain):
                name += "_"
            taken.add(name)
            names.append(name)
        return names

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without kernels, which cannot be pickled; the graph can, and makes them again."""
        state = self.__dict__.copy()
        state["_modules"] = {k: m for k, m in self._modules.items() if k != "graph_module"}
        state["_constants"] = dict(self.graph_module.named_buffers())
        return {k: v for k, v in state.items() if k not in ("_bind", "_numbers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        constants = state.pop("_constants")
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # PyTorch leaves it untyped
        self.graph_module = _flat_module(self.graph)
        for name, tensor in constants.items():
            self.graph_module.register_buffer(name, tensor)
        self._prepare_call()

    def __deepcopy__(self, memo: dict[int, Any]) -> Compiled:
        memo[id(self.graph)] = self.graph  # it never changes
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def forward(self, *args: Any) -> Any:
        """Run the program on `args`, structured as the graph's arguments without the parameters, which the module has
        as its own and puts before them.

        ScalarError for tensors that are no floats.
        """
        own = [getattr(self, name) for name in self._own]  # not _parameters: weight_norm and pruning put others there
        values = self._bind(args)
        for i, name in self._numbers:
            checked_floats(values[i], name)
        return self._in_output_structure(self.graph_module(*own, *values))

    def _in_output_structure(self, outputs: tuple[Any, ...]) -> Any:
        """Return flat outputs in the graph's output structure."""
        if self.graph.single and not isinstance(self.graph.outputs[0], tuple | dict):
            return outputs[0]
        values = iter(outputs)
        result = transform(lambda _, __: next(values), self.graph.outputs)
        return result[0] if self.graph.single else result


def _constant_tensor(array: Any) -> Tensor:
    """Return a captured array as a tensor with its own memory; exact numbers become float64."""
    return torch.from_numpy(
        np.array(array, dtype=float if array.dtype == object else None)
    )  # ours: files are read-only


# --- a module of its own: constants under their own names ------------------------------------------------------------


def checked_shape(x: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    """Return x; raise ShapeError, with the input's `name`, if its shape is not the graph's, whose nodes are made for
    these sizes.
    """
    if x.shape != shape:
        raise ShapeError("graph", f"input {name} must have shape {shape}; got {tuple(x.shape)}")
    return x


def checked_floats(x: Tensor, name: str) -> Tensor:
    """Return x; raise ScalarError, with the input's `name`, for integers, bools and complex numbers ([P6])."""
    if getattr(x, "dtype", None) in NOT_NUMBERS:
        refuse_integers("graph", "torch", x.dtype, f"input {name}")
    return x


def _is_attribute(part: str) -> bool:
    """Return whether fx can write the name `part` into its program: as an attribute, or in double quotes, unescaped."""
    if part.isidentifier():
        return not keyword.iskeyword(part) and unicodedata.normalize("NFKC", part) == part
    return part.isprintable() and not set(part) & set('"\\')


def _set_tensor(root: nn.Module, name: str, value: Tensor | nn.Parameter) -> None:
    """Set root.a.b.c to `value` for a dotted name, making modules on the way; raise ParameterError for forbidden
    names.
    """
    *path, last = name.split(".")
    if not all(map(_is_attribute, (*path, last))):
        raise ParameterError("to_torch", f"{name[:80]!r} cannot name a tensor of a module: fx writes it into a program")
    try:
        for part in path:
            if part not in root._modules:
                root.add_module(part, nn.Module())
            root = root.get_submodule(part)
        if isinstance(value, nn.Parameter):
            root.register_parameter(last, value)
        else:
            root.register_buffer(last, value)
    except KeyError as error:
        raise ParameterError("to_torch", f"{name!r} cannot name a tensor of a module: {error.args[0]}") from None


def place_constants(root: nn.Module, graph: Graph, trainable: Collection[str]) -> dict[int, str]:
    """Register the graph's constants on `root`, trainable ones as parameters, others as buffers.

    Return the name of each constant by its position. ParameterError for a name that PyTorch does not allow.
    """
    places = {position: graph.nodes[position].name for position in graph.constants}
    for position, name in places.items():
        value = _constant_tensor(graph.constants[position]).clone()
        _set_tensor(root, name, nn.Parameter(value) if name in trainable else value)
    return places


def module_of(graph: Graph, trainable: Collection[str]) -> fx.GraphModule:
    """Return the graph as an fx.GraphModule with its constants as parameters (trainable) and buffers by name."""
    root = fx.GraphModule({}, fx.Graph())  # so that a name which a GraphModule needs for itself is refused
    places = place_constants(root, graph, trainable)
    return fx.GraphModule(root, _Lowering(graph, places).lower(standalone=True))
