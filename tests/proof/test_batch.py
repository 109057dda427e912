"""Leaves in whole numbers: near the same bounds over rationals, never above an execution, and no mistake unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import drawn_windows
import specgrad as sg

pytest.importorskip("flint")

from leaves import Case, Exact, case, curved, dense, least, network, windowed
from specgrad.proof.base import rationals as fixed
from specgrad.proof.base.rationals import ReplayError, rational, rationals, shift_left
from specgrad.proof.batched import affine, backward, relu_max
from specgrad.proof.batched import leaves as batch
from specgrad.proof.batched.leaves import Leaves, Root
from specgrad.proof.exact.replay import ExecutionModel
from steered import values_of

SMALL = 2e-5  # what 26 bits of coefficients and 34 of weights may cost; measured: 1.2e-5


def exactly(q: Any) -> Fraction:
    return Fraction(int(q.p), int(q.q))


def losses(given: Case) -> list[float]:
    """How much the same bounds over rationals are above those in whole numbers, leaf by leaf."""
    root = given.root()
    ranged = root.ranged(given.leaves, given.narrow)
    exact = [exactly(Exact(root, ranged, n).lower(rationals(given.row))) for n in range(len(given.leaves))]
    return [float(e - b) for e, b in zip(exact, given.bounds(), strict=True)]


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 12))])
def test_bounds_are_those_over_rationals(seed: int) -> None:
    found = losses(case(seed, hints=False))
    assert min(found) >= 0
    assert max(found) < SMALL


@pytest.mark.parametrize(
    "seed", [0, 3, pytest.param(6, marks=pytest.mark.slow), pytest.param(9, marks=pytest.mark.slow)]
)
def test_ranges_are_those_over_rationals(seed: int) -> None:
    """Backward bounds of cells of either sign: each is the rational one, or a better one that was known before."""
    given = case(seed, hints=False)
    root = given.root()
    ranged = root.ranged(given.leaves)
    for i in root.tighten:
        exact, (low, high) = Exact(root, ranged, 2), ranged.ranges.ends(i)
        shape, scale = root.graph.nodes[i].shape, Fraction(2) ** -root.layers[i].frac_bits
        leaf = min(2, len(low) - 1)
        for cell in np.flatnonzero(ranged.ranges.needs_narrowing(i, low, high)[leaf]):
            row = np.zeros(root.layers[i].size, dtype=int)
            row[cell] = 1
            below, above = (exactly(exact.lower(rationals(sign * row.reshape(shape)), at=i)) for sign in (1, -1))
            assert int(low[leaf, cell]) * scale >= below - Fraction(SMALL)
            assert int(high[leaf, cell]) * scale <= -above + Fraction(SMALL)


def escapes(given: Case, runs: int, bounds: list[Fraction] | None = None) -> int:
    """Leaves on which some execution lies below the bound."""
    proven = given.bounds() if bounds is None else bounds
    return sum(least(given, n, runs)[0] < b for n, b in enumerate(proven))


@pytest.mark.parametrize("seed", range(4))
def test_no_execution_lies_below_a_bound(seed: int) -> None:
    assert escapes(case(seed), 2) == 0
    assert escapes(case(seed, hints=False, width=0.0), 2) == 0


WINDOWED = (*range(14), 34, 40)


def in_parts(seed: int) -> Case:
    """As many leaves as the first axis is long: exchanged with it they have the right shape."""
    graph = windowed(seed)
    parts = max(2, graph.nodes[graph.input_positions[0]].shape[0])
    return case(seed, width=2.0, of=lambda _: graph, parts=parts)


def test_windows_of_every_kind_are_hunted() -> None:
    graphs = [windowed(seed) for seed in WINDOWED]
    assert drawn_windows.kinds(graphs, ("max_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS
    assert drawn_windows.kinds(graphs, ("avg_pool",)) >= drawn_windows.KINDS | drawn_windows.RANKS | {"empty"}


def astray(seed: int) -> bool:
    """Whether an execution lies below a bound, or a bound is not that over rationals."""
    given = in_parts(seed)
    found = losses(replace(given, leaves=Leaves(given.leaves.low, given.leaves.high))) if seed % 4 == 2 else [0.0]
    return not (0 <= min(found) <= max(found) < SMALL) or escapes(given, 2) > 0


@pytest.mark.parametrize("seed", WINDOWED)
def test_no_execution_lies_below_a_bound_through_windows(seed: int) -> None:
    assert not astray(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_long_hunt(start: int) -> None:
    for seed in range(1000 + start, 1100 + start):
        assert escapes(case(seed, width=(0.0, 0.2, 2.0)[seed % 3]), 6) == 0, seed
        assert escapes(case(seed, width=(0.0, 0.2, 2.0)[seed % 3], of=windowed), 3) == 0, seed
        if seed % 10 == 0:
            assert not any(cut_escapes(seed, at) for at in (0.0, -0.25)), seed
            assert not any(cut_escapes(seed, at, of=curved) for at in KINKS_AND_BESIDE), seed


# --- cuts -------------------------------------------------------------------------------------------------------------


def cut(seed: int, at: float = 0.0, of: Callable[[int], sg.Graph] = network) -> tuple[Case, int, int, list[Fraction]]:
    """A case whose leaves are the sides of a cut of what bends; its node and cell, and both bounds."""
    given = case(seed, width=2.0, of=of)
    rng = np.random.default_rng(seed)
    root = given.root()
    z, most = root.tighten[-1], root.ranges[root.tighten[-1]]
    is_open = [
        c
        for c in range(root.layers[z].size)
        if most.ends[0].flat[c] < rational(*at.as_integer_ratio()) < most.ends[1].flat[c]
    ]
    cell = int(rng.choice(is_open)) if is_open else 0
    shape = given.graph.nodes[z].shape
    confined = tuple(np.full((2, *shape), v) for v in (-np.inf, np.inf))
    confined[1][0].flat[cell] = confined[0][1].flat[cell] = at
    pushed = tuple(np.zeros((2, 1, *shape), dtype=np.int64) for _ in range(2))
    pushed[1][0].flat[cell] = pushed[0][1].flat[cell] = rng.integers(0, 1 << 21)
    box = [np.stack([end] * 2) for end in (given.low, given.high)]
    leaves = Leaves(*box, {z: confined}, multipliers={z: pushed})  # type: ignore[arg-type, dict-item]
    given = replace(given, leaves=leaves, narrow=bool(seed % 3))
    return given, z, cell, given.bounds()


def cut_escapes(seed: int, at: float = 0.0, runs: int = 6, of: Callable[[int], sg.Graph] = network) -> int:
    """Executions below the bound of the side that they are on; near the cut, below those of both sides."""
    given, z, cell, bounds = cut(seed, at, of)
    escaped = 0
    for run in least(given, 0, runs, seed)[1]:
        (output,) = given.graph.output_positions
        sides = bounds
        if z in run.values and abs(run.values[z][0][cell] - at) > 1e-2:
            sides = [bounds[int(run.values[z][0][cell] > at)]]
        for y in run.values[output]:
            escaped += sum(int(r) * Fraction(v) for r, v in zip(given.row, y, strict=True)) < min(sides)
    return escaped


@pytest.mark.parametrize("at", [0.0, -0.25])
def test_no_execution_lies_below_the_bound_of_its_side(at: float) -> None:
    assert [seed for seed in range(4) if cut_escapes(seed, at)] == []


KINKS_AND_BESIDE = (0.0, -0.4000000059604645, 0.75, 3.0)


@pytest.mark.parametrize("at", KINKS_AND_BESIDE)
def test_no_execution_of_curves_lies_below_the_bound_of_its_side(at: float) -> None:
    """Cuts at the kinks of leaky_relu and abs, clamp, hardswish, and beside them."""
    assert [seed for seed in range(4) if cut_escapes(seed, at, of=curved)] == []


def test_cuts_of_the_other_side_show_in_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts_of_the_other_side(monkeypatch)
    assert any(cut_escapes(seed, 0.75, of=curved) for seed in range(24))


def test_cuts_help() -> None:
    """A side of a cut is bounded better than the whole."""
    better = 0
    for seed in range(1, 12, 2):
        given, _, _, _ = cut(seed)
        without = replace(given.leaves, multipliers={})
        sides = replace(given, leaves=without).bounds()
        (whole,) = set(replace(given, leaves=replace(without, confined={})).bounds())
        better += max(sides) > whole + Fraction(SMALL)
    assert better


def test_a_leaf_without_executions_is_empty() -> None:
    given = case(1, hints=False)
    root = given.root()
    z = root.tighten[0]
    far = np.full((4, *given.graph.nodes[z].shape), 1e6), np.full((4, *given.graph.nodes[z].shape), np.inf)
    found = root.margins(replace(given.leaves, confined={z: far}), [(given.row[None], (Fraction(10**9),))])
    assert found.empty.all()
    assert found.proven.all()


# --- weights, limits, refusals ----------------------------------------------------------------------------------------


def test_weights_and_limits() -> None:
    """Of two rows with weights, however large, the sum is bounded; limits are taken away exactly."""
    given = case(3, hints=False)
    root, rows = given.root(), np.array([[1, 2], [3, -1]])
    for scale in (1, 1 << 50):
        weights = np.array([[1, 2]] * 4) * scale
        found = root.margins(replace(given.leaves, weights={0: weights}), [(rows, (Fraction(1, 3), Fraction(5)))])
        plain = root.margins(given.leaves, [(np.array([[7, 0]]), (Fraction(0),))])
        for n in range(4):
            expected = (plain.fraction(n, 0) - Fraction(31, 3)) * scale
            assert 0 <= expected - found.fraction(n, 0) < scale * Fraction(1, 10**5)


def test_what_is_refused() -> None:
    given = case(1)
    root, alternative = given.root(), [(given.row[None], (Fraction(0),))]
    (z, pair), (relu, slopes) = next(iter(given.leaves.multipliers.items())), next(iter(given.leaves.slopes.items()))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"low": given.leaves.low - 1}, "must lie in the whole box"),
        ({"low": given.leaves.high, "high": given.leaves.low}, "the lower end first"),
        ({"low": given.leaves.low * np.float32("nan")}, "must lie in the whole box"),
        ({"low": given.leaves.low.astype(float)}, "must be float32"),
        ({"weights": {0: np.array([[0]] * 4)}}, "not all 0"),
        ({"weights": {0: np.array([[-1]] * 4)}}, "not negative"),
        ({"weights": {0: np.array([[1, 1]] * 4)}}, "a weight per row"),
        ({"slopes": {relu: slopes + 1025}}, "from 0 to 1024"),
        ({"slopes": {relu: slopes[:, :, :, 1:]}}, "from 0 to 1024, of"),
        ({"slopes": {999: slopes}}, "none that varies"),
        ({"multipliers": {z: (pair[0] - (1 << 20), pair[1])}}, "not negative"),
        ({"multipliers": {z: (pair[0].astype(float), pair[1])}}, "must be whole"),
        ({"confined": {z: (pair[0][:, 0] * np.nan, pair[1][:, 0])}}, "must be numbers"),
    ]
    for change, words in wrong:
        with pytest.raises(ReplayError, match=words):
            root.margins(replace(given.leaves, **change), alternative)
    with pytest.raises(ReplayError, match="2 numbers, one per output"):
        root.margins(given.leaves, [(np.array([[1, 0, 0]]), (Fraction(0),))])
    with pytest.raises(sg.UnsupportedError, match="a certificate has no rule for node"):
        Root(sg.trace(lambda x: sg.softplus(x), (2,)), np.zeros(2, np.float32), np.ones(2, np.float32))


def test_time_is_up() -> None:
    def over() -> None:
        raise TimeoutError

    given = case(1)
    root = given.root()
    root.on_step = over
    with pytest.raises(TimeoutError):
        root.margins(given.leaves, [(given.row[None], (Fraction(0),))])


# --- nothing overflows ------------------------------------------------------------------------------------------------


def weights(scale: float) -> tuple[Any, Any]:
    """Weights of every size."""
    w = np.float32([[scale, -1], [1, scale], [-scale, 1 / scale], [1, 1]])
    return w, np.float32([[1, -scale, 1, 1], [1 / scale, 1, 1, 0]])


def by_hand(scale: float, x: list[Fraction]) -> list[Fraction]:
    w, v = ([[Fraction(c) for c in row] for row in m.tolist()] for m in weights(scale))
    hidden = [max(Fraction(0), row[0] * x[0] + row[1] * x[1] + row[0]) for row in w]
    return [sum((a * b for a, b in zip(row, hidden, strict=True)), Fraction(0)) for row in v]


def huge(scale: float) -> sg.Graph:
    w, v = weights(scale)
    return sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, w[:, 0], x))), (1, 2))


@pytest.mark.parametrize("scale", [2.0**k for k in (-40, -13, 5, 14, 29, 45)])
def test_weights_of_any_size(scale: float) -> None:
    """Against exact values at the corners of the box, in Fractions."""
    graph, box = huge(scale), (np.float32([[-1, 0.5]]), np.float32([[1, 0.75]]))
    root = Root(graph, *box)
    row = np.array([[2, -3]])
    found = root.margins(Leaves(*(end[None] for end in box)), [(row, (Fraction(0),))])
    corners = [np.float32([[a, b]]) for a in (-1, -0.25, 1) for b in (0.5, 0.75)]
    values = [by_hand(scale, [Fraction(float(v)) for v in x.flat]) for x in corners]
    assert all(found.fraction(0, 0) <= 2 * a - 3 * b for a, b in values)
    assert found.fraction(0, 0) > -(10**4) * Fraction(max(scale, 1 / scale)) ** 2


def test_bounds_of_any_size() -> None:
    """Sums of numbers with any places, against Fractions: never above, and near where 60 bits are enough."""
    rng = np.random.default_rng(0)
    bound, exact = fixed.Bound(np.full(100, 40)), [Fraction(0)] * 100
    for _ in range(30):
        x = rng.integers(-(1 << 62), 1 << 62, 100) >> rng.integers(0, 62, 100)
        places = rng.integers(-60, 90, 100)
        bound.add(x, places)
        exact = [e + Fraction(int(v)) * Fraction(2) ** -int(p) for e, v, p in zip(exact, x, places, strict=True)]
    least = [int(n) * Fraction(2) ** -int(p) for n, p in zip(bound.numerators, bound.frac_bits, strict=True)]
    off = [(e - v) * Fraction(2) ** int(p) for e, v, p in zip(exact, least, bound.frac_bits, strict=True)]
    assert 0 <= min(off) < max(off) < 100


def test_products_stay_inside_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every product is done again over Python's integers."""
    seen = []

    def products(a: Any, x: Any) -> Any:
        whole = a.astype(object) @ x.astype(object) if x.ndim == 1 else (a.astype(object) * x.astype(object)).sum(1)
        seen.append(max(map(abs, np.ravel(whole)), default=0))
        return np.array(whole, dtype=object).astype(np.int64)

    monkeypatch.setattr(fixed, "products", products)
    monkeypatch.setattr(backward, "products", products)
    for scale in (2.0**-30, 1.0, 2.0**30):
        graph, box = huge(scale), (np.float32([[-1, 0.5]]), np.float32([[1, 0.75]]))
        Root(graph, *box).margins(Leaves(*(end[None] for end in box)), [(np.array([[2, -3]]), (Fraction(0),))])
    for seed in range(4):
        case(seed).bounds()
    assert 1 << 40 < max(seen) <= 1 << 62


BESIDE = np.float32([0, 0, 0, 0, -(2.0**80)])  # a cell that is huge and always off, or read by nobody


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("bend", ["relu", "max_pool"])
def test_a_huge_cell_leaves_its_neighbours_their_ranges(bend: str, fused: bool) -> None:
    """What a relu or max_pool reads has few places for its sake, and its own result many."""
    w, v = np.float32([[1], [-1], [2], [-2], [0]]), np.float32([[1, 1, 1, 1, 0]])
    pooled = lambda z: sg.max_pool(sg.reshape(z, (1, 5)), (2,), stride=(2,))
    bent = (lambda z: sg.relu(z)) if bend == "relu" else (lambda z: sg.reshape(pooled(z), (2,)))
    v = v if bend == "relu" else np.float32([[1, 1]])
    graph = sg.trace(lambda x: sg.relu(sg.linear(v, np.float32([-0.5]), bent(sg.linear(w, BESIDE, x)))), (1,))
    low, high = np.float32([-1]), np.float32([1])
    root = Root(graph, low, high, ExecutionModel(fused))
    leaves = Leaves(np.float32([[-1], [0], [0.5]]), np.float32([[0], [1], [0.75]]))
    ranges, z = root.ranged(leaves).ranges, graph.nodes[graph.output_positions[0]].operands()[0]
    ends = [e * 2.0 ** -root.layers[z].frac_bits for e in ranges.ends(z)]
    for n, xs in enumerate(([-1, -0.5, 0], [0, 0.5, 1], [0.5, 0.75])):  # z = 3*abs(x) - 1/2, by either bend
        assert all(ends[0][n % len(ends[0]), 0] <= 3 * abs(x) - 0.5 <= ends[1][n % len(ends[1]), 0] for x in xs)
    margins = root.margins(leaves, [(np.array([[-1]]), (Fraction(0),))])
    assert [margins.fraction(n, 0) <= -y for n, y in enumerate((2.5, 2.5, 1.75))] == [True] * 3


def test_the_limit_of_weights_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a column's sum is larger, products wrap around and bounds are nonsense."""
    monkeypatch.setattr(affine, "COLUMN_BITS", 45)
    wrong = 0
    for scale in (2.0**-13, 2.0**5, 2.0**14, 2.0**29):
        try:
            test_weights_of_any_size(scale)
        except AssertionError:
            wrong += 1
    assert wrong


# --- planted mistakes -------------------------------------------------------------------------------------------------


def few_digits(m: pytest.MonkeyPatch) -> None:
    for module in (fixed, batch):
        m.setattr(module, "COEFFICIENT_BITS", 5)


def few_places_of_weights(m: pytest.MonkeyPatch) -> None:
    m.setattr(affine, "COLUMN_BITS", 6)


def few_places_of_bounds(m: pytest.MonkeyPatch) -> None:
    m.setattr(batch, "GUARD_BITS", -28)


def few_places_of_ranges(m: pytest.MonkeyPatch) -> None:
    m.setattr(backward, "SUM_BITS", 7)


def few_places_of_slopes(m: pytest.MonkeyPatch) -> None:
    m.setattr(relu_max, "SLOPE_FRAC_BITS", 2)
    for module in (relu_max, batch):
        m.setattr(module, "ONE", 4)


def as_usual(m: pytest.MonkeyPatch) -> None:
    pass


COARSE = [few_digits, few_places_of_weights, few_places_of_bounds, few_places_of_ranges, few_places_of_slopes]
Change = Callable[[pytest.MonkeyPatch], None]


def points(given: Case, leaf: int, count: int = 12) -> list[tuple[list[np.ndarray], float]]:
    """Values of all nodes in float64, and of the objective, at points of a leaf."""
    rng, found = np.random.default_rng(leaf), []
    low, high = given.leaves.low[leaf], given.leaves.high[leaf]
    for _ in range(count):
        x = low + np.rint(rng.uniform(-0.5, 1.5, low.shape)).clip(0, 1) * (high - low).astype(float)
        values = values_of(given.graph, [x])
        found.append((values, float(given.row @ values[given.graph.output_positions[0]].ravel())))
    return found


def hunted(seeds: range = range(12)) -> Iterator[int]:
    """Exact values below bounds, of points and boxes, and of the sides of cuts, seed by seed."""
    for seed in seeds:
        given = case(seed, width=(0.0, 0.5, 2.0)[seed % 3], hints=bool(seed % 4 == 3))
        yield sum(y < b - 1e-9 for n, b in enumerate(given.bounds()) for _, y in points(given, n))
        given, z, cell, bounds = cut(seed)
        side = [(values[z].flat[cell], y) for values, y in points(given, 0, 30)]
        yield sum(y < bounds[int(v > 0)] - 1e-9 for v, y in side if abs(v) > 1e-3)


@pytest.mark.parametrize("most", [3, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize("few", [as_usual, *COARSE], ids=lambda f: f.__name__)
def test_whatever_is_shortened_is_charged(monkeypatch: pytest.MonkeyPatch, few: Change, most: int) -> None:
    few(monkeypatch)
    assert sum(hunted(range(most))) == 0


def no_charge(m: pytest.MonkeyPatch) -> None:
    original = fixed.sum_coefficients
    m.setattr(backward, "sum_coefficients", lambda parts, bound, size, places: original(parts, bound, size * 0, places))


def no_charge_of_weights(m: pytest.MonkeyPatch) -> None:
    original = affine.Affine._scale

    def wrong(self: Any, fixed: Any, sizes: Any) -> None:
        original(self, fixed, sizes)
        self.off = self.off * 0

    m.setattr(affine.Affine, "_scale", wrong)


def bounds_rounded_up(m: pytest.MonkeyPatch) -> None:
    m.setattr(fixed, "shift_left", lambda x, up: -shift_left(-x, up))


def ranges_rounded_inward(m: pytest.MonkeyPatch) -> None:
    m.setattr(backward, "ceil_scaled", lambda x, places: -fixed.ceil_scaled(-x, places))


def boxes_rounded_inward(m: pytest.MonkeyPatch) -> None:
    m.setattr(batch, "from_floats", lambda x, places, up: fixed.from_floats(x, places, not up))


def slopes_rounded_down(m: pytest.MonkeyPatch) -> None:
    original = relu_max.ReluLines.on

    def wrong(low: Any, high: Any) -> Any:
        lines = original(low, high)
        is_open = lines.foot < 0
        slope = high * relu_max.ONE // np.where(is_open, high - low, 1)
        return replace(lines, above=np.where(is_open, slope, lines.above))

    m.setattr(backward.ReluLines, "on", staticmethod(wrong))


def multipliers_of_the_other_side(m: pytest.MonkeyPatch) -> None:
    original = batch.Batch._subtract_cut_multipliers

    def wrong(self: Any, objective: Any, i: int, pair: Any) -> None:
        kept, self.ranges = self.ranges, backward.Ranges(self.layers)
        self.ranges.narrowed(i, *kept.ends(i)[::-1])
        original(self, objective, i, pair)
        self.ranges = kept

    m.setattr(batch.Batch, "_subtract_cut_multipliers", wrong)


def cuts_of_the_other_side(m: pytest.MonkeyPatch) -> None:
    original = batch.Batch.confine
    m.setattr(batch.Batch, "confine", lambda self, i, cuts: original(self, i, (-cuts[1], -cuts[0])))


def no_constant_of_max_pool(m: pytest.MonkeyPatch) -> None:
    original = backward.Ranges.max_pool

    def wrong(self: Any, i: int) -> Any:
        lines = original(self, i)
        return replace(lines, top=lines.top * 0)

    m.setattr(backward.Ranges, "max_pool", wrong)


def no_feet_of_max_pool(m: pytest.MonkeyPatch) -> None:
    """The line above begins at 0, and not at the lower end."""
    original = backward.Ranges.max_pool

    def wrong(self: Any, i: int) -> Any:
        lines = original(self, i)
        return replace(lines, feet=lines.feet * 0)

    m.setattr(backward.Ranges, "max_pool", wrong)


def no_constant_of_relu(m: pytest.MonkeyPatch) -> None:
    original = backward.ReluLines.on
    m.setattr(backward.ReluLines, "on", staticmethod(lambda low, high: replace(original(low, high), foot=low * 0)))


PLANTED: list[tuple[Change, Change]] = [
    (few_digits, no_charge),
    (few_places_of_weights, no_charge_of_weights),
    (few_places_of_bounds, bounds_rounded_up),
    (few_places_of_ranges, ranges_rounded_inward),
    (few_places_of_ranges, boxes_rounded_inward),
    (few_places_of_slopes, slopes_rounded_down),
    (as_usual, multipliers_of_the_other_side),
    (as_usual, cuts_of_the_other_side),
    (as_usual, no_constant_of_max_pool),
    (as_usual, no_feet_of_max_pool),
    (as_usual, no_constant_of_relu),
]


@pytest.mark.parametrize(("few", "plant"), PLANTED, ids=lambda f: f.__name__)
def test_planted_mistakes_are_caught(monkeypatch: pytest.MonkeyPatch, few: Change, plant: Change) -> None:
    few(monkeypatch)
    plant(monkeypatch)
    assert any(hunted())


# --- roundings of the deployed network --------------------------------------------------------------------------------


def absorbed(offset: float = 2.0**24) -> sg.Graph:
    """relu((x + offset) - offset) in one layer: near x = 3/4 float32 makes 0 of it."""
    return sg.trace(lambda x: sg.relu(sg.sub(sg.add(x, offset), offset)), (1,))


def absorbed_bounds() -> list[Fraction]:
    box = np.float32([0.75]), np.float32([0.875])
    found = []
    for fused in (False, True):
        root = Root(absorbed(), *box, ExecutionModel(fused=fused))
        found.append(
            root.margins(Leaves(*(end[None] for end in box)), [(np.array([[1]]), (Fraction(0),))]).fraction(0, 0)
        )
    return found


def test_rounding_is_counted() -> None:
    assert max(absorbed_bounds()) <= 0


@pytest.mark.parametrize("name", ["error", "deviation"])
def test_forgotten_rounding_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By node the layer's error is all there is; fused, its values lie apart from its reference."""
    original = backward.Layers._convert
    nothing = lambda here: {name: 0 * getattr(here, name)} | ({"low": here.low, "high": here.high})

    def wrong(self: Any, i: int) -> Any:
        here = original(self, i)
        return replace(here, **nothing(here))

    monkeypatch.setattr(backward.Layers, "_convert", wrong)
    monkeypatch.setattr(batch, "inputs_of_nonlinear", lambda graph: ())
    assert max(absorbed_bounds()) > 0


def test_dense_networks_have_matrices() -> None:
    """Matrix and row by row are one map."""
    graph = dense(0)
    root = Root(graph, np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32))
    i = next(i for i, n in enumerate(graph.nodes) if n.op.name == "contract")
    layer = root.layers[i].affine
    assert layer is not None
    a = np.random.default_rng(0).integers(-(1 << 26), 1 << 26, (5, root.layers[i].size))
    before = layer.back(a)
    affine_matrix, affine.MATRIX = affine.MATRIX, 0
    try:
        again = affine.Affine(
            layer.node, [root._argument(layer.node, g).low for g in layer.node.args], [0], [rationals(np.ones((1, 3)))]
        )
    finally:
        affine.MATRIX = affine_matrix
    assert (before[0] == again.back(a)[0]).all()


def differ(seed: int) -> bool:
    """Whether a product with a matrix of few numbers is another than the one over Python's integers."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 40, 2).tolist()
    matrix = rng.integers(-(2**30), 2**30, (rows, columns)) * (
        rng.random((rows, columns)) < rng.choice([0, 0.02, 0.06])
    )
    a = rng.integers(-(2**25), 2**25, (int(rng.integers(1, 4)), rows))
    expected = [[sum(int(v) * int(m) for v, m in zip(row, c, strict=True)) for c in matrix.T] for row in a]
    return bool(affine._multiply_by(matrix)(a).tolist() != expected)


def test_what_is_0_may_be_left_out_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(map(differ, range(200)))
    monkeypatch.setattr(affine.np, "nonzero", lambda m, whole=np.nonzero: whole(m > 0))  # negative weights are left out
    assert any(map(differ, range(200)))
