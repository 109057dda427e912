"""Verdicts against every float32 input: boxes that hold few of them, networks of whole numbers, exact outputs.

From 2**23 on float32 numbers are a whole number apart, so a box of two cells there holds a handful of inputs. A bias
takes 2**23 away again: outputs are small whole numbers, and rationals tell at every input whether a property is broken.
Computing without rounding is one of the executions that a proof covers; so is float32 in any order of its sums.
"""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from pace import stretched
from slices import slices
from specgrad.properties import points
from specgrad.properties.property import Case, Property, PropertyError
from specgrad.properties.vnnlib import read_text

torch = pytest.importorskip("torch")

from specgrad.bounds.search.certify import certify  # noqa: E402
from specgrad.bounds.search.input_split import search  # noqa: E402

certifying = importlib.import_module("specgrad.bounds.search.certify")  # the package has a function of this name
witnesses = importlib.import_module("specgrad.bounds.search.network.witnesses")

FAR = 1 << 23
Tree = Any


# --- networks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Network:
    """y = V relu(W x + b) + c, with whole numbers, twice: as a graph, and as loops."""

    w: list[list[int]]
    b: list[int]
    v: list[list[int]]
    c: list[int]

    def graph(self) -> sg.Graph:
        w, b, v, c = (np.float32(a) for a in (self.w, self.b, self.v, self.c))
        return sg.trace(lambda x: sg.linear(v, c, sg.relu(sg.linear(w, b, x))), (2,))

    def run(self, x: list[Any], lift: Any = Fraction, rng: Random | None = None) -> list[Any]:
        hidden = [max(z, lift(0)) for z in _affine(self.w, self.b, x, lift, rng)]
        return _affine(self.v, self.c, hidden, lift, rng)


def _affine(matrix: list[list[int]], bias: list[int], x: list[Any], lift: Any, rng: Random | None) -> list[Any]:
    """Sums of products and a bias, in the order that they stand in or in any other."""
    found = []
    for row, b in zip(matrix, bias, strict=True):
        terms = [lift(factor) * value for factor, value in zip(row, x, strict=True)] + [lift(b)]
        if rng is not None:
            rng.shuffle(terms)
        found.append(sum(terms[1:], start=terms[0]))
    return found


def network(rng: Random, start: int) -> Network:
    w = [[rng.randint(-2, 2) for _ in range(2)] for _ in range(3)]
    b = [-start * sum(row) + rng.randint(-3, 3) for row in w]
    v = [[rng.randint(-2, 2) for _ in range(3)] for _ in range(2)]
    return Network(w, b, v, [rng.randint(-4, 4) for _ in range(2)])


# --- properties, as text and as a meaning -----------------------------------------------------------------------------


def number(rng: Random) -> str:
    return rng.choice([str(rng.randint(-150, 150)), str(rng.randint(-3, 3)), f"{rng.randint(-20, 20)}.25"])


def term(rng: Random) -> Tree:
    kind = rng.choice(["Y_0", "Y_1", "-", "+", "*"])
    if kind in "+-":
        return (kind, "Y_0", rng.choice(["Y_1", number(rng)]))
    return ("*", rng.choice(["2", "-0.5"]), "Y_1") if kind == "*" else kind


def comparison(rng: Random) -> Tree:
    pair = rng.choice([term(rng)] * 9 + [number(rng)]), rng.choice([term(rng), number(rng), number(rng)])
    if rng.random() < 0.15:
        return ("and", ("<=", *pair), (">=", *pair))  # an equality
    return (rng.choice(["<=", ">="]), *pair)


def formula(rng: Random, depth: int, start: int) -> Tree:
    if depth == 0 or rng.random() < 0.4:
        return comparison(rng)
    parts = [formula(rng, depth - 1, start) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.2:  # a box of its own, which may be empty
        parts.append((rng.choice(["<=", ">="]), "X_0", f"{start + rng.randint(-2, 4)}.25"))
    return (rng.choice(["and", "or"]) if all("X_0" not in p for p in parts) else "and", *parts)


def written(tree: Tree) -> str:
    return tree if isinstance(tree, str) else "(" + " ".join(map(written, tree)) + ")"


def value(tree: Tree, known: dict[str, Fraction]) -> Fraction:
    if isinstance(tree, str):
        return known[tree] if tree in known else Fraction(tree)
    left, right = (value(t, known) for t in tree[1:])
    return {"+": left + right, "-": left - right, "*": left * right}[tree[0]]


def true(tree: Tree, known: dict[str, Fraction]) -> bool:
    if tree[0] in ("and", "or"):
        return (all if tree[0] == "and" else any)(true(t, known) for t in tree[1:])
    left, right = value(tree[1], known), value(tree[2], known)
    return left <= right if tree[0] == "<=" else left >= right


def ends(rng: Random, start: int) -> tuple[Fraction, Fraction]:
    """A few whole numbers, or decimals around and between them, or one number, or none of float32."""
    low = start + rng.randint(0, 2)
    kind = rng.randrange(5)
    if kind == 0:
        return Fraction(low), Fraction(low)
    if kind == 1:
        return low + Fraction(1, 4), low + Fraction(3, 4)  # beyond 2**23 no float32 number
    high = low + rng.randint(1, 3)
    return low - Fraction(kind == 2, 5), high + Fraction(kind == 3, 10)


def decimal(number: Fraction) -> str:
    """The exact decimal of a number of a few places."""
    whole, rest = divmod(abs(number), 1)
    digits = f"{int(whole)}.{int(rest * 1000):03d}"
    assert Fraction(digits) == abs(number)
    return f"-{digits}" if number < 0 else digits


@dataclass(frozen=True, eq=False)
class Question:
    network: Network
    box: list[tuple[Fraction, Fraction]]
    tree: Tree | None

    @property
    def text(self) -> str:
        names = "".join(f"(declare-const {v} Real)" for v in ("X_0", "X_1", "Y_0", "Y_1"))
        bounds = (
            f"(assert (>= X_{i} {decimal(a)})) (assert (<= X_{i} {decimal(b)}))" for i, (a, b) in enumerate(self.box)
        )
        return names + " ".join(bounds) + ("" if self.tree is None else f"(assert {written(self.tree)})")

    def broken_at(self, x: tuple[float | Fraction, ...], y: list[Fraction]) -> bool:
        known = {f"{n}_{i}": Fraction(v) for n, values in (("X", x), ("Y", y)) for i, v in enumerate(values)}
        return self.tree is None or true(self.tree, known)


def question(seed: int) -> Question:
    rng = Random(seed)
    start = FAR if rng.random() < 0.75 else 0
    net = network(rng, start)
    box = [ends(rng, start) for _ in range(2)] if start else [(Fraction(rng.randint(-2, 1)),) * 2 for _ in range(2)]
    if start and rng.random() < 0.2:
        return near_a_tie(rng, net, start)
    return Question(net, box, None if rng.random() < 0.05 else formula(rng, 2, start))


def near_a_tie(rng: Random, net: Network, start: int) -> Question:
    """One input, and a limit a little below what comes out there without rounding: the order of sums decides."""
    x = [Fraction(start + rng.randint(0, 5)) for _ in range(2)]
    below = net.run(x)[0] - rng.randint(1, 3)
    return Question(net, [(v, v) for v in x], ("<=", "Y_0", str(below)))


def numbers(low: Fraction, high: Fraction, inside: bool) -> list[float]:
    """The float32 numbers of low..high, or of the smallest float32 box that holds it; one by one."""
    at = np.float32(float(low))
    while Fraction(float(at)) > low:
        at = np.nextafter(at, np.float32(-np.inf))
    found = []
    while Fraction(float(at)) < high:
        found.append(float(at))
        at = np.nextafter(at, np.float32(np.inf))
    found.append(float(at))
    return [v for v in found if low <= Fraction(v) <= high] if inside else found


# --- the comparison ---------------------------------------------------------------------------------------------------


def outputs(net: Network, x: tuple[float, ...]) -> list[list[Fraction]]:
    """What an execution without rounding gives, one in float32 as written, and some in other orders."""
    values, rng = [np.float32(v) for v in x], Random(repr(x))
    rounded = [net.run(values, np.float32), *(net.run(values, np.float32, rng) for _ in range(12))]
    return [net.run([Fraction(v) for v in x]), *([Fraction(float(v)) for v in y] for y in rounded)]


def read(text: str) -> Property | None:
    """A property, or None where it is refused because nothing could break it."""
    try:
        return read_text(text)
    except PropertyError as error:
        if "nothing to prove" not in str(error) and "above upper bound" not in str(error):
            raise
        return None


@cache
def budget() -> float:
    """A second of an idle machine; most questions end long before."""
    return stretched(1)


def examined(seed: int) -> str:
    """How a property ends; a wrong end is an assertion."""
    asked = question(seed)
    inside = list(itertools.product(*(numbers(a, b, True) for a, b in asked.box)))
    statement = read(asked.text)
    if statement is None:
        assert not any(asked.broken_at(x, y) for x in inside for y in outputs(asked.network, x))
        return "nothing to prove"
    found = certify(asked.network.graph(), statement, seconds=budget())
    if found.verdict == "holds":
        assert not any(asked.broken_at(x, y) for x in inside for y in outputs(asked.network, x)), asked.text
        for case in statement.cases:
            assert not any(broken(case, y) for x in around(case) for y in outputs(asked.network, x)), asked.text
    if found.verdict == "violated":
        x, y = (tuple(map(float, np.ravel(a))) for a in (found.counterexample.x, found.counterexample.y))
        point = found.counterexample.point
        assert all(a <= v <= b for v, (a, b) in zip(point, asked.box, strict=True)), asked.text
        assert tuple(map(nearest, point)) == x, asked.text
        assert asked.broken_at(point, [Fraction(v) for v in y]), asked.text
        assert [Fraction(v) for v in y] in outputs(asked.network, x)
    return found.verdict if inside or found.verdict == "holds" else f"{found.verdict} without float32 numbers"


def nearest(value: Fraction) -> float:
    """What float32 makes of a number below 2**24: a whole number from 2**23 on; Python rounds to even ones."""
    assert abs(value) < FAR or 1 <= value / FAR < 2
    return float(round(value)) if abs(value) >= FAR else float(np.float32(float(value)))


def around(case: Case) -> Any:
    return itertools.product(*(numbers(a, b, False) for a, b in zip(case.low, case.high, strict=True)))


def broken(case: Case, y: list[Fraction]) -> bool:
    return any(
        all(
            sum(int(c) * v for c, v in zip(row, y, strict=True)) <= limit
            for row, limit in zip(a.rows, a.limits, strict=True)
        )
        for a in case.alternatives
    )


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a second runtime, whose process takes a second to start."""
    monkeypatch.setattr(witnesses, "ask", lambda networks, interface, point, case: [])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seeds", slices(24, 120))
def test_verdicts_on_every_float32_input(seeds: range) -> None:
    ends = Counter(map(examined, seeds))
    assert min(ends[kind] for kind in ("holds", "violated")) >= len(seeds) // 6, ends
    assert ends["violated without float32 numbers"] > 0, ends


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("part", range(5))
def test_more_verdicts_on_every_float32_input(part: int) -> None:
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        examined(seed)


# --- mistakes that the comparison sees --------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_bounds_that_are_too_high_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = certifying._margin
    monkeypatch.setattr(certifying, "_margin", lambda bound, limit: exact(bound + 40, limit))
    with pytest.raises(AssertionError):
        sum(len(examined(seed)) for seed in range(60))


@pytest.mark.usefixtures("alone")
def test_inputs_that_cannot_be_cut_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box of one input is not settled because it has no halves."""
    original = search.InputSplitResult
    planted = lambda x, settled, *rest, stuck=False: original(x, settled or stuck, *rest, stuck=stuck)
    monkeypatch.setattr(search, "InputSplitResult", planted)
    with pytest.raises(AssertionError):
        sum(len(examined(seed)) for seed in range(60))


@pytest.mark.usefixtures("alone")
def test_counterexamples_outside_the_box_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "nearest", property(Case.outer))
    monkeypatch.setattr(points, "_nearest_point", lambda case, cells, x: cells)
    monkeypatch.setattr(points, "_is_valid_point", lambda case, points, x: True)
    with pytest.raises(AssertionError):
        sum(len(examined(seed)) for seed in range(60))
