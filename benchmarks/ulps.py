"""Measure the worst error of exp, log, tanh, ... on NumPy, PyTorch and JAX: what specgrad.declared_errors rests on.

    python benchmarks/ulps.py | tee benchmarks/ulps.txt            # about five minutes on two idle cores

float32: every 101st bit pattern of all 2**32, whatever its exponent, and every 3rd where functions bend or overflow,
against a float64 run; float16 and bfloat16: all
2**16; float64: 5,000 patterns against balls of python-flint, which also measure the float64 reference itself. An error
is counted in units u * scale beyond the smallest normal number, which every bound allows; "y" is relative to the
result, "1" absolute, "x" relative to the argument. The last column is what the record declares.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flint
import jax
import jax.numpy as jnp
import numpy as np
import torch

import specgrad as sg
from specgrad.declared_errors import as_pair, declared
from specgrad.op import REGISTRY, apply, run_spec
from specgrad.rounding import FORMATS

jax.config.update("jax_enable_x64", True)
STEP, CHUNK, DOUBLES = 101, 1 << 21, 5_000
SLOW = 64  # NumPy has no erf: the specification calls Python's, so it sees every 64th number only

PARAMS: dict[str, list[dict[str, Any]]] = {
    "softplus": [{"beta": 1}, {"beta": 2}, {"beta": 0.5}],
    "power": [{"exponent": e} for e in (0.75, -1.25, 3.75, 0.3125)],
}
FUNCTIONS = {op.name: PARAMS.get(op.name, [{}]) for op in REGISTRY.values() if op.errors is not None}
ODD = {"normal_cdf", "gelu"}  # functions that NumPy lacks


# Most of a format's numbers are far from where a function bends; here every 3rd float32 is tried.
CLOSE = [(0.4, 2.5), (2.5, 4.0), (88.3, 88.75), (-88.75, -86.0), (-4.0, -0.4)]


def close_up() -> Iterator[np.ndarray]:
    for low, high in CLOSE:
        first, last = sorted(np.array([low, high], dtype=np.float32).view(np.uint32).tolist())
        yield np.arange(first, last, 3, dtype=np.uint32).view(np.float32)


def patterns(dtype: str) -> Iterator[np.ndarray]:
    """Numbers of a format, by their bits, in chunks; as float32 for bfloat16."""
    if dtype in ("float16", "bfloat16"):
        bits = np.arange(1 << 16, dtype=np.uint32)
        yield bits.astype(np.uint16).view(np.float16) if dtype == "float16" else (bits << 16).view(np.float32)
    else:
        for first in range(0, 1 << 32, STEP * CHUNK):
            last = min(1 << 32, first + STEP * CHUNK)
            yield np.arange(first, last, STEP, dtype=np.uint64).astype(np.uint32).view(np.float32)
        yield from close_up()


# --- who computes -----------------------------------------------------------------------------------------------


def by_numpy(name: str, params: dict[str, Any], x: np.ndarray, dtype: str) -> np.ndarray | None:
    return None if dtype == "bfloat16" else run_spec(REGISTRY[name], [x], params).astype(np.float64)


def by_torch(name: str, params: dict[str, Any], x: np.ndarray, dtype: str) -> np.ndarray:
    given = torch.from_numpy(x).to(getattr(torch, dtype))
    return apply(REGISTRY[name], given, **params).double().numpy()


def by_jax(name: str, params: dict[str, Any], x: np.ndarray, dtype: str) -> np.ndarray:
    given = jnp.asarray(x.astype(np.dtype(getattr(jnp, dtype))))
    return np.asarray(compiled(name, tuple(params.items()))(given)).astype(np.float64)


BACKENDS: dict[str, Callable[..., np.ndarray | None]] = {"numpy": by_numpy, "torch": by_torch, "jax": by_jax}


@functools.cache
def compiled(name: str, which: tuple[tuple[str, Any], ...]) -> Callable[[Any], Any]:
    return jax.jit(lambda v: apply(REGISTRY[name], v, **dict(which)))


def reference(name: str, params: dict[str, Any], x: np.ndarray) -> np.ndarray:
    return by_torch(name, params, x.astype(np.float64), "float64")


@functools.cache
def double_case(name: str, which: int) -> tuple[np.ndarray, np.ndarray]:
    """float64 numbers between 2**-60 and 2**12, where the functions are not trivial, and balls around the results."""
    rng = np.random.default_rng(1)
    x = np.ldexp(rng.uniform(1, 2, DOUBLES), rng.integers(-60, 12, DOUBLES)) * rng.choice((-1, 1), DOUBLES)
    x = x[in_domain(name, x, "float64")]
    return x, run_spec(REGISTRY[name], [sg.balls(x)], FUNCTIONS[name][which])


# --- errors -----------------------------------------------------------------------------------------------------


def scaled(kind: str, x: np.ndarray, y: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    unit = 1 / float(params.get("beta", 1))
    return {"y": np.abs(y), "1": np.full(y.shape, unit), "x": np.abs(x), "1+y": unit + np.abs(y)}[kind]


def worst(got: np.ndarray, want: np.ndarray, x: np.ndarray, kind: str, params: dict[str, Any], dtype: str) -> float:
    """The largest error in units, over the cells where the result is a number of the format."""
    form = FORMATS[dtype]
    usable = np.isfinite(want) & (np.abs(want) < form.largest * (1 - 2 * form.u)) & np.isfinite(x)
    with np.errstate(all="ignore"):
        error = np.maximum(np.abs(got - want) - form.tiny, 0.0)
        units = error / (form.u * scaled(kind, x, want, params))
    units = np.where(error == 0, 0.0, units)[usable]
    return float(units.max(initial=0.0))


def measure(backend: str, name: str, dtype: str) -> float:
    found = 0.0
    kind = as_pair(declared(backend)[name])[1]
    for params in FUNCTIONS[name]:
        for x in patterns(dtype):
            if backend == "numpy" and name in ODD:
                x = x[::SLOW]
            with np.errstate(invalid="ignore"):
                x = x[in_domain(name, x.astype(float), dtype)]
            got = BACKENDS[backend](name, params, x, dtype)
            if got is None:
                return float("nan")
            wide = x.astype(np.float64)
            found = max(found, worst(got, reference(name, params, wide), wide, kind, params, dtype))
    return found


def in_domain(name: str, x: np.ndarray, dtype: str) -> np.ndarray:
    """Where the function is defined, and no intermediate result of any formula overflows."""
    if name in ("log", "sqrt", "power"):
        return x > FORMATS[dtype].tiny
    return np.isfinite(x) & (np.abs(x) < FORMATS[dtype].largest / 16)


def measure_double(backend: str, name: str, kind: str) -> float:
    """float64 against balls."""
    found, form = 0.0, FORMATS["float64"]
    for which, params in enumerate(FUNCTIONS[name]):
        x, want = double_case(name, which)
        got = BACKENDS[backend](name, params, x, "float64")
        for g, v, size in zip(got, want, scaled(kind, x, got, params), strict=True):
            if np.isfinite(g) and size > form.tiny:
                found = max(found, float(abs(v - sg.balls(g).item())) / form.u / float(size))
    return found


def main() -> None:
    flint.ctx.prec = 200
    torch.set_num_threads(2)
    versions = f"NumPy {np.__version__}, PyTorch {torch.__version__}, JAX {jax.__version__}"
    print(f"{versions}; {torch.backends.cpu.get_cpu_capability()}")
    count = sum(x.size for x in patterns("float32"))
    print(f"float32: {count:,} patterns; float16, bfloat16: 65,536; float64: 5,000 numbers")
    columns = ("float32", "float16", "bfloat16", "float64")
    print(f"{'function':12}{'backend':9}{'scale':7}" + "".join(f"{c:>10}" for c in columns) + f"{'declared':>10}")
    for name in sys.argv[1:] or FUNCTIONS:
        for backend in BACKENDS:
            bound, kind = as_pair(declared(backend)[name])  # of a new function: the largest of what is stated so far
            cells = [measure(backend, name, dtype) for dtype in columns[:3]]
            cells.append(measure_double(backend, name, kind))
            print(
                f"{name:12}{backend:9}{kind:7}"
                + "".join(f"{c:10.3f}" if c == c else f"{'-':>10}" for c in cells)
                + f"{bound:10.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
