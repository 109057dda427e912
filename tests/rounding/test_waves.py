"""sin and cos over ranges: their extremes inside, and what float32 makes of them, against balls of python-flint."""

from __future__ import annotations

import math

import flint
import numpy as np
import pytest
import torch
from flint import arb

import specgrad as sg
from specgrad.bounds import Box, ibp
from specgrad.declared_errors import as_pair, declared
from specgrad.rounding import elementwise, radius

FUNCTIONS = {"sin": (sg.sin, np.sin), "cos": (sg.cos, np.cos)}
RNG = np.random.default_rng(5)
CENTRES = np.concatenate([RNG.uniform(-30, 30, 60), np.arange(-8, 9) * math.pi / 2, RNG.uniform(-1e7, 1e7, 40)])
RADII = 10.0 ** np.where(
    np.arange(CENTRES.size) % 2, RNG.uniform(-16, 1, CENTRES.size), RNG.uniform(-1, 1, CENTRES.size)
)


def true_extremes(name: str, low: float, high: float) -> tuple[arb, arb]:
    """The least and the greatest value on low..high: at the ends, or 1 and -1 where a multiple of pi/2 lies inside."""
    pi, values = arb.pi(), [getattr(arb(end), name)() for end in (low, high)]
    offset = arb(1) / 2 if name == "sin" else arb(0)
    least, most = min(values, key=float), max(values, key=float)
    for k in range(math.floor(low / math.pi) - 2, math.ceil(high / math.pi) + 3):
        if arb(low) <= (offset + k) * pi <= arb(high):
            least, most = (least, arb(1)) if k % 2 == 0 else (arb(-1), most)
    return least, most


def escapes(name: str) -> int:
    """Ranges whose bounds miss an extreme of the function."""
    graph, missed = sg.trace(lambda x: FUNCTIONS[name][0](x), CENTRES.shape), 0
    with flint.ctx.workprec(300):
        box = Box(CENTRES - RADII, CENTRES + RADII)
        bounds = ibp(graph, box, deployed=False).outputs
        for k, (low, high) in enumerate(zip(box.low, box.high, strict=True)):
            if high - low < 1e3:
                least, most = true_extremes(name, float(low), float(high))
                missed += not (arb(float(bounds.low[k])) <= least and most <= arb(float(bounds.high[k])))
    return missed


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_range_has_every_extreme_inside(name: str) -> None:
    assert escapes(name) == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_forgotten_peak_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "reaches", lambda x, point: np.zeros(x.shape, dtype=bool))
    assert escapes(name) > 10


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranges_are_not_wider_than_they_must_be(name: str) -> None:
    """Monotone in between: the range is that of the ends, and never beyond -1..1."""
    graph = sg.trace(lambda x: FUNCTIONS[name][0](x), (3,))
    start = 0.0 if name == "cos" else math.pi / 2
    bounds = ibp(graph, Box(start + np.array([0.1, 3.2, 0.1]), start + np.array([3.1, 6.2, 50.0])), deployed=False)
    want = np.cos([[3.1, 3.2, math.pi], [0.1, 6.2, 2 * math.pi]])
    np.testing.assert_allclose((bounds.low, bounds.high), want, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_at_any_argument_is_in_its_ball(name: str) -> None:
    """Up to the largest numbers, where a few digits of pi would not be enough."""
    f, by_numpy = FUNCTIONS[name]
    x = np.ldexp(RNG.uniform(1, 2, 600), RNG.integers(-126, 127, 600)).astype(np.float32)
    ball = radius(sg.trace(lambda x: f(x), x.shape), x).outputs
    with flint.ctx.workprec(500):
        for got in (by_numpy(x), f(torch.from_numpy(x)).numpy()):
            for at, value, middle, apart in zip(x, got, ball.value, ball.radius, strict=True):
                exact = getattr(arb(float(at)), name)()
                assert abs(exact - arb(float(middle))) <= arb(float(apart))
                assert abs(float(value) - float(middle)) <= apart
    units, _ = as_pair(declared()[name])
    assert (ball.radius <= 1.01 * units * 2.0**-24 + 2.0**-125).all()
