"""Emulate one execution of a graph by node, in a declared arithmetic, with chosen summation orders.

Every execution here belongs to the class "by node", and so to "fused": each node's result is rounded and stored; the
terms of a cell are added as they come, backwards, sorted, in pairs, or in float64; a division by a constant may be a
product with its rounded reciprocal. Which one a cell takes depends on `directions`: as large as possible where the
sign is +1, as small as possible where it is -1. That is how two executions are driven apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.deadline import check_time
from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from specgrad.graph.ir.node import evaluate
from specgrad.op import run_spec
from specgrad.rounding import Arithmetic
from specgrad.rounding.propagate import constant_nodes
from specgrad.scalar import Array

from .summation_orders import candidate_sums, rounding_to, sum_terms

MAX_MULTIPLY_ADDS = 100_000_000


def multiply_adds(graph: Graph) -> int:
    """Return the multiply-adds of all nodes; an emulated execution takes some 20 passes over them, in NumPy."""
    shapes = [n.shape for n in graph.nodes]
    return sum(n.op.multiply_adds(*(shapes[a] for a in n.operands()), **n.params) for n in graph.nodes if n.op.kernel)


class Executor:
    """Runs a graph in an arithmetic, node by node; raises UnsupportedError for tensor cores and their like."""

    def __init__(self, graph: Graph, arithmetic: Arithmetic) -> None:
        arithmetic.check_plain("an emulated execution")
        self.graph, self.arithmetic = graph, arithmetic
        self.store, self.inner = rounding_to(arithmetic.format), rounding_to(arithmetic.inner)
        self.factor = rounding_to(arithmetic.factor) if arithmetic.factor is not None else np.asarray
        self.constant = constant_nodes(graph)

    def run(self, inputs: Sequence[Array], directions: Mapping[int, Array]) -> list[Array]:
        """Return the outputs for `inputs`, in order, as float64 arrays of numbers of the format.

        `directions` say by node, per cell, which way sums are pushed: 1 as large as possible, -1 as small. Nodes
        without an entry, and cells of 0, take the first order. TimeLimitError when the time is over.
        """
        with np.errstate(all="ignore"):  # what overflows is infinite, and nobody's proof rests on it
            return self._run_nodes(inputs, directions)

    def _run_nodes(self, inputs: Sequence[Array], directions: Mapping[int, Array]) -> list[Array]:
        """Return the outputs at `inputs`, node by node in the arithmetic; `directions` say, by node, which way sums are
        pushed.
        """
        graph, values = self.graph, []
        given = dict(zip(graph.input_positions, inputs, strict=True))
        for i, node in enumerate(graph.nodes):
            check_time("an emulated execution")
            if node.op in (INPUT, CONSTANT):
                values.append(self._round_to_format(given[i] if node.op is INPUT else graph.constants[i], node))
                continue
            args = [self._round_number(a) if isinstance(a, NumberArg) else values[a] for a in node.args]
            values.append(self._node_result(i, node, args, directions.get(i)))
        return [values[p] for p in graph.output_positions]

    def _round_to_format(self, array: Any, node: Node) -> Array:
        """Return an array rounded to the format; indices unchanged."""
        if node.kind == "index":
            return np.asarray(array)
        return np.asarray(self.store(np.asarray(array).astype(np.float64)))

    def _round_number(self, a: NumberArg) -> float:
        """Return a bare number rounded to the format."""
        return float(self.store(np.asarray(float(a.value))))

    def _node_result(self, i: int, node: Node, args: list[Any], direction: Array | None) -> Array:
        """Return the node's result; of several summation orders each cell takes the one of its direction."""
        if node.kind == "index":
            return np.asarray(run_spec(node.op, args, node.params))
        if node.op.kernel:
            args = [*map(self.factor, args[:2]), *args[2:]]
        sign = np.sign(direction) if direction is not None else np.zeros(node.shape)
        parts = sum_terms(node, args, self.inner) if node.op.roundings is not None else None
        if parts is None:
            options = [self.store(np.asarray(run_spec(node.op, args, node.params), np.float64))]
            return _choose_by_sign([*options, *self._quotient_by_reciprocal(node, args)], sign)
        view = _shape_by_channels(node)
        result, signs = np.zeros(view), sign.reshape(view)
        for where, terms in parts:
            sums = list(candidate_sums(terms, self.inner, int(node.op.name != "sum"), self.arithmetic.depth))
            result[where] = _choose_by_sign([self.store(self._divide_average(node, s)) for s in sums], signs[where])
        return result.reshape(node.shape)

    def _quotient_by_reciprocal(self, node: Node, args: list[Any]) -> list[Array]:
        """Return [x * (1/c)] for a quotient x / c with constant c; else []."""
        if node.op.name != "div" or not (isinstance(node.args[1], NumberArg) or node.args[1] in self.constant):
            return []
        product = self.inner(args[0] * self.inner(np.divide(1.0, args[1])))
        return [np.broadcast_to(self.store(product), node.shape)]

    def _divide_average(self, node: Node, total: Array) -> Array:
        """Return `total`, the sums of an average pooling, divided by its divisor; unchanged for other nodes."""
        if node.op.name != "avg_pool":
            return total
        window, divisor = node.params["window"], node.params["divisor"]
        counts = {"padded": window.counted, "inside": window.inside}
        by = np.asarray(counts[divisor]() if isinstance(divisor, str) else self.store(np.asarray(float(divisor))))
        return np.asarray(np.where(by == 0, 0.0, self.inner(total / np.where(by == 0, 1, by).astype(float))))


def _shape_by_channels(node: Node) -> tuple[int, ...]:
    """Return the result's shape with batch axes merged into one, so that channels are the second axis."""
    if node.op.name not in ("conv", "conv_transpose"):
        return node.shape
    rank = node.params["window"].rank
    lead = len(node.shape) - rank - 1
    return (int(np.prod(node.shape[:lead])), *node.shape[lead:])


def _choose_by_sign(options: list[Array], sign: Array) -> Array:
    """Return, per cell, the largest option where the sign is positive, the smallest where negative, else the first."""
    if len(options) == 1:
        return np.array(options[0])
    stacked = np.stack(options)
    return np.asarray(np.where(sign > 0, stacked.max(0), np.where(sign < 0, stacked.min(0), stacked[0])))


def slopes(graph: Graph, inputs: Sequence[Array], row: Array) -> dict[int, Array]:
    """Return d(row . outputs)/d(node) at `inputs` for every node that has one, by position, in float64, by PyTorch's
    autograd.
    """
    import torch

    kinds = [n.kind for n in graph.nodes]

    def tensor(i: int, a: Array) -> Any:
        return torch.tensor(a if kinds[i] == "index" else np.asarray(a, float))

    constants: Any = {i: tensor(i, a) for i, a in graph.constants.items()}
    given = {p: tensor(p, x) for p, x in zip(graph.input_positions, inputs, strict=True)}
    floats = [x for x in given.values() if x.is_floating_point()]
    for x in floats or [
        c for c in constants.values() if c.is_floating_point()
    ]:  # of ids, the tables that they choose from
        x.requires_grad_()
    position = {n.name: i for i, n in enumerate(graph.nodes)}
    values: dict[int, Any] = {}
    observe = lambda node, value: values.__setitem__(position[node.name], value)
    outputs = evaluate(replace(graph, constants=constants), given, observe)
    flat = torch.cat([outputs[p].reshape(-1) for p in graph.real_outputs])
    total = (flat * torch.from_numpy(row)).sum()
    wanted = {i: v for i, v in values.items() if kinds[i] == "real" and v.requires_grad}
    grads = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)
    return {i: g.numpy() for i, g in zip(wanted, grads, strict=True) if g is not None}
