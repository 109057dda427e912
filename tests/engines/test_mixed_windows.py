"""Windows whose axes are of different kinds: adaptive beside dilated, strided or padded ones, on both engines.

`adaptive` itself gives even parts beside uneven ones alone; graphs from files, and `sg.apply`, have any.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import drawn_windows
import specgrad as sg
from specgrad.window import Adaptive, Strided, Window, adaptive
from specgrad.window.axis import strided_axis

SEEDS = range(40)


def strided_axes() -> list[Strided]:
    """Axes with as many taps in all windows as there are cells, most of which do not cut them into parts."""
    numbers = itertools.product(range(1, 5), range(1, 4), range(1, 4), (1, 2), range(3), range(3))
    axes = [strided_axis(n, k, s, e, lo, hi, False) for n, k, s, e, lo, hi in numbers if e * (k - 1) < n + lo + hi]
    return [a for a in axes if a.kernel * a.out == a.size]


def mixed(seed: int) -> tuple[tuple[int, ...], Window]:
    """An uneven axis beside one or two that are not, under a few axes."""
    rng = Random(f"mixed/{seed}")
    alike = [a for a in strided_axes() if a.is_even_cut or seed % 4 == 1]
    others = [rng.choice(alike) if seed % 2 else drawn_windows.axis(rng, 3, empty=True)]
    axes = [Adaptive(n := rng.randint(1, 4), n + rng.choice((1, 2))), *others, *others[: rng.randrange(2)]]
    rng.shuffle(axes)
    return tuple(rng.choice((1, 2, 3)) for _ in range(rng.randrange(3))), Window(tuple(axes))


@pytest.mark.parametrize(
    ("engine", "step"), [("torch", 1), ("jax", 13), pytest.param("jax", 1, marks=pytest.mark.slow)]
)  # XLA compiles for each
@pytest.mark.parametrize("name", ["max_pool", "avg_pool"])
def test_pools_over_axes_of_different_kinds(name: str, engine: str, step: int) -> None:
    """Values and gradients of whole numbers, as the specification has them."""
    module = pytest.importorskip("torch" if engine == "torch" else "jax.numpy")
    tensor = module.from_numpy if engine == "torch" else module.asarray
    wrong = []
    for seed in SEEDS[::step]:
        lead, window = mixed(seed)
        params: dict[str, Any] = {"window": window}
        if name == "avg_pool":
            params["divisor"] = 2 if window.has_empty or seed % 3 else "inside"
        graph = sg.trace(lambda x, p=params: sg.apply(sg.REGISTRY[name], x, **p), (*lead, *window.size))
        numbers = np.random.default_rng(seed)
        x, g = (np.float32(numbers.integers(-9, 10, (*lead, *s))) for s in (window.size, window.out))
        known = sg.vjp(graph)(x, g)
        found = sg.compile(graph, engine, "vjp")(tensor(x), tensor(g))
        if not all(np.allclose(a, b, atol=1e-5) for a, b in zip(_leaves(known), _leaves(found), strict=True)):
            wrong.append((seed, window.axes))
    assert wrong == []


def _leaves(tree: Any) -> list[np.ndarray]:
    return [a for part in tree for a in _leaves(part)] if isinstance(tree, tuple) else [np.asarray(tree)]


def test_the_draws_have_what_looks_like_an_even_cut_and_is_none() -> None:
    axes = [a for seed in SEEDS for a in mixed(seed)[1].axes if isinstance(a, Strided)]
    alike = [a for a in axes if a.kernel * a.out == a.size]
    assert sum(not a.is_even_cut for a in alike) > 5
    assert any(a.is_even_cut for a in alike)


def test_what_adaptive_gives_are_even_cuts() -> None:
    for n, out in itertools.product(range(1, 7), range(1, 7)):
        (one,) = adaptive("test", (n,), (out,)).axes
        assert isinstance(one, Adaptive) == (n % out > 0)
        assert isinstance(one, Adaptive) or one.is_even_cut
