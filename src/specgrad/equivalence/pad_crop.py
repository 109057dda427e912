"""Padding with zeros and cropping, apart from the windows that ask for them.

pad(pad(x)) = pad(x)        crop(pad(x)) = pad(crop(x)), as much as is left of either        pad(s*x) = s*pad(x)
"""

from __future__ import annotations

from typing import Any

from ..scalar import Array
from ..window import Window
from .linear_combinations import combined, factored
from .term_table import AffineTerm, Atom, TermTable

Widths = tuple[tuple[int, int, int], ...]
Ranges = tuple[tuple[int, int, int], ...]


def framed(table: TermTable, x: int, window: Window) -> int:
    """The input with the padding that its windows read, and without the cells that none reads."""
    shape = table.values[x].shape
    lead = len(shape) - window.rank
    cut = [slice(None, None if hi >= 0 else hi) for _, hi in window.pads]
    ranges = tuple(s.indices(n) for s, n in zip((*[slice(None)] * lead, *cut), shape, strict=True))
    widths = ((0, 0, 0),) * lead + tuple((max(0, before), max(0, after), 0) for before, after in window.pads)
    return padded(table, sliced(table, x, ranges), widths)


def padded(table: TermTable, x: int, widths: Widths) -> int:
    """pad, joined with a padding inside; a scale that is constant along the padded axes goes in front."""
    value = table.values[x]
    if not any(map(any, widths)):
        return x
    shape = tuple(
        before + (n + (n - 1) * gap if n else 0) + after
        for n, (before, after, gap) in zip(value.shape, widths, strict=True)
    )
    inner = table.alone(x)
    if inner is not None and inner.op == "pad" and _plain(widths) and _plain(inner.params[0]):
        both = zip(inner.params[0], widths, strict=True)
        return padded(table, inner.args[0], tuple((p[0] + q[0], p[1] + q[1], 0) for p, q in both))
    parts = factored(table, x, [a for a, w in enumerate(widths) if any(w)])
    if parts is not None:
        return combined(table, shape, [(parts[0], padded(table, parts[1], widths))])
    return table.of_atom(Atom("pad", (widths,), (x,), shape))


def _plain(widths: Widths) -> bool:
    return all(gap == 0 for _, _, gap in widths)


def sliced(table: TermTable, x: int, ranges: Ranges) -> int:
    """slice, of every atom by itself; joined with a padding or a slice inside where steps are 1."""
    value = table.values[x]
    shape = value.shape
    if all(r == (0, n, 1) for r, n in zip(ranges, shape, strict=True)):
        return x
    inner = table.alone(x)
    if inner is None:
        return _sliced_terms(table, value, ranges)
    steps = all(step == 1 for _, _, step in ranges)
    if steps and inner.op == "pad" and _plain(inner.params[0]):
        joined = _crop_of_pad(table, inner, ranges)
        if joined is not None:
            return joined
    if inner.op == "slice" and all(step == 1 for _, _, step in inner.params[0]):
        within = tuple(
            (first + start, first + stop, step)
            for (first, _, _), (start, stop, step) in zip(inner.params[0], ranges, strict=True)
        )
        return sliced(table, inner.args[0], within)
    new = tuple(len(range(*r)) for r in ranges)
    return table.of_atom(Atom("slice", (ranges,), (x,), new))


def _sliced_terms(table: TermTable, value: AffineTerm, ranges: Ranges) -> int:
    """slice(s*t + c) = slice(s)*slice(t) + slice(c); what repeats along an axis repeats along its slice."""
    new = tuple(len(range(*r)) for r in ranges)
    parts: list[tuple[Any, int]] = [(1, table.of_cells(new, _cut(table.shift_of(value), ranges)))]
    for atom, scale in value.terms:
        parts.append((_cut(table.scale(scale), ranges), sliced(table, table.of_atom(table.atoms[atom]), ranges)))
    return combined(table, new, parts)


def _cut(cells: Array, ranges: Ranges) -> Array:
    return cells[tuple(slice(None) if n == 1 else slice(*r) for n, r in zip(cells.shape, ranges, strict=True))]


def _crop_of_pad(table: TermTable, pad: Atom, ranges: Ranges) -> int | None:
    """Per axis: what a crop leaves of the padding, and what it takes of the cells; None where it leaves no cell."""
    x = pad.args[0]
    widths, inside = [], []
    for n, (before, _, _), (start, stop, _) in zip(table.values[x].shape, pad.params[0], ranges, strict=True):
        first, last = max(0, start - before), min(n, stop - before)
        if last <= first:
            return None
        inside.append((first, last, 1))
        widths.append((max(0, before - start), max(0, stop - before - n), 0))
    return padded(table, sliced(table, x, tuple(inside)), tuple(widths))
