"""8-bit floats and integers with scales: ml_dtypes, PyTorch and JAX are the oracles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.errors import ParameterError
from specgrad.rounding import FORMATS, Arithmetic, radius

FORMS = ("float8_e4m3fn", "float8_e5m2")
CODES = np.arange(256, dtype=np.uint8)


def held(x: Any, form: str) -> np.ndarray:
    """x in the format, to nearest, by ml_dtypes."""
    return np.asarray(x, np.float32).astype(getattr(ml_dtypes, form)).astype(float)


@pytest.mark.quick
@pytest.mark.parametrize("form", FORMS)
def test_a_format_is_its_256_codes(form: str) -> None:
    ours, numbers = FORMATS[form], CODES.view(getattr(ml_dtypes, form)).astype(float)
    finite = np.unique(numbers[np.isfinite(numbers)])
    said = ml_dtypes.finfo(getattr(ml_dtypes, form))
    assert (ours.largest, ours.tiny, ours.smallest) == (said.max, said.smallest_normal, said.smallest_subnormal)
    assert (ours.largest, -ours.largest) == (finite.max(), finite.min())
    assert ours.u == float(said.eps) / 2
    assert ours.finite != np.isinf(numbers).any()
    between = (finite[1:] + finite[:-1]) / 2
    assert ours.holds(finite).all()
    assert not ours.holds(between).any()
    assert not ours.holds(np.array([ours.largest * 1.25, ours.smallest / 2])).any()


def products(rng: np.random.Generator, form: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factors that are numbers of the format, subnormal ones among them, and a bias."""
    n, scale = int(rng.integers(1, 60)), 4.0 ** int(rng.integers(-4, 1))
    return (
        held(rng.normal(size=(6, n)) * scale, form),
        held(rng.normal(size=(5, n)), form),
        held(rng.normal(size=5), form),
    )


def ratio(ball: Any, got: np.ndarray) -> float:
    """The largest error over the radius; infinite where it is outside."""
    assert np.isfinite(ball.radius).all()
    if not ball.contains(got).all():
        return np.inf
    error = np.abs(got - ball.value)
    return float(np.where(error == 0, 0.0, error / np.where(error == 0, 1, ball.radius)).max(initial=0))


@pytest.mark.parametrize("form", FORMS)
def test_results_stored_in_8_bits(form: str) -> None:
    """float32 sums, stored once: 0 outside, near the bound."""
    seen = []
    for seed in range(40):
        x, w, b = products(np.random.default_rng(seed), form)
        graph = sg.trace(lambda x, w, b: sg.linear(w, b, x), x.shape, w.shape, b.shape)
        meant = Arithmetic(form, accumulate="float32", execution="node")
        total = np.zeros((6, 5), np.float32)
        for k in range(x.shape[1]):
            total = total + (x[:, None, k] * w[None, :, k]).astype(np.float32)
        seen.append(ratio(radius(graph, x, w, b, arithmetic=meant).outputs, held(total + b.astype(np.float32), form)))
    assert 0.7 < max(seen) <= 1


@pytest.mark.parametrize("form", FORMS)
def test_beyond_the_largest_number(form: str) -> None:
    """Nothing is said of it, or it saturates: PyTorch does so with e4m3fn, JAX and ml_dtypes give NaN."""
    top = FORMATS[form].largest
    x = np.float32([top / 2, top, 1.1 * top, 8 * top, -8 * top])
    graph = sg.trace(lambda x: sg.cast(x, form), x.shape)
    open_, fits = radius(graph, x).outputs, np.abs(x) <= top
    assert (np.isfinite(open_.radius) == fits).all()
    clipped = np.clip(x, -top, top).astype(float)
    ball = radius(graph, x, arithmetic=Arithmetic(overflow="saturate")).outputs
    assert ball.contains(clipped).all()
    np.testing.assert_allclose(ball.radius[3:], np.abs(x - clipped)[3:], rtol=1e-6)
    meant = Arithmetic(form, accumulate="float32", overflow="saturate", execution="node")
    twice = sg.trace(lambda x: x + x, x.shape)
    ball = radius(twice, clipped, arithmetic=meant).outputs
    assert ball.contains(np.clip(2 * clipped, -top, top)).all()
    assert np.isfinite(ball.radius).all()
    if form == "float8_e4m3fn":
        assert torch.from_numpy(x).to(torch.float8_e4m3fn).double().numpy().tolist() == clipped.tolist()
        assert np.isnan(held(x, form)[3:]).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("execution", ["node", "fused"])
def test_factors_rounded_to_8_bits(form: str, execution: str) -> None:
    """float32 numbers whose factors a kernel rounds; a large one proves nothing, one that is held is not rounded."""
    meant, seen = Arithmetic(operands=form, execution=execution), []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, scale = int(rng.integers(1, 20)), 4.0 ** int(rng.integers(-1, 1))
        x, w = (
            rng.normal(size=(6, n)).astype(np.float32) * np.float32(scale),
            rng.normal(size=(5, n)).astype(np.float32),
        )
        graph = sg.trace(lambda x, w: sg.linear(w, None, x), x.shape, w.shape)
        got = held(x, form) @ held(w, form).T
        seen.append(ratio(radius(graph, x, w, arithmetic=meant).outputs, got.astype(np.float32).astype(float)))
    assert 0.4 < max(seen) <= 1
    x[0] = 2 * FORMATS[form].largest
    assert np.isinf(radius(graph, x, w, arithmetic=meant).outputs.radius).all()
    exact, plain = held(w, form), Arithmetic(execution=execution)
    balls = [
        radius(graph, held(np.ones_like(x), form), exact, arithmetic=a).outputs.radius.max() for a in (meant, plain)
    ]
    assert (balls[0] == balls[1]) == (execution == "node")  # where nodes are merged, constants are folded and rounded


@pytest.mark.parametrize("result", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("factor", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_pytorch_multiplies_8_bits_with_scales(factor: Any, result: Any) -> None:
    """torch._scaled_mm on the CPU: 8-bit factors, scales of their own, results in a format of choice."""
    torch.manual_seed(0)
    name, seen = str(result).removeprefix("torch."), []
    meant = Arithmetic(name, accumulate=None if name == "float32" else "float32", execution="node")
    for n in (16, 64, 512):
        a, b = torch.randn(32, n).to(factor), torch.randn(48, n).to(factor)
        s, t = torch.tensor(0.11), torch.tensor(0.7)
        got = torch._scaled_mm(a, b.t(), scale_a=s, scale_b=t, out_dtype=result)
        graph = sg.trace(lambda a, b, s: sg.linear(b, None, a) * s, a.shape, b.shape, ())
        exact = [v.double().numpy() for v in (a, b)]
        wide = Arithmetic("float32", execution="node")
        scale = s.double().numpy() * t.double().numpy()  # two products, or one with a rounded product of scales
        inner = radius(graph, *exact, np.float32(scale), arithmetic=wide).outputs
        reach = inner.radius + np.abs(inner.value) * 2.0**-22
        form = FORMATS[name]
        allowed = reach + ((np.abs(inner.value) + reach) * form.u + form.smallest if name != "float32" else 0)
        assert meant.u == form.u
        seen.append(float((np.abs(got.double().numpy() - inner.value) / allowed).max()))
    assert max(seen) <= 1


def test_integers_with_scales() -> None:
    """int8 factors with int32 sums are exact (PyTorch's), and with float32 sums within the radius."""
    rng = np.random.default_rng(0)
    for n in (2, 32, 700, 3000):
        x, w = (rng.integers(-127, 128, size).astype(np.int8) for size in ((32, n), (8, n)))
        s, t = np.float32(0.013), rng.uniform(0.001, 0.1, 8).astype(np.float32)
        graph = sg.trace(lambda x, w, s, t: sg.linear(w, None, x) * s * t, x.shape, w.shape, (), t.shape)
        sums = next(node.name for node in graph.nodes if node.op.kernel)
        exact = torch._int_mm(torch.from_numpy(x), torch.from_numpy(w).t().contiguous()).numpy()
        ball = radius(graph, x, w, s, t, formats={sums: "int32"}).outputs
        assert ratio(ball, (exact.astype(np.float32) * (s * t)).astype(float)) <= 1
        assert ball.radius.max() <= np.abs(ball.value).max() * 2.0**-21
        added = np.zeros((32, 8), np.float32)
        for k in range(n):
            added = added + x[:, None, k].astype(np.float32) * w[None, :, k]
        assert ratio(radius(graph, x, w, s, t).outputs, (added * s * t).astype(float)) <= 1


@pytest.mark.parametrize("operands", ["tf32", "bfloat16"])
@pytest.mark.parametrize("execution", ["node", "fused"])
def test_factors_at_the_ends_of_their_range(operands: str, execution: str) -> None:
    """A subnormal factor that becomes 0, and one that becomes infinite, which PyTorch's bfloat16 does."""
    graph = sg.trace(lambda w, x: sg.linear(w, None, x), (1, 1), (1, 1))
    meant = Arithmetic(operands=operands, flush=False, execution=execution)
    small, large = np.float32([[2.0**-138]]), np.float32([[3.4028e38]])
    ball = radius(graph, np.float32([[2.0**100]]), small, arithmetic=meant).outputs
    assert ball.contains(np.zeros((1, 1))).all()
    ball = radius(graph, np.float32([[2.0**-10]]), large, arithmetic=meant).outputs
    assert np.isinf(ball.radius).all()
    assert torch.isinf(torch.tensor(3.4028e38).bfloat16())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "float8_e4m3fn", "accumulate": "float8_e5m2"}, "accumulate must hold every float8_e4m3fn"),
        ({"dtype": "bfloat16", "operands": "float16"}, "operands must be shorter than dtype"),
        ({"overflow": "wrap"}, "overflow must be one of open, saturate"),
        ({"casts": "maybe"}, "casts must be one of stored, dropped"),
    ],
)
def test_what_does_not_go_together(options: dict[str, str], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        Arithmetic(**options)
