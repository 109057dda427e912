"""The pair (rtol, atol) for numpy.testing.assert_allclose that no two executions of a class can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from specgrad.rounding.arithmetic import Format
from specgrad.scalar import Array, short

MAX_PAIR_SHARE = 0.75  # rtol > 0 is used if the pair allows at most this share of what atol alone would
ROUNDING_SLACK = 2.0**-50  # roundings of ours in one product and two sums


def allclose_pair(
    between: Sequence[Array], least: Sequence[Array], sizes: Sequence[Array], form: Format
) -> tuple[float, float]:
    """Return (rtol, atol) with between <= atol + rtol*least in every cell, as short decimals; (0, inf) if unbounded.

    between   no two executions are farther apart
    least     no execution is smaller in absolute value
    sizes     about how large they are: of all pairs the one that allows least on the average, atol + rtol*size
    form      of the arrays that will be compared: NumPy compares in it

    The test passes for any two executions a and b. With rtol = 0: abs(a - b) <= between <= atol, and rounding is
    monotone, so what NumPy computes of the left side, round(abs(a - b)), is at most what it has on the right one,
    round(atol). With rtol > 0 the right side is rounded four times (rtol, the product, atol, the sum), each time losing
    at most a factor 1 - u, and half the smallest number s where it is no normal number, which rtol is. So the pair is
    made for between*(1 + 8*u) + 4*s: (1 - u)**4 * (1 + 8*u) >= 1 + u for u <= 2**-8.

    >>> from specgrad.rounding import FORMATS
    >>> far, near = np.array([1e-6, 1e-3]), np.array([1.0, 1000.0])
    >>> allclose_pair([far], [near], [near], FORMATS["float32"])
    (1.01e-06, 0.0)
    >>> allclose_pair([far], [0 * near], [near], FORMATS["float32"])
    (0.0, 0.001)
    """
    far, near, size = (np.concatenate([np.ravel(a) for a in part]) for part in (between, least, sizes))
    top = float(far.max(initial=0.0))
    if not 0 < top < np.inf:
        return 0.0, top
    wide = np.where(far > 0, far * (1 + 8 * form.u) + 4 * form.smallest, 0.0)
    known, mean = near > 0, float(size.mean())
    steepest = float((wide[known] / near[known]).max(initial=0.0))
    rtol = short(_argmin_convex(lambda r: _required_atol(wide, near, r) + r * mean, steepest))
    atol = short(_required_atol(wide, near, rtol))
    if rtol < form.tiny or not atol + rtol * mean <= MAX_PAIR_SHARE * top:
        return 0.0, short(top)
    return rtol, atol


def _required_atol(far: Array, near: Array, rtol: float) -> float:
    """Return the least atol with far <= atol + rtol*near in every cell."""
    part = rtol * near
    return max(float((far - part + ROUNDING_SLACK * (far + part)).max()), 0.0)


def _argmin_convex(f: Callable[[float], float], high: float) -> float:
    """Return approximately where a convex function f on 0..high is least, by ternary search."""
    low = 0.0
    for _ in range(60):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if f(left) <= f(right) else (left, high)
    return high
