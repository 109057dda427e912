"""Sample arrays of every type: random numbers by kind of data, and extreme values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from specgrad.check.cases.generate import DATA, Accept, draw_case
from specgrad.check.cases.op_case import OpCase
from specgrad.check.runtimes.onnx import NODES
from specgrad.scalar import Array
from specgrad.window import Shape

from .case import Draw, VectorCase

Type = np.dtype[Any]
MAX_CASE_SIZE = 400  # cells and products of one case: rationals are slow


def numbers(rng: Draw, kind: str, shape: Shape, dtype: Type) -> Array:
    """Return a random array of this shape and type by `kind` of data, a key of DATA, or "subnormal".

    Integers take their whole range unless the kind is "ties" or "integers".
    """
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if kind in ("ties", "integers"):
            return rng.integers(0, 2 if kind == "ties" else 9, size=shape).astype(dtype)
        return rng.integers(limits.min, limits.max, size=shape, endpoint=True).astype(dtype)
    if kind == "subnormal":
        return np.asarray(rng.normal(size=shape) * 2.0**8 * np.finfo(dtype).smallest_subnormal).astype(dtype)
    return np.asarray(DATA[kind](rng, shape)).astype(dtype)


def extreme_values(dtype: Type) -> Array:
    """Return the largest, smallest normal and subnormal and a few other numbers of a float type, both signs.

    Of integers: the limits, 0 and 1.
    """
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1], dtype)
    f = np.finfo(dtype)
    some = [f.max, f.smallest_normal, f.smallest_subnormal, np.nextafter(f.smallest_normal, dtype.type(0)), 1 + f.eps]
    return np.array([*some, *(-np.array(some)), 1.0, -1.0], dtype)


def pairs(a: Iterable[float], b: Iterable[float], dtype: Type) -> tuple[Array, Array]:
    """Return two rows of type `dtype`, of equal length: every number of `a` with every number of `b`.

    >>> pairs([1, 2], [3, 4], np.dtype("float32"))[1]
    array([3., 4., 3., 4.], dtype=float32)
    """
    first, second = np.meshgrid(np.array([*a], dtype), np.array([*b], dtype), indexing="ij")
    return first.ravel(), second.ravel()


def gaussian_with(rng: Draw, values: Iterable[float], shape: Shape, dtype: Type) -> Array:
    """Return Gaussian numbers of this shape and type of which about a third, at random, are replaced by `values` in
    turn.
    """
    x = rng.normal(size=shape).astype(dtype)
    some = [*values]
    at = rng.permutation(x.size)[: max(len(some), x.size // 3)]
    x.reshape(-1)[at] = np.resize(np.array(some, dtype), at.size)
    return x


def generated_cases(
    rng: Draw, operator: str, kind: str, count: int, dtype: Type, accept: Accept | None = None
) -> Iterator[OpCase]:
    """Yield `count` small generated operator cases, with arrays of one kind of data and type; `accept` may refuse
    attributes and shapes.
    """

    def small(attributes: Mapping[str, Any], arrays: Mapping[str, Shape]) -> bool:
        """Return whether a case has few enough cells and products, and is accepted."""
        size = int(np.prod(arrays["x"])) * int(np.prod(arrays.get("w", (1, 1))[1:]))
        return size <= MAX_CASE_SIZE and (accept is None or accept(attributes, arrays))

    for _ in range(count):
        q = draw_case(operator, "gaussian", int(rng.integers(2**31)), small)
        arrays = {name: numbers(rng, kind, a.shape, dtype) for name, a in q.arrays.items()}
        yield OpCase(operator, q.attributes, arrays, data=kind)


def case_of(q: OpCase, **more: Any) -> VectorCase:
    """Return the ONNX node of a generated operator case `q`; `more` are further fields of `VectorCase`."""
    name, attributes, constants = NODES[q.operator](q)
    arguments: dict[str, Array | None] = dict(q.arrays)
    arguments |= {k: None if v is None else np.asarray(v) for k, v in constants.items()}
    stored = tuple(k for k, v in constants.items() if v is not None)
    return VectorCase(name, arguments, attributes, stored=stored, **more)
