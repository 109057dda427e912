"""The largest eps: two ends that close in on the exact one, each real, and never past each other."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest

import specgrad as sg
from pace import ENDS, slower, stretched
from slices import each
from specgrad.errors import ContradictionError

torch = pytest.importorskip("torch")
from specgrad.bounds import certify, largest_eps  # noqa: E402
from specgrad.bounds.search import eps_search as module  # noqa: E402


def classifier(seed: int) -> tuple[sg.Graph, np.ndarray, int, Fraction]:
    """A linear classifier, an input, its label, and the exact eps at which another output is as large."""
    rng = np.random.default_rng(seed)
    w = rng.integers(-6, 7, (3, 5)).astype(np.float32)
    x = (rng.integers(-16, 17, 5) / 16).astype(np.float32)
    y = [sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, x, strict=True)) for row in w]
    label = max(range(3), key=lambda k: y[k])
    ends = []
    for j in set(range(3)) - {label}:
        slope = sum(abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(w[label], w[j], strict=True))
        ends += [(y[label] - y[j]) / slope] if slope else []
    return sg.trace(lambda x: sg.linear(w, None, x), (5,)), x, label, min(ends)


@pytest.mark.parametrize("seed", each(3, 6))
def test_both_ends_meet_the_exact_eps_of_a_linear_classifier(seed: int) -> None:
    graph, x, label, exact = classifier(seed)
    answer = largest_eps(graph, x, label, seconds=ENDS)
    if exact == 0:  # a tie at x itself
        assert answer.kind == "violated"
        return
    assert exact * Fraction(98, 100) <= answer.proven < exact
    assert exact * Fraction(99999, 100000) <= answer.violated <= exact * Fraction(102, 100)
    assert answer.gap == answer.violated - answer.proven
    assert certify(graph, (x, label, answer.proven)).verdict == "holds"
    point = answer.counterexample
    assert max(abs(Fraction(float(a)) - Fraction(float(b))) for a, b in zip(point.x, x, strict=True)) == answer.violated
    assert int(np.argmax(np.delete(point.y, label))) >= 0
    assert np.delete(point.y, label).max() >= point.y[label]


@pytest.mark.parametrize("norm", ["1", "2"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_both_ends_meet_the_exact_eps_of_a_ball(seed: int, norm: str) -> None:
    """The distance to a plane a.x = 0 is gap / abs(a) in the dual norm: of 1 the largest abs(a_i), of 2 the root."""
    graph, x, label, _ = classifier(seed)
    w = graph.constants[next(iter(graph.constants))].astype(float)
    y = w @ x.astype(float)
    ends = []
    for j in set(range(3)) - {label}:
        a = w[label] - w[j]
        ends.append((y[label] - y[j]) / (np.abs(a).max() if norm == "1" else np.sqrt((a * a).sum())))
    exact = min(ends)
    answer = largest_eps(graph, x, label, norm=norm, seconds=ENDS)
    assert exact * 0.98 <= answer.proven < exact
    assert exact * 0.99999 <= answer.violated <= exact * 1.02
    away = np.array([float(p) for p in answer.counterexample.point]) - x
    size = np.abs(away).sum() if norm == "1" else np.sqrt((away * away).sum())
    assert abs(size - float(answer.violated)) < 1e-12


def test_limits_of_a_ball_that_holds_everything() -> None:
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, x), (2,))
    answer = largest_eps(graph, np.float32([1, 0.5]), 0, low=Fraction(1, 4), high=1, norm="1")
    assert (answer.violated, answer.reason) == (None, "that is every input between low and high")
    assert answer.proven >= Fraction(5, 4)  # the farthest corner is (1/4, 1)


def test_a_wrong_label_is_broken_at_zero() -> None:
    graph, x, label, _ = classifier(1)
    answer = largest_eps(graph, x, (label + 1) % 3)
    assert (answer.proven, answer.violated, answer.kind) == (None, 0, "violated")
    assert "the largest" in answer.reason


def test_limits_can_make_every_input_safe() -> None:
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, x), (2,))
    answer = largest_eps(graph, np.float32([1, 0.5]), 0, low=Fraction(1, 4), high=1)
    assert (answer.violated, answer.reason) == (None, "that is every input between low and high")
    assert answer.proven >= Fraction(3, 4)


def test_a_proven_end_with_a_certificate_is_checked() -> None:
    pytest.importorskip("flint")
    from specgrad.proof import ReplayError, check

    graph, x, label, exact = classifier(1)
    answer = largest_eps(graph, x, label, certificates=True)
    assert exact * Fraction(98, 100) <= answer.proven < exact
    assert check(answer.certificate, graph, (x, label, answer.proven)).margin > 0
    with pytest.raises(ReplayError, match="box does not hold"):
        check(answer.certificate, graph, (x, label, answer.violated))


def test_the_time_is_for_everything() -> None:
    rng = np.random.default_rng(0)
    w = [rng.normal(size=s).astype(np.float32) / 4 for s in ((40, 30), (40, 40), (40, 40), (10, 40))]

    def net(x):
        for layer in w[:-1]:
            x = sg.relu(sg.linear(layer, None, x))
        return sg.linear(w[-1], None, x)

    graph, x = sg.trace(net, (30,)), rng.normal(size=30).astype(np.float32)
    pace, start = slower(), time.monotonic()
    answer = largest_eps(graph, x, int(np.argmax(graph(x.astype(float)))), seconds=pace)
    assert time.monotonic() - start < stretched(30, pace)
    assert answer.proven is not None
    assert answer.violated is None or answer.proven < answer.violated


def test_ends_that_pass_each_other_are_an_error(monkeypatch) -> None:
    """A certify that proves what it has broken, planted either way round."""
    graph, x, label, exact = classifier(1)
    beyond = (x, label, exact * 2)
    broken, holds = certify(graph, beyond), certify(graph, (x, label, exact / 2))
    assert (broken.verdict, holds.verdict) == ("violated", "holds")
    for order in ([broken, holds], [holds, broken]):
        search = module._EpsSearch(graph, x, label, np.inf, False, None)
        search.options = {"low": None, "high": None, "norm": "inf", "arithmetic": None}
        verdicts = iter(order)
        monkeypatch.setattr(module, "certify", lambda *a, _next=verdicts, **k: next(_next))
        search._certify_at(exact * 4)
        with pytest.raises(ContradictionError, match=r"is proven, and there is a counterexample|, where .* is proven"):
            search._certify_at(exact * 4)


def test_first_must_be_positive() -> None:
    graph, x, label, _ = classifier(1)
    with pytest.raises(sg.ParameterError, match="first must be larger than 0"):
        largest_eps(graph, x, label, first=0)


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(123456789, 10**4), Fraction(1, 10**9 + 7), Fraction(5, 2)])
def test_what_is_shown_is_never_beyond_what_is_known(value: Fraction) -> None:
    assert Fraction(module.shown(value)) <= value <= Fraction(module.shown(value, up=True))
    assert Fraction(module._float_toward(value)) <= value <= Fraction(module._float_toward(value, up=True))
