"""Real runtimes: the known faults are found by generation alone, and sound ones raise no alarm."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from specgrad.check import RUNTIMES, conformance
from specgrad.errors import ParameterError


def rules(result) -> set[tuple[str, str]]:
    return {(f.operator, f.rule) for f in result.findings}


@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
def test_no_alarm_where_the_rule_is_implemented(name: str) -> None:
    pytest.importorskip(name)
    operators = ["conv", "conv_transpose", "linear", "global_avg_pool", "batch_norm", "add", "relu", "exp"]
    result = conformance(name, operators=operators, count=32, seed=7)
    assert result.findings == []
    assert result.verdict == "ok"
    total = sum(result.counts.values(), Counter())
    assert total["exact"] > 50
    assert total["rounding"] > 50


def test_known_faults_of_onnx_runtime_are_found() -> None:
    pytest.importorskip("onnxruntime")
    result = conformance("onnxruntime", operators=["max_pool", "global_max_pool"], count=128)
    assert {("max_pool", "P1"), ("max_pool", "P2"), ("max_pool", "same"), ("global_max_pool", "P1")} <= rules(result)
    assert result.verdict == "differs"


def test_known_faults_of_the_onnx_reference_are_found() -> None:
    pytest.importorskip("onnx")
    result = conformance("onnx-reference", operators=["max_pool", "avg_pool", "global_max_pool"], count=64)
    wanted = {("max_pool", "P1"), ("max_pool", "W3"), ("avg_pool", "A1"), ("global_max_pool", "W1")}
    assert wanted <= rules(result)


def test_a_reproduction_needs_only_the_runtime_and_numpy(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    finding = conformance("onnxruntime", operators=["global_max_pool"], count=16).findings[0]
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
