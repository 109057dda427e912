"""Accuracy sheets: each formula, over exact numbers, is what `rounding.radius` proves of the imported ONNX node."""

from __future__ import annotations

import runpy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("mpmath")

from sheet_cases import ARITHMETIC, CASES, FORMAT, Case
from specgrad.rounding import Ball, radius
from specgrad.safety.accuracy import SHEETS, errors
from specgrad.safety.accuracy.expression import as_expr, growth
from specgrad.safety.accuracy.operator_sheets import E_A, B, M, N

SLACK = Fraction(1, 2**24)  # what our own float64 adds: n*2**-53 beside n*2**-24, 16*2**-53 beside e*2**-24
LEAST = Fraction(1, 2**1000)
WIDER = {"LayerNormalization", "Softmax"}  # sheets whose formulas are above what is proven, as their pages say
ROOM = {"LeakyRelu": 6}  # an X that may be read as 0 is taken as one that may be negative


def proven(case: Case, execution: str) -> Any:
    """The radius of the imported node."""
    fed = [
        Ball(case.values[f].astype(float), case.radii[f].astype(float)) if isinstance(f, str) else f for f in case.feeds
    ]
    graph = case.graph
    ball = radius(graph, *fed, arithmetic=ARITHMETIC[execution], formats=graph.formats).outputs
    return ball[0] if isinstance(ball, list | tuple) else ball


def by_sheet(case: Case) -> Any:
    env = case.surroundings()
    if case.operator == "QuantizeLinear":
        env |= quantised(case, env)
    return errors(SHEETS[case.operator], env)


def quantised(case: Case, env: dict[str, Any]) -> dict[str, Any]:
    """round(V - E_V), round(V + E_V): the sheet says E_V."""
    steps = {s.name: s.formula for s in SHEETS["QuantizeLinear"].steps}
    v = steps["V"].value(env)
    e = steps["E_V"].value(env)
    from specgrad.safety.accuracy.sheet import flush_loss

    e = e + flush_loss(v, e, env["t"])
    return {"R_LOW": env["saturate"](v - e), "R_HIGH": env["saturate"](v + e)}


GRID = [(spread, share) for spread in (2, 30, -1) for share in (0.0, 1e-3, 0.2)]


@pytest.mark.parametrize("name", CASES)
def test_the_sheet_is_what_rounding_proves(name: str) -> None:
    """One case of every second kind, executions in turn."""
    for number, (spread, share) in list(enumerate(GRID))[list(CASES).index(name) % 2 :: 2]:
        equal_to_rounding(name, spread, share, ("node", "fused")[number // 2 % 2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["node", "fused"])
@pytest.mark.parametrize("name", CASES)
def test_many_cases(name: str, execution: str) -> None:
    for spread, share in GRID:
        equal_to_rounding(name, spread, share, execution, 20)


def equal_to_rounding(name: str, spread: int, share: float, execution: str, count: int) -> None:
    """Equal, but for the slack of float64: never below the formula, unless it is wider, and hardly above it."""
    rng = np.random.default_rng([len(name), spread + 1, int(share * 1000)])
    for _ in range(count):
        case = CASES[name](rng, spread, share)
        ball, sheet = proven(case, execution), by_sheet(case)
        want, fits = (np.broadcast_to(a, ball.shape) for a in (sheet.total, sheet.fits))
        steps = sum(node.op.name != "input" for node in case.graph.nodes)
        loose = FORMAT["t"] * ROOM.get(name, 0 if steps == 1 else steps + 1) * (spread < 0)
        for at in np.ndindex(ball.shape):
            if np.isinf(ball.radius[at]) or not fits[at]:
                assert np.isinf(ball.radius[at]) == (not fits[at]) or (name in WIDER and not fits[at]), (name, at)
                continue
            got = Fraction(float(ball.radius[at]))
            assert (0 if name in WIDER else want[at] - loose) <= got <= want[at] * (1 + SLACK) + loose + LEAST, (
                name,
                at,
                float(got),
                float(want[at]),
            )


# --- pages ------------------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


def test_the_pages_are_those_of_the_code() -> None:
    """Every operator that is imported has a page, or a line of its own on the first."""
    pages = runpy.run_path(str(ROOT / "tools" / "make_accuracy.py"))["pages"]()
    kept = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "accuracy").glob("*.md")}
    assert sorted(pages) == sorted(kept)
    assert [name for name in pages if pages[name] != kept[name]] == []


def test_every_sheet_is_held_against_rounding() -> None:
    assert set(CASES) == set(SHEETS)


def test_a_formula_that_is_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rounding too few, errors of inputs forgotten, underflow forgotten, a scale by result and not by argument."""
    for name, part, wrong in (
        ("Conv", "introduced", growth(1) * M),
        ("MatMul", "introduced", growth(N) * M),
        ("Div", "propagated", E_A / abs(B)),
        ("LeakyRelu", "introduced", as_expr(0)),
        ("Softmax", "introduced", as_expr(0)),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(SHEETS, name, replace(SHEETS[name], **{part: wrong}))
            with pytest.raises(AssertionError):
                whole_grid(name)


def whole_grid(name: str) -> None:
    for spread, share in GRID:
        equal_to_rounding(name, spread, share, "node", 3)
