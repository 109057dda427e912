"""Declared facts about a unary function for bounds and rounding: kinks, turning points, slope, curvature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Params = Mapping[str, Any]
Bound = Callable[[Any, Any, Any, Params], Any]
"""(xp, low, high, params) -> one number, or one per cell; xp is the module of low and high: numpy, or torch."""


def _never(_: Params) -> None:
    """Return None: the function has no turning point."""


def _nowhere(_: Params) -> Sequence[Any]:
    """Return (): the function has no kinks."""
    return ()


@dataclass(frozen=True)
class Curve:
    """Declared facts about f on a range low..high; the law tests check them (tests/laws/test_curves.py).

    steepest    at least abs(f'); None: nothing is known
    curvature   at least abs(f'') between the kinks; None: f is piecewise linear
    kinks       where the slope jumps
    turning     f is monotone on either side of this point; None: everywhere that it is defined
    peak        f(x) = cos(x - peak): it turns at peak + k*pi for every whole k, and `turning` does not count
    room        a runtime may have an intermediate result of this many x (times beta), which must not overflow
    ulps        (units of u, "y" | "1" | "x" | "1+y"): the error of a function made of a few rounded operations,
                whatever the runtime; None: each runtime has its own (Op.errors, specgrad.declared_errors)
    """

    steepest: Bound | None = None
    curvature: Bound | None = None
    kinks: Callable[[Params], Sequence[Any]] = _nowhere
    turning: Callable[[Params], float | None] = _never
    peak: float | None = None
    room: float = 0.0
    ulps: tuple[float, str] | None = None

    def pieces(self, params: Params) -> Sequence[Any] | None:
        """Return the kinks of a piecewise linear function, which alone decide its relaxation; None for others."""
        return None if self.curvature is not None else tuple(self.kinks(params))


def at_most(bound: float) -> Bound:
    """Return the bound that is the same on every range."""
    return lambda xp, low, high, p: bound


def always(value: Any) -> Callable[[Params], Any]:
    """Return a function that gives `value` for all parameters."""
    return lambda _: value
