"""Compiled graphs on JAX hold images channels last: values and gradients are the specification's, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.engines.jax.layouts import turned_steps

jax = pytest.importorskip("jax")
Shape = tuple[int, ...]

# name: (function of a weight and an image, shape of the weight, shape of the image)
CONVOLUTIONS: dict[str, tuple[Callable[[Any, Any], Any], Shape, Shape]] = {
    "3x3": (lambda w, x: sg.conv(w, None, x, padding=1), (2, 3, 3, 3), (2, 3, 6, 5)),
    "3x3 strided, dilated": (
        lambda w, x: sg.conv(w, None, x, padding=(1, 2), stride=(2, 1), dilation=(1, 2)),
        (2, 3, 3, 3),
        (2, 3, 7, 8),
    ),
    "more filters than cells": (lambda w, x: sg.conv(w, None, x, stride=2, padding=1), (9, 3, 3, 3), (1, 3, 4, 3)),
    "fewer cells than taps": (lambda w, x: sg.conv(w, None, x, padding=1), (3, 2, 3, 3), (2, 2, 2, 5)),
    "1x1": (lambda w, x: sg.conv(w, None, x), (4, 3, 1, 1), (2, 3, 3, 2)),
    "1x1 strided, padded": (lambda w, x: sg.conv(w, None, x, stride=2, padding=1), (4, 3, 1, 1), (2, 3, 4, 5)),
    "1x1x1": (lambda w, x: sg.conv(w, None, x, stride=2), (4, 3, 1, 1, 1), (2, 3, 3, 2, 3)),
    "depthwise": (lambda w, x: sg.conv(w, None, x, padding=1, groups=3), (3, 1, 3, 3), (2, 3, 5, 4)),
    "depthwise strided, dilated": (
        lambda w, x: sg.conv(w, None, x, padding=(2, 1), stride=(2, 3), dilation=(2, 1), groups=3),
        (3, 1, 3, 2),
        (2, 3, 9, 7),
    ),
    "depthwise rank 1": (lambda w, x: sg.conv(w, None, x, stride=2, groups=3), (3, 1, 4), (2, 3, 11)),
    "row": (lambda w, x: sg.conv(w, None, x, padding=2), (2, 3, 5), (2, 3, 7)),
    "transposed": (lambda w, x: sg.conv_transpose(w, None, x, stride=2, padding=1), (3, 2, 4, 4), (1, 3, 4, 5)),
    "transposed 1x1": (lambda w, x: sg.conv_transpose(w, None, x, stride=2), (3, 2, 1, 1), (2, 3, 3, 2)),
    "transposed depthwise": (
        lambda w, x: sg.conv_transpose(w, None, x, stride=(2, 3), padding=1, groups=3),
        (3, 1, 3, 4),
        (2, 3, 4, 3),
    ),
    "groups, channels first": (lambda w, x: sg.conv(w, None, x, groups=2), (4, 2, 2, 2), (2, 4, 4, 3)),
}
READERS: dict[str, Callable[[Any], Any]] = {  # of an image (2, 3, 4, 4)
    "cells": lambda y: sg.select(sg.greater(y, 2), 3 - y, sg.relu(y) * y),
    "channels": lambda y: y * sg.sum(y, (0, 2, 3), keepdims=True),
    "sum over 0": lambda y: sg.sum(y, 0),
    "sum over 1": lambda y: sg.sum(y, 1),
    "sum over 1, 2": lambda y: sg.sum(y, (1, 2)),
    "sum over 0, 3": lambda y: sg.sum(y, (0, 3)),
    "sum over all": lambda y: sg.sum(y),
    "joined channels": lambda y: sg.relu(sg.concat([y, 2 * y], 1)),
    "joined rows": lambda y: sg.relu(sg.concat([y, 2 * y], 2)),
    "joined samples": lambda y: sg.relu(sg.concat([y, 2 * y], 0)),
    "padded": lambda y: 2 * sg.pad(y, [(1, 0), (0, 2), (3, 0), (0, 4)]),
    "turned": lambda y: sg.permute(y, (2, 0, 3, 1)) * 2,
    "flat": lambda y: sg.flatten(y, 1),
    "largest": lambda y: sg.max_pool(y, (3, 2), stride=(2, 1), padding=1),
    "large window": lambda y: sg.max_pool(y, (4, 4), stride=1, padding=2),
    "windows of nothing": lambda y: sg.max_pool(y, (1, 2), stride=(1, 3), padding=(0, 1)),
    "average": lambda y: sg.avg_pool(4 * y, (2, 2), padding=1),
    "average of what is inside": lambda y: sg.avg_pool(12 * y, (2, 2), padding=1, count_include_pad=False),
    "positions": lambda y: sg.max_pool(y, (2, 2), return_indices=True),
    "over channels too": lambda y: sg.max_pool(sg.reshape(y, (2, 1, 3, 4, 4)), (2, 2, 2)),
}


def integers(shape: Shape, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape)


def agree(function: Callable[..., Any], arrays: list[np.ndarray], layouts: bool = True) -> None:
    """Values, and the gradients of the sum of squares of every result but positions, against exact numbers."""

    def loss(*args: Any) -> Any:
        return sum(sg.sum(y * y) for y in sg.tree.leaves(function(*args))[:1])

    shapes = [a.shape for a in arrays]
    value = sg.trace(function, *shapes)
    assert bool(turned_steps(value, ())) == layouts
    for graph in (value, sg.grad(sg.trace(loss, *shapes), tuple(range(len(arrays))), value=True)):
        got = sg.compile(graph, "jax")(*[a.astype(np.float32) for a in arrays])
        for a, b in zip(sg.tree.leaves(got), sg.tree.leaves(graph(*arrays)), strict=True):
            np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients_are_the_specification(name: str) -> None:
    convolve, w, x = CONVOLUTIONS[name]
    agree(lambda w, x: sg.relu(convolve(w, x)), [integers(w, 1), integers(x, 2)], "first" not in name)


@pytest.mark.parametrize("name", READERS)
def test_what_reads_an_image_channels_last_reads_the_same_image(name: str) -> None:
    agree(lambda w, x: READERS[name](sg.conv(w, None, x)), [integers((3, 2, 1, 1), 3), integers((2, 2, 4, 4), 4)])


def test_jax_differentiates_a_compiled_graph_that_lies_last() -> None:
    w, x = integers((3, 1, 3, 3), 5), integers((2, 3, 6, 6), 6)
    loss = lambda w, x: sg.sum(sg.max_pool(sg.conv(w, None, x, padding=1, groups=3), (2, 2)) ** 2)
    compiled = sg.compile(sg.trace(loss, w.shape, x.shape), "jax")
    want = sg.grad(sg.trace(loss, w.shape, x.shape), (0, 1))(w, x)
    floats = w.astype(np.float32), x.astype(np.float32)
    many = jax.vmap(jax.grad(compiled, (0, 1)), (None, 0))(floats[0], np.stack([floats[1]] * 2))
    for got in (jax.grad(compiled, (0, 1))(*floats), [g[1] for g in many]):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a, float), np.asarray(b, float))
