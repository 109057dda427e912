"""Maxima and minima over entire axes, whose derivative goes to every winner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from specgrad.window import Shape

Array = jax.Array


def _over_axes(reduce: Callable[..., Array]) -> Callable[..., Array]:
    """Return `reduce` over axes with a derivative at ties: shared evenly ("split") or all to each ("all").

    NaNs are the winners if there are any ([P1]).
    """

    @partial(jax.custom_jvp, nondiff_argnums=(1, 2))
    def run(x: Array, axes: Shape, ties: str) -> Array:
        return reduce(x, axis=axes)

    @run.defjvp
    def _(axes: Shape, ties: str, args: tuple[Array], dargs: tuple[Array]) -> tuple[Array, Array]:
        (x,), (dx,) = args, dargs
        y = run(x, axes, ties)
        wins = (x == jnp.expand_dims(y, axes)) | (x != x)
        total = jnp.sum(jnp.where(wins, dx, jnp.zeros((), dx.dtype)), axis=axes)
        if ties == "all":
            return y, total
        count = jnp.sum(wins, axis=axes, dtype=jnp.int32)  # XLA adds integers many at a time, and floats one by one
        return y, total / count.astype(y.dtype)

    return run


_max, _min = _over_axes(jnp.max), _over_axes(jnp.min)


def largest(x: Array, *, axes: Shape, ties: str) -> Any:
    """Return the maximum over `axes`, whose derivative at `ties` is "split" or goes to "all"; x itself without axes."""
    return _max(x, axes, ties) if axes else x


def smallest(x: Array, *, axes: Shape, ties: str) -> Any:
    """Return the minimum over `axes`, whose derivative at `ties` is "split" or goes to "all"; x itself without axes."""
    return _min(x, axes, ties) if axes else x
