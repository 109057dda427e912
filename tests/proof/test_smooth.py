"""Smooth maxima in certificates: planes hold by mpmath, executions keep to bounds on boxes and leaves, and wrong rules
are caught."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import drawn_windows
import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")
mpmath = pytest.importorskip("mpmath")
pytest.importorskip("torch")

from claims import hunt_replay  # noqa: E402
from executor import Setting  # noqa: E402
from leaves import below, case, smoothed  # noqa: E402
from networks import Network, network  # noqa: E402
from specgrad.bounds import certify, prove  # noqa: E402
from specgrad.proof.api import check  # noqa: E402
from specgrad.proof.base.executions import executions  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rational, rationals, zeros  # noqa: E402
from specgrad.proof.exact import logsumexp_pool  # noqa: E402
from specgrad.proof.exact.replay import ExecutionModel, Replay, Slopes  # noqa: E402
from specgrad.proof.files.certificate import SCALE  # noqa: E402
from specgrad.rounding import Arithmetic, radius  # noqa: E402
from specgrad.window import Adaptive  # noqa: E402

DIGITS = 150  # of mpmath, which shares nothing with the balls of the checker
TINY = Fraction(1, 2**390)


def exact(x: Any) -> Fraction:
    return Fraction(int(x.p), int(x.q))


def number(x: Fraction) -> Any:
    return rational(x.numerator, x.denominator)


def by_definition(x: list[Fraction], padded: int, beta: Fraction) -> Fraction:
    """log(padded + sum exp(beta*x))/beta to DIGITS digits."""
    with mpmath.workdps(DIGITS):
        z = [mpmath.mpf((beta * v).numerator) / (beta * v).denominator for v in x] + [mpmath.mpf(0)] * padded
        top = max(z)
        y = (top + mpmath.log(mpmath.fsum(mpmath.exp(v - top) for v in z))) * beta.denominator / beta.numerator
        return Fraction(int(mpmath.nint(y * mpmath.mpf(2) ** 400)), 2**400)


# --- planes -----------------------------------------------------------------------------------------------------------


def drawn(rng: Random) -> tuple[list[Fraction], list[Fraction], int, Fraction]:
    """A box of some taps, huge, tiny or of one point; equal taps among them."""
    taps, size = rng.randint(1, 5), Fraction(rng.choice((1e-6, 0.01, 1.0, 3.0, 1000.0)))
    beta = Fraction(rng.choice((1.0, 0.1, 4.0, -1.0, -0.3, 50.0)))
    ends = [sorted(size * Fraction(rng.uniform(-1, 1)) for _ in range(2)) for _ in range(taps)]
    if rng.random() < 0.3:
        ends = [ends[0]] * taps
    if rng.random() < 0.2:
        ends[0] = [ends[0][0]] * 2
    return [e[0] for e in ends], [e[1] for e in ends], rng.choice((0, 0, 1, 3)), beta


def escapes(seed: int) -> list[str]:
    """Points of a random box where a plane, or an end, is on the wrong side."""
    rng = Random(f"planes/{seed}")
    low, high, padded, beta = drawn(rng)
    middle = [
        (a + b) / 2 if rng.random() < 0.7 else a + (b - a) * Fraction(rng.random())
        for a, b in zip(low, high, strict=True)
    ]
    both = logsumexp_pool.planes(*([number(v) for v in end] for end in (low, high, middle)), padded, number(beta))
    left = []
    for k in range(8):
        share = [rng.choice((0, 1)) if k % 2 else Fraction(rng.random()) for _ in low]
        x = [a + (b - a) * s for a, b, s in zip(low, high, share, strict=True)]
        y = by_definition(x, padded, beta)
        for slopes, height, sign in ((both.lower, both.floor, 1), (both.upper, both.roof, -1)):
            at = sum(
                (Fraction(s, logsumexp_pool.ONE) * (v - m) for s, v, m in zip(slopes, x, middle, strict=True)),
                exact(height),
            )
            left += [f"{seed}: plane {sign}"] * (sign * (y - at) < -TINY)
        left += [f"{seed}: ends"] * (not exact(both.least) - TINY <= y <= exact(both.most) + TINY)
    return left


def test_planes_hold() -> None:
    assert [text for seed in range(150) for text in escapes(seed)] == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 21000, 2000))
def test_many_planes_hold(start: int) -> None:
    assert [text for seed in range(start, start + 2000) for text in escapes(seed)] == []


def test_planes_touch() -> None:
    """Below at the middle, but for what rounded shares lose; above at a corner."""
    low, high, beta = [Fraction(-1), Fraction(0), Fraction(1, 2)], [Fraction(1), Fraction(1), Fraction(3)], Fraction(3)
    middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
    both = logsumexp_pool.planes(*([number(v) for v in end] for end in (low, high, middle)), 2, number(beta))
    assert 0 <= by_definition(middle, 2, beta) - exact(both.floor) < Fraction(1, 10**9)

    def above(x: list[Fraction]) -> Fraction:
        slopes = [Fraction(s, logsumexp_pool.ONE) for s in both.upper]
        return exact(both.roof) + sum(s * (v - m) for s, v, m in zip(slopes, x, middle, strict=True))

    assert min(above(x) - by_definition(x, 2, beta) for x in (low, high)) < Fraction(1, 10**5)


def test_windows_without_taps() -> None:
    nothing, zero = (
        logsumexp_pool.planes([], [], [], 0, rational(2)),
        logsumexp_pool.planes([], [], [], 4, rational(-2)),
    )
    assert nothing.floor == nothing.roof == nothing.least == nothing.most == 0
    assert zero.floor <= zero.roof < rational(-69, 100)  # -log(4)/2 = -0.693
    assert zero.roof - zero.floor < rational(1, 2**60)


def wrong_windows(seeds: range) -> list[int]:
    """Windows of every kind of which the checker reads other cells than the relation has."""
    wrong = []
    for seed in seeds:
        rng = Random(seed)
        lead, window = drawn_windows.under_axes(rng, empty=True)
        uneven = any(isinstance(a, Adaptive) for a in window.axes)
        params = {"window": window, "beta": 1.0, "padded": "ignore" if uneven else rng.choice(("zero", "ignore"))}
        graph = sg.trace(lambda x, p=params: sg.apply(sg.REGISTRY["smooth_max_pool"], x, **p), (*lead, *window.size))
        found = logsumexp_pool.Windows.of(graph.nodes[-1])
        for n, at in enumerate(np.ndindex(*lead, *window.out)):
            reads = [cell for _, cell in window.reads(at[len(lead) :])]
            inside = [cell for cell in reads if cell is not None]
            read = [np.ravel_multi_index((*at[: len(lead)], *cell), (*lead, *window.size)) for cell in inside]
            padded = len(reads) - len(inside) if params["padded"] == "zero" else 0
            if sorted(found.taps(n).tolist()) != sorted(read) or found.padded[n] != padded:
                wrong.append(seed)
                break
    return wrong


def test_windows_of_every_kind_are_read_as_the_relation_says() -> None:
    assert wrong_windows(range(60)) == []


# --- roundings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["nearest", "any"])
@pytest.mark.parametrize("padded", ["zero", "ignore"])
@pytest.mark.parametrize("beta", [1.0, -0.3, 40.0])
def test_errors_are_those_of_the_radius(beta: float, padded: Any, rounding: Any) -> None:
    """Of a point, where specgrad.rounding has a formula of its own in float64: no less, and hardly more."""
    rng = np.random.default_rng(int(abs(beta) * 10))
    x = (rng.normal(size=(1, 2, 6)) * rng.choice((1, 30), size=(1, 2, 1))).astype(np.float32)
    graph = sg.trace(lambda x: sg.smooth_max_pool(x, (3,), beta=beta, stride=1, padding=1, padded=padded), x.shape)
    arithmetic = Arithmetic(execution="node", rounding=rounding)
    meant = executions(arithmetic)
    replay = Replay(graph, x, x, {}, (), ExecutionModel.of("node", rounding, meant.functions))
    ball = dict(radius(graph, x, arithmetic=arithmetic, keep=True).nodes)[graph.nodes[-1].name]
    ratio = [float(exact(a)) / b for a, b in zip(replay.ranges[-1].error.flat, np.ravel(ball.radius), strict=True)]
    assert min(ratio) > 0.999
    assert max(ratio) < 1.001


def test_what_is_refused() -> None:
    x = np.zeros((1, 1, 4), np.float32)
    graph = sg.trace(lambda x: sg.smooth_max_pool(x, (2,), beta=1.0), x.shape)
    declared = {"exp": (Fraction(6), "y"), "log": (Fraction(5), "y")}
    for functions, said in (
        ({"exp": declared["exp"]}, "declares no error of log"),
        ({**declared, "log": (Fraction(5), "1")}, "error of log that is relative to its result"),
    ):
        with pytest.raises(ReplayError, match=said):
            Replay(graph, x, x, {}, (), ExecutionModel(functions=functions))
    with pytest.raises(ReplayError, match="may overflow in float32"):
        Replay(graph, x, x + np.float32(3e38), {}, (), ExecutionModel(functions=declared))
    given = Slopes(np.zeros((2, 1, 1, 2), np.int16), np.zeros((2, 1, 1, 2), np.int16), SCALE)
    with pytest.raises(ReplayError, match="its planes are the checker's own"):
        Replay(graph, x, x + 1, {1: given}, (), ExecutionModel(functions=declared)).lower(
            rationals(np.ones((1, 1, 2), int))
        )


# --- executions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_no_execution_lies_below_the_bound_of_a_leaf(seed: int) -> None:
    assert below(seed, 3, smoothed) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 1000, 100))
def test_long_hunt(start: int) -> None:
    for seed in range(2000 + start, 2100 + start):
        assert below(seed, 6, smoothed) == [], seed


def test_leaves_are_as_good_as_the_whole_box_over_rationals() -> None:
    """The same planes: bounds differ by what whole numbers round."""
    given = case(7, width=0.5, parts=2, hints=False, of=smoothed)
    row = rationals(given.row.reshape(1, 2))
    whole = Replay(given.graph, given.low, given.high, {}, given.root().tighten, given.model).lower(row)
    assert abs(float(given.bounds()[1]) - float(exact(whole))) < 1e-4 * (1 + abs(float(exact(whole))))


# --- planted mistakes -------------------------------------------------------------------------------------------------


def more_entropy(m: pytest.MonkeyPatch) -> None:
    """Shares that do not add up to 1."""
    right = logsumexp_pool._below

    def wrong(middle: Any, padded: int, beta: Any) -> Any:
        shares, height = right(middle, padded, beta)
        return tuple(s + logsumexp_pool.ONE // 64 for s in shares), height

    m.setattr(logsumexp_pool, "_below", wrong)


def entropy_of_other_taps(m: pytest.MonkeyPatch) -> None:
    """One padded tap more than there is."""
    right = logsumexp_pool._below
    m.setattr(logsumexp_pool, "_below", lambda middle, padded, beta: right(middle, padded + 1, beta))


def chords_of_each_tap(m: pytest.MonkeyPatch) -> None:
    """Slopes from the upper corner, for a plane through the lower one: where other taps are low, y rises faster."""
    right = logsumexp_pool._above

    def wrong(*given: Any) -> Any:
        (slopes, _), (_, height) = right(*given)
        (_, (lower, _)) = right(*given)
        less = sum(
            (
                rational(a - b, logsumexp_pool.ONE) * (p - q)
                for a, b, p, q in zip(lower, slopes, given[2], given[0], strict=True)
            ),
            rational(0),
        )
        return [(slopes, height - less)]

    m.setattr(logsumexp_pool, "_above", wrong)


def not_mirrored(m: pytest.MonkeyPatch) -> None:
    """Planes of -beta, for beta < 0."""
    right = logsumexp_pool.planes
    m.setattr(
        logsumexp_pool, "planes", lambda low, high, middle, padded, beta: right(low, high, middle, padded, abs(beta))
    )


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    more_entropy,
    entropy_of_other_taps,
    chords_of_each_tap,
    not_mirrored,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda f: f.__name__)
def test_wrong_planes_are_caught(monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    plant(monkeypatch)
    assert any(escapes(seed) for seed in range(60))


@pytest.mark.parametrize("plant", [more_entropy, chords_of_each_tap], ids=lambda f: f.__name__)
def test_wrong_planes_show_on_leaves(monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    plant(monkeypatch)
    assert any(below(seed, 6, smoothed) for seed in (4, 2, *range(40)))  # these show them


def no_error(*given: Any) -> Any:
    return zeros(given[0].shape)


def test_a_forgotten_error_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """By executions of random networks against a replay."""
    monkeypatch.setattr(logsumexp_pool, "_error", no_error)
    assert any(hunt_replay([(seed, network(seed, kind="smoothed"))], Setting(), 8).escapes for seed in range(40))


def test_forgotten_copies_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """y - y, where each y reads a copy of x + 2**20 - 2**20 that is rounded in its own way."""

    def net(x: Any) -> Any:
        v = sg.sub(sg.add(x, np.float32([2.0**20])), np.float32([2.0**20]))
        first, second = (sg.smooth_max_pool(v, (2,), beta=0.03125) for _ in range(2))
        return sg.sub(first, second)

    x = np.full((1, 1, 4), 0.06, np.float32)
    copied = [(seed, Network("copied", sg.trace(net, x.shape), (x,))) for seed in range(6)]
    assert not hunt_replay(copied, Setting(), 30).escapes
    monkeypatch.setattr(logsumexp_pool, "_per_window", no_error)
    assert hunt_replay(copied, Setting(), 30).escapes


# --- certificates -----------------------------------------------------------------------------------------------------


def question(graph: sg.Graph, eps: float) -> Any:
    x = np.random.default_rng(5).normal(size=graph.nodes[0].shape).astype(np.float32)
    return x, int(np.argmax(graph(x.astype(float)))), eps


def test_networks_have_certificates_with_cuts() -> None:
    graph = smoothed(1)
    asked = question(graph, 0.6)
    verdict = certify(graph, asked, seconds=1e9)
    assert verdict.verdict == "holds"
    found = check(prove(graph, asked, trees=verdict.trees, seconds=1e9), graph, asked)
    assert max(a.leaves for a in found.cases[0].alternatives) > 1
    assert found.margin > 0
    assert set(found.arithmetic.functions) == {"exp", "log"}
