"""Two networks much alike on a box: what exact numbers and executions of both show, beside what is proven of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

import specgrad as sg
from claims import arithmetic
from executor import Setting, execute
from networks import Network
from program import Program
from specgrad.bounds import Box
from specgrad.check.comparison import box_difference as claim
from specgrad.check.comparison.difference_bounds import DifferenceBounds
from specgrad.equivalence.normal_form import normal_form
from specgrad.equivalence.term_table import TermTable
from specgrad.graph.graph import Graph
from tolerances import exact_outputs

SIZES = (0.0, 1 / 255, 0.1, 1.0)


# --- another network --------------------------------------------------------------------------------------------------


def nudged(a: np.ndarray, rng: Random) -> np.ndarray:
    """One weight by one unit in the last place, or by a thousandth."""
    new = a.copy()
    at = tuple(rng.randrange(n) for n in a.shape)
    new[at] = rng.choice((np.nextafter(new[at], np.inf), new[at] * (1 + 2.0**-10), new[at] + 2.0**-10))
    return new


CHANGES: dict[str, Callable[[np.ndarray, Random], np.ndarray]] = {
    "nudged": nudged,
    "coarse": lambda a, rng: np.ldexp(np.rint(np.ldexp(a, 8)), -8),
    "scaled": lambda a, rng: a * a.dtype.type(1 + 2.0**-8),
    "zeroed": lambda a, rng: np.zeros_like(a),
}
SWAPS = {"relu": ("relu6", {}), "relu6": ("relu", {}), "tanh": ("sigmoid", {}), "leaky_relu": ("relu", {})}


def changed(graph: Graph, rng: Random) -> tuple[str, Graph] | None:
    """The network with one array of weights changed, or with another function in the place of one."""
    arrays = [p for p, a in graph.constants.items() if a.dtype.kind == "f" and a.size]
    bent = [i for i, n in enumerate(graph.nodes) if n.op.name in SWAPS]
    if bent and (not arrays or rng.random() < 0.2):
        i = rng.choice(bent)
        name, params = SWAPS[graph.nodes[i].op.name]
        nodes = list(graph.nodes)
        nodes[i] = replace(nodes[i], op=sg.REGISTRY[name], params=params)
        return name, replace(graph, nodes=tuple(nodes))
    if not arrays:
        return None
    kind, p = rng.choice(list(CHANGES)), rng.choice(arrays)
    with np.errstate(over="ignore"):
        new = CHANGES[kind](graph.constants[p], rng)
    return (kind, replace(graph, constants={**graph.constants, p: new})) if np.isfinite(new).all() else None


# --- what is proven ---------------------------------------------------------------------------------------------------


@dataclass
class Proven:
    """Of one pair on one box: every interval of the difference by itself, and the distance of executions."""

    gaps: list[DifferenceBounds]
    far: claim.BoxDifference
    escapes: list[str] = field(default_factory=list)
    checked: int = 0
    closest: float = 0.0


def proven(a: Graph, b: Graph, boxes: tuple[Any, ...], setting: Setting | None = None) -> Proven:
    table, seen = TermTable(), []
    forms = normal_form(a, table), normal_form(b, table)
    together = claim._joint_differences

    def told(*args: Any) -> Iterator[DifferenceBounds]:
        for gap in together(*args):
            seen.append(gap)
            yield gap

    claim._joint_differences = told
    try:
        way = None if setting is None else arithmetic(setting)
        far = claim.bound_difference(*forms, table, boxes, way, forms[0].outputs == forms[1].outputs, lambda: None)
    finally:
        claim._joint_differences = together
    return Proven(seen, far)


def points(
    boxes: tuple[Any, ...], far: claim.BoxDifference, rng: Random, count: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """What the search has found, then corners, faces and the inside, all of them float32."""
    if far.inputs:
        yield far.inputs
    numbers = np.random.default_rng(rng.randrange(2**32))
    for k in range(count):
        yield tuple(_within(box, numbers, k) if isinstance(box, Box) else box for box in boxes)


def _within(box: Box, rng: Any, k: int) -> np.ndarray:
    share = rng.random(box.low.shape) if k % 3 == 2 else rng.integers(0, 2 + k % 3, box.low.shape) / (1 + k % 3)
    x = (box.low + (box.high - box.low) * share).astype(np.float32).astype(float)
    x = np.where(x < box.low, np.nextafter(x.astype(np.float32), np.float32(np.inf)), x)
    x = np.where(x > box.high, np.nextafter(x.astype(np.float32), np.float32(-np.inf)), x)
    return np.clip(x, box.low, box.high)


def judge(found: Proven, a: Graph, b: Graph, given: tuple[np.ndarray, ...], where: str) -> None:
    """The exact difference at one input against every interval."""
    for k, (p, q) in enumerate(zip(exact_outputs(a, given), exact_outputs(b, given), strict=True)):
        for i in range(len(p.low)):
            low, high = p.low[i] - q.high[i], p.high[i] - q.low[i]
            found.checked += 1
            for gap in found.gaps:
                ends = [Fraction(e[k].flat[i]) for e in (gap.low, gap.high) if np.isfinite(e[k].flat[i])]
                if len(ends) == 2 and (high < ends[0] or low > ends[1]):
                    found.escapes.append(f"{where} output {k} cell {i}: {float(low):.4g} not in {gap.how} {ends}")
            size = max(low, -high, Fraction(0))
            if np.isfinite(found.far.max_difference):
                if size > Fraction(found.far.max_difference):
                    found.escapes.append(f"{where}: {float(size):.6g} apart, {found.far.max_difference:.6g} proven")
                found.closest = max(
                    found.closest, float(size) / found.far.max_difference if found.far.max_difference else 0.0
                )


def run_both(found: Proven, a: Network, b: Network, setting: Setting, rng: Random, where: str) -> None:
    """Executions of both at one input against the distance of executions."""
    runs = [execute(Program(n.graph, n.fixed), n.inputs, setting, rng) for n in (a, b)]
    for p, q in zip(a.graph.output_positions, b.graph.output_positions, strict=True):
        for one in runs[0].values[p]:
            for other in runs[1].values[q]:
                if not np.isfinite(found.far.max_execution_difference):
                    continue
                if not np.isfinite([*one, *other]).all():
                    found.escapes.append(
                        f"{where}: an execution is not finite, {found.far.max_execution_difference:.6g} proven"
                    )
                    continue
                size = max((abs(Fraction(x) - Fraction(y)) for x, y in zip(one, other, strict=True)), default=0)
                if size > Fraction(found.far.max_execution_difference):
                    found.escapes.append(
                        f"{where}: executions {float(size):.6g} of {found.far.max_execution_difference:.6g}"
                    )


def hunt(found: Network, seed: Any, setting: Setting, inputs: int = 4) -> Proven | None:
    """One network and a changed one, on a box around its inputs; weights among the inputs do not move."""
    rng = Random(f"apart {seed}")
    other = changed(found.graph, rng)
    if other is None or any(found.graph.nodes[p].kind != "real" for p in found.graph.input_positions):
        return None
    eps = rng.choice(SIZES)
    names = [found.graph.nodes[p].name for p in found.graph.input_positions]
    boxes = tuple(
        np.asarray(x, float) if name in found.fixed else Box.around(np.asarray(x, float), eps)
        for name, x in zip(names, found.inputs, strict=True)
    )
    result = proven(found.graph, other[1], boxes, setting)
    for k, given in enumerate(points(boxes, result.far, rng, inputs)):
        where = f"{found.kind}/{seed} {other[0]} eps {eps:.3g} input {k}"
        judge(result, found.graph, other[1], given, where)
        if all((x == x.astype(np.float32)).all() for x in given):
            pair = [Network(found.kind, g, given, found.fixed) for g in (found.graph, other[1])]
            run_both(result, *pair, setting, rng, where)
    return result
