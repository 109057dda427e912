"""Floating-point formats, and the arithmetic a runtime declares to compute in.

A format is its unit roundoff u, its smallest normal and subnormal number, and its largest number; every correctly
rounded operation gives (exact result) * (1 + d) + e with abs(d) <= u and abs(e) <= smallest / 2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import numpy as np

from ..declared_errors import Bound, as_pair, declared
from ..errors import ParameterError
from ..execution_text import sentences
from ..scalar import Array
from .slack_constants import GROWTH


@dataclass(frozen=True)
class Format:
    """A binary floating-point format by its `name`: `digits` significant bits, exponents of normal numbers from
    `lowest` to `highest`.

    directed   rounding is not to nearest: a result may be the next number on either side
    """

    name: str
    digits: int
    lowest: int
    highest: int
    directed: bool = False

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
        return float((2.0 - 2.0 ** (1 - self.digits)) * 2.0**self.highest)

    def holds(self, x: Array) -> Array:
        """Return, elementwise, whether x (float64) is a number of this format; infinities and NaN are.

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
OPERANDS = {"tf32": Format("tf32", 11, -126, 127)} | {name: FORMATS[name] for name in ("float16", "bfloat16")}
REFERENCE = FORMATS["float64"]


@cache
def _format(name: str, rounding: str) -> Format:
    """Return a format by name, with results rounded either way for rounding "any"."""
    return replace({**OPERANDS, **FORMATS}[name], directed=rounding == "any" and name != "real")


@dataclass(frozen=True)
class Arithmetic:
    """How a runtime computes. Every claim names one; `deployment` says it in sentences.

    dtype        the format of every stored value: "float32", "float16", "bfloat16", "float64"; "real": no rounding
    operands     the format that factors of convolutions and matrix products are rounded to first: "tf32", "float16",
                 "bfloat16"; None: as they are stored
    accumulate   the format of sums and products before the result is stored; None: the same or wider, in any order
    execution    "fused": runtimes merge nodes; "node": every layer's result is rounded to `dtype` and stored
    depth        the most roundings that a term of one sum meets, where sums are known to be blocked; None: any order
    rounding     "nearest", or "any": results may be rounded either way
    flush        subnormal operands and results may count as zero; None: yes, but for float16
    ulps         per function (exp, log, tanh, ...) the declared error: see `specgrad.declared_errors`

    >>> Arithmetic("bfloat16", accumulate="float32").u
    0.00390625
    >>> Arithmetic().execution, Arithmetic(rounding="any").u == 2.0**-23
    ('fused', True)
    """

    dtype: str = "float32"
    operands: str | None = None
    accumulate: str | None = None
    execution: str = "fused"
    depth: int | None = None
    rounding: str = "nearest"
    flush: bool | None = None
    ulps: Mapping[str, Bound] = field(default_factory=declared, hash=False)

    def __post_init__(self) -> None:
        if self.flush is None:
            object.__setattr__(self, "flush", self.dtype not in ("float16", "real"))
        known: tuple[tuple[str, Any, Collection[Any]], ...] = (
            ("dtype", self.dtype, FORMATS),
            ("operands", self.operands, (*OPERANDS, None)),
            ("accumulate", self.accumulate, (*FORMATS, None)),
            ("execution", self.execution, ("fused", "node")),
            ("rounding", self.rounding, ("nearest", "any")),
        )
        for attribute, given, names in known:
            if given not in names:
                text = f"{attribute} must be one of {', '.join(map(str, names))}; got {given!r}"
                raise ParameterError("rounding", text, rule="P5")
        self._check_formats()

    def _check_formats(self) -> None:
        """Raise ParameterError for formats or a depth that do not go together."""
        if self.inner.digits < self.format.digits or self.inner.lowest > self.format.lowest:
            text = f"accumulate must hold every {self.dtype}; got accumulate={self.accumulate!r}"
            raise ParameterError("rounding", text, rule="P5")
        if self.operands is not None and self.dtype != "float32":
            text = f"operands go with dtype float32; got dtype={self.dtype!r}, operands={self.operands!r}"
            raise ParameterError("rounding", text, rule="P5")
        if self.depth is not None and (type(self.depth) is not int or self.depth < 1):
            raise ParameterError("rounding", f"depth must be a whole number from 1 on; got {self.depth!r}", rule="P5")

    @property
    def format(self) -> Format:
        """Return the format of stored values."""
        return _format(self.dtype, self.rounding)

    @property
    def inner(self) -> Format:
        """Return the format of intermediate results."""
        return _format(self.accumulate or self.dtype, self.rounding)

    @property
    def factor(self) -> Format | None:
        """Return the format that operands of convolutions and matrix products are rounded to first; None:
        they are not."""
        return None if self.operands is None else _format(self.operands, self.rounding)

    @property
    def lost_in_factors(self) -> float:
        """Return the most that a factor can lose below its format's normal numbers; 0 if storage has no more range."""
        if self.factor is None or self.factor.lowest <= self.format.lowest:
            return 0.0
        return self.factor.tiny if self.flush else self.factor.smallest

    @property
    def stores(self) -> bool:
        """Return whether sums are in a wider format than results: storing one is a rounding of its own."""
        return self.inner is not self.format

    @property
    def fused(self) -> bool:
        """Return whether runtimes may merge nodes."""
        return self.execution == "fused"

    @property
    def u(self) -> float:
        """Return the unit roundoff of stored values."""
        return self.format.u

    @property
    def tiny(self) -> float:
        """Return the smallest normal number of stored values."""
        return self.format.tiny

    @property
    def largest(self) -> float:
        """Return the largest number of stored values."""
        return self.format.largest

    @property
    def deployment(self) -> dict[str, str]:
        """Return sentences by topic that describe the executions for which verdicts and certificates hold.

        >>> Arithmetic(flush=False).deployment["subnormals"]
        'kept'
        """
        return sentences(**{f.name: getattr(self, f.name) for f in fields(self) if f.name != "ulps"})

    def ulp_bound(self, name: str, own: tuple[float, str] | None = None) -> tuple[float, str]:
        """Return the declared error of the function `name` as (units of u, what they are relative to); `own` if none is
        declared.

        ParameterError without both.
        """
        bound = self.ulps.get(name, own)
        if bound is None:
            text = f"this arithmetic declares no error for it; give ulps={{{name!r}: units of u}}"
            raise ParameterError(name, text, rule="P5")
        return as_pair(bound)


INTEGERS = "int32"
"""The format of nodes that a runtime computes in integers: exact, as long as nothing leaves int32."""


@cache
def _integers() -> Arithmetic:
    """Return the arithmetic of nodes that are computed in integers: exact, node by node."""
    return Arithmetic("real", execution="node")


def in_format(general: Arithmetic, name: str) -> Arithmetic:
    """Return the arithmetic of a node in the format `name`: results are stored in it, sums are in the general one.

    >>> in_format(Arithmetic(), "float16").accumulate
    'float32'
    """
    if name == general.dtype:
        return general
    if name == INTEGERS:
        return _integers()
    wider = FORMATS[general.dtype].digits > FORMATS[name].digits
    accumulate = general.accumulate or (general.dtype if wider else None)
    flush = general.flush and name != "float16"  # conversions to float16 keep its subnormal numbers
    return replace(general, dtype=name, operands=None, accumulate=accumulate if wider else None, flush=flush)


def growth(count: Any, u: float) -> Any:
    """Return (1 + u)**count - 1 <= gamma_count: the largest relative change by `count` roundings in a row.

    >>> growth(1, 0.5), round(growth(2, 0.5), 9)
    (0.5, 1.25)
    """
    grown = np.expm1(np.multiply(count, np.log1p(u))) * GROWTH
    exact = np.where(np.equal(count, 1), u, grown)
    return float(exact) if np.ndim(exact) == 0 else exact
