"""Random layers along one axis, which jax.jit's in_shardings splits over 8 devices: which gradients are wrong?

    python xla-hunt.py [how many]

Plain JAX: convolutions, transposed convolutions, windows of sums and maxima. Small integers in float32, so that every
sum is exact, and no ties: all numbers must be those of one device. A child process does the work: when XLA ends it,
that is an answer too, and the next child goes on behind it.
"""

from __future__ import annotations

import collections
import os
import random
import subprocess
import sys
from functools import partial
from typing import Any

KINDS = ("conv", "conv_transpose", "sum", "max")


def configuration(seed: int) -> dict[str, Any]:
    r = random.Random(seed)
    kind = r.choice(KINDS)
    c = {"N": 8 * r.randint(1, 5), "k": r.randint(1, 4), "s": r.randint(1, 3), "d": r.randint(1, 2)}
    c["d"] = 1 if kind == "max" else c["d"]  # JAX has no gradient of dilated maxima
    span = c["d"] * (c["k"] - 1) + 1
    return {"kind": kind, **c, "lo": r.randint(0, span - 1), "hi": r.randint(0, span - 1)}


def layer(kind: str, k: int, s: int, d: int, lo: int, hi: int) -> Any:
    import jax.numpy as jnp
    from jax import lax

    window = ((1, 1, k), (1, 1, s), [(0, 0), (0, 0), (lo, hi)], None, (1, 1, d))
    conv = partial(lax.conv_general_dilated, rhs_dilation=(d,), dimension_numbers=("NCH", "OIH", "NCH"))
    return {
        "conv": lambda w, x: conv(x, w, (s,), [(lo, hi)]),
        "conv_transpose": lambda w, x: conv(x, w, (1,), [(lo, hi)], lhs_dilation=(s,)),
        "sum": lambda w, x: lax.reduce_window(x, 0.0, lax.add, *window) * w.sum(),
        "max": lambda w, x: lax.reduce_window(x, -jnp.inf, lax.max, *window) * w.sum(),
    }[kind]


def answer(c: dict[str, Any]) -> str:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("rows",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, None, "rows"))
    f = layer(**{name: c[name] for name in ("kind", "k", "s", "d", "lo", "hi")})
    w = np.arange(1, c["k"] + 1, dtype=np.float32).reshape(1, 1, -1)
    x = np.random.default_rng(0).permutation(c["N"]).astype(np.float32).reshape(1, 1, -1)
    gy = (np.arange(f(w, x).size, dtype=np.float32) % 5).reshape(1, 1, -1)

    def both(w, x):
        y, pull = jax.vjp(f, w, x)
        return y, *pull(jnp.asarray(gy))

    one = jax.jit(both)(w, x)
    many = jax.jit(both, in_shardings=(whole, split))(w, x)
    if c["kind"] == "conv":  # one device is right, by the definition
        padded = np.pad(x[0, 0], (c["lo"], c["hi"]))
        exact = [sum(gy[0, 0, o] * padded[c["s"] * o + c["d"] * t] for o in range(gy.size)) for t in range(c["k"])]
        assert np.asarray(one[1]).ravel().tolist() == exact
    names = ("value", "gradient of w", "gradient of x")
    wrong = [n for n, a, b in zip(names, one, many, strict=True) if not np.array_equal(a, b)]
    return f"{c['kind']}, wrong: {', '.join(wrong)}" if wrong else "right"


def hunt(count: int) -> None:
    answers: collections.Counter[str] = collections.Counter()
    first = 0
    while first < count:
        child = subprocess.run([sys.executable, __file__, str(first), str(count)], capture_output=True, text=True)
        lines = [line.split(" ", 1) for line in child.stdout.splitlines()]
        done = {int(seed): text for seed, text in lines if text != "begins"}
        begun = max(int(seed) for seed, _ in lines)
        if child.returncode and begun not in done:
            why = next((line for line in child.stderr.splitlines() if "Check fail" in line or "Error" in line), "")
            done[begun] = f"XLA ended the process (code {child.returncode}) {why.split('] ')[-1][:110]}".rstrip()
        for seed, text in done.items():
            answers[text] += 1
            if text != "right":
                print(seed, configuration(seed), text, flush=True)
        first = begun + 1
    for text, n in answers.most_common():
        print(f"{n} of {count}: {text}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        hunt(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
    else:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            print(number, "begins", flush=True)
            print(number, answer(configuration(number)), flush=True)
