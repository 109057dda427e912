"""Rows of an image cut over 8 devices: what crosses between them, ours and XLA's automatic sharding, read in the HLO.

    python benchmarks/sharding_jax.py > benchmarks/sharding_jax.txt

A network of a 3 x 3 convolution, a padded maximum, a dilated convolution, a transposed one and a skip at 512 x 128, one
step forward and its gradient. Bytes are those that all devices receive: of a collective permutation its shape once per
pair, of an all-gather what each device lacks, of an all-reduce twice its shape less one share (a ring). Each kind of
sharding runs in a process of its own, for XLA may end it. Host devices share our cores: their seconds say nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from math import prod
from typing import Any

DEVICES, HEIGHT, WIDTH = 8, 512, 128
SHAPES = {"first": (8, 3, 3, 3), "dilated": (8, 8, 3, 3), "up": (8, 8, 2, 2), "last": (4, 16, 3, 3)}
BYTES = {"f64": 8, "f32": 4, "s64": 8, "s32": 4, "u32": 4, "pred": 1}


def net(p: Any, x: Any) -> Any:
    import specgrad as sg

    y = sg.relu(sg.conv(p["first"], None, x, padding=1))
    z = sg.max_pool(y, (3, 3), stride=2, padding=1)
    z = sg.conv_transpose(p["up"], None, sg.relu(sg.conv(p["dilated"], None, z, padding=2, dilation=2)), stride=2)
    return sg.conv(p["last"], None, sg.concat([y, z], 1), padding=1)


def by_hand() -> int:
    """Rows that cross one border: both ways for convolutions, one for the maximum, which reads one row before it."""
    each = 3 * WIDTH * 2 + 8 * WIDTH * 1 + 8 * (WIDTH // 2) * 4 + 16 * WIDTH * 2
    return 4 * each * (DEVICES - 1)


def received(text: str) -> dict[str, tuple[int, int]]:
    """Of a compiled program: kind of collective -> (how many, bytes)."""
    totals: dict[str, tuple[int, int]] = {}
    kinds = "collective-permute|all-gather|all-reduce|all-to-all|reduce-scatter"
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({kinds})(?:-start)?\(", line)
        if match is None:
            continue
        shapes = re.findall(r"(\w+)\[([0-9,]*)\]", match[1])
        size = sum(BYTES[t] * prod(int(n) for n in s.split(",") if n) for t, s in shapes)
        pairs = re.search(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}", line)
        factor = {
            "collective-permute": pairs[1].count("{") if pairs else 0,
            "all-reduce": 2 * (DEVICES - 1),
        }.get(match[2], DEVICES - 1)
        count, total = totals.get(match[2], (0, 0))
        totals[match[2]] = count + 1, total + size * factor
    return totals


def measure(kind: str) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import specgrad as sg

    mesh = Mesh(np.array(jax.devices()), ("rows",))
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, None, "rows"))
    graph = sg.trace(net, SHAPES, (1, 3, HEIGHT, WIDTH))
    rng = np.random.default_rng(0)
    integers = lambda s: rng.integers(-1, 2, s).astype(np.float32)
    p, x = {name: integers(s) for name, s in SHAPES.items()}, integers((1, 3, HEIGHT, WIDTH))
    gy = integers((1, 4, HEIGHT, WIDTH))
    one = sg.compile(graph, "jax")
    ours = sg.compile(graph, "jax", mesh=mesh, split=PartitionSpec(None, None, "rows"))
    f = ours if kind == "ours" else one

    def gradient(f: Any) -> Any:
        return jax.grad(lambda p, x, gy: jnp.sum(f(p, x) * gy), (0, 1))

    if kind == "ours":
        print(f"{'least, by hand':16} forward: {by_hand():,} bytes; planned: {4 * ours.cells_moved:,}")
    forward = jax.jit(f, in_shardings=(whole, split), out_shardings=split).lower(p, x).compile()
    report(kind, "forward", forward, np.array_equal(forward(*placed(p, whole), *placed(x, split)), one(p, x)))
    shardings = {"in_shardings": (whole, split, split), "out_shardings": (whole, split)}
    back = jax.jit(gradient(f), **shardings).lower(p, x, gy).compile()
    got = back(*placed(p, whole), *placed(x, split), *placed(gy, split))
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(jax.jit(gradient(one))(p, x, gy)), strict=True)
    report(kind, "gradient", back, all(np.array_equal(a, b) for a, b in pairs))


def placed(tree: Any, sharding: Any) -> tuple[Any]:
    import jax

    return (jax.device_put(tree, sharding),)


def report(kind: str, what: str, compiled: Any, equal: bool) -> None:
    totals = received(compiled.as_text())
    each = "; ".join(f"{n} {name}, {size:,} bytes" for name, (n, size) in sorted(totals.items()))
    memory = compiled.memory_analysis().temp_size_in_bytes / 2**20
    verdict = "equal to one device" if equal else "DIFFERS from one device"
    print(f"{kind:16} {what}: {each}; {memory:.1f} MB of temporaries per device; {verdict}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        flags = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
        for kind in ("ours", "automatic"):
            done = subprocess.run(
                [sys.executable, __file__, kind], env=os.environ | flags, capture_output=True, text=True
            )
            print(done.stdout, end="")
            if done.returncode:
                print(f"{kind:16} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1][:200]}")
