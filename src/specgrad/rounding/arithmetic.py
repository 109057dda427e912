"""Floating-point formats, and the arithmetic a runtime declares to compute in.

A format is its unit roundoff u, its smallest normal and subnormal number, and its largest number; every correctly
rounded operation gives (exact result) * (1 + d) + e with abs(d) <= u and abs(e) <= smallest / 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..scalar import Array
from .ulps import ANY, Bound


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `digits` significant bits, exponents of normal numbers from `lowest`."""

    name: str
    digits: int
    lowest: int
    highest: int

    @property
    def u(self) -> float:
        """The unit roundoff: half the distance from 1 to the next number."""
        return float(2.0**-self.digits)

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return float(2.0**self.lowest)

    @property
    def smallest(self) -> float:
        """The smallest subnormal number."""
        return float(2.0 ** (self.lowest - self.digits + 1))

    @property
    def largest(self) -> float:
        return float((2.0 - 2.0 ** (1 - self.digits)) * 2.0**self.highest)

    def holds(self, x: Array) -> Array:
        """Where x (float64) is a number of this format; infinities and NaN are.

        >>> FORMATS["bfloat16"].holds(np.array([1.0, 1.00390625, 257.0, 256.0]))
        array([ True, False, False,  True])
        """
        exponent = np.maximum(np.frexp(x)[1] - 1, self.lowest)
        step = np.ldexp(1.0, exponent - (self.digits - 1))
        with np.errstate(all="ignore"):
            whole = np.ldexp(x, -(exponent - (self.digits - 1)))
        fits = (whole == np.rint(whole)) & (np.abs(x) <= self.largest) & (step > 0)
        return np.asarray(fits | ~np.isfinite(x))


FORMATS = {
    "float16": Format("float16", 11, -14, 15),
    "bfloat16": Format("bfloat16", 8, -126, 127),
    "float32": Format("float32", 24, -126, 127),
    "float64": Format("float64", 53, -1022, 1023),
    "real": Format("real", 2000, -1074, 1023),  # u = 0 and no largest number: what is left is our own float64 error
}
REFERENCE = FORMATS["float64"]


@dataclass(frozen=True)
class Arithmetic:
    """How a runtime computes: what it stores, what it accumulates in, and what it does to subnormal numbers.

    dtype        the format of every stored value: "float32", "float16", "bfloat16", "float64"; "real": no rounding
    accumulate   the format of sums and products before the result is stored; None: the same, in any order
    flush        subnormal operands and results may count as zero
    ulps         per function (exp, log, tanh, ...) the declared error: see `specgrad.rounding.ULPS`

    >>> Arithmetic("bfloat16", accumulate="float32").u
    0.00390625
    """

    dtype: str = "float32"
    accumulate: str | None = None
    flush: bool = False
    ulps: Mapping[str, Bound] = field(default_factory=lambda: ANY, hash=False)

    def __post_init__(self) -> None:
        for attribute, name in (("dtype", self.dtype), ("accumulate", self.accumulate)):
            if name not in FORMATS and not (attribute == "accumulate" and name is None):
                text = f"{attribute} must be one of {', '.join(FORMATS)}; got {name!r}"
                raise ParameterError("rounding", text, rule="P5")
        if self.inner.digits < self.format.digits or self.inner.lowest > self.format.lowest:
            text = f"accumulate must hold every {self.dtype}; got accumulate={self.accumulate!r}"
            raise ParameterError("rounding", text, rule="P5")

    @property
    def format(self) -> Format:
        return FORMATS[self.dtype]

    @property
    def inner(self) -> Format:
        """The format of intermediate results."""
        return FORMATS[self.accumulate or self.dtype]

    @property
    def u(self) -> float:
        return self.format.u

    @property
    def tiny(self) -> float:
        return self.format.tiny

    @property
    def largest(self) -> float:
        return self.format.largest

    @property
    def eta(self) -> float:
        """The most that underflow can cost one operation: half a subnormal step, or a flushed number."""
        return self.tiny if self.flush else self.format.smallest / 2

    def ulp_bound(self, name: str) -> tuple[float, str]:
        """The declared error of a function, as (units of u, what they are relative to)."""
        found = self.ulps.get(name)
        if found is None:
            text = f"this arithmetic declares no error for it; give ulps={{{name!r}: units of u}}"
            raise ParameterError(name, text, rule="P5")
        return found if isinstance(found, tuple) else (float(found), "y")


def growth(count: Any, u: float) -> Any:
    """(1 + u)**count - 1 <= gamma_count: what `count` roundings in a row can do to a number.

    >>> growth(1, 0.5), round(growth(2, 0.5), 9)
    (0.5, 1.25)
    """
    grown = np.expm1(np.multiply(count, np.log1p(u))) * (1 + 1e-12)
    exact = np.where(np.equal(count, 1), u, grown)
    return float(exact) if np.ndim(exact) == 0 else exact
