"""Declared errors of functions that no standard rounds correctly, per backend.

A bound is a number of units u relative to the result ("y"), or (number, scale) where the error is relative to
something else: "1" (absolute), "x" (the argument), "1+y". benchmarks/ulps.py measures them.
"""

from __future__ import annotations

from collections.abc import Mapping

Bound = float | tuple[float, str]
Table = Mapping[str, Bound]

_TORCH: Table = {
    "exp": 1.5,
    "log": 1.5,
    "sqrt": 1.2,  # MKL's, not the processor's
    "tanh": 1.5,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (2.5, "x"),
    "softplus": (1.5, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (1.5, "1"),
    "gelu": (7.0, "x"),
    "hardswish": (3.0, "x"),
    "power": 2.0,
}
_JAX: Table = {
    "exp": 6.0,  # 1.4 up to 88.3, where float32 ends at 88.72
    "log": 2.5,
    "sqrt": 1.0,
    "tanh": 8.0,
    "sin": (1.0, "1"),
    "cos": (1.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (3.0, "x"),
    "softplus": (2.0, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (2.5, "1"),
    "gelu": (3.0, "x"),
    "hardswish": (3.5, "x"),
    "power": 2.0,
}
_NUMPY: Table = {
    "exp": 4.0,
    "log": 5.0,
    "sqrt": 1.0,
    "tanh": 2.5,
    "sin": (2.0, "1"),  # 1.2 here; ONNX Runtime's, which has a table of its own, needs 1.7
    "cos": (2.0, "1"),
    "sigmoid": (2.0, "1"),
    "silu": (3.0, "x"),
    "softplus": (2.5, "1+y"),
    "normal_pdf": (1.5, "1"),
    "normal_cdf": (1.5, "1"),
    "gelu": (2.0, "x"),
    "hardswish": (3.0, "x"),
    "power": 2.0,
}

ULPS: Mapping[str, Table] = {"torch": _TORCH, "jax": _JAX, "numpy": _NUMPY}


def _size(bound: Bound) -> float:
    return bound[0] if isinstance(bound, tuple) else bound


ANY: Table = {name: max((t[name] for t in ULPS.values()), key=_size) for name in _TORCH}
"""The largest bound of all backends: for a runtime that nobody has measured."""
