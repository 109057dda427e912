"""Inputs of a kernel, drawn by shape and format: usual numbers, and those at which kernels go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

import numpy as np

from specgrad.errors import ParameterError
from specgrad.rounding import FORMATS
from specgrad.scalar import Array
from specgrad.window import Shape

from ..cases.generate import DATA
from .arrays import MANY_CELLS
from .case import KernelCase

Draw = Callable[[np.random.Generator, Shape], Array]
OPEN_SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
"""What an open size is at first: ends of usual tiles and their neighbours."""
KINDS_OF_MANY = ("gaussian", "integers")


def _sparse(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers, seven of eight replaced by 0, drawn by `rng`: short sums, whose allowance is small.

    The result has this shape.
    """
    return rng.normal(size=shape) * (rng.random(shape) < 0.125)


def _zeros(rng: np.random.Generator, shape: Shape) -> Array:
    """Return -0.0, 0.0, -1 and 1, drawn by `rng`. The result has this shape."""
    return rng.choice((-0.0, 0.0, -1.0, 1.0), size=shape)


def _large(rng: np.random.Generator, shape: Shape) -> Array:
    """Return numbers of sizes 2**10 to 2**60, log-uniform, drawn by `rng`. The result has this shape."""
    return rng.choice((-1.0, 1.0), size=shape) * np.exp2(rng.uniform(10, 60, size=shape))


def _with_infinities(rng: np.random.Generator, shape: Shape) -> Array:
    """Return normal numbers, a quarter of them infinite, of both signs, drawn by `rng`. The result has this shape."""
    x = rng.normal(size=shape)
    return np.where(rng.random(shape) < 0.25, np.copysign(np.inf, x), x)


KINDS: dict[str, Draw] = {
    **{name: DATA[name] for name in ("gaussian", "integers", "ties", "spikes", "wide", "subnormal")},
    "sparse": _sparse,
    "signed zeros": _zeros,
    "large": _large,
    "nan": DATA["nan"],
    "-inf": DATA["-inf"],
    "infinities": _with_infinities,
}


@dataclass(frozen=True)
class InputShapes:
    """Shapes and formats of a kernel's inputs.

    shapes   input -> its shape; a text in place of a size leaves it open, the same text is the same size
    formats  input -> the floating-point format that it is handed out in
    """

    shapes: Mapping[str, tuple[int | str, ...]]
    formats: Mapping[str, str]

    @property
    def open_sizes(self) -> tuple[str, ...]:
        """Return the names of sizes that are left open, in order."""
        return tuple(dict.fromkeys(n for shape in self.shapes.values() for n in shape if isinstance(n, str)))

    def at(self, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Return the shapes where the open sizes are these."""
        return {k: tuple(sizes[n] if isinstance(n, str) else n for n in shape) for k, shape in self.shapes.items()}

    def draw_sizes(self, seed: int) -> dict[str, int]:
        """Return the open sizes that are drawn by a seed.

        >>> InputShapes({"x": ("N", 3)}, {"x": "float32"}).draw_sizes(1)
        {'N': 8}
        """
        drawn = Random(seed)
        return {name: drawn.choice(OPEN_SIZES) for name in self.open_sizes}

    def draw(self, kind: str, seed: int, sizes: Mapping[str, int], layout: str = "contiguous") -> KernelCase:
        """Return the case that `seed` draws, with numbers of one kind, a key of KINDS, where open sizes are these.

        `layout` is one of LAYOUTS.
        """
        arrays = {}
        for name, shape in self.at(sizes).items():
            rng = np.random.default_rng([crc32(f"{name} {kind}".encode()), seed])
            drawn_numbers = KINDS[kind](rng, shape) if 0 not in shape else np.zeros(shape)
            arrays[name] = to_format(drawn_numbers.astype(np.float32), self.formats[name])
        axes = {k: tuple(n if isinstance(n, str) else None for n in shape) for k, shape in self.shapes.items()}
        return KernelCase(arrays, self.formats, layout, kind, sizes, axes, seed)


def drawn_cases(
    inputs: InputShapes, count: int, seed: int, layouts: Sequence[str], most_sizes: int | None
) -> Iterator[KernelCase]:
    """Yield `count` cases: the kinds of numbers in turn, in the first layout, then usual numbers in the others; and
    again.

    `seed` decides numbers and sizes.

    Open sizes are drawn for every case, or for no more than `most_sizes`, which others repeat. Of inputs with more than
    MANY_CELLS cells only KINDS_OF_MANY are drawn, in the first layout.
    """
    largest = sum(int(np.prod(s)) for s in inputs.at(dict.fromkeys(inputs.open_sizes, max(OPEN_SIZES))).values())
    pairs = [(kind, layouts[0]) for kind in KINDS] + [("gaussian", layout) for layout in layouts[1:]]
    if largest > MANY_CELLS:
        pairs = [(kind, layouts[0]) for kind in KINDS_OF_MANY]
    for i in range(count):
        kind, layout = pairs[i % len(pairs)]
        first = seed * 1_000_003
        sizes = inputs.draw_sizes(first + (i if most_sizes is None else i % most_sizes))
        yield inputs.draw(kind, first + i, sizes, layout)


def usual_count(inputs: InputShapes, layouts: Sequence[str]) -> int:
    """Return how many cases are asked where nobody says: each kind and layout once, three times where a size is
    open.
    """
    return (len(KINDS) + len(layouts) - 1) * (3 if inputs.open_sizes else 1)


def to_format(x: Array, name: str) -> Array:
    """Return float32 numbers rounded to the format `name`, ties to even.

    Numbers outside its range are first scaled near its ends. An infinity is NaN in a format that has none.

    >>> to_format(np.float32([1.001, 1e6, 1e-9]), "float16")
    array([1.0009766e+00, 1.9530000e+03, 5.9604645e-08], dtype=float32)
    """
    form = FORMATS[name]
    if form.digits >= 24 and form.lowest <= -126:
        return x
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.frexp(wide)[1]
        top, bottom = int(np.log2(form.largest)) - 4, form.lowest - form.digits + 2
        wide = np.ldexp(wide, np.where(exponent > top, top - exponent, 0))
        wide = np.ldexp(wide, np.where(exponent < bottom, bottom - exponent, 0))
        step = np.maximum(np.frexp(wide)[1] - form.digits, form.lowest - form.digits + 1)
        near = np.ldexp(np.rint(np.ldexp(wide, -step)), step)
    return np.where(np.isfinite(x), near, np.nan if form.finite else x).astype(np.float32)


def check_formats(shapes: Mapping[str, Any], formats: Any, usual: str) -> dict[str, str]:
    """Return {input: format} for the inputs of `shapes`: `formats` is one name, names by input, or None for `usual`.

    ParameterError for a format that is none, and for names of no input.
    """
    named = formats if isinstance(formats, Mapping) else dict.fromkeys(shapes, formats or usual)
    for name, form in named.items():
        if name not in shapes:
            raise ParameterError("formats", f"names {name!r}, which is no input; the inputs are {', '.join(shapes)}")
        if form not in FORMATS or form == "real":
            known = ", ".join(f for f in FORMATS if f != "real")
            text = f"must be among {known}; got {form!r} for {name} (give integers as arrays: their range is not known)"
            raise ParameterError("formats", text, rule="P5")
    return {name: named.get(name, usual) for name in shapes}
