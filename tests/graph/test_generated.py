"""Random graphs through trace, save, load, pickle and deepcopy: the same bits each time, whatever became of the arrays
they captured. What is right is the same program run on arrays, without a graph."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import specgrad as sg

Step = Callable[[object], object]
Rng = np.random.Generator


class Captured:
    """Arrays of one program, in the kinds that users have; `get` gives a new object each time, as `w.detach()` does."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.arrays = rng, []

    def new(self, shape: tuple[int, ...]) -> Callable[[], object]:
        array = self.rng.normal(size=shape)
        self.arrays.append(array)
        kind = self.rng.integers(4)
        tensor = torch.from_numpy(array)
        return [lambda: array, lambda: array[...], lambda: array.tolist(), lambda: tensor.detach()][kind]

    def spoil(self) -> None:
        for array in self.arrays:
            array[...] = 1e9
        self.arrays.clear()


def on(x: object, value: object) -> object:
    """What was captured, as an array where x is one: a list or a tensor does not add to NumPy's arrays by itself."""
    return np.asarray(value) if isinstance(x, np.ndarray) else value


def step(rng: Rng, held: Captured, shape: tuple[int, ...]) -> Step:
    """One random layer on values of shape (1, C, H, W)."""
    _, c, h, w = shape
    per_channel, weights = held.new((c, 1, 1)), held.new((int(rng.integers(1, 4)), c, 3, 3))
    number = np.float64(rng.normal())
    choices: list[Step] = [
        lambda x: sg.mul(x, on(x, per_channel())),
        lambda x: sg.add(on(x, per_channel()), x),
        lambda x: sg.add(sg.mul(x, on(x, per_channel())), on(x, per_channel())),
        lambda x: sg.conv(on(x, weights()), None, x, padding=1),
        lambda x: sg.conv(on(x, weights()), None, x, stride=2, padding=1),
        lambda x: sg.relu(x) * number + x * np.float64(0.5),
        lambda x: sg.tanh(x) - x / 3,
        lambda x: sg.select(sg.greater(x, 0), x, sg.mul(x, on(x, per_channel()))),
        lambda x: sg.max_pool(x, (min(2, h), min(2, w)), stride=1),
        lambda x: sg.avg_pool(x, (3, 3), stride=1, padding=1),
        lambda x: x[..., w // 2 :],
        lambda x: sg.concat([x, sg.softplus(x)], 1),
        lambda x: sg.mean(x, (2, 3), keepdims=True) + x,
    ]
    return choices[rng.integers(len(choices))]


def program(seed: int) -> tuple[Step, Captured, np.ndarray]:
    rng = np.random.default_rng(seed)
    held = Captured(rng)
    x = rng.normal(size=(1, *(int(n) for n in rng.integers(1, 6, 3))))
    steps, y = [], x
    for _ in range(rng.integers(1, 7)):
        steps.append(step(rng, held, y.shape))
        y = steps[-1](y)

    def run(value):
        for f in steps:
            value = f(value)
        return value

    return run, held, x


def same_bits(found, expected) -> None:
    for a, b in zip(sg.tree.leaves((found,)), sg.tree.leaves((expected,)), strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def check(seed: int, folder: Path) -> None:
    run, held, x = program(seed)
    expected = run(x)
    graph = sg.trace(run, x.shape)
    gradient = sg.vjp(graph)
    both = gradient(x, np.ones(expected.shape))
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
    if seed % 10 == 0:
        found = sg.compile(again, "torch")(*(torch.from_numpy(np.array(a)) for a in args))
        for a, b in zip(found, both, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b, rtol=1e-9, atol=1e-9)
    if seed % 25 == 0:
        with jax.enable_x64(True):
            for a, b in zip(sg.compile(again, "jax")(*map(jnp.asarray, args)), both, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("part", range(4))
def test_generated_graphs_stay_what_they_are(part: int, tmp_path: Path) -> None:
    for seed in range(25 * part, 25 * part + 25):
        check(seed, tmp_path)


@pytest.mark.slow
def test_two_thousand_generated_graphs_stay_what_they_are(tmp_path: Path) -> None:
    for seed in range(2_000):
        check(seed, tmp_path)


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
