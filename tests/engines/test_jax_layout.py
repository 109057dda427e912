"""Channels last (NHWC and its kin): the same numbers as channels first, in values and in derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg

jax = pytest.importorskip("jax")

CALLS: dict[str, tuple[Callable[..., Any], int]] = {
    "conv": (lambda w, x: sg.conv(w, None, x, stride=2, padding=1), 2),
    "grouped conv": (lambda w, x: sg.conv(sg.slice(w, None, slice(1)), None, x, padding=1, groups=2), 2),
    "1x1 conv": (lambda w, x: sg.conv(sg.slice(w, None, None, slice(1), slice(1)), None, x), 2),
    "conv with few cells": (lambda w, x: sg.conv(w, None, sg.max_pool(x, (3, 2)), padding=1), 2),
    "conv_transpose": (lambda w, x: sg.conv_transpose(w, None, sg.concat([x, x], -3), stride=2, padding=1), 2),
    "max_pool": (lambda w, x: sg.max_pool(x, (3, 2), stride=1, padding=1), 2),
    "max_pool with positions": (lambda w, x: sg.max_pool(x, (2, 2), return_indices=True), 2),
    "avg_pool": (lambda w, x: sg.avg_pool(x, (2, 2), padding=1), 2),
    "along the last axis alone": (lambda w, x: sg.max_pool(x, (2,)), 1),
    "a network": (lambda w, x: sg.flatten(sg.max_pool(sg.relu(sg.conv(w, None, x, padding=1)), (2, 2)), -3), 2),
}
SHAPES = {"sample": (2, 6, 5), "batch": (3, 2, 6, 5), "two batch axes": (2, 2, 2, 6, 5)}


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


W = integers((4, 2, 3, 3), 0)


def turned(tree: Any, rank: int, ndim: int) -> Any:
    """NumPy's own word for channels last, where a result has the axes of the data."""
    move = lambda _, a: np.moveaxis(a, -rank - 1, -1) if a.ndim == ndim else a
    return sg.tree.transform(move, tree)


def same(got: Any, want: Any) -> None:
    for a, b in zip(sg.tree.leaves(got), sg.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CALLS)
def test_numpy_and_jax_agree_with_channels_first(name: str, shape: str) -> None:
    """Integers: bit for bit, the specification on channels-first arrays being the judge."""
    fn, rank = CALLS[name]
    x = integers(SHAPES[shape], 1)
    want = turned(fn(W, x), rank, x.ndim)
    last, call = np.moveaxis(x, -rank - 1, -1), sg.channels_last(fn, rank=rank)
    same(call(W, last), want)
    same(jax.jit(call)(W, last), want)


@pytest.mark.parametrize("name", [n for n in CALLS if "positions" not in n])
def test_derivatives(name: str) -> None:
    """jax.vjp and jax.jvp of the turned call against the derivative graphs of the specification."""
    fn, rank = CALLS[name]
    x, dx, dw = integers(SHAPES["batch"], 1), integers(SHAPES["batch"], 2), integers(W.shape, 3)
    graph = sg.trace(fn, W, x)
    gy = integers(graph(W, x).shape, 4)
    _, gw, gx = sg.vjp(graph)(W, x, gy)
    _, dy = sg.jvp(graph)(W, x, dw, dx)
    call, last = sg.channels_last(fn, rank=rank), lambda a: turned(a, rank, x.ndim)
    pull = lambda w, x, gy: jax.vjp(call, w, x)[1](gy)
    push = lambda w, x, dw, dx: jax.jvp(call, (w, x), (dw, dx))[1]
    same(jax.jit(pull)(W, last(x), last(gy)), (gw, last(gx)))
    same(jax.jit(push)(W, last(x), dw, last(dx)), last(dy))


def test_vmap_and_compiled_graphs() -> None:
    fn, rank = CALLS["conv"]
    call, x = sg.channels_last(fn, rank=rank), integers(SHAPES["batch"], 1)
    last = np.moveaxis(x, 1, -1)
    want = np.moveaxis(fn(W, x), 1, -1)
    same(jax.vmap(call, in_axes=(None, 0))(jax.numpy.asarray(W), last), want)
    graph = sg.trace(call, W, last)
    same(sg.compile(graph, "jax")(W, last), want)
    same(sg.compile(graph, "jax", "vjp")(W, last, want), sg.vjp(graph)(W, last, want))


def test_xla_convolves_channels_last_without_turning() -> None:
    """The turns are folded: the optimised program has no transpose of an image in front of its convolution."""
    x = jax.numpy.zeros((8, 32, 32, 64))
    w = jax.numpy.zeros((64, 64, 3, 3))
    call = jax.jit(lambda w, x: sg.channels_last(sg.conv, rank=2)(w, None, x, padding=1))
    text = call.lower(w, x).compile().as_text()
    assert "convolution" in text
    assert "b01f" in text
    assert "f32[8,64,32,32]" not in text


def test_which_arguments_are_data() -> None:
    add = sg.channels_last(lambda x, k, y: sg.add(sg.max_pool(x, k), y), rank=2, data=(0, 2))
    x, y = integers((2, 4, 4), 0), integers((2, 2, 2), 1)
    want = np.moveaxis(sg.max_pool(x, (2, 2)) + y, 0, -1)
    same(add(np.moveaxis(x, 0, -1), (2, 2), np.moveaxis(y, 0, -1)), want)


def test_refusals() -> None:
    pool = sg.channels_last(sg.max_pool, rank=2, data=0)
    with pytest.raises(sg.ShapeError, match=r"the data need 2 spatial axes and the channels; got shape \(4, 4\)"):
        pool(np.zeros((4, 4)), (2, 2))
    with pytest.raises(sg.ParameterError, match=r"channels_last \[P5\]: no positional argument 3; got 1"):
        sg.channels_last(sg.relu, rank=2, data=3)(np.zeros((2, 4, 4)))
    with pytest.raises(sg.ParameterError, match="rank must be at least 1; got rank=0"):
        sg.channels_last(sg.relu, rank=0)
