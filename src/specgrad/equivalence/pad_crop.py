"""Rules of zero padding and cropping, which are kept apart from the windows that need them.

pad(pad(x)) = pad(x)        crop(pad(x)) = pad(crop(x)), as much as is left of either        pad(s*x) = s*pad(x)
slice(slice(x)) = slice(x), steps multiplied

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

from typing import Any

from ..scalar import Array
from ..window import Window
from .linear_combinations import factor_out_scale, linear_combination
from .term_table import AffineTerm, Atom, TermTable

Widths = tuple[tuple[int, int, int], ...]
Ranges = tuple[tuple[int, int, int], ...]


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


def pad_value(table: TermTable, x: int, widths: Widths) -> int:
    """Return the value number of x padded with zeros by `widths` (before, after, gap per axis), merged with a padding
    inside; a scale that is constant along the padded axes is factored out.
    """
    value = table.values[x]
    if not any(map(any, widths)):
        return x
    shape = tuple(
        before + (n + (n - 1) * gap if n else 0) + after
        for n, (before, after, gap) in zip(value.shape, widths, strict=True)
    )
    inner = table.single_atom(x)
    if inner is not None and inner.op == "pad" and _has_no_gaps(widths) and _has_no_gaps(inner.params[0]):
        both = zip(inner.params[0], widths, strict=True)
        return pad_value(table, inner.args[0], tuple((p[0] + q[0], p[1] + q[1], 0) for p, q in both))
    parts = factor_out_scale(table, x, [a for a, w in enumerate(widths) if any(w)])
    if parts is not None:
        return linear_combination(table, shape, [(parts[0], pad_value(table, parts[1], widths))])
    return table.value_of_atom(Atom("pad", (widths,), (x,), shape))


def _has_no_gaps(widths: Widths) -> bool:
    """Return whether padding by `widths` inserts no zeros between cells."""
    return all(gap == 0 for _, _, gap in widths)


def slice_value(table: TermTable, x: int, ranges: Ranges) -> int:
    """Return the value number of x sliced by `ranges` (start, stop, step per axis), atom by atom.

    Merged with a slice inside, or with a padding if steps are 1.
    """
    value = table.values[x]
    shape, ranges = value.shape, tuple(_shortest_range(*r) for r in ranges)
    if all(r == (0, n, 1) for r, n in zip(ranges, shape, strict=True)):
        return x
    inner = table.single_atom(x)
    if inner is None:
        return _slice_terms(table, value, ranges)
    steps = all(step == 1 for _, _, step in ranges)
    if steps and inner.op == "pad" and _has_no_gaps(inner.params[0]):
        joined = _crop_of_pad(table, inner, ranges)
        if joined is not None:
            return joined
    if inner.op == "slice":
        within = tuple(
            (first + by * start, first + by * stop, by * step)
            for (first, _, by), (start, stop, step) in zip(inner.params[0], ranges, strict=True)
        )
        return slice_value(table, inner.args[0], within)
    new = tuple(len(range(*r)) for r in ranges)
    return table.value_of_atom(Atom("slice", (ranges,), (x,), new))


def _shortest_range(start: int, stop: int, step: int) -> tuple[int, int, int]:
    """Return the range (start, stop, step) of the same cells that ends behind its last one; a single cell has step 1.

    >>> _shortest_range(1, 9, 3), _shortest_range(1, 8, 3), _shortest_range(4, 6, 3), _shortest_range(2, 2, 3)
    ((1, 8, 3), (1, 8, 3), (4, 5, 1), (0, 0, 1))
    """
    cells = range(start, stop, step)
    return (start, cells[-1] + 1, step if len(cells) > 1 else 1) if cells else (0, 0, 1)


def _slice_terms(table: TermTable, value: AffineTerm, ranges: Ranges) -> int:
    """Return the value number of slice(s*t + c) = slice(s)*slice(t) + slice(c), term by term."""
    new = tuple(len(range(*r)) for r in ranges)
    parts: list[tuple[Any, int]] = [(1, table.value_of_constant(new, _slice_repeated(table.shift_of(value), ranges)))]
    for atom, scale in value.terms:
        parts.append(
            (
                _slice_repeated(table.numbers_of(scale), ranges),
                slice_value(table, table.value_of_atom(table.atoms[atom]), ranges),
            )
        )
    return linear_combination(table, new, parts)


def _slice_repeated(cells: Array, ranges: Ranges) -> Array:
    """Return `cells`, which repeat along axes of one cell, sliced by `ranges`: those axes stay."""
    return cells[tuple(slice(None) if n == 1 else slice(*r) for n, r in zip(cells.shape, ranges, strict=True))]


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
