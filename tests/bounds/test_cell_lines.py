"""The lines of smooth functions of one cell hold on boxes of any width, against balls of python-flint.

As few points of a grid are laid over a box as its bend allows: one step, eight, or 64. Every choice must hold.
"""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
import torch
from flint import arb

from functions import SMOOTH
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.op import REGISTRY, apply, run_spec
from specgrad.scalar import balls


def lines_of(name: str, low: torch.Tensor, high: torch.Tensor, bent: float) -> relax.LinearRelaxation:
    op = REGISTRY[name]
    assert op.curve is not None
    assert op.curve.curvature is not None
    curvature = bent * op.curve.curvature(torch, low, high, {})
    lines = relax.hull(lambda x: apply(op, x), low, high, op.curve.kinks({}), curvature)
    return lines if op.curve.peak is None else relax.within_unit(lines, low, high)


def escapes(name: str, width: float, bent: float = 1.0) -> int:
    """Cells of boxes of one width where a line is on the wrong side of the function."""
    rng = np.random.default_rng(1)
    low = rng.uniform(-3, 3, 40)
    high = low + width * rng.uniform(0.5, 1, 40)
    down, lower, up, upper = (t.tolist() for t in lines_of(name, torch.tensor(low), torch.tensor(high), bent))
    shares = np.array([[0.0], [0.03], [0.2], [0.5], [0.51], [0.77], [0.99], [1.0]])
    points = np.clip(low + shares * (high - low), low, high)
    wrong = 0
    with flint.ctx.workprec(300):
        for row, values in zip(balls(points), run_spec(REGISTRY[name], [balls(points)], {}), strict=True):
            for k, (x, y) in enumerate(zip(row, values, strict=True)):
                wrong += not (arb(down[k]) * x + arb(lower[k]) <= y <= arb(up[k]) * x + arb(upper[k]))
    return wrong


@pytest.mark.parametrize("width", [1e-15, 1e-9, 1e-5, 1e-3, 1e-2, 0.1, 1.0, 6.0, 40.0])
@pytest.mark.parametrize("name", SMOOTH)
def test_lines_hold(name: str, width: float) -> None:
    assert escapes(name, width) == 0


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("width", [1e-3, 0.05])
def test_a_bend_that_is_left_out_is_caught(name: str, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relax, "GRID_STEPS", (1,))
    assert escapes(name, width, bent=0.0)


@pytest.mark.parametrize("name", SMOOTH)
def test_grids_are_as_coarse_as_the_bend_allows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarser grids cost at most FLAT of the width on either side, against the finest one."""
    low = torch.linspace(-3, 3, 50, dtype=torch.float64)
    for width in (1e-6, 1e-4, 1e-3, 1e-2, 0.03):
        high = low + width
        middle = low / 2 + high / 2
        chosen = lines_of(name, low, high, 1.0)
        with monkeypatch.context() as m:
            m.setattr(relax, "GRID_STEPS", (64,))
            fine = lines_of(name, low, high, 1.0)
        gap, best = (
            (each.upper_slope - each.lower_slope) * middle + each.upper - each.lower for each in (chosen, fine)
        )
        assert (gap <= best + 4 * relax.MAX_BULGE_SHARE * width).all()


def test_the_chord_above_relu_holds_exactly() -> None:
    """In fractions, at both ends of the range, which suffices for a convex function."""
    rng = np.random.default_rng(0)
    low, high = -rng.uniform(0, 1, 200), rng.uniform(0, 1, 200)
    _, _, up, upper = (t.tolist() for t in relax.relu(torch.tensor(low), torch.tensor(high)))
    for slope, offset, x, y in zip(up, upper, low.tolist(), high.tolist(), strict=True):
        assert Fraction(slope) * Fraction(x) + Fraction(offset) >= 0
        assert Fraction(slope) * Fraction(y) + Fraction(offset) >= Fraction(y)


def test_lines_hold_between_points_of_a_grid_that_were_rounded_apart() -> None:
    """Points 1.5 ulps apart lie 1 or 2 apart: a bend whose foot is between two of these stays above its lower line."""
    ulp, bent = 2.0**-52, 2.0**70
    low, high = torch.tensor([1.0], dtype=torch.float64), torch.tensor([1 + 96 * ulp], dtype=torch.float64)
    for k in range(30, 66):
        foot = 1 + k * ulp
        down, lower, _, _ = relax.hull(lambda x, m=foot: bent / 2 * (x - m) ** 2, low, high, (), torch.tensor([bent]))
        assert Fraction(float(down)) * Fraction(foot) + Fraction(float(lower)) <= 0
