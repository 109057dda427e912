"""Boxes against a brute-force reading of which cells are read; tests/laws holds every operator to its own."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
from specgrad.op import REGISTRY
from specgrad.window import strided
from specgrad.window.box import lengths, reshaped
from specgrad.window.relation import Cell, Joined, Split, Transposed, Uncut, Windowed
from test_window import AXIS

pytestmark = pytest.mark.quick


def axis_and_interval(axis, ceil, low, high, back):
    n, k, s, e, lo, hi = axis
    (one,) = strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil).axes
    size = one.size if back else one.out
    first = min(low, size - 1)
    return one, first, min(first + 1 + high, size)


@given(AXIS, st.booleans(), st.integers(0, 9), st.integers(0, 9))
def test_windows_need_what_their_taps_read(axis, ceil, low, high) -> None:
    one, o, p = axis_and_interval(axis, ceil, low, high, back=False)
    cells = [i for q in range(o, p) for _, i in one.reads(q) if 0 <= i < one.size]
    need = Windowed(one).part(o, p).need
    if cells and one.dilation == 1:
        assert need == (min(cells), max(cells) + 1)
    elif cells:  # a tap beyond the end hides where the last cell inside is
        assert need[0] <= min(cells) <= max(cells) < need[1]
        assert need[1] - need[0] <= max(cells) - min(cells) + 2 * one.dilation - 1
    else:
        assert need[1] - need[0] <= one.span + one.stride


@given(AXIS, st.booleans(), st.integers(0, 9), st.integers(0, 9))
def test_windows_backwards_need_who_reads_them(axis, ceil, low, high) -> None:
    one, o, p = axis_and_interval(axis, ceil, low, high, back=True)
    readers = [q for i in range(o, p) for _, q in one.read_by(i)]
    first, stop = Transposed(one).part(o, p).need
    assert all(first <= q < stop for q in readers)
    if readers and one.dilation == 1:
        assert (first, stop) in ((min(readers), max(readers) + 1), (min(readers) - 1, max(readers) + 1))


def test_axes_that_a_reshape_keeps_joins_or_cuts() -> None:
    shuffle = reshaped((2, 3, 4, 2, 5, 2), shape=(2, 3, 8, 10))  # (.., h, 2, w, 2) to (.., 2h, 2w)
    assert shuffle.axes == (Cell(), Cell(), Joined(2), Joined(2))
    assert shuffle.args == ((0, 1, 2, (0, 2), 3, (0, 2)),)
    assert reshaped((2, 6, 1, 4), shape=(2, 3, 2, 4)).axes == (Cell(), Split(2), Uncut(2), Cell())
    assert reshaped((4, 9), shape=(6, 6)).axes == (Uncut(6), Uncut(6))
    assert lengths(shuffle.on(((0, 1), (0, 3), (3, 5), (0, 1))).args[0]) == (1, 3, 2, 2, 1, 2)


@pytest.mark.parametrize("seed", range(40))
def test_reshapes_that_join_and_cut(seed: int) -> None:
    rng = Random(seed)
    factors = [rng.choice((1, 2, 2, 3)) for _ in range(rng.randint(2, 5))]

    def grouped():
        cuts = sorted(rng.sample(range(1, len(factors)), rng.randint(0, len(factors) - 1)))
        return tuple(math.prod(factors[a:b]) for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True))

    x = np.arange(math.prod(factors)).astype(object).reshape(grouped())
    laws.check_box(REGISTRY["reshape"], ((x,), {"shape": grouped()}), rng)
