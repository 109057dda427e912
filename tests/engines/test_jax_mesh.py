"""Under jax.shard_map with its check of varying axes (`check_vma`, JAX's default): four devices, one batch.

Values, reverse mode and forward mode of the mapped function against the specification on the whole
batch. The devices must be asked for before JAX starts, so this file runs itself in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import specgrad as sg

DEVICES = 4
Case = Callable[[Any, Any], Any]
CASES: dict[str, Case] = {
    "conv": lambda w, x: sg.conv(w, None, x, stride=2, padding=1, groups=2),
    "conv with fewer cells than taps": lambda w, x: sg.conv(w, None, sg.slice(x, *TWO_CELLS), padding=1, groups=2),
    "conv_transpose": lambda w, x: sg.conv_transpose(w, None, x, stride=2, padding=1, groups=2),
    "conv of varying and of common arguments": lambda w, x: sg.conv(
        sg.mul(w, w), None, sg.relu(x), padding=1, groups=2
    ),
    "max_pool": lambda w, x: sg.max_pool(x, (3, 3), stride=2, padding=1),
    "max_pool stride 1, empty windows": lambda w, x: sg.max_pool(x, (2, 2), stride=1, padding=3),
    "max_pool of common values": lambda w, x: sg.add(sg.max_pool(sg.slice(w, slice(1), slice(1)), (3, 3)), x),
    "adaptive_max_pool": lambda w, x: sg.adaptive_max_pool(x, (4, 4)),
    "global_max_pool": lambda w, x: sg.global_max_pool(x, rank=2),
    "avg_pool": lambda w, x: sg.avg_pool(x, (2, 2), stride=2, padding=1),
    "avg_pool with many taps": lambda w, x: sg.avg_pool(x, (6, 6), stride=1, padding=3, divisor=1),
    "smooth_max_pool": lambda w, x: sg.smooth_max_pool(x, (3, 2), beta=2, stride=2, padding=1),
    "maximum": lambda w, x: sg.maximum(x, 1),
}
W, X = (4, 2, 3, 3), (8, 4, 6, 6)
TWO_CELLS = (None, None, slice(2), slice(2))


def integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float64)


def specified(case: Case, w: np.ndarray, x: np.ndarray) -> dict[str, Any]:
    """On the whole batch in NumPy: value, cotangents of w and x for gy = 2y + 1, tangent along (2w, x + 1)."""
    graph = sg.trace(case, w, x)
    y = graph(w, x)
    return {
        "value": y,
        "vjp": sg.vjp(graph)(w, x, 2 * y + 1)[1:],
        "jvp": sg.jvp(graph)(w, x, 2 * w, x + 1)[1],
    }


def mapped(case: Case, mesh: Any) -> Callable[..., dict[str, Any]]:
    """The same by JAX's own modes inside shard_map; w is common to all devices, so its cotangent is their sum."""
    import jax
    from jax.sharding import PartitionSpec

    whole, split = PartitionSpec(), PartitionSpec("batch")

    def vjp(w: Any, x: Any) -> Any:
        y, pull = jax.vjp(case, w, x)
        return pull(2 * y + 1)

    tangent = lambda w, x: jax.jvp(case, (w, x), (2 * w, x + 1))[1]
    modes = {"value": (case, split), "vjp": (vjp, (whole, split)), "jvp": (tangent, split)}
    over = {m: jax.shard_map(f, mesh=mesh, in_specs=(whole, split), out_specs=out) for m, (f, out) in modes.items()}
    return jax.jit(lambda w, x: {mode: f(w, x) for mode, f in over.items()})


def check(name: str, mesh: Any) -> None:
    import jax

    w, x = integers(W, 0), integers(X, 1)
    want = specified(CASES[name], w, x)
    for mode, found in mapped(CASES[name], mesh)(w, x).items():
        for got, exact in zip(jax.tree.leaves(found), jax.tree.leaves(want[mode]), strict=True):
            tolerance = 2.0**-40 if name == "smooth_max_pool" else 0
            np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance, err_msg=f"{name}, {mode}")


def check_compiled(mesh: Any) -> None:
    """Derivative graphs, whose winners are shared; the cotangent varies where x does not, and the other way round."""
    import jax
    from jax.sharding import PartitionSpec

    whole, split = PartitionSpec(), PartitionSpec("batch")
    graph = sg.trace(lambda x: sg.max_pool(x, (2, 2), stride=1), (2, 4, 5, 5))
    step = sg.compile(graph, "jax", "vjp")
    x, gy = integers((8, 4, 5, 5), 2), integers((8, 4, 4, 4), 3)
    for which in ((split, split), (split, whole), (whole, split)):
        given = [a if spec == split else a[:2] for a, spec in zip((x, gy), which, strict=True)]
        f = jax.shard_map(step, mesh=mesh, in_specs=which, out_specs=(which[0], split))
        everywhere = [a if spec == split else np.concatenate([a] * 4) for a, spec in zip(given, which, strict=True)]
        want = sg.vjp(sg.trace(lambda x: sg.max_pool(x, (2, 2), stride=1), x))(*everywhere)
        np.testing.assert_array_equal(jax.jit(f)(*given)[1], want[1])


def check_all() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)  # each program runs once
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
    assert mesh.size == DEVICES
    for name in CASES:
        check(name, mesh)
        print(name)
    check_compiled(mesh)
    print("compiled")


@pytest.mark.skipif(find_spec("jax") is None, reason="needs jax")
def test_four_devices() -> None:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
    run = subprocess.run([sys.executable, __file__], env=env, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [*CASES, "compiled"]


if __name__ == "__main__":
    check_all()
