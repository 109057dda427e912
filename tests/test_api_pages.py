"""Docstrings of public names teach: sections in NumPy's style, whose parameters are those of the signature."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
import runpy
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import specgrad.errors
from specgrad.rulebook import rules

ROOT = Path(__file__).parents[1]
MAKE = runpy.run_path(str(ROOT / "tools" / "make_api.py"))
MODULES = ("specgrad", *(f"specgrad.{module}" for module in MAKE["MODULES"].values()))
UNDONE: frozenset[str] = frozenset()
"""Names whose docstrings have no such sections yet; a name goes when it has them, and none is added."""

HEADING = re.compile(r"^([A-Z]\w+)\n-{3,}\n", re.MULTILINE)
ENTRY = re.compile(r"^(?! )(.+)\n((?:(?: {4}.*)?\n?)*)", re.MULTILINE)
ERROR = re.compile(r"\b[A-Z]\w*Error\b")
LABEL = re.compile(r"\[([A-Z]\d|same|first)\]")


def public() -> Iterator[tuple[str, Any]]:
    """Every public callable by its dotted name."""
    for module in MODULES:
        whole = importlib.import_module(module)
        names = whole.__all__ if module == "specgrad" else MAKE["public"](module)
        yield from ((f"{module}.{n}", getattr(whole, n)) for n in names if callable(getattr(whole, n)))


PUBLIC = dict(public())


def sections(doc: str) -> tuple[str, dict[str, str]]:
    """The text before the first heading, and what stands under each."""
    prose, *rest = HEADING.split(doc + "\n")
    return prose, dict(zip(rest[::2], rest[1::2], strict=True))


def entries(text: str) -> dict[str, str]:
    """What a section explains: its lines that are not indented, and the text below each."""
    return {head.strip(): body.strip() for head, body in ENTRY.findall(text)}


def parameters(named: Callable[..., Any]) -> list[str]:
    """Names of the parameters, with their stars."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + p.name for p in inspect.signature(named).parameters.values()]


def faults(doc: str, names: list[str], *, returns: bool = True) -> list[str]:
    """What is missing, or wrong, in the docstring of a callable with these parameters."""
    prose, found = sections(doc)
    explained = entries(found.get("Parameters", "" if returns else found.get("Attributes", "")))
    heads = [head.partition(" : ") for head in explained]
    raised = entries(found.get("Raises", ""))
    labels = LABEL.findall(prose + "".join(raised.values()))
    known = {name for module in (builtins, specgrad.errors) for name in vars(module)} | OWN_ERRORS
    checks = {
        f"parameters {[name for name, _, _ in heads]}, not {names}": [n for n, _, _ in heads] != names,
        "a parameter without a type": not all(kind for _, _, kind in heads),
        "an entry without a text": not all({**explained, **entries(found.get("Returns", "")), **raised}.values()),
        "no Returns": returns and not found.get("Returns", "").strip(),
        "no example": ">>> " not in found.get("Examples", ""),
        f"{ERROR.findall(prose)} are not under Raises": bool(ERROR.findall(prose)),
        f"{list(raised)} are not all errors": not raised.keys() <= known,
        f"{labels} are not all rules": not set(labels) <= rules().keys(),
    }
    return [text for text, wrong in checks.items() if wrong]


OWN_ERRORS = {name.rpartition(".")[2] for name, of in PUBLIC.items() if inspect.isclass(of)}


def own_faults(name: str) -> list[str]:
    of = PUBLIC[name]
    returns = not inspect.isclass(of) and inspect.signature(of).return_annotation not in (None, "None")
    return faults(inspect.getdoc(of) or "", parameters(of), returns=returns)


def texts_of(docs: Iterable[str]) -> dict[str, set[str]]:
    """By name, how these docstrings explain a parameter."""
    found: dict[str, set[str]] = {}
    for doc in docs:
        for head, text in entries(sections(doc)[1].get("Parameters", "")).items():
            found.setdefault(head.partition(" : ")[0], set()).add(f"{head}\n{text}")
    return found


def test_what_all_poolings_take_is_explained_alike() -> None:
    pools = [
        inspect.getdoc(of) or "" for name, of in PUBLIC.items() if re.match(r"specgrad\.[a-z]+_(max_)?pool$", name)
    ]
    windows = [doc for doc in pools if "\nkernel : " in doc]
    texts = texts_of(windows)
    assert len(windows) == 5
    assert {
        name: len(texts[name]) for name in ("x", "kernel", "stride", "padding", "dilation", "ceil", "rank")
    } == dict.fromkeys(("x", "kernel", "stride", "padding", "dilation", "ceil", "rank"), 1)
    assert len(texts_of([*windows, windows[0].replace("per axis", "an axis")])["stride"]) == 2


def test_every_public_callable_has_its_sections() -> None:
    assert len(PUBLIC) > 180
    found = {name: own for name in PUBLIC if name not in UNDONE and (own := own_faults(name))}
    assert found == {}


def test_what_is_undone_shrinks() -> None:
    assert set(PUBLIC) >= UNDONE
    assert [name for name in UNDONE if not own_faults(name)] == []


GOOD = """Return x, k times.

Parameters
----------
x : array_like, shape (n,)
    Numbers.
*more : array_like
    Further ones,
    of the same shape.

Returns
-------
array
    Of the shape of x.

Raises
------
ShapeError
    If k is below 1 ([W1]).

Examples
--------
>>> repeated(1)
1
"""


def test_a_good_docstring_has_no_faults() -> None:
    assert faults(GOOD, ["x", "*more"]) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("x : array", "w : array", "parameters ['w', '*more'], not ['x', '*more']"),
        ("*more :", "more :", "parameters ['x', 'more'], not"),
        ("x : array_like, shape (n,)\n    Numbers.\n", "", "parameters ['*more'], not"),
        ("x : array_like, shape (n,)", "x", "a parameter without a type"),
        ("    Numbers.\n", "", "an entry without a text"),
        ("    If k is below 1 ([W1]).\n", "", "an entry without a text"),
        ("Returns\n-------\narray\n    Of the shape of x.\n", "", "no Returns"),
        (">>> repeated(1)\n1", "None.", "no example"),
        ("k times.", "k times; ShapeError for k below 1.", "['ShapeError'] are not under Raises"),
        ("ShapeError\n", "ShapedError\n", "['ShapedError'] are not all errors"),
        ("[W1]", "[Z9]", "['Z9'] are not all rules"),
    ],
)
def test_a_planted_fault_is_seen(old: str, new: str, fault: str) -> None:
    assert GOOD.count(old) == 1
    (found,) = faults(GOOD.replace(old, new), ["x", "*more"])
    assert found.startswith(fault)
