"""Rules of slices: they move inwards, to the inputs and the weights; what a convolution does not read is cut off.

slice(f(x)) = f(slice(x)) for a function of one cell     crop(pad(x)) = pad(crop(x)), as much as is left of either
slice(conv(x, w)) = conv(x, slice(w)) along channels     conv(x, w) = conv(slice(x), slice(w)) where w is 0 elsewhere
slice(slice(x)) = slice(x), steps multiplied             slice(L(x)) = L(slice(x)) for a permutation or a reshape L

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..op import REGISTRY
from ..ops.elementwise import cellwise
from ..ops.max_pool import MAX_POOL
from ..ops.resize import RESIZE
from ..window import Shape, Window
from .constants import Constant, TooManyError, drop_repeats
from .layout import broadcast_to, permute_to, reshape_to
from .linear_combinations import common_blocks, is_commutative, linear_combination, split_spec
from .pad_crop import has_no_gaps, pad_value
from .term_table import AffineTerm, Atom, TermTable

Range = tuple[int, int, int]  # start, stop, step
Ranges = tuple[Range, ...]
Inward = tuple[int, Ranges]  # a value that some ranges were applied to, and those that are left


def pad_for_window(table: TermTable, x: int, window: Window) -> int:
    """Return the value number of x with the zero padding of `window`, without cells at the end that negative padding
    crops.
    """
    shape = table.values[x].shape
    lead = len(shape) - window.rank
    cut = [slice(None, None if hi >= 0 else hi) for _, hi in window.pads]
    ranges = tuple(s.indices(n) for s, n in zip((*[slice(None)] * lead, *cut), shape, strict=True))
    widths = ((0, 0, 0),) * lead + tuple((max(0, before), max(0, after), 0) for before, after in window.pads)
    return pad_value(table, slice_value(table, x, ranges), widths)


def slice_value(table: TermTable, x: int, ranges: Ranges) -> int:
    """Return the value number of x sliced by `ranges` (start, stop, step per axis), atom by atom, as far inside as the
    rules go.
    """
    value = table.values[x]
    shape, ranges = value.shape, tuple(_shortest_range(*r) for r in ranges)
    if all(r == (0, n, 1) for r, n in zip(ranges, shape, strict=True)):
        return x
    key = (x, ranges)
    if key not in table.sliced:
        table.sliced[key] = _new_slice(table, value, x, ranges)
    return table.sliced[key]


def _new_slice(table: TermTable, value: AffineTerm, x: int, ranges: Ranges) -> int:
    """Return the value number of x, which is `value`, sliced by `ranges`, not all of which are whole axes."""
    inner = table.single_atom(x)
    if inner is None:
        return _slice_terms(table, value, ranges)
    new = sliced_shape(ranges)
    rule = (INWARD.get(inner.op) if inner.ruled else None) or STANDING.get(inner.op)
    if rule is not None and (0 not in new or rule is _through_slice):
        try:
            moved = rule(table, inner, ranges)
        except TooManyError:
            moved = None
        if moved is not None:
            return slice_value(table, *moved)
    return table.value_of_atom(Atom("slice", (ranges,), (x,), new))


def sliced_shape(ranges: Ranges) -> Shape:
    """Return the sizes of the ranges."""
    return tuple(len(range(*r)) for r in ranges)


def _shortest_range(start: int, stop: int, step: int) -> tuple[int, int, int]:
    """Return the range (start, stop, step) of the same cells that ends behind its last one; a single cell has step 1.

    >>> _shortest_range(1, 9, 3), _shortest_range(1, 8, 3), _shortest_range(4, 6, 3), _shortest_range(2, 2, 3)
    ((1, 8, 3), (1, 8, 3), (4, 5, 1), (0, 0, 1))
    """
    cells = range(start, stop, step)
    return (start, cells[-1] + 1, step if len(cells) > 1 else 1) if cells else (0, 0, 1)


def _slice_terms(table: TermTable, value: AffineTerm, ranges: Ranges) -> int:
    """Return the value number of slice(s*t + c) = slice(s)*slice(t) + slice(c), term by term."""
    new = sliced_shape(ranges)
    shift = None if value.shift is None else table.constants[value.shift].sliced(ranges)
    if not value.terms:
        if shift is None or not np.asarray(shift.array != 0, dtype=bool).any():
            return table.value(AffineTerm(new, (), None))
        kept = shift if shift.factors is not None else replace(shift, array=drop_repeats(shift.array))
        return table.value(AffineTerm(new, (), table.constant(kept)))
    parts: list[tuple[Any, int]] = []
    if shift is not None:
        parts.append((1, table.value_of_constant(new, shift.numbers())))
    for atom, scale in value.terms:
        inside = slice_value(table, table.value_of_atom(table.atoms[atom]), ranges)
        parts.append((table.constants[scale].sliced(ranges).numbers(), inside))
    return linear_combination(table, new, parts)


# --- inwards ----------------------------------------------------------------------------------------------------------


def _some_axes(ranges: Ranges, shape: Shape, axes: Any) -> tuple[Ranges, Ranges] | None:
    """Return the ranges of `axes` alone, of an array of `shape`, and those that are left behind them; None if all of
    the former are whole.
    """
    whole = tuple((0, n, 1) for n in shape)
    first = tuple(r if a in axes else w for a, (r, w) in enumerate(zip(ranges, whole, strict=True)))
    if first == whole:
        return None
    sizes = sliced_shape(first)
    return first, tuple((0, n, 1) if a in axes else r for a, (r, n) in enumerate(zip(ranges, sizes, strict=True)))


def _through_slice(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return a slice of a slice as one, with steps multiplied."""
    within = tuple(
        (first + by * start, first + by * stop, by * step)
        for (first, _, by), (start, stop, step) in zip(atom.params[0], ranges, strict=True)
    )
    made = slice_value(table, atom.args[0], within)
    return made, tuple((0, n, 1) for n in table.values[made].shape)


def _through_cells(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return slice(f(x, y)) as f(slice(x), slice(y)); axes of one cell that are stretched stay."""
    args = tuple(_slice_stretched(table, a, ranges, atom.shape) for a in atom.args)
    new = sliced_shape(ranges)
    args = tuple(sorted(args)) if is_commutative(atom.op) else args
    return table.value_of_atom(replace(atom, args=args, shape=new)), tuple((0, n, 1) for n in new)


def _through_broadcast(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return slice(broadcast(x)) as broadcast(slice(x)); axes of one cell that are stretched stay."""
    new = sliced_shape(ranges)
    made = broadcast_to(table, _slice_stretched(table, atom.args[0], ranges, atom.shape), new)
    return made, tuple((0, n, 1) for n in new)


def _slice_stretched(table: TermTable, x: int, ranges: Ranges, shape: Shape) -> int:
    """Return the value number of x, which is stretched to `shape`, sliced so that it is stretched to the slice."""
    old = table.values[x].shape
    lead = len(shape) - len(old)
    return slice_value(table, x, tuple((0, 1, 1) if n == 1 else ranges[lead + a] for a, n in enumerate(old)))


def _through_permute(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return slice(permute(x)) as permute(slice(x))."""
    (order,) = atom.params
    inside = [(0, 0, 1)] * len(order)
    for place, a in enumerate(order):
        inside[a] = ranges[place]
    made = permute_to(table, slice_value(table, atom.args[0], tuple(inside)), order)
    return made, tuple((0, n, 1) for n in table.values[made].shape)


def _through_reshape(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return slice(reshape(x)) as reshape(slice(x)), for axes of which the cells are a slice of x too."""
    x, new = atom.args[0], atom.shape
    old = table.values[x].shape
    inside, moved = [(0, n, 1) for n in old], list[int]()
    for first, second in common_blocks(old, new):
        below = _range_below([old[a] for a in first], [new[a] for a in second], [ranges[a] for a in second])
        if below is not None:
            moved += second
            for a, r in zip(first, below, strict=True):
                inside[a] = r
    split = _some_axes(ranges, new, moved)
    if split is None:
        return None
    return reshape_to(table, slice_value(table, x, tuple(inside)), sliced_shape(split[0])), split[1]


def _range_below(old: list[int], new: list[int], ranges: list[Range]) -> list[Range] | None:
    """Return ranges of an array of sizes `old` that hold the cells of `ranges` of it read as `new`; None if no ranges
    do.

    >>> _range_below([24], [2, 3, 4], [(1, 2, 1), (0, 2, 1), (0, 4, 1)])
    [(12, 20, 1)]
    >>> _range_below([24], [4, 6], [(0, 4, 1), (0, 3, 1)])
    """
    if [n for n in old if n != 1] == [n for n in new if n != 1]:
        left = [r for r, n in zip(ranges, new, strict=True) if n != 1]
        return [(0, 1, 1) if n == 1 else left.pop(0) for n in old]
    start, size, cells = 0, 1, math.prod(new)
    run = [len(range(*r)) for r in ranges]
    for k, (n, (first, stop, step)) in enumerate(zip(new, ranges, strict=True)):
        cells //= n
        start += first * cells
        if run[k] > 1 and (step != 1 or [len(range(*r)) for r in ranges[k + 1 :]] != new[k + 1 :]):
            return None  # not one run of cells
        size = (stop - first) * cells
        if run[k] > 1:
            break
    return _run_of_cells(old, start, start + size)


def _run_of_cells(sizes: list[int], start: int, stop: int) -> list[Range] | None:
    """Return ranges of an array of `sizes` that hold the cells from `start` to `stop`, in order; None if no ranges do.

    >>> _run_of_cells([2, 12], 12, 20), _run_of_cells([4, 6], 6, 18), _run_of_cells([4, 6], 3, 9)
    ([(1, 2, 1), (0, 8, 1)], [(1, 3, 1), (0, 6, 1)], None)
    """
    taken = list[Range]()
    for k in range(len(sizes)):
        row = math.prod(sizes[k + 1 :])
        if start % row == 0 and stop % row == 0:
            return [*taken, (start // row, stop // row, 1), *((0, m, 1) for m in sizes[k + 1 :])]
        if start // row != (stop - 1) // row:
            return None
        taken.append((start // row, start // row + 1, 1))
        start, stop = start % row, stop - start // row * row
    return taken


def _through_pad(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return slice(pad(x)) as pad(slice(x)), along axes that are not padded at least."""
    widths = atom.params[0]
    if has_no_gaps(widths) and all(step == 1 for _, _, step in ranges):
        joined = _crop_of_pad(table, atom, ranges)
        if joined is not None:
            return joined, tuple((0, n, 1) for n in table.values[joined].shape)
    split = _some_axes(ranges, atom.shape, [a for a, w in enumerate(widths) if not any(w)])
    if split is None:
        return None
    inside = tuple(
        (0, n, 1) if any(w) else r for n, w, r in zip(table.values[atom.args[0]].shape, widths, ranges, strict=True)
    )
    return pad_value(table, slice_value(table, atom.args[0], inside), widths), split[1]


def _through_concat(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return slice(concat(x, y)) as the concatenation of what is left of each."""
    (axis,) = atom.params
    start, stop, step = ranges[axis]
    parts, place = list[int](), 0
    for number in atom.args:
        n = table.values[number].shape[axis]
        low, high = max(start - place, 0), min(stop - place, n)
        place += n
        if step != 1:
            low, high = 0, n
        if low < high:
            left = slice_value(table, number, (*ranges[:axis], (low, high, 1), *ranges[axis + 1 :]))
            parts += parts_of(table, left, atom.op, axis)
    sizes = [table.values[p].shape for p in parts]
    if step != 1 and _some_axes(ranges, atom.shape, set(range(len(ranges))) - {axis}) is None:
        return None
    shape = (*sizes[0][:axis], sum(s[axis] for s in sizes), *sizes[0][axis + 1 :])
    made = parts[0] if len(parts) == 1 else table.value_of_atom(replace(atom, args=tuple(parts), shape=shape))
    return made, tuple(ranges[a] if a == axis and step != 1 else (0, n, 1) for a, n in enumerate(shape))


def parts_of(table: TermTable, x: int, op: str, axis: int) -> tuple[int, ...]:
    """Return the values, by number, that x is a concatenation (`op`) of along the axis; x itself where it is none."""
    atom = table.single_atom(x)
    return atom.args if atom is not None and (atom.op, atom.params) == (op, (axis,)) else (x,)


def _through_sum(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return slice(sum(x)) as sum(slice(x)): sliced axes are not summed over."""
    (axes,), left = atom.params, list(ranges)
    inside = tuple((0, n, 1) if a in axes else left.pop(0) for a, n in enumerate(table.values[atom.args[0]].shape))
    new = sliced_shape(ranges)
    made = table.value_of_atom(replace(atom, args=(slice_value(table, atom.args[0], inside),), shape=new))
    return made, tuple((0, n, 1) for n in new)


def _through_pool(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return a slice of windows along axes without them as the windows of a slice."""
    (window,) = atom.params
    lead = len(atom.shape) - window.rank
    split = _some_axes(ranges, atom.shape, range(lead))
    if split is None:
        return None
    x = atom.args[0]
    inside = (*ranges[:lead], *((0, n, 1) for n in table.values[x].shape[lead:]))
    made = replace(atom, args=(slice_value(table, x, inside),), shape=sliced_shape(split[0]))
    return table.value_of_atom(made), split[1]


def _through_resize(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return slice(resize(x)) along axes that keep their size as resize(slice(x))."""
    axes = [a % len(ranges) for a in dict(atom.params)["axes"]]
    split = _some_axes(ranges, atom.shape, set(range(len(ranges))) - set(axes))
    if split is None:
        return None
    x = atom.args[0]
    inside = tuple(
        (0, n, 1) if a in axes else r for a, (n, r) in enumerate(zip(table.values[x].shape, ranges, strict=True))
    )
    made = replace(atom, args=(slice_value(table, x, inside),), shape=sliced_shape(split[0]))
    return table.value_of_atom(made), split[1]


def _through_conv(table: TermTable, atom: Atom, ranges: Ranges) -> Inward | None:
    """Return slice(conv(x, w)) along batch and channels as conv(slice(x), slice(w)), whole groups at a time."""
    assert atom.weights is not None
    (window, groups), x, w = atom.params, atom.args[0], table.constants[atom.weights]
    channel = len(atom.shape) - window.rank - 1
    start, stop, step = ranges[channel]
    per = atom.shape[channel] // groups
    axes = set(range(channel + 1))
    if step != 1 or (groups > 1 and (start % per or stop % per)):
        axes.remove(channel)
        start, stop = 0, atom.shape[channel]
    split = _some_axes(ranges, atom.shape, axes)
    if split is None:
        return None
    inside = [ranges[a] if a < channel else (0, n, 1) for a, n in enumerate(table.values[x].shape)]
    if groups > 1:
        inside[channel] = (start // per * w.shape[1], stop // per * w.shape[1], 1)
        groups = (stop - start) // per
    w = w.sliced(((start, stop, 1), *((0, n, 1) for n in w.shape[1:])))
    x, w = drop_unread_channels(table, slice_value(table, x, tuple(inside)), w, channel, groups)
    made = Atom(atom.op, (window, groups), (x,), sliced_shape(split[0]), table.constant(w))
    return table.value_of_atom(made), split[1]


def _through_contract(table: TermTable, atom: Atom, ranges: Ranges) -> Inward:
    """Return a slice of a contraction as the contraction of slices of x and of the weights."""
    assert atom.weights is not None
    letters, weights, out = split_spec(atom.params[0])
    by_letter, w = dict(zip(out, ranges, strict=True)), table.constants[atom.weights]
    inside, kept = (
        tuple(by_letter.get(a, (0, n, 1)) for a, n in zip(part, shape, strict=True))
        for part, shape in ((letters, table.values[atom.args[0]].shape), (weights, w.shape))
    )
    new = sliced_shape(ranges)
    x = slice_value(table, atom.args[0], inside)
    made = Atom(atom.op, atom.params, (x,), new, table.constant(w.sliced(kept)))
    return table.value_of_atom(made), tuple((0, n, 1) for n in new)


def drop_unread_channels(table: TermTable, x: int, w: Constant, channel: int, groups: int) -> tuple[int, Constant]:
    """Return x, by number, and the weights w of a convolution without the last channels (axis `channel` of x) that only
    weights of 0 read; both as they are for several groups.
    """
    if groups != 1 or w.array.ndim < 2:
        return x, w
    cells = np.moveaxis(np.asarray(w.array != 0, dtype=bool), 1, 0)
    (read,) = np.nonzero(cells.reshape(cells.shape[0], -1).any(axis=1)) if cells.size else (np.zeros(0, int),)
    if not read.size or read[-1] + 1 == w.shape[1]:
        return x, w
    keep = (0, int(read[-1]) + 1, 1)
    ranges = tuple(keep if a == channel else (0, n, 1) for a, n in enumerate(table.values[x].shape))
    return slice_value(table, x, ranges), w.sliced(tuple(keep if a == 1 else (0, n, 1) for a, n in enumerate(w.shape)))


RULED = (
    _through_slice,
    _through_permute,
    _through_reshape,
    _through_pad,
    _through_concat,
    _through_broadcast,
    _through_sum,
    _through_conv,
    _through_contract,
)
INWARD: dict[str, Callable[[TermTable, Atom, Ranges], Inward | None]] = {
    **{rule.__name__.removeprefix("_through_"): rule for rule in RULED},
    **dict.fromkeys((MAX_POOL.name, "window_sum"), _through_pool),
}
STANDING: dict[str, Callable[[TermTable, Atom, Ranges], Inward | None]] = {
    RESIZE.name: _through_resize,
    **{name: _through_cells for name, op in REGISTRY.items() if op.receptive_field is cellwise},
}
"""How a slice of an atom moves inside it, by the atom's operator: of those that a rule wrote, and of all."""


def _crop_of_pad(table: TermTable, pad: Atom, ranges: Ranges) -> int | None:
    """Return the value number of the atom `pad`, of x, cropped to `ranges` (steps 1), written as pad(crop(x)).

    None if no cell of x remains on some axis.
    """
    x = pad.args[0]
    widths, inside = [], []
    for n, (before, _, _), (start, stop, _) in zip(table.values[x].shape, pad.params[0], ranges, strict=True):
        first, last = max(0, start - before), min(n, stop - before)
        if last <= first:
            return None
        inside.append((first, last, 1))
        widths.append((max(0, before - start), max(0, stop - before - n), 0))
    return pad_value(table, slice_value(table, x, tuple(inside)), tuple(widths))
