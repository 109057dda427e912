"""Networks as an expert of JAX writes them for XLA's CPU, beside plain JAX and ours: the baseline that is hard to beat.

    python benchmarks/expert_networks_jax.py [--only PART ...] [--again]     one thread, CPU time, interleaved

What XLA's convolution is slow at the expert says otherwise, in one line each; all else is plain (`jax_layers.Bare`):

    depthwise   a sum of shifted slices, each times the weight of its tap
    1x1         a matrix product over the channels

Six programs per network, size and direction: plain, expert and ours, in both layouts; weights lie OIHW for NCHW and
HWIO for NHWC, but ours are always OIHW, and are turned in every call. What counts is ours against the faster of the
other two in the same layout. Rows go to benchmarks/results/expert_networks_jax.jsonl.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial, reduce
from itertools import product
from operator import add
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_layers import NETWORKS, Bare, Value
from jax_ops import one_thread
from law_networks_jax import Row, interleaved, our_program, turned, values

STORE = Path(__file__).parent / "results" / "expert_networks_jax.jsonl"
SIZES = (1, 3, 224, 224), (8, 3, 128, 128)
OWN_SIZES = {"LeNet": ((32, 1, 28, 28), (8, 1, 64, 64)), "3-D CNN": ((2, 1, 16, 16, 16), (1, 1, 32, 32, 32))}


class Expert(Bare):
    """Plain JAX, depthwise convolutions as shifted sums, kernels of one cell as matrix products."""

    def conv(self, x: Value, out: int, k: int, stride: int = 1, groups: int = 1, bias: bool = False) -> Value:
        if k > 1 and groups != out:
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
            read = [slice(t, t + n - k + 1, stride) for t, n in zip(at, cells, strict=True)]
            if self.last:
                return x[(slice(None), *read)] * w[(*at, 0)]
            return x[(slice(None), slice(None), *read)] * self._per_channel(w[(slice(None), 0, *at)])

        return reduce(add, (tap(*at) for at in product(range(k), repeat=self.rank)))


def plain_program(layers: type[Bare], name: str, direction: str, last: bool) -> Any:
    """The network over these layers, jitted: its value, or the loss and the gradients of all parameters."""
    rank, net = NETWORKS[name].rank, NETWORKS[name].net
    run = lambda params, x: net(layers(params, rank, last), x)
    if direction == "forward":
        return jax.jit(run)
    return jax.jit(jax.value_and_grad(lambda p, x: jnp.mean(run(p, x) ** 2)))


def measure(name: str, shape: tuple[int, ...], direction: str) -> Iterator[Row]:
    """One row per layout; values compared before any time is taken."""
    rank, sides = NETWORKS[name].rank, {"plain": Bare, "expert": Expert, "ours": None}
    shapes, params, image = values(name, shape)
    first, kernels = [jnp.asarray(p) for p in params], [jnp.asarray(turned(p, rank)) for p in params]
    images = {False: jnp.asarray(image), True: jnp.asarray(np.moveaxis(image, 1, -1))}
    programs, compiling = {}, {}
    for last, (side, layers) in product((False, True), sides.items()):
        given = (kernels if last and layers else first), images[last]
        start = time.process_time()
        made = plain_program(layers, name, direction, last) if layers else None
        compiled = (made or our_program(name, direction, last, shapes, shape)).lower(*given).compile()
        programs[side, last], compiling[side, last] = partial(compiled, *given), time.process_time() - start
    want = np.asarray(jax.tree.leaves(programs["plain", False]())[0])
    for (_, last), run in programs.items():
        got = np.asarray(jax.tree.leaves(run())[0])
        got = np.moveaxis(got, -1, 1) if last and got.ndim == rank + 2 else got
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * float(np.abs(want).max()))
    times = dict(zip(programs, interleaved([*programs.values()]), strict=True))
    for last in (False, True):
        row = {"network": name, "size": "x".join(map(str, shape)), "direction": direction}
        seconds = {side: times[side, last] for side in sides}
        yield (
            row | {"layout": "NHWC" if last else "NCHW"} | seconds | {f"{s}_compile": compiling[s, last] for s in sides}
        )


def text(row: Row) -> str:
    what = f"{row['network']:14}{row['size']:>14} {row['direction']:8}{row['layout']}"
    times = "".join(f"  {side} {1e3 * row[side]:8.2f} ms" for side in ("plain", "expert", "ours"))
    seconds = " ".join(f"{row[f'{side}_compile']:.1f}" for side in ("plain", "expert", "ours"))
    return f"{what}{times}{min(row['plain'], row['expert']) / row['ours']:7.2f}x   compile {seconds} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[""], help="parts of 'network size direction', any of them")
    parser.add_argument("--again", action="store_true", help="measure rows that are stored, too")
    options = parser.parse_args()
    one_thread()
    stored = [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []
    key = lambda row: (row["network"], row["size"], row["direction"])
    every = [
        (n, s, d) for d in ("forward", "step") for i in (0, 1) for n in NETWORKS for s in [OWN_SIZES.get(n, SIZES)[i]]
    ]
    for name, shape, direction in every:
        wanted = (name, "x".join(map(str, shape)), direction)
        known = any(key(row) == wanted for row in stored) and not options.again
        if known or not any(part in " ".join(wanted) for part in options.only):
            continue
        stored = [row for row in stored if key(row) != wanted]
        for row in measure(name, shape, direction):
            stored.append(row)
            print(text(row), flush=True)
        STORE.write_text("".join(json.dumps(row) + "\n" for row in stored))
        jax.clear_caches()


if __name__ == "__main__":
    main()
