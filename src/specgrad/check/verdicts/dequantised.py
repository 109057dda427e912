"""Layers whose dequantised inputs are computed twice: once to be shown, once inside the kernel that reads them.

OpenVINO adds (q1 - z1) * s1 and (q2 - z2) * s2 from the integers, so its sum is not the sum of the two values that it
shows: it differs by their roundings. Such a layer is judged from the integers, as one merged execution. Merged with
what reads it, (q - z) * s may also be q*s - z*s, the product of constants rounded beforehand: an order of the same sum
without cancellation, whose roundings are relative to abs(q*s) + abs(z*s) and not to the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from specgrad.graph.graph import INPUT, Graph
from specgrad.graph.subgraph import section
from specgrad.rounding.arithmetic import INTEGERS
from specgrad.scalar import Array

MULTIPLIED_OUT = "zero points are multiplied by their scales: q*s - z*s"


def multiplied_out(graph: Graph, formats: Mapping[str, str]) -> dict[str, str]:
    """Return `formats` without differences of integers: then (q - z) * s is an ordinary float32 sum."""
    differences = {n.name for n in graph.nodes if n.op.name == "sub" and formats.get(n.name) == INTEGERS}
    return {name: form for name, form in formats.items() if name not in differences}


def without_dequantised(graph: Graph, inputs: Sequence[int], known: Mapping[int, Array]) -> dict[int, Array] | None:
    """Return the known values without inputs that known integers determine; None if there are none."""
    gone = {p for p in inputs if _is_dequantised(graph, p, known)}
    return {p: v for p, v in known.items() if p not in gone} if gone else None


def _is_dequantised(graph: Graph, position: int, known: Mapping[int, Array]) -> bool:
    """Return whether a known float value is computed from known integers alone."""
    others: Collection[int] = known.keys() - {position}
    _, sources = section(graph, position, others)
    whole = bool(sources) and all(p in known and _is_whole(graph, p, known[p]) for p in sources)
    return whole and known[position].dtype.kind == "f"


def _is_whole(graph: Graph, position: int, array: Array) -> bool:
    """Return whether an array holds integers of a quantised model; positions and labels do not count."""
    return graph.nodes[position].kind == "real" and array.dtype.kind in "iu"


def from_integers_alone(graph: Graph, position: int, known: Mapping[int, Array]) -> dict[int, Array] | None:
    """Return the known quantised values if they alone determine the value at `position`; else None.

    That is one convolution or matrix product, and what belongs to it. Longer stretches, from an image of bytes say,
    are no such kernel: their radius is wide, and a fault could hide in it.
    """
    quantised = {
        p: v for p, v in known.items() if p != position and _is_whole(graph, p, v) and graph.nodes[p].op is not INPUT
    }
    part, sources = section(graph, position, quantised)
    short = sum(n.op.kernel for n in part.nodes) <= 1
    return quantised if short and sources and all(p in quantised for p in sources) else None
