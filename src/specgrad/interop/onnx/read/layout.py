"""Converters of ONNX operators that move cells, give shapes, or hold constants; all run on known values, too. They
refuse what they do not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from onnx import TensorProto

from specgrad.ops.composites import pad, upsample_nearest

from ....errors import ShapeError, UnsupportedError
from ....op import Value, shape_of
from ....ops.elementwise import select
from ....ops.gather import gather, take_along
from ....ops.layout import axes_of, axis_of, broadcast, concat, permute, reshape, slice_
from ....ops.quantize import cast
from ....ops.resize import resize
from ....scalar import Array
from ....window import resized
from ....window.resize import NEAREST, WHERE
from ..file import DTYPES, FLOATS, check_shape, extent, shown, type_name
from .importer import FORMATS, MAX_FOLDED_CELLS, WHOLE
from .node import OnnxNode, operator

MAX_PIECES = 256  # slices that one node may become


# --- shapes -----------------------------------------------------------------------------------------------------


@operator("Reshape", 5, 13, 14, 19, 21, 23, 24, 25)
def _reshape(c: OnnxNode) -> Value:
    """Convert ONNX Reshape: 0 keeps a size (unless allowzero=1), -1 takes what is left.

    ShapeError for a 0 behind the axes that there are.
    """
    keep = not (c.version >= 14 and c.flag("allowzero"))
    old, wanted = c.shape(0), c.known_ints(1, "shape")
    if keep and any(n == 0 and i >= len(old) for i, n in enumerate(wanted)):
        c.refuse(f"shape={wanted} keeps a size that shape {old} does not have", None, ShapeError)
    return reshape(c.value(0), [old[i] if n == 0 and keep else n for i, n in enumerate(wanted)])


@operator("Flatten", 1, 9, 11, 13, 21, 23, 24, 25)
def _flatten(c: OnnxNode) -> Value:
    """Convert ONNX Flatten: always two axes: those before `axis`, and the rest.

    ShapeError for an axis that does not exist.
    """
    shape, axis = c.shape(0), c.integer("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        c.refuse(f"axis={axis} does not exist in shape {shape}", None, ShapeError)
    axis = axis + len(shape) if axis < 0 else axis
    return reshape(c.value(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@operator("Transpose", 1, 13, 21, 23, 24, 25)
def _transpose(c: OnnxNode) -> Value:
    """Convert ONNX Transpose: axes in the order of attribute perm, reversed without it."""
    return permute(c.value(0), c.ints("perm", list(reversed(range(len(c.shape(0)))))))


@operator("Squeeze", 1, 11, 13, 21, 23, 24, 25, note="axes is left out, or names one")
def _squeeze(c: OnnxNode) -> Value:
    """Convert ONNX Squeeze: drop the axes that are named, or all of size 1.

    Refused: axes of another size, and an empty list, which runtimes read in two ways.
    """
    shape = c.shape(0)
    axes = c.axes(None if c.version < 13 else 1)
    if axes == [] and 1 in shape:
        c.refuse("axes is empty: ONNX's reference drops no axis then, ONNX Runtime all of size 1; leave axes out", None)
    positions = [a for a, n in enumerate(shape) if n == 1] if axes is None else axes_of("axes", axes, len(shape))
    if any(shape[a] != 1 for a in positions):
        c.refuse(f"axes={axes} must have size 1 in shape {shape}", None, ShapeError)
    return reshape(c.value(0), [n for a, n in enumerate(shape) if a not in positions])


@operator("Unsqueeze", 1, 11, 13, 21, 23, 24, 25)
def _unsqueeze(c: OnnxNode) -> Value:
    """Convert ONNX Unsqueeze: new axes of size 1 at these places; refused if `axes` is missing."""
    axes = c.axes(None if c.version < 13 else 1)
    if axes is None:
        c.refuse("attribute axes is missing")
    check_shape(c.title, [1] * (len(c.shape(0)) + len(axes)))
    positions = axes_of("axes", axes, len(c.shape(0)) + len(axes))
    sizes = list(c.shape(0))
    for a in positions:
        sizes.insert(a, 1)
    return reshape(c.value(0), sizes)


@operator("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
def _shape(c: OnnxNode) -> Array:
    """Convert ONNX Shape: the sizes of x, from axis `start` to before `end`, as known integers."""
    start, end = (c.integer("start", 0), c.integer("end", None)) if c.version >= 15 else (0, None)
    c.result_type = TensorProto.INT64
    return np.array(c.shape(0)[slice(start, end)], dtype=np.int64)


@operator("Size", 1, 13, 19, 21, 23, 24, 25)
def _size(c: OnnxNode) -> Array:
    """Convert ONNX Size: the number of cells of x, a known integer."""
    c.result_type = TensorProto.INT64
    return np.array(math.prod(c.shape(0)), dtype=np.int64)


@operator("Expand", 8, 13)
def _expand(c: OnnxNode) -> Value:
    """Convert ONNX Expand: x broadcast against a known shape; refused if the two do not broadcast."""
    wanted = check_shape(c.title, c.known_ints(1, "shape"))
    shape = _broadcast_shapes(c, c.shape(0), wanted)
    x = c.value(0)
    if isinstance(x, np.ndarray):
        return c.folded(np.broadcast_to(x, shape))
    return broadcast(x, shape)


def _broadcast_shapes(c: OnnxNode, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the broadcast shape; ShapeError if the shapes do not broadcast."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        return c.refuse(f"shapes {' and '.join(map(str, shapes))} do not broadcast", None, ShapeError)


@operator("Tile", 6, 13)
def _tile(c: OnnxNode) -> Value:
    """Convert ONNX Tile: repeats along every axis, one axis at a time; many of them, or none, as one gather.

    ShapeError for another number of repeats, and negative ones; ModelError beyond the budget.
    """
    x, repeats = c.value(0), c.known_ints(1, "repeats")
    if len(repeats) != len(c.shape(0)) or any(n < 0 for n in repeats):
        c.refuse(f"repeats={repeats} must not be negative, one per axis of {c.shape(0)}", None, ShapeError)
    cells = math.prod(c.shape(0)) * math.prod(repeats)
    c.importer.budget.check(c.title, cells)
    if isinstance(x, np.ndarray):
        c.folded(np.broadcast_to(0, cells))
        return np.tile(x, repeats)
    for axis, n in enumerate(repeats):
        if 1 < n <= MAX_PIECES:
            x = concat([x] * n, axis)
        elif n != 1:
            x = gather(x, np.tile(np.arange(c.shape(0)[axis]), n), axis=axis)
    return x


# --- parts ------------------------------------------------------------------------------------------------------


@operator("Concat", 4, 11, 13)
def _concat(c: OnnxNode) -> Value:
    """Convert ONNX Concat: all inputs one after the other along `axis`."""
    axis = c.integer("axis")
    values = [c.value(i) for i in range(len(c.node.input))]
    if all(isinstance(v, np.ndarray) for v in values) and sum(v.size for v in values) <= 2**16:
        return c.folded(concat(values, axis))
    return concat([c.any_variable(i) if isinstance(v, np.ndarray) else v for i, v in enumerate(values)], axis)


@operator("Split", 2, 11, 13, 18)
def _split(c: OnnxNode) -> tuple[Value, ...]:
    """Convert ONNX Split: cells along `axis` cut into the node's outputs; refused if the sizes do not add up."""
    x, shape = c.value(0), c.shape(0)
    axis = axis_of("axis", c.integer("axis", 0), len(shape))
    sizes = c.ints("split", None) if c.version < 13 else c.known_ints(1, "split") if c.has(1) else None
    count = c.integer("num_outputs", None) if c.version >= 18 else None
    if sizes is None:
        sizes = _even_parts(c, shape[axis], len(c.node.output) if count is None else count)
    if len(sizes) != len(c.node.output) or min(sizes) < 0 or sum(sizes) != shape[axis]:
        c.refuse(f"split={sizes} must cut {shape[axis]} cells into {len(c.node.output)} outputs", None, ShapeError)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(slice_(x, *[None] * axis, slice(a, a + n)) for a, n in zip(starts, sizes, strict=True))


def _even_parts(c: OnnxNode, cells: int, count: int) -> list[int]:
    """Return the sizes of `count` equal parts; from version 18 on the last may be smaller, and have no cell.

    ShapeError if there are none such.
    """
    if not 1 <= count <= MAX_PIECES or (c.version < 18 and cells % count):
        c.refuse(f"{cells} cells do not split into {count} equal parts", None, ShapeError)
    size = -(-cells // count)
    last = cells - size * (count - 1)
    if last < 0:
        c.refuse(f"{cells} cells do not split into {count} parts of which the last alone is smaller", None, ShapeError)
    return [size] * (count - 1) + [last]


@operator("Slice", 1, 10, 11, 13)
def _slice(c: OnnxNode) -> Value:
    """Convert ONNX Slice: start:end:step along each of the axes.

    Starts, ends, axes and steps are constants; ShapeError unless they are equally long.
    """
    if c.version == 1:
        starts, ends, axes, steps = c.ints("starts"), c.ints("ends"), c.ints("axes", None), None
    else:
        starts, ends = c.known_ints(1, "starts"), c.known_ints(2, "ends")
        axes = c.known_ints(3, "axes") if c.has(3) else None
        steps = c.known_ints(4, "steps") if c.has(4) else None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        c.refuse("starts, ends, axes and steps must be equally long", None, ShapeError)
    x, shape = c.value(0), c.shape(0)
    ranges: list[Any] = [slice(None)] * len(shape)
    for a, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = axis_of("axes", a, len(shape))
        ranges[axis] = _python_slice(c, shape[axis], start, end, step)
    if isinstance(x, np.ndarray):
        return x[tuple(ranges)]
    for a, r in enumerate(ranges):
        if r.step is not None and r.step < 0:
            x, ranges[a] = gather(x, np.arange(shape[a])[r], axis=a), slice(None)
    return slice_(x, *ranges)


def _python_slice(c: OnnxNode, cells: int, start: int, end: int, step: int) -> slice:
    """Return start:end:step of an axis of `cells` as a Python slice.

    ONNX moves a start before the first cell there, whichever way it goes. Refused: a step of 0.
    """
    if step == 0:
        c.refuse("a step must not be 0", None)
    start, end = (n + cells if n < 0 else n for n in (start, end))
    if step > 0 or not cells:
        return slice(min(max(start, 0), cells), min(max(end, 0), cells), max(step, 1))
    start, end = min(max(start, 0), cells - 1), max(end, -1)
    return slice(start, None if end < 0 else end, step)


@operator("Gather", 1, 11, 13)
def _gather(c: OnnxNode) -> Value:
    """Convert ONNX Gather: of known values at known positions a constant; at neighbouring ones a slice.

    ModelError for a result beyond the budget.
    """
    shape = c.shape(0)
    axis = axis_of("axis", c.integer("axis", 0), len(shape))
    where = c.importer.constant_value(c.input_name(1))
    result = (*shape[:axis], *c.shape(1), *shape[axis + 1 :])
    if where is None:
        c.importer.budget.check(c.title, extent(result))
        return gather(c.any_variable(0), c.positions(1), axis=axis)
    where = _known_positions(c, where, shape[axis])
    x = c.importer.values[c.input_name(0)]
    if isinstance(x, np.ndarray) and math.prod(result) <= MAX_FOLDED_CELLS:
        return c.folded(np.take(x, where, axis=axis))
    c.importer.budget.check(c.title, extent(result))
    flat = where.reshape(-1)
    if flat.size and (np.diff(flat) == 1).all():
        return reshape(slice_(c.any_variable(0), *[None] * axis, slice(flat[0], flat[-1] + 1)), result)
    return gather(c.any_variable(0), where, axis=axis)


def _known_positions(c: OnnxNode, where: Array, cells: int) -> Array:
    """Return constant positions `where` on an axis of `cells` as int64 from 0 on; ShapeError if one does not exist."""
    if where.dtype.kind not in "iu" or (where.size and not (-cells <= where.min() and where.max() < cells)):
        c.refuse(f"indices must lie in -{cells}..{cells - 1}", None, ShapeError)
    if where.dtype == np.int64 and where.min(initial=0) >= 0:
        return where  # the array itself, which a graph holds once
    return np.asarray(where.astype(np.int64) % max(cells, 1))


@operator("GatherElements", 11, 13, note="positions, if computed, from 0 on")
def _gather_elements(c: OnnxNode) -> Value:
    """Convert ONNX GatherElements; cells beyond the shape of the indices, on axes other than `axis`, are not read.

    Constant indices may count from the end; those that the model computes must not be negative. ShapeError for indices
    of a shape that does not lie in that of the data.
    """
    shape, where = c.shape(0), c.importer.constant_value(c.input_name(1))
    axis = axis_of("axis", c.integer("axis", 0), len(shape))
    index = c.shape(1)
    if len(index) != len(shape) or any(m > n for a, (m, n) in enumerate(zip(index, shape, strict=True)) if a != axis):
        c.refuse(f"indices of shape {index} must lie in shape {shape} but for axis {axis}", None, ShapeError)
    x = slice_(c.number(0), *(None if a == axis else slice(0, n) for a, n in enumerate(index)))
    return take_along(x, c.positions(1) if where is None else _known_positions(c, where, shape[axis]), axis=axis)


PADDED = "modes constant (negative pads crop), reflect, edge and wrap"


@operator("Pad", 2, 11, 13, 18, 19, 21, 23, 24, 25, note=PADDED)
def _pad(c: OnnxNode) -> Value:
    """Convert ONNX Pad by known widths, negative ones crop; refused: modes but constant, reflect, edge, wrap."""
    shape, mode = c.shape(0), c.string("mode", "constant")
    if mode not in ("constant", "reflect", "edge", *(("wrap",) if c.version >= 19 else ())):
        c.refuse(f"mode={shown(mode)} is not supported; only {PADDED}")
    if c.version == 2:
        pads, value, axes = c.ints("pads"), c.floating("value", 0.0), None
    else:
        pads, value = c.known_ints(1, "pads"), c.known_number(2, "constant_value") if c.has(2) else 0
        axes = c.known_ints(3, "axes") if c.has(3) else None
    named = [axis_of("axes", a, len(shape)) for a in (range(len(shape)) if axes is None else axes)]
    if len(pads) != 2 * len(named) or len(set(named)) != len(named):
        c.refuse(f"pads={pads} must have {2 * len(named)} entries, all begins then all ends", None, ShapeError)
    widths = [(0, 0)] * len(shape)
    for i, a in enumerate(named):
        widths[a] = (pads[i], pads[i + len(named)])
    if mode != "constant":  # constant_value has no effect then
        c.importer.budget.check(c.title, extent(tuple(n + sum(w) for n, w in zip(shape, widths, strict=True))))
        return pad(c.number(0), widths, mode=mode)
    return _pad_constant(c, c.number(0), widths, value)


def _pad_constant(c: OnnxNode, x: Value, widths: list[tuple[int, int]], value: Any) -> Value:
    """Return x padded with `value`, (low, high) cells per axis; negative widths crop.

    ShapeError if they crop more than there is.
    """
    shape = shape_of(x)
    if any(n + min(lo, 0) + min(hi, 0) < 0 for n, (lo, hi) in zip(shape, widths, strict=True)):
        c.refuse(f"pads {widths} crop more than shape {shape} has", None, ShapeError)
    cropped = slice_(x, *(slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(shape, widths, strict=True)))
    grown = [(max(lo, 0), max(hi, 0)) for lo, hi in widths]
    return pad(cropped, grown, value=value) if any(map(any, grown)) else cropped


# --- resizing ---------------------------------------------------------------------------------------------------


RESIZED = (
    "refused: coordinate_transformation_mode tf_crop_and_resize, with mode cubic also half_pixel_symmetric and "
    "tf_half_pixel_for_nn; antialias=1, keep_aspect_ratio_policy other than stretch, exclude_outside=1 without mode "
    "cubic; cubic_coeff_a of other modes, extrapolation_value and roi have no effect then"
)


@operator("Upsample", 7, 9, note="asymmetric coordinates; nearest by rounding down, as ONNX's own converter reads it")
def _upsample(c: OnnxNode) -> Value:
    """Convert ONNX Upsample."""
    scales = c.attribute("scales", "floats") if c.version == 7 else c.known(1, "scales").reshape(-1).tolist()
    return _old_resize(c, scales)


def _old_resize(c: OnnxNode, scales: list[float]) -> Value:
    """Convert a Resize before version 11, or Upsample, by `scales` per axis; it has asymmetric coordinates.

    Refused: other modes than "nearest" and "linear", and scales below 1 with "nearest".
    """
    mode = c.string("mode", "nearest")
    if mode == "nearest" and any(s < 1 for s in scales):
        c.refuse(f"scales={scales} below 1 with mode nearest: this version does not say which cell is nearest")
    how = {"nearest": "floor", "linear": "linear"}.get(mode) or c.refuse(f"mode={shown(mode)} is not supported")
    return _resize_by(c, list(range(len(c.shape(0)))), scales, None, "asymmetric", how)


@operator("Resize", 10, 11, 13, 18, 19, note=RESIZED)
def _resize(c: OnnxNode) -> Value:
    """Convert ONNX Resize.

    Refused: unknown modes, antialias, other policies than stretch, and misfits of sizes and scales.
    """
    if c.version == 10:
        return _old_resize(c, c.known(1, "scales").reshape(-1).tolist())
    mode, shape = c.string("mode", "nearest"), c.shape(0)
    if mode not in ("nearest", "linear", "cubic"):
        c.refuse(f"mode={shown(mode)} is not supported; only 'nearest', 'linear' or 'cubic'")
    for name in ("extrapolation_value", *(("cubic_coeff_a",) if mode != "cubic" else ())):
        c.without_effect(name, "float")  # of other modes
    exclude = mode == "cubic" and c.flag("exclude_outside")
    c.require("exclude_outside", "int", 0)
    if c.version >= 18:
        c.require("antialias", "int", 0)
        c.require("keep_aspect_ratio_policy", "string", "stretch")
    axes = c.ints("axes", None) if c.version >= 18 else None
    named = list(range(len(shape))) if axes is None else [axis_of("axes", a, len(shape)) for a in axes]
    where = c.string("coordinate_transformation_mode", "half_pixel")
    how = c.string("nearest_mode", "round_prefer_floor")
    if where not in WHERE or how not in NEAREST or (where == "tf_half_pixel_for_nn" and c.version > 11):
        c.refuse(f"coordinate_transformation_mode={where[:50]!r} with nearest_mode={how[:50]!r} is not supported")
    scales = c.known(2, "scales").reshape(-1).tolist() if c.has(2) else []
    sizes = None if scales else c.known_ints(3, "sizes")
    how = how if mode == "nearest" else "cubic, inside" if exclude else mode
    return _resize_by(c, named, scales or None, sizes, where, how)


def _resize_by(
    c: OnnxNode, axes: list[int], scales: list[float] | None, sizes: list[int] | None, where: str, how: str
) -> Value:
    """Resize these axes by scales or sizes; whole factors that repeat every cell become an upsampling.

    `where` and `how` are our names of coordinates and reading, those of `specgrad.window.resize`; `how` may also be
    "cubic", or "cubic, inside" where cells outside count nothing. Misfits are refused.
    """
    cells = [c.shape(0)[a] for a in axes]
    given: Any = scales if sizes is None else sizes
    if len(given) != len(axes) or len(set(axes)) != len(axes):
        c.refuse(f"scales or sizes must have {len(axes)} entries", None, ShapeError)
    if not all(math.isfinite(g) and g > 0 for g in given) or 0 in cells:
        c.refuse(f"scales={given} must be positive, for cells that exist; got shape {c.shape(0)}", None)
    factors = [Fraction(s) for s in scales or ()] or [Fraction(m, n) for m, n in zip(given, cells, strict=True)]
    wanted = [_scaled_size(c, n, s) for n, s in zip(cells, factors, strict=True)] if sizes is None else sizes
    if where == "align_corners" and any(m != n * f for m, n, f in zip(wanted, cells, factors, strict=True)):
        c.refuse("align_corners by scales that give a part of a cell: ONNX's text and its reference differ; give sizes")
    c.importer.budget.check_value(c.title, extent(tuple(wanted)) * extent(c.shape(0)) // extent(tuple(cells)))
    if how.startswith("cubic"):
        from .cubic_resize import COORDINATES, cubic_resize

        if where not in COORDINATES:
            c.refuse(f"coordinate_transformation_mode={shown(where)} is not supported with mode='cubic'")
        return cubic_resize(c, axes, factors, wanted, where, how == "cubic, inside")
    order = sorted(range(len(axes)), key=axes.__getitem__)
    if how != "linear" and all(_is_repetition(f, where, how) for f in factors):
        whole = dict(zip(axes, factors, strict=True))
        return upsample_nearest(c.real(0), [int(whole.get(a, 1)) for a in range(len(c.shape(0)))])
    return resize(
        c.real(0),
        [wanted[k] for k in order],
        scales=None if sizes is not None else [factors[k] for k in order],
        axes=[axes[k] for k in order],
        where=where,
        how=how,
    )


def _scaled_size(c: OnnxNode, n: int, scale: Fraction) -> int:
    """Return floor(n*scale); refused if the product in float32 has another floor, since runtimes then differ."""
    wanted, rounded = math.floor(n * scale), math.floor(np.float32(n) * np.float32(scale))
    if wanted != rounded:
        c.refuse(f"scale {float(scale)} of {n} cells is {wanted} cells, and {rounded} in float32; give sizes", None)
    return wanted


def _is_repetition(factor: Fraction, where: str, how: str) -> bool:
    """Return whether every cell is repeated `factor` times, with coordinates by `where`, read by `how`.

    The words are those of `specgrad.window.resize`; "align_corners" repeats nothing.
    """
    if factor.denominator != 1 or not 1 <= factor <= MAX_PIECES or where == "align_corners":
        return factor == 1
    line = resized(2, 2 * int(factor), 1 / factor, where, how)
    return bool(line.cells[0].tolist() == [0] * int(factor) + [1] * int(factor))


@operator("DepthToSpace", 1, 11, 13, 28)
def _depth_to_space(c: OnnxNode) -> Value:
    """Convert ONNX DepthToSpace.

    Channels to blocks of cells: DCR counts the block first among the channels, CRD the channel. Refused: channels that
    are no multiple of the block's cells, and other modes.
    """
    block, (n, channels, height, width) = _block_size(c)
    mode = c.string("mode", "DCR") if c.version >= 11 else "DCR"
    if channels % (block * block) or mode not in ("DCR", "CRD"):
        c.refuse(f"blocksize={block} does not fit shape {c.shape(0)}, or mode={mode[:20]!r} is unknown", None)
    depth = channels // (block * block)
    if mode == "DCR":
        x = permute(reshape(c.real(0), (n, block, block, depth, height, width)), (0, 3, 4, 1, 5, 2))
    else:
        x = permute(reshape(c.real(0), (n, depth, block, block, height, width)), (0, 1, 4, 2, 5, 3))
    return reshape(x, (n, depth, height * block, width * block))


@operator("SpaceToDepth", 1, 13, 28, note="mode DCR")
def _space_to_depth(c: OnnxNode) -> Value:
    """Convert ONNX SpaceToDepth: blocks of cells become channels; refused unless `blocksize` divides the plane."""
    block, (n, channels, height, width) = _block_size(c)
    if c.version >= 28:
        c.require("mode", "string", "DCR")
    if height % block or width % block:
        c.refuse(f"blocksize={block} does not divide shape {c.shape(0)}", None)
    x = reshape(c.real(0), (n, channels, height // block, block, width // block, block))
    return reshape(permute(x, (0, 3, 5, 1, 2, 4)), (n, channels * block * block, height // block, width // block))


def _block_size(c: OnnxNode) -> tuple[int, tuple[int, ...]]:
    """Return the attribute blocksize and the shape (N, C, H, W).

    Refused: other numbers of axes, and a block below 1 or above MAX_PIECES.
    """
    block = c.integer("blocksize")
    if len(c.shape(0)) != 4 or not 1 <= block <= MAX_PIECES:
        c.refuse(f"needs shape (N, C, H, W) and blocksize in 1..{MAX_PIECES}; got {c.shape(0)} and {block}", None)
    return block, c.shape(0)


# --- constants and types ----------------------------------------------------------------------------------------


@operator("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
def _identity(c: OnnxNode) -> Value:
    """Convert ONNX Identity: its input, unchanged."""
    return c.importer.values[c.input_name(0)]


@operator(
    "Dropout",
    7,
    10,
    12,
    13,
    22,
    note="inference: the input itself, training_mode false; ratio and seed have no effect; a mask in use is refused",
)
def _dropout(c: OnnxNode) -> Value:
    """Convert ONNX Dropout in inference: its input unchanged; training_mode is refused."""
    if c.version < 12:
        c.without_effect("ratio", "float")
    else:
        c.without_effect("seed", "int")
        if c.has(2) and c.known_number(2, "training_mode"):
            c.refuse("training_mode must be false: a random mask has no meaning here")
    return c.importer.values[c.input_name(0)]


@operator(
    "Cast",
    6,
    9,
    13,
    19,
    21,
    23,
    24,
    25,
    28,
    note="to a narrower float one rounding; to int32 and int64 without the fraction, unknown beyond their range; "
    "to bool; to other types of known values, which must hold them; saturate has no effect, round_mode is up",
)
def _cast(c: OnnxNode) -> Value:
    """Convert ONNX Cast. Refused: another round_mode than "up", and what `_cast_to` refuses."""
    if c.version >= 19:
        c.without_effect("saturate", "int")  # of 8-bit floats
    if c.version >= 24:
        c.require("round_mode", "string", "up")  # its default
    source, target = c.elem_type(0), c.integer("to")
    c.result_type = target
    if target not in DTYPES:
        c.refuse(f"to={type_name(target)} is not supported")
    if source != target and not (source in FLOATS and target in FLOATS):
        from .integers import cast_integers

        if (whole := cast_integers(c, target)) is not None:
            return whole
    mask = source == TensorProto.BOOL and target in FLOATS and c.is_mask(0)
    if mask or source == target or (source in FLOATS and target in FLOATS and FLOATS[source] <= FLOATS[target]):
        return _widened(c, c.importer.values[c.input_name(0)], target)
    x = c.importer.constant_value(c.input_name(0))
    if (
        target in FLOATS
        and (x is None or x.size > MAX_FOLDED_CELLS or target == TensorProto.BFLOAT16)
        and source in FORMATS
    ):
        return cast(c.any_variable(0), FORMATS[target])
    if x is None or target == TensorProto.BFLOAT16:
        return c.refuse(f"to={type_name(target)} from {type_name(source)} would round", None, UnsupportedError)
    return _cast_known(c, c.folded(x), target)


def _widened(c: OnnxNode, value: Value, target: int) -> Value:
    """Return a value whose numbers the ONNX type `target` holds: float16 weights as an array of that type, others as
    they are.
    """
    if (
        not isinstance(value, np.ndarray)
        or value.dtype != np.float16
        or target not in (TensorProto.FLOAT, TensorProto.DOUBLE)
    ):
        return value
    cells = value[(*(slice(0, 1) if step == 0 else slice(None) for step in value.strides), ...)]  # repeated ones once
    wide = DTYPES[target]
    c.importer.budget.spend(c.title, cells.size * wide.itemsize)
    return np.broadcast_to(cells.astype(wide), value.shape)


def _cast_known(c: OnnxNode, x: Array, target: int) -> Array:
    """Return known numbers x in the ONNX type `target`, floats cut off to integers.

    Refused are floats beyond an integer type, of which ONNX says nothing.
    """
    dtype = DTYPES[target]
    if x.dtype.kind == "f" and dtype.kind in "iu":
        whole, limits = np.trunc(x.astype(np.float64)), np.iinfo(dtype)
        if not ((whole >= float(limits.min)) & (whole < float(limits.max) + 1)).all():
            c.refuse(f"known numbers beyond {type_name(target)} have no meaning there", None, UnsupportedError)
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@operator("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25, note="refused: sparse_value, value_string, value_strings")
def _constant(c: OnnxNode) -> Array:
    """Convert ONNX Constant. Refused: several values, or another kind. The node's `result_type` is set."""
    kinds = {"value": "tensor", "value_float": "float", "value_floats": "floats", "value_int": "int"}
    kinds["value_ints"] = "ints"
    given = [n for n in kinds if any(a.name == n for a in c.node.attribute)]
    if len(given) != 1:
        c.refuse(f"needs one of {', '.join(kinds)}")
    if given == ["value"]:
        c.result_type = c.node.attribute[0].t.data_type
        return np.asarray(c.tensor("value"))
    whole = "int" in given[0]
    c.result_type = TensorProto.INT64 if whole else TensorProto.FLOAT
    return np.array(c.attribute(given[0], kinds[given[0]]), dtype=np.int64 if whole else np.float32)


@operator("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def _constant_of_shape(c: OnnxNode) -> Array:
    """Convert ONNX ConstantOfShape: one number under any shape: a view of a single cell, which takes no memory.

    Refused: a value that is not one number; ModelError beyond the budget. The node's `result_type` is set.
    """
    shape = check_shape(c.title, c.known_ints(0, "shape"))
    value = c.tensor("value", None)
    if value is not None and value.size != 1:
        c.refuse(f"value must be one number; got shape {value.shape}")
    c.result_type = TensorProto.FLOAT if value is None else c.node.attribute[0].t.data_type
    c.importer.budget.check(c.title, math.prod(shape))
    return np.broadcast_to(np.float32(0) if value is None else value.reshape(()), shape)


@operator("Range", 11, 27, note="of known numbers; of floats, those whose multiples of the step the type holds")
def _range_of(c: OnnxNode) -> Array:
    """Convert ONNX Range; numbers that the type holds are exact however a runtime steps.

    Refused: floats that are rounded on the way, a step of 0, and more than 2**16 numbers.
    """
    ends, dtype = [c.known_number(i, "the range") for i in range(3)], DTYPES[c.elem_type(0)]
    if not all(math.isfinite(v) for v in ends) or ends[2] == 0:
        c.refuse(f"no range goes from {ends[0]} to {ends[1]} by steps of {ends[2]}", None)
    start, limit, delta = map(Fraction, ends)
    parts = (limit - start) / delta
    count = max(math.ceil(parts), 0)
    if count > 2**16:
        c.refuse("the range is too long", None)
    if c.elem_type(0) in WHOLE:
        return np.array([int(start + k * delta) for k in range(count)], dtype=np.int64)
    steps = [(k * delta, start + k * delta) for k in range(count)]
    held = c.elem_type(0) in (TensorProto.FLOAT, TensorProto.DOUBLE) and all(
        Fraction(float(dtype.type(float(v)))) == v for pair in steps for v in pair
    )
    if not held or math.ceil(dtype.type(float(parts))) != math.ceil(parts):
        c.refuse("its steps, or how many there are, are rounded: runtimes differ there", None, UnsupportedError)
    return np.array([float(v) for _, v in steps], dtype=dtype)


@operator("Where", 9, 16)
def _where(c: OnnxNode) -> Value:
    """Convert ONNX Where: the second input where the first is not 0, else the third, after broadcasting."""
    shape = _broadcast_shapes(c, *(c.shape(i) for i in range(3)))
    chosen, yes, no = (c.value(i) for i in range(3))
    c.result_type = c.elem_type(1)
    if all(isinstance(v, np.ndarray) for v in (chosen, yes, no)):
        c.folded(np.broadcast_to(0, shape))
        return np.where(chosen != 0, yes, no)
    mask = chosen.astype(np.float32) if isinstance(chosen, np.ndarray) else chosen
    return select(mask, c.number(1), c.number(2))
