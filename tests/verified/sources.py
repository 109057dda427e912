"""The theorems of verified/*.v by name, with the rules that the comment above them names."""

from __future__ import annotations

import re
from typing import NamedTuple

from rocq import VERIFIED

STATEMENT = re.compile(
    r"\(\*\*(?P<comment>.*?)\*\)|^(?P<kind>Theorem|Definition|Lemma)\s+(?P<name>[\w']+)", re.S | re.M
)
LABEL = re.compile(r"\[(\w+)\]|\b(Law \d)\b")


class Theorem(NamedTuple):
    name: str  # File.theorem
    rules: frozenset[str]  # W2, Law 1


def theorems() -> list[Theorem]:
    """A comment speaks for every theorem up to the next one."""
    named = []
    for path in sorted(VERIFIED.glob("*.v")):
        rules: frozenset[str] = frozenset()
        for found in STATEMENT.finditer(path.read_text(encoding="utf-8")):
            if found["kind"] == "Theorem":
                named.append(Theorem(f"{path.stem}.{found['name']}", rules))
            elif not found["kind"]:
                rules = frozenset(a or b for a, b in LABEL.findall(found["comment"]))
    return named
