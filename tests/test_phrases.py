"""The words of the field: phrases of tests/private_phrases.toml stand in no docstring, comment, message or page."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PHRASES: dict[str, str] = tomllib.loads((ROOT / "tests" / "private_phrases.toml").read_text())
ANY = re.compile("|".join(rf"\b{re.escape(phrase)}\b" for phrase in PHRASES), re.IGNORECASE)
HISTORY = {"CHANGELOG.md", "ERRATA.md"}
"""What was written about earlier versions, often in quotes."""
WORDS = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
PAGES = [p for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if p.name not in HISTORY]
SOURCES = [p for folder in ("src", "tools", "examples") for p in (ROOT / folder).rglob("*.py")]


def words_of_code(source: str) -> str:
    """Strings and comments of a source text; a string of one word is a name."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = (re.sub(r"\{[^{}]*\}", "", t.string) for t in tokens if t.type in WORDS)
    return "\n".join(text for text in texts if " " in text)


def private(text: str) -> list[str]:
    """Phrases of the list that stand in a text, across line breaks, outside `code` and names of fields."""
    plain = " ".join(re.sub(r"`[^`\n]*`|(?m:^ +\w+ {2,})", " ", text).replace("#", " ").split())
    return [f"{found[0]}: {plain[max(0, found.start() - 40) : found.end() + 20]}" for found in ANY.finditer(plain)]


@pytest.mark.parametrize("folder", ["src", "tools", "examples"])
def test_no_private_phrase_in_code(folder: str) -> None:
    texts = {p.name: p.read_text() for p in SOURCES if p.is_relative_to(ROOT / folder)}
    found = {name: private(words_of_code(text)) for name, text in texts.items() if private(text)}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


def test_no_private_phrase_on_a_page() -> None:
    found = {str(p.relative_to(ROOT)): private(p.read_text()) for p in PAGES}
    assert {name: phrases for name, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("for whoever reads", 1),
        ("an atol that is no\nguess", 1),
        ("# Sign for it", 1),
        ("a key, `anew`", 0),
        ("  anew    parts of the tree", 0),
        ("a kind of lagging window", 0),
    ],
)
def test_a_private_phrase_is_seen(text: str, count: int) -> None:
    assert len(private(text)) == count


def test_a_phrase_in_a_message_is_seen() -> None:
    code = 'anew = 1\ny = {"anew": 2}\nraise E(f"{anew} computed anew")  # for whoever asks\n'
    assert [text.split(":")[0] for text in private(words_of_code(code))] == ["anew", "whoever"]
