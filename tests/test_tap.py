"""What a tap reads and writes, of every kind of window, against a walk over `Window.reads`, which knows no index."""

from __future__ import annotations

import itertools
from collections import defaultdict
from random import Random

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.ops import sample_inputs
from specgrad.scalar import exact
from specgrad.window import Window, adaptive

pytestmark = pytest.mark.quick

SEEDS = range(60)


def drawn(seed: int) -> tuple[Window, tuple[int, ...]]:
    """A window, every third one with an adaptive axis, and axes before it that are as long as some of its own."""
    rng = Random(seed)
    window = sample_inputs.window(rng, rng.randint(1, 3), ceil=True, any_axis=True)
    if seed % 3 == 0:
        axis = rng.randrange(window.rank)
        (uneven,) = adaptive("test", (5,), (rng.choice((2, 3, 7)),)).axes
        window = Window((*window.axes[:axis], uneven, *window.axes[axis + 1 :]))
    return window, tuple(rng.choice((1, *window.size, *window.out)) for _ in range(rng.randint(0, 2)))


def pairs(window: Window) -> dict:
    """tap -> (output, input), in the order of the outputs."""
    each = defaultdict(list)
    for output in itertools.product(*map(range, window.out)):
        inside = itertools.product(*(axis.reads(o) for axis, o in zip(window.axes, output, strict=True)))
        for steps in inside:
            cell = tuple(i for _, i in steps)
            if all(0 <= i < n for i, n in zip(cell, window.size, strict=True)):
                each[tuple(t for t, _ in steps)].append((output, cell))
    return each


def numbers(shape: tuple[int, ...], kind: str):
    cells = np.random.default_rng(len(shape)).integers(-9, 10, shape)
    if kind == "tensor":
        return torch.from_numpy(cells.astype(np.float64))
    return exact(cells) if kind == "exact" else cells


@pytest.mark.parametrize("kind", ["int64", "exact", "tensor"])
@pytest.mark.parametrize("seed", SEEDS)
def test_taps_read_and_write_what_the_relation_says(seed: int, kind: str) -> None:
    window, lead = drawn(seed)
    x, y = numbers(lead + window.size, kind), numbers(lead + window.out, kind)
    known = pairs(window)
    assert [tap.position for tap in window.taps()] == sorted(known)
    planes = list(itertools.product(*map(range, lead)))
    for tap in window.taps():
        count = len(known[tap.position])
        for lead_index in planes:
            flat = tap.read_inputs(x)[lead_index].reshape(-1)
            assert flat.tolist() == [x[(*lead_index, *i)] for _, i in known[tap.position]]
            assert tap.read_outputs(y)[lead_index].reshape(-1).tolist() == [
                y[(*lead_index, *o)] for o, _ in known[tap.position]
            ]
            assert len(flat) == count
        written, added, spread = (v.clone() if kind == "tensor" else v.copy() for v in (y, y, x))
        tap.write_outputs(written, tap.read_inputs(x))
        tap.add_to_outputs(added, tap.read_inputs(x))
        tap.add_to_inputs(spread, tap.read_outputs(y))
        w, a, s = (v.clone() if kind == "tensor" else v.copy() for v in (y, y, x))
        for lead_index, (o, i) in itertools.product(planes, known[tap.position]):
            w[(*lead_index, *o)] = x[(*lead_index, *i)]
            a[(*lead_index, *o)] += x[(*lead_index, *i)]
            s[(*lead_index, *i)] += y[(*lead_index, *o)]
        assert (written.tolist(), added.tolist(), spread.tolist()) == (w.tolist(), a.tolist(), s.tolist())


@pytest.mark.parametrize("seed", SEEDS)
def test_joined_and_transposed_taps(seed: int) -> None:
    window, lead = drawn(seed)
    x, y = numbers(lead + window.size, "int64"), numbers(lead + window.out, "int64")
    known = pairs(window)
    for tap in window.taps():
        least, expected = x.copy(), x.copy()
        tap.join_inputs(np.minimum, least, tap.read_outputs(y))
        for lead_index, (o, i) in itertools.product(itertools.product(*map(range, lead)), known[tap.position]):
            expected[(*lead_index, *i)] = min(expected[(*lead_index, *i)], y[(*lead_index, *o)])
        assert least.tolist() == expected.tolist()
        back, there = tap.transposed(), tap
        assert back.read_inputs(y).tolist() == there.read_outputs(y).tolist()
        assert back.read_outputs(x).tolist() == there.read_inputs(x).tolist()


def test_evenly_spaced_cells_are_views_and_others_are_no_slices() -> None:
    x = np.arange(12).reshape(2, 6)
    even, uneven = (next(adaptive("test", (6,), (n,)).taps()) for n in (3, 4))
    assert even.slices() == ((slice(0, 3),), (slice(0, 5, 2),))
    assert np.shares_memory(even.read_inputs(x), x)
    with pytest.raises(sg.SpecgradError, match="the cells of an adaptive axis are no slice"):
        uneven.slices()
