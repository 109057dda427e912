"""Exact numbers of a replay: python-flint rationals in object arrays, rounded outward to FRAC_BITS binary places."""

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
FRAC_BITS = 64  # binary places after the point of ranges and errors, which are rounded outward


class ReplayError(SpecgradError, ValueError):
    """Raised for a certificate that proves nothing; the text says why."""

    def __init__(self, text: str) -> None:
        super().__init__("certificate", text)


def rationals(x: Any) -> Array:
    """Return integers, or floats at their exact values, as an object array of python-flint rationals.

    >>> rationals(np.float32([0.5, 3]))
    array([1/2, 3], dtype=object)
    """
    given = np.asarray(x)
    return objects([rational(*v.as_integer_ratio()) for v in given.ravel().tolist()], given.shape)


def objects(cells: Sequence[Any], shape: tuple[int, ...]) -> Array:
    """Return a list as an object array of the given shape."""
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array.reshape(shape)


def zeros(shape: tuple[int, ...]) -> Array:
    """Return an object array of rational zeros."""
    array = np.empty(shape, dtype=object)
    array[...] = rational(0)
    return array


def cells(x: Any) -> Array:
    """Return `x` as an object array: NumPy returns a bare number where an array of rank 0 is meant."""
    return np.asarray(x, dtype=object)


def larger(a: Array, b: Array) -> Array:
    """Return the elementwise maximum of two arrays of rationals."""
    return cells(np.where(a > b, a, b))


def positive(x: Array) -> Array:
    """Return the elementwise max(x, 0)."""
    return cells(np.where(x > 0, x, rational(0)))


def outward(x: Array, direction: int) -> Array:
    """Round rationals to FRAC_BITS binary places: up for direction 1, down for direction -1."""

    def cell(v: Any) -> Any:
        """Return one rational, rounded."""
        scaled = (int(v.p) << FRAC_BITS) * direction
        return rational(-(-scaled // int(v.q)) * direction, 1 << FRAC_BITS)

    given = cells(x)
    return objects([cell(v) for v in given.flat], given.shape)


def total(x: Array) -> Any:
    """Return the sum of all cells, as a rational."""
    return sum(cells(x).flat, rational(0))
