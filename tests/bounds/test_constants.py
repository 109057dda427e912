"""Numbers of a network that the format does not hold: limits, slopes, thresholds, and the ends of a box."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
from specgrad.bounds import Box, certify, crown, ibp
from specgrad.interop import from_torch
from specgrad.ops.elementwise import equal, greater
from specgrad.properties.vnnlib import read_text
from specgrad.rounding import Arithmetic

Call = Callable[[Any], Any]
TENTH = np.array([0.1])
CALLS: dict[str, tuple[Call, float, float]] = {
    "maximum": (lambda x: sg.maximum(x, 0.1), -1.0, 0.0625),
    "maximum with an array": (lambda x: sg.maximum(x, TENTH), -1.0, 0.0625),
    "maximum, open": (lambda x: sg.maximum(x, 0.1) - x, -1.0, 1.0),
    "maximum, known": (lambda x: sg.maximum(x, 0.1) - x, 0.1, 1.0),
    "minimum": (lambda x: sg.minimum(0.1, x), 0.125, 1.0),
    "clamp": (lambda x: sg.clamp(x, -0.3, 0.7), -4.0, 4.0),
    "clamp, above": (lambda x: sg.clamp(x, -0.3, 0.7), 1.0, 4.0),
    "clamp, below": (lambda x: sg.clamp(x, -0.3, None) * 3, -4.0, -1.0),
    "leaky_relu": (lambda x: sg.leaky_relu(x, 0.01), -1.0, 0.25),
    "leaky_relu, below": (lambda x: sg.leaky_relu(x, 0.01), -1.0, -0.75),
    "relu6": (lambda x: sg.relu6(x), 2.0, 8.0),
    "select": (lambda x: sg.select(np.array([1.0]), 0.1, x), 2.0, 8.0),
    "gate": (lambda x: sg.select(greater(x, 0.1), x, 0), 0.0625, 0.125),
    "greater": (lambda x: greater(x, 0.1), 0.0625, 0.1),
    "equal": (lambda x: equal(x, 0.1), 0.0, 0.125),
    "fill": (lambda x: sg.fill(x, 0.1) + 0 * x, 0.0, 0.125),
}
FORMATS = {
    "float32": Arithmetic("float32"),
    "float16": Arithmetic("float16", accumulate="float32"),
    "bfloat16": Arithmetic("bfloat16", accumulate="float32"),
    "flushing float32": Arithmetic("float32", flush=True),
}


def sampled(low: float, high: float, dtype: torch.dtype) -> torch.Tensor:
    """Inputs of the box as the format holds them: its ends, and what lies next to 0.1 and the limits."""
    marks = torch.tensor([low, high, 0.1, 0.7, -0.3, 0.3, 0.0], dtype=torch.float64).to(dtype)
    steps = [marks, *(torch.nextafter(marks, torch.full_like(marks, end)) for end in (-9.0, 9.0))]
    points = torch.cat([*steps, torch.linspace(low, high, 50, dtype=torch.float64).to(dtype)])
    ends = torch.tensor([low, high], dtype=torch.float64).to(dtype)
    return points[(points >= ends[0]) & (points <= ends[1])]


@pytest.mark.parametrize("bound", [ibp, crown])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("call", CALLS)
def test_deployed_bounds_hold(call: str, name: str, bound: Any) -> None:
    f, low, high = CALLS[call]
    graph, arithmetic = sg.trace(f, (1,)), FORMATS[name]
    found = bound(graph, Box([low], [high]), arithmetic=arithmetic).outputs
    dtype = getattr(torch, arithmetic.dtype)
    network = sg.compile(graph, "torch").to(dtype)
    for x in sampled(low, high, dtype):
        y = network(x[None]).double().numpy()
        assert found.contains(y).all(), (x, y, found)


@pytest.mark.parametrize("bound", [ibp, crown])
@pytest.mark.parametrize("call", CALLS)
def test_real_bounds_hold_at_float64_numbers(call: str, bound: Any) -> None:
    """0.1 is not float32's: the exact function of float64 numbers stays inside, and the bounds stay narrow."""
    f, low, high = CALLS[call]
    graph = sg.trace(f, (1,))
    found = bound(graph, Box([low], [high]), deployed=False).outputs
    exact = sg.trace(lambda x: f(x), (1,))
    points = [low, high, *(p for p in (0.1, np.nextafter(0.1, 0), 0.7, -0.3) if low <= p <= high)]
    for p in points:
        y = _exactly(exact, p)
        assert Fraction(found.low.item()) <= y <= Fraction(found.high.item())
    if call in ("maximum", "clamp, above", "minimum"):
        assert found.high - found.low < 1e-12


def _exactly(graph: Any, p: float) -> Fraction:
    from dataclasses import replace

    lifted = replace(graph, constants={k: sg.exact(v) for k, v in graph.constants.items()})
    return lifted(sg.exact([p]))[0]


@pytest.mark.parametrize("name", FORMATS)
def test_a_constant_that_is_computed_brings_its_radius(name: str) -> None:
    graph, arithmetic = sg.trace(lambda x, c: sg.maximum(x, c + 0.2), (1,), (1,)), FORMATS[name]
    dtype = getattr(torch, arithmetic.dtype)
    c = torch.tensor([0.1], dtype=torch.float64).to(dtype)
    found = crown(graph, Box([-1.0], [0.0625]), c.double().numpy(), arithmetic=arithmetic).outputs
    assert found.contains((c + 0.2).double().numpy()).all()
    assert found.contains([Fraction(c.item()) + Fraction(0.2)]).all()


class Clamped(torch.nn.Module):
    """The second output is 1 in one narrow place, where random inputs do not fall."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.clamp(2 * x[:, :1], max=0.7)
        s = torch.relu(1 - 1000 * torch.abs(x[:, 1:] - 0.3125))
        return torch.cat([a, s], 1)


def test_a_limit_that_rounds_down_is_not_certified() -> None:
    """float32(0.7) < 0.69999999: every execution violates the property at (1.5, 0.3125)."""
    module = Clamped().eval()
    (y,) = module(torch.tensor([[1.5, 0.3125]]))
    assert y[0] <= 0.69999999
    assert y[1] >= 0.5
    text = "".join(f"(declare-const {n} Real)" for n in ("X_0", "X_1", "Y_0", "Y_1"))
    text += "(assert (>= X_0 1))(assert (<= X_0 2))(assert (>= X_1 0))(assert (<= X_1 1))"
    text += "(assert (<= Y_0 0.69999999))(assert (>= Y_1 0.5))"
    found = certify(from_torch(module, torch.zeros(1, 2)), read_text(text), seconds=5)
    assert found.verdict != "holds"


def test_a_condition_that_rounding_decides_has_no_lines() -> None:
    """Whether 0.1 + 0.2 equals 0.3 depends on the format and on the order: both branches must be inside."""
    graph = sg.trace(lambda x, a, b, c: sg.select(equal(sg.add(a, b), c), x, -x), *[(1,)] * 4)
    found = crown(graph, Box([1.0], [2.0]), *(np.array([v]) for v in (0.1, 0.2, 0.3))).outputs
    assert found.low <= -2
    assert found.high >= 2
