"""The halo is what outputs depend on: no cell beyond it changes them, the last cell of it does; and crops are exact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.scale import halo

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import unet
from common import each

N = 96
ONES = lambda *shape: np.ones(shape)


def small_unet(x: Any) -> Any:
    return unet.net(each(lambda _, s: np.ones(s), unet.shapes(1, 1, 1, 2)), x)


def line(*layers: Any) -> Any:
    def net(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x

    return net


def shuffled(x: Any) -> Any:
    """Half as many cells, four times the channels, and back."""
    y = sg.conv(ONES(4, 1, 3, 3), None, x, stride=2, padding=1)
    n, _, h, w = y.shape
    y = sg.permute(sg.reshape(y, (n, 1, 2, 2, h, w)), (0, 1, 4, 2, 5, 3))
    return sg.reshape(y, (n, 1, 2 * h, 2 * w))


NETS = {
    "one window": line(lambda x: sg.conv(ONES(1, 1, 5, 3), None, x, padding=(2, 1))),
    "uneven padding": line(lambda x: sg.conv(ONES(1, 1, 4, 4), None, x, padding=((1, 2), (3, 0)))),
    "dilated": line(lambda x: sg.conv(ONES(1, 1, 3, 3), None, x, dilation=3, padding=3)),
    "strided": line(
        lambda x: sg.conv(ONES(1, 1, 3, 3), None, x, stride=3, padding=1),
        lambda x: sg.max_pool(x, (2, 2)),
    ),
    "u-net": small_unet,
    "channels to cells": shuffled,
    "resized": line(
        lambda x: sg.avg_pool(x, (2, 2)),
        lambda x: sg.resize(x, scales=(2, 2)),
        lambda x: sg.max_pool(x, (3, 3), padding=1, stride=1),
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_no_cell_beyond_the_halo_matters_and_the_last_one_does(name: str) -> None:
    graph = sg.trace(NETS[name], (1, 1, N, N))
    x = np.zeros((1, 1, N, N))
    module = sg.compile(graph, "torch")
    run = lambda a: module(torch.from_numpy(a)).numpy()
    before = run(x)
    for axis, m in zip((2, 3), halo(graph).axes, strict=True):
        assert (m.input, m.axis) == ("x", axis)
        step = N // before.shape[axis]
        low, high = 48, 48 + 24  # a tile in cells of the input; 24 is a multiple of every alignment here
        assert low % m.align == high % m.align == 0
        tile = [slice(None)] * 4
        tile[axis] = slice(low // step, high // step)
        for cell, matters in (
            (low - m.before - 1, False), (low - m.before, True), (high + m.after - 1, True), (high + m.after, False),
        ):  # fmt: skip
            moved = x.copy()
            index: list[Any] = [slice(None)] * 4
            index[axis] = cell
            moved[tuple(index)] = 100.0
            assert bool((run(moved)[tuple(tile)] != before[tuple(tile)]).any()) == matters, (name, cell)


@pytest.mark.parametrize("name", NETS)
def test_the_network_on_a_crop_is_exact_inside(name: str) -> None:
    """What users of sliding windows do: the network itself on a crop with the halo, of which the inside is kept."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (1, 1, N, N)).astype(float)
    whole = sg.trace(NETS[name], x.shape)
    first = whole.nodes[whole.output_positions[0]].shape
    m = halo(whole)
    lows, highs = zip(*((48 - a.crop[0], 60 + a.crop[1]) for a in m.axes), strict=True)
    crop = x[:, :, lows[0] : highs[0], lows[1] : highs[1]]
    part, full = sg.trace(NETS[name], crop.shape)(crop), whole(x)
    at = [N // n for n in first[2:]]
    inside = tuple(slice((48 - low) // s, (60 - low) // s) for low, s in zip(lows, at, strict=True))
    where = tuple(slice(48 // s, 60 // s) for s in at)
    assert np.array_equal(part[(..., *inside)], full[(..., *where)])


def test_layers_that_read_everything_are_named() -> None:
    def net(x: Any) -> Any:
        with sg.scope("stem"):
            x = sg.group_norm(sg.conv(ONES(4, 1, 3, 3), None, x, padding=1), 2)
        with sg.scope("gate"):
            return x * sg.sigmoid(sg.global_avg_pool(x, rank=2))

    m = halo(sg.trace(net, (1, 1, 16, 16)))
    assert [(w.layer, w.operator) for w in m.whole] == [("stem.group_norm", "sum"), ("gate.global_avg_pool", "sum")]
    assert str(m.whole[1]) == "gate.global_avg_pool: sum reads all of axis 2 and 3 of 1x4x16x16"


def attention(x: Any) -> Any:
    cells = sg.reshape(x, (1, 2, 64))
    return sg.reshape(sg.matmul(cells, sg.softmax(sg.matmul(sg.permute(cells, (0, 2, 1)), cells), 2)), x.shape)


@pytest.mark.parametrize(
    ("net", "operator"),
    [
        (lambda x: sg.cumsum(x, 2), "cumsum"),
        (lambda x: sg.flatten(x, 1), "reshape"),
        (attention, "reshape"),  # and more
        (lambda x: sg.adaptive_avg_pool(x, (3, 3)), "avg_pool"),
        (lambda x: sg.max_pool(x, (8, 8)), "max_pool"),
        (lambda x: sg.concat([x, x], axis=3), "concat"),
        (lambda x: sg.pad(x, [(1, 1), (1, 1)], mode="reflect"), "gather"),
        (lambda x: sg.resize(x, (15, 15), where="align_corners"), "resize"),
        (lambda x: x + sg.permute(x, (0, 1, 3, 2)), "add"),
        (lambda x: sg.slice(x, None, None, slice(0, 8, 2)) + sg.slice(x, None, None, slice(0, 4)), "add"),
    ],
)  # fmt: skip
def test_every_way_of_reading_everything_is_seen(net: Any, operator: str) -> None:
    assert operator in {w.operator for w in halo(sg.trace(net, (1, 2, 8, 8))).whole}
