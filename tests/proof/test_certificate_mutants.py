"""Mutants of certificates with digests that fit: refused in words, or true. Planted mistakes are seen."""

from __future__ import annotations

import resource
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

from certificate_mutants import MOST_SECONDS, hunt, subjects
from slices import slices
from specgrad.proof.base.rationals import larger, rational
from specgrad.proof.exact import replay
from specgrad.proof.exact.node_ranges import NodeRange
from specgrad.proof.files import certificate

MOST_MEMORY = 2 << 20  # KiB


known = subjects


def peak() -> int:
    """KiB; of the whole process, so only its growth says something of one test."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def harmless(seeds: range) -> None:
    before = peak()
    found = hunt(known(), seeds)
    assert not found.wrong, found.wrong[:5]
    assert found.ends["valid"] > len(seeds) // 20  # or nothing was tested but refusals
    assert found.ends["refused"] > len(seeds) // 4
    assert found.slowest < MOST_SECONDS
    assert peak() - before < MOST_MEMORY


@pytest.mark.parametrize("seeds", slices(120, 200))
def test_mutants_are_refused_or_true(seeds: range) -> None:
    harmless(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_mutants_are_refused_or_true(part: int) -> None:
    harmless(range(1000 + 5000 * part, 1000 + 5000 * (part + 1)))


# --- mistakes that the hunt sees --------------------------------------------------------------------------------------


def steep(node: Any, x: NodeRange, lower: Any, upper: Any) -> Any:
    """relu's lower slopes above 1 are accepted."""
    zero, one = rational(0), rational(1)
    on, off = x.low >= 0, x.high <= 0
    lower, upper = (np.where(on, one, np.where(off, zero, s)) for s in (lower, upper))
    return lower, (upper, np.where(on | off, zero, larger(-upper * x.low, x.high - upper * x.high)))


def flat(node: Any, x: NodeRange, lower: Any, upper: Any) -> Any:
    """relu's upper line passes through one end only."""
    lower, (upper, intercept) = RELU_LINES(node, x, lower, upper)
    return lower, (upper, np.where(intercept > 0, -upper * x.low, intercept))


RELU_LINES = replay.relu_lines


def seen(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, value: Any, end: str, first: int = 0) -> bool:
    """Whether the hunt meets a mutant that ends so, with a mistake planted.

    first   where the mistake is known to show not long after, so that what comes before is not hunted every day
    """
    known()
    monkeypatch.setattr(place, name, value)
    return any(end in found for found, _ in hunt(known(), range(first, 4000), until=end).wrong)


@pytest.mark.parametrize(("lines", "first"), [(steep, 180), (flat, 330)])
def test_wrong_lines_are_seen(monkeypatch: pytest.MonkeyPatch, lines: Any, first: int) -> None:
    assert seen(monkeypatch, replay, "relu_lines", lines, "false", first)


def test_negative_weights_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(monkeypatch, certificate, "bounded_int", lambda value, least, what: value, "false")


def test_numbers_that_are_not_bounded_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is read as it comes is no false statement, but an exception that is none of ours."""
    read = lambda text: Fraction(text) if "e9" not in str(text) else Fraction(0)
    assert seen(monkeypatch, certificate, "fraction", read, "Error", first=1130)
