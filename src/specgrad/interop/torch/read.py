"""From a PyTorch module to a graph, through torch.export.

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
from . import aten, constant_folding
from .symbolic import import_open

LISTED = 20  # calls whose lines an error lists
FLOATS = (torch.float16, torch.float32, torch.float64)
WHOLE = (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)


def from_torch(module: nn.Module, *example: Tensor, shapes: Sequence[tuple[Any, ...]] | None = None) -> Graph:
    """The graph that `module(*example)` computes; shapes are those of the example, values play no role.

    shapes leaves sizes open, for `Graph.at`: one shape per example, with names: [("N", 3, "H", "W")]. The defaults are
    the example's sizes. Other sizes export the module again, with the weights that it had here.


    Layers are named as in the module (layer1.0.conv1); a call that belongs to no layer of its own is named after the
    module it stands in and its operator (layer1.0.add). Parameters and buffers are constants named as in state_dict (a
    shared parameter by the first of its names); `graph.trainable` lists the parameters that require a gradient.
    Refused by name: an operator or argument without a line, training mode, mutation, mixed or unusual number types.

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
        if not isinstance(value, Tensor):
            given = type(value).__name__
            raise ParameterError("from_torch", f"example {number} must be a tensor; got {given}", rule="P5")
    if shapes is not None:
        return import_open(from_torch, module, example, shapes)
    program = _exported(module, example)
    _refuse_mutation(program)
    return _Importer(program, module).graph()


def _exported(module: nn.Module, example: tuple[Tensor, ...]) -> Any:
    with warnings.catch_warnings():  # torch.export warns of its own use of torch.utils._pytree
        warnings.filterwarnings("ignore", "`isinstance\\(treespec, LeafSpec\\)` is deprecated", FutureWarning)
        return torch.export.export(module, example).run_decompositions({})


def _refuse_mutation(program: Any) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            text = f"the call changes {spec.target} ({spec.kind.name.lower().replace('_', ' ')})"
            advice = (
                "call module.eval() first" if spec.kind is OutputKind.BUFFER_MUTATION else "a graph changes nothing"
            )
            raise ParameterError("from_torch", f"{text}; {advice}", rule="P5")


class _Importer:
    """One exported program on its way to a graph."""

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

    def graph(self) -> Graph:
        self._refuse_unknown()
        specs = iter(self.program.graph_signature.input_specs)
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                self.values[node.name] = self._input(node, next(specs))
            elif node.op == "call_function":
                self._call(node)
            elif node.op != "output":
                raise UnsupportedError("from_torch", f"{node.op} {node.target} in the exported program is unknown")
        return self._finished()

    def _refuse_unknown(self) -> None:
        """All operators that are not known at once, each with the layers that call it."""
        calls = [n for n in self.program.graph.nodes if n.op == "call_function"]
        folded = constant_folding.foldable(calls, self._given())
        lines = {operator.getitem, *(n.target for n in calls if str(n.target).removeprefix("aten.") in aten.TABLE)}
        unknown = [n for n in calls if n.target not in lines and n not in folded]
        places: dict[str, list[str]] = {}
        for node in unknown:
            places.setdefault(str(node.target), []).append(self.layers.name(node) or "the module itself")
        if unknown:
            listed = "; ".join(f"{op} is not known (in {', '.join(dict.fromkeys(at))})" for op, at in places.items())
            error = UnsupportedError("from_torch", listed[:2000])
            for node in unknown[:LISTED]:
                error.add_note(f"  in layer {self.layers.name(node) or 'the module itself'}, {_source(node)}")
            raise error

    def _given(self) -> list[Any]:
        """Placeholders that stand for tensors of the module which are known while importing."""
        specs = self.program.graph_signature.input_specs
        pairs = zip((n for n in self.program.graph.nodes if n.op == "placeholder"), specs, strict=True)
        return [n for n, spec in pairs if _is_known(spec, n.meta.get("val"))]

    # --- inputs, parameters, buffers ---

    def _input(self, node: Any, spec: Any) -> Any:
        if spec.kind is InputKind.USER_INPUT:
            value = node.meta["val"]
            self._check_type(node.name, value.dtype, torch.int64)
            self.inputs.append(self.trace.leaf(node.name, tuple(value.shape), _kind(value)))
            return self.inputs[-1]
        if not node.users:
            return None  # such as num_batches_tracked
        tensor = self._tensor(spec)
        name = self.first_names.get(id(tensor), spec.target)  # a shared parameter has several
        if _is_known(spec, tensor):
            given = tensor.detach().cpu()
            self.known[id(given)] = given, name
            return given
        self._check_type(name, tensor.dtype)
        if spec.kind is InputKind.PARAMETER and tensor.requires_grad:
            self.trainable.add(name)
        return self.trace.constant(np.array(tensor.detach().cpu().numpy()), name)

    def _tensor(self, spec: Any) -> Any:
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            raise UnsupportedError("from_torch", f"input {spec.target} of kind {spec.kind.name} is unknown")
        tensor = self.program.state_dict.get(spec.target)
        return self.program.constants[spec.target] if tensor is None else tensor

    def _check_type(self, name: str, dtype: torch.dtype, *others: torch.dtype) -> None:
        """One floating type for everything: then no conversion rounds behind the graph's back."""
        if dtype in others:
            return
        if dtype not in FLOATS:
            text = f"{name} has type {dtype}; convert the module to {', '.join(map(str, FLOATS))}"
            raise ParameterError("from_torch", text, rule="P5")
        if self.float not in (None, dtype):
            text = f"{name} has type {dtype} where others have {self.float}; convert the module and the example to one"
            raise ParameterError("from_torch", text, rule="P5")
        self.float = dtype

    # --- calls ---

    def _call(self, node: Any) -> None:
        if node.target is operator.getitem:
            self.values[node.name] = self.values[node.args[0].name][node.args[1]]
            return
        before = len(self.trace.nodes)
        try:
            with self.layers.scope(node):
                self.values[node.name] = self._value(node)
        except SpecgradError as error:
            error.add_note(f"  in layer {self.layers.name(node) or 'the module itself'}, {_source(node)}")
            raise
        for recorded in self.trace.nodes[before:]:
            self.lines[recorded.name] = _line(node)

    def _value(self, node: Any) -> Any:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            raise UnsupportedError("from_torch", f"{node.target} is not an aten operator")
        name = str(node.target).removeprefix("aten.")
        args, kwargs = (torch.fx.map_arg(part, lambda n: self.values[n.name]) for part in (node.args, node.kwargs))
        wanted = node.meta.get("val")
        args = constant_folding.without_values(name, args, wanted)
        alone = constant_folding.is_known((args, kwargs))
        if alone:
            value = constant_folding.fold(node.target, args, kwargs, wanted)
            if value is not None:
                return value
        args, kwargs = pytree.tree_map(lambda a: self._argument(name, a, alone), (args, kwargs))
        value = aten.call(name, node.target._schema, list(args), dict(kwargs))
        others = (torch.bool,) if name in aten.COMPARISONS else ()
        for tensor, ours in zip(pytree.tree_leaves(wanted), pytree.tree_leaves(value), strict=False):
            if isinstance(ours, Var) and ours.kind == "real":
                self._check_type(f"the result of aten.{name}", tensor.dtype, *others)
        return value

    def _argument(self, name: str, value: Any, alone: bool) -> Any:
        """A known tensor as a line takes it: floats, and integers among themselves, are constants of the graph."""
        if not isinstance(value, Tensor):
            return value
        if value.dtype in WHOLE:
            array = constant_folding.whole_array(name, value, self.float)
            return self.trace.constant(array) if alone else array
        self._check_type(f"a constant of aten.{name}", value.dtype)
        _, called = self.known.setdefault(id(value), (value, "constant"))  # kept, so that its id stays its own
        if id(value) not in self.constants:
            self.constants[id(value)] = self.trace.constant(np.array(value.detach().cpu().numpy()), called)
        return self.constants[id(value)]

    # --- the end ---

    def _finished(self) -> Graph:
        flat = [self._result(spec.arg) for spec in self.program.graph_signature.output_specs]
        result = pytree.tree_unflatten(flat, self.program.call_spec.out_spec)
        single = not isinstance(result, tuple | list)
        names = tuple(v.name for v in self.inputs)
        graph = self.trace.freeze(names, tuple(self.inputs), (result,) if single else tuple(result), single)
        kept = {graph.nodes[p].name for p in graph.constants}
        return replace(graph, nodes=self._renamed(graph), trainable=frozenset(self.trainable & kept))

    def _result(self, arg: Any) -> Var:
        value = self.values.get(arg.name)
        if value is None:
            given = getattr(arg, "value", arg)
            raise ParameterError("from_torch", f"the module must return tensors; got {given!r} among them", rule="P5")
        return value if isinstance(value, Var) else self.trace.constant(_constant(value))

    def _renamed(self, graph: Graph) -> tuple[Node, ...]:
        """A layer of one node gives it its name; every node knows the user's line."""
        members = Counter(n.group for n in graph.nodes)
        return tuple(
            replace(n, name=n.group if members[n.group] == 1 else n.name, where=self.lines.get(n.name))
            for n in graph.nodes
        )


def _is_known(spec: Any, value: Any) -> bool:
    """Whether a tensor of the module is computed with while importing: integers, and what the program itself made."""
    own = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    return spec.kind is InputKind.CONSTANT_TENSOR or (own and value.dtype in WHOLE)


def _constant(value: Any) -> Any:
    """A result that no input decides; truth is the number 1."""
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == bool else array


def _kind(value: Tensor) -> Any:
    return "index" if value.dtype == torch.int64 else "real"


class _Layers:
    """Which layer a call belongs to: each call of a module without children is one, and each call outside of those."""

    def __init__(self, program: Any) -> None:
        stacks = [n.meta.get("nn_module_stack") or {} for n in program.graph.nodes]
        names = {name for stack in stacks for name, _ in stack.values()}
        self.parents = {name.rpartition(".")[0] for name in names if name} | {""}
        self.scopes: dict[str, Scope] = {}

    def name(self, node: Any) -> str:
        stack = node.meta.get("nn_module_stack") or {"": ("", "")}
        return str(list(stack.values())[-1][0])

    @contextmanager
    def scope(self, node: Any) -> Iterator[None]:
        name = self.name(node)
        if name in self.parents:
            around = (Scope(name),) if name else ()
            scopes = (*around, Scope(_operator(node), composite=True))
        else:  # the last key tells a second call of the same module from the first
            key = list(node.meta["nn_module_stack"])[-1]
            scopes = (self.scopes.setdefault(key, Scope(name, composite=True)),)
        token = SCOPES.set(scopes)
        try:
            yield
        finally:
            SCOPES.reset(token)


def _operator(node: Any) -> str:
    """aten.max_pool2d.default -> max_pool2d."""
    return str(node.target).removeprefix("aten.").partition(".")[0].strip("_")


def _line(node: Any) -> tuple[str, int] | None:
    """The innermost line of the user's own code, outside of torch."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, int(number)) for file, number in lines if "site-packages/torch/" not in file.replace("\\", "/")]
    return own[-1] if own else None


def _source(node: Any) -> str:
    line = _line(node)
    return f"{line[0]}:{line[1]}" if line else "no source line"
