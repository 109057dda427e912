"""The lowest versions that pyproject.toml allows, as constraints for pip: `python tools/lowest.py`, for .ci/lowest."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]+\])?(>=|==)(?P<version>[\w.]+)(; .*)?")


def constraints(project: Mapping[str, Any]) -> list[str]:
    """One line per package; a dependency whose lowest version is not stated, or is stated twice, is refused.

    >>> extras = {"all": ["us[more]", "dask[array]>=2025.1"]}
    >>> constraints({"name": "us", "dependencies": ["numpy>=2.0"], "optional-dependencies": extras})
    ['dask==2025.1', 'numpy==2.0']
    """
    given = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    lowest: dict[str, str] = {}
    for text in given:
        if text.startswith(f"{project['name']}["):  # another extra of ours
            continue
        found = REQUIREMENT.fullmatch(text)
        if found is None or lowest.setdefault(found["name"], found["version"]) != found["version"]:
            raise SystemExit(f"pyproject.toml must name one lowest version of every dependency; got {text!r}")
    return [f"{name}=={version}" for name, version in sorted(lowest.items())]


if __name__ == "__main__":
    print("\n".join(constraints(tomllib.loads(PROJECT.read_text())["project"])))
