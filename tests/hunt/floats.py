"""Floating-point arithmetic in software, written apart from the library: formats, directed rounding, flushing, FMA.

`rounded` is the definition, over Fractions. `Machine` computes the same with Python's floats: an exact result is kept
as hi + lo (two float64 without error), made odd (the last digit set where lo is not 0), and rounded once more; rounding
to odd with two more digits loses nothing for a second rounding. tests/hunt/test_floats.py compares the two.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """`digits` significant bits; exponents of normal numbers from `lowest` to `highest`."""

    name: str
    digits: int
    lowest: int
    highest: int

    @property
    def tiny(self) -> float:
        return math.ldexp(1.0, self.lowest)

    @property
    def largest(self) -> float:
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.digits), self.highest)


FORMATS = {
    "float16": Format("float16", 11, -14, 15),
    "bfloat16": Format("bfloat16", 8, -126, 127),
    "tf32": Format("tf32", 11, -126, 127),
    "float32": Format("float32", 24, -126, 127),
    "float64": Format("float64", 53, -1022, 1023),
}
WIDE = FORMATS["float64"]
MODES: dict[str, Callable[[Fraction | float], int]] = {
    "nearest": round,  # Python's round takes the even one of two
    "zero": math.trunc,
    "up": math.ceil,
    "down": math.floor,
}


def rounded(x: Fraction, form: Format, mode: str = "nearest", flush: bool = False) -> float:
    """x in the format; inf where it overflows and the mode says so; 0 for a subnormal result where they are flushed."""
    if x == 0:
        return 0.0
    n, d = abs(x.numerator), x.denominator
    exponent = n.bit_length() - d.bit_length()  # of the leading bit, or one too large
    exponent -= Fraction(n, d) < Fraction(2) ** exponent
    step = max(exponent, form.lowest) - form.digits + 1
    result = Fraction(2) ** step * MODES[mode](x / Fraction(2) ** step)
    if abs(result) > Fraction(form.largest):
        return _overflowed(x > 0, form, mode)
    return 0.0 if flush and abs(result) < Fraction(form.tiny) else float(result)


def _overflowed(positive: bool, form: Format, mode: str) -> float:
    to_infinity = mode == "nearest" or mode == ("up" if positive else "down")
    size = math.inf if to_infinity else form.largest
    return size if positive else -size


def round_float(x: float, form: Format, mode: str = "nearest", flush: bool = False) -> float:
    """`rounded` of a float64."""
    if x == 0 or not math.isfinite(x):
        return x
    step = max(math.frexp(x)[1] - 1, form.lowest) - form.digits + 1
    if form is not WIDE:
        x = math.ldexp(float(MODES[mode](math.ldexp(x, -step))), step)
    if abs(x) > form.largest:
        return _overflowed(x > 0, form, mode)
    return 0.0 if flush and abs(x) < form.tiny else x


# --- exact results as two float64 -----------------------------------------------------------------------------------


def two_sum(a: float, b: float) -> tuple[float, float]:
    """a + b = hi + lo exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: float, b: float) -> tuple[float, float]:
    """a * b = hi + lo exactly (Dekker), far from the ends of float64's range."""
    p = a * b
    c, d = 134217729.0 * a, 134217729.0 * b  # 2**27 + 1
    ah, bh = c - (c - a), d - (d - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def to_odd(hi: float, lo: float) -> float:
    """hi + lo rounded to odd in float64: the neighbour whose last digit is 1 where the sum lies between two."""
    if lo == 0 or not math.isfinite(hi) or struct.unpack("<q", struct.pack("<d", hi))[0] & 1:
        return hi
    return math.nextafter(hi, math.inf if lo > 0 else -math.inf)


@dataclass
class Machine:
    """A unit that rounds every result to `form`.

    flush     subnormal results become 0;  daz   so do subnormal operands, as units read them
    mode      "nearest", "zero", "up", "down", or a function that chooses one for each operation
    """

    form: Format
    mode: str | Callable[[], str] = "nearest"
    flush: bool = False
    daz: bool = False

    def store(self, x: float, lo: float = 0.0) -> float:
        """x + lo, rounded to the format."""
        mode = self.mode if isinstance(self.mode, str) else self.mode()
        return round_float(to_odd(x, lo), self.form, mode, self.flush)

    def read(self, x: float) -> float:
        return 0.0 if self.daz and abs(x) < self.form.tiny else x

    def add(self, a: float, b: float) -> float:
        a, b = self.read(a), self.read(b)
        if not (math.isfinite(a) and math.isfinite(b)):
            return a + b
        return self.store(*two_sum(a, b))

    def mul(self, a: float, b: float) -> float:
        a, b = self.read(a), self.read(b)
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b
        return self.store(*two_product(a, b))

    def div(self, a: float, b: float) -> float:
        a, b = self.read(a), self.read(b)
        if not (math.isfinite(a) and math.isfinite(b)) or b == 0:
            return math.nan if b == 0 else a / b
        q = a / b
        p, e = two_product(q, b)
        left = (a - p) - e  # exact: a and p are close, and e is a rounding error
        return self.store(q, left / b)

    def fma(self, a: float, b: float, c: float) -> float:
        """a*b + c with one rounding; far sums by Fractions, for a tail of three float64 has no place in two."""
        a, b, c = self.read(a), self.read(b), self.read(c)
        if not all(map(math.isfinite, (a, b, c))):
            return a * b + c
        p, e = two_product(a, b)
        if e == 0:
            return self.store(*two_sum(p, c))
        total = Fraction(p) + Fraction(e) + Fraction(c)
        if total == 0:
            return 0.0
        hi = float(total)
        return self.store(hi, math.copysign(float(total != Fraction(hi)), total - Fraction(hi)))

    def sqrt(self, a: float) -> float:
        """Of formats up to float32: a float64 root has more than twice their digits."""
        return self.store(math.sqrt(self.read(a)))
