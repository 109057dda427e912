"""Pools over whole axes and softplus on PyTorch: values and derivatives of the specification, layouts kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as fwd
import torch.nn.functional as F

import specgrad as sg

TIES = np.random.default_rng(3).choice([-0.0, 1.0, 2.0, -np.inf, np.nan], (3, 4, 5, 6), p=[0.3, 0.3, 0.3, 0.09, 0.01])
TIES[0, 0], TIES[0, 1, 2, 3], TIES[0, 2] = -np.inf, np.nan, 2.0
GY = np.random.default_rng(4).integers(-9, 9, (3, 4, 1, 1)).astype(float)
DX = np.random.default_rng(5).integers(-9, 9, TIES.shape).astype(float)
LAYOUTS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ties", ["all", "split"])
@pytest.mark.parametrize("keepdims", [True, False])
def test_global_max_pool(ties: Any, keepdims: bool, layout: Any) -> None:
    """torch.amax gives nothing to a NaN when ties are split: those cells are left out there."""
    pool: Any = lambda t: sg.global_max_pool(t, rank=2, ties=ties, keepdims=keepdims)
    given = TIES if ties == "all" else np.where(np.isnan(TIES), 3.0, TIES)
    gy = GY if keepdims else GY[..., 0, 0]
    graph = sg.trace(pool, given)
    x = torch.tensor(given).contiguous(memory_format=layout).requires_grad_()
    assert np.array_equal(pool(x.detach()), graph(given), equal_nan=True)
    (gx,) = torch.autograd.grad(pool(x), x, torch.tensor(gy))
    _, want = sg.vjp(graph)(given, gy)
    np.testing.assert_allclose(gx.numpy(), want, rtol=1e-14)
    assert gx.is_contiguous(memory_format=layout)
    with fwd.dual_level():
        tangent = fwd.unpack_dual(pool(fwd.make_dual(x.detach(), torch.tensor(DX)))).tangent
    np.testing.assert_allclose(tangent.numpy(), sg.jvp(graph)(given, DX)[1], rtol=1e-14)


def test_second_derivatives_of_all_winners() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0]], requires_grad=True)
    y = sg.global_max_pool(x, rank=1).pow(3).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    assert first.tolist() == [[0.0, 27.0, 27.0]]
    (second,) = torch.autograd.grad(first[0, 1], x)
    assert second.tolist() == [[0.0, 18.0, 18.0]]


@pytest.mark.parametrize("steps", [(100, 1, 200), (100, 1, 100), (1, 1, 101), (1, 2, 200), (90, 1, 190)])
def test_few_long_windows_on_a_line(steps: tuple[int, int, int]) -> None:
    """Side by side, one alone, overlapping, interleaved: the first of equal cells, and NaN."""
    (stride, dilation, n), kernel = steps, 100
    rng = np.random.default_rng(6)
    for odd in ([-0.0, 0.0, -1.0], [1.0, 2.0, -np.inf], [np.inf, 1.0, 3.0]):
        numbers = rng.choice(odd, (2, 3, n))
        numbers[1, 2, n // 3] = np.nan
        how: Any = {"stride": stride, "dilation": dilation, "return_indices": True}
        want, where = sg.max_pool(numbers, (kernel,), **how)
        x = torch.tensor(numbers, requires_grad=True)
        y, i = sg.max_pool(x, (kernel,), **how)
        assert np.array_equal(y.detach(), want, equal_nan=True)
        assert np.array_equal(i, where)
        (gx,) = torch.autograd.grad(y.sum(), x)
        counted = np.zeros_like(numbers)
        np.put_along_axis(counted, where[..., :1], 1.0, -1)
        for o in range(1, where.shape[-1]):
            at = where[..., o : o + 1]
            np.put_along_axis(counted, at, np.take_along_axis(counted, at, -1) + 1, -1)
        assert np.array_equal(gx, counted)


@pytest.mark.parametrize(("divisor", "ceil"), [(1, False), (3, True), (7, False)])
def test_a_line_averaged_by_a_divisor(divisor: int, ceil: bool) -> None:
    numbers = np.random.default_rng(7).integers(-9, 9, (2, 3, 11)).astype(float)
    call: Any = lambda v: sg.avg_pool(v, (3,), stride=2, padding=1, ceil=ceil, divisor=divisor)
    x = torch.tensor(numbers, requires_grad=True)
    np.testing.assert_allclose(call(x).detach().numpy(), call(numbers), rtol=1e-14)
    (gx,) = torch.autograd.grad(call(x).sum(), x)
    want = sg.vjp(sg.trace(call, numbers))(numbers, np.ones_like(call(numbers)))[1]
    np.testing.assert_allclose(gx.numpy(), want, rtol=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_winner_of_everything(layout: Any) -> None:
    """-0 and +0 tie, so the sign is that of the first."""
    x = torch.tensor(np.where(np.isnan(TIES), -0.0, -abs(TIES))).contiguous(memory_format=layout).requires_grad_()
    pool: Any = lambda t: sg.global_max_pool(t, rank=2, ties="first")
    graph = sg.trace(pool, x.detach().numpy())
    y, where = F.max_pool2d(x.detach().contiguous(), (5, 6), return_indices=True)
    assert torch.equal(pool(x), y)
    assert torch.equal(pool(x).signbit(), y.signbit())
    assert torch.equal(sg.max_pool(x, (5, 6), return_indices=True)[1], where)
    (gx,) = torch.autograd.grad(pool(x), x, torch.tensor(GY))
    assert np.array_equal(gx, sg.vjp(graph)(x.detach().numpy(), GY)[1])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keepdims", [True, False])
def test_global_avg_pool(keepdims: bool, layout: Any) -> None:
    x = torch.tensor(DX).contiguous(memory_format=layout).requires_grad_()
    y = sg.global_avg_pool(x, rank=2, keepdims=keepdims)
    np.testing.assert_allclose(y.detach().numpy(), DX.mean((2, 3), keepdims=keepdims), rtol=1e-15)
    (gx,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(gx.numpy(), np.full(DX.shape, 1 / 30), rtol=1e-15)


def test_refusals_are_those_of_the_compositions() -> None:
    x = torch.zeros(2, 3)
    for pool in (sg.global_max_pool, sg.global_avg_pool):
        for rank in (0, 3, True):
            with pytest.raises(sg.ShapeError, match="rank must lie in"):
                pool(x, rank=rank)
        with pytest.raises(sg.ShapeError, match="empty"):
            pool(torch.zeros(2, 0), rank=1)
    with pytest.raises(sg.ParameterError, match="ties must be"):
        sg.global_max_pool(x, rank=1, ties="last")  # type: ignore[arg-type]


# --- softplus -------------------------------------------------------------------------------------------------------

EDGES = [
    -1e4,
    -104.0,
    -88.0,
    -20.0,
    -1.0,
    0.0,
    1e-30,
    1.0,
    12.5,
    16.6,
    17.4,
    19.99,
    20.01,
    36.1,
    39.99,
    40.01,
    700.0,
    1e4,
]


def softplus_is_exact(f: Any, dtype: torch.dtype, beta: float) -> bool:
    """Value and slope within 2 units of 1 + y and of 1, computed in NumPy's widest type without a threshold."""
    x = torch.tensor([e / beta for e in EDGES], dtype=dtype, requires_grad=True)
    y = f(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    z = x.detach().double().numpy().astype(np.longdouble) * beta
    small = np.exp(-abs(z))
    value, sigmoid = (np.maximum(z, 0) + np.log1p(small)) / beta, np.where(z < 0, small, 1) / (1 + small)
    unit = 2 * torch.finfo(dtype).eps
    error = abs(y.detach().double().numpy() - value) / (1 + value)
    return bool((error <= unit).all() and (abs(slope.double().numpy() - sigmoid) <= unit).all())


@pytest.mark.parametrize("beta", [1, 2, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_softplus_at_its_edges(dtype: torch.dtype, beta: float) -> None:
    assert softplus_is_exact(lambda t: sg.softplus(t, beta), dtype, beta)


def test_a_threshold_too_low_is_noticed() -> None:
    assert not softplus_is_exact(lambda t: F.softplus(t), torch.float64, 1)
    assert not softplus_is_exact(lambda t: F.softplus(t, 1, 12), torch.float32, 1)


def test_softplus_of_what_is_not_finite() -> None:
    x = torch.tensor([np.inf, -np.inf, np.nan], requires_grad=True)
    y = sg.softplus(x)
    np.testing.assert_array_equal(y.detach(), [np.inf, 0.0, np.nan])
    (gx,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_array_equal(gx, [1.0, 0.0, np.nan])


@pytest.mark.parametrize("rule", [{}, {"count_include_pad": False}, {"divisor": 5}])
@pytest.mark.parametrize(
    ("kernel", "padding"), [((3, 4), (0, 0)), ((3, 4), (1, 0)), ((5, 6), (1, 1)), ((3, 3), (0, 0))]
)
def test_a_window_of_the_whole_plane_is_a_mean(rule: Any, kernel: tuple[int, ...], padding: tuple[int, ...]) -> None:
    """And its adjoint; windows that read less, or have several outputs, are not."""
    call = lambda x: sg.avg_pool(x, kernel, padding=padding, **rule)
    x = np.random.default_rng(0).integers(-9, 9, (2, 3, 3, 4)).astype(float)
    back = sg.vjp(sg.trace(call, x))
    gy = np.ones(np.shape(call(x)))
    for given, want in zip(sg.compile(back, "torch")(*map(torch.tensor, (x, gy))), back(x, gy), strict=True):
        np.testing.assert_allclose(given.numpy(), want, rtol=1e-15)


def test_ties_beside_nan() -> None:
    """A NaN in one row and two largest cells in another count as many equal cells as two rows without either."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        x = rng.choice([0.0, 1.0, 2.0, np.nan], (2, 3), p=[0.4, 0.3, 0.2, 0.1])
        call: Any = lambda v: sg.amax(v, (1,), ties="all")
        _, want = sg.vjp(sg.trace(call, x))(x, np.array([1.0, 3.0]))
        t = torch.tensor(x, requires_grad=True)
        (got,) = torch.autograd.grad(call(t), t, torch.tensor([1.0, 3.0], dtype=torch.float64))
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_winners_whose_sum_overflows_have_a_gradient_in_transforms(kind: torch.dtype) -> None:
    """No cell is infinite; -0 stays -0."""
    x = torch.full((2, 128), 600.0 if kind == torch.float16 else 3e38, dtype=kind)
    x[1], x[:, 7] = -0.0, -x[0, 0]
    call: Any = lambda t: sg.amax(t, (1,), ties="all")
    want = torch.ones_like(x).index_fill_(1, torch.tensor([7]), 0.0)
    y, pull = torch.func.vjp(call, x)
    assert torch.equal(y, x[:, 0])
    assert torch.equal(y.signbit(), x[:, 0].signbit())
    assert torch.equal(pull(torch.ones_like(y))[0], want)
    assert torch.equal(torch.func.jvp(call, (x,), (torch.ones_like(x),))[1], want.sum(1))
