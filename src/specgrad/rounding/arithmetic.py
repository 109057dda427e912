"""The arithmetic a runtime declares to compute in: formats, and what it may do between two stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ..declared_errors import Bound, as_pair, declared
from ..errors import ParameterError, UnsupportedError
from ..execution_text import sentences
from ..scalar import Array
from .formats.number_format import FLOAT8, FLUSHED, FORMATS, OPERANDS, REFERENCE, Format, format_named
from .formats.tensor_core import EXACT_DIGITS, TensorCore
from .slack_constants import GROWTH

__all__ = ["FORMATS", "INTEGERS", "OPERANDS", "REFERENCE", "Arithmetic", "Format", "TensorCore", "growth", "in_format"]


@dataclass(frozen=True)
class Arithmetic:
    """How a runtime computes. Every claim names one; `deployment` says it in sentences.

    Parameters
    ----------
    dtype : str, default "float32"
        The format of every stored value: "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2";
        "real": no rounding.
    operands : str, optional
        The format that factors of convolutions and matrix products are rounded to first: "tf32", "float16", "bfloat16",
        "float8_e4m3fn", "float8_e5m2"; None: as they are stored.
    accumulate : str, optional
        The format of sums and products before the result is stored; None: the same or wider, in any order.
    execution : str, default "fused"
        "fused": runtimes merge nodes; "node": every layer's result is rounded to `dtype` and stored.
    depth : int, optional
        The most roundings that a term of one sum meets, where sums are known to be blocked; None: any order.
    rounding : str, default "nearest"
        "nearest", or "any": results may be rounded either way.
    flush : bool, optional
        Subnormal operands and results may count as zero; None: yes, but for float16 and 8-bit formats.
    cores : TensorCore, optional
        How a matrix unit adds the products of convolutions and matrix products; None: in the format of sums, each
        operation rounded. Such sums are never meant unless they are named here.
    casts : str, default "stored"
        "stored": a cast is a store. "dropped": or it is left out, for each reader as a compiler likes, and sums are
        merged across it.
    overflow : str, default "open"
        "open": results beyond the largest number are not bounded; "saturate": they are stored as that one.
    ulps : mapping of str to Bound, optional
        Per function (exp, log, tanh, ...) the declared error: see `specgrad.declared_errors`.

    Raises
    ------
    ParameterError
        For words that are not these, and for formats that do not go together.

    Examples
    --------
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
    cores: TensorCore | None = None
    casts: str = "stored"
    overflow: str = "open"
    ulps: Mapping[str, Bound] = field(default_factory=declared, hash=False)

    def __post_init__(self) -> None:
        if self.flush is None:
            object.__setattr__(self, "flush", self.dtype in FLUSHED)
        known: tuple[tuple[str, Any, Collection[Any]], ...] = (
            ("dtype", self.dtype, FORMATS),
            ("operands", self.operands, (*OPERANDS, None)),
            ("accumulate", self.accumulate, (*FORMATS, None)),
            ("execution", self.execution, ("fused", "node")),
            ("rounding", self.rounding, ("nearest", "any")),
            ("casts", self.casts, ("stored", "dropped")),
            ("overflow", self.overflow, ("open", "saturate")),
        )
        for attribute, given, names in known:
            if given not in names:
                text = f"{attribute} must be one of {', '.join(map(str, names))}; got {given!r}"
                raise ParameterError("rounding", text, rule="P5")
        self._check_formats()

    def _check_formats(self) -> None:
        """Raise ParameterError for formats, a depth and cores that do not go together."""
        if not _has_range(self.inner, self.format):
            text = f"accumulate must hold every {self.dtype}; got accumulate={self.accumulate!r}"
            raise ParameterError("rounding", text, rule="P5")
        if self.factor is not None and self.factor.digits > self.format.digits:
            text = f"operands must be shorter than dtype; got dtype={self.dtype!r}, operands={self.operands!r}"
            raise ParameterError("rounding", text, rule="P5")
        if self.depth is not None and (type(self.depth) is not int or self.depth < 1):
            raise ParameterError("rounding", f"depth must be a whole number from 1 on; got {self.depth!r}", rule="P5")
        if self.cores is not None:
            self._check_cores(self.cores)

    def _check_cores(self, cores: TensorCore) -> None:
        """Raise ParameterError where the format of factors, of sums elsewhere, or a depth does not go with `cores`."""
        short = self.factor or self.format
        if short.digits > EXACT_DIGITS:
            text = f"cores multiply factors of at most {EXACT_DIGITS} digits; give operands= (dtype is {self.dtype!r})"
            raise ParameterError("rounding", text, rule="P5")
        if not _has_range(self.inner, cores.accumulator):
            text = f"accumulate, the format of sums outside cores, must hold their {cores.digits} digits of "
            text += f"{cores.exponents}; got accumulate={self.accumulate!r}"
            raise ParameterError("rounding", text, rule="P5")
        if self.depth is not None:
            raise ParameterError(
                "rounding", "depth and cores cannot go together; cores have terms and chain", rule="P5"
            )

    @property
    def format(self) -> Format:
        """Return the format of stored values."""
        return format_named(self.dtype, self.rounding)

    @property
    def inner(self) -> Format:
        """Return the format of intermediate results."""
        return format_named(self.accumulate or self.dtype, self.rounding)

    @property
    def factor(self) -> Format | None:
        """Return the format that operands of convolutions and matrix products are rounded to first; None:
        they are not."""
        return None if self.operands is None else format_named(self.operands, self.rounding)

    @property
    def lost_in_factors(self) -> float:
        """Return the most that a factor can lose below its format's normal numbers; 0 if storage has no more range."""
        if self.factor is None:
            return 0.0
        if self.flush and self.operands not in FLOAT8:
            # of the same range, a number that is subnormal may count as zero where it is stored already
            return self.factor.tiny if self.factor.lowest > self.format.lowest else 0.0
        return self.factor.smallest if self.factor.smallest > self.format.smallest else 0.0

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
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "ulps"}
        return sentences(**{**given, "cores": None if self.cores is None else str(self.cores)})

    @property
    def keeps_infinities(self) -> bool:
        """Return whether an infinite result is stored as one; where results saturate, or codes lack, it is not."""
        return self.overflow == "open" and not self.format.finite

    @property
    def may_vanish(self) -> float:
        """Return the size below which a number may count as zero before it is multiplied; 0 if none may."""
        return max(self.tiny if self.flush else 0.0, 0.0 if self.factor is None else self.factor.tiny)

    def grown(self, total: Any, sums: int = 0) -> Any:
        """Return the largest relative change of a term by `total` operations, with `sums` sums by tensor cores."""
        return self.cores.growth(total, sums, self.inner.u) if self.cores and sums else growth(total, self.inner.u)

    def kept(self, value: Array, radius: Array) -> Array:
        """Return the radius of a value after it was stored: beyond the largest number it saturates, or is unknown."""
        size = np.abs(value)
        beyond = np.maximum(radius, size - self.largest) if self.overflow == "saturate" else np.inf
        return np.where(size + radius <= self.largest, radius, beyond)

    def check_plain(self, who: str, *names: str) -> None:
        """Raise UnsupportedError, in the name of `who`, where this arithmetic names what radii alone know.

        names   the choices that `who` does not know; none: all of cores, casts and overflow
        """
        plain = {f.name: f.default for f in fields(self) if f.name in (names or ("cores", "casts", "overflow"))}
        for name, default in plain.items():
            if getattr(self, name) != default:
                raise UnsupportedError(who, f"knows no {name}={getattr(self, name)!r}; radius does")

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


def _has_range(wide: Format, short: Format) -> bool:
    """Return whether the format `wide` holds every number of `short`."""
    return wide.digits >= short.digits and wide.lowest <= short.lowest and wide.highest >= short.highest


INTEGERS: dict[str, tuple[int, int]] = {
    f"{'' if low else 'u'}int{bits}": (low, high)
    for bits in (8, 16, 32)
    for low, high in ((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), (0, 2 ** min(bits, 31) - 1))
}
"""Formats of nodes that a runtime computes in integers, with their least and largest number: exact, as long as nothing
leaves them, and unknown there. Runtimes that have no uint32 and int64 compute them in int32."""


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
    if name in INTEGERS:
        return _integers()
    wider = FORMATS[general.dtype].digits > FORMATS[name].digits
    accumulate = general.accumulate or (general.dtype if wider else None)
    flush = general.flush and name in FLUSHED
    return replace(general, dtype=name, operands=None, accumulate=accumulate if wider else None, flush=flush)


def growth(count: Any, u: float) -> Any:
    """Return (1 + u)**count - 1 <= gamma_count: the largest relative change by `count` roundings in a row.

    >>> growth(1, 0.5), round(growth(2, 0.5), 9)
    (0.5, 1.25)
    """
    return _growth_of_number(float(count), float(u)) if np.ndim(count) == 0 else _growth(count, u)


@lru_cache(4096)
def _growth_of_number(count: float, u: float) -> float:
    return float(_growth(count, u))


def _growth(count: Any, u: float) -> Array:
    grown = np.expm1(np.multiply(count, np.log1p(u))) * GROWTH
    return np.where(np.equal(count, 1), u, grown)
