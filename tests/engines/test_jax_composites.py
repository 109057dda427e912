"""What JAX has in one piece means what our compositions mean: values, both modes, mapping, second order, kinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specgrad as sg
from specgrad.engines.jax import COMPOSITES
from specgrad.errors import ScalarError, ShapeError

OPTIMISED = True  # as users run it; conftest.py
NAN, INF = float("nan"), float("inf")
RNG = np.random.default_rng(7)
X, W, B = RNG.normal(size=(2, 4, 3, 5)), RNG.normal(size=(4,)), RNG.normal(size=(4,))

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "div": (lambda a, b: sg.div(a, b), (X, RNG.uniform(0.5, 2, (4, 1, 1)))),
    "amin": (lambda a: sg.amin(a, (1, 3)), (X,)),
    "amin keepdims": (lambda a: sg.amin(a, -1, keepdims=True, ties="all"), (X,)),
    "gelu": (lambda a: sg.gelu(a, "tanh"), (X,)),
    "softmax": (lambda a: sg.softmax(a, 1), (X,)),
    "log_softmax": (lambda a: sg.log_softmax(a), (X,)),
    "layer_norm": (lambda a, w, b: sg.layer_norm(a, (3, 5), w, b), (X, X[0, 0], X[0, 1])),
    "group_norm": (lambda a, w, b: sg.group_norm(a, 2, w, b, eps=1e-3), (X, W, B)),
    "group_norm bare": (lambda a: sg.group_norm(a, 4), (X,)),
}


def test_every_composite_is_called() -> None:
    assert {name.partition(" ")[0] for name in CALLS} == set(COMPOSITES)


@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives_are_those_of_the_composition(name: str) -> None:
    """Against the graph of the composition, whose derivatives are graphs that NumPy runs in float64."""
    f, args = CALLS[name]
    rng = np.random.default_rng(1)
    dargs = tuple(rng.normal(size=a.shape) for a in args)
    graph = sg.trace(lambda *a: f(*a), *(a.shape for a in args))
    with jax.enable_x64(True):
        given, dgiven = tuple(map(jnp.asarray, args)), tuple(map(jnp.asarray, dargs))
        y, dy = jax.jit(lambda a, da: jax.jvp(f, a, da))(given, dgiven)
        want, dwant = sg.jvp(graph)(*args, *dargs)
        for value in (y, f(*given)):
            np.testing.assert_allclose(value, want, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dy, dwant, rtol=1e-10, atol=1e-12)
        gy = rng.normal(size=want.shape)
        pulled = jax.jit(lambda a, gy: jax.vjp(f, *a)[1](gy))(given, jnp.asarray(gy))
        for got, expected in zip(pulled, sg.vjp(graph)(*args, gy)[1:], strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
        mapped = jax.jit(jax.vmap(f))(*(np.stack([a, 2 * a]) for a in args))
        np.testing.assert_allclose(mapped, [f(*args), f(*(2 * a for a in args))], rtol=1e-12, atol=1e-12)
        second = jax.jit(lambda a, da: jax.jvp(lambda *b: jax.jvp(f, b, da)[1], a, da)[1])(given, dgiven)
        twice = sg.jvp(sg.trace(lambda *a: sg.jvp(graph)(*a, *dargs)[1], *(a.shape for a in args)))
        np.testing.assert_allclose(second, twice(*args, *dargs)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("ties", "share"), [("split", 0.5), ("all", 1.0)])
def test_every_winner_of_a_minimum_gets_its_share(ties: Any, share: float) -> None:
    x = jnp.asarray([[3.0, 1.0, 1.0], [0.0, -0.0, 2.0], [NAN, 1.0, NAN], [INF, INF, NAN], [-INF, 5.0, -INF]])
    y, pull = jax.vjp(lambda a: sg.amin(a, 1, ties=ties), x)
    np.testing.assert_array_equal(y, [1, 0, NAN, NAN, -INF])
    (gx,) = pull(jnp.ones(5))
    full = [[0, 1, 1], [1, 1, 0], [1, 0, 1], [0, 0, 1 / share], [1, 0, 1]]
    np.testing.assert_array_equal(gx, share * np.array(full))
    np.testing.assert_array_equal(jax.vjp(lambda a: sg.amax(a, 1, ties=ties), -x)[1](jnp.ones(5))[0], gx)


def test_a_loser_does_not_see_an_infinite_tangent() -> None:
    x, dx = jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, INF])
    assert jax.jvp(lambda a: sg.amin(a), (x,), (dx,))[1] == 3


def test_a_divisor_without_a_tangent_makes_no_nan() -> None:
    """0 * inf would: the quotient is infinite, the tangent of its divisor is none."""
    f = lambda a: sg.div(a, jnp.zeros(()))
    assert jax.jvp(f, (jnp.asarray(1.0),), (jnp.asarray(2.0),)) == (INF, INF)


def test_a_mean_far_from_zero_keeps_the_digits_of_the_rest() -> None:
    """E[x*x] - E[x]**2 would have none left."""
    x = jnp.asarray(X, jnp.float32)
    near, far = sg.group_norm(x, 2), sg.group_norm(x + 4096, 2)
    np.testing.assert_allclose(far, near, atol=2e-3)


@pytest.mark.parametrize("name", CALLS)
def test_bfloat16_is_rounded_once(name: str) -> None:
    """The float32 result on the same cells, rounded: at most a unit off, for float32 rounds too."""
    f, args = CALLS[name]
    short = [jnp.asarray(a, jnp.bfloat16) for a in args]
    y, wide = f(*short), f(*(a.astype(jnp.float32) for a in short))
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype(jnp.float32), wide, rtol=2**-8)


def test_refusals_are_those_of_the_composition() -> None:
    x = jnp.ones((2, 4, 3))
    with pytest.raises(ShapeError, match="groups must divide"):
        sg.group_norm(x, 3)
    with pytest.raises(ShapeError, match="last axes must be"):
        sg.layer_norm(x, (4,))
    with pytest.raises(ShapeError, match="empty"):
        sg.softmax(jnp.ones((2, 0)))
    with pytest.raises(ShapeError, match="empty"):
        sg.amin(jnp.ones((2, 0)), 1)
    with pytest.raises(ShapeError):
        sg.div(x, jnp.ones((5,)))
    with pytest.raises(ScalarError, match="P6"):
        sg.softmax(jnp.ones((2, 3), jnp.int32))
    with pytest.raises(ScalarError, match="P6"):
        sg.div(jnp.ones(2, jnp.int32), jnp.ones(2, jnp.int32))
