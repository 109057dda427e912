"""Outputs of whole networks at one input in fixed point, and the difference of two networks there.

Every output is enclosed: what the real network gives is within the radius. So what is shown to differ here differs
over real numbers; that nothing is shown means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..deadline import check_time
from ..errors import UnsupportedError
from ..graph.graph import CONSTANT, INPUT, Graph, NumberArg
from ..rounding.slack_constants import NEAR
from ..scalar import Array
from .fixed_point import DigitFormat, FixedPoint, RadiusError, ends, fixed_point, floats, minus
from .fixed_point_rules import positions_of, value_of

FIRST_BITS, MOST_FIRST_BITS, MOST_BITS, MOST_PASSES = 60, 200, 800, 5
BITS_PER_KERNEL = 2  # of the first pass, for each convolution or matrix product of the larger network
BITS_TO_SPARE = 12  # beside those that the last pass was short of
MOST_MEMORY = 2**31  # bytes of the digits of one node
WIDEST = 24


def format_for(graphs: tuple[Graph, ...], bits: int) -> DigitFormat:
    """Return digits with `bits` behind the point, a few more, so narrow that the longest sum of the graphs is exact."""
    longest = max((_terms(graph, i) for graph in graphs for i in range(len(graph.nodes))), default=1.0)
    width = min(WIDEST, 1 + int(50 - math.log2(longest)) // 2)
    return DigitFormat(width, -(-bits // width))


def _terms(graph: Graph, position: int) -> float:
    """Return the multiply-adds of a node for each of its cells, at least 1."""
    node = graph.nodes[position]
    if node.op in (INPUT, CONSTANT):
        return 1.0
    shapes = [graph.nodes[p].shape if isinstance(p, int) else () for p in node.args]
    return max(1.0, node.op.multiply_adds(*shapes, **node.params) / max(1, math.prod(node.shape)))


def fixed_point_outputs(graph: Graph, inputs: tuple[Array, ...], form: DigitFormat) -> list[FixedPoint]:
    """Return the real outputs at `inputs`, one array per input in order, whose floats are taken as exact numbers.

    RadiusError where a comparison needs more digits; UnsupportedError for what is not evaluated; TimeLimitError.
    """
    last = {a: i for i, node in enumerate(graph.nodes) for a in node.operands()}
    kept = set(graph.real_outputs)
    given = dict(zip(graph.input_positions, inputs, strict=True))
    values: dict[int, Any] = {}
    for i, node in enumerate(graph.nodes):
        check_time(f"{node.name} in fixed point")
        if node.op in (INPUT, CONSTANT):
            x = np.asarray(given[i] if node.op is INPUT else graph.constants[i])
            values[i] = x if node.kind == "index" else fixed_point(form, x)
        else:
            _check_memory(node.name, math.prod(node.shape), form)
            args = [a.value if isinstance(a, NumberArg) else values[a] for a in node.args]
            compute = positions_of if node.kind == "index" else partial(value_of, form)
            values[i] = compute(node.op, args, node.params)
        for a in {*node.operands(), i}:
            if last.get(a, i) <= i and a not in kept:
                values.pop(a, None)
    return [values[p] for p in graph.real_outputs]


def _check_memory(name: str, cells: int, form: DigitFormat) -> None:
    """Raise UnsupportedError if the digits of so many cells are too large, in the name of the node."""
    if 8 * cells * (form.places + 4) > MOST_MEMORY:
        raise UnsupportedError(name, f"{cells} cells of {form.bits} bits are too many")


# --- two networks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FixedPointDifference:
    """Bounds of a - b at one input: per real output and cell it lies between low and high.

    values   what the first network gives there, as floats
    bits     how many stand behind the point
    """

    low: tuple[Array, ...]
    high: tuple[Array, ...]
    values: tuple[Array, ...]
    bits: int


def fixed_point_difference(a: Graph, b: Graph, inputs: tuple[Array, ...]) -> FixedPointDifference:
    """Return bounds of a(x) - b(x) at one input x, by as many digits as show a difference, or as there are passes for.

    RadiusError if even the last pass decided too little.
    """
    kernels = max(sum(node.op.kernel for node in graph.nodes) for graph in (a, b))
    bits = min(FIRST_BITS + BITS_PER_KERNEL * kernels, MOST_FIRST_BITS)
    for attempt in range(1, MOST_PASSES + 1):
        form = format_for((a, b), bits)
        is_last = attempt == MOST_PASSES or bits >= MOST_BITS
        try:
            first, second = (fixed_point_outputs(graph, inputs, form) for graph in (a, b))
        except RadiusError:
            if is_last:
                raise
            bits = min(2 * bits, MOST_BITS)
            continue
        apart = [minus(p, q) for p, q in zip(first, second, strict=True)]
        missing = _bits_missing(apart)
        if missing <= 0 or is_last:
            low, high = zip(*(ends(d) for d in apart), strict=True) if apart else ((), ())
            values = tuple(np.ldexp(floats(p), -form.bits) for p in first)
            return FixedPointDifference(low, high, values, form.bits)
        more = bits if missing == math.inf else math.ceil(missing) + BITS_TO_SPARE
        bits = min(bits + max(more, form.width), MOST_BITS)
    raise RadiusError("compare", "no pass decided enough")


def _bits_missing(apart: Sequence[FixedPoint]) -> float:
    """Return how many more bits would show that some cell of some output is not 0, if its digits are right.

    At most 0 where one is shown, or where all are exactly 0; inf where no digit says anything.
    """
    open_ones = [d for d in apart if not (d.is_exact and not d.digits.any())]
    return min((_bits_to_show(d) for d in open_ones), default=0.0)


def _bits_to_show(apart: FixedPoint) -> float:
    """Return how many more bits would show that some cell is not 0, if its digits are right: inf if all are 0."""
    size = abs(floats(apart)) * (1 - NEAR)
    if (size > apart.radius).any():
        return 0.0
    some = size > 0
    return float(np.log2(apart.radius[some] / size[some]).min()) + 1 if some.any() else math.inf
