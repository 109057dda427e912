"""The contract and the code speak of the same rules: what is raised is written, what is written is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from specgrad.check.conform.broken_rule import TEXT
from specgrad.rulebook import rules

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reference" / "contract.md").read_text(encoding="utf-8")
SOURCES = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "src").rglob("*.py"))]
TESTS = {p: p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests").rglob("*.py")) if p != Path(__file__)}


def anchors(page: str) -> list[str]:
    return re.findall(r'<a id="(\w+)"></a>\n### \[\1\] \S', page)


@cache
def raised(source: str) -> set[str]:
    """Labels that a file can put into an error: `rule="W1"`, or "W1" handed to whoever raises, or in a text."""
    tree = ast.parse(source)
    given = [k.value for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "rule"]
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    labels = {v.value for v in given if isinstance(v, ast.Constant) and isinstance(v.value, str)}
    labels |= {t for t in texts if re.fullmatch(r"[A-RT-Z]\d", t)}  # S1, S2, ... are rules of the safety profile
    return labels | {label for t in texts for label in re.findall(r"\[([A-Z]\d)\]", t)}


def unwritten(sources: Iterable[str], page: str) -> set[str]:
    """What the source, or a verdict, may name without an anchor on the page."""
    return (set().union(*map(raised, sources)) | set(TEXT)) - set(anchors(page))


def idle(page: str, sources: Iterable[str], tests: Iterable[str]) -> set[str]:
    """Anchors of rules that no error and no verdict names, and no test."""
    used = set().union(*map(raised, sources)) | set(TEXT)
    return {a for a in anchors(page) if a not in used and not any(f"[{a}]" in t for t in tests)}


def test_every_label_has_its_anchor() -> None:
    assert unwritten(SOURCES, PAGE) == set()
    assert len(anchors(PAGE)) == len(set(anchors(PAGE))) == PAGE.count("<a id=") == len(rules()) == 18


def test_every_anchor_is_raised_or_tested() -> None:
    assert idle(PAGE, SOURCES, TESTS.values()) == set()


def test_planted_labels_are_found() -> None:
    """An error with a label that nobody wrote down, in each form that the source uses, and a rule that nobody keeps."""
    for line in ('raise ShapeError("conv", "no", rule="W9")', 'c.refuse("no", "W9", ShapeError)', '"""As in [W9]."""'):
        assert unwritten([*SOURCES, line], PAGE) == {"W9"}
    assert "W2" in unwritten(SOURCES, PAGE.replace('<a id="W2"></a>', ""))
    more = PAGE + '\n<a id="W9"></a>\n### [W9] Windows are pretty\n'
    assert idle(more, SOURCES, TESTS.values()) == {"W9"}


def test_every_rule_has_an_example_and_names_tests_that_exist() -> None:
    written = "".join(TESTS.values())
    for label, text in rules().items():
        named = re.findall(r"`(test_\w+)`", text)
        assert named, label
        assert [n for n in named if f"def {n}(" not in written] == [], label
        assert ">>> " in text, label


def test_a_rule_by_its_label() -> None:
    assert sg.rule("W2") == sg.rule("[W2]")
    assert sg.rule("W2").splitlines()[0] == "[W2] The window fits"
    assert "```" not in sg.rule("W2")
    assert "<a id" not in sg.rule("W2")
    with pytest.raises(sg.ParameterError, match=r"rule \[P5\]: label must be one of W1, W2, .*; got 'W9'"):
        sg.rule("W9")


def test_an_error_ends_with_its_label() -> None:
    """Whatever is noted on the way out; the message itself is what others match and quote, and stays."""
    with pytest.raises(sg.ShapeError) as caught:
        sg.trace(lambda x: sg.max_pool(x, (7,)), (5,))
    assert str(caught.value).startswith("max_pool [W2]: window of 7 cells")
    assert len(caught.value.__notes__) == 3
    assert caught.value.__notes__[-1] == '  the rule: print(specgrad.rule("W2"))'
    with pytest.raises(sg.SpecgradError) as caught:
        sg.add(np.ones(2), np.ones(3))
    assert not getattr(caught.value, "__notes__", [])
