"""Every way through a convolution against integers, which are exact; float32 against its counted roundings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from specgrad.bounds.linear.relaxation.conv_operator import Convolution
from specgrad.op import apply
from specgrad.ops.conv import CONV, CONV_TRANSPOSE
from specgrad.rounding import slack_constants
from specgrad.window import Window, strided

WAYS = ("points", "matrix", "stripes", "plain", "single")
CASES = [  # sizes, kernel, stride, dilation, padding, outputs, inputs, groups
    ((9,), (3,), 2, 1, 1, 4, 2, 1),
    ((7, 8), (3, 3), 1, 1, 1, 6, 4, 2),
    ((7, 8), (3, 2), 2, 2, 1, 3, 5, 1),
    ((8, 8), (2, 2), 2, 1, 0, 4, 3, 1),
    ((4, 3, 3), (3, 2, 3), 1, 1, 1, 2, 2, 1),
    ((6, 6), (3, 3), 1, 1, 1, 4, 4, 4),
    ((5, 4), (1, 1), 1, 1, 0, 6, 4, 1),
    ((5, 4), (1, 1), 1, 1, 0, 6, 4, 2),
    ((5, 3), (1, 1), 2, 1, 0, 3, 2, 1),
]


def window_of(sizes: Any, kernel: Any, stride: int, dilation: int, padding: int) -> Window:
    rank = len(sizes)
    return strided(
        "conv",
        sizes,
        kernel,
        stride=(stride,) * rank,
        dilation=(dilation,) * rank,
        padding=((padding, padding),) * rank,
    )


def by_reading(w: np.ndarray, window: Window, groups: int, x: np.ndarray) -> np.ndarray:
    """conv, cell by cell from the relation i = s*o + e*t - lo, in Python's integers."""
    rows, outputs, per_group = len(x), w.shape[0], w.shape[1]
    y = np.zeros((rows, outputs, *window.out), dtype=object)
    for o in itertools.product(*map(range, window.out)):
        reads = [axis.reads(k) for axis, k in zip(window.axes, o, strict=True)]
        for taps in itertools.product(*reads):
            t, i = zip(*taps, strict=True)
            if all(0 <= k < n for k, n in zip(i, window.size, strict=True)):
                for c in range(outputs):
                    first = c // (outputs // groups) * per_group
                    for b in range(per_group):
                        y[(slice(None), c, *o)] += w[(c, b, *t)] * x[(slice(None), first + b, *i)]
    return y


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_ways_agree_with_integers(case: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *axes, outputs, inputs, groups = case
    window, rng = window_of(*axes), np.random.default_rng(0)
    w = rng.integers(-9, 10, (outputs, inputs // groups, *window.kernel))
    x, a = rng.integers(-9, 10, (2, inputs, *window.size)), rng.integers(-9, 10, (2, outputs, *window.out))
    convolution = Convolution(torch.tensor(w).double(), window, groups)
    if np.isinf(convolution.seconds(way)):
        pytest.skip("stripes need two axes and one group, points need kernels of one cell")
    monkeypatch.setattr(Convolution, "way", lambda *_: way)
    wanted = by_reading(w.astype(object), window, groups, x.astype(object))
    moved = convolution.forward(torch.tensor(x).double(), True)
    assert (moved.numpy() == wanted.astype(float)).all()
    pulled = convolution.adjoint(torch.tensor(a).double(), True).numpy()
    for cell in range(0, x[0].size, 13):  # <conv(e), a> = <e, adjoint(a)>
        unit = np.zeros((1, x[0].size), dtype=object)
        unit[0, cell] = 1
        column = by_reading(w.astype(object), window, groups, unit.reshape(1, *x[0].shape))[0]
        assert [(column * row).sum() for row in a.astype(object)] == pulled.reshape(2, -1)[:, cell].tolist()


def test_kernels_of_one_cell_that_move_cells_are_no_points() -> None:
    """As many outputs as inputs, each of one tap, and yet not the same cells: i = 2*o - 1."""
    window = strided("conv", (3,), (1,), stride=(2,), padding=((1, 1),))
    assert window.out == window.size == (3,)
    assert np.isinf(Convolution(torch.ones((2, 2, 1)).double(), window, 1).seconds("points"))


@pytest.mark.parametrize("channels", [4, 16, 64])
@pytest.mark.parametrize("kernel", [3, 5])
def test_float32_convolutions_sum_their_products(channels: int, kernel: int) -> None:
    """By Winograd's or Fourier's way a large value would disturb cells that do not read it, and cells that should be 0.

    Every error is also within the counted roundings, sizes spread over many magnitudes.
    """
    window = window_of((32, 32), (kernel, kernel), 1, 1, kernel // 2)
    rng = np.random.default_rng(channels)
    w = torch.tensor(rng.standard_normal((channels, channels, kernel, kernel))).float().double()
    convolution = Convolution(w, window, 1)
    a = torch.zeros((8, channels, 32, 32), dtype=torch.float64)
    a[:, :, 16, 16] = 1e30
    for op in (CONV, CONV_TRANSPOSE):
        y = apply(op, a.float(), w.float(), window=window, groups=1)
        reach = kernel // 2
        y[:, :, 16 - reach : 17 + reach, 16 - reach : 17 + reach] = 0
        assert not y.any()
        spread = torch.tensor(rng.standard_normal(a.shape) * 10.0 ** rng.uniform(-6, 6, a.shape))
        got = apply(op, spread.float(), w.float(), window=window, groups=1).double()
        exact, size = (apply(op, f(spread), f(w), window=window, groups=1) for f in (lambda t: t, torch.abs))
        allowed = (convolution.terms + slack_constants.SINGLE_OWN) * slack_constants.SINGLE * size
        assert ((got - exact).abs() <= allowed).all()
