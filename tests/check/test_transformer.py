"""Audits of a causal transformer of two blocks: every layer is judged, and the run as it is too."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

from specgrad.check import audit

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
F = torch.nn.functional
D, HEADS, T = 16, 2, 6


class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
    """LayerNorm, causal attention, a residual; LayerNorm, a gated MLP, a residual."""

    def __init__(self) -> None:
        super().__init__()
        make = torch.nn.Linear
        self.n1, self.n2 = torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)
        self.qkv, self.out = make(D, 3 * D), make(D, D)
        self.gate, self.up, self.down = make(D, 2 * D), make(D, 2 * D), make(2 * D, D)

    def forward(self, x: Any) -> Any:
        n, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).reshape(n, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        z = self.n2(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


@pytest.fixture(scope="module")
def model() -> tuple[Any, np.ndarray]:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block()).eval(), np.asarray(torch.randn(1, T, D))


def test_on_pytorch(model: tuple[Any, np.ndarray]) -> None:
    found = audit(model[0], "torch", model[1], unusual="note")
    assert found.verdict == "rounding"
    assert all(layer.verdict.kind in ("exact", "rounding") for layer in found.layers)


def test_on_onnxruntime(model: tuple[Any, np.ndarray]) -> None:
    """Its mask is -inf: nothing was estimated of the run as it is, and the audit was "partly examined"."""
    pytest.importorskip("onnxruntime")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model[0], (torch.tensor(model[1]),), file, dynamo=False, opset_version=17)
    found = audit(onnx.load_from_string(file.getvalue()), "onnxruntime", model[1], unusual="note")
    assert found.verdict == "rounding"
    assert found.run is not None
    assert found.run.times < 10
    assert sum("one total to a row" in layer.verdict.detail for layer in found.layers) == 2
    assert sum("1/std is" in layer.verdict.detail for layer in found.layers) == 4
