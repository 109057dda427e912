"""The law of boxes rejects rules that are wrong: off by one at one end, in a gap, at a border."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest

import laws
from specgrad.op import REGISTRY
from specgrad.window.axis_maps import AxisPart, Interpolated, JoinMap, Padded, Sliced, Transposed, Windowed

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

PART = {kind: kind.part for kind in (Windowed, Transposed, Padded, Sliced, JoinMap, Interpolated)}


def changed(kind: type, change: Any) -> Any:
    """The part of a relation, with its local axis changed where it is one."""

    def part(self: Any, o: int, p: int) -> AxisPart:
        right = PART[kind](self, o, p)
        return change(self, right)

    return part


def padded_once_more(self: Windowed, part: AxisPart) -> AxisPart:
    """One cell of padding too many at the end."""
    return part._replace(local=replace(part.local, hi=part.local.hi + 1))


def padded_once_less(self: Windowed, part: AxisPart) -> AxisPart:
    """One cell of padding too few at the end: the windows there are clipped."""
    return part._replace(local=replace(part.local, hi=max(0, part.local.hi - 1)))


def padded_before(self: Windowed, part: AxisPart) -> AxisPart:
    """One cell of padding too many at the beginning."""
    return part._replace(local=replace(part.local, lo=part.local.lo + 1))


def padded_inside(self: Windowed, part: AxisPart) -> AxisPart:
    """A cell short at the end, and padding in its place."""
    (a, b), local = part.need, part.local
    if b - a == 1:
        return part
    return part._replace(need=(a, b - 1), local=replace(local, size=local.size - 1, hi=local.hi + 1))


def gap_forgotten(self: Transposed, part: AxisPart) -> AxisPart:
    """A box that begins between two windows, counted as if it began at one."""
    low = part.local.lo % self.axis.stride if self.axis.span < self.axis.stride else part.local.lo
    return part._replace(local=replace(part.local, lo=max(0, low - (low != part.local.lo))))


def moved_by_one(self: Any, part: AxisPart) -> AxisPart:
    (a, b) = part.need
    return part._replace(need=(a - 1, b - 1) if a else part.need)


MISTAKES = {
    "padding of one cell more at the end": ("avg_pool", Windowed, padded_once_more),
    "padding of one cell less at the end": ("avg_pool", Windowed, padded_once_less),
    "padding of one cell more before": ("conv", Windowed, padded_before),
    "padding in place of a cell": ("conv", Windowed, padded_inside),
    "a stride's gap forgotten": ("conv_transpose", Transposed, gap_forgotten),
    "windows backwards, one too early": ("conv_transpose", Transposed, moved_by_one),
    "a slice one too early": ("slice", Sliced, moved_by_one),
    "zeros one too early": ("pad", Padded, moved_by_one),
    "a coordinate one too early": ("resize", Interpolated, moved_by_one),
}


def caught(name: str, cases: int = 200) -> bool:
    op = REGISTRY[name]
    for seed in range(cases):
        rng = Random(f"{name}/{seed}")
        try:
            laws.check_box(op, op.cases(rng), rng)
        except (AssertionError, ValueError):
            return True
    return False


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_the_law_catches(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, kind, change = MISTAKES[mistake]
    monkeypatch.setattr(kind, "part", changed(kind, change))
    assert caught(name)


def test_a_wrong_rate_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windowed, "rate", Fraction(1))
    assert caught("max_pool")


def test_the_right_rules_pass() -> None:
    assert not any(caught(name, cases=30) for name in {name for name, *_ in MISTAKES.values()})


@pytest.mark.parametrize(("name", "kind"), [("conv", Windowed), ("conv_transpose", Transposed)])
def test_zeros_beyond_the_ends_one_too_early_are_caught(name: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    right = kind.open

    def wrong(self: Any, o: int, p: int) -> AxisPart:
        part = right(self, o, p)
        return part._replace(need=(part.need[0] - 1, part.need[1] - 1))

    monkeypatch.setattr(kind, "open", wrong)
    assert caught(name)


def test_zeros_that_are_no_padding_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A maximum of zeros is not a maximum of nothing."""
    rule = REGISTRY["max_pool"].footprint
    monkeypatch.setitem(
        REGISTRY,
        "max_pool",
        replace(
            REGISTRY["max_pool"], footprint=lambda x, *, window: replace(rule(x, window=window), open=(len(x) - 1,))
        ),
    )
    assert caught("max_pool")
