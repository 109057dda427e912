"""A box whose ends the format does not hold: what stands for them when the network is fed."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.bounds import Box, crown, ibp
from specgrad.bounds.box import widened
from specgrad.errors import ShapeError
from specgrad.rounding import FORMATS, Arithmetic

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all

TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def drawn(dtype: str, seed: int) -> np.ndarray:
    """Numbers of the format, numbers next to them in float64, and any others, from subnormal to too large."""
    rng, form = Random(f"widened/{dtype}/{seed}"), FORMATS[dtype]
    any_ = np.array(
        [rng.gauss(0, 1) * 2.0 ** rng.randint(form.lowest - form.digits - 2, form.highest) for _ in range(99)]
    )
    held = torch.tensor(any_).to(TORCH[dtype]).double().numpy()
    near = np.nextafter(held, rng.choice((-np.inf, np.inf)))
    return np.concatenate([any_, held, near, [0.0, form.largest, -form.largest, 2 * form.largest, -2 * form.largest]])


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("seed", range(5))
def test_the_next_number_of_the_format(dtype: str, seed: int) -> None:
    x, form, kind = drawn(dtype, seed), FORMATS[dtype], TORCH[dtype]
    x = x[np.isfinite(x)]
    low, high = widened(x, x, form)
    nearest = torch.tensor(x).to(kind)
    assert (low <= nearest.double().numpy()).all()
    assert (nearest.double().numpy() <= high).all()
    for v, a, b in zip(x, low, high, strict=True):
        assert a <= v <= b
        if form.holds(np.array(v)):
            assert a == v == b
        else:  # no number of the format lies between
            assert torch.nextafter(torch.tensor(a).to(kind), torch.tensor(np.inf).to(kind)).item() == b


def test_float64_and_real_take_ends_as_they_are() -> None:
    x = np.array([0.1])
    for name in ("float64", "real"):
        assert widened(x, x, FORMATS[name]) == (x, x)


@pytest.mark.parametrize("dtype", TORCH)
@pytest.mark.parametrize("bound", [ibp, crown])
def test_one_decimal_holds_what_is_fed_for_it(dtype: str, bound: Any) -> None:
    graph = sg.trace(lambda x: sg.relu(x) * 3 - x, (1,))
    found = bound(graph, Box([0.1], [0.1]), arithmetic=Arithmetic(dtype)).outputs
    x = torch.tensor([0.1]).to(TORCH[dtype])
    assert found.contains((torch.relu(x) * 3 - x).double().numpy()).all()
    assert found.contains([Fraction(0.1) * 2]).all()
    assert found.high - found.low < 64 * FORMATS[dtype].u
    real = bound(graph, Box([0.1], [0.1]), deployed=False).outputs
    assert real.high - real.low < 1e-12


def test_an_end_beyond_the_format_proves_nothing() -> None:
    graph = sg.trace(lambda x: sg.tanh(x), (1,))
    assert ibp(graph, Box([1.0], [1e39])).unbounded
    assert not ibp(graph, Box([1.0], [1e38])).unbounded


@pytest.mark.parametrize("kind", [np.uint8, np.int64, torch.uint8, torch.int32])
def test_integers_are_numbers(kind: Any) -> None:
    """Bytes from a camera: 250 - 3 is no 247 of a byte that wraps, and what is between them is between them."""
    make = (lambda v: torch.tensor(v, dtype=kind)) if isinstance(kind, torch.dtype) else (lambda v: np.array(v, kind))
    box, same = Box(make([3, 0]), make([250, 255])), Box([3.0, 0.0], [250.0, 255.0])
    graph = sg.trace(lambda x: sg.relu(2 * x - 100) - x, (2,))
    for bounds in (crown, ibp):
        found, wanted = (bounds(graph, b, deployed=False).outputs for b in (box, same))
        np.testing.assert_array_equal(np.asarray(found.low), wanted.low)
        np.testing.assert_array_equal(np.asarray(found.high), wanted.high)
    around = Box.around(make([3, 0]), 5)
    assert (np.asarray(around.low).tolist(), np.asarray(around.high).tolist()) == ([-2, -5], [8, 5])


def test_integers_beyond_float64_are_refused() -> None:
    with pytest.raises(ShapeError, match="that float64 holds"):
        Box(np.array([0]), np.array([2**53 + 1]))
