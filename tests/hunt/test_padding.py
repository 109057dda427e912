"""Overflow is judged over all taps, padded ones included: no execution that multiplies zeros leaves a finite radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from padding import Padded, drawn
from specgrad.bounds import Box, ibp
from specgrad.op import REGISTRY
from specgrad.rounding import Arithmetic, linear, radius

FORMATS = {"float32": 3.4028234663852886e38, "float16": 65504.0}


def escapes(case: Padded, name: str, boxes: bool = False) -> list[str]:
    """What some execution leaves: a radius, or the interval bounds of the point."""
    arithmetic, found = Arithmetic(name), []
    ball = radius(case.graph, case.x, arithmetic=arithmetic).outputs
    whole = np.isfinite(case.x).all() and boxes
    box = ibp(case.graph, Box(case.x, case.x), arithmetic=arithmetic).outputs if whole else None
    for y in case.executions(name):
        if not ball.contains(y).all():
            found.append(f"radius {ball.value} {ball.radius} {y}")
        if box is not None and not (box.contains(y) | (np.isinf(box.low) & np.isinf(box.high))).all():
            found.append(f"ibp {box} {y}")
    return found


def hunted(seeds: Sequence[int], boxes: bool = True) -> str | None:
    """The first escape."""
    cases = ((seed, name) for seed in seeds for name in FORMATS)
    return next((f"{s} {n} {e}" for s, n in cases for e in escapes(drawn(s, FORMATS[n]), n, boxes)), None)


def test_no_execution_that_multiplies_zeros_leaves_a_radius() -> None:
    """180 networks in float32 and float16, four executions each; a good part of them has finite cells, and NaN."""
    assert hunted(range(90)) is None
    cases = [drawn(seed, FORMATS["float32"]) for seed in range(90)]
    finite = [np.isfinite(radius(c.graph, c.x).outputs.radius).any() for c in cases]
    poisoned = [any(np.isnan(y).any() for y in c.executions("float32")) for c in cases]
    assert 24 < sum(finite) < 84
    assert sum(poisoned) > 12


@pytest.mark.slow
def test_long_hunt() -> None:
    """20,000 networks."""
    assert hunted(range(1000, 11_000)) is None


PLANTED: dict[str, Any] = {
    "conv meets no padding": "conv",
    "conv_transpose stuffs no zeros": "conv_transpose",
    "conv_weight meets no padding": "conv_weight",
    "averages are no matrices": "avg_pool",
}


@pytest.mark.parametrize("name", list(PLANTED))
def test_an_operator_that_forgets_its_zeros_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record = REGISTRY[PLANTED[name]]
    monkeypatch.setitem(REGISTRY, record.name, replace(record, outside=None))
    from specgrad.ops import avg_pool

    monkeypatch.setattr(avg_pool, "AVG_POOL", REGISTRY["avg_pool"])
    assert hunted(range(150), boxes=False) is not None


@pytest.mark.parametrize("name", ["_folded_constants", "_all_finite"])
def test_a_rule_that_forgets_zeros_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales that fold into a weight at padding; a weight that is infinite by itself."""
    monkeypatch.setattr(linear, name, lambda _: 1.0)
    assert hunted(range(150), boxes=False) is not None


def test_interval_bounds_know_infinite_weights() -> None:
    """An infinite number of the format is stored as it is: its radius is 0, and 0 times it is NaN."""
    w = np.float32([[[np.inf, 1.0]]])
    graph = sg.trace(lambda x: sg.conv(w, None, x, padding=((1, 0),)), (1, 1, 3))
    x = np.float32([[[1, 2, 3]]])
    assert np.isinf(ibp(graph, Box(x, x)).outputs.high).all()
    assert np.isinf(radius(graph, x).outputs.radius).all()


# --- constants folded -------------------------------------------------------------------------------------------

UNREAD = np.float32([[[2.0**100, 1.0, 2.0**100]]])  # of one cell with padding, the outer weights meet nothing else


def _scaled(w: np.ndarray) -> Any:
    return sg.trace(lambda x: sg.reshape(sg.conv(w, None, x, padding=1) * 2.0**100 * 2.0**-100, (1,)), (1, 1, 1))


def test_folded_weights_that_only_padding_meets_are_unbounded() -> None:
    """ONNX Runtime folds the scale into the weights, and has NaN."""
    ort = pytest.importorskip("onnxruntime")
    from specgrad.interop import to_onnx

    graph, x = _scaled(UNREAD), np.float32([[[1.0]]])
    session = ort.InferenceSession(to_onnx(graph).SerializeToString())
    assert np.isnan(session.run(None, {session.get_inputs()[0].name: x})[0]).all()
    assert np.isinf(radius(graph, x).outputs.radius).all()
    assert "mul" in ibp(graph, Box(x, x)).unbounded
