"""Random graphs through trace, save, load, pickle, deepcopy and both engines: the same each time, whatever became of
the arrays they captured. What is right is the same program run on arrays, without a graph."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from generated import Captured, program

import specgrad as sg

pytestmark = pytest.mark.usefixtures("little_optimised")


def same_bits(found, expected) -> None:
    for a, b in zip(sg.tree.leaves((found,)), sg.tree.leaves((expected,)), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def on_torch(graph: sg.Graph, args: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    return [y.detach().numpy() for y in sg.compile(graph, "torch")(*(torch.from_numpy(a.copy()) for a in args))]


def on_jax(graph: sg.Graph, args: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    with jax.enable_x64(True):
        return [np.asarray(y) for y in sg.compile(graph, "jax")(*map(jnp.asarray, args))]


def check(seed: int, folder: Path, *engines: Callable) -> Counter[str]:
    run, held, x = program(seed)
    expected = run(x)
    graph = sg.trace(run, x.shape)
    gradient = sg.vjp(graph)
    both = gradient(x, np.ones(expected.shape))
    kinds = held.kinds
    held.spoil()
    del run, held
    same_bits(graph(x), expected)
    for g, args, right in ((graph, (x,), expected), (gradient, (x, np.ones(expected.shape)), both)):
        sg.save(g, folder / "net.json")
        loaded = sg.load(folder / "net.json")
        again = copy.deepcopy(pickle.loads(pickle.dumps(loaded)))
        assert again.nodes == g.nodes
        for other in (g, loaded, again):
            same_bits(other(*args), right)
    for engine in engines:
        for a, b in zip(engine(again, args), both, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    if on_torch in engines:
        same_bits(tuple(on_torch(gradient, args)), tuple(on_torch(again, args)))
    return kinds


def test_generated_graphs_stay_what_they_are(tmp_path: Path) -> None:
    """The first twenty; jax.jit takes a third of a second for each, so every fifth."""
    for seed in range(20):
        check(seed, tmp_path, on_torch, *[on_jax] * (seed % 5 == 0))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_two_thousand_generated_graphs_stay_what_they_are(part: int, tmp_path: Path) -> None:
    kinds = sum((check(seed, tmp_path, on_torch, on_jax) for seed in range(100 * part, 100 * part + 100)), Counter())
    assert min(kinds[kind] for kind in ("array", "view", "list", "torch", "jax")) >= 50


def test_the_check_sees_an_array_held_by_reference() -> None:
    """A planted mistake: a graph whose constant is the captured array itself does not pass."""
    for seed in range(100):
        run, held, x = program(seed)
        graph, expected = sg.trace(run, x.shape), run(x)
        shared = [(i, a) for i, c in graph.constants.items() for a in held.arrays if np.array_equal(a, c)]
        if shared:
            break
    graph.constants.update(shared)
    held.spoil()
    with pytest.raises(AssertionError):
        same_bits(graph(x), expected)
    for engine in (on_torch, on_jax):
        found = engine(sg.vjp(graph), (x, np.ones(expected.shape)))[0]
        assert not np.allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_check_sees_a_jax_array_that_was_freed() -> None:
    """A planted mistake: what still reads a freed array cannot run."""
    held = Captured(np.random.default_rng(0))
    given = held._jax(np.ones(3))
    held.spoil()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(given())
