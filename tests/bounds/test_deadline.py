"""A limit of time is kept, however many cases a property has, by a clock that every bound and attack moves on."""

from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specgrad as sg  # noqa: E402
from specgrad.bounds import certify  # noqa: E402
from specgrad.bounds.search import certify as certifying  # noqa: E402
from specgrad.properties.property import Alternative, Case, Property  # noqa: E402

BOUND = 3.0  # seconds of linear bounds; an attack takes one


class Clock:
    """Seconds that pass when somebody works, and how often which work began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.begun = 1000.0, Counter[str]()
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def timed(self, name: str, seconds: float, function: Any) -> Any:
        def work(*args: Any, **options: Any) -> Any:
            self.begun[name] += 1
            self.now += seconds
            return function(*args, **options)

        return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(monkeypatch)
    run = certifying._Certifier
    monkeypatch.setattr(run, "_forward_pass", made.timed("bounds", BOUND, run._forward_pass))
    monkeypatch.setattr(certifying, "attack", made.timed("attack", 1.0, certifying.attack))
    return made


def graph() -> sg.Graph:
    """abs(x)."""
    halves = lambda x: sg.relu(sg.linear(np.float32([[1], [-1]]), None, x))
    return sg.trace(lambda x: sg.linear(np.float32([[1, 1]]), None, halves(x)), (1,))


def above(*limits: Fraction | int | str, low: int = 1) -> Property:
    """abs(x) stays above every limit for x from low to 2: a case each."""
    regions = [Alternative(np.eye(1), (Fraction(limit),)) for limit in limits]
    return Property(1, 1, tuple(Case((Fraction(low),), (Fraction(2),), (region,)) for region in regions))


def test_no_case_is_begun_when_the_time_is_over(clock: Clock) -> None:
    verdict = certify(graph(), above(0, 0, 0, 0, 0), seconds=5 + 2.5 * BOUND)
    assert clock.begun == {"attack": 5, "bounds": 3}
    assert (verdict.verdict, verdict.reason) == ("unknown", "the time was over before case 4 of 5")
    assert [len(margins) for margins in verdict.margins] == [1, 1, 1, 0, 0]
    assert all(margin > 0 for case in verdict.margins for margin in case)
    assert verdict.trees == ((),) * 5


def test_time_enough_for_every_case_is_enough(clock: Clock) -> None:
    verdict = certify(graph(), above(0, 0, 0), seconds=3 + 3 * BOUND)
    assert (verdict.verdict, verdict.reason, clock.begun["bounds"]) == ("holds", "", 3)
    assert verdict.stages == {"attack": 3.0, "crown": 3 * BOUND, "pieces": 0.0, "branch": 0.0}


@pytest.mark.parametrize("cases", [1, 2, 1000])
def test_without_time_one_case_is_looked_at(cases: int, clock: Clock) -> None:
    verdict = certify(graph(), above(*[0] * cases), seconds=0)
    assert clock.begun == {"attack": 1, "bounds": 1}
    assert verdict.verdict == ("holds" if cases == 1 else "unknown")
    assert verdict.reason == ("" if cases == 1 else f"the time was over before case 2 of {cases:,}")
    assert (len(verdict.margins), len(verdict.trees)) == (cases, cases)


def test_attacks_keep_the_limit_too(clock: Clock) -> None:
    verdict = certify(graph(), above(*[0] * 100), seconds=7)
    assert clock.begun == {"attack": 7, "bounds": 1}
    assert verdict.reason == "the time was over before case 2 of 100"


def test_a_broken_case_is_found_behind_one_that_takes_all_the_time(clock: Clock) -> None:
    verdict = certify(graph(), above("-0.01", 3, low=-1), seconds=BOUND)
    assert verdict.verdict == "violated"
    assert clock.begun == {"attack": 2}


def test_nothing_begins_after_bounds_that_took_all_the_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """What linear bounds leave open is open: of what comes after them nothing is tried."""
    least = certifying._Certifier._margins
    monkeypatch.setattr(certifying._Certifier, "_margins", lambda *given: ([-1.0], least(*given)[1]))
    for name in ("_multi_neuron_margins", "_search_input_splits", "_search_neuron_splits"):
        monkeypatch.setattr(certifying._Certifier, name, None)
    verdict = certify(graph(), above(0, 0), seconds=2 + BOUND / 2)
    assert clock.begun == {"attack": 2, "bounds": 1}
    first = "the time was over before any subproblem was bounded"
    assert (verdict.verdict, verdict.reason) == ("unknown", f"{first}; the time was over before case 2 of 2")
