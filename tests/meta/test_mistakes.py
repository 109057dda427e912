"""tests/meta/mistakes.toml can be planted: every text stands in its file once, and every room has two."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLANT = runpy.run_path(str(ROOT / "tools" / "plant.py"))
FEW = {"show"}


def test_every_mistake_can_be_planted_and_every_room_has_two() -> None:
    rooms = Counter(m.file.partition("/")[0] for m in PLANT["mistakes"]() if "/" in m.file)
    folders = {p.parent.name for p in (ROOT / "src" / "specgrad").glob("*/__init__.py")}
    assert rooms.keys() == folders
    assert {room for room, count in rooms.items() if count < 2} <= FEW


def test_the_tests_that_look_for_a_mistake_are_there() -> None:
    named = {path for m in PLANT["mistakes"]() for path in m.tests.split()}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_a_walk_names_files_functions_and_rooms() -> None:
    """In a process of its own: where max_pool was called before, a second call walks less."""
    out = subprocess.run([sys.executable, str(ROOT / "tools" / "walk.py"), "max_pool"], capture_output=True, text=True)
    assert re.search(r"^  ops/max_pool\.py +max_pool", out.stdout, re.MULTILINE), out.stderr
    assert "ops -> window" in out.stdout
