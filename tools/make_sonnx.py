"""What the scripts of docs/sonnx print, put into docs/sonnx.md: `python tools/make_sonnx.py`."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "sonnx"
PAGE = FOLDER.with_suffix(".md")
BLOCK = re.compile(r"(\[script\]\(sonnx/([\w-]+)\.py\)\n\n```text\n)(.*?)(```)", re.DOTALL)


def printed(name: str) -> str:
    """What a script prints, run in this process: fifty imports of PyTorch would take minutes."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    return out.getvalue()


def blocks(page: str) -> dict[str, str]:
    """What the page says that each script prints, by its name."""
    return {m[2]: m[3] for m in BLOCK.finditer(page)}


def refreshed(page: str) -> str:
    """The page with every block as its script prints it now."""
    return BLOCK.sub(lambda m: m[1] + printed(m[2]) + m[4], page)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
