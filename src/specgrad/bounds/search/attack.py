"""Counterexamples: projected gradients from several starts, replayed one by one on the deployed float32 network.

The search runs on PyTorch in batches; what it finds counts only if the same float32 input, alone, run in float32 as it
would be deployed, lies in the property's box and gives outputs in one of its alternatives, both compared exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from ...engines import compile
from ...errors import SpecgradError, need
from ...graph.graph import Graph
from ...process import Process, session
from ...properties.property import Alternative, Case, as_float
from ...scalar import Array
from .deployed import deployed_graph

LINEAR: Callable[[float], float] = lambda t: 0.5 * (1 - t)  # steps shrink evenly: far
GEOMETRIC: Callable[[float], float] = lambda t: 0.5 * 2.0 ** (-14 * t)  # or by halves: near kinks


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input, the outputs of the deployed network there, and which engines agree that they break the property."""

    x: Array
    y: Array
    confirmed: tuple[str, ...]


class DeployedNetwork:
    """A graph in float32 on PyTorch: one input as it would be deployed, or many at once for a search."""

    def __init__(self, graph: Graph) -> None:
        self.graph = deployed_graph(graph)
        self.shape = graph.nodes[graph.input_positions[0]].shape
        self.module = compile(self.graph, "torch")

    def _output(self, x: Any) -> Any:
        import torch

        output = self.module(x)
        while not isinstance(output, torch.Tensor):  # one output, in a structure of its own
            (output,) = output.values() if isinstance(output, dict) else output
        return output.reshape(-1)

    def run(self, x: Array) -> Array:
        """The outputs of one input, flat."""
        import torch

        with torch.no_grad():
            output: Array = self._output(torch.from_numpy(x.astype(np.float32).reshape(self.shape))).numpy()
        return output

    def batch(self, x: Any) -> Any:
        """The outputs of many flat inputs, differentiable."""
        import torch

        return torch.func.vmap(self._output)(x.reshape(-1, *self.shape))


@dataclass(frozen=True)
class Effort:
    """How long to search: starts per alternative, steps per start, and a limit in seconds for all of it."""

    starts: int = 4
    steps: int = 40
    seconds: float = 60.0
    seed: int = 0


def attack(network: DeployedNetwork, case: Case, effort: Effort | None = None) -> Counterexample | None:
    """A confirmed counterexample of one case, or None if the search found none.

    Every alternative is aimed at from the middle of the box and from random points, by signed gradients of
    max_k (rows_k . y - limit_k), with steps that shrink. Inputs stay on float32 numbers of the box; where a cell has
    none, there is no counterexample to show.
    """
    import torch

    effort = effort or Effort()
    if case.without_float32():
        return None
    deadline = time.monotonic() + effort.seconds
    generator = torch.Generator().manual_seed(effort.seed)
    low, high = (torch.from_numpy(end.astype(np.float32)) for end in case.inner())
    aims = _Aims(case.alternatives)
    counterexample = _alone(network, case, _starts(low, high, 1, 0, generator)[0].numpy())
    if counterexample is not None:  # many inputs at once may be summed in another order than one
        return counterexample
    for start in range(effort.starts):
        x = _starts(low, high, len(case.alternatives), start, generator)
        paces = LINEAR if start % 2 == 0 else GEOMETRIC
        counterexample = _descend(
            network, case, aims, x, (low, high), [paces(k / effort.steps) for k in range(effort.steps)], deadline
        )
        if counterexample is not None or time.monotonic() > deadline:
            return counterexample
    return None


class _Aims:
    """The alternatives as tensors: distance(y) is 0 or less where row b of y lies in alternative b."""

    def __init__(self, alternatives: tuple[Alternative, ...]) -> None:
        import torch

        most = max(1, *(len(a.limits) for a in alternatives))
        outputs = alternatives[0].rows.shape[1]
        self.rows = torch.zeros(len(alternatives), most, outputs)
        self.limits = torch.full((len(alternatives), most), torch.inf)
        for i, a in enumerate(alternatives):
            self.rows[i, : len(a.limits)] = torch.from_numpy(a.rows)
            self.limits[i, : len(a.limits)] = torch.tensor([as_float(v) for v in a.limits])

    def distance(self, y: Any) -> Any:
        return ((self.rows @ y[:, :, None])[:, :, 0] - self.limits).amax(1)


def _starts(low: Any, high: Any, count: int, number: int, generator: Any) -> Any:
    """The middle first, then random points, each other time corners."""
    import torch

    if number == 0:
        return ((low + high) / 2).expand(count, -1)
    share = torch.rand(count, len(low), generator=generator)
    return torch.lerp(low, high, share.round() if number % 2 else share)


def _descend(
    network: DeployedNetwork, case: Case, aims: _Aims, x: Any, box: Any, paces: list[float], deadline: float
) -> Counterexample | None:
    """Signed gradient steps, each `pace` of the box wide."""
    import torch

    low, high = box
    for pace in (*paces, 0.0):
        x = torch.minimum(torch.maximum(x, low), high).detach().requires_grad_(True)
        distance = aims.distance(network.batch(x))
        counterexample = _confirm(network, case, x.detach(), distance.detach())
        if counterexample is not None or not pace or time.monotonic() > deadline:
            return counterexample
        (slope,) = torch.autograd.grad(distance.sum(), x)
        x = x - slope.sign() * (high - low) * pace
    return None


def _confirm(network: DeployedNetwork, case: Case, x: Any, distance: Any) -> Counterexample | None:
    """The first input whose outputs, computed alone, break the property; the most promising are tried."""
    for i in distance.argsort()[:2].tolist():
        counterexample = _alone(network, case, x[i].numpy()) if distance[i] <= 0 else None
        if counterexample is not None:
            return counterexample
    return None


def confirmed_of(network: DeployedNetwork, case: Case, points: Any) -> Counterexample | None:
    """The first of some flat inputs that breaks the property; what many at once say is run alone."""
    import torch

    with torch.no_grad():
        aims = _Aims(case.alternatives)
        gaps = (aims.rows[None] @ network.batch(points)[:, None, :, None])[..., 0] - aims.limits
    return _confirm(network, case, points, gaps.amax(2).amin(1))


def _alone(network: DeployedNetwork, case: Case, x: Array) -> Counterexample | None:
    """One input by itself, as it would be deployed."""
    y = network.run(x)
    if case.contains(y) and case.has(x):
        return Counterexample(x.reshape(network.shape), y, ("torch",))
    return None


def confirm_on_onnxruntime(graph: Graph, point: Counterexample, case: Case, model: Any = None) -> Counterexample:
    """The counterexample with one more engine that agrees, if it is there and does, in a process of its own.

    model    the ONNX file (path or bytes) that the graph was read from; without one, the graph is written as ONNX
    """
    if any(find_spec(package) is None for package in ("onnxruntime", "onnx")):
        return point
    try:
        data, name = _onnx_bytes(graph, model)
    except SpecgradError:  # what ONNX has no words for is not run there; the counterexample stands
        return point
    with Process(environment=session.ENVIRONMENT) as process:
        answer = process.run(session.PROGRAM, {name: point.x}, [np.frombuffer(data, np.uint8)])
    agrees = answer.outcome == "answers" and case.contains(np.ravel(answer.arrays[0]))
    return replace(point, confirmed=(*point.confirmed, "onnxruntime")) if agrees else point


def _onnx_bytes(graph: Graph, model: Any) -> tuple[bytes, str]:
    """A whole ONNX file, external data included, and the name of its input."""
    need("onnx", "ONNX files need")
    from ...interop import to_onnx
    from ...interop.onnx.file import BYTE_BUDGET, gathered, read_model

    loaded = to_onnx(graph) if model is None else gathered(*read_model(model, BYTE_BUDGET))
    initial = {t.name for t in loaded.graph.initializer}
    (name,) = [i.name for i in loaded.graph.input if i.name not in initial]
    return loaded.SerializeToString(), name
