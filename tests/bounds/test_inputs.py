"""Input splits: no execution leaves a bound of its part of the box, parts cover it, verdicts are those of a grid."""

from __future__ import annotations

import itertools
import time
from fractions import Fraction
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from executor import Setting, execute  # noqa: E402
from program import Program  # noqa: E402
from slices import each  # noqa: E402
from specgrad.bounds import certify  # noqa: E402
from specgrad.bounds.linear.propagation.backward import State  # noqa: E402
from specgrad.bounds.search.certify import _Certifier, target  # noqa: E402
from specgrad.bounds.search.input_split import search  # noqa: E402
from specgrad.bounds.search.input_split.search import Boxes, OpenBoxes, split_inputs  # noqa: E402
from specgrad.bounds.search.network.pgd_attack import DeployedNetwork  # noqa: E402
from specgrad.bounds.search.neuron_split.subproblems import root_forward  # noqa: E402
from specgrad.proof.base.deployed_graph import deployed_graph  # noqa: E402
from specgrad.properties.property import Alternative, Case, Property  # noqa: E402


def network(seed: int) -> Any:
    """Four inputs, three outputs: convolution, maximum, leaky and plain relus, a tanh now and then, a skip."""
    rng = np.random.default_rng(seed)
    w = [rng.normal(size=s).astype(np.float32) for s in ((4, 1, 2, 2), (6, 4), (3, 6), (3, 4))]
    bend = (sg.relu, sg.tanh, lambda x: sg.leaky_relu(x, 0.1), sg.relu)[seed % 4]
    pooled = seed % 3 == 0

    def function(x):
        y = (
            sg.conv(w[0], None, sg.reshape(x, (1, 1, 2, 2)), padding=(0, 1))
            if pooled
            else sg.conv(w[0], None, sg.reshape(x, (1, 1, 2, 2)))
        )
        y = sg.max_pool(sg.relu(y), (1, 3)) if pooled else sg.relu(y)
        y = bend(sg.linear(w[1], None, sg.reshape(y, (1, 4))))
        return sg.linear(w[2], None, y) + sg.linear(w[3], None, sg.reshape(x, (1, 4)))

    return deployed_graph(sg.trace(function, (4,)))


def case_of(rng: Any, rows: Any, limits: Any, several: bool) -> Case:
    ends = np.sort(rng.uniform(-1, 1, (2, 4)).astype(np.float32), 0)
    low, high = (tuple(Fraction(float(v)) for v in end) for end in ends)
    limits = tuple(Fraction(float(v)) for v in limits)
    if several:
        return Case(low, high, (Alternative(rows, limits),))
    return Case(low, high, tuple(Alternative(r[None], (v,)) for r, v in zip(rows, limits, strict=True)))


def boxes_of(graph: Any, case: Case) -> Boxes:
    low, high = case.outer()
    root = root_forward(graph, low, high)
    rows = torch.from_numpy(np.concatenate([a.rows for a in case.alternatives]))
    targets = torch.tensor([target(v) for a in case.alternatives for v in a.limits], dtype=torch.float64)
    return Boxes(root, rows, targets, [k for k, a in enumerate(case.alternatives) for _ in a.limits])


def parts_of(rng: Any, case: Case, count: int = 24) -> tuple[Any, Any]:
    """Boxes inside the case's box, wide and narrow; one of them is a point."""
    low, high = (np.ravel(end) for end in case.outer())
    a, b = (low + (high - low) * rng.random((count, 4)) ** k for k in (1, 1))
    b = a + (b - a) * rng.choice([1, 0.1, 1e-4], (count, 1))
    ends = np.sort(np.stack([a, b]).astype(np.float32).astype(float), 0)
    ends[1, 0] = ends[0, 0]
    return torch.from_numpy(ends[0]), torch.from_numpy(ends[1])


def escapes(seed: int, runs: int = 1, points: int = 6) -> list[str]:
    """Float32 executions, and exact values but for 1e-12, that leave a bound of a box, or are in what is excluded.

    runs     executions by trees of their own choice (tests/hunt), in every twelfth box
    points   of every box, beside two corners
    """
    rng = np.random.default_rng(seed)
    graph = network(seed)
    rows = rng.integers(-2, 3, (3, 3)).astype(float)
    case = case_of(rng, rows, rng.normal(size=3), several=seed % 2 == 0)
    boxes, deployed = boxes_of(graph, case), DeployedNetwork(graph)
    low, high = parts_of(rng, case)
    best, margins, _, alive, known, _ = boxes.excluded(low, high)
    found = broken(seed, boxes, deployed, (low, high), best, margins, alive, runs, points)
    kept = search.IntervalCache(boxes.whole())
    slots, ends = (
        kept.store(*known),
        torch.sort(low + (high - low) * torch.from_numpy(rng.random((2, *low.shape))), 0)[0],
    )
    parts = torch.maximum(ends[0].float().double(), low), torch.minimum(ends[1].float().double(), high)
    best, margins, _, alive, *_ = boxes.excluded(*parts, kept.read(slots))  # halves know what the whole knew
    return found + broken(seed, boxes, deployed, parts, best, margins, alive, runs, points)


def broken(
    seed: int, boxes: Boxes, deployed: Any, ends: Any, best: Any, margins: Any, alive: Any, runs: int, count: int
) -> list[str]:
    """What points and corners of boxes say against their bounds."""
    (low, high), graph, found = ends, deployed.graph, []
    program, rng = Program(graph), Random(seed)
    for k in range(len(low)):
        points = (
            low[k] + (high[k] - low[k]) * torch.rand((count, 4), generator=torch.Generator().manual_seed(seed))
        ).float()
        points = torch.cat([points, low[k : k + 1].float(), high[k : k + 1].float()])
        points = torch.minimum(torch.maximum(points, low[k].float()), high[k].float())
        if not alive[k]:
            found.append(f"box {k} holds executions")
        for n, x in enumerate(points.numpy()[::-1]):
            values_of = [(deployed.run(x).astype(float), 0.0), (np.ravel(graph(x.astype(float))), 1e-12)]
            if n < runs and k % 12 == 0:  # a tenth of a second each
                versions = execute(program, [x], Setting(), rng).values[graph.output_positions[0]]
                values_of += [(np.array(y), 0.0) for y in versions]
            for y, own in values_of:
                values = boxes.rows.numpy() @ y - boxes.targets.numpy()
                if (values + own < margins[k].numpy()).any():
                    found.append(f"box {k}: a row at {values}, bound {margins[k]}")
                for j in range(boxes.count):
                    if best[k, j] > 0 and (values[boxes.owner.numpy() == j] + own <= 0).all():
                        found.append(f"box {k}: alternative {j} happens")
    return found


@pytest.mark.parametrize("seed", each(3, 24))
def test_no_execution_leaves_its_box(seed: int) -> None:
    assert escapes(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1100, 50))
def test_no_execution_leaves_its_box_at_length(start: int) -> None:
    """With more executions by trees of their own choice."""
    assert [e for seed in range(start, start + 50) for e in escapes(seed, runs=4, points=24)] == []


def _half(state: Any, ends: Any, slopes: Any = None) -> Any:
    """The mistake: the upper half of every box is forgotten."""
    halved = {i: (low, (low + high) / 2) for i, (low, high) in ends.items()}
    return ON(state, halved, slopes)


ON = State.with_intervals


def test_a_forgotten_half_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "with_intervals", _half)
    assert any(escapes(seed) for seed in range(4))


def test_weights_that_are_not_proven_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: what the lines promise is taken for a bound, with a little on top."""
    weighted = Boxes._weighted_margins
    monkeypatch.setattr(Boxes, "_weighted_margins", lambda self, *args: weighted(self, *args) + 1.0)
    assert any(escapes(seed) for seed in range(0, 12, 2))


def test_what_is_known_of_another_box_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take = search.IntervalCache.read
    monkeypatch.setattr(search.IntervalCache, "read", lambda self, slots: take(self, slots.roll(1)))
    assert any(escapes(seed) for seed in range(4))


def test_what_is_kept_loses_nothing() -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 40)) * 10.0 ** np.arange(-20, 20))
    kept = search.IntervalCache((values[:1] - 1, values[:1] + 1))
    for _ in range(3):
        slots = kept.store(values, values)
        (low, high), _ = kept.read(slots), kept.read(slots)
        assert bool((low <= values).all())
        assert bool((high >= values).all())
        assert bool(((high - low) <= 2.0**-22 * values.abs()).all())
    assert len(kept.low) == 64  # a slot is free when both have taken it
    full = search.IntervalCache((values[:1] - 1, values[:1] + 1), most=1)
    low, high = full.read(full.store(values[1:], values[1:]))
    assert torch.equal(low, full.low[:1].double().expand(49, -1))  # no room: what the whole box knows


# --- parts ------------------------------------------------------------------------------------------------------------


def test_both_parts_hold_every_float32_number() -> None:
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.integers(-44, 30, (1, 200, 3))
    ends = np.sort((rng.normal(size=(2, 200, 3)) * scale).astype(np.float32), 0)
    ends[1, :50, :] = np.nextafter(ends[0, :50, :], np.float32(np.inf))  # two numbers each
    ends[1, 50:100, :2] = ends[0, 50:100, :2]
    low, high = (torch.from_numpy(e.astype(float)) for e in ends)
    slopes = torch.from_numpy(rng.normal(size=(200, 1, 3)))
    margins = torch.zeros(200, 1, dtype=torch.float64)
    batch = OpenBoxes(low, high, margins, margins, slopes, torch.tensor([0]), torch.zeros_like(slopes))
    lows, highs, *_ = batch.cut()
    for k in range(200):
        a, b = ((lows[i][k].numpy(), highs[i][k].numpy()) for i in (0, 1))
        (axis,) = np.flatnonzero((a[1] != b[1]) | (a[0] != b[0]))[:1]
        assert (a[0][axis], b[1][axis]) == (low[k][axis], high[k][axis])
        assert np.float32(b[0][axis]) == np.nextafter(np.float32(a[1][axis]), np.float32(np.inf))
        assert a[0][axis] <= a[1][axis] < b[0][axis] <= b[1][axis]
        others = np.arange(3) != axis
        assert (a[0][others] == b[0][others]).all()
        assert (a[1][others] == b[1][others]).all()


def test_one_input_alone_is_not_cut() -> None:
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    high = torch.tensor([[1.0, 1.0], [1.0, 1.5]], dtype=torch.float64)
    slopes = torch.ones(2, 1, 2).double()
    rows = torch.zeros(2, 1), torch.zeros(2, 1).double(), slopes, torch.tensor([0]), 0 * slopes
    batch = OpenBoxes(x, high, *rows)
    assert batch.is_one_input().tolist() == [True, False]
    assert batch.chosen(~batch.is_one_input()).cut()[3].tolist() == [[1.25]]
    with pytest.raises(AssertionError, match="not cut"):
        batch.cut()


def test_what_lines_lose_is_laid_on_the_inputs_that_make_a_cell_wide() -> None:
    """relu(x_0) + x_1/10 on [-1.1, 1] x [-1, 1]: the lower line is flat, and half the chord's height lies above it."""
    w, v = np.float32([[1, 0], [0, 1]]), np.float32([[1, 0.1]])
    graph = sg.trace(lambda x: sg.linear(v, None, sg.relu(sg.linear(w, np.float32([0, 5]), x))), (2,))
    low, high = (np.float32(end).astype(float) for end in ([-1.1, -1], [1, 1]))
    ends = (tuple(map(Fraction, end)) for end in (low, high))
    boxes = boxes_of(graph, Case(*ends, (Alternative(np.eye(1), (Fraction(9),)),)))
    given = torch.from_numpy(low)[None], torch.from_numpy(high)[None]
    best, margins, a, _, _, losses = boxes.excluded(*given)
    assert a[0, 0].tolist() == [0.0, pytest.approx(0.1)]
    assert losses[0, 0].tolist() == [pytest.approx(0.5, rel=1e-4), 0.0]
    assert OpenBoxes(*given, best, margins, a, boxes.owner, losses).cut()[2].tolist() == [[0]]
    assert OpenBoxes(*given, best, margins, a, boxes.owner, 0 * losses).cut()[2].tolist() == [[1]]


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", each(2, 8))
def test_verdicts_are_those_of_a_grid(seed: int) -> None:
    """A limit far below the least value of a grid is excluded; one above it has a counterexample."""
    rng = np.random.default_rng(seed)
    graph = network(seed)
    row = rng.integers(-2, 3, (1, 3)).astype(float)
    row[0, 0] = 1.0
    case = case_of(rng, row, [0.0], several=False)
    low, high = (np.ravel(end) for end in case.outer())
    grid = [low + (high - low) * np.array(s) for s in itertools.product(np.linspace(0, 1, 5), repeat=4)]
    values = [float(row[0] @ np.ravel(graph(x.astype(np.float32).astype(float)))) for x in grid]
    least, spread = min(values), max(values) - min(values) + 1e-3
    for limit, verdict in ((least - 0.35 * spread, "holds"), (least + 0.01 * spread, "violated")):
        asked = Property(4, 3, (Case(case.low, case.high, (Alternative(row, (Fraction(limit),)),)),))
        assert certify(graph, asked, seconds=60).verdict == verdict


def test_what_is_open_says_how_much_it_lacks() -> None:
    """x*x - x*x >= 0 is true, and no bound reaches 0: rounding decides."""
    graph = sg.trace(lambda x: sg.sum(sg.relu(x) - sg.relu(x) * np.float32(1)) * np.float32([1.0]), (2,))
    asked = Property(2, 1, (Case((Fraction(0),) * 2, (Fraction(1),) * 2, (Alternative(np.eye(1), (Fraction(0),)),)),))
    verdict = certify(graph, asked, seconds=3)
    assert verdict.verdict in ("unknown", "violated")


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("bound", [-np.inf, np.nan])
def test_bounds_that_say_nothing_settle_nothing(bound: float, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinities and what they make of weights must not count as margins."""
    original = search.backward
    monkeypatch.setattr(search, "backward", lambda *args: original(*args) * 0 + bound)
    graph = network(1)
    case = case_of(np.random.default_rng(1), np.eye(3), [-99.0] * 3, several)
    outcome = split_inputs(DeployedNetwork(graph), case, boxes_of(graph, case), time.monotonic() + 0.3)
    assert (outcome.settled, outcome.counterexample) == (False, None)


def test_a_search_is_bounded_by_its_deadline() -> None:
    graph = network(1)
    case = case_of(np.random.default_rng(1), np.eye(3), [9.0, 9.0, 9.0], several=True)
    boxes = boxes_of(graph, case)
    assert split_inputs(DeployedNetwork(graph), case, boxes, deadline=0.0).problems == 0
    assert search.BATCH >= boxes.batch >= 1


@pytest.mark.parametrize("work", [0, 1 << 33])
def test_a_search_whose_deadline_does_not_strike_is_the_same_on_a_slow_machine(
    work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock on which every look takes a quarter of a second, and one on which it takes a minute."""
    monkeypatch.setattr(search, "WORK", work)
    found = []
    for seconds in (0.25, 60.0):
        graph = network(1)
        case = case_of(np.random.default_rng(1), np.eye(3)[:1], [-1.0], several=False)
        ticks = itertools.count(0.0, seconds)
        monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda ticks=ticks: next(ticks)))
        boxes = boxes_of(graph, case)
        outcome = split_inputs(DeployedNetwork(graph), case, boxes, 1e9)
        found.append((outcome.settled, outcome.problems, outcome.tree.cuts))
    assert boxes.batch == 1 if not work else boxes.batch > 1
    assert found[0] == found[1]
    assert found[0][1] > 1


# --- boxes that begin anew --------------------------------------------------------------------------------------------


def outside(seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int, int]:
    """The verdict of a search that begins anew every three cuts; how often, and boxes bounded by a root beside them."""
    monkeypatch.setattr(search, "DEEP", 3)
    monkeypatch.setattr(search, "NEAR", 2)
    graph, rng = network(seed), np.random.default_rng(seed)
    rows = np.eye(3)[:2]
    case = case_of(rng, rows, [-1e9, -1e9], several=False)
    low, high = case.outer()
    shares = [np.array(s) for s in itertools.product((0, 0.25, 0.5, 0.75, 1), repeat=4)]
    seen = np.array([np.ravel(graph(low + (high - low) * s)) for s in shares])[:, :2]
    limits = tuple(Fraction(float(v)) for v in seen.min(0) - 0.05 * (seen.max(0) - seen.min(0)))
    alternatives = tuple(Alternative(r[None], (v,)) for r, v in zip(rows, limits, strict=True))
    roots, beside, bounds = [0], [0], Boxes.bounds

    def watched(self: Any, low: Any, high: Any, kept: Any = None) -> Any:
        least, most = (e.flatten() for e in self.root.state.intervals[self.input])
        beside[0] += int(((low < least) | (high > most)).any(1).sum())
        return bounds(self, low, high, kept)

    init = Boxes.__init__
    monkeypatch.setattr(Boxes, "bounds", watched)
    monkeypatch.setattr(
        Boxes, "__init__", lambda self, *args: (roots.__setitem__(0, roots[0] + 1), init(self, *args))[1]
    )
    verdict = certify(graph, Property(4, 3, (Case(case.low, case.high, alternatives),)), seconds=20)
    return verdict.verdict, roots[0], beside[0]


@pytest.mark.parametrize("seed", each(1, 8))
def test_every_box_lies_in_the_one_that_its_roundings_are_of(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict, roots, beside = outside(seed, monkeypatch)
    assert (verdict in ("holds", "unknown"), beside) == (True, 0)
    assert seed or roots > 8  # some searches begin anew


def test_a_box_beside_its_root_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake: searches begin anew on half of what is left."""
    original = _Certifier._forward_pass

    def half(self: Any, case: Case, low: Any, high: Any) -> Any:
        whole = all(np.array_equal(a, b) for a, b in zip((low, high), case.outer(), strict=True))
        return original(self, case, low, high if whole else (low + high) / 2)

    monkeypatch.setattr(_Certifier, "_forward_pass", half)
    assert outside(0, monkeypatch)[2] > 0
