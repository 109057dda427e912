"""Strided pools on PyTorch by slices and by planes as channels: bits, ties, NaN, derivatives, layouts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg
from specgrad.engines.torch import max_pool, planes_as_channels, strided_pool
from specgrad.engines.torch.strided_pool import SlicedPool, can_slice
from specgrad.op import REGISTRY, run_spec
from specgrad.ops import sample_inputs
from specgrad.window import Window

SPECIAL = (np.nan, -np.inf, np.inf, 0.0, -0.0, 1.0, 1.0, 2.0)
NATIVE = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def windows(count: int) -> list[tuple[Window, Random]]:
    """Windows of any rank, stride and padding that slices take, none with an empty cell."""
    drawn = ((sample_inputs.window(rng), rng) for rng in (Random(f"strided/{n}") for n in range(40 * count)))
    return [(w, rng) for w, rng in drawn if can_slice(w)][:count]


def special(window: Window, rng: Random, planes: int = 3, values: tuple[float, ...] = SPECIAL) -> np.ndarray:
    count = planes * int(np.prod(window.size))
    return np.array([rng.choice(values) for _ in range(count)], np.float32).reshape(planes, *window.size)


def first_maxima(x: np.ndarray, window: Window) -> np.ndarray:
    """By the text of the contract, cell by cell: NaN wins, else the first of the largest."""
    y = np.empty((len(x), *window.out), x.dtype)
    for plane in range(len(x)):
        for out in np.ndindex(*window.out):
            cells = [x[(plane, *cell)] for _, cell in window.reads(out) if cell is not None]
            nan = [c for c in cells if c != c]
            y[(plane, *out)] = nan[0] if nan else max(cells)  # Python's max returns the first
    return y


def same_bits(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    numbers = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])


def maxima_agree(count: int) -> bool:
    for window, rng in windows(count):
        for values in (SPECIAL, SPECIAL[1:], (0.0, -0.0, -1.0)):
            x = special(window, rng, values=values)
            if not same_bits(SlicedPool(window).maximum(torch.from_numpy(x)), first_maxima(x, window)):
                return False
    return True


def test_maxima_to_the_bit() -> None:
    assert len({w.rank for w, _ in windows(60)}) >= 3
    assert maxima_agree(60)


def test_a_zero_of_the_wrong_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strided_pool, "has_negative_zero", lambda x: False)
    assert not maxima_agree(60)


def test_taps_joined_in_another_order_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        strided_pool, "first_maximum", lambda a, b, out: torch.where((a <= b) | (b != b), b, a, out=out)
    )
    assert not maxima_agree(60)


def test_sums_and_their_adjoint_exactly() -> None:
    """On small integers no sum rounds."""
    for window, rng in windows(60):
        x = special(window, rng, values=(-3.0, 1.0, 2.0, 5.0))
        gy = np.array([rng.randint(-3, 3) for _ in range(3 * int(np.prod(window.out)))], np.float32)
        gy = gy.reshape(3, *window.out)
        params = {"window": window, "divisor": 1}
        run = SlicedPool(window)
        assert np.array_equal(run.window_sums(torch.from_numpy(x)), run_spec(REGISTRY["avg_pool"], [x], params))
        assert np.array_equal(run.spread_sums(torch.from_numpy(gy)), run_spec(REGISTRY["avg_spread"], [gy], params))
        assert np.array_equal(
            run.spread_sums(torch.from_numpy(gy), 4), run_spec(REGISTRY["avg_spread"], [gy / 4], params)
        )


@pytest.mark.parametrize("planes", [16, 37])
@pytest.mark.parametrize(
    ("rank", "k", "s", "p"), [(1, 3, 2, 1), (2, 2, 2, 0), (2, 3, 2, 1), (2, 5, 3, 2), (3, 3, 2, 1)]
)
def test_winners_of_planes_as_channels(planes: int, rank: int, k: int, s: int, p: int) -> None:
    """The native operator's on contiguous planes, NaN and ties included; and putting is its backward."""
    x = torch.from_numpy(np.random.default_rng(k).choice(SPECIAL, (planes, *(9, 11, 8)[:rank])).astype(np.float32))
    window = sg.trace(lambda t: sg.max_pool(t, (k,) * rank, stride=s, padding=p), x.shape).nodes[-1].params["window"]
    y, index = planes_as_channels.max_and_index(x, window, max_pool._native_max(window))
    t = x.clone().requires_grad_()
    want, where = NATIVE[rank](t[None], k, s, p, return_indices=True)
    assert torch.equal(index, where[0])
    assert same_bits(y, want[0].detach())
    gy = torch.arange(1.0, y.numel() + 1).view(y.shape)
    assert torch.equal(planes_as_channels.put(gy, index, window.size), torch.autograd.grad(want[0], t, gy)[0])


LARGE = {(2, 2, 0): (6, 16, 64, 64), (3, 2, 1): (6, 17, 63, 65), (5, 3, 2): (8, 16, 66, 90)}


@pytest.fixture(params=list(LARGE))
def given(request: pytest.FixtureRequest) -> tuple[tuple[int, int, int], torch.Tensor]:
    """Small integers: ties everywhere, and sums are exact."""
    draw = np.random.default_rng(5).integers(-4, 5, LARGE[request.param])
    return request.param, torch.from_numpy(draw.astype(np.float32))


def test_eager_calls_take_them(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (k, s, p), x = given
    taken: list[str] = []
    for home, name in (
        (SlicedPool, "maximum"),
        (SlicedPool, "window_sums"),
        (SlicedPool, "spread_sums"),
        (planes_as_channels, "max_and_index"),
    ):
        real = getattr(home, name)
        monkeypatch.setattr(home, name, lambda *a, real=real, name=name: (taken.append(name), real(*a))[1])
    ours = lambda t: sg.max_pool(t, (k, k), stride=s, padding=p)
    bare = lambda t: F.max_pool2d(t, k, s, p)
    assert torch.equal(ours(x), bare(x))
    t, u = x.clone().requires_grad_(), x.clone().requires_grad_()
    gy = torch.randint(-3, 4, bare(x).shape).float()
    assert torch.equal(torch.autograd.grad(ours(t), t, gy)[0], torch.autograd.grad(bare(u), u, gy)[0])
    mean = lambda v: sg.avg_pool(v, (k, k), stride=s, padding=p, divisor=1)
    (gx,) = torch.autograd.grad(mean(t), t, gy)
    (want,) = torch.autograd.grad(F.avg_pool2d(u, k, s, p, divisor_override=1), u, gy)
    assert torch.equal(gx, want)
    assert torch.equal(mean(x), F.avg_pool2d(x, k, s, p, divisor_override=1))
    assert set(taken) == {"maximum", "window_sums", "spread_sums", "max_and_index"}


def test_second_derivatives_and_tangents(given: Any) -> None:
    (k, s, p), x = given
    x = x[:, :16]
    ours = lambda t: sg.max_pool(t, (k, k), stride=s, padding=p).pow(3).sum()
    bare = lambda t: F.max_pool2d(t, k, s, p).pow(3).sum()
    v = x.flip(-1)
    seconds = []
    for f in (ours, bare):
        t = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(t), t, create_graph=True)
        seconds.append(torch.autograd.grad((first * v).sum(), t)[0])
    assert torch.equal(*seconds)
    import torch.autograd.forward_ad as fwd

    with fwd.dual_level():
        dual = fwd.make_dual(x, v)
        tangents = [fwd.unpack_dual(f(dual)).tangent for f in (ours, bare)]
    assert torch.equal(*tangents)


@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
def test_channels_last_stays_so(given: Any, pool: str) -> None:
    (k, s, p), x = given
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    y = getattr(sg, pool)(x, (k, k), stride=s, padding=p)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (gx,) = torch.autograd.grad(y.sum(), x)
    assert gx.is_contiguous(memory_format=torch.channels_last)


def test_gradient_graphs_take_them(given: Any) -> None:
    (k, s, p), x = given
    graph = sg.trace(lambda t: sg.sum(sg.max_pool(t, (k, k), stride=s, padding=p)), tuple(x.shape))
    t = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(F.max_pool2d(t, k, s, p).sum(), t)
    assert torch.equal(sg.compile(graph, "torch", "grad")(x), want)


@pytest.mark.parametrize("pool", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("k", [2, 3, 9])
def test_channels_last_stays_so_at_stride_1(pool: str, k: int) -> None:
    """At k9 by doubling, on memory as it lies; with a gradient natively."""
    draw = np.random.default_rng(k).choice([-0.0, 0.0, 1.0, 2.0, -3.0], (2, 16, 40, 41)).astype(np.float32)
    x = torch.from_numpy(draw).contiguous(memory_format=torch.channels_last)
    bare = {"max_pool": F.max_pool2d, "avg_pool": F.avg_pool2d}[pool](x, k, 1, k // 2)
    for t in (x, x.clone().requires_grad_()):
        y = getattr(sg, pool)(t, (k, k), stride=1, padding=k // 2)
        assert y.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(y.detach(), bare, rtol=0 if pool == "max_pool" else 1e-5, atol=1e-6)
        if pool == "max_pool":
            assert same_bits(y.detach(), bare)
    (gx,) = torch.autograd.grad(y.sum(), t)
    assert gx.is_contiguous(memory_format=torch.channels_last)
