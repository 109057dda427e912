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


NAMES_AN_ERROR = re.compile(r"[A-Z]\w*Error\b|\bBadParameter\b|\b[Rr]efus|\b[Rr]ais")
EXEMPT = {"NotImplementedError", "AssertionError", "AttributeError", "StopIteration", "SystemExit", "Exit"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def raised(function: Function) -> set[str]:
    """Names of the errors that a function's own lines raise, and "refuse" for a call of such a method."""
    names, todo = set(), list[ast.AST](function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, Function | ast.ClassDef | ast.Lambda):
            continue
        todo += ast.iter_child_nodes(node)
        thrown = node.exc if isinstance(node, ast.Raise) else node if isinstance(node, ast.Call) else None
        called = thrown.func if isinstance(thrown, ast.Call) else thrown
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name == "refuse" or (isinstance(node, ast.Raise) and name[:1].isupper()):
            names.add(name)
    return names - EXEMPT


def unsaid_errors(source: str) -> list[str]:
    """Functions that raise an error of which their docstring says nothing: no name, no "refused", no "raises".

    A constructor's errors may stand in the docstring of its class. Operators, and a command's own function, whose
    docstring is its help, are left out.
    """
    unsaid = []
    for outer in (n for n in nodes_of(source) if isinstance(n, ast.Module | ast.ClassDef)):
        for node in (n for n in outer.body if isinstance(n, Function)):
            made = node.name in ("__init__", "__post_init__")
            text = (ast.get_docstring(node) or "") + (ast.get_docstring(outer) or "" if made else "")
            options = any("Annotated" in ast.unparse(a) for a in (node.args, *node.decorator_list))
            command = options or any("command" in ast.unparse(d) for d in node.decorator_list)
            if text and not command and raised(node) and not NAMES_AN_ERROR.search(text):
                unsaid.append(node.name)
    return unsaid


@pytest.mark.parametrize("room", ROOMS)
def test_an_error_that_is_raised_is_said(room: str) -> None:
    found = {name: unsaid_errors(text) for name, text in texts(room).items()}
    assert {name: functions for name, functions in found.items() if functions} == {}


@pytest.mark.parametrize(
    ("text", "unsaid"),
    [
        ('def f(c):\n    """Return c."""\n    raise ShapeError("f", c)', ["f"]),
        ('def f(c):\n    """Return c."""\n    return c or c.refuse("empty")', ["f"]),
        ('class C:\n    """A box."""\n    def __init__(self):\n        raise ShapeError("f", 1)', ["__init__"]),
        ('class C:\n    """A box; ShapeError: none."""\n    def __init__(self):\n        raise ShapeError("f", 1)', []),
        ('def f(c):\n    """Return c; refused if it is empty."""\n    raise ShapeError("f", c)', []),
        ('def f(c):\n    """Return c."""\n    raise', []),
    ],
)
def test_an_error_without_a_word_is_seen(text: str, unsaid: list[str]) -> None:
    assert unsaid_errors(text) == unsaid
