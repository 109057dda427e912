"""A second look at a layer that its own arithmetic does not explain: what else is known to happen there.

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
from .judge import Verdict, balls, compare

HALVES = ("float16", "bfloat16")
EXPLAINED = ("exact", "rounding")


def explained(
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
    """The verdict, or a milder one with its reason; part computes `got` from the nodes `inputs` of the graph."""
    if (verdict.kind, verdict.fault) != ("differs", "value") or not formats:
        return verdict
    stores = [_store(graph, p, formats) for p in inputs]
    if any(stores):
        handed = [_before(a, f) for a, f in zip(given, stores, strict=True)]
        ball = radius(part, *handed, arithmetic=arithmetic, backend=backend, formats=formats).outputs
        milder = compare(verdict.result, got, ball)
        if milder.kind in EXPLAINED:
            return replace(milder, kind="rounding", detail="operands are handed on before they are stored")
    half = formats.get(part.nodes[part.output_positions[0]].name)
    if half in HALVES:
        name, other = _other(got, half, arithmetic)
        (ball,) = balls(part, given, other, backend)
        if compare(verdict.result, got, ball).kind in EXPLAINED:
            return replace(verdict, kind="other arithmetic", detail=f"looks like {name}")
    return saturation.named(verdict, part, given, got, formats)


def said_of(deployment: Mapping[str, str], formats: Mapping[str, str]) -> dict[str, str]:
    """The executions that verdicts hold for, with what layers in other formats are allowed."""
    said = dict(deployment)
    halves = sorted(set(formats.values()) & set(HALVES))
    if halves:
        said["halves"] = f"{', '.join(halves)} layers: results are rounded to that format, sums are float32"
    if INTEGERS in formats.values():
        said["integers"] = (
            "sums in int32, exact; scales in float32; quantised values rounded to nearest even, saturated"
        )
    return said


def _other(got: Array, half: str, arithmetic: Arithmetic) -> tuple[str, Arithmetic]:
    """Half sums; but a float16 layer whose every number is a bfloat16 has been through that format."""
    if half == "float16" and got.size >= 16 and FORMATS["bfloat16"].holds(got.astype(np.float64)).all():
        return "bfloat16", Arithmetic("bfloat16", accumulate="float32", flush=True)
    return f"{half} sums", replace(arithmetic, dtype=half)


def _store(graph: Graph, position: int, formats: Mapping[str, str]) -> str:
    """The format of a result of a half layer, which may be handed on unrounded; else nothing."""
    node = graph.nodes[position]
    own = formats.get(node.name, "")
    return own if own in HALVES and node.op not in (INPUT, CONSTANT) else ""


def _before(a: Array, form: str) -> Array | Ball:
    """Every number that is stored as a."""
    if not form:
        return a
    return Ball(a, np.abs(a) * FORMATS[form].u + FORMATS[form].smallest)
