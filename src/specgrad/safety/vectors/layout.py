"""Equivalence classes of operators that copy cells (Concat, Reshape, Flatten, Slice) and of Resize.

A class has a draw(rng, dtype) that yields its cases; one whose type is fixed reads only what it needs of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ...scalar import Array
from ...window.resize import NEAREST, WHERE
from .case import FLOATS, Draw, OperatorClasses, VectorCase, zone
from .sample_values import Type, extreme_values, numbers

COPYABLE_TYPES = (*FLOATS, "INT8", "UINT8", "INT32")
copied = partial(zone, types=COPYABLE_TYPES)  # classes of cells of these types
BORDER = "exact coordinates decide; who computes them in floats may take the other cell, which the radius covers"
AXES = "the profile allows axes from 0 on only (S27)"


def distinct_cells(shape: tuple[int, ...], dtype: Type, first: int = 0) -> Array:
    """Return an array of this shape and type of consecutive numbers from `first` on, modulo 127: each output cell tells
    where it comes from.
    """
    return (np.arange(first, first + int(np.prod(shape))).reshape(shape) % 127).astype(dtype)


def _special_values(dtype: Type) -> Array:
    """Return the extreme values of a type and, for floats, NaN, infinities and zeros."""
    row = extreme_values(dtype)
    return row if dtype.kind != "f" else np.concatenate([row, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)])


# --- concat -----------------------------------------------------------------------------------------------------


def _concat_case(parts: Iterable[Array], axis: int, note: str = "", signs: bool = False) -> VectorCase:
    """Return a case of Concat of the arrays `parts`; `note` and `signs` as in `VectorCase`."""
    return VectorCase("Concat", {f"x{i}": p for i, p in enumerate(parts)}, {"axis": axis}, note=note, signs=signs)


def _concat_axes(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of Concat along every axis. Their numbers are of type `dtype`."""
    for axis in range(3):
        other = [2, 3, 2]
        other[axis] = 4
        yield _concat_case([distinct_cells((2, 3, 2), dtype), distinct_cells(tuple(other), dtype, 50)], axis)


def _concat_several(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield cases of Concat with one to five parts. Their numbers are of type `dtype`."""
    for count in (1, 2, 3, 5):
        yield _concat_case([distinct_cells((2, i + 1), dtype, 20 * i) for i in range(count)], 1)


def _concat_special(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield a case of Concat with special values. Its numbers are of type `dtype`."""
    yield _concat_case([_special_values(dtype), _special_values(dtype)[::-1].copy()], 0, signs=dtype.kind == "f")


CONCAT = OperatorClasses(
    "Concat",
    (
        copied("AXIS", "along every axis", "constraint", _concat_axes),
        copied("COUNT", "one to five parts of other sizes, in order", "function", _concat_several),
        copied(
            "NEGAXIS",
            "axes from the end",
            "constraint",
            lambda rng, d: [
                _concat_case([distinct_cells((2, 3), d), distinct_cells((2, 3), d, 9)], a, AXES) for a in (-1, -2)
            ],
        ),
        copied(
            "RANK1",
            "rows",
            "shape",
            lambda rng, d: [_concat_case([distinct_cells((3,), d), distinct_cells((2,), d, 9)], 0)],
        ),
        copied(
            "NULL",
            "parts without cells",
            "shape",
            lambda rng, d: [_concat_case([distinct_cells((2, 0), d), distinct_cells((2, 3), d)], 1)],
        ),
        copied("SPECIAL", "NaN, infinities, zeros and ends of types are handed on", "type", _concat_special),
    ),
)


# --- reshape, flatten, slice ------------------------------------------------------------------------------------


def _reshape_case(shape: tuple[int, ...], target: Iterable[int], **more: Any) -> Callable[[Type], VectorCase]:
    """Return a maker (by type) of a Reshape case from `shape` to `target`; `more` are ONNX attributes."""
    return lambda d: VectorCase(
        "Reshape", {"x": distinct_cells(shape, d), "shape": np.array([*target], np.int64)}, more, stored=("shape",)
    )


def _draw_each(*makes: Callable[[Type], VectorCase]) -> Any:
    """Return draw(rng, dtype) that gives one case per maker in `makes`, called with the type."""
    return lambda rng, dtype: [make(dtype) for make in makes]


RESHAPE = OperatorClasses(
    "Reshape",
    (
        copied(
            "FUNC",
            "other sizes, the same order of cells",
            "function",
            _draw_each(_reshape_case((2, 3, 4), (4, 6)), _reshape_case((6,), (1, 2, 3)), _reshape_case((2, 2), (4,))),
        ),
        copied(
            "INFER",
            "one size of -1",
            "function",
            _draw_each(_reshape_case((2, 3, 4), (2, -1)), _reshape_case((6,), (-1,))),
        ),
        copied("KEEP", "sizes of 0 keep the input's", "function", _draw_each(_reshape_case((2, 3, 4), (0, 0, 2, 2)))),
        copied(
            "SCALAR", "to and from a scalar", "shape", _draw_each(_reshape_case((1, 1), ()), _reshape_case((), (1, 1)))
        ),
        copied("NULL", "tensors without cells", "shape", _draw_each(_reshape_case((2, 0), (0, 3), allowzero=1))),
    ),
)


def _flatten_case(shape: tuple[int, ...], axis: int) -> Callable[[Type], VectorCase]:
    """Return a maker (by type) of a Flatten case of a shape along an axis."""
    return lambda d: VectorCase("Flatten", {"x": distinct_cells(shape, d)}, {"axis": axis})


FLATTEN = OperatorClasses(
    "Flatten",
    (
        copied(
            "AXIS",
            "every axis, 0 and the rank too",
            "constraint",
            _draw_each(*(_flatten_case((2, 3, 2, 2), a) for a in range(5))),
        ),
        copied(
            "NEGAXIS", "axes from the end", "constraint", _draw_each(*(_flatten_case((2, 3, 2), -a) for a in (1, 2, 3)))
        ),
        copied(
            "RANK",
            "scalars and rows",
            "shape",
            _draw_each(_flatten_case((), 0), _flatten_case((4,), 0), _flatten_case((4,), 1)),
        ),
    ),
)


def _slice_case(shape: tuple[int, ...], *where: tuple[int, int, int, int]) -> Callable[[Type], VectorCase]:
    """Return a maker (by type) of a Slice case; `where` has (start, end, axis, step) per sliced axis."""

    def make(dtype: Type) -> VectorCase:
        names = ("starts", "ends", "axes", "steps")
        rows = {n: np.array([w[k] for w in where], np.int64) for k, n in enumerate(names)}
        return VectorCase("Slice", {"x": distinct_cells(shape, dtype), **rows}, stored=names)

    return make


FAR = 2**31 - 1
SLICE = OperatorClasses(
    "Slice",
    (
        copied(
            "FUNC",
            "parts of every axis",
            "function",
            _draw_each(
                _slice_case((3, 4), (1, 3, 0, 1)),
                _slice_case((3, 4), (0, 2, 1, 1)),
                _slice_case((3, 4), (1, 3, 0, 1), (1, 2, 1, 1)),
            ),
        ),
        copied(
            "STEP",
            "every second and third cell",
            "function",
            _draw_each(_slice_case((7,), (0, 7, 0, 2)), _slice_case((3, 8), (1, 8, 1, 3))),
        ),
        copied(
            "NEGATIVE",
            "starts, ends and axes from the end",
            "constraint",
            _draw_each(_slice_case((5,), (-4, -1, 0, 1)), _slice_case((3, 4), (0, 2, -1, 1))),
        ),
        copied(
            "BEYOND",
            "ends beyond the axis are cut off",
            "constraint",
            _draw_each(_slice_case((5,), (1, 100, 0, 1)), _slice_case((5,), (2, FAR, 0, 1))),
        ),
        copied("SINGLE", "one cell", "shape", _draw_each(_slice_case((5,), (2, 3, 0, 1)))),
        copied(
            "NULL",
            "no cell is left: the profile refuses it (S31)",
            "shape",
            _draw_each(_slice_case((5,), (3, 3, 0, 1))),
        ),
    ),
    {"negative steps": "no vectors yet"},
)


# --- resize -----------------------------------------------------------------------------------------------------


def _resize_case(
    x: Array, attributes: Mapping[str, Any], sizes: Any = None, scales: Any = None, note: str = ""
) -> VectorCase:
    """Return a case of Resize of x by `sizes`, or by `scales` if these are None, with ONNX attributes and a note."""
    arguments: dict[str, Array | None] = {"x": x, "roi": None, "scales": None, "sizes": None}
    if sizes is not None:
        arguments["sizes"] = np.array(sizes, np.int64)
    else:
        arguments["scales"] = np.array(scales, np.float32)
    return VectorCase("Resize", arguments, attributes, stored=("scales",) if sizes is None else ("sizes",), note=note)


MODES = [w for w in WHERE if w not in ("half_pixel_symmetric", "tf_half_pixel_for_nn")]


def _resize_nearest(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield nearest Resize cases with every coordinate formula and rounding. Their numbers are of type `dtype`."""
    for where in MODES:
        for how in NEAREST:
            named = {"mode": "nearest", "coordinate_transformation_mode": where, "nearest_mode": how}
            yield _resize_case(distinct_cells((1, 1, 4), dtype), named, sizes=[1, 1, 7])


def _resize_linear(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield linear Resize cases with every coordinate formula, larger and smaller. Their numbers are of type
    `dtype`.
    """
    for where in MODES:
        for sizes in ([1, 1, 5, 3], [1, 1, 2, 8]):
            named = {"mode": "linear", "coordinate_transformation_mode": where}
            yield _resize_case(numbers(rng, "gaussian", (1, 1, 3, 4), dtype), named, sizes=sizes)


NAMED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
HALF = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}


def _resize_scales(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield Resize cases with scales in place of sizes. Their numbers are of type `dtype`."""
    for scales in ([1, 1, 2, 2], [1, 1, 3, 1], [1, 1, 0.5, 0.5]):
        yield _resize_case(distinct_cells((1, 2, 4, 4), dtype), NAMED, scales=scales)
    yield _resize_case(numbers(rng, "gaussian", (1, 1, 4, 4), dtype), HALF, scales=[1, 1, 2, 0.5])


def _resize_special(rng: Draw, dtype: Type) -> Iterator[VectorCase]:
    """Yield Resize cases with NaN and infinities. Their numbers are of type `dtype`."""
    row = np.array([1, np.nan, 2, np.inf, -np.inf, 3], dtype).reshape(1, 1, 6)
    yield _resize_case(row, NAMED, scales=[1, 1, 2])
    yield _resize_case(row, HALF, sizes=[1, 1, 12], note="cells of weight 0 may be multiplied or not: open")


RESIZE = OperatorClasses(
    "Resize",
    (
        zone("NEAREST", "one cell, by every formula and every way to round", "function", _resize_nearest),
        zone("LINEAR", "two axes, larger and smaller, by every formula", "function", _resize_linear),
        zone("SCALES", "factors in place of sizes", "function", _resize_scales),
        zone(
            "BORDER",
            "coordinates on a border between two cells",
            "risk",
            lambda rng, d: [
                _resize_case(
                    distinct_cells((1, 1, n), d), {**NAMED, **HALF, "mode": "nearest"}, sizes=[1, 1, m], note=BORDER
                )
                for n, m in ((7, 1), (10, 5), (9, 3))
            ],
        ),
        zone(
            "KEEP",
            "the same size",
            "shape",
            lambda rng, d: [_resize_case(distinct_cells((1, 1, 4), d), m, sizes=[1, 1, 4]) for m in (NAMED, HALF)],
        ),
        zone(
            "ONE",
            "from one cell, and to one",
            "shape",
            lambda rng, d: [
                _resize_case(distinct_cells((1, 1, n), d, 1), HALF, sizes=[1, 1, m]) for n, m in ((1, 4), (4, 1))
            ],
        ),
        zone(
            "RANK",
            "one and three spatial axes",
            "shape",
            lambda rng, d: [
                _resize_case(distinct_cells((1, 1, 3), d), HALF, sizes=[1, 1, 5]),
                _resize_case(distinct_cells((1, 1, 2, 2, 2), d), NAMED, sizes=[1, 1, 4, 2, 6]),
            ],
        ),
        zone("SPECIAL", "NaN and infinities among the data", "type", _resize_special),
    ),
    {
        "mode cubic": "no vectors yet",
        "tf_crop_and_resize, antialias, exclude_outside, keep_aspect_ratio_policy": "refused by the importer",
        "integers": "refused by the importer",
        "half_pixel_symmetric, tf_half_pixel_for_nn": "read, not drawn: few runtimes have them",
        "no text": "the profile has none yet",
    },
)

LAYOUT = (CONCAT, RESIZE, RESHAPE, FLATTEN, SLICE)
