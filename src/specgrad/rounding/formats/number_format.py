"""Floating-point formats: unit roundoff, range, and which numbers each holds.

A format is its unit roundoff u, its smallest normal and subnormal number, and its largest number; every correctly
rounded operation gives (exact result) * (1 + d) + e with abs(d) <= u and abs(e) <= smallest / 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...scalar import Array


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Parameters
    ----------
    name : str
        Its name.
    digits : int
        Significant bits, the hidden one included.
    lowest : int
        Exponent of the smallest normal number.
    highest : int
        Exponent of the largest number.
    directed : bool, default False
        Rounding is not to nearest: a result may be the next number on either side.
    finite : bool, default False
        It has no infinities: the code behind its largest number, which is one step smaller for it, is NaN.

    Examples
    --------
    >>> from specgrad.rounding import FORMATS
    >>> half = FORMATS["float16"]
    >>> half.digits, half.u, half.largest
    (11, 0.00048828125, 65504.0)
    """

    name: str
    digits: int
    lowest: int
    highest: int
    directed: bool = False
    finite: bool = False

    @property
    def u(self) -> float:
        """The unit roundoff: half the distance from 1 to the next number, or all of it."""
        return float(2.0 ** (int(self.directed) - self.digits))

    @property
    def tiny(self) -> float:
        """Return the smallest positive normal number of the format."""
        return float(2.0**self.lowest)

    @property
    def smallest(self) -> float:
        """Return the smallest positive subnormal number of the format."""
        return float(2.0 ** (self.lowest - self.digits + 1))

    @property
    def largest_divisor(self) -> float:
        """1/x is normal, before and after rounding, for normal x up to here: 1/x >= 2*tiny."""
        return 0.5 / self.tiny

    @property
    def largest(self) -> float:
        """Return the largest finite number of the format."""
        return float((2.0 - (1 + self.finite) * 2.0 ** (1 - self.digits)) * 2.0**self.highest)

    def holds(self, x: Array) -> Array:
        """Return, elementwise, whether x (float64) is a number of this format; NaN is, infinities where it has them.

        >>> FORMATS["bfloat16"].holds(np.array([1.0, 1.00390625, 257.0, 256.0]))
        array([ True, False, False,  True])
        >>> FORMATS["float8_e4m3fn"].holds(np.array([448.0, 480.0, 2.0**-9, 2.0**-10, np.inf]))
        array([ True, False,  True, False, False])
        """
        exponent = np.maximum(np.frexp(x)[1] - 1, self.lowest)
        step = np.ldexp(1.0, exponent - (self.digits - 1))
        with np.errstate(all="ignore"):
            whole = np.ldexp(x, -(exponent - (self.digits - 1)))
        fits = (whole == np.rint(whole)) & (np.abs(x) <= self.largest) & (step > 0)
        return np.asarray(fits | np.isnan(x) | (np.isinf(x) & (not self.finite)))


FLOAT8 = {
    "float8_e4m3fn": Format("float8_e4m3fn", 4, -6, 8, finite=True),
    "float8_e5m2": Format("float8_e5m2", 3, -14, 15),
}
"""The two 8-bit formats of the Open Compute Project, by the names of ml_dtypes, PyTorch and JAX."""
FORMATS = FLOAT8 | {
    "float16": Format("float16", 11, -14, 15),
    "bfloat16": Format("bfloat16", 8, -126, 127),
    "float32": Format("float32", 24, -126, 127),
    "float64": Format("float64", 53, -1022, 1023),
    "real": Format("real", 2000, -1074, 1023),  # u = 0 and no largest number: what is left is our own float64 error
}
OPERANDS = {"tf32": Format("tf32", 11, -126, 127)} | {name: FORMATS[name] for name in ("float16", "bfloat16", *FLOAT8)}
REFERENCE = FORMATS["float64"]
SHORT = ("bfloat16", *FLOAT8)
"""Formats of which NumPy has no type; float32 holds their numbers."""
FLUSHED = ("bfloat16", "float32", "float64")
"""Formats whose subnormal numbers may count as zero unless somebody says no; conversions to the others keep them."""


@cache
def format_named(name: str, rounding: str) -> Format:
    """Return a format by name, of FORMATS or OPERANDS, with results rounded either way for rounding "any".

    "real" stays exact.
    """
    return replace({**OPERANDS, **FORMATS}[name], directed=rounding == "any" and name != "real")
