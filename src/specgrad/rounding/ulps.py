"""Declared errors of functions that no standard rounds correctly, per backend.

A bound is a number of units u relative to the result ("y"), or (number, scale) where the error is relative to
something else: "1" (absolute), "x" (the argument), "1+y". benchmarks/ulps.py measures them.
"""

from __future__ import annotations

from collections.abc import Mapping

Bound = float | tuple[float, str]
Table = Mapping[str, Bound]

_TORCH: Table = {
    "exp": 3.0,
    "log": 4.0,
    "sqrt": 1.0,
    "tanh": 4.0,
    "sigmoid": (4.0, "1"),
    "silu": (6.0, "x"),
    "softplus": (8.0, "1+y"),
    "normal_pdf": (6.0, "1"),
    "normal_cdf": (4.0, "1"),
    "gelu": (6.0, "x"),
    "hardswish": (4.0, "x"),
    "power": 4.0,
}
_JAX: Table = _TORCH
_NUMPY: Table = {**_TORCH, "exp": 4.0, "log": 4.5}

ULPS: Mapping[str, Table] = {"torch": _TORCH, "jax": _JAX, "numpy": _NUMPY}


def _size(bound: Bound) -> float:
    return bound[0] if isinstance(bound, tuple) else bound


ANY: Table = {name: max((t[name] for t in ULPS.values()), key=_size) for name in _TORCH}
"""The largest bound of all backends: for a runtime that nobody has measured."""
