"""Nodes, each the application of one operator to earlier nodes; a program, a flat list of them; and how it is run.

Nodes refer to each other by position, so nothing here recurses; parameters are inputs and live beside the graph. A
program runs node by node on any values: arrays, tensors, graph variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from specgrad.errors import ShapeError, SpecgradError
from specgrad.op import OUTSIDE, Op, Params, Value, apply, shape_of
from specgrad.scalar import Array, Number
from specgrad.window import Shape

from .tree import Tree, at_path, leaves, match, paths, transform

Kind = Literal["real", "index"]


def _outside(*_: Any, **__: Any) -> Any:
    """Raise AssertionError: the rules of inputs and constants are never called, since these are not computed."""
    raise AssertionError("inputs and constants are not computed")


INPUT = Op(name="input", shape=_outside, spec=_outside, cases=_outside)
CONSTANT = Op(name="constant", shape=_outside, spec=_outside, cases=_outside)
OUTSIDE.update(input=INPUT, constant=CONSTANT)


@dataclass(frozen=True, slots=True)
class NumberArg:
    """A Python number, `value`, among the arguments of a node."""

    value: Number


Arg = int | NumberArg  # the position of an earlier node, or a number


@dataclass(frozen=True, slots=True)
class Node:
    """One application of one operator to earlier nodes, with its shape, name and layer.

    Parameters
    ----------
    op : Op
        The operator.
    args : tuple of int or NumberArg
        Positions of earlier nodes, and Python numbers.
    params : mapping
        Settings of the operator.
    shape : tuple of int
        Shape of the value.
    kind : {"real", "index"}
        "index" for integers.
    name : str
        Unlike all other names in the graph.
    group : str
        The layer this node belongs to: its own name, or that of a composition such as batch_norm.
    where : (str, int), optional
        File and line of the user's call; not saved.

    Examples
    --------
    >>> import specgrad as sg
    >>> node = sg.trace(lambda x: x * 2, (3,)).nodes[-1]
    >>> node.op.name, node.args, node.shape, node.name
    ('mul', (0, NumberArg(value=2)), (3,), 'mul')
    """

    op: Op
    args: tuple[Arg, ...]
    params: Params
    shape: Shape
    kind: Kind
    name: str
    group: str
    where: tuple[str, int] | None = field(default=None, compare=False)

    def operands(self) -> tuple[int, ...]:
        """Return the positions of the arguments that are nodes; numbers are skipped."""
        return tuple(a for a in self.args if not isinstance(a, NumberArg))


@dataclass(frozen=True, eq=False)
class Program:
    """A flat list of nodes with inputs, outputs and captured constants: the data of a graph.

    inputs     one structure of node positions per argument
    outputs    one structure of node positions per result; `single` if the function returned a bare value
    trainable  names of the constants that training may change: an imported model's parameters, not its buffers
    """

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    inputs: tuple[Tree, ...]
    outputs: tuple[Tree, ...]
    single: bool
    constants: Mapping[int, Array]
    trainable: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, name: str) -> Node:
        """Return the node of that name; raise KeyError if there is none."""
        for n in self.nodes:
            if n.name == name:
                return n
        raise KeyError(name)

    @property
    def input_positions(self) -> list[int]:
        """Return the positions of all inputs, in order."""
        return leaves(self.inputs)

    @property
    def output_positions(self) -> list[int]:
        """Return the positions of all outputs, in order; one may occur several times."""
        return leaves(self.outputs)

    @property
    def real_outputs(self) -> list[int]:
        """Return the positions of outputs that are numbers, repeated as they are; indices are left out."""
        return [p for p in self.output_positions if self.nodes[p].kind == "real"]


def bind(args: tuple[Arg, ...], values: list[Any] | dict[int, Any]) -> tuple[Value, ...]:
    """Return the arguments of a node as values: those of nodes from `values`, by position, and plain numbers."""
    return tuple(a.value if isinstance(a, NumberArg) else values[a] for a in args)


def distinct(taken: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Return `taken`, then `new` with a counter appended to names that are taken already.

    >>> distinct(("x", "d_x"), ("d_x", "d_d_x"))
    ('x', 'd_x', 'd_x_2', 'd_d_x')
    """
    names = list(taken)
    for name in new:
        free, count = name, 1
        while free in names:
            count += 1
            free = f"{name}_{count}"
        names.append(free)
    return tuple(names)


# --- running a program ------------------------------------------------------------------------------------------------

Observer = Callable[[Node, Value], None]


def _compute(node: Node, args: tuple[Value, ...]) -> Value:
    """Apply one node's operator; an error gets a note with the layer and the user's line."""
    try:
        return apply(node.op, *args, **node.params)
    except SpecgradError as error:
        where = f", {os.path.basename(node.where[0])}:{node.where[1]}" if node.where else ""
        error.add_note(f"  in layer {node.name}{where}")
        raise


def evaluate(graph: Program, inputs: dict[int, Value], observe: Observer | None = None) -> dict[int, Value]:
    """Return the values of the outputs, by position, from `inputs` by position; each is released after its last use.

    `observe(node, value)` sees every computed node in order.
    """
    keep = set(graph.output_positions)
    last_use = {a: i for i, node in enumerate(graph.nodes) for a in node.operands()}
    values: list[Any] = [None] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            values[i] = inputs[i]
        elif node.op is CONSTANT:
            values[i] = graph.constants[i]
        else:
            values[i] = _compute(node, bind(node.args, values))
            if observe is not None:
                observe(node, values[i])
        for a in node.operands():
            if last_use[a] == i and a not in keep:
                values[a] = None
    return {i: values[i] for i in keep}


def check_argument_count(graph: Program, args: tuple[Any, ...]) -> None:
    """Raise ShapeError unless there are as many arguments as the graph takes."""
    if len(args) != len(graph.inputs):
        raise ShapeError("graph", f"takes {len(graph.inputs)} arguments ({', '.join(graph.names)}); got {len(args)}")


def bind_inputs(graph: Program, args: tuple[Any, ...]) -> dict[int, Value]:
    """Return the arguments of a call by position, after a check of their structure and shapes.

    ShapeError if they do not fit.
    """
    check_argument_count(graph, args)
    values: dict[int, Value] = {}
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        for path, position, value in match(pattern, arg, name):
            shape = graph.nodes[position].shape
            if shape_of(value) != shape:
                raise ShapeError("graph", f"input {path} must have shape {shape}; got {shape_of(value)}")
            values[position] = value
    return values


class Binder:
    """`bind_inputs` for many calls of one `graph`: the path to every leaf is computed once."""

    def __init__(self, graph: Program) -> None:
        self.graph = graph
        self.leaves = [
            (number, keys, graph.nodes[position].shape)
            for number, tree in enumerate(graph.inputs)
            for keys, position in paths(tree)
        ]
        self.branches = [
            (n, keys, size) for n, tree in enumerate(graph.inputs) for keys, size in _branch_sizes(tree, ())
        ]

    def __call__(self, args: tuple[Any, ...]) -> list[Value]:
        """Return the leaves of the arguments in the graph's order; raise as `bind_inputs` does for wrong ones."""
        values = []
        try:
            for number, keys, size in self.branches:
                if len(at_path(args[number], keys)) != size:  # an entry that the graph does not know
                    raise TypeError
            for number, keys, shape in self.leaves:
                value = at_path(args[number], keys)
                if value.shape != shape:
                    raise TypeError
                values.append(value)
        except (AttributeError, IndexError, KeyError, TypeError):
            by_position = bind_inputs(self.graph, args)
            return [by_position[p] for p in self.graph.input_positions]
        if len(args) != len(self.graph.inputs):
            bind_inputs(self.graph, args)
        return values


def _branch_sizes(tree: Tree, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield the keys to every branch of a structure, and the number of its entries."""
    if isinstance(tree, dict | tuple):
        yield keys, len(tree)
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _branch_sizes(child, (*keys, key))


def call(graph: Program, args: tuple[Any, ...], observe: Observer | None = None) -> Any:
    """Return the results of a graph, in the structure that the traced function returned; `observe` is called with every
    node and value.

    ShapeError for arguments that do not fit.
    """
    inputs = bind_inputs(graph, args)
    builder = next((v.builder for v in inputs.values() if hasattr(v, "builder")), None)
    values = evaluate(graph if builder is None else _with_recorded_constants(graph, builder), inputs, observe)
    results = transform(lambda _, position: _copy_if_constant(graph, values[position]), graph.outputs)
    return results[0] if graph.single else results


def _with_recorded_constants(graph: Program, builder: Any) -> Program:
    """Return the graph with its constants as variables of `builder`, the trace that the call is part of.

    As arrays they would be computed with at once, in their own format: var + eps rounded to float32, and the graph
    another function.
    """
    constants = {
        p: builder.constant(a, graph.nodes[p].name, real=graph.nodes[p].kind == "real", owned=True)
        for p, a in graph.constants.items()
        if a.shape == graph.nodes[p].shape
    }
    return replace(graph, constants={**graph.constants, **constants})


def _copy_if_constant(graph: Program, result: Value) -> Value:
    """Return a copy of a result that shares memory with a constant, else the result itself.

    A caller who changes its result must not change the graph.
    """
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, c) for c in graph.constants.values()):
        return result.copy()
    return result
