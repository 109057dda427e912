"""Candidates for counterexamples: projected gradients from several starts, replayed one by one on our own engine.

The search runs on PyTorch in batches; what it finds is a candidate only if the same float32 input, alone, run in
float32 as it would be deployed, gives outputs in one of the property's alternatives, and if a point of the property's
box is rounded to that input, both compared exactly (specgrad.properties.points). Whether a candidate stands, others
say (specgrad.bounds.search.network.witnesses).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.engines import compile
from specgrad.graph.graph import Graph
from specgrad.proof.base.deployed_graph import deployed_graph
from specgrad.properties.points import count_rounded_cells, counterexample_point, decimal_text
from specgrad.properties.property import Alternative, Case
from specgrad.scalar import Array, nearest_float

SHOWN = 8  # outputs of a run in a line
INSIDE = 1 - 2.0**-18  # of a ball's radius, so that rounding to float32 does not leave it
LINEAR: Callable[[float], float] = lambda t: 0.5 * (1 - t)  # steps shrink evenly: far
GEOMETRIC: Callable[[float], float] = lambda t: 0.5 * 2.0 ** (-14 * t)  # or by halves: near kinks


@dataclass(frozen=True, eq=False)
class Run:
    """Outputs of one runtime at an input.

    who      "torch": specgrad's engine, which searches; "module": the PyTorch module that was given; "onnxruntime"
    y        its outputs, flat; None: it gave none
    breaks   whether they break the property, as an execution of the class that was asked about
    reason   why there are no outputs, or why they do not count
    """

    who: str
    y: Array | None
    breaks: bool
    reason: str = ""

    @property
    def outcome(self) -> str:
        """The run in words: whether it breaks the property, does not count, or gave no answer."""
        if self.reason:
            return "no answer" if self.y is None else "does not count"
        return "breaks it" if self.breaks else "does not break it"

    def __str__(self) -> str:
        if self.y is None:
            return f"{self.who}: no answer ({self.reason})"
        y = ", ".join(f"{v:.9g}" for v in self.y[:SHOWN].tolist())
        return f"{self.who} {self.outcome}: {y}{', ...' if self.y.size > SHOWN else ''}"

    def to_json(self) -> dict[str, Any]:
        """The run as a JSON object: `who`, `outcome`, and the outputs `y` or the `reason` for none."""
        data: dict[str, Any] = {"who": self.who, "outcome": self.outcome}
        data |= {} if self.y is None else {"y": self.y.tolist()}
        return data | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input, the outputs of the deployed network there, and what every runtime computes.

    x       the float32 numbers that the network was run on
    point   the point of the property that they stand for, flat: x itself, or what is rounded to x
    runs    everybody who was asked, our own engine first
    exactly whether the exact outputs break it too; None: not known, rounding or a wide enclosure decides
    named   where there are several inputs, outputs or networks: all of them by their names; x and y are then flat, the
            property's variables and values (specgrad.properties.interface)
    exact   then the cells of every input at the point, by its name
    """

    x: Array
    y: Array
    runs: tuple[Run, ...]
    point: tuple[Fraction, ...]
    exactly: bool | None = None
    named: Mapping[str, Array] = field(default_factory=dict)
    exact: Mapping[str, Array] = field(default_factory=dict)

    @property
    def rounded(self) -> int:
        """Number of cells of the point that are not float32 numbers."""
        return count_rounded_cells(self.point, self.x)

    @property
    def confirmed(self) -> tuple[str, ...]:
        """Names of the runtimes whose outputs break the property."""
        return tuple(r.who for r in self.runs if r.breaks)

    @property
    def disagree(self) -> tuple[Run, ...]:
        """Runs whose outputs do not break the property."""
        return tuple(r for r in self.runs if r.y is not None and not r.breaks and not r.reason)

    def said(self) -> list[str]:
        """Lines of text: what every runtime and exact arithmetic say."""
        exact = {True: "break it", False: "do not break it", None: "are not known well enough to tell"}[self.exactly]
        return [*map(str, self.runs), f"the exact outputs {exact}"]

    def to_json(self) -> dict[str, Any]:
        """The counterexample as a JSON object: `x`, `y`, `confirmed`, the runs of runtimes (`asked`),
        `exact_outputs_break_it`.

        Also `point`, exact decimals, where x had to be rounded, and `named`, the tensors of a VNN-LIB text, where it
        names some.
        """
        data: dict[str, Any] = {"x": self.x.tolist(), "y": self.y.tolist(), "confirmed": self.confirmed}
        data |= {"asked": [r.to_json() for r in self.runs], "exact_outputs_break_it": self.exactly}
        if self.rounded:
            data["point"] = [decimal_text(v) for v in self.point]
        if self.named:
            data["named"] = {name: array.tolist() for name, array in self.named.items()}
        return data


class DeployedNetwork:
    """A graph in float32 on PyTorch: one input as it would be deployed, or many at once for a search."""

    def __init__(self, graph: Graph) -> None:
        self.graph = deployed_graph(graph)
        self.shape = graph.nodes[graph.input_positions[0]].shape
        self.module = compile(self.graph, "torch")

    def _output(self, x: Any) -> Any:
        """Return the only output at one input x, a tensor, flat."""
        import torch

        output = self.module(x)
        while not isinstance(output, torch.Tensor):  # one output, in a structure of its own
            (output,) = output.values() if isinstance(output, dict) else output
        return output.reshape(-1)

    def run(self, x: Array) -> Array:
        """Return the only output at one input x, flat, computed in float32 by our engine.

        x has any shape, with as many cells as the input, and is rounded to float32 first.
        """
        import torch

        with torch.no_grad():
            output: Array = self._output(torch.from_numpy(x.astype(np.float32).reshape(self.shape))).numpy()
        return output

    def batch(self, x: Any) -> Any:
        """Outputs of many inputs x, one flat input per row; differentiable."""
        import torch

        return torch.func.vmap(self._output)(x.reshape(-1, *self.shape))


@dataclass(frozen=True)
class Effort:
    """Limits of an attack: starts per alternative, steps per start, seconds for all of it, and the random seed."""

    starts: int = 4
    steps: int = 40
    seconds: float = 60.0
    seed: int = 0


def attack(network: DeployedNetwork, case: Case, effort: Effort | None = None) -> Counterexample | None:
    """Return a counterexample candidate of one case, found by projected gradients; None if none is found.

    Every alternative is aimed at from the middle of the box and from random points, by signed gradients of max_k
    (rows_k . y - limit_k), with steps that shrink. Inputs stay on float32 numbers that points of the box are rounded
    to, and in the ball of the case if it has one. `effort` limits its seconds and starts.
    """
    import torch

    effort = effort or Effort()
    deadline = time.monotonic() + effort.seconds
    generator = torch.Generator().manual_seed(effort.seed)
    low, high = (torch.from_numpy(end.astype(np.float32)) for end in case.nearest)
    aims = _Aims(case.alternatives)
    counterexample = _run_alone(network, case, _starting_points(low, high, 1, 0, generator)[0].numpy())
    if counterexample is not None:  # many inputs at once may be summed in another order than one
        return counterexample
    for start in range(effort.starts):
        x = _starting_points(low, high, len(case.alternatives), start, generator)
        paces = LINEAR if start % 2 == 0 else GEOMETRIC
        counterexample = _descend_from(
            network, case, aims, x, (low, high), [paces(k / effort.steps) for k in range(effort.steps)], deadline
        )
        if counterexample is not None or time.monotonic() > deadline:
            return counterexample
    return None


class _Aims:
    """The inequalities of a case's alternatives as tensors; `distance` says how far outputs are from satisfying one."""

    def __init__(self, alternatives: tuple[Alternative, ...]) -> None:
        import torch

        most = max(1, *(len(a.limits) for a in alternatives))
        outputs = alternatives[0].rows.shape[1]
        self.rows = torch.zeros(len(alternatives), most, outputs)
        self.limits = torch.full((len(alternatives), most), torch.inf)
        for i, a in enumerate(alternatives):
            self.rows[i, : len(a.limits)] = torch.from_numpy(a.rows)
            self.limits[i, : len(a.limits)] = torch.tensor([nearest_float(v) for v in a.limits])

    def distance(self, y: Any) -> Any:
        """Distance of row b of y from alternative b; 0 or less inside it."""
        return ((self.rows @ y[:, :, None])[:, :, 0] - self.limits).amax(1)


def _starting_points(low: Any, high: Any, count: int, number: int, generator: Any) -> Any:
    """Starting points (count, inputs): the middle for number 0, then random corners and points in turn.

    Between low and high, drawn by `generator`.
    """
    import torch

    if number == 0:
        return ((low + high) / 2).expand(count, -1)
    share = torch.rand(count, len(low), generator=generator)
    return torch.lerp(low, high, share.round() if number % 2 else share)


def _descend_from(
    network: DeployedNetwork, case: Case, aims: _Aims, x: Any, box: Any, paces: list[float], deadline: float
) -> Counterexample | None:
    """Take signed gradient steps from x inside `box`, one for each of `paces`, that share of the box wide.

    Return a confirmed candidate or None. `aims` are the alternatives that the rows of x are to meet. After the
    `deadline` (time.monotonic) no step is taken.
    """
    import torch

    low, high = box
    for pace in (*paces, 0.0):
        x = projected(case, torch.minimum(torch.maximum(x, low), high)).detach().requires_grad_(True)
        distance = aims.distance(network.batch(x))
        counterexample = _confirm_nearest(network, case, x.detach(), distance.detach())
        leads_nowhere = not distance.requires_grad  # steps alone: sign, a comparison
        if counterexample is not None or not pace or leads_nowhere or time.monotonic() > deadline:
            return counterexample
        (slope,) = torch.autograd.grad(distance.sum(), x)
        x = x - steepest(case, slope, high - low) * pace
    return None


def projected(case: Case, x: Any) -> Any:
    """Return the points x moved towards the centre until they lie in the case's ball, up to float32 rounding.

    Along the way to the centre a point stays in the box, if the centre lies there; whether it is inside is checked
    elsewhere, exactly.
    """
    import torch

    if case.ball is None:
        return x
    center = torch.tensor([nearest_float(c) for c in case.ball.center])
    away = (x - center).double()
    size = away.abs().sum(1) if case.ball.norm == "1" else away.square().sum(1).sqrt()
    share = (nearest_float(case.ball.radius) * INSIDE / size).clamp(max=1.0).nan_to_num(1.0)
    return (center + away * share[:, None]).to(x.dtype)


def steepest(case: Case, slope: Any, width: Any) -> Any:
    """Steepest step for the case's norm: by signs in a box, along the gradient in a 2-ball, in the largest cells for
    norm 1.

    `slope` is the gradient (count, inputs), `width` the box's width times the pace.
    """
    import torch

    if case.ball is None:
        return slope.sign() * width
    if case.ball.norm == "1":
        slope = torch.where(slope.abs() >= slope.abs().amax(1, keepdim=True) / 2, slope.sign(), 0.0)
        return slope * 2 * nearest_float(case.ball.radius) / slope.abs().sum(1, keepdim=True).clamp(min=1)
    size = slope.square().sum(1, keepdim=True).sqrt()
    return torch.where(size > 0, slope / size, 0.0) * 2 * nearest_float(case.ball.radius)


def _confirm_nearest(network: DeployedNetwork, case: Case, x: Any, distance: Any) -> Counterexample | None:
    """Run the two inputs of x with the least `distance` from breaking the property, alone; return the first that breaks
    it, or None.
    """
    for i in distance.argsort()[:2].tolist():
        counterexample = _run_alone(network, case, x[i].numpy()) if distance[i] <= 0 else None
        if counterexample is not None:
            return counterexample
    return None


def confirmed_of(network: DeployedNetwork, case: Case, points: Any) -> Counterexample | None:
    """Return the first of some flat inputs that breaks the property when run alone; None if none does.

    `points` (count, inputs) are first moved into the ball of `case`, if it has one.
    """
    import torch

    points = projected(case, points)
    with torch.no_grad():
        aims = _Aims(case.alternatives)
        gaps = (aims.rows[None] @ network.batch(points)[:, None, :, None])[..., 0] - aims.limits
    return _confirm_nearest(network, case, points, gaps.amax(2).amin(1))


def _run_alone(network: DeployedNetwork, case: Case, x: Array) -> Counterexample | None:
    """Run one input as deployed; return a candidate if it breaks the property, else None."""
    x = x + np.float32(0)  # no -0.0: points have one zero
    y = network.run(x)
    point = counterexample_point(case, x, y)
    return None if point is None else Counterexample(x.reshape(network.shape), y, (Run("torch", y, True),), point)
