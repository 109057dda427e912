"""Random single nodes of ONNX operators, with what ONNX Runtime and onnx's own reference make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator
Case = tuple[str, list[Any], dict[str, Any], int, int]  # operator, inputs, attributes, first constant input, opset


def reals(rng: Rng, *shape: int) -> np.ndarray:
    """Numbers of both signs and many sizes, some equal, some zero."""
    x = rng.normal(size=shape) * 2.0 ** rng.integers(-3, 4, size=shape)
    whole = rng.integers(-3, 4, size=shape)
    return np.where(rng.random(shape) < 0.3, whole, x).astype(np.float32)


def shape_of(rng: Rng, low: int = 1, high: int = 4) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 6, size=rng.integers(low, high + 1)))


def _slice(rng: Rng) -> Case:
    shape = shape_of(rng)
    axes = rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)]
    ends = [rng.integers(-7, 8, size=len(axes)) for _ in range(2)]
    steps = rng.choice([-3, -2, -1, 1, 2], size=len(axes))
    if rng.random() < 0.3:
        ends[1] = np.where(steps < 0, np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max)
    return "Slice", [reals(rng, *shape), *ends, axes, steps], {}, 1, int(rng.integers(10, 24))


def _tile(rng: Rng) -> Case:
    shape = shape_of(rng, 1, 3)
    repeats = rng.choice([1, 2, 3, 300], p=[0.4, 0.3, 0.2, 0.1], size=len(shape))
    return "Tile", [reals(rng, *shape), np.minimum(repeats, 400 // len(shape) ** 4)], {}, 1, int(rng.integers(7, 24))


def _einsum(rng: Rng) -> Case:
    sizes = {c: int(rng.integers(1, 5)) for c in "abcd"}
    letters = ["".join(rng.permutation(list("abcd"))[: rng.integers(0, 4)]) for _ in range(rng.integers(1, 3))]
    lead = shape_of(rng, 0, 2)
    values, terms = [], []
    for term in letters:
        own = tuple(1 if rng.random() < 0.3 else n for n in lead[rng.integers(0, len(lead) + 1) :])
        at = int(rng.integers(0, len(term) + 1))
        terms.append(f"{term[:at]}...{term[at:]}")
        values.append(reals(rng, *(sizes[c] for c in term[:at]), *own, *(sizes[c] for c in term[at:])))
    kept = "".join(c for c in "dbca" if c in "".join(letters) and rng.random() < 0.5)
    arrow = f"->{kept}..." if rng.random() < 0.7 else ""
    return "Einsum", values, {"equation": ",".join(terms) + arrow}, 99, int(rng.integers(12, 24))


def _reduce(rng: Rng) -> Case:
    shape = shape_of(rng)
    axes = rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)]
    axes = np.where(rng.random(len(axes)) < 0.5, axes - len(shape), axes)
    name = str(rng.choice(["ReduceProd", "ReduceProd", "ReduceLogSum", "ReduceSum", "ReduceMax"]))
    opset = int(rng.integers(18, 24))
    x = np.abs(reals(rng, *shape)) + 0.5 if name == "ReduceLogSum" else reals(rng, *shape)
    given: dict[str, Any] = {"keepdims": int(rng.integers(2))}
    if name in ("ReduceSum", "ReduceMax") and not len(axes):
        given["noop_with_empty_axes"] = int(rng.integers(2))
    return name, [x, axes.astype(np.int64)] if len(axes) or rng.random() < 0.5 else [x], given, 1, opset


def _scatter_elements(rng: Rng) -> Case:
    shape = shape_of(rng, 1, 3)
    axis = int(rng.integers(len(shape)))
    known = int(rng.integers(1, 3))
    drawn = tuple(int(rng.integers(1, n + 1)) for n in shape)
    where = tuple(n if known == 2 and a != axis else drawn[a] for a, n in enumerate(shape))
    lines = np.argsort(rng.random((*where[:axis], shape[axis], *where[axis + 1 :])), axis=axis)
    index = np.take(lines, np.arange(where[axis]), axis=axis)
    index = np.where(rng.random(where) < 0.3 * (known == 1), index - shape[axis], index)
    opset, given = int(rng.integers(16, 24)), {"axis": axis - len(shape) * int(rng.integers(2))}
    if rng.random() < 0.5:
        given["reduction"] = "add"
        index = rng.integers(-shape[axis] * (known == 1), shape[axis], size=where)
    return "ScatterElements", [reals(rng, *shape), index, reals(rng, *where)], given, known, opset


def _scatter_nd(rng: Rng) -> Case:
    shape = shape_of(rng, 1, 3)
    depth = int(rng.integers(1, len(shape) + 1))
    count = int(rng.integers(1, np.prod(shape[:depth]) + 1))
    flat = rng.permutation(int(np.prod(shape[:depth])))[:count]
    given = {}
    if rng.random() < 0.5:
        flat, given = rng.integers(0, np.prod(shape[:depth]), size=count), {"reduction": "add"}
    index = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1)
    return (
        "ScatterND",
        [reals(rng, *shape), index, reals(rng, count, *shape[depth:])],
        given,
        1,
        int(rng.integers(16, 24)),
    )


def _gather_nd(rng: Rng) -> Case:
    shape = shape_of(rng, 2, 4)
    batch = int(rng.integers(0, len(shape)))
    depth = int(rng.integers(1, len(shape) - batch + 1))
    lead = (*shape[:batch], *shape_of(rng, 1, 2))
    index = np.stack([rng.integers(-n, n, size=lead) for n in shape[batch : batch + depth]], axis=-1)
    return "GatherND", [reals(rng, *shape), index], {"batch_dims": batch}, 1, int(rng.integers(12, 24))


def _gather_elements(rng: Rng) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    where = tuple(int(rng.integers(1, 7)) if a == axis else int(rng.integers(1, n + 1)) for a, n in enumerate(shape))
    index = rng.integers(-shape[axis], shape[axis], size=where)
    return "GatherElements", [reals(rng, *shape), index], {"axis": axis}, 1, int(rng.integers(11, 24))


def _one_hot(rng: Rng) -> Case:
    shape, depth = shape_of(rng, 1, 3), int(rng.integers(1, 7))
    values = reals(rng, 2)
    axis = int(rng.integers(-len(shape) - 1, len(shape) + 1))
    opset = int(rng.integers(9, 24))
    if rng.random() < 0.5:
        where = rng.integers(-depth - 2, depth + 2, size=shape).astype(np.float32)
        return "OneHot", [where, np.float32([depth]), values], {"axis": axis}, 1, opset
    known = rng.random() < 0.3
    where = rng.integers(-depth - 2 * known, depth + 2 * known, size=shape)
    return "OneHot", [where, np.array([depth]), values], {"axis": axis}, 0 if known else 1, opset


def _unary(rng: Rng) -> Case:
    name, given = "Shrink", {"lambd": float(np.float32(rng.random())), "bias": float(np.float32(rng.normal()))}
    if rng.random() < 0.5:
        name, given = "Selu", {"alpha": float(np.float32(rng.random() + 0.5))}
    return name, [reals(rng, *shape_of(rng))], given, 99, int(rng.integers(9, 24))


def _rms(rng: Rng) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    return "RMSNormalization", [reals(rng, *shape), reals(rng, *shape[axis:])], {"axis": axis - len(shape)}, 99, 23


def _trilu(rng: Rng) -> Case:
    x, k = reals(rng, *shape_of(rng, 2, 4)), np.array(rng.integers(-6, 7))
    return "Trilu", [x, k] if rng.random() < 0.8 else [x], {"upper": int(rng.integers(2))}, 1, int(rng.integers(14, 24))


def _topk(rng: Rng) -> Case:
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    k = np.array([rng.integers(1, shape[axis] + 1)])
    return (
        "TopK",
        [reals(rng, *shape), k],
        {"axis": axis, "largest": int(rng.integers(2))},
        1,
        int(rng.integers(11, 24)),
    )


def _grid_sample(rng: Rng) -> Case:
    rank = int(rng.integers(2, 4))
    x = reals(rng, int(rng.integers(1, 3)), int(rng.integers(1, 3)), *shape_of(rng, rank, rank))
    grid = (rng.random((x.shape[0], *shape_of(rng, rank, rank), rank)) * 3 - 1.5).astype(np.float32)
    mode = str(rng.choice(["linear", "linear", "nearest"]))
    given = {"mode": mode, "align_corners": int(rng.integers(2)), "padding_mode": str(rng.choice(["zeros", "border"]))}
    opset = int(rng.integers(20, 23)) if rank == 3 else int(rng.integers(16, 23))
    given["mode"] = "bilinear" if opset < 20 and mode == "linear" else mode
    return "GridSample", [x, grid], given, int(rng.integers(1, 3)), opset


def _roi_align(rng: Rng) -> Case:
    x = reals(rng, *shape_of(rng, 2, 2), *rng.integers(1, 8, size=2))
    count = int(rng.integers(1, 4))
    corner, scale = rng.random((count, 2)) * 10 - 3, float(np.float32(rng.choice([1.0, 0.5, 0.3])))
    boxes = np.concatenate([corner, corner + rng.random((count, 2)) * 8], axis=1).astype(np.float32)
    given = {"output_height": int(rng.integers(1, 4)), "output_width": int(rng.integers(1, 4))}
    opset = int(rng.integers(10, 23))
    if opset >= 16:
        given["coordinate_transformation_mode"] = str(rng.choice(["half_pixel", "output_half_pixel"]))
    given |= {"sampling_ratio": int(rng.integers(1, 4)), "spatial_scale": scale}
    return "RoiAlign", [x, boxes, rng.integers(0, x.shape[0], size=count)], given, int(rng.integers(1, 4)), opset


def _cubic(rng: Rng) -> Case:
    x = reals(rng, *shape_of(rng, 2, 2), *rng.integers(1, 9, size=2))
    given: dict[str, Any] = {"mode": "cubic", "exclude_outside": int(rng.integers(2))}
    given["coordinate_transformation_mode"] = str(
        rng.choice(["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
    )
    if rng.random() < 0.5:
        given["cubic_coeff_a"] = float(np.float32(-rng.random()))
    if rng.random() < 0.5:
        sizes = np.array([*x.shape[:2], *rng.integers(1, 12, size=2)])
        return "Resize", [x, None, None, sizes], given, 1, int(rng.integers(11, 23))
    scales = np.float32([1, 1, *rng.choice([0.5, 2, 1.5, 3, 0.75], size=2)])
    return "Resize", [x, None, scales], given, 1, int(rng.integers(13, 23))


DRAWN: dict[str, Callable[[Rng], Case]] = {
    f.__name__.strip("_"): f
    for f in (
        _slice, _tile, _einsum, _reduce, _scatter_elements, _scatter_nd, _gather_nd, _gather_elements, _one_hot, _unary,
        _rms, _trilu, _topk, _grid_sample, _roi_align, _cubic,
    )
}  # fmt: skip
