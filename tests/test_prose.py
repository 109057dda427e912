"""Docstrings that stand alone: a reader who opens one knows what is returned without reading its neighbours."""

from __future__ import annotations

import ast
import re

import pytest

from structure import MODULES

LEANS = re.compile(r"(The same|As|Of|By|Whoever)\b")
"""First words of a sentence that leans on another one."""


def leaning(source: str) -> list[str]:
    """Names of the definitions of a source text whose docstring begins as if something stood before it."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, kinds)]
    return [getattr(n, "name", "the module") for n in nodes if LEANS.match(ast.get_docstring(n) or "")]


@pytest.mark.parametrize("name", MODULES)
def test_a_docstring_stands_alone(name: str) -> None:
    assert leaning(MODULES[name].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", ["The same of halves.", "As `f`, for images.", "Of weights.", "By its name.", "Whoever reads."]
)
def test_a_docstring_that_leans_is_seen(text: str) -> None:
    assert leaning(f'def f() -> None:\n    """{text}"""\n') == ["f"]
