"""Boxes against a brute-force reading of which cells are read; tests/laws holds every operator to its own."""

from __future__ import annotations

import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import laws
from specgrad.op import REGISTRY
from specgrad.window import Strided, strided
from specgrad.window.axis_maps import GlobalMap, IdentityMap, JoinMap, Padded, Sliced, SplitMap, Transposed, Windowed
from specgrad.window.footprint import lengths, reshaped
from test_window import AXIS

pytestmark = pytest.mark.quick


def intervals(n: int) -> list[tuple[int, int]]:
    return [(o, p) for o in range(n) for p in range(o + 1, n + 1)]


def windows() -> list[Strided]:
    """Every small axis: taps apart, strides over the end, windows in padding alone, the last one under `ceil`."""
    numbers = itertools.product(range(1, 6), range(1, 4), range(1, 5), range(1, 4), range(4), range(4), (False, True))
    axes = [
        strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil).axes[0]
        for n, k, s, e, lo, hi, ceil in numbers
        if e * (k - 1) + 1 <= n + lo + hi
    ]
    return list(dict.fromkeys(axes))


def check_need(one: Strided, o: int, p: int) -> None:
    cells = [i for q in range(o, p) for _, i in one.reads(q) if 0 <= i < one.size]
    first, stop = Windowed(one).part(o, p).need
    if cells and one.dilation == 1:
        assert (first, stop) == (min(cells), max(cells) + 1)
    elif cells:  # a tap beyond the end hides where the last cell inside is
        assert first <= min(cells) <= max(cells) < stop
        assert stop - first <= max(cells) - min(cells) + 2 * one.dilation - 1
    else:
        assert stop - first <= one.span + one.stride


def check_readers(one: Strided, o: int, p: int) -> None:
    readers = [q for i in range(o, p) for _, q in one.read_by(i)]
    first, stop = Transposed(one).part(o, p).need
    assert all(first <= q < stop for q in readers)
    if readers and one.dilation == 1:
        assert (first, stop) in ((min(readers), max(readers) + 1), (min(readers) - 1, max(readers) + 1))


@pytest.mark.parametrize("check", [check_need, check_readers])
def test_windows_need_what_their_taps_read(check) -> None:
    """And backwards who reads them; of every interval of every small axis."""
    for one in windows():
        for o, p in intervals(one.out if check is check_need else one.size):
            check(one, o, p)


@given(AXIS, st.booleans(), st.integers(0, 9), st.integers(0, 9))
def test_larger_windows_need_what_their_taps_read(axis, ceil, low, high) -> None:
    n, k, s, e, lo, hi = axis
    (one,) = strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil).axes
    for check, size in ((check_need, one.out), (check_readers, one.size)):
        first = min(low, size - 1)
        check(one, first, min(first + 1 + high, size))


def test_a_stride_over_the_end_needs_no_cell_behind_the_last_that_is_read() -> None:
    """The second window begins where the padding does; the cell between them is nobody's."""
    (one,) = strided("test", (2,), (1,), stride=2, padding=((0, 1),)).axes
    assert Windowed(one).part(0, 2).need == (0, 1)
    (one,) = strided("test", (5,), (1,), stride=3, padding=((1, 0),)).axes  # the same before the first cell
    assert Windowed(one).part(0, 2).need == (2, 3)


def test_cells_between_zeros_need_themselves() -> None:
    for n, lo, hi, gap in itertools.product(range(1, 4), range(4), range(4), range(4)):
        places = [lo + (gap + 1) * i for i in range(n)]
        for o, p in intervals(places[-1] + 1 + hi):
            cells = [i for i, at in enumerate(places) if o <= at < p]
            need = Padded(n, lo, gap).part(o, p).need
            assert need == (min(cells), max(cells) + 1) if cells else need[1] - need[0] == 1


def test_slices_and_rows_need_themselves() -> None:
    for start, step, count in itertools.product(range(4), range(1, 4), range(1, 5)):
        for o, p in intervals(4):
            cells = [start + step * q for q in range(o, p)]
            assert Sliced(start, step).part(o, p).need == (min(cells), max(cells) + 1)
            assert SplitMap(count).part(o, p).need == (o * count, p * count)
            rows = [q // count for q in range(o, p)]
            assert JoinMap(count).part(o, p).need == (min(rows), max(rows) + 1)


def test_axes_that_a_reshape_keeps_joins_or_cuts() -> None:
    shuffle = reshaped((2, 3, 4, 2, 5, 2), shape=(2, 3, 8, 10))  # (.., h, 2, w, 2) to (.., 2h, 2w)
    assert shuffle.axes == (IdentityMap(), IdentityMap(), JoinMap(2), JoinMap(2))
    assert shuffle.args == ((0, 1, 2, (0, 2), 3, (0, 2)),)
    assert reshaped((2, 6, 1, 4), shape=(2, 3, 2, 4)).axes == (IdentityMap(), SplitMap(2), GlobalMap(2), IdentityMap())
    assert reshaped((4, 9), shape=(6, 6)).axes == (GlobalMap(6), GlobalMap(6))
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
