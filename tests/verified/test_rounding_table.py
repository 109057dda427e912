"""verified/rounding.md: each theorem of its table stands in the file beside it, each name of the code in the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "verified"
THEOREM = re.compile(r"^(?:Theorem|Lemma) (\w+)", re.MULTILINE)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs verified/ of a checkout")


def _rows() -> list[list[str]]:
    lines = (FOLDER / "rounding.md").read_text().splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return cells[2:]


def _code(name: str) -> Any:
    """The module, function, class or method of specgrad that a dotted name means."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            here: ModuleType | Any = importlib.import_module(".".join(["specgrad", *parts[:k]]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            here = getattr(here, part)
        return here
    raise AssertionError(f"{name} is no name of specgrad")


def test_each_theorem_stands_in_its_file() -> None:
    for _, _, theorems, files in _rows():
        known = {t for f in files.split(", ") for t in THEOREM.findall((FOLDER / f).read_text())}
        named = re.findall(r"`(\w+)`", theorems)
        assert named, theorems
        assert set(named) <= known, (set(named) - known, files)


def test_each_name_of_the_code_exists() -> None:
    names = [n for _, where, _, _ in _rows() for n in re.findall(r"`((?:rounding|ops|proof)\.[\w.]+)`", where)]
    assert len(names) > 10
    for name in names:
        assert _code(name) is not None
