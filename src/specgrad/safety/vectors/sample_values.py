"""Numbers of every type: at random by the kinds of `specgrad.check.cases.generate`, and those where types end."""

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
TRIED = 400  # cells and products of one case: rationals are slow


def numbers(rng: Draw, kind: str, shape: Shape, dtype: Type) -> Array:
    """An array by a kind of data, in a type. Integers take their whole range, or what the kind says."""
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        if kind in ("ties", "integers"):
            return rng.integers(0, 2 if kind == "ties" else 9, size=shape).astype(dtype)
        return rng.integers(ends.min, ends.max, size=shape, endpoint=True).astype(dtype)
    if kind == "subnormal":
        return np.asarray(rng.normal(size=shape) * 2.0**8 * np.finfo(dtype).smallest_subnormal).astype(dtype)
    return np.asarray(DATA[kind](rng, shape)).astype(dtype)


def ends(dtype: Type) -> Array:
    """Where a type ends: largest, smallest normal and subnormal numbers, both signs; integers: least and largest."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1], dtype)
    f = np.finfo(dtype)
    some = [f.max, f.smallest_normal, f.smallest_subnormal, np.nextafter(f.smallest_normal, dtype.type(0)), 1 + f.eps]
    return np.array([*some, *(-np.array(some)), 1.0, -1.0], dtype)


def pairs(a: Iterable[float], b: Iterable[float], dtype: Type) -> tuple[Array, Array]:
    """Every number of the first with every one of the second.

    >>> pairs([1, 2], [3, 4], np.dtype("float32"))[1]
    array([3., 4., 3., 4.], dtype=float32)
    """
    first, second = np.meshgrid(np.array([*a], dtype), np.array([*b], dtype), indexing="ij")
    return first.ravel(), second.ravel()


def planted(rng: Draw, values: Iterable[float], shape: Shape, dtype: Type) -> Array:
    """Gaussian numbers, a third of them replaced by the values in turn."""
    x = rng.normal(size=shape).astype(dtype)
    some = [*values]
    at = rng.permutation(x.size)[: max(len(some), x.size // 3)]
    x.reshape(-1)[at] = np.resize(np.array(some, dtype), at.size)
    return x


def asked(
    rng: Draw, operator: str, kind: str, count: int, dtype: Type, accept: Accept | None = None
) -> Iterator[OpCase]:
    """Questions of `specgrad.check.cases.generate` that are small, their arrays drawn again in a type."""

    def small(attributes: Mapping[str, Any], arrays: Mapping[str, Shape]) -> bool:
        size = int(np.prod(arrays["x"])) * int(np.prod(arrays.get("w", (1, 1))[1:]))
        return size <= TRIED and (accept is None or accept(attributes, arrays))

    for _ in range(count):
        q = draw_case(operator, "gaussian", int(rng.integers(2**31)), small)
        arrays = {name: numbers(rng, kind, a.shape, dtype) for name, a in q.arrays.items()}
        yield OpCase(operator, q.attributes, arrays, data=kind)


def case_of(q: OpCase, **more: Any) -> VectorCase:
    """The node of a question."""
    name, attributes, constants = NODES[q.operator](q)
    arguments: dict[str, Array | None] = dict(q.arrays)
    arguments |= {k: None if v is None else np.asarray(v) for k, v in constants.items()}
    stored = tuple(k for k, v in constants.items() if v is not None)
    return VectorCase(name, arguments, attributes, stored=stored, **more)
