"""Every operator followed by every other, behind a value that its readers see in several roundings.

What runtimes merge, copy or multiply out are neighbours, and a rule that forgets one of these forgets it in a pair. A
network here is a value with copies, two or three operators in a row, and perhaps a sum whose cells are equal, so that
differences of outputs hold nothing but roundings: what is forgotten then stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

import numpy as np

import specgrad as sg
from claims import _fraction, proof_number, replayed
from executor import Execution, Setting
from program import Program, draw_modes
from specgrad.bounds import Box, crown
from specgrad.graph.graph import Graph
from specgrad.proof.base.rationals import ReplayError

FUSED = Setting()


class Numbers:
    """Weights that make cells equal, or cancel; constants that swallow what is near 1."""

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.draw = np.random.default_rng([self.rng.getrandbits(32)])
        self.plain = self.rng.random() < 0.6

    def weights(self, *shape: int) -> np.ndarray:
        if self.plain:  # cells are equal however they are made
            return np.ones(shape, np.float32)
        ones, normal = np.ones(shape), self.draw.normal(size=shape)
        equal = np.broadcast_to(normal[:1], shape)
        signs = self.draw.integers(-1, 2, shape)
        return np.asarray(self.rng.choice((ones, ones, equal, signs, normal)), np.float32)

    def positive(self, *shape: int) -> np.ndarray:
        return self.draw.uniform(0.25, 4, shape).astype(np.float32)

    def large(self) -> np.ndarray:
        return np.float32([self.rng.choice((1e6, 2.0**22, 1e5))])


Operator = Callable[[Any, Numbers], Any]


def _plane(x: Any) -> Any:
    return sg.reshape(x, (1, 1, -1))


def _flat(x: Any) -> Any:
    return sg.reshape(x, (-1,))


def _turned(x: Any) -> Any:
    return x if x.shape[0] == 1 else sg.concat([x[1:], x[:1]], 0)


def _dense(x: Any, d: Numbers, cells: int = 0) -> Any:
    cells = cells or d.rng.choice((1, 2))
    return sg.linear(d.weights(cells, x.shape[0]), d.weights(cells) if d.rng.random() < 0.2 else None, x)


def _shaken(x: Any, d: Numbers) -> Any:
    """x as (x + c) - c, or as itself where constants are folded."""
    c = d.large()
    return sg.sub(sg.add(x, c), c)


def _normalised(x: Any, d: Numbers) -> Any:
    n = x.shape[0]
    return _flat(sg.batch_norm(sg.reshape(x, (1, n, 1)), d.weights(n), d.positive(n), d.weights(n), d.weights(n)))


def _differences(x: Any, d: Numbers) -> Any:
    w = d.weights(2, x.shape[0])
    return sg.sub(sg.linear(w, None, x), sg.linear(w, None, x))


LINEAR: dict[str, Operator] = {
    "dense": _dense,
    "conv": lambda x, d: _flat(sg.conv(d.weights(d.rng.choice((1, 2)), 1, 2), None, _plane(x), padding=1)),
    "conv_transpose": lambda x, d: _flat(sg.conv_transpose(d.weights(1, 1, 2), None, _plane(x))),
    "shaken": _shaken,
    "add": lambda x, d: sg.add(x, d.weights(x.shape[0])),
    "mul": lambda x, d: sg.mul(x, d.weights(x.shape[0])),
    "div": lambda x, d: x / float(d.rng.choice((3, 0.7, 49))),
    "avg_pool": lambda x, d: _flat(sg.avg_pool(sg.reshape(x, (1, -1)), (2,), stride=1, padding=1)),
    "sum": lambda x, d: sg.reshape(sg.sum(x), (1,)),
    "repeat": lambda x, d: _flat(sg.broadcast(sg.reshape(x, (-1, 1)), (x.shape[0], 2))),
    "concat": lambda x, d: sg.concat([x, d.rng.choice((x, sg.neg(x), _turned(x)))], 0),
    "heads": lambda x, d: sg.concat([_dense(x, d, 1), _dense(x, d, 1)], 0),
    "residual": lambda x, d: sg.add(_dense(x, d, x.shape[0]), x),
    "differences": _differences,
    "minus_itself": lambda x, d: sg.sub(x * 2.0, x),
    "batch_norm": _normalised,
    "slice": lambda x, d: x[:1],
    "turned": lambda x, d: _turned(x),
    "pad": lambda x, d: sg.pad(x, [(1, 0)]),
}
BENT: dict[str, Operator] = {
    "relu": lambda x, d: sg.relu(x),
    "leaky_relu": lambda x, d: sg.leaky_relu(x, d.rng.choice((0.1, -0.3, 1.5))),
    "abs": lambda x, d: sg.abs(x),
    "clamp": lambda x, d: sg.clamp(x, -0.3, 0.7),
    "relu6": lambda x, d: sg.relu6(x),
    "hardswish": lambda x, d: sg.hardswish(x),
    "max_pool": lambda x, d: _flat(sg.max_pool(sg.reshape(x, (1, -1)), (2,), stride=1, padding=1)),
    "maximum": lambda x, d: sg.maximum(x, _turned(x)),
    "minimum": lambda x, d: sg.minimum(x, 0.7),
    "below_largest": lambda x, d: sg.sub(x, sg.amax(x, (0,))),
    "sign": lambda x, d: sg.sign(x),
    "floor": lambda x, d: sg.floor(x * 3.0),
    "tanh": lambda x, d: sg.tanh(x),
    "sigmoid": lambda x, d: sg.sigmoid(x),
    "exp": lambda x, d: sg.exp(sg.clamp(x, -5.0, 5.0)),
    "product": lambda x, d: sg.mul(x, _turned(x) * 1.5),
    "relu_and_itself": lambda x, d: sg.concat([sg.relu(x), x], 0),
    "relu_less_itself": lambda x, d: sg.sub(sg.relu(x), x),
}
KINDS = {**LINEAR, **BENT}
COPIED: tuple[Callable[[Any], Any], ...] = (sg.relu, sg.relu, sg.abs, lambda v: v)


class Drawn(NamedTuple):
    graph: Graph
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray


def draw(kinds: Sequence[str], seed: int) -> Drawn:
    """A network with these operators in a row on a box, mostly of one point, and rows over its outputs."""
    d = Numbers(f"{'/'.join(kinds)}/{seed}")
    cells = d.rng.choice((1, 1, 2))

    def net(x: Any) -> Any:
        y = d.rng.choice(COPIED)(_shaken(_dense(x, d, 1), d)) if d.rng.random() < 0.9 else x
        for kind in kinds:
            y = KINDS[kind](y, d)
        if y.shape[0] == 1 or d.rng.random() < 0.4:
            y = sg.linear(np.ones((2, y.shape[0]), np.float32), None, y)
        return y

    graph = sg.trace(net, (cells,))
    middle = d.draw.uniform(0.5, 1, cells) * d.rng.choice((1, 1, 1, 1, -1))
    reach = d.rng.choice((0.0, 0.0, 0.0, 2.0**-10, 0.25)) * abs(middle)
    outputs = math.prod(graph.nodes[graph.output_positions[0]].shape)
    rows = np.eye(outputs)[d.rng.sample(range(outputs), 2)]
    rows = np.stack([rows[0] - rows[1], d.draw.integers(-2, 3, outputs), rows[0]])
    return Drawn(graph, np.float32(middle - reach), np.float32(middle + reach), rows)


# --- what is claimed, and what executions do --------------------------------------------------------------------------


@dataclass
class Findings:
    networks: int = 0
    replays: int = 0
    escapes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{len(self.escapes)} escapes of {self.networks} networks, {self.replays} replays: {self.escapes[:3]}"


def claims(drawn: Drawn, seed: int) -> list[tuple[str, np.ndarray, Any]]:
    """(who, row, a number that row.y is not below)."""
    bounds = crown(drawn.graph, Box(drawn.low.astype(float), drawn.high.astype(float)), objective=drawn.rows)
    if bounds.unbounded or bounds.objective is None:
        return []
    ends = bounds.objective.low, -bounds.objective.high
    found: list[tuple[str, np.ndarray, Any]] = [
        ("crown", side * row, Fraction(end))
        for side, low in zip((1, -1), ends, strict=True)
        for row, end in zip(drawn.rows, np.asarray(low).tolist(), strict=True)
        if math.isfinite(end)
    ]
    try:
        proof = replayed(drawn.graph, drawn.low, drawn.high, FUSED, seed)
    except (ReplayError, sg.UnsupportedError):  # what a certificate cannot have
        return found
    whole = np.vectorize(lambda v: proof_number(int(v)), otypes=[object])
    shape = drawn.graph.nodes[proof.output].shape
    rows = [*drawn.rows, *-drawn.rows]
    return found + [("replay", row, _fraction(proof.lower(whole(row).reshape(shape)))) for row in rows]


def executed(program: Program, x: np.ndarray, rng: Random) -> Execution:
    """Mostly merged and copied wherever it may be, each copy in a way of its own."""
    execution = Execution(program, FUSED, rng)
    if rng.random() < 0.8:
        execution.modes, execution.push = draw_modes(program, "fused", rng, (0.7, 1.0)), 0
    return execution.run({program.graph.input_positions[0]: x})


def hunt(kinds: Sequence[str], seed: int, found: Findings, executions: int = 40) -> None:
    drawn = draw(kinds, seed)
    known = claims(drawn, seed)
    if not known:
        return
    found.networks, found.replays = found.networks + 1, found.replays + any(who == "replay" for who, *_ in known)
    program, rng = Program(drawn.graph), Random(f"{kinds}/{seed}")
    (output,) = drawn.graph.output_positions
    for _ in range(executions):
        x = np.where([rng.random() < 0.5 for _ in drawn.low], drawn.low, drawn.high)
        for values in executed(program, x, rng).values[output]:
            for who, row, end in known:
                y = sum(Fraction(c) * Fraction(v) for c, v in zip(row.tolist(), values, strict=True))
                if y < end:
                    found.escapes.append(f"{who} {'/'.join(kinds)} {seed}: {row.tolist()} {float(y)} < {float(end)}")
