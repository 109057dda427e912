"""Sizes as callers give them: their types, limits on what is walked, sizes that a tracer leaves open, and the cache.

Windows of equal arguments are built once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ..errors import ShapeError

Built = TypeVar("Built")
Shape = tuple[int, ...]
Padding = int | str | tuple[int, ...] | tuple[tuple[int, int], ...]
PerAxis = int | tuple[int, ...]
MAX_TAPS = 10**7  # a kernel of 3162 x 3162; a walk over them takes a minute
MAX_PAIRS = 10**6  # of a tap and a cell, listed for one output: some hundred megabytes
MAX_OUTPUTS = 10**8  # whose taps are counted one by one, and at most MAX_TAPS of them along an axis
OPEN_SIZES: set[type] = set()
"""Types of sizes that an engine's tracer leaves open, to be any number; they cannot be hashed."""


def budget(count: int, most: int, what: str, given: Any) -> None:
    """Raise ShapeError if `count` is above `most`: it would take minutes or gigabytes to visit one by one.

    `what` is counted, `given` what was asked for: both stand in the error.
    """
    if count > most:
        raise ShapeError("window", f"{count:,} {what}; at most {most:,} are walked; got {given}", rule="W1")


def whole(value: Any) -> Any:
    """Return `value` with integer-like sizes as Python integers, also inside tuples and lists; anything else as it is.

    Such sizes are NumPy's integers, and symbolic sizes of an engine's tracer, which then guards that they stay so.
    """
    if isinstance(value, tuple | list):
        return type(value)(whole(v) for v in value)
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value


def _has_only_ints(value: Any) -> bool:
    """Return whether a tuple `value` holds only ints and such tuples: 2 == 2.0 == True would share one cache entry."""
    for v in value:
        kind = type(v)
        if kind is not int and (kind is not tuple or not _has_only_ints(v)):
            return False
    return True


def remembered(*shapes: int) -> Callable[[Callable[..., Built]], Callable[..., Built]]:
    """Return a decorator that caches by arguments and their types; lists, symbolic sizes and near-ints are not cached.

    Arguments at the positions `shapes` stay open: `build` takes those of their sizes as numbers that it needs, so that
    a window fixes the spatial sizes and leaves the batch as it is. An error of ours that is a TypeError is raised by
    the second try as by the first.
    """

    def decorate(build: Callable[..., Built]) -> Callable[..., Built]:
        """Return `build` with a cache."""
        cached = lru_cache(maxsize=4096, typed=True)(build)

        def build_uncached(args: tuple[Any, ...]) -> Built:
            """Build without the cache, symbolic sizes taken as numbers except at `shapes`."""
            return build(*(tuple(a) if i in shapes else whole(a) for i, a in enumerate(args)))

        def call(*args: Any) -> Built:
            """Return the cached result, or build it if the arguments cannot be cached."""
            try:
                for a in args:
                    if isinstance(a, tuple) and not _has_only_ints(a):
                        return build_uncached(args)
                return cached(*args)
            except TypeError:
                return build_uncached(args)

        return call

    return decorate
