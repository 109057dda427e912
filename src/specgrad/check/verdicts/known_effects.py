"""Explain a layer that its own arithmetic does not explain by effects that are known to happen.

- A runtime shows the result of a half layer as it is stored and hands on the float32 sum that it was before. Then an
  operand is any number that is stored as the one shown. (Dequantised values: dequantised.py.)
- Sums of half layers may themselves be in the half format.
- Pairs of products of bytes may be added in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph
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
    """Return the verdict, or a milder one with its reason; `part` computes `got` from nodes `inputs`."""
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
    """Return `deployment` with sentences about layers in half formats and in integers."""
    said = dict(deployment)
    halves = sorted(set(formats.values()) & set(HALVES))
    if halves:
        said["halves"] = f"{', '.join(halves)} layers: results are rounded to that format, sums are float32"
    if INTEGERS in formats.values():
        said["integers"] = (
            "sums in int32, exact; scales in float32; quantised values rounded to nearest even, saturated"
        )
    return said


def _alternative_arithmetic(got: Array, half: str, arithmetic: Arithmetic) -> tuple[str, Arithmetic]:
    """Return half sums; or bfloat16, if every number of a float16 layer is one: its name and arithmetic."""
    if half == "float16" and got.size >= 16 and FORMATS["bfloat16"].holds(got.astype(np.float64)).all():
        return "bfloat16", Arithmetic("bfloat16", accumulate="float32", flush=True)
    return f"{half} sums", replace(arithmetic, dtype=half)


def _half_format(graph: Graph, position: int, formats: Mapping[str, str]) -> str:
    """Return the half format of a computed node, whose result may be handed on unrounded; else ""."""
    node = graph.nodes[position]
    own = formats.get(node.name, "")
    return own if own in HALVES and node.op not in (INPUT, CONSTANT) else ""


def _before_storing(a: Array, form: str) -> Array | Ball:
    """Return the ball of all numbers that are stored as `a` in the format `form`; `a` itself for ""."""
    if not form:
        return a
    return Ball(a, np.abs(a) * FORMATS[form].u + FORMATS[form].smallest)
