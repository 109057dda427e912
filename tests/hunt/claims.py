"""What the library claims of a network, and whether an execution keeps to it: radius, ibp, crown, replay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from executor import FUNCTIONS, Execution, Setting, execute
from floats import FORMATS, round_float
from hunt import layers_of, outside, with_constants
from networks import Network
from program import Program
from specgrad.bounds import Box, crown, ibp
from specgrad.graph.graph import CONSTANT, INPUT
from specgrad.graph.ir.tree import leaves
from specgrad.rounding import Arithmetic, Ball, radius

MODELS = ("node", "fused")

SETTINGS = {
    "float32": Setting(),
    "float16": Setting(FORMATS["float16"], FORMATS["float16"], flush=False),
    "bfloat16": Setting(FORMATS["bfloat16"], FORMATS["bfloat16"]),
    "bfloat16 in float32": Setting(FORMATS["bfloat16"]),
    "tf32": Setting(operands=FORMATS["tf32"]),
    "float16 operands": Setting(operands=FORMATS["float16"]),
    "float32 either way": Setting(rounding="any"),
}


def arithmetic(setting: Setting) -> Arithmetic:
    """The library's name for what the executor does."""
    options: dict[str, Any] = {"flush": setting.flush, "execution": setting.model, "rounding": setting.rounding}
    if setting.inner is not setting.form:
        options["accumulate"] = setting.inner.name
    return Arithmetic(setting.form.name, operands=setting.operands and setting.operands.name, **options)


@dataclass
class Findings:
    """Escapes, as text; the largest error over radius, where it was; how many networks and values were looked at."""

    escapes: list[str] = field(default_factory=list)
    worst: tuple[float, str] = (0.0, "")
    networks: int = 0
    values: int = 0

    def __str__(self) -> str:
        first = "; ".join(self.escapes[:5])
        ratio, where = self.worst
        seen = f"{self.values} values in {self.networks} networks"
        return f"{len(self.escapes)} escapes of {seen}; {first}; worst {ratio:.3f} {where}"


# --- one value against one claim --------------------------------------------------------------------------------------


def leaves_ball(ball: Ball, value: np.ndarray) -> tuple[bool, float]:
    """Whether a value lies outside, and its largest error over radius; decided over Fractions where it is close."""
    with np.errstate(all="ignore"):
        ratio = np.abs(value - ball.value) / ball.radius
    close = ~ball.contains(value) | (ratio > 1 - 1e-9)
    cells = zip(*(a[close] for a in np.broadcast_arrays(value, ball.value, ball.radius)), strict=True)
    finite = ratio[np.isfinite(ratio)]
    return any(not _near(*map(float, cell)) for cell in cells), float(finite.max(initial=0.0))


def _near(got: float, value: float, reach: float) -> bool:
    if reach == np.inf or got == value or (np.isnan(got) and np.isnan(value)):
        return True
    return bool(np.isfinite(got) and np.isfinite(value)) and abs(Fraction(got) - Fraction(value)) <= Fraction(reach)


def leaves_box(box: Box, value: np.ndarray) -> bool:
    return not bool(np.all((value >= np.asarray(box.low)) & (value <= np.asarray(box.high))))


# --- one execution against all claims ---------------------------------------------------------------------------------


def computed(run: Execution) -> Iterator[tuple[str, np.ndarray]]:
    """Every value that exists, by the name of its layer."""
    for i, versions in run.values.items():
        for v in range(len(versions)):
            yield run.program.graph.nodes[i].name, run.array(i, v)


def against_radius(balls: dict[str, Ball], run: Execution, where: str, found: Findings) -> None:
    for name, value in computed(run):
        out, ratio = leaves_ball(balls[name], value)
        found.values += value.size
        found.worst = max(found.worst, (ratio, f"{where} {name}"))
        found.escapes += [f"radius {where} {name}"] * out


def against_boxes(claim: str, bounds: Any, run: Execution, where: str, found: Findings) -> None:
    for name, value in computed(run):
        if name in bounds.layers and name not in bounds.unbounded:
            found.escapes += [f"{claim} {where} {name}"] * leaves_box(bounds.layers[name], value)
    graph = run.program.graph
    for p, box in zip(graph.output_positions, leaves(bounds.outputs), strict=True):
        if graph.nodes[p].name not in bounds.unbounded:
            values = (run.array(p, v) for v in range(len(run.values[p])))
            found.escapes += [f"{claim} {where} output"] * any(leaves_box(box, value) for value in values)


# --- one network ------------------------------------------------------------------------------------------------------


class Hunted:
    """A network with a box around its inputs: corners and middles, and what is claimed of them.

    claimed    the setting that bounds are computed for, where that is not the executions' own: a mistake to be caught
    """

    def __init__(self, network: Network, setting: Setting, rng: Random, claimed: Setting | None = None) -> None:
        self.network, self.setting, self.rng = network, setting, rng
        self.arithmetic = arithmetic(claimed or setting)
        self.program = Program(network.graph, network.fixed)
        names = [network.graph.nodes[p].name for p in network.graph.input_positions]
        self.moves = [name not in network.fixed for name in names]
        reach = rng.choice((0.0, 2.0**-6, 0.25))
        self.ends = [self._ends(x, reach if m else 0.0) for x, m in zip(network.inputs, self.moves, strict=True)]

    def _ends(self, x: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
        hold = np.vectorize(lambda v: round_float(float(v), self.setting.form), otypes=[float])
        size = np.abs(x.astype(float)) * reach
        low, high = hold(x - size), hold(x + size)
        return np.where(np.isfinite(low), low, x), np.where(np.isfinite(high), high, x)

    def boxes(self) -> list[Any]:
        return [Box(a, b) if m else a for (a, b), m in zip(self.ends, self.moves, strict=True)]

    def point(self) -> list[np.ndarray]:
        """The middle, or a corner, per input."""
        ends = zip(self.ends, self.network.inputs, strict=True)
        return [x if self.rng.random() < 0.2 else self._corner(a, b) for (a, b), x in ends]

    def _corner(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        sides = np.array([self.rng.random() < 0.5 for _ in range(low.size)])
        return np.where(sides.reshape(low.shape), low, high)

    def radius(self, where: str, found: Findings, executions: int) -> None:
        given = self.network.inputs
        balls = dict(radius(self.network.graph, *given, arithmetic=self.arithmetic, keep=True).nodes)
        for _ in range(executions):
            against_radius(balls, execute(self.program, given, self.setting, self.rng), where, found)

    def bounds(self, where: str, found: Findings, executions: int) -> None:
        graph, boxes = self.network.graph, self.boxes()
        claims = {
            "ibp": ibp(graph, *boxes, arithmetic=self.arithmetic),
            "crown": crown(graph, *boxes, arithmetic=self.arithmetic),
        }
        for _ in range(executions):
            run = execute(self.program, self.point(), self.setting, self.rng)
            for claim, bounds in claims.items():
                against_boxes(claim, bounds, run, where, found)

    def real(self, where: str, found: Findings) -> None:
        """Exact values against the bounds of exact arithmetic, and against the deployed ones."""
        graph, boxes = self.network.graph, tuple(self.boxes())
        lift = sg.balls if any(n.op.name == "sqrt" for n in graph.nodes) else sg.exact
        exact = layers_of(with_constants(graph, lift), *map(lift, self.point()))
        for claim, bounds in {
            "real ibp": ibp(graph, *boxes, deployed=False),
            "real crown": crown(graph, *boxes, deployed=False),
            "exact in ibp": ibp(graph, *boxes, arithmetic=self.arithmetic),
        }.items():
            found.escapes += [f"{claim} {where} {name}" for name in outside(bounds, exact)]


def hunt(
    networks: Iterable[tuple[int, Network]], setting: Setting, executions: int, claimed: Setting | None = None
) -> Findings:
    """Executions of each network, and its exact values, against all that is claimed of it."""
    found = Findings()
    for seed, network in networks:
        where = f"{network.kind}/{seed}/{setting.form.name}/{setting.model}"
        hunted = Hunted(network, setting, Random(where), claimed)
        hunted.radius(where, found, executions)
        hunted.bounds(where, found, executions)
        if not any(n.op.transcendental for n in network.graph.nodes):
            hunted.real(where, found)
        found.networks += 1
    return found


# --- exact replays ----------------------------------------------------------------------------------------------------


def replayed(graph: sg.Graph, low: np.ndarray, high: np.ndarray, setting: Setting, seed: int = 0) -> Any:
    """The replay of a graph on a box, with random slopes; what some relus read is bounded backwards too."""
    from specgrad.proof.exact.activations import CURVES
    from specgrad.proof.exact.replay import ExecutionModel, Replay

    draw = np.random.default_rng(seed)
    lined = [n for n in graph.nodes if n.op.name == "relu" or n.op.name in CURVES]
    read = [n.operands()[0] for n in lined if graph.nodes[n.operands()[0]].op not in (INPUT, CONSTANT)]
    tighten = [i for i in read if draw.random() < 0.5 and math.prod(graph.nodes[i].shape) <= 16]
    functions = {name: (Fraction(units), kind) for name, (_, units, kind) in FUNCTIONS.items()}
    functions["sqrt"] = (Fraction(1), "y")
    model = ExecutionModel.of(setting.model, setting.rounding, functions)
    return Replay(graph, low, high, random_slopes(graph, draw), tighten, model)


def random_slopes(graph: sg.Graph, rng: np.random.Generator) -> dict[int, Any]:
    """Whatever a certificate may hold: any slopes of relus, any convex weights of the taps of a maximum."""
    from specgrad.proof.exact.activations import CURVES
    from specgrad.proof.exact.replay import Slopes

    found, scale = {}, 1024
    for i, node in enumerate(graph.nodes):
        if node.op.name == "relu":
            found[i] = Slopes(*rng.integers(0, scale + 1, (2, *node.shape)), scale)
        elif node.op.name in CURVES:
            found[i] = Slopes(*rng.integers(-1, scale + 1, (2, *node.shape)), scale)
        elif node.op.name == "max_pool":
            inside = _taps_inside(node)
            share = np.floor(rng.random(inside.shape) * scale * inside / np.maximum(1, inside.sum(0))).astype(int)
            first = np.argmax(inside, axis=0)[None]
            np.put_along_axis(share, first, np.take_along_axis(share, first, 0) + scale - share.sum(0), 0)
            found[i] = Slopes(share, rng.integers(0, scale + 1, share.shape), scale)
    return found


def _taps_inside(node: Any) -> np.ndarray:
    taps = list(node.params["window"].taps())
    inside = np.zeros((len(taps), *node.shape), dtype=bool)
    for t, tap in enumerate(taps):
        tap.write_outputs(inside[t], True)
    return inside


def hunt_replay(
    networks: Iterable[tuple[int, Network]], setting: Setting, executions: int, claimed: Setting | None = None
) -> Findings:
    """Executions against the ranges of a replay with random slopes, and against its bounds of random rows."""
    from specgrad.proof.base.rationals import ReplayError

    found = Findings()
    for seed, network in networks:
        where = f"{network.kind}/{seed}/{setting.model}"
        hunted = Hunted(network, setting, Random(where))
        (low, high), *others = hunted.ends
        if others or len(network.graph.output_positions) > 1:
            continue
        try:
            proof = replayed(network.graph, low, high, claimed or setting, seed)
        except (ReplayError, sg.UnsupportedError):  # what a certificate cannot have, or what may overflow
            continue
        found.networks += 1
        row = np.random.default_rng(seed).integers(-2, 3, network.graph.nodes[proof.output].shape)
        limit = _fraction(proof.lower(np.vectorize(lambda v: proof_number(int(v)), otypes=[object])(row)))
        for _ in range(executions):
            run = execute(hunted.program, hunted.point(), setting, hunted.rng)
            _against_replay(proof, run, row, limit, where, found)
    return found


def proof_number(v: int) -> Any:
    from specgrad.proof.base.rationals import rational

    return rational(v)


def _fraction(q: Any) -> Fraction:
    return Fraction(int(q.p), int(q.q))


def _spread(proof: Any, i: int) -> Fraction:
    """How far a computed constant may be from what the replay takes for it, relatively."""
    u = Fraction(1, 2**proof.model.digits)
    return (1 - u) ** -proof.ranges[i].constant_roundings - 1


def _against_replay(proof: Any, run: Execution, row: np.ndarray, limit: Fraction, where: str, found: Findings) -> None:
    graph = run.program.graph
    for i, versions in run.values.items():
        r, spread = proof.ranges[i], _spread(proof, i)
        ends = [
            (_fraction(a) - abs(_fraction(a)) * spread, _fraction(b) + abs(_fraction(b)) * spread)
            for a, b in zip(r.low.flat, r.high.flat, strict=True)
        ]
        for values in versions:
            held = all(np.isfinite(v) and a <= Fraction(v) <= b for v, (a, b) in zip(values, ends, strict=True))
            found.escapes += [f"range {where} {graph.nodes[i].name}"] * (not held)
            found.values += len(values)
    for values in run.values[proof.output]:
        total = sum((int(c) * Fraction(v) for c, v in zip(row.flat, values, strict=True)), Fraction(0))
        found.escapes += [f"lower {where}"] * (total < limit)
