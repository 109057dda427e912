"""Powers of a number: base**x, read from PyTorch and ONNX, against PyTorch, ONNX Runtime and exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnx_cases import one, runtime
from specgrad import SpecgradError
from specgrad.check import audit
from specgrad.interop import from_onnx, from_torch
from specgrad.rounding import ULPS, Arithmetic, radius

flint = pytest.importorskip("flint")
torch = pytest.importorskip("torch")
BASES = (2, 10.0, 0.1, 1e4, 1.0001, 1e-3, 3.7)


class Power(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A number to the power of a tensor."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Any) -> Any:
        return self.base**x


def exponents(base: float, count: int = 4000) -> np.ndarray:
    """Exponents of both signs at which results lie in float32's range, most of them small, whole ones too."""
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(1e-9), np.log(70), count)) * rng.choice([-1, 1], count)
    x = np.concatenate([sizes, 80 * rng.normal(size=count // 8).clip(-1, 1), np.zeros(1)]) / np.log(base)
    return np.where(rng.random(len(x)) < 0.1, np.round(x), x).astype(np.float32)


@pytest.mark.parametrize("base", BASES)
def test_the_meaning_is_the_power(base: float) -> None:
    """Against balls of 200 bits, of the base itself: a logarithm rounded once would be off by more."""
    x = exponents(base, 60).astype(float)
    y = from_torch(Power(base).double(), torch.tensor(x))(x)
    with flint.ctx.workprec(200):
        exact = [float((flint.arb(base) ** flint.arb(float(e))).mid()) for e in x]
    np.testing.assert_allclose(y, exact, rtol=1e-13)


@pytest.mark.parametrize("base", BASES)
def test_pytorch_stays_in_the_radius(base: float) -> None:
    """It rounds the base to float32, and is off by a unit besides; what is off by 1e-5 is outside."""
    x = exponents(base)
    arithmetic = Arithmetic(ulps=ULPS["torch"], execution="node")
    ball = radius(from_torch(Power(base), torch.tensor(x)), x, arithmetic=arithmetic).outputs
    y = Power(base)(torch.tensor(x)).numpy()
    assert np.isfinite(ball.radius).all()
    assert ball.contains(y).all()
    near = np.abs(x) < 1
    assert not ball.contains(y * np.float32(1 + 1e-4))[near].any()


@pytest.mark.parametrize("base", BASES)
def test_onnxruntime_stays_in_the_radius(base: float) -> None:
    x = exponents(base)
    model, _ = one("Pow", [np.float32([base]), x])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32([base]), "i0"))
    del model.graph.input[0]
    arithmetic = Arithmetic(ulps=ULPS["onnxruntime"], execution="node")
    ball = radius(from_onnx(model), x, arithmetic=arithmetic).outputs
    assert ball.contains(runtime(model, [x])[0]).all()


@pytest.mark.parametrize("runtime", ["torch", "torch-compile", "onnxruntime"])
def test_an_audit(runtime: str) -> None:
    x = exponents(10.0, 500)
    assert audit(Power(10.0), runtime, x).verdict == "rounding"


@pytest.mark.parametrize("base", [0, 1, -2.0, float("inf"), float("nan")])
def test_other_bases_are_refused(base: float) -> None:
    with pytest.raises(SpecgradError, match="must be a positive number other than 1"):
        from_torch(Power(base), torch.zeros(3))
