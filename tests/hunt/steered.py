"""Which way every hidden cell must be off for one output to be off most: the sign of its derivative there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.graph.ir.node import bind
from specgrad.op import apply

NEAR = 1e-3  # of the largest cell: what rounding may move over 0


def values_of(graph: Graph, inputs: Sequence[Any]) -> list[np.ndarray]:
    """Every node in float64."""
    given, values = dict(zip(graph.input_positions, inputs, strict=True)), list[Any]()
    for i, node in enumerate(graph.nodes):
        if node.op in (INPUT, CONSTANT):
            array = np.asarray(given[i] if node.op is INPUT else graph.constants[i])
            values.append(array if array.dtype.kind == "i" else array.astype(float))
        else:
            values.append(apply(node.op, *bind(node.args, values), **node.params))
    return values


def aims(graph: Graph, inputs: Sequence[Any], output: int, cell: int, sign: int) -> dict[int, np.ndarray]:
    """Per node and cell 1, -1, or 0 where the output does not depend on it; steers executions, proves nothing."""
    with np.errstate(all="ignore"):
        values = values_of(graph, inputs)
        slopes = _pulled_back(graph, values, output, cell)
    flat = {i: np.nan_to_num(np.sign(g)).ravel() * sign for i, g in slopes.items()}
    return {i: flat.get(i, np.zeros(values[i].size)) for i in range(len(graph.nodes))}


def _pulled_back(graph: Graph, values: list[Any], output: int, cell: int) -> dict[int, np.ndarray]:
    first = np.zeros(values[output].size)
    first[cell] = 1.0
    slopes = {output: first.reshape(values[output].shape)}
    for i in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[i]
        if node.op in (INPUT, CONSTANT) or i not in slopes or node.kind == "index":
            continue
        args = bind(node.args, values)
        if node.op.name == "relu":  # one that rounding may open is open
            args = (np.where(np.abs(args[0]) < NEAR * np.abs(args[0]).max(initial=0), 1.0, args[0]),)
        pulled = node.op.cotangents(slopes[i], values[i], args, node.params)
        for a, g in zip(node.args, pulled, strict=True):
            if g is not None and isinstance(a, int):
                slopes[a] = slopes[a] + g if a in slopes else np.asarray(g)
    return slopes
