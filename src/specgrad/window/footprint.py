"""Footprints: which boxes of its arguments an operator needs for a box of its result, and its parameters there.

A box is one interval [first, stop) per axis. Operators relate cells axis by axis: an axis of an argument goes along one
axis of the result by a `Relation`, or is read completely. The operator on the boxes is the box of the operator,
exactly:
tests/laws holds every registered operator to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .axis import Axis
from .axis_maps import (
    CELL,
    AxisPart,
    GlobalMap,
    Interpolated,
    Interval,
    JoinMap,
    Padded,
    Relation,
    Sliced,
    SplitMap,
    Transposed,
    Windowed,
    windowed,
)
from .resize import Resized
from .sizes import Shape
from .window import Window

Box = tuple[Interval, ...]
Params = dict[str, Any]


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all cells of an array of this shape."""
    return tuple((0, n) for n in shape)


def lengths(box: Box) -> Shape:
    """Return the number of cells of a box per axis."""
    return tuple(stop - first for first, stop in box)


def hull(a: Box, b: Box) -> Box:
    """Return the smallest box around both boxes a and b."""
    return tuple((min(p[0], q[0]), max(p[1], q[1])) for p, q in zip(a, b, strict=True))


def inside(box: Box, outer: Box) -> tuple[slice, ...]:
    """Return the slices of a box in an array that holds the cells of `outer`."""
    return tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(box, outer, strict=True))


def slices(box: Box) -> tuple[slice, ...]:
    """Return a box as a tuple of slices, an index of an array."""
    return tuple(slice(a, b) for a, b in box)


class Footprint(NamedTuple):
    """An operator on a box: the box of each argument (`args`), its parameters there (`params`), and the outputs it then
    has (`gives`).
    """

    args: tuple[Box, ...]
    params: Params
    gives: Box


@dataclass(frozen=True, slots=True)
class BoxRule:
    """The footprint rule of one application of an operator: `on` maps a box of outputs to a Footprint.

    axes     per output axis, its relation
    args     per argument and axis, the output axis that it goes along, or the interval that is read always
    params   from the parts of all output axes to the operator's parameters there
    open     the output axes along which the argument may go on beyond its ends, with zeros: they are what padding is

    >>> from specgrad.window import strided
    >>> rule = pooled((2, 8), window=strided("max_pool", (8,), (3,), stride=(1,), padding=((1, 1),)))
    >>> rule.on(((0, 2), (0, 4))).args, rule.on(((0, 2), (3, 5))).args
    ((((0, 2), (0, 5)),), (((0, 2), (2, 6)),))
    """

    axes: tuple[Relation, ...]
    args: tuple[tuple[int | Interval, ...], ...]
    params: Callable[[list[AxisPart]], Params]
    open: tuple[int, ...] = ()

    def on(self, box: Box, without_ends: Collection[int] = ()) -> Footprint:
        """Return the footprint of a box of outputs.

        without_ends   output axes, among the open ones, along which cells beyond the ends are read, and are zeros
        """
        parts = [
            relation.open(*box[axis])
            if axis in without_ends and isinstance(relation, Windowed | Transposed)
            else relation.part(*box[axis])
            for axis, relation in enumerate(self.axes)
        ]
        needs = tuple(tuple(parts[a].need if isinstance(a, int) else a for a in arg) for arg in self.args)
        return Footprint(needs, self.params(parts), tuple(part.gives for part in parts))


# --- one rule per family ----------------------------------------------------------------------------------------------


def unsplit(out: Shape, shapes: Sequence[Shape], params: Params) -> BoxRule:
    """Return the rule that reads and computes everything: true of any operator.

    `out` is the result's shape, `shapes` are the arguments', `params` stay as they are.
    """
    return BoxRule(tuple(map(GlobalMap, out)), tuple(map(whole, shapes)), lambda _: params)


def same_cell(*shapes: Shape, **params: Any) -> BoxRule:
    """Return the rule of elementwise operators on arguments of these shapes: an output cell reads the same cell of
    every argument.
    """
    rank = max(map(len, shapes))
    return BoxRule((CELL,) * rank, tuple(tuple(range(len(s))) for s in shapes), lambda _: params)


def linked(
    axes: Sequence[Relation], links: Sequence[Sequence[int | None]], shapes: Sequence[Shape], there: Any
) -> BoxRule:
    """Return the box rule of an operator whose arguments are cut as its output is: links[k] has, per axis of argument
    k, the axis of the output, None where it is read completely, as along axes without parts.

    `axes` are the maps of output axes, `shapes` the arguments'; `there` are parameters, or a function from parts of
    axes to them.
    """

    def arg(link: Sequence[int | None], shape: Shape) -> tuple[int | Interval, ...]:
        """Return the output axis, or the whole interval, per axis of one argument."""
        read = zip(link, shape, strict=True)
        return tuple((0, n) if j is None or isinstance(axes[j], GlobalMap) else j for j, n in read)

    args = tuple(arg(link, shape) for link, shape in zip(links, shapes, strict=True))
    return BoxRule(tuple(axes), args, there if callable(there) else lambda _: there)


def others(x: Shape, *, axis: int, out: int, **params: Any) -> BoxRule:
    """Return the rule of an operator that reads all of one axis at once: it sorts along it, or sums it up.

    `x` is the argument's shape; the result has `out` cells along `axis` and the argument's cells along others. `params`
    are the operator's other parameters.
    """
    axes = [GlobalMap(out) if a == axis else CELL for a in range(len(x))]
    return linked(axes, [range(len(x))], [x], {"axis": axis, **params})


def reduced(x: Shape, *, axes: Shape, **params: Any) -> BoxRule:
    """Return the rule of a reduction: `axes` are read completely, and are no axes of the result."""
    kept = [a for a in range(len(x)) if a not in axes]
    links = [kept.index(a) if a in kept else None for a in range(len(x))]
    return linked([CELL] * len(kept), [links], [x], {"axes": axes, **params})


def over_window(
    relate: Callable[[Axis], Relation],
    window: Window,
    channels: int | None,
    shapes: Sequence[Shape],
    params: Params,
    *,
    zeros: bool = False,
) -> BoxRule:
    """Return the rule of a window operator: leading cells, then all channels at once (None: no such axis), then the
    window.

    relate   map of a window's axis; other arguments are read completely
    zeros    whether padding is as good as cells that are zero
    shapes   of the arguments, the data first; params other parameters of the operator
    """
    rank = len(shapes[0])
    middle: list[Relation] = [] if channels is None else [GlobalMap(channels)]
    lead: list[Relation] = [CELL] * (rank - window.rank - len(middle))

    def there(parts: list[AxisPart]) -> Params:
        """Return the parameters on the parts."""
        return {**params, "window": Window(tuple(part.local for part in parts[rank - window.rank :]))}

    links = [range(rank), *([None] * len(s) for s in shapes[1:])]
    rule = linked(lead + middle + [relate(a) for a in window.axes], links, shapes, there)
    return replace(rule, open=tuple(range(rank - window.rank, rank))) if zeros else rule


def pooled(x: Shape, *, window: Window, **params: Any) -> BoxRule:
    """Return the box rule of an operator with a window over the last axes of x: which cells a box of outputs reads."""
    return over_window(windowed, window, None, (x,), params)


def sliced(x: Shape, *, ranges: Sequence[tuple[int, int, int]]) -> BoxRule:
    """Return the rule of slice by `ranges`, (start, stop, step) per axis: which cells of x a box of the result
    needs.
    """
    axes = [Sliced(start, step) for start, _, step in ranges]
    return linked(axes, [range(len(x))], [x], lambda parts: {"ranges": tuple(p.local for p in parts)})


def padded(x: Shape, *, widths: Sequence[tuple[int, int, int]]) -> BoxRule:
    """Return the rule of pad by `widths`, (lo, hi, gap) per axis: which cells of x a box of the result needs."""
    axes = [Padded(n, lo, gap) for n, (lo, _, gap) in zip(x, widths, strict=True)]
    return linked(axes, [range(len(x))], [x], lambda parts: {"widths": tuple(p.local for p in parts)})


def to_shape(parts: list[AxisPart]) -> Params:
    """Return the shape of a box, given by its part of every axis (`parts`), as the parameter `shape`."""
    return {"shape": tuple(part.gives[1] - part.gives[0] for part in parts)}


def repeated(x: Shape, *, shape: Shape) -> BoxRule:
    """Return the rule of broadcast to `shape`: which cells of x a box of the result needs."""
    links = [None if n == 1 else a for a, n in enumerate(x)]
    return linked([CELL] * len(shape), [links], [x], to_shape)


def reshaped(x: Shape, *, shape: Shape) -> BoxRule:
    """Return the rule of reshape: axes are kept, joined, or cut into rows; what mixes several has no parts.

    >>> reshaped((6, 4), shape=(2, 3, 4)).axes
    (SplitMap(count=3), GlobalMap(out=3, local=None), IdentityMap())
    """
    axes: list[Relation] = [GlobalMap(n) for n in shape]
    links: list[int | None] = [None] * len(x)
    left, right = ([k for k, n in enumerate(s) if n != 1] for s in (x, shape))
    while left and right and 0 not in x:
        a, b = [left.pop(0)], [right.pop(0)]
        while (m := math.prod(x[k] for k in a)) != (n := math.prod(shape[k] for k in b)):
            (a if m < n else b).append((left if m < n else right).pop(0))
        if len(a) == 1 or len(b) == 1:
            more, fewer = math.prod(x[k] for k in a[1:]), math.prod(shape[k] for k in b[1:])
            axes[b[0]] = JoinMap(more) if more > 1 else SplitMap(fewer) if fewer > 1 else CELL
            links[a[0]] = b[0]
    return linked(axes, [links], [x], to_shape)


def resized(x: Shape, lines: Sequence[tuple[int, Resized]], **params: Any) -> BoxRule:
    """Return the rule of resize, `lines` being (axis, Resized); coordinate formulas that use the number of cells have
    no parts.
    """
    where = params["where"]
    parted = where in ("half_pixel", "asymmetric", "tf_half_pixel_for_nn")
    parted = parted or (where == "pytorch_half_pixel" and all(line.out > 1 for _, line in lines))
    known = {a: Interpolated(line) if parted else GlobalMap(line.out, line.out) for a, line in lines}

    def there(parts: list[AxisPart]) -> Params:
        """Return the parameters on the parts."""
        sizes = tuple(parts[a].local for a, _ in lines)
        return {**params, "sizes": sizes, "where": "half_pixel" if parted and where == "pytorch_half_pixel" else where}

    return linked([known.get(a, CELL) for a in range(len(x))], [range(len(x))], [x], there)
