"""What TRUST.md and the page of hunters name is there: theorems, tests, sections."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRUST, HUNTERS = (ROOT / "TRUST.md").read_text(), (ROOT / "docs" / "reference" / "hunters.md").read_text()
THEOREM = re.compile(r"^ *(?:Theorem|Corollary) ([\w']+)", re.MULTILINE)


def proven() -> set[str]:
    return {name for path in (ROOT / "verified").glob("*.v") for name in THEOREM.findall(path.read_text())}


def claimed(page: str) -> set[str]:
    """The names in the column of theorems of both tables."""
    names = set()
    for heading, column in (("The claims", 2), ("The theorems", 3)):
        section = page.split(f"## {heading}")[1].split("\n## ")[0]
        for line in section.splitlines():
            names.update(re.findall(r"`([a-z]\w*)`", line.split("|")[column] if line.startswith("| ") else ""))
    return names


def missing(page: str) -> list[str]:
    """Files that a page names and that are not there; a bare test_x.py stands in the folder named before it."""
    folder, found = "tests", []
    for name in re.findall(r"`((?:(?:tests|benchmarks)/[\w/*.]+)|tests|test_[\w*]+\.py)`", page):
        if "/" in name:
            folder = name if not name.endswith(".py") else name.rpartition("/")[0]
        path = name if "/" in name else f"{folder}/{name}"
        if not list(ROOT.glob(path)):
            found.append(path)
    return found


def anchors(page: str) -> set[str]:
    return {
        re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", page, re.MULTILINE)
    }


def test_theorems_that_are_claimed_are_proven() -> None:
    names = claimed(TRUST)
    assert len(names) > 30
    assert names <= proven()


def test_hunters_that_are_named_are_there() -> None:
    assert missing(HUNTERS) == []
    assert missing(TRUST) == []
    assert missing("`tests/laws/test_laws.py`, `test_smoth.py`") == ["tests/laws/test_smoth.py"]


def test_claims_point_to_sections_of_hunters() -> None:
    asked = set(re.findall(r"hunters\.md#([\w-]+)\)", TRUST))
    assert len(asked) > 8
    assert asked <= anchors(HUNTERS)
