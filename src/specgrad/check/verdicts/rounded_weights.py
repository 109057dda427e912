"""Name the rounding of a layer's weights that explains its errors: an estimate, as what is usual is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.scalar import Array

from .usual import usual_of


def rounded_to_bits(w: Array, bits: int) -> Array:
    """Return numbers rounded to so many significant bits, ties to even, in float32."""
    mantissa, exponent = np.frexp(w.astype(np.float64))
    return np.asarray(np.ldexp(np.rint(mantissa * 2.0**bits), exponent - bits), np.float32)


def _as_float16(w: Array) -> Array:
    """Return numbers rounded to float16, subnormal ones and overflow included."""
    with np.errstate(over="ignore"):
        return w.astype(np.float16).astype(np.float32)


def _as_int16(w: Array) -> Array:
    """Return weights as whole multiples of a scale per first axis, of which the largest weight has 32767."""
    largest = np.abs(w).max(axis=tuple(range(1, w.ndim)), keepdims=True).astype(np.float64)
    scale = np.where(largest > 0, largest, 1.0) / 32767
    return np.asarray(np.rint(w / scale) * scale, np.float32)


ROUNDED: dict[str, Callable[[Array], Array]] = {
    "11 bits, as float16 and TF32 have": lambda w: rounded_to_bits(w, 11),
    "float16": _as_float16,
    "bfloat16": lambda w: rounded_to_bits(w, 8),
    "int16 per channel": _as_int16,
}


def weights_rounded_to(part: Graph, given: Sequence[Array], got: Array, known: Array, backend: str) -> str:
    """Return the first format to which the layer's weights seem to have been rounded; "" if none explains its errors.

    part, given, got, known   as `usual_of` has them
    backend   "numpy" or "torch", computes what is usual

    >>> import specgrad as sg
    >>> rng = np.random.default_rng(0)
    >>> w, x = np.float32(rng.normal(size=(8, 64))), rng.normal(size=(16, 64)).astype(np.float32)
    >>> layer = sg.trace(lambda x: sg.linear(w, None, x), (16, 64))
    >>> weights_rounded_to(layer, [x], x @ rounded_to_bits(w, 8).T, np.ones((16, 8), bool), "numpy")
    'bfloat16'
    """
    weights = {p: c for p, c in part.constants.items() if c.dtype == np.float32 and sum(n > 1 for n in c.shape) > 1}
    for name, change in ROUNDED.items() if weights else ():
        other = replace(part, constants={**part.constants, **{p: change(c) for p, c in weights.items()}})
        usual = usual_of(other, given, got, known, backend)
        if usual is not None and not usual.reasons:
            return name
    return ""
