"""Interpreter: runs a graph node by node on any values: arrays, tensors, graph variables."""

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
    """Apply one node's operator; an error gets a note with the layer and the user's line."""
    try:
        return apply(node.op, *args, **node.params)
    except SpecgradError as error:
        where = f", {os.path.basename(node.where[0])}:{node.where[1]}" if node.where else ""
        error.add_note(f"  in layer {node.name}{where}")
        raise


def evaluate(graph: Program, inputs: dict[int, Value], observe: Observer | None = None) -> dict[int, Value]:
    """Return the values of the outputs, by position; each value is released after its last use.

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
    """Return the arguments of a call by position, after a check of their structure and shapes."""
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
    """`bind_inputs` for many calls: the path to every leaf is computed once."""

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
    """Return the results of a graph, in the structure that the traced function returned."""
    inputs = bind_inputs(graph, args)
    builder = next((v.builder for v in inputs.values() if hasattr(v, "builder")), None)
    values = evaluate(graph if builder is None else _with_recorded_constants(graph, builder), inputs, observe)
    results = transform(lambda _, position: _copy_if_constant(graph, values[position]), graph.outputs)
    return results[0] if graph.single else results


def _with_recorded_constants(graph: Program, builder: Any) -> Program:
    """Return the graph with its constants as variables of the trace that the call is part of.

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
