"""Compositions for which JAX has one function, or one that XLA runs in fewer passes.

A selector looks at shapes, types and settings, and returns the function to call; None where the composition runs, which
also raises the errors. Shorter floats (bfloat16) are computed in float32, and the result is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...ops.layout import axes_of
from ...window import Shape
from ..base import Kernel
from .lowerings import NOT_NUMBERS, quotient
from .pool import rounded_once
from .reductions import smallest

Array = jax.Array


def _are_floats(*values: Any) -> bool:
    """Return whether all `values` are arrays of one floating type; None is skipped."""
    given = [v for v in values if v is not None]
    if not all(isinstance(v, jax.Array) and v.dtype not in NOT_NUMBERS for v in given):
        return False
    return len({v.dtype for v in given}) == 1


def _has_cells(x: Any, axis: Any) -> bool:
    """Return whether x is floating and `axis` one of its axes with at least one cell."""
    return _are_floats(x) and type(axis) is int and -x.ndim <= axis < x.ndim and x.shape[axis] > 0


def softmax(x: Any, axis: int = -1) -> Kernel | None:
    """Return jax.nn.softmax along `axis` as a kernel; None if x is not floating or the axis is invalid."""
    return rounded_once(jax.nn.softmax) if _has_cells(x, axis) else None


def log_softmax(x: Any, axis: int = -1) -> Kernel | None:
    """Return jax.nn.log_softmax along `axis` as a kernel; None if x is not floating or the axis is invalid."""
    return rounded_once(jax.nn.log_softmax) if _has_cells(x, axis) else None


def gelu(x: Any, approximate: str = "none") -> Kernel | None:
    """Return a kernel for approximate="tanh", jax.nn.gelu; None for other arguments, as the exact gelu is an
    operator.
    """
    known = approximate == "tanh" and _are_floats(x)
    return rounded_once(lambda x, approximate: jax.nn.gelu(x, approximate=True)) if known else None


def amin(x: Any, axes: Any = None, *, keepdims: bool = False, ties: str = "split") -> Kernel | None:
    """Return one minimum over the axes, kept if `keepdims`, with the tie rule `ties` ("split" or "all"), as a kernel.

    None for invalid arguments or empty axes.
    """
    if not _are_floats(x) or ties not in ("all", "split"):
        return None
    at = axes_of("amin", axes, x.ndim)
    if any(x.shape[a] == 0 for a in at):
        return None
    y = partial(smallest, axes=at, ties=ties)
    return lambda x, *_, **__: jnp.expand_dims(y(x), at) if keepdims else y(x)


def _standardise_last(x: Array, eps: float) -> Array:
    """Return (x - mean) / sqrt(var + eps) along the last axis; var is of the centred x."""
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * (1 / jnp.sqrt(jnp.mean(centred * centred, -1, keepdims=True) + eps))


def _normalise_rest(x: Array, lead: Shape, weight: Array | None, bias: Array | None, eps: Any) -> Array:
    """Return x standardised over all but the `lead` axes, times weight plus bias, which broadcast with x.

    `eps` is added to the variance.
    """
    y = _standardise_last(x.reshape((*lead, math.prod(x.shape) // math.prod(lead))), float(eps)).reshape(x.shape)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Kernel | None:
    """Return a kernel of layer normalisation over the last axes `shape` in few passes; None if shapes or types do not
    fit.

    `weight` and `bias` have that shape or are None; `eps` is added to the variance.
    """
    tail = tuple(shape)
    fits = _are_floats(x, weight, bias) and x.size and tail and x.shape[max(0, x.ndim - len(tail)) :] == tail
    if not fits or any(v is not None and v.shape != tail for v in (weight, bias)):
        return None
    lead = x.shape[: x.ndim - len(tail)]
    run = rounded_once(lambda x, weight, bias: _normalise_rest(x, lead, weight, bias, eps))
    return lambda x, shape, weight=None, bias=None, **_: run(x, weight, bias)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: Any = 1e-5) -> Kernel | None:
    """Return a kernel of group normalisation in few passes; None if shapes or types do not fit.

    `weight` and `bias` have one number per channel or are None; `eps` is added to the variance.
    """
    fits = _are_floats(x, weight, bias) and x.ndim >= 2 and x.size and groups >= 1 and x.shape[1] % groups == 0
    if not fits or any(v is not None and v.shape != x.shape[1:2] for v in (weight, bias)):
        return None
    lead, each = (x.shape[0], groups), (x.shape[1], *(1,) * (x.ndim - 2))

    def beside(v: Array | None) -> Array | None:
        return None if v is None else v.reshape(each)

    run = rounded_once(lambda x, weight, bias: _normalise_rest(x, lead, beside(weight), beside(bias), eps))
    return lambda x, groups, weight=None, bias=None, **_: run(x, weight, bias)


def _binary_selector(call: Callable[[Array, Array], Array]) -> Callable[[Any, Any], Kernel | None]:
    """Return a selector for the binary function `call`: a function of two arrays that gives its kernel, or None if they
    do not broadcast.
    """

    def line(a: Any, b: Any) -> Kernel | None:
        if not _are_floats(a, b):
            return None
        try:
            jnp.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return None
        return call

    return line


COMPOSITES: dict[str, Callable[..., Any]] = {
    "div": _binary_selector(rounded_once(quotient)),  # whose divisor XLA inverts before it is broadcast
    "amin": amin,
    "gelu": gelu,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
}
"""(*args, **kwargs) -> a function of the same arguments, or None: the general way."""
