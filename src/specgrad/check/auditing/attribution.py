"""Attribute the difference at the output to layers, to first order.

A runtime computes every layer with an error of its own: e = its value - the layer's exact value on the runtime's own
inputs. To first order those errors add up at the output, each pushed through the rest of the network, J e. With d the
difference at the output,

    share of a layer = <d, J e> / <d, d> = <J^T d, e> / <d, d>

and one reverse pass gives J^T d for all layers. The shares sum to 1 as far as the first order holds.

The estimate beside it is no proof (specgrad.rounding.usual_error).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.deadline import check_time, time_left
from specgrad.engines import compile
from specgrad.errors import SpecgradError, TimeLimitError, need
from specgrad.graph.builder import GraphBuilder
from specgrad.graph.graph import CONSTANT, INPUT, Graph, bind
from specgrad.graph.transforms.autodiff import vjp
from specgrad.rounding import Ball
from specgrad.rounding.usual_error import UsualError
from specgrad.scalar import Array

from ..models.model_run import ModelRun
from ..verdicts.judge import in_float64

REVERSE_COST = 4.0  # times a forward pass: forwards again, and back through products of both factors


@dataclass(frozen=True)
class Difference:
    """The largest difference of two arrays: absolute, relative to the exact value there, in ulps, and its index."""

    absolute: float
    relative: float
    ulps: float
    index: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.absolute:.3g} (relative {self.relative:.2g}, {self.ulps:.3g} units in the last place)"

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `absolute`, `relative`, `ulps` (units in the last place), and `index`, that of the cell."""
        return {"absolute": self.absolute, "relative": self.relative, "ulps": self.ulps, "index": list(self.index)}


@dataclass(frozen=True)
class Attribution:
    """The difference at the output, and the share of it that each layer's own error explains.

    output     the largest difference of the model's outputs from their exact values
    difference per layer, the largest difference from the exact values of the whole model
    own_error  per layer, the largest error that the layer itself made
    shares     per layer, the part of the output's difference that its own error explains, to first order
    estimate   an estimate, not a bound: the standard deviation of a correct runtime's error where the difference is;
               None where none is known
    """

    output: Difference
    difference: Mapping[str, Difference]
    own_error: Mapping[str, Difference]
    shares: Mapping[str, float]
    estimate: float | None

    @property
    def explained(self) -> float:
        """The sum of all shares: 1 as far as the first order holds."""
        return sum(self.shares.values())

    @property
    def is_first_order(self) -> bool:
        """Whether shares mean something: together they explain the difference to a fifth."""
        return abs(self.explained - 1) < 0.2

    def largest(self, count: int = 5) -> list[tuple[str, float]]:
        """Return the `count` layers with the largest absolute shares."""
        return sorted(self.shares.items(), key=lambda item: -abs(item[1]))[:count]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `output` (the difference there), `shares` by layer from the largest down, `explained` by
        all of them, `estimate`, and `order`.
        """
        return {
            "output": self.output.to_json(),
            "shares": dict(self.largest(len(self.shares))),
            "explained": self.explained,
            "estimate": self.estimate,
            "order": "first",
        }


def difference(got: Array, exact: Array) -> Difference:
    """Return the largest finite difference of the array `got` from `exact`, with its index.

    >>> difference(np.float32([1.0, 2.5]), np.array([1.0, 2.0]))
    Difference(absolute=0.5, relative=0.25, ulps=2097152.0, index=(1,))
    """
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - exact)
    apart = np.where(np.isfinite(apart), apart, 0.0)
    if not apart.size:
        return Difference(0.0, 0.0, 0.0, ())
    at = tuple(int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
    size, unit = abs(float(exact[at])), np.finfo(np.float16 if got.dtype == np.float16 else np.float32)
    step = max(2.0 ** (math.frexp(size)[1] - 1) * float(unit.eps), float(unit.smallest_subnormal))
    absolute = float(apart[at])
    relative = 0.0 if absolute == 0 else absolute / size if size else math.inf
    return Difference(absolute, relative, absolute / step, at)


def attribute(
    deployed: ModelRun, expected: Mapping[str, Ball], backend: str, usual: UsualError | None
) -> Attribution | None:
    """Return the attribution of the output's difference to layers; None if there is none, or it cannot be followed.

    TimeLimitError if the time is over, or the reverse pass would take longer than what is left.

    deployed   the run
    expected   the balls of layers by name, each from its own inputs in this run
    usual      the estimated deviations of the outputs, where they are known
    backend    "numpy" or "torch": what computes values in float64
    """
    graph, known = deployed.graph, deployed.known
    positions = {name: p for name, p in deployed.layers.items() if isinstance(p, int) and name in expected}
    outputs = [p for p in graph.real_outputs if p in known]
    if any(known[p].shape != graph.nodes[p].shape for p in [*positions.values(), *outputs]):
        return None  # a runtime that gives another shape is wrong by no amount
    errors = {name: _finite_error(known[p], expected[name].value) for name, p in positions.items()}
    if not outputs or any(p not in known for p in graph.input_positions):
        return None
    inputs = [_number_or_index(graph, p, known[p]) for p in graph.input_positions]
    check_time("attribution")
    start = time.monotonic()
    exact = values_of(graph, [*positions.values(), *outputs], inputs, backend)
    if REVERSE_COST * (time.monotonic() - start) > time_left():
        raise TimeLimitError("attribution", "out of time")
    ends = [_finite_error(known[p], exact[p]) for p in outputs]
    size = sum(float((d * d).sum()) for d in ends)
    if not size or not math.isfinite(size):
        return None
    try:
        shares = _first_order_shares(graph, positions, errors, outputs, ends, inputs, backend)
    except SpecgradError:  # an operator without a derivative stands in the way
        return None
    worst = max(range(len(outputs)), key=lambda k: float(np.abs(ends[k]).max(initial=0.0)))
    largest = difference(known[outputs[worst]], exact[outputs[worst]])
    deviation = None
    if usual is not None:
        deviation = float(usual.deviations[graph.output_positions.index(outputs[worst])][largest.index])
    return Attribution(
        largest,
        {name: difference(known[p], exact[p]) for name, p in positions.items()},
        {name: difference(known[p], expected[name].value) for name, p in positions.items()},
        {name: share / size for name, share in shares.items()},
        deviation if deviation is not None and math.isfinite(deviation) else None,
    )


def _number_or_index(graph: Graph, position: int, array: Array) -> Array:
    """Return the array of the input node at `position` as float64, or as int64 if it is an index."""
    return array.astype(np.int64 if graph.nodes[position].kind == "index" else np.float64)


def _finite_error(got: Array, exact: Array) -> Array:
    """Return got - exact in float64; 0 where it is not finite."""
    with np.errstate(all="ignore"):
        error = got.astype(np.float64) - exact
    return np.where(np.isfinite(error), error, 0.0)


def values_of(graph: Graph, positions: Sequence[int], inputs: Sequence[Array], backend: str) -> dict[int, Array]:
    """Return {position: value in float64} of the nodes at `positions`, computed from the graph's inputs by `backend`.

    Nothing is converted: real `inputs` must be float64, indices int64. `backend` is "numpy" or "torch".
    """
    ordered = tuple(dict.fromkeys(positions))
    wanted = Graph(graph.nodes, graph.names, graph.inputs, ordered, False, graph.constants)
    return dict(zip(ordered, _outputs_in_float64(wanted, inputs, backend), strict=True))


def _outputs_in_float64(graph: Graph, inputs: Sequence[Array], backend: str) -> Sequence[Array]:
    """Return the outputs of a graph in float64, by NumPy, or by PyTorch if `backend` is "torch".

    Nothing is converted: real inputs must be float64, indices int64. MissingPackageError without PyTorch.
    """
    if backend != "torch":
        return tuple(np.asarray(v) for v in in_float64(graph)(*inputs))
    need("torch", 'backend="torch" needs')
    import torch

    with torch.no_grad():
        results = compile(graph, "torch").double()(*(torch.from_numpy(np.ascontiguousarray(a)) for a in inputs))
    return tuple(r.numpy() for r in results)


def with_error_inputs(graph: Graph, positions: Sequence[int], outputs: Sequence[int]) -> Graph:
    """Return a copy of `graph` that gives the nodes `outputs`, with one extra input per node in `positions`.

    That input, of the node's shape, is added to the node's value; it stands behind the graph's own inputs.
    """
    t = GraphBuilder()
    values: list[Any] = []
    errors = {}
    for i, node in enumerate(graph.nodes):
        if node.op is INPUT:
            values.append(t.leaf(node.name, node.shape, node.kind))
        elif node.op is CONSTANT:
            values.append(t.constant(graph.constants[i], node.name, owned=True))
        else:
            values.append(t.record(node.op, bind(node.args, values), node.params, name=node.name, group=node.group))
        if i in positions:
            errors[i] = t.leaf(f"error {i}", node.shape)
            values[i] = values[i] + errors[i]
    names = tuple(graph.nodes[p].name for p in graph.input_positions) + tuple(f"error {p}" for p in positions)
    inputs = tuple(values[p] for p in graph.input_positions) + tuple(errors[p] for p in positions)
    return t.freeze(names, inputs, tuple(values[p] for p in outputs), False)


def _first_order_shares(
    graph: Graph,
    positions: Mapping[str, int],
    errors: Mapping[str, Array],
    outputs: Sequence[int],
    ends: Sequence[Array],
    inputs: Sequence[Array],
    backend: str,
) -> dict[str, float]:
    """Return <J^T d, e> per layer.

    positions, errors   of each layer: its node, and e, its own error
    ends                d: the difference of each output
    inputs   of the graph, in float64; backend computes products with J
    """
    places = list(dict.fromkeys(positions.values()))
    count = len(inputs)
    reverse = vjp(with_error_inputs(graph, places, outputs), wrt=tuple(range(count, count + len(places))))
    zeros = [np.zeros(graph.nodes[p].shape) for p in places]
    results = _outputs_in_float64(reverse, [*inputs, *zeros, *ends], backend)
    pulled = dict(zip(places, results[len(outputs) :], strict=True))
    return {name: float((pulled[p] * errors[name]).sum()) for name, p in positions.items()}
