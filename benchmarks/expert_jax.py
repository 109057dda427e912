"""The layers of `jax_layers` as an expert of JAX writes them for XLA's CPU: the baseline that is hard to beat.

What XLA's convolution is slow at is said otherwise, in one line each:

    depthwise   a sum of shifted slices, each times the weight of its tap
    1x1         a matrix product over the channels

All other layers are those of plain JAX (`jax_layers.Bare`), in both layouts.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import add

import jax
import jax.numpy as jnp

from jax_layers import Bare, Value


class Expert(Bare):
    """Plain JAX, depthwise convolutions as shifted sums, kernels of one cell as matrix products."""

    def conv(self, x: Value, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Value:
        if k > 1 and groups in (1, self.channels(x)) and groups != out:
            return super().conv(x, out, k, stride, groups, bias)
        (w,) = self.take(1)
        y = self._pointwise(x, w, stride) if k == 1 else self._depthwise(x, w, k, stride)
        return y + self._per_channel(self.take(1)[0]) if bias else y

    def _pointwise(self, x: jax.Array, w: jax.Array, stride: int) -> jax.Array:
        x = x[self._over(slice(None, None, stride), slice(None))]
        if self.last:
            return x @ w.reshape(w.shape[-2:])
        n, c, *cells = x.shape
        weight = jnp.broadcast_to(w.reshape(w.shape[:2]), (n, *w.shape[:2]))
        return (weight @ x.reshape((n, c, -1))).reshape((n, w.shape[0], *cells))

    def _depthwise(self, x: jax.Array, w: jax.Array, k: int, stride: int) -> jax.Array:
        x = jnp.pad(x, self._over((k // 2, k // 2), (0, 0)))
        cells = x.shape[1:-1] if self.last else x.shape[2:]

        def tap(*at: int) -> jax.Array:
            read = tuple(slice(t, t + n - k + 1, stride) for t, n in zip(at, cells, strict=True))
            weight = w[(*at, 0)] if self.last else self._per_channel(w[(slice(None), 0, *at)])
            read = (slice(None), *read) if self.last else (slice(None), slice(None), *read)
            return x[read] * weight

        return reduce(add, (tap(*at) for at in product(range(k), repeat=self.rank)))
