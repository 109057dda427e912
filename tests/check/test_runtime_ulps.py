"""What the records of runtimes declare about exp and its kin is what benchmarks/runtime_ulps.py measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specgrad.check import RUNTIMES
from specgrad.check.examine import arithmetic_of

TEXT = (Path(__file__).parents[2] / "benchmarks" / "runtime_ulps.txt").read_text()
ROW = re.compile(r"(\S+) .* (\S+) at \S+ +(\S+) of (\S+)")
ENTRIES = {"erf": "normal_cdf", "x**0.75": "power", "x**-1.25": "power"}
MEASURED = [
    (block.split(":")[0], *found.groups())
    for block in TEXT.split("\n\n")[1:]
    for line in block.splitlines()
    if (found := ROW.match(line))
]


@pytest.mark.parametrize(("name", "function", "measured", "bound", "scale"), MEASURED)
def test_declared_bounds_cover_the_measured_ones(name, function, measured, bound, scale) -> None:
    declared = arithmetic_of(RUNTIMES[name]).ulp_bound(ENTRIES.get(function, function))
    assert declared == (float(bound), scale)
    assert float(measured) * 1.1 <= float(bound) + 0.01 or float(measured) <= 1.0 <= float(bound)


def test_every_declared_function_was_measured() -> None:
    for name in ("onnxruntime", "openvino-f32", "onnx-reference"):
        measured = {ENTRIES.get(f, f) for n, f, *_ in MEASURED if n == name}
        assert measured == set(RUNTIMES[name].ulps or ())
