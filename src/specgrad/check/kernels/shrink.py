"""Shrink a case that a kernel fails: fewer cells, plainer memory, plainer numbers, as long as the fault stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from specgrad.scalar import Array

from .case import KernelCase
from .examine import Examination


def shrink_case(failure: Examination, examine: Callable[[KernelCase], Examination], *, seconds: float) -> Examination:
    """Return the smallest failure found in so many seconds; `failure` is the first, `examine` judges other cases."""
    shrinker = _Shrinker(failure, examine, time.monotonic() + seconds)
    shrinker.plainer_memory()
    shrinker.smaller_sizes()
    shrinker.plainer_arrays()
    shrinker.fewer_numbers()
    return shrinker.best


MOST_ROUNDED = 64  # cells of an array that are tried one by one


class _Shrinker:
    """Shrinking in progress: `best` is the smallest failure so far; it ends at `deadline` (time.monotonic).

    `examine` says whether a smaller case fails too.
    """

    def __init__(self, failure: Examination, examine: Callable[[KernelCase], Examination], deadline: float) -> None:
        self.best, self.examine, self.deadline = failure, examine, deadline

    def take(self, case: KernelCase) -> bool:
        """Make the case the best one if it fails in the same way; return whether it does."""
        if time.monotonic() > self.deadline:
            return False
        try:
            failure = self.examine(case)
        except Exception:  # the reference does not take these sizes: no question
            return False
        if not failure.same_fault(self.best):
            return False
        self.best = failure
        return True

    def plainer_memory(self) -> None:
        """Lay the inputs out contiguously."""
        if self.best.case.layout != "contiguous":
            self.take(self.best.case.in_layout("contiguous"))

    def smaller_sizes(self) -> None:
        """Cut the open sizes: to 1, by half, by one, again and again."""
        improved = True
        while improved:
            sizes = self.best.case.sizes
            tries = ({name: m} for name, n in sizes.items() for m in dict.fromkeys((1, n // 2, n - 1)) if 0 < m < n)
            improved = any(self.take(self.best.case.cut_to(smaller)) for smaller in tries)

    def plainer_arrays(self) -> None:
        """Put whole arrays of zeros, ones, small integers or whole numbers in place of finite numbers."""
        for name in self.best.case.arrays:
            for plain in _plainer(self.best.case.arrays[name]):
                if self.take(self.best.case.with_arrays({name: plain})):
                    break

    def fewer_numbers(self) -> None:
        """Set parts of the arrays to 0, halves first, single cells last; then each that is left to a rounder number."""
        for name in self.best.case.arrays:
            self._fewer_in(name)
        for name, a in self.best.case.arrays.items():
            for at in np.flatnonzero(a) if np.count_nonzero(a) <= MOST_ROUNDED else ():
                any(self._set(name, np.array([at]), value) for value in _rounder(a.flat[at]))

    def _fewer_in(self, name: str) -> None:
        """Set parts of the array `name` to 0, as long as the fault stays and there is time."""
        places = np.flatnonzero(self.best.case.arrays[name] != 0)
        chunk = places.size
        while chunk and time.monotonic() < self.deadline:
            for start in range(0, places.size, chunk):
                self._set(name, places[start : start + chunk], 0)
            places = np.flatnonzero(self.best.case.arrays[name] != 0)
            chunk = chunk // 2 if chunk <= places.size else places.size // 2

    def _set(self, name: str, places: Array, value: float) -> bool:
        """Set some cells of an array, by their flat positions, to a value; kept, and True, if the fault stays."""
        a = self.best.case.arrays[name].copy()
        a.reshape(-1)[places] = value
        return self.take(self.best.case.with_arrays({name: a}))


def _rounder(value: float) -> Iterator[float]:
    """Yield numbers in the place of `value`, the roundest first, until it is reached.

    None for NaN and infinities: numbers of a few binary digits, which every format holds.
    """
    if not np.isfinite(value):
        return
    mantissa, exponent = np.frexp(float(value))
    for new in (1.0, *(float(np.ldexp(np.rint(np.ldexp(mantissa, d)), exponent - d)) for d in (1, 3, 5))):
        if new == value:
            return
        yield new


def _plainer(a: Array) -> Iterator[Array]:
    """Yield plainer arrays of the same shape and type, the plainest first; NaN and infinities stay."""
    if a.dtype.kind != "f":
        yield np.zeros_like(a)
        return
    finite = np.isfinite(a)
    counted = (np.arange(a.size) % 7 + 1).reshape(a.shape)
    for plain in (np.zeros(a.shape), np.ones(a.shape), counted, np.rint(np.where(finite, a, 0))):
        new = np.where(finite, plain, a).astype(a.dtype)
        if np.array_equal(new, a, equal_nan=True):
            return
        yield new
