"""Known faults of installed runtimes are found again by generation alone: the generator is told nothing of them.

One row per fault, as known for torch 2.13.0, jax 0.10.2, onnxruntime 1.31.1, openvino 2026.4.1 and onnx 1.23.2. The
smallest question found must show the fault itself, not just any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from specgrad.check import RUNTIMES, Conformance, Finding, conformance, runtime
from specgrad.check.cases.generate import draw_cases
from specgrad.check.verdicts.run_case import RuntimeExaminer
from specgrad.process import Process

pytestmark = pytest.mark.usefixtures("kept_workers")
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Row:
    """What is known, and how to recognise it in a finding."""

    runtime: str
    operator: str
    rule: str
    fault: str
    shows: Callable[[Finding], bool]
    text: str

    def __str__(self) -> str:
        return f"{self.runtime}: {self.text}"


def _drops_nan(f: Finding) -> bool:
    return bool(np.isnan(f.verdict.expected) and not np.isnan(f.verdict.actual))


def _lowest(f: Finding) -> bool:
    return (f.verdict.expected, f.verdict.actual) == (-np.inf, LOWEST)


def _attribute(**wanted: object) -> Callable[[Finding], bool]:
    return lambda f: all(f.question.attributes.get(k) == v for k, v in wanted.items())


def _same_dilated(f: Finding) -> bool:
    a = f.question.attributes
    return str(a["padding"]).startswith("same") and max(a.get("dilation", (1,))) > 1


def _same_with_gaps(f: Finding) -> bool:
    a = f.question.attributes
    gaps = [s > k for s, k in zip(a["stride"], a["kernel"], strict=True)]
    return str(a["padding"]).startswith("same") and any(gaps)


def _uneven_pads(f: Finding) -> bool:
    padding = f.question.attributes["padding"]
    return isinstance(padding, tuple) and len({p for pair in padding for p in pair}) > 1


def _gradient(f: Finding) -> bool:
    return f.question.gradient is not None


ORT, VINO, REFERENCE = "onnxruntime", "openvino-f32", "onnx-reference"
ROWS = [
    Row(ORT, "max_pool", "P1", "nan", _drops_nan, "MaxPool drops NaN"),
    Row(ORT, "max_pool", "P2", "infinity", _lowest, "MaxPool of -inf alone is -3.4e38"),
    Row(ORT, "max_pool", "same", "shape", _same_dilated, "MaxPool, SAME with dilation: too few windows"),
    Row(ORT, "lp_pool", "same", "value", _same_with_gaps, "LpPool [1, 2, 3], k1, s3, SAME_UPPER is 2"),
    Row(ORT, "avg_pool", "same", "value", _same_with_gaps, "AveragePool likewise"),
    Row(REFERENCE, "max_pool", "P1", "nan", _drops_nan, "MaxPool drops NaN"),
    Row(REFERENCE, "max_pool", "W1", "shape", _uneven_pads, "MaxPool with uneven pads: wrong shape"),
    Row(REFERENCE, "max_pool", "W3", "shape", _attribute(padding="valid", ceil=True), "MaxPool, VALID: ceil ignored"),
    Row(REFERENCE, "avg_pool", "A1", "value", _attribute(ceil=True), "AveragePool, ceil: wrong value"),
    Row(REFERENCE, "global_max_pool", "W1", "shape", _attribute(rank=1), "GlobalMaxPool reduces the channels"),
    Row(REFERENCE, "lp_pool", "W3", "value", _attribute(ceil=True), "LpPool, ceil: wrong value"),
    Row(VINO, "max_pool", "P2", "infinity", _lowest, "MaxPool of -inf alone is -3.4e38"),
    Row(VINO, "max_pool", "W3", "shape", _attribute(ceil=True), "MaxPool, ceil: a window of padding is kept"),
    Row(
        VINO,
        "avg_pool",
        "A1",
        "value",
        _attribute(ceil=True),
        "AveragePool, ceil: the divisor counts cells past the end",
    ),
    Row("jax-sharded", "max_pool", "first", "value", _gradient, "gradient of a sharded max-pool"),
]
ASKED = {
    (ORT, "max_pool"): (60, 2),
    (ORT, "avg_pool"): (60, 11),
    (ORT, "lp_pool"): (60, 3),
    (REFERENCE, "max_pool"): (60, 5),
    (REFERENCE, "avg_pool"): (40, 1),
    (REFERENCE, "lp_pool"): (16, 2),
    (REFERENCE, "global_max_pool"): (12, 0),
    (VINO, "max_pool"): (260, 0),
    (VINO, "avg_pool"): (260, 0),
    ("jax", "max_pool"): (20, 0),
    ("jax-sharded", "max_pool"): (8, 2),
}
"""As many questions as it takes to meet the rarest of the faults, and a seed with which that is soon."""
SLOW = {VINO: pytest.mark.slow}


@cache
def asked(name: str, operator: str) -> Conformance:
    if not RUNTIMES[name].installed():
        pytest.skip(f"{name} is not installed")
    count, seed = ASKED.get((name, operator), (64, 0))
    return conformance(name, operators=[operator], count=count, seed=seed, shrinks=3)


@pytest.mark.parametrize("row", [pytest.param(r, marks=SLOW.get(r.runtime, ()), id=str(r)) for r in ROWS])
def test_a_known_fault_is_found(row: Row) -> None:
    found = [f for f in asked(row.runtime, row.operator).findings if f.rule == row.rule]
    assert any(f.verdict.fault == row.fault and row.shows(f) for f in found), [str(f.question) for f in found]


def test_the_reference_refuses_the_output_shape_of_a_transposed_convolution() -> None:
    """It raises where the same convolution with pads, no groups and one sample is answered."""
    plain = [
        q for q in draw_cases("conv_transpose", 200) if q.spelling == "output_shape" and q.attributes["groups"] == 1
    ]
    found = runtime(REFERENCE)
    with Process(environment=found.environment) as process:
        examiner = RuntimeExaminer(found, process)
        pairs = [(examiner.ask(q).kind, examiner.ask(replace(q, spelling="")).kind) for q in plain]
    assert ("refuses", "exact") in pairs or ("refuses", "rounding") in pairs, pairs


def test_jax_refuses_the_gradient_of_a_dilated_max_pool() -> None:
    pytest.importorskip("jax")
    reasons = asked("jax", "max_pool").refusals["max_pool"]
    assert any("NotImplementedError: VJP not implemented" in r and "window dilation" in r for r in reasons)


@pytest.mark.skipif(
    "amx_bf16" not in Path("/proc/cpuinfo").read_text(), reason="OpenVINO takes bfloat16 where there is AMX"
)
def test_openvino_takes_bfloat16_by_default() -> None:
    pytest.importorskip("openvino")
    (finding,) = [f for f in asked("openvino", "linear").findings if f.rule == "float32"]
    assert finding.verdict.kind == "other arithmetic"
    assert "bfloat16 operands" in finding.verdict.detail


@pytest.mark.parametrize(("name", "operator"), [("torch", "avg_pool"), ("torch", "max_pool"), (ORT, "avg_pool")])
def test_the_divisor_under_ceil_is_right_elsewhere(name: str, operator: str) -> None:
    """The row of OpenVINO, on runtimes that are known to be right; gradients of ties go to the first winner."""
    pytest.importorskip(name)
    assert not [f for f in asked(name, operator).findings if f.rule != "same"]
