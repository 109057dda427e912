"""Recordings of PyTorch modules: the verdicts of a live audit, and the layer of a fault in another module's code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from specgrad import ParameterError
from specgrad.check import audit, audit_recorded, open_recording, record

pytest.importorskip("safetensors")
X = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)


def block(kind: torch.dtype = torch.float32) -> nn.Sequential:
    """Five layers, of which one overwrites the value of the layer before it."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(24, 32), nn.ReLU(inplace=True), nn.LayerNorm(32), nn.Linear(32, 8), nn.GELU()
    ).eval().to(kind)  # fmt: skip


class WithoutBias(nn.Linear):
    """A linear layer that has a bias and does not add it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


@pytest.mark.parametrize(
    ("kind", "runtime"), [(torch.float32, "torch"), (torch.bfloat16, "torch"), (torch.float32, "torch-compile")]
)
def test_a_recording_has_the_verdict_of_a_live_audit(kind: torch.dtype, runtime: str, tmp_path: Path) -> None:
    module = block(kind)
    assert record(module, runtime, [[X]], tmp_path).verdict == "ok"
    recording = open_recording(tmp_path)
    assert {t["format"] for t in recording.index["tensors"]} <= {str(kind).removeprefix("torch."), "float32"}
    live, later = audit(module, runtime, X), audit_recorded(module, recording)
    assert live.verdict == later.verdict == "rounding"
    assert [layer.name for layer in live.layers] == [layer.name for layer in later.layers] == list("01234")
    assert live.coverage == later.coverage


def test_several_points_are_several_runs(tmp_path: Path) -> None:
    done = record(block(), "torch", [[X], [X[:2]]], tmp_path)
    assert done.recording is not None
    assert audit_recorded(block(), done.recording).verdict == "rounding"


def test_a_layer_with_other_code_is_named(tmp_path: Path) -> None:
    faulty = block()
    faulty[3].__class__ = WithoutBias
    record(faulty, "torch", [[X]], tmp_path)
    found = audit_recorded(block(), open_recording(tmp_path))
    assert found.verdict == "differs"
    assert found.first_divergent is not None
    assert found.first_divergent.name == "3"


def test_other_weights_are_refused(tmp_path: Path) -> None:
    record(block(), "torch", [[X]], tmp_path)
    other = block()
    with torch.no_grad():
        other[3].bias[0] = torch.nextafter(other[3].bias[0], torch.tensor(9.0))
    for module in (other, block(torch.bfloat16)):
        with pytest.raises(ParameterError, match="was recorded of Sequential with SHA-256"):
            audit_recorded(module, open_recording(tmp_path))


def test_what_is_no_recording_of_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="judged by a recording of it"):
        audit_recorded(block(), {"x": X})
    with pytest.raises(ParameterError, match="recorded on torch or torch-compile; export it for onnxruntime"):
        record(block(), "onnxruntime", [[X]], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_layer_that_is_called_twice_is_no_single_value(tmp_path: Path) -> None:
    linear = nn.Linear(24, 24)
    twice = nn.Sequential(linear, nn.Tanh(), linear).eval()
    done = record(twice, "torch", [[X]], tmp_path)
    assert done.recording is not None
    assert set(done.recording.run(0).values("value")) == {"1"}
    assert audit_recorded(twice, done.recording).verdict == "rounding"
