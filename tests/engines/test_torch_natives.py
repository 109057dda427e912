"""Functions handed to PyTorch's own operators: values of the specification bit for bit, its derivatives, layouts kept.

The numbers are those on which operators of the same name differ: NaN, infinities, zeros of both signs, equal cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import specgrad as sg
from specgrad.engines.torch import composites, native_functions, reductions, topk

RNG = np.random.default_rng(11)
SHAPE = (2, 3, 6, 8)
FINITE = RNG.choice([-2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 7.0], SHAPE)
ODD = np.where(RNG.random(SHAPE) < 0.1, RNG.choice([np.nan, np.inf, -np.inf], SHAPE), FINITE)
APART = RNG.permutation(np.arange(np.prod(SHAPE)) - 100.5).reshape(SHAPE)
KEPT: list[Any] = [torch.contiguous_format, torch.channels_last]
TYPES = [torch.float32, torch.float64]

Call = Callable[..., Any]

CALLS: dict[str, Call] = {
    "trunc": lambda x: sg.trunc(x),
    "sign": lambda x: sg.sign(x),
    "mod number": lambda x: sg.mod(x, 0.7),
    "mod negative": lambda x: sg.mod(x, -2),
    "mod zero": lambda x: sg.mod(x, 0),
    "mod itself moved": lambda x: sg.mod(x, sg.add(x, 0.5)),
    "quantize": lambda x: sg.quantize(x, 0.5, 1, low=-2, high=3),
    "quantize open": lambda x: sg.quantize(x, 0.25, low=None, high=None),
    "argmax": lambda x: sg.argmax(x),
    "argmax channels": lambda x: sg.argmax(x, 1, keepdims=True),
    "argmax last": lambda x: sg.argmax(x, 2, last=True),
    "argmin": lambda x: sg.argmin(x),
    "argmin rows": lambda x: sg.argmin(x, 2),
    "the smallest": lambda x: sg.topk(x, 1, largest=False)[1],
    "topk": lambda x: sg.topk(x, 3)[0],
    "topk index": lambda x: sg.topk(x, 3, axis=1)[1],
    "topk smallest": lambda x: sg.topk(x, 2, axis=2, largest=False)[0],
    "topk all": lambda x: sg.topk(x, 8)[1],
    "topk none": lambda x: sg.topk(x, 0)[0],
    "amax": lambda x: sg.amax(x),
    "amax rows": lambda x: sg.amax(x, (2, -1), keepdims=True),
    "amin": lambda x: sg.amin(x, 1),
    "amin planes": lambda x: sg.amin(x, [2, 3], keepdims=True),
    "amin of no axes": lambda x: sg.amin(x, ()),
    "roll": lambda x: sg.roll(x, 3, axis=-1),
    "roll back": lambda x: sg.roll(x, -9, axis=1),
    "roll around": lambda x: sg.roll(x, 8, axis=3),
    "pad reflect": lambda x: sg.pad(x, ((1, 2), (0, 3)), mode="reflect"),
    "pad reflect one axis": lambda x: sg.pad(x, ((2, 1),), mode="reflect"),
    "pad reflect again": lambda x: sg.pad(x, ((7, 6), (0, 3)), mode="reflect"),
    "pad edge": lambda x: sg.pad(x, ((0, 0), (2, 1), (1, 0), (0, 9)), mode="edge"),
    "pad wrap": lambda x: sg.pad(x, ((6, 1), (0, 8)), mode="wrap"),
    "pad wrap twice": lambda x: sg.pad(x, ((7, 1), (0, 8)), mode="wrap"),
    "upsample 3": lambda x: sg.upsample_nearest(x, (3, 5)),
}
ORDERLESS = ("argmax", "argmin", "topk index", "topk all")  # of several NaNs, which comes first is open


def bits(y: Any) -> np.ndarray:
    """Numbers told apart to the sign of zero; one NaN is as good as another."""
    a = np.asarray(y.detach() if isinstance(y, torch.Tensor) else y)
    if a.dtype.kind != "f":
        return a
    return np.stack([np.nan_to_num(a, nan=1e30, posinf=2e30, neginf=-2e30), np.signbit(a) & ~np.isnan(a)])


def given(numbers: np.ndarray, dtype: Any, kept: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype).contiguous(memory_format=kept)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CALLS)
def test_values_of_the_specification(name: str, dtype: Any, kept: Any) -> None:
    for numbers in (FINITE, APART, ODD):
        if numbers is ODD and name.startswith(ORDERLESS):
            continue
        x = given(numbers, dtype, kept)
        want = CALLS[name](x.numpy())
        got = CALLS[name](x)
        assert tuple(got.shape) == want.shape
        if name.startswith("am"):  # [P1] +0 and -0 tie
            want, got = want + 0.0, got + 0.0
        assert np.array_equal(bits(got), bits(want)), name


@pytest.mark.parametrize("kept", KEPT)
def test_a_nan_is_the_largest_and_the_first_to_be_found(kept: Any) -> None:
    x = given(np.where(np.isinf(ODD), 3.0, ODD), torch.float32, kept)
    has = x.isnan().any(-1)
    assert bool(has.any())
    for f in (sg.argmax, sg.argmin):
        assert torch.equal(x.gather(-1, f(x, keepdims=True)).isnan().squeeze(-1), has)
    values, i = sg.topk(x, 3)
    assert np.array_equal(bits(values), bits(x.gather(-1, i)))
    assert torch.equal(values[..., 0].isnan(), has)
    assert not sg.topk(x, 1, largest=False)[0].isnan().any()


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("numbers", [FINITE, APART], ids=["ties", "apart"])
@pytest.mark.parametrize("name", [n for n in CALLS if n.startswith(("topk", "am", "roll", "pad", "upsample", "mod n"))])
def test_gradients_of_the_specification(name: str, numbers: np.ndarray, kept: Any) -> None:
    if "index" in name or name in ("topk all", "topk none"):
        return
    x = given(numbers, torch.float64, kept).requires_grad_()
    graph = sg.trace(CALLS[name], numbers)
    y = CALLS[name](x)
    gy = np.random.default_rng(3).integers(-8, 9, y.shape).astype(float)
    (gx,) = torch.autograd.grad(y, x, torch.tensor(gy))
    np.testing.assert_allclose(gx.numpy(), sg.vjp(graph)(numbers, gy)[1], rtol=1e-14, atol=1e-14)


def test_steps_have_no_gradient() -> None:
    x = torch.tensor(FINITE, requires_grad=True)
    assert not sg.sign(x).requires_grad
    assert not sg.quantize(x, 0.5).requires_grad
    assert not torch.autograd.grad(sg.trunc(x).sum(), x)[0].any()
    zero = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    y = sg.quantize(x, 0.5, zero, low=-2, high=3)
    (gz,) = torch.autograd.grad(y.sum(), zero)
    q = np.round(FINITE / 0.5) + 1
    assert float(gz) == ((q >= -2) & (q <= 3)).sum()


def test_mod_in_its_divisor() -> None:
    a, b = np.array([5.5, -5.5, 6.0, -6.0, 5.5]), np.array([2.0, 2.0, 2.0, 2.0, -2.0])
    x, y = (torch.tensor(v, requires_grad=True) for v in (a, b))
    gx, gy = torch.autograd.grad(sg.mod(x, y).sum(), (x, y))
    assert gx.tolist() == [1.0] * 5
    assert gy.tolist() == (-np.floor(a / b)).tolist()


def test_many_remainders() -> None:
    a, b = (RNG.normal(size=100_000).astype(np.float32) * 10.0 ** RNG.integers(-3, 4, 100_000) for _ in range(2))
    a, b = a.astype(np.float32), b.astype(np.float32)
    assert np.array_equal(bits(sg.mod(torch.tensor(a), torch.tensor(b))), bits(sg.mod(a, b)))


@pytest.mark.parametrize("kept", KEPT)
def test_positions(kept: Any) -> None:
    x, i = given(ODD, torch.float64, kept), RNG.integers(0, 6, (2, 3, 4, 8))
    assert np.array_equal(bits(sg.take_along(x, torch.tensor(i), axis=2)), bits(sg.take_along(ODD, i, axis=2)))
    for at in ([2, 0, 2], [-1, 0, 1], [-3]):
        j = np.array(at)
        assert np.array_equal(bits(sg.gather(x, torch.tensor(j), axis=1)), bits(sg.gather(ODD, j, axis=1)))
    with pytest.raises((sg.SpecgradError, RuntimeError, IndexError)):
        sg.gather(x, torch.tensor([3]), axis=1)
    for wrong in (
        torch.full((2, 3, 1, 8), 6),
        torch.full((2, 3, 1, 8), -1),
        torch.zeros(1, 3, 2, 8, dtype=torch.int64),
    ):
        with pytest.raises((sg.SpecgradError, RuntimeError)):
            sg.take_along(x, wrong, axis=2)


# --- unpooling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 0)])
@pytest.mark.parametrize("numbers", [FINITE, APART, np.maximum(FINITE, 0)], ids=["ties", "apart", "zeros"])
def test_max_unpool(numbers: np.ndarray, window: tuple[int, int, int], kept: Any) -> None:
    """Windows that overlap name positions twice: the last value stays, and the others have no gradient."""
    k, s, p = window
    y, i = sg.max_pool(numbers, (k, k), stride=s, padding=p, return_indices=True)
    unpool: Call = lambda v, at: sg.max_unpool(v, at, (k, k), stride=s, padding=p, output=(6, 8))
    v = given(y, torch.float64, kept).requires_grad_()
    back = unpool(v, torch.tensor(i))
    assert np.array_equal(back.detach(), unpool(y, i))  # the specification adds to 0, so a -0 becomes 0 there
    gy = np.random.default_rng(5).integers(-8, 9, back.shape).astype(float)
    (gv,) = torch.autograd.grad(back, v, torch.tensor(gy))
    assert np.array_equal(gv, sg.vjp(sg.trace(unpool, y, i), "v")(y, i, gy)[1])


@pytest.mark.parametrize("rank", [1, 3])
def test_max_unpool_of_other_ranks(rank: int) -> None:
    x = RNG.normal(size=(2, 3, *(4,) * rank)).astype(np.float32)
    y, i = sg.max_pool(x, (2,) * rank, return_indices=True)
    assert np.array_equal(
        sg.max_unpool(torch.tensor(y), torch.tensor(i), (2,) * rank), sg.max_unpool(y, i, (2,) * rank)
    )


def test_max_unpool_with_empty_windows_and_wrong_positions() -> None:
    y, i = torch.tensor([[[5.0, 7.0]]]), torch.tensor([[[2, -1]]])
    assert sg.max_unpool(y, i, (2,)).tolist() == [[[0.0, 0.0, 5.0, 0.0]]]
    with pytest.raises(sg.ShapeError, match="indices must lie in"):
        sg.max_unpool(y, torch.tensor([[[2, 4]]]), (2,))


SHORT = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", SHORT)
def test_half_types_are_moved_and_added_up_exactly(dtype: Any, kept: Any) -> None:
    """Small whole numbers: every sum of them is exact, so the specification's values are the only right ones."""
    numbers = RNG.integers(-8, 9, SHAPE).astype(float)
    x = given(numbers, dtype, kept).requires_grad_()
    i = np.broadcast_to(np.arange(192).reshape(12, 16)[1::2, 1::2], SHAPE).copy()
    twice = i.copy()
    twice[0, 0, 0, 0] = twice[0, 0, 0, 1]
    calls: list[tuple[Call, np.ndarray]] = [
        (lambda v, at: sg.max_unpool(v, at, (2, 2)), i),
        (lambda v, at: sg.max_unpool(v, at, (2, 2)), twice),
        (lambda v, at: sg.put(v, at, size=(12, 16), empty=False), twice),
        (lambda v, at: sg.scatter(v, at, axis=1, size=4), np.array([3, 0, 3])),
        (lambda v, at: sg.scatter(v, at, axis=1, size=4), np.array([-1, 0, 1])),
    ]
    for call, at in calls:
        want = call(numbers, at)
        y = call(x, torch.tensor(at))
        assert np.array_equal(y.detach().float().numpy(), want)
        gy = np.random.default_rng(3).integers(-8, 9, want.shape).astype(float)
        (gx,) = torch.autograd.grad(y, x, torch.tensor(gy, dtype=dtype))
        assert np.array_equal(gx.float().numpy(), sg.vjp(sg.trace(partial(call, at=at), numbers))(numbers, gy)[1])
        assert np.array_equal(call(x.detach(), torch.tensor(at)).float().numpy(), want)


@pytest.mark.parametrize("rank", [1, 2])
def test_wrong_positions_are_refused(rank: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for taped in (False, True):
            x = torch.ones(2, 3, 4, dtype=dtype, requires_grad=taped)
            for wrong in (-1, 12**rank):
                at = torch.full((2, 3, 4), wrong)
                with pytest.raises(sg.ShapeError, match="indices must lie in"):
                    sg.put(x, at, size=(12,) * rank, empty=False)


def test_a_root_has_the_slope_of_the_specification() -> None:
    """At 0 it is 0 ([K1]); above it PyTorch's own runs."""
    for low in (0.0, 0.25):
        x = np.array([[low, low, 1.0, 3.0, 4.0, 4.0]])
        t = torch.tensor(x, requires_grad=True)
        (gx,) = torch.autograd.grad(sg.lp_pool(t, (2,)).sum(), t)
        pooled = lambda v: sg.lp_pool(v, (2,))
        np.testing.assert_allclose(gx.numpy(), sg.vjp(sg.trace(pooled, x))(x, np.ones((1, 3)))[1], rtol=1e-14)


# --- between cells -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("sizes", [(12, 16), (24, 4), (3, 8), (9, 16), (6, 32)])
@pytest.mark.parametrize("dtype", TYPES)
def test_bilinear(sizes: tuple[int, int], dtype: Any, kept: Any) -> None:
    call: Call = lambda v: sg.resize(v, sizes, axes=(2, 3))
    tight = 1e-6 if dtype == torch.float32 else 1e-14
    x = given(FINITE, dtype, kept).requires_grad_()
    y = call(x)
    np.testing.assert_allclose(y.detach().numpy(), call(FINITE), rtol=tight, atol=tight)
    gy = np.random.default_rng(3).integers(-8, 9, y.shape).astype(float)
    (gx,) = torch.autograd.grad(y, x, torch.tensor(gy, dtype=dtype))
    wanted = sg.vjp(sg.trace(call, FINITE))(FINITE, gy)[1]
    np.testing.assert_allclose(gx.numpy(), wanted, rtol=10 * tight, atol=100 * tight)
    odd = given(ODD, dtype, kept)
    np.testing.assert_allclose(call(odd).numpy(), call(odd.numpy()), rtol=tight, atol=tight)


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", SHORT)
def test_bilinear_of_half_types_is_rounded_once(dtype: Any, kept: Any) -> None:
    call: Call = lambda v: sg.resize(v, (12, 4), axes=(2, 3))
    unit = torch.finfo(dtype).eps / 2
    x = given(RNG.normal(size=SHAPE), dtype, kept).requires_grad_()
    numbers = x.detach().double().numpy()
    y = call(x)
    assert (np.abs(y.detach().double().numpy() - call(numbers)) <= 1.01 * unit * call(np.abs(numbers))).all()
    gy = torch.tensor(RNG.normal(size=y.shape), dtype=dtype)
    (gx,) = torch.autograd.grad(y, x, gy)
    back: Call = lambda g: sg.vjp(sg.trace(call, numbers))(numbers, g)[1]
    wanted, size = back(gy.double().numpy()), back(gy.double().abs().numpy())
    assert (np.abs(gx.double().numpy() - wanted) <= 1.01 * unit * size).all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(x).dtype == dtype


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("dtype", [*TYPES, *SHORT])
def test_bilinear_of_infinities_at_the_ends_and_inside(dtype: Any, kept: Any) -> None:
    for at in [(0, 0), (2, 3), (5, 3), (2, 7), (5, 7)]:
        for odd in (np.inf, -np.inf, np.nan):
            numbers = np.ones(SHAPE)
            numbers[(0, 1, *at)] = odd
            want = sg.resize(numbers, (12, 16), axes=(2, 3))
            got = sg.resize(given(numbers, dtype, kept), (12, 16), axes=(2, 3)).double().numpy()
            assert np.array_equal(got, want, equal_nan=True), (at, odd)


def test_a_given_step_is_kept() -> None:
    """4 cells from 3 with a step of 1/2 are not 4 cells from 2."""
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    call: Call = lambda v: sg.resize(v, (8, 8), scales=(2, 4), axes=(2, 3))
    np.testing.assert_allclose(call(torch.tensor(x)).numpy(), call(x), rtol=1e-14)


def test_where_repeating_by_a_float_is_exact() -> None:
    """PyTorch's own index formula, in both types, against integers; and what it says against PyTorch itself."""
    refused = [f for f in range(2, 200) if not native_functions.nearest_is_exact(64, f)]
    assert refused, "no factor is refused: the check sees nothing"
    for f in (3, 5, 6, 7, 10, 12, *refused[:8]):
        p = torch.arange(64.0)
        for x in (p, p.double()):
            wide = x.view(1, 1, 64, 1).expand(1, 4, 64, 2)
            for kept in KEPT:
                t = wide.contiguous(memory_format=kept)
                same = torch.equal(F.interpolate(t, (64 * f, 2)), t.repeat_interleave(f, 2))
                assert same or not native_functions.nearest_is_exact(64, f)
                assert torch.equal(sg.upsample_nearest(t, (f, 1)), t.repeat_interleave(f, 2))


# --- the checks see --------------------------------------------------------------------------------------------------


def test_positions_that_come_twice_at_every_size_of_the_count() -> None:
    """Few marks are counted as they are, many eight in a word: both see one that comes twice, and one outside."""
    for planes in (1, native_functions.MAX_MARKS_COUNTED // 64 + 1):
        where = torch.arange(64).repeat(planes, 1)
        assert native_functions._all_distinct(where, 64)
        for wrong in (62, 64, -1):
            other = where.clone()
            other[-1, -1] = wrong
            assert not native_functions._all_distinct(other, 64)


def test_without_the_look_at_equal_cells_topk_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1, 1, 64, 64)
    want = sg.topk(x.numpy(), 3)[1]
    assert np.array_equal(sg.topk(x, 3)[1], want)
    blind: Call = lambda t, axis, k, largest: torch.topk(t, k, axis, largest).indices
    monkeypatch.setattr(topk, "_by_topk_if_distinct", blind)
    assert not np.array_equal(sg.topk(x, 3)[1], want)


def test_without_the_count_of_winners_a_tie_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pooled: Call = lambda x: torch.autograd.grad(sg.global_max_pool(x, rank=1).sum(), x)[0].tolist()
    x = torch.tensor([[1.0, 3.0, 3.0], [5.0, 4.0, 0.0]], requires_grad=True)
    assert pooled(x) == [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    monkeypatch.setattr(reductions, "_has_no_ties", lambda *_: True)
    assert pooled(x) == [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]


def test_without_the_count_of_positions_unpooling_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    y, i = torch.tensor([[[5.0, 7.0]]], requires_grad=True), torch.tensor([[[2, 2]]])
    unpool: Call = lambda: torch.autograd.grad(sg.max_unpool(y, i, (2,)).sum(), y)[0].tolist()
    assert unpool() == [[[0.0, 1.0]]]
    monkeypatch.setattr(native_functions, "_all_distinct", lambda *_: True)
    assert unpool() == [[[1.0, 1.0]]]


def test_who_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native operator is reached, so the tests above are about it."""
    seen: list[str] = []
    native = F.interpolate

    def watched(x: torch.Tensor, size: Any, mode: str) -> torch.Tensor:
        seen.append(mode)
        return native(x, size, mode=mode)

    monkeypatch.setattr(F, "interpolate", watched)
    sg.resize(torch.ones(1, 1, 4, 4), (8, 8))
    sg.resize(torch.ones(1, 1, 4, 4), (7, 8))
    sg.upsample_nearest(torch.ones(1, 1, 4, 4), (3, 3))
    assert seen == ["bilinear", "nearest"]
    assert composites.COMPOSITES["trunc"](torch.ones(1)) is torch.trunc


def test_no_cell_is_read_more_often_than_padding_counts() -> None:
    for n, lo, hi, mode in itertools.product(range(1, 6), range(6), range(6), ("edge", "reflect", "wrap")):
        if max(lo, hi) <= {"edge": 6, "reflect": n - 1, "wrap": n}[mode]:
            read = sg.pad(np.arange(float(n)), ((lo, hi),), mode=mode).astype(int)
            assert np.bincount(read).max() <= native_functions._max_readers(n, lo, hi, mode)
