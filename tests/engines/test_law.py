"""No public function is forgotten by the comparison with bare frameworks (benchmarks/law.py)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module


def test_every_public_function_has_a_case_or_a_reason(module: Any) -> None:
    cases = module("law_cases")
    public, timed = set(cases.public_functions()), {c.function for c in cases.CASES.values()}
    assert len(public) > 150
    assert public == timed | set(cases.NOT_TIMED)
    assert not timed & set(cases.NOT_TIMED)


@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_every_case_has_a_bare_call_or_a_reason(module: Any, engine: str) -> None:
    pytest.importorskip(engine)
    cases, bare = module("law_cases").CASES, module(f"law_{engine}")
    assert not bare.missing()
    assert not (set(bare.BARE) | set(bare.NONE)) - set(cases)
    assert not set(bare.BARE) & set(bare.NONE)


def test_the_limit_is_a_ratio_and_a_fixed_cost(module: Any) -> None:
    law = module("law")
    row = lambda ours: {"bare": 95e-6, "ours": ours}
    assert [law.over(row(t)) for t in (100e-6, 104.9e-6, 105.1e-6)] == [False, False, True]
    assert [law.at_par(row(t)) for t in (99.9e-6, 101e-6)] == [True, False]


def test_a_wrong_value_is_noticed_before_the_clock_starts(module: Any) -> None:
    pytest.importorskip("torch")
    law, cases, torch = module("law"), module("law_cases"), module("law_torch")
    case = cases.CASES["sg.relu"]
    wrong = cases.Case(case.name, case.given, lambda a: case.ours(a) + 1)
    row = law.measure(torch, wrong, torch.variants(case)[0], 0.0)
    assert "not close" in row["error"]
    assert "ours" not in row
