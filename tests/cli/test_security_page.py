"""SECURITY.md names tests that exist, and every package that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


def test_the_tests_it_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)
    assert named
    assert all((ROOT / name).exists() for name in named)


def test_every_dependency_has_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {k: v for k, v in project["optional-dependencies"].items() if k != "dev"}
    asked = [*project["dependencies"], *(name for names in extras.values() for name in names)]
    packages = {re.split(r"[\[><=]", name)[0] for name in asked} - {"specgrad"}
    licences = PAGE[PAGE.index("## Licences") :]
    assert {p for p in packages if p not in licences} == set()
