"""Random networks cut at random into parts: every execution lies in a part, and that part's bound must hold for it.

Which part an execution lies in is decided here, from the meaning of a cut alone (specgrad.proof.base.split_tree): by
exact values of an execution without rounding, by the stored values of one by node, and of a fused one by what its
values leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import torch

import specgrad as sg
from claims import arithmetic
from executor import Setting, execute
from program import Program
from specgrad.bounds.search.neuron_split.subproblems import Bounder, Problems, kinks, root_forward
from specgrad.graph.graph import CONSTANT, INPUT, Graph
from specgrad.graph.ir.node import bind
from specgrad.op import apply
from specgrad.proof.base.split_tree import Split

DEPTH = 4
Path = list[tuple[Split, int]]


# --- networks ---------------------------------------------------------------------------------------------------------


def _max_pool(x: Any, rng: Random) -> Any:
    y = sg.max_pool(sg.reshape(x, (1, -1)), (3,), stride=rng.choice((1, 2)), padding=1)
    return sg.reshape(y, (-1,))


BENDS: dict[str, Callable[[Any, Random], Any]] = {
    "relu": lambda x, _: sg.relu(x),
    "leaky": lambda x, rng: sg.leaky_relu(x, rng.choice((0.1, 0.01, -0.3, 1.5))),
    "abs": lambda x, _: sg.abs(x),
    "clamp": lambda x, rng: sg.clamp(x, rng.choice((-1, -0.3)), rng.choice((0.5, 1))),
    "relu6": lambda x, _: sg.relu6(x * 4),
    "sign": lambda x, _: sg.sign(x) + x * 0.5,
    "hardswish": lambda x, _: sg.hardswish(x * 3),
    "maximum": lambda x, _: sg.maximum(x, 1 - x),
    "minimum": lambda x, rng: sg.minimum(x, rng.choice((0.5, 0.1, 0))),
    "amax": lambda x, _: x - sg.amax(x, (0,)),
    "rows": lambda x, _: sg.amax(sg.reshape(x, (1 + (x.shape[0] + 1) % 2, -1)), (1,)),
    "max_pool": _max_pool,
    "relu_max_pool": lambda x, rng: _max_pool(sg.relu(x), rng),
}


@dataclass(frozen=True)
class Net:
    graph: Graph
    low: np.ndarray
    high: np.ndarray
    whole: bool


def draw(seed: int, kind: str | None = None) -> Net:
    """Two or three layers, each a map and a bend; whole numbers every other time, so that taps are equal."""
    rng, draw_ = Random(f"cuts/{seed}"), np.random.default_rng(seed)
    whole = rng.random() < 0.5

    def numbers(*shape: int) -> np.ndarray:
        if whole:
            return draw_.integers(-1, 2, shape).astype(np.float32)
        return (draw_.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    def net(x: Any) -> Any:
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.3:
                w, b = numbers(1, 1, 3), numbers(1)
                x = sg.reshape(sg.conv(w, b, sg.reshape(x, (1, 1, -1)), padding=1), (-1,))
            else:
                width = rng.choice((4, 6))
                x = sg.linear(numbers(width, x.shape[0]), numbers(width), x)
            x = BENDS[kind or rng.choice(list(BENDS))](x, rng)
        return sg.linear(numbers(2, x.shape[0]), None, x)

    graph = sg.trace(net, (rng.choice((3, 4)),))
    shape = graph.nodes[graph.input_positions[0]].shape
    middle = draw_.integers(-1, 2, shape).astype(float) if whole else draw_.normal(size=shape).astype(np.float32)
    reach = 1.0 if whole else 0.5
    return Net(graph, np.asarray(middle - reach, float), np.asarray(middle + reach, float), whole)


# --- a random tree ----------------------------------------------------------------------------------------------------


def _candidates(bounder: Bounder, problems: Problems, box: int, rng: Random) -> list[tuple[Split, ...]]:
    """What may be cut in one problem, by kind."""
    every = []
    for i, z in bounder.kinked.items():
        low, high = (end[box].reshape(-1) for end in bounder.ends(problems, z))
        for point in kinks(bounder.state.layers[i]):
            every.append(
                tuple(Split(z, c, point) for c in torch.nonzero((low < point) & (high > point))[:, 0].tolist())
            )
    for i, left in problems.candidate_taps.items():
        several = left[box] & (left[box].sum(0) > 1)
        every.append(tuple(Split(i, w, tap=t) for t, w in torch.nonzero(several).tolist()))
    for x in bounder.renewed[:1]:
        first, last = problems.known[x][box].reshape(2, -1).numpy()
        points_ = [np.float32(rng.choice((0.25, 0.5, 0.5)) * (b - a) + a) for a, b in zip(first, last, strict=True)]
        every.append(tuple(Split(x, c, float(p)) for c, p in enumerate(points_) if first[c] <= p < last[c]))
    return [cuts for cuts in every if cuts]


def entered(problems: Problems, box: int, cut: Split, side: int) -> Problems:
    """A problem with one more cut."""
    at = torch.tensor([box])
    if cut.node in problems.known and cut.node not in problems.limits:
        return problems.split_input(cut.node, at, torch.tensor([cut.cell]), torch.tensor([cut.at]), side)
    if cut.tap is None:
        return problems.cut(cut.node, at, torch.tensor([cut.cell]), cut.at, side)
    lost = torch.arange(problems.candidate_taps[cut.node].shape[1])[None] == cut.tap
    return problems.without(cut.node, at, torch.tensor([cut.cell]), lost if side else ~lost)


def random_tree(bounder: Bounder, row: np.ndarray, rng: Random) -> tuple[Problems, list[Path]]:
    """Parts of a box, and the way to each."""
    problems, paths = bounder.start(torch.from_numpy(row[None])), list[Path]([[]])
    for _ in range(DEPTH):
        halves = [problems, problems]
        ways: list[list[Path]] = [[], []]
        for box, path in enumerate(paths):
            kinds = _candidates(bounder, problems, box, rng)
            cut = rng.choice(rng.choice(kinds)) if kinds else None
            for side in (0, 1):
                if cut is not None:
                    halves[side] = entered(halves[side], box, cut, side)
                ways[side].append([*path, (cut, side)] if cut is not None else path)
        problems, paths = Problems.joined(halves), ways[0] + ways[1]
    return problems, paths


def with_random_numbers(problems: Problems, rng: np.random.Generator) -> Problems:
    """Any slopes and multipliers, of any sign: a bound takes what it may."""

    def noise(some: Mapping[int, torch.Tensor], draw_: Callable[..., Any]) -> dict[int, torch.Tensor]:
        return {k: torch.from_numpy(np.asarray(draw_(size=tuple(v.shape)))).float() for k, v in some.items()}

    slopes = noise(problems.slopes, rng.uniform)
    return replace(
        problems,
        slopes=slopes,
        multipliers=noise(problems.multipliers, rng.normal),
        tap_multipliers=noise(problems.tap_multipliers, rng.normal),
    )


# --- where an execution lies ------------------------------------------------------------------------------------------


def taps_of(graph: Graph, cut: Split) -> list[tuple[int, Any]]:
    """(tap, where its value is) of one window: (node, flat cell), or a number. Written from the operators' formulas."""
    node = graph.nodes[cut.node]
    if node.op.name in ("maximum", "minimum"):
        return [(k, (a, cut.cell) if isinstance(a, int) else Fraction(a.value)) for k, a in enumerate(node.args)]
    (source,) = node.operands()
    shape = graph.nodes[source].shape
    if node.op.name == "amax":
        (axis,) = node.params["axes"]
        rest = [n for k, n in enumerate(shape) if k != axis]
        place = list(np.unravel_index(cut.cell, rest)) if rest else []
        cells = [np.ravel_multi_index((*place[:axis], t, *place[axis:]), shape) for t in range(shape[axis])]
        return [(t, (source, int(c))) for t, c in enumerate(cells)]
    window, (*lead, p) = node.params["window"], np.unravel_index(cut.cell, node.shape)
    (axis_,) = window.axes
    cells = [p * axis_.stride + t * axis_.dilation - axis_.lo for t in range(axis_.kernel)]
    inside = [(t, c) for t, c in enumerate(cells) if 0 <= c < shape[-1]]
    return [(t, (source, int(np.ravel_multi_index((*lead, c), shape)))) for t, c in inside]


def _value(values: Sequence[Any], where: Any) -> Any:
    return where if isinstance(where, Fraction) else values[where[0]].reshape(-1)[where[1]]


def winner(graph: Graph, cut: Split, values: Sequence[Any]) -> int:
    """The first of the largest taps; of the smallest, for a minimum."""
    sign = -1 if graph.nodes[cut.node].op.name == "minimum" else 1
    each = [(sign * _value(values, where), -tap) for tap, where in taps_of(graph, cut)]
    return -max(each)[1]


def _above(graph: Graph, cut: Split, v: Any) -> bool:
    return bool(v > Fraction(cut.at) if graph.nodes[cut.node].op is INPUT else v >= Fraction(cut.at))


def lies_in(graph: Graph, path: Path, values: Sequence[Any]) -> bool:
    """Whether an execution with these references lies in a part."""
    for cut, side in path:
        if cut.tap is not None:
            inside = (winner(graph, cut, values) == cut.tap) == (side == 0)
        else:
            v = values[cut.node].reshape(-1)[cut.cell]
            inside = _above(graph, cut, v) if side else v <= Fraction(cut.at)
        if not inside:
            return False
    return True


def may_lie_in(graph: Graph, path: Path, values: Mapping[int, Any], apart: Mapping[int, Any]) -> bool:
    """Whether some references that are as near to the values as they must be lie in a part."""

    def ends(where: Any) -> tuple[float, float]:
        if isinstance(where, Fraction):
            return float(where), float(where)
        v, d = (x[where[0]].reshape(-1)[where[1]] for x in (values, apart))
        return v - 2 * d, v + 2 * d

    for cut, side in path:
        if graph.nodes[cut.node].op is INPUT:
            v = values[cut.node].reshape(-1)[cut.cell]
            possible = v > cut.at if side else v <= cut.at
        elif cut.tap is None:
            low, high = ends((cut.node, cut.cell))
            possible = high >= cut.at if side else low <= cut.at
        else:
            taps = {t: ends(where) for t, where in taps_of(graph, cut)}
            if graph.nodes[cut.node].op.name == "minimum":
                taps = {t: (-high, -low) for t, (low, high) in taps.items()}
            mine, others = taps[cut.tap], [e for t, e in taps.items() if t != cut.tap]
            possible = any(e[1] >= mine[0] for e in others) if side else all(mine[1] >= e[0] for e in others)
        if not possible:
            return False
    return True


# --- the hunt ---------------------------------------------------------------------------------------------------------


@dataclass
class Findings:
    networks: int = 0
    parts: int = 0
    executions: int = 0
    escapes: int = 0
    uncovered: int = 0
    cuts: int = 0
    winners: int = 0
    axes: int = 0


def exact_values(graph: Graph, x: np.ndarray) -> list[Any]:
    """Every node of an execution without rounding."""
    values: list[Any] = []
    for i, node in enumerate(graph.nodes):
        if node.op in (INPUT, CONSTANT):
            array = np.asarray(x if node.op is INPUT else graph.constants[i])
            values.append(array if array.dtype.kind == "i" else sg.exact(array))
        else:
            values.append(apply(node.op, *bind(node.args, values), **node.params))
    return values


def points(net: Net, rng: np.random.Generator, count: int) -> Iterator[np.ndarray]:
    """Float32 inputs of a box: anywhere, at corners, and where numbers are whole at whole and half ones."""
    for k in range(count):
        share = rng.uniform(size=net.low.shape) if k % 2 else rng.integers(0, 5, net.low.shape) / 4
        x = (net.low + share * (net.high - net.low)).astype(np.float32)
        yield np.clip(x, net.low.astype(np.float32), net.high.astype(np.float32))


def hunt(seeds: Sequence[int], inputs: int = 12, kind: str | None = None) -> Findings:
    found = Findings()
    for seed in seeds:
        net, rng = draw(seed, kind), np.random.default_rng([seed, 1])
        model = ("fused", "node")[seed % 2]
        setting = Setting(model=model)
        bounder = Bounder(root_forward(net.graph, net.low, net.high, arithmetic(setting)))
        if net.graph.output_positions[0] not in bounder.state.layers:
            continue  # whole weights may all be 0
        row = rng.integers(-2, 3, 2).astype(float)
        problems, paths = random_tree(bounder, row, Random(seed))
        alive = torch.ones(len(paths), dtype=torch.bool)
        if seed % 3:
            problems, alive = bounder.rebound_layers(problems)
        bounds = [bounder.lower(with_random_numbers(problems, rng)), bounder.lower(problems)]
        bounds.append(bounder.optimised(problems, 6, torch.full((len(paths),), torch.inf))[1])
        best = torch.where(alive, torch.stack(bounds).amax(0), torch.inf).tolist()
        found.networks, found.parts = found.networks + 1, found.parts + len(paths)
        cuts = {cut for path in paths for cut, _ in path}
        found.cuts, found.winners = found.cuts + len(cuts), found.winners + sum(c.tap is not None for c in cuts)
        found.axes += sum(net.graph.nodes[c.node].op is INPUT for c in cuts)
        for x in points(net, rng, inputs):
            _exact(net, paths, best, row, x, found)
        for x in points(net, rng, 4):
            _executed(net, paths, best, row, x, setting, bounder, found)
    return found


def _exact(
    net: Net, paths: Sequence[Path], best: Sequence[float], row: np.ndarray, x: np.ndarray, found: Findings
) -> None:
    values = exact_values(net.graph, x)
    y = values[net.graph.output_positions[0]].reshape(-1)
    value = sum(Fraction(r) * v for r, v in zip(row.tolist(), y, strict=True))
    mine = [k for k, path in enumerate(paths) if lies_in(net.graph, path, values)]
    found.executions += 1
    found.uncovered += not mine
    found.escapes += sum(value < best[k] for k in mine)


def _executed(
    net: Net, paths: Sequence[Path], best: Sequence[float], row: np.ndarray, x: np.ndarray, setting: Setting,
    bounder: Bounder, found: Findings,
) -> None:  # fmt: skip
    run = execute(Program(net.graph, ()), [x], setting, Random(int(x.sum() * 64)))
    values = {i: run.array(i, 0) for i in run.values}
    (output,) = net.graph.output_positions
    lows = []
    for v in range(len(run.values[output])):
        y = run.array(output, v).reshape(-1)
        lows.append(sum(Fraction(r) * Fraction(float(w)) for r, w in zip(row.tolist(), y, strict=True)))
    if setting.model == "node":
        stored = [values.get(i) for i in range(len(net.graph.nodes))]
        mine = [k for k, path in enumerate(paths) if lies_in(net.graph, path, stored)]
    else:
        apart = {i: bounder.forward.deviation.get(i, np.zeros(n.shape)) for i, n in enumerate(net.graph.nodes)}
        mine = [k for k, path in enumerate(paths) if may_lie_in(net.graph, path, values, apart)]
    found.executions += 1
    found.uncovered += not mine
    least = [best[k] for k in mine] if setting.model == "node" else [min((best[k] for k in mine), default=-np.inf)]
    found.escapes += sum(low < b for low in lows for b in least)
