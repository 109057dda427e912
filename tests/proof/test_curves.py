"""Lines of functions in a replay: they hold by mpmath, touch where they should, and a wrong rule is caught."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.properties.property import robustness

pytest.importorskip("flint")
pytest.importorskip("safetensors")
mpmath = pytest.importorskip("mpmath")
pytest.importorskip("torch")

from specgrad.bounds import certify, prove  # noqa: E402
from specgrad.bounds.search.certificates.find_slopes import certificate  # noqa: E402
from specgrad.bounds.search.certificates.find_slopes import prove as proofs  # noqa: E402
from specgrad.declared_errors import WORST_ULPS  # noqa: E402
from specgrad.proof.api import check  # noqa: E402
from specgrad.proof.base.executions import FUNCTIONS as FUNCTION_NAMES  # noqa: E402
from specgrad.proof.base.executions import MEASURED, ExecutionError, Executions, executions, optimistic  # noqa: E402
from specgrad.proof.base.rationals import ReplayError, rational  # noqa: E402
from specgrad.proof.exact import activations  # noqa: E402
from specgrad.proof.exact.replay import Slopes  # noqa: E402
from specgrad.proof.files.certificate import SCALE, Proof, encode  # noqa: E402
from specgrad.proof.files.certificate import check as check_bytes  # noqa: E402
from specgrad.rounding import Arithmetic  # noqa: E402

DIGITS = 150  # of mpmath, which shares nothing with the balls of the checker


def _mp(f: Callable[[Any], Any]) -> Callable[[Fraction], Fraction]:
    """To DIGITS digits, or to 2**-400 where the value is smaller than that."""

    def value(x: Fraction) -> Fraction:
        with mpmath.workdps(DIGITS):
            y = f(mpmath.mpf(x.numerator) / x.denominator)
            scaled = int(mpmath.nint(y * mpmath.mpf(2) ** 400))
        return Fraction(scaled, 2**400)

    return value


FUNCTIONS: dict[str, tuple[dict[str, Any], Callable[[Fraction], Fraction], int]] = {
    "exp": ({}, _mp(mpmath.exp), 80),
    "tanh": ({}, _mp(mpmath.tanh), 300),
    "sigmoid": ({}, _mp(lambda x: 1 / (1 + mpmath.exp(-x))), 300),
    "hardswish": ({}, lambda x: x * min(max(x + 3, Fraction(0)), Fraction(6)) / 6, 10**6),
    "leaky_relu": ({"slope": 0.01}, lambda x: x if x > 0 else x * Fraction(0.01), 10**6),
    "abs": ({}, abs, 10**6),
    "relu6": ({}, lambda x: min(max(x, Fraction(0)), Fraction(6)), 10**6),
    "clamp": ({"low": -0.7, "high": 1}, lambda x: min(max(x, Fraction(-0.7)), Fraction(1)), 10**6),
}


def fraction(x: Any) -> Fraction:
    return Fraction(int(x.p), int(x.q))


def intervals(rng: Random, largest: int) -> tuple[Fraction, Fraction]:
    """Huge, tiny, of one point, around 0, and as networks have them; with as many places as ranges have."""
    size = rng.choice((Fraction(1, 2**60), Fraction(1, 1000), Fraction(1), Fraction(3), Fraction(largest)))
    width = rng.choice((Fraction(0), Fraction(1, 2**62), Fraction(1, 1000), Fraction(1), size, 2 * size))
    low = Fraction(int(Fraction(rng.uniform(-1, 1)) * size * 2**64), 2**64)
    high = min(low + Fraction(int(Fraction(rng.random()) * width * 2**64), 2**64), Fraction(largest))
    return (low, high) if rng.random() < 0.9 else (min(low, -low), max(low, -low))


def escapes(name: str, seed: int, count: int) -> int:
    """How many lines, out of as many intervals, some point of the interval leaves; ranges and slopes too."""
    params, f, largest = FUNCTIONS[name]
    curve, rng, left = activations.CURVES[name](params), Random(f"{name}/{seed}"), 0
    for _ in range(count):
        low, high = intervals(rng, largest)
        ends = [rational(x.numerator, x.denominator) for x in (low, high)]
        k = rng.randint(-2000, 2000) if curve.is_piecewise_linear else rng.choice((-1, 0, SCALE, rng.randint(0, SCALE)))
        down, up = (
            tuple(map(fraction, activations.line(curve, *ends, k, SCALE, side))) for side in (-1, 1)
        )  # fmt: skip
        least, most = map(fraction, activations.image(curve, *ends))
        points = [low + (high - low) * Fraction(share) for share in (0, 1, 0.5, k / SCALE, rng.random(), rng.random())]
        points += [Fraction(b) for b in (0, -3, 3, 6, -0.7, 1)]
        inside = [x for x in points if low <= x <= high]
        values = [(x, f(x)) for x in inside]
        # the ends are rounded to 2**-64, and mpmath to 2**-400
        good = all(
            down[0] * x + down[1] <= y + Fraction(1, 2**390)
            and y <= up[0] * x + up[1] + Fraction(1, 2**390)
            and least <= y + Fraction(1, 2**390)
            and y <= most + Fraction(1, 2**390)
            for x, y in values
        )
        steep = fraction(activations.steepest(curve, *ends))
        for (x, fx), (y, fy) in itertools.pairwise(values):
            good &= abs(fx - fy) <= steep * abs(x - y) + Fraction(1, 2**390)
        left += not good
    return left


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_lines_and_ranges_hold(name: str) -> None:
    assert escapes(name, 0, 150) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_many_lines_and_ranges_hold(name: str) -> None:
    assert escapes(name, 1, 5000) == 0


def test_lines_touch() -> None:
    """The chord above exp at both ends, a tangent at its point, and above tanh from -1 a line that touches past 0."""
    exp, tanh = (activations.CURVES[name]({}) for name in ("exp", "tanh"))
    slope, above = activations.line(exp, rational(-1), rational(1), activations.CHORD, SCALE, 1)
    for x in (-1, 1):
        assert abs(float(fraction(slope * x + above)) - float(mpmath.exp(x))) < 1e-12
    slope, below = activations.line(exp, rational(-1), rational(1), SCALE // 2, SCALE, -1)
    assert abs(float(below) - 1) < 1e-12
    assert abs(float(slope) - 1) < 1e-12
    slope, above = activations.line(tanh, rational(-1), rational(3), int(0.4 * SCALE), SCALE, 1)
    t = -1 + 4 * int(0.4 * SCALE) / SCALE
    gaps = [float(slope) * x + float(above) - float(mpmath.tanh(x)) for x in np.linspace(-1, 3, 4001)]
    assert min(gaps) < 1e-6
    assert abs(float(slope) - (1 - float(mpmath.tanh(t)) ** 2)) < 1e-9


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_points_of_the_checkers_own_are_good(name: str) -> None:
    """At the middle hardly worse than the best of 60 points, and of the chord; nothing rests on it."""
    params, _, _ = FUNCTIONS[name]
    curve, rng = activations.CURVES[name](params), Random(name)
    lost = []
    for _ in range(30):
        low, high = sorted(rational(rng.randint(-400, 400), 100) for _ in range(2))
        middle, width = (
            (low + high) / 2,
            max(*activations.image(curve, low, high)) - min(*activations.image(curve, low, high)),
        )
        for side in (-1, 1):
            grid = range(-1024, 1025, 32) if curve.is_piecewise_linear else range(-1, SCALE + 1, 17)
            k = activations.default_point(curve, low, high, SCALE, side)
            own, *others = [activations.line(curve, low, high, n, SCALE, side) for n in (k, *grid)]
            heights = [side * (s * middle + c) for s, c in (own, *others)]
            lost.append(float((heights[0] - min(heights)) / (width + rational(1, 1000))))
    assert max(lost) < (0.5 if name in ("hardswish", "clamp", "relu6") else 0.02), max(lost)


def test_ranges_are_as_narrow_as_they_can_be() -> None:
    for name in ("exp", "tanh", "sigmoid"):
        curve, f = activations.CURVES[name]({}), FUNCTIONS[name][1]
        low, high = map(fraction, activations.image(curve, rational(-7, 3), rational(5, 4)))
        assert f(Fraction(-7, 3)) - low < Fraction(1, 2**63)
        assert high - f(Fraction(5, 4)) < Fraction(1, 2**63)


def test_far_arguments() -> None:
    """An exponent of 2**120 cannot be written out; 0 and 1 are the ends then, and exp is refused."""
    far = rational(1 << 120)
    low, high = activations.image(activations.CURVES["exp"]({}), -far, -far / 2)
    assert (low, high) == (0, rational(1, 1 << 64))
    low, high = activations.image(activations.CURVES["tanh"]({}), -far, far)
    assert -1 - rational(1, 1 << 63) <= low < -1 + rational(1, 1 << 63)
    assert 1 - rational(1, 1 << 63) < high <= 1 + rational(1, 1 << 63)
    with pytest.raises(ReplayError, match="a function may overflow"):
        activations.image(activations.CURVES["exp"]({}), far, far)


# --- planted mistakes -------------------------------------------------------------------------------------------------


def _with(name: str, **changes: Any) -> tuple[str, Any]:
    return name, lambda monkeypatch: monkeypatch.setitem(
        activations.CURVES, name, lambda p, right=activations.CURVES[name]: replace(right(p), **changes)
    )


def _wrong_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower ends rounded up."""
    right = activations._round_down
    monkeypatch.setattr(activations, "_round_down", lambda x: -right(-x))
    monkeypatch.setattr(activations, "outward", lambda x, direction: x)


def _flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tangents taken for level, though the slope that is asked for is another."""
    monkeypatch.setattr(activations, "_tangent_drop", lambda *given: rational(0))


WRONG: dict[str, tuple[str, Any]] = {
    "a tangent above a convex function": _with("exp", signs=(-1,)),
    "the bend ignored": _with("tanh", signs=(1,), breakpoints=()),
    "the bend ignored, the other way": _with("sigmoid", signs=(-1,), breakpoints=()),
    "a kink ignored": _with("abs", signs=(0,), breakpoints=()),
    "a kink at the wrong place": _with("hardswish", breakpoints=(rational(-3), rational(2))),
    "ends rounded inward": ("exp", _wrong_end),
    "tangents that are not": ("sigmoid", _flat),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_a_wrong_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, plant = WRONG[name]
    plant(monkeypatch)
    assert escapes(function, 2, 60) > 0
    monkeypatch.undo()
    assert escapes(function, 2, 60) == 0


# --- certificates -----------------------------------------------------------------------------------------------------


def network(name: str, seed: int = 0) -> sg.Graph:
    rng = np.random.default_rng(seed)
    f = {
        "leaky_relu": lambda x: sg.leaky_relu(x, 0.1),
        "clamp": lambda x: sg.clamp(x, -0.4, 0.75),
    }.get(name) or getattr(sg, name)
    w1, b1, w2, b2, w3 = (rng.normal(size=s).astype(np.float32) / 2 for s in ((6, 4), (6,), (5, 6), (5,), (3, 5)))
    return sg.trace(lambda x: sg.linear(w3, None, f(sg.linear(w2, b2, f(sg.linear(w1, b1, x))))), (1, 4))


def question(graph: sg.Graph, eps: float, seed: int = 0) -> tuple[np.ndarray, int, float]:
    x = np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)
    return x, int(np.argmax(graph(x.astype(float)))), eps


@pytest.mark.parametrize("execution", ["fused", "node"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_networks_have_certificates(name: str, execution: str) -> None:
    graph, arithmetic = network(name), Arithmetic(execution=execution)
    asked = question(graph, 0.01)
    found = check(prove(graph, asked, arithmetic=arithmetic), graph, asked)
    assert found.margin > 0
    measured = name in ("exp", "tanh", "sigmoid", "hardswish")
    assert (name in found.arithmetic.functions) == measured
    assert ("assumed, measured and not proven: a computed" in str(found)) == measured
    assert ("functions" in found.deployment) == measured


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "exp"])
def test_points_may_be_left_out(name: str) -> None:
    graph = network(name)
    x, label, _ = question(graph, 0.05)
    statement = robustness(x, label, Fraction(0.05), 3)
    (case,) = proofs(graph, statement, Arithmetic())
    bare = tuple((r, limits, Proof(p.weights, {}, p.tighten)) for r, limits, p in case.alternatives)
    with_points, without = (
        check_bytes(*encode(graph, [c], Arithmetic()), graph, statement).margin
        for c in (case, replace(case, alternatives=bare))
    )
    assert abs(with_points - without) < Fraction(2, 100) * with_points


def test_margins_are_near_those_of_float_bounds() -> None:
    """The replay's lines for crown's slopes are crown's, up to the shares that a certificate has."""
    for name in ("tanh", "sigmoid", "exp", "hardswish"):
        graph = network(name)
        asked = question(graph, 0.05)
        verdict = certify(graph, asked)
        margins = check(prove(graph, asked), graph, asked).margins
        for a, b in zip(margins[0], verdict.margins[0], strict=True):
            assert abs(float(a) - float(b)) < 0.02 * abs(float(b)), (name, float(a), float(b))


def test_what_does_not_hold_has_no_certificate() -> None:
    """Whatever the points are: forged ones are refused, or leave the alternative open."""
    forged(60)


@pytest.mark.slow
def test_many_forged_points() -> None:
    forged(3000)


def forged(count: int) -> None:
    """Boxes with a counterexample, not much larger than a box without; points at random, some out of range."""
    rng = np.random.default_rng(0)
    cases = []
    for name in ("tanh", "sigmoid", "exp", "abs", "hardswish"):
        tries = ((network(name, seed), 0.1 * 1.3**k) for seed in range(10) for k in range(10))
        graph, eps = next((g, e) for g, e in tries if is_broken(g, *question(g, e)))
        x, label, _ = question(graph, eps)
        statement = robustness(x, label, Fraction(eps), 3)
        cases.append((graph, statement, proofs(graph, statement, Arithmetic())[0]))
    refused = 0
    for k in range(count):
        graph, statement, case = cases[k % len(cases)]
        alternatives = []
        for rows, limits, proof in case.alternatives:
            slopes = {i: Slopes(*(_mutant(a, rng) for a in (s.lower, s.upper)), SCALE) for i, s in proof.slopes.items()}
            alternatives.append((rows, limits, Proof(proof.weights, slopes, proof.tighten)))
        text, packed = encode(graph, [replace(case, alternatives=tuple(alternatives))], Arithmetic())
        with pytest.raises(ReplayError, match=r"not excluded|must lie between") as error:
            check_bytes(text, packed, graph, statement)
        refused += "must lie between" in str(error.value)
    assert 0 < refused < count


def is_broken(graph: sg.Graph, x: np.ndarray, label: int, eps: float) -> bool:
    """Whether a corner of the box has another largest output, by far more than rounding."""
    for signs in itertools.product((-1, 1), repeat=4):
        y = np.ravel(graph(x.astype(float) + eps * np.array([signs])))
        if np.delete(y, label).max() > y[label] + 1e-3 * abs(y).max():
            return True
    return False


def _mutant(given: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A few cells changed, nearly always to what a certificate may have."""
    changed = rng.integers(-1, SCALE + 1, given.shape)
    if rng.random() < 0.02:
        changed.flat[0] = rng.choice((-2, -30000, SCALE + 1, 30000))
    return np.where(rng.random(given.shape) < rng.choice((0.05, 0.5, 1.0)), changed, given).astype(np.int16)


def test_assumptions_are_named_or_refused() -> None:
    graph = network("tanh")
    x, label, _ = question(graph, 0.01)
    statement = robustness(x, label, Fraction(0.01), 3)
    cases = proofs(graph, statement, Arithmetic())
    text, packed = encode(graph, cases)  # executions of which nothing is assumed
    with pytest.raises(ReplayError, match="the arithmetic declares no error of tanh"):
        check_bytes(text, packed, graph, statement)
    text, packed = certificate(graph, statement, Arithmetic(ulps={"tanh": 2.5}))
    with pytest.raises(
        ReplayError, match="tanh is declared off by at most 5/2 u of the result, and was measured with 11 u"
    ):
        check_bytes(text, packed, graph, statement)
    found = check_bytes(text, packed, graph, statement, assume=True)
    assert found.arithmetic.functions == {"tanh": (Fraction(5, 2), "y")}
    assert "tanh is off by at most 5/2 u of the result, u = 2**-24" in str(found)
    assert found.to_json()["arithmetic"]["functions"] == {"tanh": ["5/2", "y"]}
    assert found.margin > check_bytes(*certificate(graph, statement), graph, statement).margin


def test_measured_errors_are_those_of_rounding() -> None:
    """One table; and a certificate that declares less is a claim that nobody measured."""
    assert set(MEASURED) == set(FUNCTION_NAMES)
    for name, (units, kind) in MEASURED.items():
        given = WORST_ULPS[name] if isinstance(WORST_ULPS[name], tuple) else (WORST_ULPS[name], "y")
        assert (units, kind) == (Fraction(str(given[0])), given[1])
        assert optimistic(Executions(functions={name: (units, kind)})) == ""
        assert name in optimistic(Executions(functions={name: (units - Fraction(1, 100), kind)}))
        other = {"y": "1", "1": "y", "x": "y"}[kind]  # where nothing says which of the two is larger
        assert name in optimistic(Executions(functions={name: (units + 100, other)}))
    assert optimistic(Executions(functions={"tanh": (Fraction(11), "1+y")})) == ""
    assert "tanh" in optimistic(Executions(functions={"tanh": (Fraction(10), "1+y")}))


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        ({"tanh": ["0", "y"]}, "off by 1 unit or more"),
        ({"tanh": ["1/2", "y"]}, "off by 1 unit or more"),
        ({"tanh": ["4/2", "y"]}, "off by 1 unit or more"),
        ({"tanh": ["1e3", "y"]}, "off by 1 unit or more"),
        ({"tanh": ["2", "z"]}, "off by 1 unit or more"),
        ({"tanh": ["2"]}, "needs its units"),
        ({"tanh": [2, "y"]}, "needs its units"),
        ({"gelu": ["2", "y"]}, "go by name"),
        ([], "go by name"),
        ({}, "go by name"),
    ],
)
def test_assumptions_that_are_none(functions: Any, words: str) -> None:
    with pytest.raises(ExecutionError, match=words):
        executions({**Executions().to_json(), "functions": functions})


def test_a_function_that_may_overflow_is_refused() -> None:
    graph = sg.trace(lambda x: sg.exp(x), (1,))
    with pytest.raises(sg.SpecgradError, match="may overflow"):
        check_bytes(*_exp(graph, 90.0), graph)
    assert check_bytes(*_exp(graph, 80.0), graph).margin > 0


def _exp(graph: sg.Graph, x: float) -> tuple[bytes, bytes]:
    """A certificate of exp(x) > 1."""
    from specgrad.proof.files.certificate import CaseProof

    box = np.float32([x])
    slopes = {1: Slopes(np.int16([0]), np.int16([0]), SCALE)}
    rows = np.array([[1]], dtype=object)
    return encode(graph, [CaseProof(box, box, ((rows, (Fraction(1),), Proof((1,), slopes)),))], Arithmetic())
