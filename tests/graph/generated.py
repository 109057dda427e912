"""Random programs over values of shape (1, C, H, W), with captured arrays of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch

import specgrad as sg

Step = Callable[[object], object]
Rng = np.random.Generator


class Captured:
    """Arrays of one program, in the kinds that users have; `get` gives a new object each time, as `w.detach()` does."""

    def __init__(self, rng: Rng) -> None:
        self.rng, self.arrays, self.kinds = rng, [], Counter()
        self.on_jax: list[jax.Array] = []

    def new(self, shape: tuple[int, ...]) -> Callable[[], object]:
        array = self.rng.normal(size=shape)
        self.arrays.append(array)
        kind = ("array", "view", "list", "torch", "jax")[self.rng.integers(5)]
        self.kinds[kind] += 1
        return getattr(self, f"_{kind}")(array)

    def _array(self, array: np.ndarray) -> Callable[[], object]:
        return lambda: array

    def _view(self, array: np.ndarray) -> Callable[[], object]:
        return lambda: array[...]

    def _list(self, array: np.ndarray) -> Callable[[], object]:
        return lambda: array.tolist()

    def _torch(self, array: np.ndarray) -> Callable[[], object]:
        tensor = torch.from_numpy(array)
        return lambda: tensor.detach()

    def _jax(self, array: np.ndarray) -> Callable[[], object]:
        with jax.enable_x64(True):
            given = jnp.array(array)
        self.on_jax.append(given)
        return lambda: given

    def spoil(self) -> None:
        """Change what can be changed, free what cannot."""
        for array in self.arrays:
            array[...] = 1e9
        for given in self.on_jax:
            given.delete()
        self.arrays.clear()
        self.on_jax.clear()


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
