"""Exact numbers of a replay: python-flint rationals in object arrays; rounding outward to a fixed number of places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specgrad.errors import SpecgradError, need
from specgrad.scalar import Array

need("flint", "certificates need")

from flint import fmpq  # noqa: E402 - the line above says what to install

rational: Any = fmpq
DIGITS = 24  # of float32: its unit roundoff is 2**-24
LARGEST = ((1 << DIGITS) - 1) << (128 - DIGITS)  # float32's largest number
PLACES = 64  # binary places after the point of ranges and errors, which are rounded outward


class ReplayError(SpecgradError, ValueError):
    """A certificate that proves nothing."""

    def __init__(self, text: str) -> None:
        super().__init__("certificate", text)


def rationals(x: Any) -> Array:
    """Floats at their exact values, or whole numbers, as python-flint rationals.

    >>> rationals(np.float32([0.5, 3]))
    array([1/2, 3], dtype=object)
    """
    given = np.asarray(x)
    return objects([rational(*v.as_integer_ratio()) for v in given.ravel().tolist()], given.shape)


def objects(cells: Sequence[Any], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array.reshape(shape)


def zeros(shape: tuple[int, ...]) -> Array:
    array = np.empty(shape, dtype=object)
    array[...] = rational(0)
    return array


def cells(x: Any) -> Array:
    """An array, where NumPy has made a bare number of one of rank 0."""
    return np.asarray(x, dtype=object)


def larger(a: Array, b: Array) -> Array:
    return cells(np.where(a > b, a, b))


def positive(x: Array) -> Array:
    return cells(np.where(x > 0, x, rational(0)))


def outward(x: Array, direction: int) -> Array:
    """The nearest numbers with PLACES binary places that are not below (1) or not above (-1) the given ones."""

    def cell(v: Any) -> Any:
        scaled = (int(v.p) << PLACES) * direction
        return rational(-(-scaled // int(v.q)) * direction, 1 << PLACES)

    given = cells(x)
    return objects([cell(v) for v in given.flat], given.shape)


def total(x: Array) -> Any:
    return sum(cells(x).flat, rational(0))
