"""Explain a layer that its own arithmetic does not explain by effects that are known to happen.

- A runtime shows the result of a half layer as it is stored and hands on the float32 sum that it was before. Then an
  operand is any number that is stored as the one shown.
- Sums of half layers may themselves be in the half format.
- Pairs of products of bytes may be added in 16 bits.
- Dequantised values are computed twice: once to be shown, once inside the kernel that reads them. OpenVINO adds
  (q1 - z1) * s1 and (q2 - z2) * s2 from the integers, so its sum is not the sum of the two values that it shows: it
  differs by their roundings. Such a layer is judged from the integers, as one merged execution. Merged with what reads
  it, (q - z) * s may also be q*s - z*s, the product of constants rounded beforehand: an order of the same sum without
  cancellation, whose roundings are relative to abs(q*s) + abs(z*s) and not to the difference.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, section
from specgrad.rounding import FORMATS, Arithmetic, Ball, radius
from specgrad.rounding.arithmetic import INTEGERS
from specgrad.scalar import Array

from . import saturation
from .judge import Verdict, expected_balls, judge_array

HALVES = ("float16", "bfloat16")
EXPLAINED = ("exact", "rounding")


def explain_by_known_effects(
    verdict: Verdict,
    part: Graph,
    given: Sequence[Array],
    got: Array,
    arithmetic: Arithmetic,
    backend: str,
    graph: Graph,
    inputs: Sequence[int],
    formats: Mapping[str, str],
) -> Verdict:
    """Return the verdict on `got`, or a milder one with its reason, if a known effect explains the error.

    `part` computes the layer from `given`, the values of nodes `inputs` of `graph`; `formats` are of nodes in other
    formats, `backend` computes radii. UnsupportedError where an operator has no radius.
    """
    if (verdict.kind, verdict.fault) != ("differs", "value") or not formats:
        return verdict
    stores = [_half_format(graph, p, formats) for p in inputs]
    if any(stores):
        handed = [_before_storing(a, f) for a, f in zip(given, stores, strict=True)]
        ball = radius(part, *handed, arithmetic=arithmetic, backend=backend, formats=formats).outputs
        milder = judge_array(verdict.result, got, ball)
        if milder.kind in EXPLAINED:
            return replace(milder, kind="rounding", detail="operands are handed on before they are stored")
    half = formats.get(part.nodes[part.output_positions[0]].name)
    if half in HALVES:
        name, other = _alternative_arithmetic(got, half, arithmetic)
        (ball,) = expected_balls(part, given, other, backend)
        if judge_array(verdict.result, got, ball).kind in EXPLAINED:
            return replace(verdict, kind="other arithmetic", detail=f"looks like {name}")
    return saturation.explain_by_saturation(verdict, part, given, got, formats)


def describe_formats(deployment: Mapping[str, str], formats: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `deployment` with sentences about layers in half formats and in integers, if `formats` has
    such.
    """
    said = dict(deployment)
    halves = sorted(set(formats.values()) & set(HALVES))
    if halves:
        said["halves"] = f"{', '.join(halves)} layers: results are rounded to that format, sums are float32"
    if not INTEGERS.keys().isdisjoint(formats.values()):
        said["integers"] = (
            "sums in int32, exact; scales in float32; quantised values rounded to nearest even, saturated"
        )
    return said


def _alternative_arithmetic(got: Array, half: str, arithmetic: Arithmetic) -> tuple[str, Arithmetic]:
    """Return (name, arithmetic) of sums in the format `half`; or of bfloat16, if every number of a float16 layer's
    result `got` is one.
    """
    if half == "float16" and got.size >= 16 and FORMATS["bfloat16"].holds(got.astype(np.float64)).all():
        return "bfloat16", Arithmetic("bfloat16", accumulate="float32", flush=True)
    return f"{half} sums", replace(arithmetic, dtype=half)


def _half_format(graph: Graph, position: int, formats: Mapping[str, str]) -> str:
    """Return the half format, by `formats`, of the computed node at `position`, whose result may be handed on
    unrounded; else "".
    """
    node = graph.nodes[position]
    own = formats.get(node.name, "")
    return own if own in HALVES and node.op not in (INPUT, CONSTANT) else ""


def _before_storing(a: Array, form: str) -> Array | Ball:
    """Return the ball of all numbers that are stored as `a` in the format `form`; `a` itself for ""."""
    if not form:
        return a
    return Ball(a, np.abs(a) * FORMATS[form].u + FORMATS[form].smallest)


# --- dequantised values -----------------------------------------------------------------------------------------------

MULTIPLIED_OUT = "zero points are multiplied by their scales: q*s - z*s"


def multiplied_out(graph: Graph, formats: Mapping[str, str]) -> dict[str, str]:
    """Return `formats` without differences of integers: then (q - z) * s is an ordinary float32 sum."""
    differences = {n.name for n in graph.nodes if n.op.name == "sub" and formats.get(n.name) in INTEGERS}
    return {name: form for name, form in formats.items() if name not in differences}


def without_dequantised(graph: Graph, inputs: Sequence[int], known: Mapping[int, Array]) -> dict[int, Array] | None:
    """Return the known values without inputs that known integers determine; None if there are none."""
    gone = {p for p in inputs if _is_dequantised(graph, p, known)}
    return {p: v for p, v in known.items() if p not in gone} if gone else None


def _is_dequantised(graph: Graph, position: int, known: Mapping[int, Array]) -> bool:
    """Return whether the known float value at `position` is computed from known integers alone."""
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
