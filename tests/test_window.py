"""The window relation against a brute-force reading of its definition."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import specgrad as sg
from pace import slower, stretched
from specgrad.op import REGISTRY
from specgrad.window import Adaptive, Strided, Window, adaptive, strided, transposed

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

AXIS = st.builds(
    lambda n, k, s, e, lo, hi: (n, k, s, e, lo, hi + max(0, e * (k - 1) + 1 - n - lo)),
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 6), st.integers(0, 6),
)  # fmt: skip


def pytorch_out(n: int, k: int, s: int, e: int, lo: int, hi: int, ceil: bool) -> int:
    """PyTorch's pooling_output_shape, transcribed from its rule in words ([W3])."""
    cells = n + lo + hi - e * (k - 1) - 1
    out = math.floor(cells / s) + 1 if not ceil else math.ceil(cells / s) + 1
    return out - 1 if ceil and (out - 1) * s >= n + lo else out


@given(AXIS, st.booleans())
def test_output_size(axis: tuple[int, ...], ceil: bool) -> None:
    n, k, s, e, lo, hi = axis
    win = strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil)
    assert win.out == (pytorch_out(n, k, s, e, lo, hi, ceil),)


@given(AXIS, st.booleans())
def test_taps_are_the_relation(axis: tuple[int, ...], ceil: bool) -> None:
    """Every triple (o, t, i) with i = s*o + e*t - lo inside [0, n), each once, and no other."""
    n, k, s, e, lo, hi = axis
    win = strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil)
    found = [
        (o, tap.position[0], i)
        for tap in win.taps()
        for o, i in zip(tap.read_outputs(np.arange(win.out[0])), tap.read_inputs(np.arange(n)), strict=True)
    ]
    inside = [(o, t, s * o + e * t - lo) for t in range(k) for o in range(win.out[0]) if 0 <= s * o + e * t - lo < n]
    assert found == inside


@given(AXIS, st.booleans())
def test_counts(axis: tuple[int, ...], ceil: bool) -> None:
    n, k, s, e, lo, hi = axis
    win = strided("test", (n,), (k,), stride=s, padding=((lo, hi),), dilation=e, ceil=ceil)
    reads = [[s * o + e * t - lo for t in range(k)] for o in range(win.out[0])]
    assert list(win.inside()) == [sum(0 <= i < n for i in row) for row in reads]
    assert list(win.counted()) == [sum(-lo <= i < n + hi for i in row) for row in reads]
    assert win.overlap >= max(sum(i in row for row in reads) for i in range(n))


@given(st.lists(AXIS, min_size=2, max_size=3))
def test_product_of_axes_in_row_major_order(axes: list[tuple[int, ...]]) -> None:
    parts = [strided("test", (a[0],), (a[1],), stride=a[2], padding=((a[4], a[5]),), dilation=a[3]) for a in axes]
    win = Window(tuple(p.axes[0] for p in parts))
    positions = [tap.position for tap in win.taps()]
    assert positions == sorted(positions)
    expected = [tuple(t.position[0] for t in combo) for combo in itertools.product(*(p.taps() for p in parts))]
    assert positions == expected


@given(st.integers(1, 12), st.integers(1, 14))
def test_adaptive_cells(n: int, out: int) -> None:
    axis = adaptive("test", (n,), (out,)).axes[0]
    for o in range(out):
        cell = list(range(o * n // out, math.ceil((o + 1) * n / out)))
        taps = [(np.arange(out)[q].tolist(), np.arange(n)[i].tolist()) for q, i in map(axis.tap, range(axis.kernel))]
        read = [ins[outs.index(o)] for outs, ins in taps if o in outs]
        assert read == cell
    assert isinstance(axis, Strided) == (n % out == 0)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_same_padding(n: int, k: int, s: int, e: int, upper: bool) -> None:
    win = strided("test", (n,), (k,), stride=s, padding="same_upper" if upper else "same_lower", dilation=e)
    axis = win.axes[0]
    assert isinstance(axis, Strided)
    assert axis.out == math.ceil(n / s)
    assert axis.lo + axis.hi == max(0, (axis.out - 1) * s + e * (k - 1) + 1 - n)
    assert (axis.hi - axis.lo if upper else axis.lo - axis.hi) in (0, 1)


def test_sizes_never_overflow() -> None:
    """10**10 cells an axis: integers are Python's."""
    win = strided("test", (10**10, 10**12), (3, 10**12), stride=(2, 10**9), padding=(1, 0))
    assert win.out == (5 * 10**9, 1)
    assert win.size == (10**10, 10**12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: strided("max_pool", (4, 9, 5), (3, 7)),
         "max_pool [W2]: window of 7 cells does not fit 5 + 0 + 0 input cells on axis 1; "
         "got kernel=(3, 7), input shape (4, 9, 5)"),
        (lambda: strided("conv", (3, 8), (0,)),
         "conv [W1]: kernel must be at least 1; got kernel=(0,), input shape (3, 8)"),
        (lambda: strided("conv", (3, 8), (2,), stride=0),
         "conv [W1]: stride must be at least 1; got stride=(0,), input shape (3, 8)"),
        (lambda: strided("conv", (3, 8), (2,), dilation=0),
         "conv [W1]: dilation must be at least 1; got dilation=(0,), input shape (3, 8)"),
        (lambda: strided("conv", (3, 8), (2,), padding=-1),
         "conv [W1]: padding must not be negative; got padding=((-1, -1),), input shape (3, 8)"),
        (lambda: strided("max_pool", (3, 0), (2,), padding=4),
         "max_pool [W1]: spatial axis 0 is empty; got input shape (3, 0)"),
        (lambda: strided("max_pool", (2,), (1, 1)),
         "max_pool [W1]: kernel=(1, 1) needs 2 spatial axes; got input shape (2,)"),
        (lambda: strided("conv", (3, 8), (2,), padding="full"),
         "conv [P5]: padding must be \"valid\", \"same_upper\" or \"same_lower\"; got 'full'"),
        (lambda: strided("conv", (3, 8, 8), (2, 2), stride=(1, 1, 1)),
         "conv: stride=(1, 1, 1) has 3 entries for 2 spatial axes"),
        (lambda: strided("conv", (3, 8), (2,), stride=1.5),
         "conv [P5]: stride must be an int or one int per axis; got 1.5"),
        (lambda: sg.max_pool(np.zeros((4, 4)), 2),
         "max_pool [P5]: an int kernel needs rank=; got kernel=2"),
        (lambda: transposed("conv_transpose", (1,), (1,), stride=1, padding=1, output_padding=0, dilation=1),
         "conv_transpose [C2]: output size would be -1; "
         "got kernel=(1,), stride=(1,), padding=((1, 1),), input sizes (1,)"),
        (lambda: transposed("conv_transpose", (4,), (3,), stride=2, padding=0, output_padding=2, dilation=1),
         "conv_transpose [C2]: output_padding must be below max(stride, dilation); "
         "got output_padding=(2,), stride=(2,), dilation=(1,)"),
        (lambda: adaptive("adaptive_avg_pool", (3, 8), (0,)),
         "adaptive_avg_pool [W1]: sizes must be positive; got output=(0,), input shape (3, 8)"),
    ],
)  # fmt: skip
def test_error_wording(call, message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call()
    assert str(caught.value) == message


def test_axes_check_themselves() -> None:
    """A Window read from a file is as sound as one built by a call."""
    with pytest.raises(sg.ShapeError, match=r"\[W1\]"):
        Strided(size=4, kernel=0, stride=1, dilation=1, lo=0, hi=0, out=1)
    with pytest.raises(sg.ShapeError, match=r"\[W2\]"):
        Strided(size=4, kernel=2, stride=1, dilation=1, lo=0, hi=0, out=5)
    with pytest.raises(sg.ShapeError, match=r"\[W1\]"):
        Adaptive(size=0, out=2)


def test_ceil_lets_the_last_window_hang_over() -> None:
    assert sg.max_pool(np.array([1.0, 2.0]), (3,), stride=2, ceil=True).tolist() == [2.0]
    with pytest.raises(sg.ShapeError, match=r"\[W2\]"):
        sg.max_pool(np.array([1.0, 2.0]), (4,), stride=2, ceil=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sg.max_pool(np.ones((1, 1, 4)), (10**8,), padding=((10**8, 0),)),
        lambda: sg.smooth_max_pool(np.ones((1, 1, 4)), (10**4, 10**4), padding=((10**4, 0), (10**4, 0)), beta=1),
        lambda: sg.max_pool(torch.ones(1, 1, 4), (10**8,), padding=((10**8, 0),)),
        lambda: sg.avg_pool(torch.ones(1, 1, 4), (10**8,), padding=((10**8, 0),), divisor=3),
        lambda: next(iter(Window((Adaptive(3 * 10**8 + 1, 3),)).taps())),
    ],
)
def test_windows_of_many_taps_are_refused_before_they_are_walked(call) -> None:
    sg.relu(torch.zeros(1))  # load the engine
    pace, start = slower(), time.process_time()
    with pytest.raises(sg.ShapeError, match=r"window \[W1\]: 100,000,00\d taps; at most 10,000,000 are walked"):
        call()
    assert time.process_time() - start < stretched(1, pace)


@pytest.mark.parametrize("size", range(1, 9))
def test_what_needs_no_walk_is_what_a_walk_finds(size: int) -> None:
    """Empty windows, the longest adaptive cell and who reads a cell, against lists of all reads."""
    axes = [Adaptive(size, out) for out in range(1, 13)]
    for k, s, e, lo, hi in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 5, 9), (0, 1, 4, 9), (0, 3, 9)):
        if e * (k - 1) < size + lo + hi:
            axes.append(Strided(size, k, s, e, lo, hi, (size + lo + hi - e * (k - 1) - 1) // s + 1))
    for axis in axes:
        reads = [[(t, i) for t, i in axis.reads(o) if 0 <= i < size] for o in range(axis.out)]
        assert [axis.inside(o) for o in range(axis.out)] == list(map(len, reads))
        assert axis.has_empty == ([] in reads)
        assert axis.kernel >= max(map(len, reads))
        for i in range(size):
            found = sorted((t, o) for o, row in enumerate(reads) for t, j in row if j == i)
            assert sorted(axis.read_by(i)) == found
            assert len(found) <= axis.most_readers
        if isinstance(axis, Adaptive):
            assert axis.kernel == max(map(len, reads))


def huge() -> list:
    """A graph per windowed operator, with 10^9 outputs along an axis, made from shapes alone."""
    n = 10**9
    cells = Adaptive(n + 1, n)
    return [
        sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, n)),
        sg.trace(lambda x: sg.avg_pool(x, (3,), stride=1, padding=1), (1, n)),
        sg.trace(lambda x: sg.smooth_max_pool(x, (2,), beta=1), (1, n)),
        sg.trace(lambda x: sg.apply(REGISTRY["max_pool"], x, window=Window((cells,))), (1, n + 1)),
        sg.trace(lambda w, x: sg.conv_transpose(w, None, x), (1, 1, 3), (1, n)),
    ]


def test_sizes_of_a_billion_cost_nothing_until_there_are_cells() -> None:
    """Show, differentiate, explain one cell: no list of all outputs, and no walk over them."""
    from specgrad.graph.explain import explain

    pace, began = slower(), time.process_time()
    for graph in huge():
        assert str(graph)
        assert str(sg.vjp(graph))
        assert str(sg.jvp(graph))
        for derived in (graph, sg.vjp(graph)):
            for layer in {n.group: n for n in derived.nodes}.values():  # a layer is its last node
                assert explain(derived, tuple(n - 1 for n in layer.shape), layer.group).shape == layer.shape
    assert time.process_time() - began < stretched(5, pace)
    window = huge()[1].nodes[1].params["window"]
    with pytest.raises(sg.ShapeError, match=r"window \[W1\]: 1,000,000,000 outputs; at most 100,000,000"):
        window.inside()
    with pytest.raises(sg.ShapeError, match=r"window \[W1\]: 50,000,000 outputs along an axis; at most 10,000,000"):
        Window((Strided(5 * 10**7, 1, 1, 1, 0, 0, 5 * 10**7),)).counted()


def test_a_gradient_is_explained_by_the_windows_that_read_the_cell() -> None:
    """Cell 1 of 4 stands in the windows [0, 1] and [1, 2] of size 2: taps 1 and 0. A weight reads every output."""
    from specgrad.graph.explain import explain

    back = sg.vjp(sg.trace(lambda x: sg.avg_pool(x, (2,), stride=1), (4,)))
    name = back.nodes[back.output_positions[-1]].name
    assert explain(back, (1,), name).reads == (((0,), (1,)), ((1,), (0,)))
    weight = sg.vjp(sg.trace(lambda w, x: sg.conv(w, None, x), (1, 1, 2), (1, 4)), "w")
    name = weight.nodes[weight.output_positions[-1]].name
    assert explain(weight, (0, 0, 1), name).reads == ()


@pytest.mark.parametrize("axis", [(2, 3, 1, 1, 0, 0, 1), (1, 3, 2, 1, 0, 0, 1), (2, 4, 3, 2, 1, 1, 1)])
def test_a_window_that_hangs_over_by_more_than_its_stride_is_no_ceil_window(axis: tuple[int, ...]) -> None:
    """`ceil` gives no such output: files and tiles have it, and PyTorch's own pool does not."""
    window = Window((Strided(*axis),))
    assert window.native().padding is None
    x = np.arange(1.0, 1.0 + axis[0]).reshape(1, 1, -1)
    for name, params in (("max_pool", {}), ("avg_pool", {"divisor": "inside"})):
        op = sg.REGISTRY[name]
        found = sg.apply(op, torch.from_numpy(x), window=window, **params)
        assert np.array_equal(found.numpy(), sg.apply(op, x, window=window, **params))
