"""Docstrings that stand alone: a reader who opens one knows what is returned without reading its neighbours."""

from __future__ import annotations

import ast
import itertools
import re

import pytest

from structure import ROOMS, nodes_of, texts

LEANS = re.compile(r"(The same|As|Of|By|Whoever)\b")
"""First words of a sentence that leans on another one."""


def leaning(source: str) -> list[str]:
    """Names of the definitions of a source text whose docstring begins as if something stood before it."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
    nodes = [n for n in nodes_of(source) if isinstance(n, kinds)]
    return [getattr(n, "name", "the module") for n in nodes if LEANS.match(ast.get_docstring(n) or "")]


@pytest.mark.parametrize("room", ROOMS)
def test_a_docstring_stands_alone(room: str) -> None:
    found = {name: leaning(text) for name, text in texts(room).items()}
    assert {name: where for name, where in found.items() if where} == {}


@pytest.mark.parametrize(
    "text", ["The same of halves.", "As `f`, for images.", "Of weights.", "By its name.", "Whoever reads."]
)
def test_a_docstring_that_leans_is_seen(text: str) -> None:
    assert leaning(f'def f() -> None:\n    """{text}"""\n') == ["f"]


def unnamed_fields(source: str) -> list[str]:
    """Annotated fields of classes that nothing explains: no class docstring, no string below, no comment."""
    lines = source.splitlines()
    unnamed = []
    for node in (n for n in nodes_of(source) if isinstance(n, ast.ClassDef)):
        text = ast.get_docstring(node) or ""
        for field, below in itertools.pairwise([*node.body, None]):
            if not isinstance(field, ast.AnnAssign) or "#" in lines[(field.end_lineno or 1) - 1]:
                continue
            explained = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if not explained and not re.search(rf"\b{ast.unparse(field.target)}\b", text):
                unnamed.append(f"{node.name}.{ast.unparse(field.target)}")
    return unnamed


@pytest.mark.parametrize("room", ROOMS)
def test_a_field_is_explained(room: str) -> None:
    found = {name: unnamed_fields(text) for name, text in texts(room).items()}
    assert {name: fields for name, fields in found.items() if fields} == {}


@pytest.mark.parametrize(
    ("text", "unnamed"),
    [
        ('"""A ball."""\n    radius: float', ["C.radius"]),
        ('"""A ball."""\n    value: float\n    radius: float\n    """Its size."""', ["C.value"]),
        ('"""A ball; `radius` is its size."""\n    radius: float', []),
        ('"""A ball."""\n    radius: float  # its size', []),
    ],
)
def test_a_field_without_a_word_is_seen(text: str, unnamed: list[str]) -> None:
    assert unnamed_fields(f"class C:\n    {text}\n") == unnamed
