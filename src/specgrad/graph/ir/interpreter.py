"""Run a graph, node by node, on whatever values it is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.errors import ShapeError, SpecgradError
from specgrad.op import Value, apply, shape_of

from .node import CONSTANT, INPUT, Node, Program, bind
from .tree import Tree, at_path, match, paths, transform

Observer = Callable[[Node, Value], None]


def _compute(node: Node, args: tuple[Value, ...]) -> Value:
    try:
        return apply(node.op, *args, **node.params)
    except SpecgradError as error:
        where = f", {os.path.basename(node.where[0])}:{node.where[1]}" if node.where else ""
        error.add_note(f"  in layer {node.name}{where}")
        raise


def evaluate(graph: Program, inputs: dict[int, Value], observe: Observer | None = None) -> dict[int, Value]:
    """The values of the outputs, by position. A value is let go after its last use.

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


def bind_inputs(graph: Program, args: tuple[Any, ...]) -> dict[int, Value]:
    """The arguments of a call, by position, after their structure and shapes have been checked."""
    if len(args) != len(graph.inputs):
        raise ShapeError("graph", f"takes {len(graph.inputs)} arguments ({', '.join(graph.names)}); got {len(args)}")
    values: dict[int, Value] = {}
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        for path, position, value in match(pattern, arg, name):
            shape = graph.nodes[position].shape
            if shape_of(value) != shape:
                raise ShapeError("graph", f"input {path} must have shape {shape}; got {shape_of(value)}")
            values[position] = value
    return values


class Binder:
    """`bind_inputs` for many calls: where every leaf stands is looked up once."""

    def __init__(self, graph: Program) -> None:
        self.graph = graph
        self.leaves = [
            (number, keys, graph.nodes[position].shape)
            for number, tree in enumerate(graph.inputs)
            for keys, position in paths(tree)
        ]
        self.branches = [(n, keys, size) for n, tree in enumerate(graph.inputs) for keys, size in _sizes(tree, ())]

    def __call__(self, args: tuple[Any, ...]) -> list[Value]:
        """The leaves of the arguments in the graph's order; wrong ones are refused as by `bind_inputs`."""
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


def _sizes(tree: Tree, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Every branch of a structure with the number of its entries."""
    if isinstance(tree, dict | tuple):
        yield keys, len(tree)
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _sizes(child, (*keys, key))


def call(graph: Program, args: tuple[Any, ...], observe: Observer | None = None) -> Any:
    """The results, in the structure that the traced function returned."""
    inputs = bind_inputs(graph, args)
    builder = next((v.builder for v in inputs.values() if hasattr(v, "builder")), None)
    values = evaluate(graph if builder is None else _recorded(graph, builder), inputs, observe)
    results = transform(lambda _, position: _apart(graph, values[position]), graph.outputs)
    return results[0] if graph.single else results


def _recorded(graph: Program, builder: Any) -> Program:
    """Constants as variables of the trace that the call is part of.

    As arrays they would be computed with on the spot, in their own format: var + eps rounded to float32, and the graph
    another function.
    """
    constants = {
        p: builder.constant(a, graph.nodes[p].name, real=graph.nodes[p].kind == "real", owned=True)
        for p, a in graph.constants.items()
        if a.shape == graph.nodes[p].shape
    }
    return replace(graph, constants={**graph.constants, **constants})


def _apart(graph: Program, result: Value) -> Value:
    """A result that is a constant, or a view of one, is copied: who changes it must not change the graph."""
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, c) for c in graph.constants.values()):
        return result.copy()
    return result
