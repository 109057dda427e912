"""Random single nodes are read, and ONNX Runtime's result lies in the radius of what was read; or they are refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

import onnx_cases as cases
from onnx_fuzz import DRAWN
from specgrad.errors import SpecgradError
from specgrad.interop import from_onnx
from specgrad.rounding import radius

MOST_REFUSED = {"scatter_elements": 0.35}  # computed positions, which may be equal


def reference(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What onnx's own reference computes."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))


def fuzz(kind: str, count: int, seed: int) -> Counter[str]:
    """Draw `count` nodes; return how many were right, wrong, refused, not run, and without a finite radius."""
    outcome: Counter[str] = Counter()
    for number in range(count):
        op, inputs, given, known, opset = DRAWN[kind](np.random.default_rng((seed, number)))
        model, fed = cases.one(op, inputs, opset=opset, known=known, outputs=1 + (op == "TopK"), **given)
        try:
            run = reference if op == "Einsum" else cases.runtime  # of ellipses ONNX Runtime's process dies
            expected = run(model, fed)[0]
        except Exception:  # the runtime has no kernel, or refuses these sizes
            outcome["not run"] += 1
            continue
        try:
            graph = from_onnx(model)
        except SpecgradError as error:
            outcome["refused"] += 1
            outcome[f"{op}: {str(error)[:100]}"] += 1
            continue
        ball = radius(graph, *fed).outputs
        ball = ball[0] if op == "TopK" else ball
        inside = ball.value.shape == expected.shape and ball.contains(expected.astype(np.float64)).all()
        outcome["right" if inside else "wrong"] += 1
        outcome["vague"] += int(not np.isfinite(ball.radius).all())
        if not inside:
            outcome[f"wrong: {op} {given} {[np.shape(v) for v in inputs]} seed {number}"] += 1
    return outcome


@pytest.mark.parametrize("kind", DRAWN)
def test_onnxruntime_lies_in_the_radius(kind: str) -> None:
    outcome = fuzz(kind, 12, 1)
    assert outcome["wrong"] == 0, outcome
    assert outcome["refused"] <= 12 * MOST_REFUSED.get(kind, 0), outcome
    assert outcome["right"] >= 4, outcome
    assert outcome["vague"] <= outcome["right"] / 4, outcome


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWN)
def test_many(kind: str) -> None:
    outcome = fuzz(kind, 400, 2)
    assert outcome["wrong"] == 0, outcome
    assert outcome["refused"] <= 400 * MOST_REFUSED.get(kind, 0), outcome
