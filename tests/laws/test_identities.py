"""Laws 5 and 6, exact, through public calls: how operators relate to each other, and that leading axes are mapped."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

import specgrad as sg
from slices import slices
from specgrad.ops import sample_inputs
from specgrad.window import Strided

FEW, CASES = 50, 200  # by default, and with -m slow
EACH = pytest.mark.parametrize("seeds", slices(FEW, CASES))


def random_call(rng: Random) -> tuple[np.ndarray, dict]:
    """An input and public keyword arguments of a random strided window."""
    win = sample_inputs.window(rng)
    axes = [a for a in win.axes if isinstance(a, Strided)]
    options = {
        "kernel": win.kernel,
        "stride": tuple(a.stride for a in axes),
        "padding": tuple((a.lo, a.hi) for a in axes),
        "dilation": tuple(a.dilation for a in axes),
    }
    return sample_inputs.numbers(rng, (rng.randint(1, 3), *win.size)), options


@EACH
def test_avg_pool_is_a_depthwise_conv_with_a_constant_kernel(seeds: Iterable[int]) -> None:
    for seed in seeds:
        x, options = random_call(Random(seed))
        del options["dilation"]
        kernel = options.pop("kernel")
        try:
            pooled = sg.avg_pool(x, kernel, **options)
        except sg.ShapeError:
            continue
        count = int(np.prod(kernel))
        w = np.full((x.shape[0], 1, *kernel), Fraction(1, count), dtype=object)
        assert (pooled == sg.conv(w, None, x, groups=x.shape[0], **options)).all()


@EACH
def test_conv_transpose_is_the_adjoint_of_conv(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rng = Random(seed)
        x, options = random_call(rng)
        kernel = options.pop("kernel")
        w = sample_inputs.numbers(rng, (2, x.shape[0], *kernel))
        y = sg.conv(w, None, x, **options)
        g = sample_inputs.like(rng, y)
        rest = tuple(
            (n + lo + hi - e * (k - 1) - 1) % s
            for n, k, s, e, (lo, hi) in zip(
                x.shape[1:], kernel, options["stride"], options["dilation"], options["padding"], strict=True
            )
        )
        back = sg.conv_transpose(w, None, g, output_padding=rest, **options)
        assert back.shape == x.shape
        assert (y * g).sum() == (back * x).sum()


@EACH
def test_global_is_adaptive_with_one_cell_is_one_window(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rng = Random(seed)
        rank = rng.randint(1, 4)
        x = sample_inputs.numbers(rng, (2, *sample_inputs.sizes(rng, rank)))
        ones = (1,) * rank
        assert (sg.global_avg_pool(x, rank=rank) == sg.adaptive_avg_pool(x, ones)).all()
        assert (sg.global_avg_pool(x, rank=rank) == sg.avg_pool(x, x.shape[1:])).all()
        for ties in ("all", "split", "first"):
            assert (sg.global_max_pool(x, rank=rank, ties=ties) == sg.adaptive_max_pool(x, ones)).all()
            flat = sg.global_max_pool(x, rank=rank, ties=ties, keepdims=False)
            assert flat.shape == (2,)
            assert (flat == sg.max_pool(x, x.shape[1:]).reshape(2)).all()


@EACH
def test_adaptive_is_strided_where_sizes_divide(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rng = Random(seed)
        rank = rng.randint(1, 3)
        out = tuple(rng.randint(1, 3) for _ in range(rank))
        kernel = tuple(rng.randint(1, 3) for _ in range(rank))
        x = sample_inputs.numbers(rng, tuple(m * k for m, k in zip(out, kernel, strict=True)))
        assert (sg.adaptive_avg_pool(x, out) == sg.avg_pool(x, kernel)).all()
        assert (sg.adaptive_max_pool(x, out) == sg.max_pool(x, kernel)).all()


MAPPED = {
    "max_pool": lambda x, o: sg.max_pool(x, **o),
    "avg_pool": lambda x, o: sg.avg_pool(x, **{k: v for k, v in o.items() if k != "dilation"}),
    "adaptive_max_pool": lambda x, o: sg.adaptive_max_pool(x, o["kernel"]),
    "adaptive_avg_pool": lambda x, o: sg.adaptive_avg_pool(x, o["kernel"]),
    "global_max_pool": lambda x, o: sg.global_max_pool(x, rank=len(o["kernel"])),
    "unpad": lambda x, o: sg.unpad(sg.pad(x, o["padding"]), o["padding"]),
}


@pytest.mark.parametrize("name", list(MAPPED))
@EACH
def test_a_batch_is_its_samples_one_by_one(name: str, seeds: Iterable[int]) -> None:
    f = MAPPED[name]
    for seed in seeds:
        rng = Random(seed)
        _, options = random_call(rng)
        x = sample_inputs.numbers(rng, (2, 3, *sample_inputs.sizes(rng, len(options["kernel"]), low=2)))
        try:
            whole = f(x, options)
        except sg.ShapeError:
            continue
        assert (whole == np.stack([np.stack([f(p, options) for p in s]) for s in x])).all()


@EACH
def test_a_batch_of_conv_is_its_samples_one_by_one(seeds: Iterable[int]) -> None:
    for seed in seeds:
        rng = Random(seed)
        x, options = random_call(rng)
        kernel = options.pop("kernel")
        w, b = sample_inputs.numbers(rng, (2, x.shape[0], *kernel)), sample_inputs.numbers(rng, (2,))
        batch = np.stack([x, sample_inputs.like(rng, x)])[None]
        whole = sg.conv(w, b, batch, **options)
        assert whole.shape[:3] == (1, 2, 2)
        for i in range(2):
            assert (whole[0, i] == sg.conv(w, b, batch[0, i], **options)).all()


def test_empty_batch() -> None:
    """[P4] An empty batch gives an empty result; an empty spatial axis is an error ([W1])."""
    assert sg.max_pool(np.zeros((0, 4, 4)), (2, 2)).shape == (0, 2, 2)
    assert sg.conv(np.ones((5, 3, 2)), None, np.zeros((0, 3, 4))).shape == (0, 5, 3)
    for call in (
        lambda: sg.max_pool(np.zeros((2, 0)), (1,)),
        lambda: sg.global_avg_pool(np.zeros((2, 0)), rank=1),
        lambda: sg.global_max_pool(np.zeros((2, 0)), rank=1),
        lambda: sg.adaptive_avg_pool(np.zeros((2, 0)), (1,)),
    ):
        with pytest.raises(sg.ShapeError, match=r"\[W1\]"):
            call()


def test_nan_and_infinities() -> None:
    """[P1] NaN wins wherever it stands; [P2] -inf is an ordinary value, its first tap the winner; +0 and -0 tie."""
    nan, inf = np.nan, np.inf
    for x in ([nan, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, nan], [1.0, nan, nan, -inf]):
        y, i = sg.max_pool(np.array(x), (4,), return_indices=True)
        assert np.isnan(y).all()
        assert np.isnan(np.array(x)[i]).all()
        assert np.isnan(sg.global_max_pool(np.array(x), rank=1)).all()
    y, i = sg.max_pool(np.array([-inf, -inf]), (2,), padding=((1, 0),), stride=1, return_indices=True)
    assert (y.tolist(), i.tolist()) == ([-inf, -inf], [0, 0])
    assert sg.max_pool(np.array([-0.0, 0.0]), (2,), return_indices=True)[1].tolist() == [0]
    grad = sg.vjp(sg.trace(lambda x: sg.global_max_pool(x, rank=1), (3,)))(np.array([1.0, nan, nan]), np.array([5.0]))[
        1
    ]
    assert grad.tolist() == [0.0, 5.0, 5.0]


def test_infinite_weight_meets_no_padding() -> None:
    w = np.array([[[np.inf, 1.0]]])
    assert sg.conv(w, None, np.array([[1.0, 2.0]]), padding=((1, 0),)).tolist() == [[1.0, np.inf]]
