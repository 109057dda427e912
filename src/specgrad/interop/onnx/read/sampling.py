"""Converters of ONNX operators that read between cells, at positions that may depend on the data. They refuse what they
do not honour, and raise ShapeError where shapes do not fit.

Read linearly at coordinate s, an axis is weighted by max(0, 1 - abs(s - i)) at every cell i: the two cells beside s
have the weights of a linear interpolation, all others 0. So a value is a sum of products, continuous in s, and
coordinates that a runtime computes in floats need no rule of their own. Where s is a whole number its slope is 0. A NaN
or an infinity anywhere in a plane makes all that is read there unknown, being multiplied by 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import ShapeError, UnsupportedError
from ....op import Value
from ....ops.activation import clamp, relu
from ....ops.einsum import einsum
from ....ops.elementwise import abs_, add, div, equal, greater_equal, maximum, mean, mul, sub
from ....ops.gather import gather
from ....ops.integer_rounding import round_
from ....ops.layout import reshape, slice_
from ..file import extent, shown
from .node import OnnxNode, operator


def _beside_cells(s: Value, cells: int) -> tuple[Value, Value]:
    """Return coordinates s with an axis of length 1 behind, and the positions 0..cells-1 as float32."""
    return reshape(s, (*s.shape, 1)), np.arange(cells, dtype=np.float32)


def _linear_weights(s: Value, cells: int) -> Value:
    """Return the weight of every cell of an axis at the coordinates `s`, on a new last axis."""
    at, positions = _beside_cells(s, cells)
    return relu(sub(1, abs_(sub(at, positions))))


def _nearest_weights(s: Value, cells: int) -> Value:
    """Return 1 at the cell nearest to each coordinate `s`, the even one of two, else 0, on a new last axis."""
    at, positions = _beside_cells(round_(s), cells)
    return equal(at, positions)


MODES: dict[str, Callable[[Value, int], Value]] = {
    "linear": _linear_weights,
    "bilinear": _linear_weights,
    "nearest": _nearest_weights,
}
SAMPLED = "modes linear (bilinear before 20) and nearest; padding_mode zeros and border; one to three spatial axes"


@operator("GridSample", 16, 20, 22, note=SAMPLED)
def _grid_sample(c: OnnxNode) -> Value:
    """Convert ONNX GridSample: the last axis of the grid holds coordinates from -1 to 1, of the last axis first.

    Refused: other modes and paddings; ShapeError for a grid that does not fit.
    """
    mode = c.string("mode", "bilinear" if c.version == 16 else "linear")
    padding, corners = c.string("padding_mode", "zeros"), c.flag("align_corners")
    if mode not in (("bilinear", "nearest") if c.version == 16 else ("linear", "nearest")):
        c.refuse(f"mode={shown(mode)} is not supported; only {SAMPLED}")
    if padding not in ("zeros", "border"):
        c.refuse(f"padding_mode={shown(padding)} is not supported; only 'zeros' or 'border'")
    x, grid = c.real(0), c.real(1)
    n, channels, *sizes = x.shape
    if (
        len(grid.shape) != len(x.shape)
        or grid.shape[0] != n
        or grid.shape[-1] != len(sizes)
        or not 1 <= len(sizes) <= 3
    ):
        c.refuse(f"a grid of shape {grid.shape} does not fit shape {x.shape}", None, ShapeError)
    points = extent(tuple(grid.shape[1:-1]))
    c.importer.budget.check_value(c.title, n * channels * points * extent(tuple(sizes[:-1])))
    flat = reshape(grid, (n, points, len(sizes)))
    weights = []
    for axis, cells in enumerate(sizes):
        given = reshape(slice_(flat, None, None, slice(len(sizes) - 1 - axis, len(sizes) - axis)), (n, points))
        weights.append(MODES[mode](_grid_coordinates(given, cells, corners, padding == "border"), cells))
    *first, last = weights
    space = "ijk"[: len(sizes)]
    y = einsum(f"nc{space},np{space[-1]}->ncp{space[:-1]}", x, last)
    for letter, w in reversed(list(zip(space, first, strict=False))):
        rest = space[: space.index(letter)]
        y = einsum(f"ncp{rest}{letter},np{letter}->ncp{rest}", y, w)
    return reshape(y, (n, channels, *grid.shape[1:-1]))


def _grid_coordinates(given: Value, cells: int, corners: bool, border: bool) -> Value:
    """Return coordinates in cells of numbers `given` from -1 to 1: these are the middles of the end cells (`corners`),
    or their outer borders.

    border: what lies beyond the ends is read at the ends.
    """
    if corners:
        s = mul(div(add(given, 1), 2), cells - 1)
    else:
        s = div(sub(mul(add(given, 1), cells), 1), 2)
    return clamp(s, 0, cells - 1) if border else s


@operator("RoiAlign", 10, 16, 22, note="mode avg; sampling_ratio above 0")
def _roi_align(c: OnnxNode) -> Value:
    """Convert ONNX RoiAlign: averages of samples on a grid in boxes (x1, y1, x2, y2), one image for each box.

    A sample more than a cell outside is 0; others are moved to the nearest end. Refused: another mode than "avg".
    """
    c.require("mode", "string", "avg")
    outs = c.integer("output_height", 1), c.integer("output_width", 1)
    ratio, scale = c.integer("sampling_ratio", 0), c.floating("spatial_scale", 1.0)
    where = c.string("coordinate_transformation_mode", "half_pixel") if c.version >= 16 else "output_half_pixel"
    if where not in ("half_pixel", "output_half_pixel"):
        c.refuse(f"coordinate_transformation_mode={shown(where)} is not known")
    if ratio < 1 or min(outs) < 1:
        text = f"sampling_ratio={ratio}: below 1 the size of a box decides how many samples it has"
        c.refuse(text if ratio < 1 else f"output sizes {outs} must be positive", None, UnsupportedError)
    x, boxes = c.real(0), c.real(1)
    if len(x.shape) != 4 or len(boxes.shape) != 2 or boxes.shape[1] != 4 or c.shape(2) != boxes.shape[:1]:
        c.refuse(f"shapes {x.shape}, {boxes.shape} and {c.shape(2)} do not fit", None, ShapeError)
    count, channels = boxes.shape[0], x.shape[1]
    c.importer.budget.check_value(c.title, count * channels * x.shape[2] * outs[1] * ratio)
    c.importer.budget.check_value(c.title, count * channels * outs[0] * outs[1] * ratio * ratio)
    weights = [
        _box_weights(c, boxes, axis, cells, out, ratio, scale, where == "half_pixel")
        for axis, cells, out in ((1, x.shape[2], outs[0]), (0, x.shape[3], outs[1]))
    ]
    known = c.importer.constant_value(c.input_name(2))
    if known is not None and known.min(initial=0) < 0:
        c.refuse("batch_indices must not be negative", None, ShapeError)
    images = gather(x, c.positions(2) if known is None else np.asarray(known, np.int64), axis=0)
    y = einsum("rcij,rqj->rciq", images, weights[1])
    y = einsum("rciq,rpi->rcpq", y, weights[0])
    return mean(reshape(y, (count, channels, outs[0], ratio, outs[1], ratio)), (3, 5))


def _box_weights(
    c: OnnxNode, boxes: Value, axis: int, cells: int, out: int, ratio: int, scale: float, centred: bool
) -> Value:
    """Return weights (box, out*ratio, cells) of the samples of one axis of every box, 0 for those far outside.

    An axis of `cells` cells has `out` outputs of `ratio` samples each.

    axis      0: x1 and x2 of a box, 1: y1 and y2
    scale     cells per unit of the boxes
    centred   coordinates are moved by half a cell; else a box has at least the size of one
    """
    first, last = (
        sub(mul(slice_(boxes, None, slice(k, k + 1)), scale), 0.5 if centred else 0) for k in (axis, axis + 2)
    )
    size = sub(last, first)
    size = size if centred else maximum(size, 1)
    steps = (np.arange(out * ratio) + 0.5) / (out * ratio)  # of the box, in the middle of each sample
    s = add(first, mul(size, steps))
    inside = mul(greater_equal(s, -1), greater_equal(cells, s))
    weights = _linear_weights(clamp(s, 0, cells - 1), cells)
    return mul(weights, reshape(inside, (*inside.shape, 1)))


@operator("NonMaxSuppression", 10, 11, note="refused: how many boxes are left depends on the data")
def _non_max_suppression(c: OnnxNode) -> Value:
    """Refuse ONNX NonMaxSuppression, whose result has no fixed shape."""
    return c.refuse("how many boxes are left depends on the data, and so does the shape", None, UnsupportedError)
