"""The pictures of the guide are those that the code draws."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_they_are_current_and_small() -> None:
    """`python tools/make_pictures.py` draws them again."""
    made = runpy.run_path(str(ROOT / "tools" / "make_pictures.py"))
    drawn = made["pictures"]()
    files = {p.stem: p.read_text() for p in made["FOLDER"].glob("*.svg")}
    assert files.keys() == drawn.keys()
    assert [name for name, picture in drawn.items() if picture.svg != files[name]] == []
    for text in files.values():
        ET.fromstring(text.encode())  # as a browser reads a file: letters by name, such as &le;, end it
    assert sum(map(len, files.values())) < 200_000
    pages = "".join((ROOT / "docs" / "guide" / f"{name}.md").read_text() for name in ("pictures", "bounds"))
    assert set(re.findall(r"pictures/([\w-]+)\.svg", pages)) == files.keys()
