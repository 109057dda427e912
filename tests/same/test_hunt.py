"""No false "same": what normal forms call one function has equal values at random rational points."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from evaluated import is_kept
from exactly import point
from false_sames import hunt, pairs, same
from lowered import lower
from slices import slices
from specgrad.bounds.exact_outputs import ball_outputs
from specgrad.bounds.fixed_point_outputs import fixed_point_difference
from specgrad.check.comparison.compare import compare
from specgrad.equivalence import constants, layout, linear_combinations, linear_maps, pad_crop, rewrite_rules
from specgrad.equivalence import slices as slice_rules
from specgrad.equivalence.surd import enclose, interval, square_root
from specgrad.errors import SpecgradError


@pytest.mark.quick
def test_no_false_same() -> None:
    false, counts = hunt(range(25))
    assert false == []
    assert counts["spelling", True] > counts["spelling", False]  # the rules do see through spellings
    assert counts["fault", False] > 4 * counts["fault", True]  # a fault may be none: a bias of zeros dropped


@pytest.mark.quick
def test_no_false_same_of_weights_that_are_not_multiplied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of over MAX_EXACT_CELLS numbers are kept with their factors beside them: here, all of them are."""
    monkeypatch.setattr(constants, "MAX_EXACT_CELLS", 3)
    w, s = np.float32([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), np.float32([3, 5, 7])
    before, behind, twice = (
        sg.trace(f, (3,))
        for f in (
            lambda x: sg.linear(w, None, x / s),
            lambda x: sg.linear(w, None, x) / s,
            lambda x: sg.linear(w, None, x / s * 7) / 7,
        )
    )
    assert not same(before, behind)
    assert same(before, twice)
    assert hunt(range(25))[0] == []


@pytest.mark.quick
def test_wide_numbers_are_no_float64() -> None:
    """A long double next to 1, and integers that only unsigned types hold."""
    next_to_1 = np.nextafter(np.longdouble(1), np.longdouble(2))
    for a, b in ((next_to_1, np.float64(1)), (np.uint64(2**64 - 1), np.int64(-1))):
        keys = [constants.Constant(np.full((2, 2), v)).key() for v in (a, b)]
        assert keys[0] != keys[1]


@pytest.mark.quick
def test_long_doubles_are_multiplied_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 + 2**-60 times 2 or 3 is not 2 or 3, of small arrays and of those that are not multiplied out."""
    x = np.longdouble(1) + np.longdouble(2) ** -60
    if x == 1:
        pytest.skip("long doubles are float64 here")
    exactly = 1 + Fraction(1, 2**60)
    assert sg.exact(x).item() == exactly
    for cells in (constants.MAX_EXACT_CELLS, 3):
        lower(monkeypatch, {"equivalence.constants:MAX_EXACT_CELLS": cells})
        for s in (1, 2, 3):
            wide, narrow = (
                sg.trace(lambda v, w=w, s=s: sg.linear(w, None, v) * s, (3,))
                for w in (np.full((3, 3), x), np.ones((3, 3)))
            )
            assert not same(wide, narrow)
            assert same(wide, wide)
            assert compare(wide, narrow, exact=True).verdict == "differs"
    low, high = constants.Constant(np.full((2, 2), x)).float_bounds
    assert (low < high).all()
    assert Fraction(low[0, 0]) <= exactly <= Fraction(high[0, 0])


LOWERED = [(1, 1), (6, 10), (2**17, 1)]


@pytest.mark.parametrize(("cells", "work"), LOWERED)
def test_no_false_same_where_little_is_computed(cells: int, work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made for large weights: no constant goes through them, and few arrays are exact numbers."""
    lower(
        monkeypatch,
        {"equivalence.constants:MAX_EXACT_CELLS": cells, "equivalence.linear_maps:MAX_EXACT_PRODUCTS": work},
    )
    false, counts = hunt(range(8))
    assert false == []
    assert counts["spelling", True]
    assert all(is_kept([a, b], seed) for seed in range(4) for _, a, b in pairs(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_no_false_same_at_length(part: int) -> None:
    false, counts = hunt(range(25 + 100 * part, 125 + 100 * part))
    assert false == []
    assert sum(counts.values()) > 250


@pytest.mark.quick
def test_normal_forms_keep_the_values() -> None:
    for seed in range(15):
        for kind, a, b in pairs(seed):
            assert is_kept([a, b], seed), f"{kind} of network {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_normal_forms_keep_the_values_at_length(part: int) -> None:
    assert all(is_kept([a, b], seed) for seed in range(15 + 60 * part, 75 + 60 * part) for _, a, b in pairs(seed))


@pytest.mark.quick
def test_every_crop_of_a_padding_keeps_the_values() -> None:
    """3 cells with 0 to 2 zeros on either side, cut anywhere: within the zeros, across an edge, within the cells."""
    for before, after in product(range(3), repeat=2):
        for start, stop in combinations(range(before + 3 + after + 1), 2):
            graph = sg.trace(lambda x, p=(before, after), s=slice(start, stop): sg.pad(x, [p])[s], (3,))
            assert is_kept([graph], 0), (before, after, start, stop)


@pytest.mark.quick
def test_roots_are_enclosed_from_both_sides() -> None:
    """p - q*sqrt(2) of ever better p/q: at last what is left of them is less than 2**-256 of either.

    low <= p - q*sqrt(2) is 2*q*q <= (p - low)**2 where p >= low, and so on: no root is taken.
    """
    p, q = 1, 1
    for _ in range(240):
        number = p - q * square_root(Fraction(2))
        for least, most in (_ends(number), [-end for end in _ends(-number)[::-1]]):
            assert p >= least
            assert 2 * q * q <= (p - least) ** 2
            assert p <= most or (p - most) ** 2 <= 2 * q * q
        p, q = p + 2 * q, p + q


def _ends(number: Any) -> list[Fraction]:
    """The narrower of what encloses a number, as rationals and as floats."""
    low, high = (Fraction(ends.item()) for ends in interval(np.array([number], dtype=object)))
    least, most = enclose(number)
    assert low <= least <= most <= high
    return [least, most]


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _tiled(per_channel: Any, weights: Any, groups: int) -> Any:
    """Channels of another group."""
    spread = (
        np.tile(per_channel.reshape(groups, -1), (weights[0] // groups, 1)) if per_channel.size > 1 else per_channel
    )
    return spread.reshape((*((weights[0], weights[1]) if per_channel.size > 1 else (1, 1)), *(1,) * (len(weights) - 2)))


def _first_axis(table: Any, atom: Any, scale: Any) -> Any:
    """The scale of a transposed convolution's output, on the axis of its input."""
    shape = table.constants[atom.weights].shape if atom.weights is not None else ()
    if atom.op == "conv_transpose" and scale.size == shape[0]:
        return scale.reshape((-1,) + (1,) * (len(shape) - 1))
    return OUTPUT_FACTORS(table, atom, scale)


def _lost_shift(table: Any, shape: Any, parts: Any) -> Any:
    """s*(x + c) = s*x + c."""
    parts = list(parts)
    if len(parts) == 1 and table.values[parts[0][1]].shift is not None:
        factor, number = parts[0]
        value = table.values[number]
        scaled = {
            a: linear_combinations.as_object_array(s * np.asarray(factor, dtype=object))
            for a, s in linear_combinations.terms_of(table, number).items()
        }
        return linear_combinations.affine_value(table, shape, scaled, table.shift_of(value))
    return COMBINED(table, shape, parts)


def _half_pad(table: Any, x: int, widths: Any) -> int:
    """pad(pad(x)) with the inner high side on the low side."""
    inner = table.single_atom(x)
    if inner is not None and inner.op == "pad" and any(map(any, widths)):
        both = zip(inner.params[0], widths, strict=True)
        return PADDED(table, inner.args[0], tuple((p[0] + p[1] + q[0], q[1], 0) for p, q in both))
    return PADDED(table, x, widths)


def _all_padded(c: Any) -> Any:
    """Padding that is not counted, counted."""
    return AVG_POOL(
        linear_maps.TermApplication(c.table, c.op, {**c.params, "divisor": "padded"}, c.args, c.weights, c.shape)
    )


def _coarse_key(array: Any) -> Any:
    """Weights equal when their float16 are."""
    return CELLS_KEY(array.astype(np.float16)) if array.dtype.kind == "f" else CELLS_KEY(array)


def _turned_back(table: Any, x: int, order: Any) -> int:
    """permute of permute, composed in the other order."""
    inner = table.single_atom(x)
    if inner is not None and inner.op == "permute":
        return PERMUTE_TO(table, inner.args[0], tuple(order[a] for a in inner.params[0]))
    return PERMUTE_TO(table, x, order)


OUTPUT_FACTORS, COMBINED, PADDED = (
    linear_combinations.scale_as_weight_factors,
    linear_combinations.linear_combination,
    pad_crop.pad_value,
)
AVG_POOL, CELLS_KEY, PERMUTE_TO = linear_maps.avg_pool, constants._cells_key, layout.permute_to
PLANTED: dict[str, list[tuple[Any, str, Any]]] = {
    "channels of another group": [(m, "second_axis_factors", _tiled) for m in (linear_combinations, linear_maps)],
    "the other axis of the weights": [(linear_combinations, "scale_as_weight_factors", _first_axis)],
    "a shift that is not scaled": [
        (m, "linear_combination", _lost_shift)
        for m in (linear_combinations, linear_maps, pad_crop, rewrite_rules, slice_rules)
    ],
    "padding on the other side": [(m, "pad_value", _half_pad) for m in (pad_crop, rewrite_rules, slice_rules)],
    "ends of a clamp that are not clamped": [(rewrite_rules, "_clamp_limit", lambda end, low, high, without: end)],
    "a divisor that counts padding": [(rewrite_rules.RULES, "avg_pool", _all_padded)],
    "weights compared in float16": [(constants, "_cells_key", _coarse_key)],
    "permutations in the other order": [
        (m, "permute_to", _turned_back) for m in (layout, rewrite_rules, linear_maps, slice_rules)
    ],
}


SOONEST = {"the other axis of the weights": 27, "a divisor that counts padding": 58}
"""Networks on which a mistake shows, where the first that shows it comes late."""


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_rules_are_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name, wrong in PLANTED[mistake]:
        if isinstance(place, dict):
            monkeypatch.setitem(place, name, wrong)
        else:
            monkeypatch.setattr(place, name, wrong)
    assert any(_breaks(a, b, seed) for seed in (SOONEST.get(mistake, 0), *range(60)) for _, a, b in pairs(seed))


def _breaks(a: Any, b: Any, seed: int) -> bool:
    """A normal form that has other values, or none: its shapes do not fit."""
    try:
        return not is_kept([a, b], seed)
    except (ValueError, SpecgradError):
        return True


@pytest.mark.parametrize("seeds", slices(6, 60))
def test_fixed_point_holds_the_difference_of_two_spellings(seeds: Iterable[int]) -> None:
    """Of spellings, faults and mutants: bounds at a point hold the difference over balls of 600 bits; some differ."""
    flint = pytest.importorskip("flint")
    shown = 0
    for seed in seeds:
        for _, a, b in pairs(seed):
            x = tuple(np.random.default_rng(seed).normal(size=v.shape).astype(np.float32) for v in point(a, seed))
            before, flint.ctx.prec = flint.ctx.prec, 600
            try:
                apart = fixed_point_difference(a, b, x)
                first, second = ball_outputs(a, x), ball_outputs(b, x)
            except SpecgradError:  # a comparison that is open: of numbers that are the same
                continue
            finally:
                flint.ctx.prec = before
            for low, high, p, q in zip(apart.low, apart.high, first, second, strict=True):
                gaps = (p - q).flat
                assert all(not g < u and not g > v for g, u, v in zip(gaps, low.flat, high.flat, strict=True)), seed
                shown += bool((low > 0).any() or (high < 0).any())
    assert shown
