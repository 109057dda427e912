"""An index that moves axes, put back in one place, is caught by the hunters of that place.

NumPy sets the axes of index arrays in front where an integer and an ellipsis stand before them. Where channels are as
many as cells the shapes still fit, and nothing else notices.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import specgrad as sg

pytest.importorskip("flint")
pytest.importorskip("safetensors")
pytest.importorskip("torch")

import leaves
import test_batch
import test_chosen_orders
import test_forged_windows
import test_proven_windows
import test_smooth
from specgrad.proof.base.rationals import ReplayError
from specgrad.proof.files.certificate import check, encode
from specgrad.window import Tap, adaptive

WRITE, READ = Tap.write_outputs, Tap.read_outputs
Plant = Callable[..., None]


def is_uneven(tap: Tap) -> bool:
    try:
        tap.slices()
    except sg.SpecgradError:
        return True
    return False


def written_with_moved_axes(tap: Tap, y: Any, value: Any) -> None:
    """y[(t, ..., *positions)] = value: the value fills an array whose last axes stand in front."""
    rank = len(tap.position)
    here = np.moveaxis(READ(tap, y), range(-rank, 0), range(rank))
    WRITE(tap, y, np.moveaxis(np.broadcast_to(value, here.shape), range(rank), range(-rank, 0)))


def read_with_moved_axes(tap: Tap, y: Any) -> Any:
    """y[(t, ..., *positions)] read: the last axes stand in front."""
    rank = len(tap.position)
    return np.moveaxis(READ(tap, y), range(-rank, 0), range(rank))


def plant(monkeypatch: pytest.MonkeyPatch, module: str, function: str, method: str) -> None:
    """In one function of one module; elsewhere taps are right."""
    wrong, right = {
        "write_outputs": (written_with_moved_axes, WRITE),
        "read_outputs": (read_with_moved_axes, READ),
    }[method]

    def planted(tap: Tap, *args: Any) -> Any:
        caller = sys._getframe(1)
        here = caller.f_globals["__name__"] == module and caller.f_code.co_name == function
        return (wrong if here and is_uneven(tap) else right)(tap, *args)

    monkeypatch.setattr(Tap, method, planted)


def quietly(hunted: Callable[[int], Any]) -> Callable[[int], bool]:
    """Whether a hunt finds a mistake in a case; an error about shapes does not count."""

    def caught(seed: int) -> bool:
        try:
            return bool(hunted(seed))
        except ValueError:
            return False

    return caught


def forged(seed: int) -> bool:
    graph, case = (test_forged_windows.whole_box, test_forged_windows.in_a_tree)[seed % 2](2)
    try:
        check(*encode(graph, [case]), graph)
    except ReplayError:
        return False
    return True


HUNTS: dict[str, tuple[tuple[str, str, str], Callable[[int], Any]]] = {
    "cells of the proven checker": (
        ("specgrad.proof.extracted.scalar_network", "_number_windows", "write_outputs"),
        lambda seed: test_proven_windows.differences(leaves.windowed(seed), seed),
    ),
    "ranges of leaves": (
        ("specgrad.proof.batched.relu_max", "read", "write_outputs"),
        lambda seed: seed in test_batch.WINDOWED and test_batch.astray(seed),
    ),
    "a forged tree": (("specgrad.proof.batched.relu_max", "read", "write_outputs"), forged),
    "smooth maxima": (
        ("specgrad.proof.exact.logsumexp_pool", "of", "write_outputs"),
        lambda seed: test_smooth.wrong_windows(range(seed, seed + 1)),
    ),
    "terms of averages": (
        ("specgrad.check.models.summation_orders", "_window_terms", "write_outputs"),
        lambda seed: test_chosen_orders.wrong_sums(range(seed, seed + 1)),
    ),
}


@pytest.mark.parametrize("place", HUNTS)
def test_moved_axes_are_caught(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, hunted = HUNTS[place]
    plant(monkeypatch, *where)
    assert any(map(quietly(hunted), range(41)))


def test_a_right_index_is_not_caught() -> None:
    for place, (_, hunted) in HUNTS.items():
        assert not any(map(hunted, range(2))), place


def test_planted_axes_are_numpys() -> None:
    """The plant is what NumPy does."""
    first, _ = adaptive("test", (3,), (2,)).taps()
    y, x, at = np.zeros((2, 2, 2)), np.arange(6).reshape(2, 3), np.array([0, 1])
    wrong = (0, ..., at)
    y[wrong] = x[:, at]
    mine = np.zeros((2, 2, 2))
    written_with_moved_axes(first, mine[0], first.read_inputs(x))
    assert (mine == y).all()
    assert (mine[0] != x[:, at]).any()
