"""Random single nodes are read, and ONNX Runtime's result lies in the radius of what was read; or they are refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper

import onnx_cases as cases
from onnx_fuzz import DRAWN, Case
from onnx_operators import OPERATORS, around
from specgrad.errors import SpecgradError
from specgrad.interop import from_onnx
from specgrad.rounding import radius

KINDS = {**DRAWN, **OPERATORS}
MOST_REFUSED = {"scatter_elements": 0.35, "cubic": 0.3, "resize": 0.3}
"""Computed positions, which may be equal; corners aligned by scales that leave a part of a cell."""
VAGUE = {"integers": 0.4, "roi_align": 0.5}
"""Kinds of which more than a quarter may have no finite radius: nothing is claimed of divisions of integers."""
BY_REFERENCE = ("Einsum", "RNN")
"""Operators that are held against onnx's reference: of ellipses ONNX Runtime's process dies; its RNN computes tanh by
sigmoid, which verdicts exclude by name."""


def reference(model: onnx.ModelProto, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """What onnx's own reference computes."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=True)))


def model_of(case: Case) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """A model of the one node, its outputs declared as onnx infers them, and its inputs."""
    op, inputs, given, known, opset = case
    attributes = {k: v for k, v in given.items() if k not in ("outputs", "around")}
    count = given.get("outputs", 1 + (op == "TopK"))
    arrays = [None if v is None else np.asarray(v) for v in inputs]
    model, fed = cases.one(op, arrays, opset=opset, known=known, outputs=count, **attributes)
    if "around" in given:
        around(model, given["around"])
    if "domain" in given:
        model.opset_import.append(helper.make_opsetid(given["domain"], 1))
    for end in model.graph.output:
        end.ClearField("type")
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for end, known_end in zip(model.graph.output, inferred, strict=True):
        end.type.tensor_type.elem_type = known_end.type.tensor_type.elem_type or 1
    return model, fed


def answer_of(op: str, model: onnx.ModelProto, fed: list[np.ndarray]) -> list[np.ndarray] | None:
    """What ONNX Runtime computes, or onnx's reference where it has no kernel; None: neither."""
    for run in (reference,) if op in BY_REFERENCE else (cases.runtime, reference):
        try:
            return [np.asarray(y) for y in run(model, fed)]
        except Exception:  # no kernel, or these sizes are refused
            continue
    return None


def judge(case: Case) -> tuple[str, str]:
    """What came of one node: right, vague (right, without a finite radius), wrong, refused, not run; and details."""
    model, fed = model_of(case)
    expected = answer_of(case[0], model, fed)
    if expected is None:
        return "not run", ""
    try:
        graph = from_onnx(model)
    except SpecgradError as error:
        return "refused", str(error)[:100]
    kinds = [graph.nodes[p].kind for p in graph.input_positions]
    given = [v if k == "index" or v.dtype.kind == "f" else v.astype(float) for k, v in zip(kinds, fed, strict=True)]
    balls = radius(graph, *given, formats=graph.formats).outputs
    vague = False
    for ball, y in zip((balls,) if graph.single else balls, expected, strict=True):
        if ball.value.shape != y.shape or not ball.contains(y.astype(np.float64)).all():
            return "wrong", f"{ball.value!r:.200} {y!r:.200}"
        open_cells = np.isinf(ball.radius)
        vague |= bool(open_cells.any())
        apart = np.abs(np.asarray(ball.value, float) - y.astype(float))[open_cells]
        if y.dtype.kind == "f" and (apart > 0.01 * max(1.0, float(np.abs(ball.value).max(initial=0)))).any():
            return "wrong", "no radius, and far from it"
    return "vague" if vague else "right", ""


def fuzz(kind: str, count: int, seed: int) -> Counter[str]:
    """Draw `count` nodes; return how many were right, wrong, refused, not run, and without a finite radius."""
    outcome: Counter[str] = Counter()
    for number in range(count):
        case = KINDS[kind](np.random.default_rng((seed, number)))
        found, details = judge(case)
        outcome[found] += 1
        if found in ("wrong", "refused"):
            op, inputs, given, known, opset = case
            shapes = [None if v is None else (str(np.asarray(v).dtype), np.shape(v)) for v in inputs]
            text = f"{shapes} known {known} {given!r:.200} seed {number}: {details}"
            outcome[f"{found}: {op}-{opset} {text if found == 'wrong' else details}"] += 1
    return outcome


def check(kind: str, count: int, seed: int) -> Counter[str]:
    outcome = fuzz(kind, count, seed)
    assert outcome["wrong"] == 0, outcome
    assert outcome["refused"] <= count * MOST_REFUSED.get(kind, 0), outcome
    assert outcome["vague"] <= count * VAGUE.get(kind, 0.25), outcome
    return outcome


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_lies_in_the_radius(kind: str) -> None:
    outcome = check(kind, 12, 1)
    assert outcome["right"] + outcome["vague"] >= 4, outcome


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind: str) -> None:
    check(kind, 400, 2)


def test_a_wrong_node_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that forgets to go backwards."""
    from specgrad.interop.onnx.read import layout

    monkeypatch.setattr(layout, "_python_slice", lambda c, cells, start, end, step: slice(start, end, abs(step)))
    assert fuzz("slice", 12, 1)["wrong"] > 0
