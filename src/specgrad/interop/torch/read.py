"""Imports a PyTorch module as a graph, through torch.export.

The module's parameters and buffers become constants of the graph under their names in `state_dict`, its layers keep
their dotted names, and every aten call becomes a line of `aten.TABLE`.
"""

from __future__ import annotations

import operator
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from ...errors import ParameterError, SpecgradError, UnsupportedError
from ...graph.builder import GraphBuilder, Var
from ...graph.graph import Graph, Node
from ...op import SCOPES, Scope
from ...scalar import Array
from . import aten, constant_folding, masks, products, whole_numbers
from .symbolic import import_open

MAX_LISTED = 20  # calls whose lines an error lists
FLOATS = (torch.float16, torch.float32, torch.float64)
LISTED_FLOATS = ", ".join(map(str, FLOATS))
INTEGER_TYPES = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
DECOMPOSED = {torch.ops.aten.type_as.default: lambda x, other: x.to(other.dtype)}  # which torch.export leaves whole


def from_torch(module: nn.Module, *example: Any, shapes: Sequence[tuple[Any, ...]] | None = None) -> Graph:
    """Return the graph that `module(*example)` computes, at the example's shapes; values of tensors have no influence.

    Layers are named as in the module (layer1.0.conv1); a call that belongs to no layer of its own is named after the
    module it stands in and its operator (layer1.0.add). Parameters and buffers are constants named as in state_dict (a
    shared parameter by the first of its names); `graph.trainable` lists the parameters that require a gradient.

    Parameters
    ----------
    module : nn.Module
        The network, in eval mode.
    *example : tensor, number, bool or None
        One per argument of the module. A number, a boolean or None is a constant of the graph, which takes the tensors
        alone. A tensor of booleans is an input of numbers: true is 1, false 0. One of int64 is an input of positions,
        or of numbers (such as a mask) where the module does nothing with it but compare it with integers, or convert
        it.
    shapes : sequence of tuple, optional
        Leaves sizes open, for `Graph.at`: one shape per example, with names: [("N", 3, "H", "W")]. The defaults are the
        example's sizes. Other sizes export the module again, with the weights that it had here.

    Returns
    -------
    Graph
        Called as the module is, without its constants.

    Raises
    ------
    SpecgradError
        For an operator or argument without a line, training mode, mutation, mixed or unusual number types: refused by
        name ([P5]).
    MissingPackageError
        Without PyTorch.

    Examples
    --------
    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.AvgPool2d(2)).eval()
    >>> print(from_torch(net, torch.zeros(1, 1, 6, 6)))
    name   operator          shape  parameters  multiply-adds  receptive field
    --------------------------------------------------------------------------
    input  input           1x1x6x6
    0      conv k3         1x2x4x4          20            288              3x3
    1      relu            1x2x4x4                                         3x3
    2      avg_pool k2 s2  1x2x2x2                                         4x4
    3 layers, 6 nodes, 20 parameters, 288 multiply-adds
    """
    for number, value in enumerate(example):
        if not isinstance(value, Tensor | bool | int | float | None):
            given = type(value).__name__
            raise ParameterError("from_torch", f"example {number} must be a tensor or a number; got {given}", rule="P5")
    if shapes is not None and not all(isinstance(value, Tensor) for value in example):
        raise ParameterError("from_torch", "shapes may be open only where every example is a tensor", rule="P5")
    if shapes is not None:
        return import_open(from_torch, module, example, shapes)
    return ProgramImporter(exported_program(module, example), module).graph()


def exported_program(module: nn.Module, example: tuple[Any, ...]) -> Any:
    """Return the exported program of a module called with `example`, decomposed; ParameterError if it changes buffers
    or inputs.
    """
    with warnings.catch_warnings():  # torch.export warns of its own use of torch.utils._pytree
        warnings.filterwarnings("ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning)
        program = torch.export.export(module, example).run_decompositions(DECOMPOSED)
    _refuse_mutation(program)
    return program


def _refuse_mutation(program: Any) -> None:
    """Raise ParameterError if the program changes buffers or inputs."""
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            text = f"the call changes {spec.target} ({spec.kind.name.lower().replace('_', ' ')})"
            advice = (
                "call module.eval() first" if spec.kind is OutputKind.BUFFER_MUTATION else "a graph changes nothing"
            )
            raise ParameterError("from_torch", f"{text}; {advice}", rule="P5")


class ProgramImporter:
    """State of one import: the exported program, the values so far, and the graph being built.

    `program` was exported from `module`, whose names parameters get.
    """

    def __init__(self, program: Any, module: nn.Module) -> None:
        self.program = program
        self.first_names = {id(p): name for name, p in module.named_parameters()}
        self.trace = GraphBuilder()
        self.values: dict[str, Any] = {}
        self.inputs: list[Var] = []
        self.trainable: set[str] = set()
        self.known: dict[int, tuple[Tensor, str]] = {}  # tensors that no input decides, with their names
        self.constants: dict[int, Var] = {}
        self.lines: dict[str, tuple[str, int] | None] = {}
        self.float: torch.dtype | None = None
        self.layers = _Layers(program)
        self.numbers = whole_numbers.number_inputs(program)

    def graph(self) -> Graph:
        """Convert all nodes of the program and return the graph.

        UnsupportedError for an unknown kind of node.
        """
        self._refuse_unknown()
        specs = iter(self.program.graph_signature.input_specs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node.name] = self._placeholder_value(node, next(specs))
            elif node.op == "call_function":
                self._convert_call(node)
            elif node.op != "output":
                raise UnsupportedError("from_torch", f"{node.op} {node.target} in the exported program is unknown")
        return self._finished_graph()

    def _refuse_unknown(self) -> None:
        """Raise one error for all operators without a converter, with the layers that call each."""
        calls = [n for n in self.program.graph.nodes if n.op == "call_function"]
        folded = constant_folding.foldable(calls, self._known_placeholders())
        known = (n.target for n in calls if aten.converter_for(str(n.target).removeprefix("aten.")) is not None)
        lines = {operator.getitem, *known}
        unknown = [n for n in calls if n.target not in lines and n not in folded]
        places: dict[str, list[str]] = {}
        for node in unknown:
            places.setdefault(str(node.target), []).append(self.layers.name(node) or "the module itself")
        if unknown:
            listed = "; ".join(f"{op} is not known (in {', '.join(dict.fromkeys(at))})" for op, at in places.items())
            error = UnsupportedError("from_torch", listed[:2000])
            for node in unknown[:MAX_LISTED]:
                error.add_note(f"  in layer {self.layers.name(node) or 'the module itself'}, {_source_text(node)}")
            raise error

    def _known_placeholders(self) -> list[Any]:
        """Return the placeholders of module tensors that are known while importing."""
        specs = self.program.graph_signature.input_specs
        pairs = zip((n for n in self.program.graph.nodes if n.op == "placeholder"), specs, strict=True)
        return [n for n, spec in pairs if _is_known(spec, n.meta.get("val"))]

    # --- inputs, parameters, buffers ---

    def _placeholder_value(self, node: Any, spec: Any) -> Any:
        """Return the value of a placeholder, whose input spec is given: a leaf, a constant, a known tensor, or None if
        it is unused.

        It is entered in `inputs`, `known` or `trainable` accordingly. Refused: other types of tensors.
        """
        if spec.kind is InputKind.USER_INPUT:
            value = node.meta["val"]
            if not isinstance(value, Tensor):
                return value  # a number, which the program has as a constant where it is used
            self._check_type(node.name, value.dtype, torch.int64, torch.bool)
            kind: Any = "real" if node.name in self.numbers else _kind_of_tensor(value)
            self.inputs.append(self.trace.leaf(node.name, tuple(value.shape), kind))
            return self.inputs[-1]
        if not node.users:
            return None  # such as num_batches_tracked
        tensor = self._tensor_of_spec(spec)
        name = self.first_names.get(id(tensor), spec.target)  # a shared parameter has several
        if _is_known(spec, tensor):
            given = tensor.detach().cpu()
            self.known[id(given)] = given, name
            return given
        self._check_type(name, tensor.dtype)
        if spec.kind is InputKind.PARAMETER and tensor.requires_grad:
            self.trainable.add(name)
        return self.trace.constant(self._numbers(tensor), name)

    def _numbers(self, tensor: Tensor) -> Array:
        """Return the cells of a tensor as a new array."""
        return np.array(tensor.detach().cpu().numpy())

    def _tensor_of_spec(self, spec: Any) -> Any:
        """Return the parameter, buffer or constant of an input spec.

        UnsupportedError for another kind of input.
        """
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedError("from_torch", f"input {spec.target} of kind {spec.kind.name} is unknown")
        tensor = self.program.state_dict.get(spec.target)
        return self.program.constants[spec.target] if tensor is None else tensor

    def _check_type(self, name: str, dtype: torch.dtype, *others: torch.dtype) -> None:
        """Raise ParameterError, which calls it `name`, unless its dtype is among `others` or the one type that all
        floats share: no hidden conversion rounds.
        """
        if dtype in others:
            return
        if dtype not in FLOATS:
            wanted = (
                "give torch.int64"
                if torch.int64 in others and dtype in INTEGER_TYPES
                else f"convert the module to {LISTED_FLOATS}"
            )
            text = f"{name} has type {dtype}; {wanted}"
            raise ParameterError("from_torch", text, rule="P5")
        if self.float not in (None, dtype):
            text = f"{name} has type {dtype} where others have {self.float}; convert the module and the example to one"
            raise ParameterError("from_torch", text, rule="P5")
        self.float = dtype

    # --- calls ---

    def _convert_call(self, node: Any) -> None:
        """Convert one call, in the scope of its layer, and note the source line of its nodes."""
        if node.target is operator.getitem:
            self.values[node.name] = self.values[node.args[0].name][node.args[1]]
            return
        before = len(self.trace.nodes)
        try:
            with self.layers.scope(node):
                self.values[node.name] = self._call_value(node)
        except SpecgradError as error:
            error.add_note(f"  in layer {self.layers.name(node) or 'the module itself'}, {_source_text(node)}")
            raise
        for recorded in self.trace.nodes[before:]:
            self.lines[recorded.name] = _source_line(node)

    def _call_value(self, node: Any) -> Any:
        """Return the value of one call: folded if all arguments are known, else by its converter.

        UnsupportedError unless it is an aten operator.
        """
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise UnsupportedError("from_torch", f"{node.target} is not an aten operator")
        name = str(node.target).removeprefix("aten.")
        args, kwargs = (torch.fx.map_arg(part, lambda n: self.values[n.name]) for part in (node.args, node.kwargs))
        if name == products.ATTENTION:
            args = tuple(map(_added_if_boolean, node.args, args))
            kwargs = {key: _added_if_boolean(node.kwargs[key], value) for key, value in kwargs.items()}
        result_meta = node.meta.get("val")
        args = constant_folding.with_placeholder_self(name, args, result_meta)
        is_constant = constant_folding.is_known((args, kwargs))
        if is_constant:
            value = constant_folding.fold(node.target, args, kwargs, result_meta)
            if value is not None:
                return value
        args, kwargs = pytree.tree_map(lambda a: self._argument(name, a, is_constant), (args, kwargs))
        value = aten.call(name, node.target._schema, list(args), dict(kwargs), self.float)
        operation, source = name.partition(".")[0], _type_of_first(node)
        if operation in whole_numbers.CONVERSIONS and isinstance(value, Var) and source is not None:
            value = whole_numbers.converted(value, source, result_meta.dtype)
        boolean = name in aten.COMPARISONS | masks.BOOLEANS
        others = (*whole_numbers.kept_types(operation, source), *(torch.bool,) * boolean)
        for tensor, ours in zip(pytree.tree_leaves(result_meta), pytree.tree_leaves(value), strict=False):
            if isinstance(ours, Var) and ours.kind == "real":
                self._check_type(f"the result of aten.{name}", tensor.dtype, *others)
        return value

    def _argument(self, name: str, value: Any, is_constant: bool) -> Any:
        """Return an argument's value for the converter of the operator `name`.

        Known floats, and integers among themselves, become constants. `is_constant`: all arguments of the call are
        known. They are recorded once per tensor, which is kept in `known`. Refused: tensors of other types.
        """
        if not isinstance(value, Tensor):
            return value
        if value.dtype in INTEGER_TYPES:
            array = constant_folding.integer_array(name, value, self.float)
            return self.trace.constant(array) if is_constant else array
        self._check_type(f"a constant of aten.{name}", value.dtype)
        _, name_ = self.known.setdefault(id(value), (value, "constant"))  # kept, so that its id stays its own
        if id(value) not in self.constants:
            self.constants[id(value)] = self.trace.constant(self._numbers(value), name_)
        return self.constants[id(value)]

    # --- the end ---

    def _finished_graph(self) -> Graph:
        """Return the finished graph, with the module's names for its nodes and trainable constants.

        ParameterError if the module returns something other than tensors.
        """
        flat = [self._output_variable(spec.arg) for spec in self.program.graph_signature.output_specs]
        result = pytree.tree_unflatten(flat, self.program.call_spec.out_spec)
        single = not isinstance(result, tuple | list)
        names = tuple(v.name for v in self.inputs)
        graph = self.trace.freeze(names, tuple(self.inputs), (result,) if single else tuple(result), single)
        kept = {graph.nodes[p].name for p in graph.constants}
        return replace(graph, nodes=self._named_nodes(graph), trainable=frozenset(self.trainable & kept))

    def _output_variable(self, arg: Any) -> Var:
        """Return the output `arg` of the program as a variable; ParameterError if it is no tensor."""
        value = self.values.get(arg.name)
        if value is None:
            given = getattr(arg, "value", arg)
            raise ParameterError("from_torch", f"the module must return tensors; got {given!r} among them", rule="P5")
        return value if isinstance(value, Var) else self.trace.constant(_constant_output(value))

    def _named_nodes(self, graph: Graph) -> tuple[Node, ...]:
        """Return the nodes with source lines; the only node of a layer is named like the layer."""
        members = Counter(n.group for n in graph.nodes)
        return tuple(
            replace(n, name=n.group if members[n.group] == 1 else n.name, where=self.lines.get(n.name))
            for n in graph.nodes
        )


def _type_of_first(node: Any) -> torch.dtype | None:
    """Return the type of the tensor that the first argument of a call is; None if it is none."""
    first = node.args[0] if node.args else None
    return getattr(first.meta.get("val"), "dtype", None) if isinstance(first, torch.fx.Node) else None


def _added_if_boolean(node: Any, value: Any) -> Any:
    """Return what attention adds for a mask, if the value of a node is one of booleans that an input decides; else the
    value.
    """
    boolean = isinstance(value, Var) and node.meta["val"].dtype is torch.bool
    return products.added_mask(value) if boolean else value


def _is_known(spec: Any, value: Any) -> bool:
    """Return whether a module tensor, `value` of an input spec, is folded while importing: integers, and tensors that
    the program itself made.
    """
    own = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    return spec.kind is InputKind.CONSTANT_TENSOR or (own and value.dtype in INTEGER_TYPES)


def _constant_output(value: Any) -> Any:
    """Return a constant result `value` as an array; true becomes the number 1."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == bool else array


def _kind_of_tensor(value: Tensor) -> Any:
    """Return "index" if `value` is an int64 tensor, else "real"."""
    return "index" if value.dtype == torch.int64 else "real"


class _Layers:
    """Assigns the calls of an exported `program` to layers: a call of a module without children is a layer, and so is
    each call outside of those.
    """

    def __init__(self, program: Any) -> None:
        stacks = [n.meta.get("nn_module_stack") or {} for n in program.graph.nodes]
        names = {name for stack in stacks for name, _ in stack.values()}
        self.parents = {name.rpartition(".")[0] for name in names if name} | {""}
        self.scopes: dict[str, Scope] = {}

    def name(self, node: Any) -> str:
        """Return the dotted name of the module that a node belongs to."""
        stack = node.meta.get("nn_module_stack") or {"": ("", "")}
        return str(list(stack.values())[-1][0])

    @contextmanager
    def scope(self, node: Any) -> Iterator[None]:
        """Context manager in which nodes are recorded under the layer of `node`, a node of the exported program."""
        name = self.name(node)
        if name in self.parents:
            around = (Scope(name),) if name else ()
            scopes = (*around, Scope(_operator_name(node), composite=True))
        else:  # the last key tells a second call of the same module from the first
            key = list(node.meta["nn_module_stack"])[-1]
            scopes = (self.scopes.setdefault(key, Scope(name, composite=True)),)
        token = SCOPES.set(scopes)
        try:
            yield
        finally:
            SCOPES.reset(token)


def _operator_name(node: Any) -> str:
    """Return the operator of a call: max_pool2d of aten.max_pool2d.default."""
    return str(node.target).removeprefix("aten.").partition(".")[0].strip("_")


def _source_line(node: Any) -> tuple[str, int] | None:
    """Return (file, line) of the innermost user code outside of torch, or None."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, int(number)) for file, number in lines if "site-packages/torch/" not in file.replace("\\", "/")]
    return own[-1] if own else None


def _source_text(node: Any) -> str:
    """Return the source line of a node as text."""
    line = _source_line(node)
    return f"{line[0]}:{line[1]}" if line else "no source line"
