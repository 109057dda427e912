"""Pages that programs write, and the way to every page: four doors, and few entries beside them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DOORS = ("check", "kernel", "prove", "build")


def made(tool: str) -> str:
    return str(runpy.run_path(str(ROOT / "tools" / f"make_{tool}.py"))["document"]())


def test_the_page_of_the_command_line_is_current() -> None:
    pytest.importorskip("typer")
    page = (DOCS / "reference" / "command-line.md").read_text()
    assert page == made("command_line")


def test_every_command_and_option_is_on_the_page() -> None:
    pytest.importorskip("typer")
    from specgrad.cli.main import HOMES

    page = (DOCS / "reference" / "command-line.md").read_text()
    assert [name for name in HOMES if f"\n### {name}\n" not in page] == []
    assert page.count("\n| `--json` |") >= 15
    assert "\n| `--run-seconds NUMBER` | Time limit for one run of the model. Default: 300. |" in page
    assert "\n| `--tolerance-seconds NUMBER` | Time for proven tolerances" in page  # a name too long for its column


def test_what_works_is_current() -> None:
    assert (DOCS / "guide" / "what-works.md").read_text() == made("what_works")


def entries(page: Path) -> list[str]:
    """What a page has in its tables of contents."""
    found = re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [line for body in found for line in body.splitlines() if line and not line.startswith(":")]


def test_the_list_beside_a_page_is_short() -> None:
    assert len(entries(DOCS / "index.md")) <= 12


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_tutorial_answers_guide_and_reference(door: str) -> None:
    text = (DOCS / "start" / f"{door}.md").read_text()
    parts = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |^```\{toctree)", text, flags=re.DOTALL | re.MULTILINE))
    assert [title.rstrip("s") for title in parts] == ["Tutorial", "How do I ...?", "Guide", "Reference"]
    homes = {"Tutorial": "tutorials/", "Guide": "guide/", "How do I ...?": "howto/", "Reference": "reference/"}
    for title, body in parts.items():
        assert f"](../{homes[title.rstrip('s')]}" in body
    assert [e for e in entries(DOCS / "start" / f"{door}.md") if f"({e}.md)" not in text] == []


def test_every_answer_is_behind_a_door() -> None:
    doors = "".join((DOCS / "start" / f"{door}.md").read_text() for door in DOORS)
    answers = [p.name for p in (DOCS / "howto").glob("*.md") if p.name != "index.md"]
    assert [name for name in answers if f"](../howto/{name})" not in doors] == []


def test_a_page_stands_in_one_place() -> None:
    named = [(page.parent / entry).resolve() for page in DOCS.rglob("*.md") for entry in entries(page)]
    assert len(named) == len(set(named))
