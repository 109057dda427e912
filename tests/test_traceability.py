"""docs/reference/traceability.md is current, and no rule is without code, law and hunter unless the page says so."""

from __future__ import annotations

import ast
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specgrad.rulebook import rules

ROOT = Path(__file__).parents[1]
MAKE = runpy.run_path(str(ROOT / "tools" / "make_traceability.py"))
OPEN = ["P6: no hunter"]
"""What is missing, openly. A rule that comes or loses its test shows here."""


@cache
def functions(path: Path) -> set[str]:
    return {n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def exists(code: str) -> bool:
    """module:function or module:Class.method; of a module alone, the file."""
    module, _, name = code.partition(":")
    plain = ROOT / "src" / "specgrad" / module.replace(".", "/")
    path = plain.with_suffix(".py") if plain.with_suffix(".py").exists() else plain / "__init__.py"
    return path.exists() and (not name or set(name.split(".")) <= functions(path))


def test_the_page_is_current() -> None:
    assert MAKE["PAGE"].read_text(encoding="utf-8") == MAKE["document"]()


def test_what_is_missing_is_said() -> None:
    assert MAKE["gaps"]() == OPEN
    page = MAKE["PAGE"].read_text(encoding="utf-8").partition("## What is missing")[2]
    assert [line.removeprefix("- ") for line in page.strip().splitlines()] == OPEN


def test_every_rule_has_its_row() -> None:
    assert [r.label for r in MAKE["contract_rows"]()] == list(rules())
    assert [r.label for r in MAKE["profile_rows"]()] == [f"S{i}" for i in range(1, 32)]


@pytest.mark.parametrize("kind", ["contract_rows", "claim_rows", "profile_rows"])
def test_what_is_named_exists(kind: str) -> None:
    for row in MAKE[kind]():
        assert [c for c in row.code if not exists(c)] == [], row.title
        tests = [t.split("::") for t in [*row.laws, *row.hunters] if "::" in t]
        assert [t for t in tests if t[1] not in functions(ROOT / t[0])] == [], row.title


def test_planted_gaps_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that nobody keeps or tests; a claim that names a function or a test that is gone."""
    inside: dict[str, Any] = MAKE["contract_rows"].__globals__
    more = {**rules(), "V9": "[V9] Windows are pretty\n\nNobody enforces it."}
    monkeypatch.setitem(inside, "rules", lambda: more)
    assert {"V9: no code", "V9: no law", "V9: no hunter"} <= set(MAKE["gaps"]())
    assert MAKE["document"]() != MAKE["PAGE"].read_text(encoding="utf-8")
    monkeypatch.setitem(inside, "rules", rules)
    assert exists("rounding.propagate:radius")
    assert not exists("rounding.propagate:diameter")
    monkeypatch.setitem(inside, "CLAIMS", [("Pigs fly", "pigs:fly", "test_pigs_fly", "test_pigs_fly")])
    with pytest.raises(KeyError, match="test_pigs_fly"):
        MAKE["claim_rows"]()
