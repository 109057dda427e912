"""Every slack stands in the ledger with its derivation, and in docs/reference/rounding.md; facts of functions hold."""

from __future__ import annotations

import ast
import itertools
import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import specgrad as sg
from functions import SMOOTH
from specgrad.rounding import Arithmetic, local_radius, slack_constants
from specgrad.rounding.arithmetic import growth
from specgrad.rounding.ball import Ball
from specgrad.rounding.linear import stored_error

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "specgrad"
PAGE = (ROOT / "docs" / "reference" / "rounding.md").read_text(encoding="utf-8")
LEDGER = (SOURCE / "rounding" / "slack_constants.py").read_text(encoding="utf-8")
OTHERS = [
    p for d in ("rounding", "bounds") for p in sorted((SOURCE / d).rglob("*.py")) if p.name != "slack_constants.py"
]
FREE = {
    1e-8: "adam.py",
    1e-4: "subproblems.py",
    5e-324: "certify.py",
    1e-30: "search.py",
    1e-12: "row_weights.py",
}  # a search's steps; a sign


def entries(source: str) -> dict[str, str]:
    """Names of the ledger with the text below each."""
    body = ast.parse(source).body
    found = {}
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.Assign):
            text = after.value if isinstance(after, ast.Expr) else None
            found[node.targets[0].id] = text.value if isinstance(text, ast.Constant) else ""
    return found


def slacks(source: str) -> list[float]:
    """Numbers that look like one: 1e-9, 2.0**-40."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value < 1e-3:
            found.append(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.UnaryOp):
            power = node.right.operand
            if isinstance(power, ast.Constant) and power.value >= 20:
                found.append(2.0**-power.value)
    return found


def test_every_entry_is_derived_and_on_the_page() -> None:
    found = entries(LEDGER)
    assert len(found) >= 18
    assert [name for name, text in found.items() if len(text) < 40] == []
    assert [name for name in [*found, "long_slack"] if f"`{name}`" not in PAGE] == []


def test_no_slack_stands_elsewhere() -> None:
    found = [(p.name, v) for p in OTHERS for v in slacks(p.read_text(encoding="utf-8"))]
    assert [(name, v) for name, v in found if FREE.get(v) != name] == []


def test_a_planted_slack_is_found() -> None:
    assert slacks("x = y * (1 + 1e-7)") == [1e-7]
    assert slacks("SLACK = 1 + 2.0**-41") == [2.0**-41]
    assert entries('A = 1\n"""Why."""\nB = 2\nC = 3') == {"A": "Why.", "B": ""}


# --- the constants themselves, in exact numbers or closed form -----------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, 4608])
def test_growth_is_not_short(dtype: str, count: int) -> None:
    u = Fraction(Arithmetic(dtype).u)
    exact = (1 + u) ** count - 1
    assert exact <= Fraction(growth(count, float(u))) <= exact * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize("count", [1, 3, 100])
def test_stores_after_a_wide_accumulator_keep_its_roundings(count: int) -> None:
    """(1 + 2**-53)*(1 + 2**-24) - 1: beside 1 float64 has no room for the first."""
    exact = (1 + Fraction(1, 2**53)) ** count * (1 + Fraction(1, 2**24)) - 1
    found = stored_error(Arithmetic(accumulate="float64"), np.array(1.0), count, 1).item()
    assert exact <= Fraction(found) * Fraction(slack_constants.SLACK) <= exact * (1 + Fraction(1, 2**38))


def test_outward_is_a_step_everywhere() -> None:
    for x in (5e-324, 2.0**-1022, 1.0, math.nextafter(2, 0), -1.5, 1e308, 3e-310):
        ball = Ball(np.array(x), np.array(5e-324))
        assert ball.low <= math.nextafter(x, -math.inf)
        assert ball.high >= math.nextafter(x, math.inf)


def test_half_powers_by_a_root() -> None:
    """x**10.5 as sqrt(x)**21, with roots that err by as much as is declared."""
    a = Arithmetic()
    u, root = Fraction(a.u), Fraction(a.ulp_bound("sqrt")[0])
    ball = local_radius("power", np.float32([1.5]), exponent=10.5, arithmetic=a)
    worst = (1 + root * u) ** 21 * (1 + u) ** 20 - 1
    assert Fraction(ball.radius.item()) >= worst * Fraction(ball.value.item())


FACTS = {  # the largest second derivative and the steepest slope, in closed form or at the root of the next derivative
    "tanh": (4 / (3 * math.sqrt(3)), 1.0),
    "sigmoid": (1 / (6 * math.sqrt(3)), 1 / 4),
    "silu": (1 / 2, None),
    "gelu": (2 / math.sqrt(2 * math.pi), None),
    "softplus": (1 / 4, 1.0),
    "normal_cdf": (math.exp(-0.5) / math.sqrt(2 * math.pi), 1 / math.sqrt(2 * math.pi)),
    "normal_pdf": (1 / math.sqrt(2 * math.pi), math.exp(-0.5) / math.sqrt(2 * math.pi)),
    "hardswish": (1 / 3, 3 / 2),
    "sin": (1.0, 1.0),
    "cos": (1.0, 1.0),
    "atan": (9 / (8 * math.sqrt(3)), 1.0),
    "asinh": (2 / (3 * math.sqrt(3)), 1.0),
}
AT_AN_END = {"exp"}  # whose bounds depend on the box


def test_no_function_is_left_out() -> None:
    """Of the table above, and of the page's."""
    assert set(FACTS) | AT_AN_END == {*SMOOTH, "softplus"}
    assert {*SMOOTH, "softplus"} <= {f for row in re.findall(r"^\| ([^|]+) \|", PAGE, re.M) for f in row.split(", ")}


GRID = torch.linspace(-12, 12, 480_001, dtype=torch.float64)
TORCH = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}


@pytest.mark.parametrize("name", FACTS)
def test_curvatures_and_slopes(name: str) -> None:
    bend, steep = FACTS[name]
    if steep is None:  # by PyTorch's own derivative on a grid of 5e-5: the slope's own error is bend*h**2
        x = GRID.clone().requires_grad_()
        steep = torch.autograd.grad(TORCH[name](x).sum(), x)[0].abs().max().item() + 1e-8
    curve, range_ = sg.REGISTRY[name].curve, (-np.ones(1), np.ones(1))
    assert bend <= curve.curvature(np, *range_, {"beta": 1}) <= 1.01 * bend
    assert steep <= curve.steepest(np, *range_, {}) <= 1.01 * steep
