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
