"""Real runtimes: the known faults are found by generation alone, and sound ones raise no alarm."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from specgrad.check import RUNTIMES, conformance
from specgrad.errors import ParameterError

pytestmark = pytest.mark.usefixtures("kept_workers")


def rules(result) -> set[tuple[str, str]]:
    return {(f.operator, f.rule) for f in result.findings}


@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
def test_no_alarm_where_the_rule_is_implemented(name: str) -> None:
    pytest.importorskip(name)
    operators = ["conv", "conv_transpose", "linear", "global_avg_pool", "batch_norm", "add", "relu", "exp"]
    result = conformance(name, operators=operators, count=16, seed=7)
    assert result.findings == []
    assert result.verdict == "ok"
    total = sum(result.counts.values(), Counter())
    assert total["exact"] > 25
    assert total["rounding"] > 25


def test_a_fault_is_found_and_its_reproduction_needs_only_the_runtime_and_numpy(tmp_path) -> None:
    """One fault of ONNX Runtime; test_known_faults.py has them all."""
    pytest.importorskip("onnxruntime")
    result = conformance("onnxruntime", operators=["global_max_pool"], count=16)
    assert ("global_max_pool", "P1") in rules(result)
    assert result.verdict == "differs"
    finding = result.findings[0]
    assert "specgrad" not in finding.script
    path = tmp_path / "case.py"
    path.write_text(finding.script)
    shown = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout
    assert "must be (1, 1, 1) [nan]" in shown
    assert "got     (1, 1, 1) [-3.4028234663852886e+38]" in shown


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="unknown runtime 'caffe'; known are torch, torch-compile"):
        conformance("caffe")
    with pytest.raises(ParameterError, match="unknown operator 'convolve'; known are conv,"):
        conformance("torch", operators=["convolve"])
    assert {"torch", "torch-compile", "jax", "onnxruntime", "openvino", "onnx-reference"} <= set(RUNTIMES)
