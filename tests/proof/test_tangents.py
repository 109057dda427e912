"""Lines of functions on leaves, in whole numbers: they hold by mpmath, executions stay above bounds, mistakes show."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("mpmath")
pytest.importorskip("torch")

from leaves import below, case, curved, least
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof import check
from specgrad.proof.base.rationals import ReplayError, rational
from specgrad.proof.batched import activations
from specgrad.proof.batched.activations import CurveLines, FunctionTable, curve_lines
from specgrad.proof.exact.activations import CURVES, default_point, line
from test_curves import FUNCTIONS, fraction, network, question

BEYOND = np.int64(1) << 50  # a range that says nothing


def drawn(name: str, seed: int, cells: int = 24) -> tuple[Any, Any, int, int, CurveLines]:
    """Lines of a function on intervals of all widths, points among them, with many or few binary places."""
    rng = np.random.default_rng(seed)
    read, size = int(rng.choice((4, 13, 25))), float(rng.choice((0.01, 1, 4, 9)) / (3 if name == "exp" else 1))
    places = int(rng.choice((3, 12, 20 if name == "exp" else 26)))
    width = rng.uniform(0, 1, (3, cells)) ** 4 * 2 * size * rng.integers(0, 2, (3, cells))
    middle = rng.uniform(-size, size, (3, cells))
    low, high = (np.rint((middle + side * width) * 2.0**read).astype(np.int64) for side in (-1, 1))
    node: Any = SimpleNamespace(op=SimpleNamespace(name=name), params=FUNCTIONS[name][0], name=name)
    table = FunctionTable.on(node, low.min(0)[None], high.max(0)[None], read, places)
    ends = np.full(cells, -BEYOND), np.full(cells, BEYOND)
    return low, high, read, places, curve_lines(table, low, high, read, *ends)


def escapes(name: str, seed: int) -> int:
    """Lines and ranges that some number of an interval leaves."""
    low, high, read, places, lines = drawn(name, seed)
    f, left = FUNCTIONS[name][1], 0
    for at in np.ndindex(low.shape):
        a, b = (Fraction(int(end[at]), 2**read) for end in (low, high))
        shares = [Fraction(k, 7) for k in range(8)]
        kinks = [x for x in map(Fraction, (0, -3, -1.5, 3, 6, -0.7, 1)) if a <= x <= b]
        for x in (*(a + (b - a) * s for s in shares), *kinks):
            y = f(x)
            below, above = (_height(side, at, x, read, places, lines.slopes) for side in (lines.below, lines.above))
            ends = (Fraction(int(end[at])) / 2**places for end in (lines.least, lines.most))
            left += not (below - TINY <= y <= above + TINY and next(ends) - TINY <= y <= next(ends) + TINY)
    return left


TINY = Fraction(1, 2**390)  # what mpmath is rounded to


def _height(side: Any, at: Any, x: Fraction, read: int, places: int, slopes: int) -> Fraction:
    s, m, h = (int(v[at]) for v in (side.slope, side.point, side.height))
    return Fraction(s, 2**slopes) * (x - Fraction(m, 2**read)) + Fraction(h, 2**places)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_lines_hold(name: str) -> None:
    assert sum(escapes(name, seed) for seed in range(6)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_many_lines_hold(name: str) -> None:
    assert sum(escapes(name, seed) for seed in range(1000, 1300)) == 0


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_lines_are_good(name: str) -> None:
    """At the middle hardly worse than those that a replay over rationals has, where intervals are no points."""
    lost = []
    for seed in range(40):
        low, high, read, places, lines = drawn(name, seed, 4)
        if min(read, places) < 20:
            continue
        f = CURVES[name](FUNCTIONS[name][0])
        for at in np.ndindex(low.shape):
            a, b = (rational(int(end[at]), 1 << read) for end in (low, high))
            if b - a < rational(1, 4):
                continue
            for side, mine in ((-1, lines.below), (1, lines.above)):
                s, c = line(f, a, b, default_point(f, a, b, 1024, side), 1024, side)
                height = _height(mine, at, fraction((a + b) / 2), read, places, lines.slopes)
                scale = max(Fraction(1), *(abs(fraction(f.value(x)[0])) for x in (a, b)))
                lost.append(float(side * (height - fraction(s * (a + b) / 2 + c)) / scale))
    assert len(lost) > 20
    assert max(lost) < 0.05, max(lost)


def test_huge_numbers_are_refused() -> None:
    node: Any = SimpleNamespace(op=SimpleNamespace(name="tanh"), params={}, name="t")
    with pytest.raises(ReplayError, match="too large for lines on leaves"):
        FunctionTable.on(node, np.int64([[-5]]), np.int64([[1 << 30]]), 0, 20)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def tangents_that_are_not(m: pytest.MonkeyPatch) -> None:
    """Nothing is charged for a slope that is not the tangent's."""
    right = activations._LinesBelow.height

    def wrong(self: Any, s: Any, t: Any) -> Any:
        if self.convex is None or t is None:
            return right(self, s, t)
        kept = self.p, self.q
        self.p = self.q = t
        try:
            return right(self, s, t)
        finally:
            self.p, self.q = kept

    m.setattr(activations._LinesBelow, "height", wrong)


def kinks_ignored(m: pytest.MonkeyPatch) -> None:
    right = FunctionTable.__init__

    def wrong(self: Any, *given: Any) -> None:
        right(self, *given)
        if self.f.is_piecewise_linear:
            self.breakpoints = []

    m.setattr(FunctionTable, "__init__", wrong)


def ranges_narrowed(m: pytest.MonkeyPatch) -> None:
    """To points of the grid inside, and not outside."""
    right = activations._LinesBelow.__init__

    def wrong(self: Any, table: Any, sign: int, first: Any, last: Any) -> None:
        wide = last - first > 1
        right(self, table, sign, np.where(wide, first + 1, first), np.where(wide, last - 1, last))

    m.setattr(activations._LinesBelow, "__init__", wrong)


def heights_rounded_up(m: pytest.MonkeyPatch) -> None:
    right = activations.shift_right_saturating
    m.setattr(activations, "shift_right_saturating", lambda x, down: -right(-x, down))


def ends_rounded_inward(m: pytest.MonkeyPatch) -> None:
    right = activations.floor_scaled
    m.setattr(activations, "floor_scaled", lambda x, places: -right(-x, places))


def one_side_for_both(m: pytest.MonkeyPatch) -> None:
    """Lines above from the lower ends of f."""
    m.setattr(activations._LinesBelow, "_values", lambda self, j: self.sign * self.table.values(j)[0])


PLANTED: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("exp", tangents_that_are_not),
    ("sigmoid", tangents_that_are_not),
    ("hardswish", tangents_that_are_not),
    ("abs", kinks_ignored),
    ("clamp", kinks_ignored),
    ("exp", ranges_narrowed),
    ("tanh", ranges_narrowed),
    ("leaky_relu", heights_rounded_up),
    ("tanh", ends_rounded_inward),
    ("exp", one_side_for_both),
]


@pytest.mark.parametrize(("name", "plant"), PLANTED, ids=lambda p: p if isinstance(p, str) else p.__name__)
def test_a_wrong_rule_is_caught(monkeypatch: pytest.MonkeyPatch, name: str, plant: Any) -> None:
    plant(monkeypatch)
    assert any(escapes(name, seed) for seed in range(40))


# --- leaves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_no_execution_lies_below_the_bound_of_a_leaf(seed: int) -> None:
    assert below(seed, 3, curved) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_long_hunt(start: int) -> None:
    """A network whose exp may overflow is refused, which is no bound; few are."""
    refused = []
    for seed in range(2000 + start, 2100 + start):
        try:
            assert below(seed, 6, curved) == [], seed
        except ReplayError as error:
            refused.append(str(error))
    assert len(refused) < 10
    assert all("may overflow" in why for why in refused)


def test_a_wrong_line_shows_on_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    tangents_that_are_not(monkeypatch)
    assert any(below(seed, 6, curved) for seed in (19, *range(24)))  # the 19th shows it


def test_a_forgotten_error_of_the_function_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves of one point: nothing but roundings is left of a bound's slack."""
    from specgrad.proof.exact import activations, replay

    monkeypatch.setattr(activations, "runtime_error_bound", lambda *_: lambda size: size * 0)
    monkeypatch.setattr(replay, "growth", lambda *_: rational(0))

    def escaped(seed: int) -> bool:
        given = case(seed, width=0.0, hints=False, of=curved)
        return any(least(given, n, 8)[0] < b for n, b in enumerate(given.bounds()))

    assert any(escaped(seed) for seed in (13, *range(24)))  # the 13th shows it


@pytest.mark.parametrize("name", ["exp", "sigmoid", "leaky_relu"])
def test_networks_have_certificates_with_cuts(name: str) -> None:
    graph = network(name)
    asked = question(graph, 0.8 if name != "leaky_relu" else 0.5)
    verdict = certify(graph, asked, seconds=1e9)
    assert verdict.verdict == "holds"
    assert any(tree for case in verdict.trees for _, tree in case)
    found = check(prove(graph, asked, trees=verdict.trees, seconds=1e9), graph, asked)
    assert max(a.leaves for a in found.cases[0].alternatives) > 1
    assert found.margin > 0


def test_networks_have_certificates_with_cuts_at_kinks() -> None:
    """Of clamp, at its limits, which are no float32 numbers: a cut beside a kink holds as well."""
    rng = np.random.default_rng(1)
    w, b, v, c, last = (rng.normal(size=s).astype(np.float32) / 4 for s in ((16, 60), (16,), (12, 16), (12,), (3, 12)))
    f = lambda x: sg.clamp(x, -0.4, 0.75)
    graph = sg.trace(lambda x: sg.linear(last, None, f(sg.linear(v, c, f(sg.linear(w, b, x))))), (1, 60))
    x = np.random.default_rng(1).normal(size=(1, 60)).astype(np.float32)
    asked = x, int(np.argmax(graph(x.astype(float)))), 0.09
    verdict = certify(graph, asked, seconds=1e9)
    cuts = [cut for case in verdict.trees for _, tree in case for cut in tree.cuts if cut is not None]
    assert {cut.at for cut in cuts} & {float(np.float32(-0.4)), 0.75}
    found = check(prove(graph, asked, trees=verdict.trees, seconds=1e9), graph, asked)
    assert max(a.leaves for a in found.cases[0].alternatives) > 1
    assert found.margin > 0
