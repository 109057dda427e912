"""Rules of zero padding, which is kept apart from the windows that need it.

pad(pad(x)) = pad(x)        pad(s*x) = s*pad(x)

`table` holds the terms of both networks; values and atoms are given and returned by their numbers in it.
"""

from __future__ import annotations

from .linear_combinations import factor_out_scale, linear_combination
from .term_table import Atom, TermTable

Widths = tuple[tuple[int, int, int], ...]


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
    if inner is not None and inner.op == "pad" and has_no_gaps(widths) and has_no_gaps(inner.params[0]):
        both = zip(inner.params[0], widths, strict=True)
        return pad_value(table, inner.args[0], tuple((p[0] + q[0], p[1] + q[1], 0) for p, q in both))
    parts = factor_out_scale(table, x, [a for a, w in enumerate(widths) if any(w)])
    if parts is not None:
        return linear_combination(table, shape, [(parts[0], pad_value(table, parts[1], widths))])
    return table.value_of_atom(Atom("pad", (widths,), (x,), shape))


def has_no_gaps(widths: Widths) -> bool:
    """Return whether padding by `widths` inserts no zeros between cells."""
    return all(gap == 0 for _, _, gap in widths)
