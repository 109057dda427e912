"""The page of runtimes: built from real results, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specgrad.check import conformance
from specgrad.check.conform.findings_page import write

ROOT = Path(__file__).parents[2]


def links(page: Path) -> list[str]:
    return re.findall(r"\]\((runtimes/[^)]+)\)", page.read_text())


def test_the_page_names_rules_and_links_scripts(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    operators = ["global_max_pool", "relu"]
    results = [conformance(name, operators=operators, count=16) for name in ("onnxruntime", "torch")]
    page = write(results, tmp_path)
    text = page.read_text()
    assert "| operator | onnxruntime | torch |" in text
    assert re.search(r"\| global_max_pool \| \*\[P1\]\(runtimes/onnxruntime-global_max_pool-P1.py\)\* \| 0 \|", text)
    assert "| relu | 0 | 0 |" in text
    assert links(page)
    assert all((tmp_path / link).exists() for link in links(page))


def test_the_committed_page_links_scripts_that_exist() -> None:
    page = ROOT / "docs" / "findings" / "runtimes.md"
    if not page.exists():
        pytest.skip("docs/findings/runtimes.md is not written yet")
    assert links(page)
    assert {Path(link).name for link in links(page)} == {
        p.name for p in (ROOT / "docs" / "findings" / "runtimes").glob("*.py")
    }
    for script in (ROOT / "docs" / "findings" / "runtimes").glob("*.py"):
        compile(script.read_text(), str(script), "exec")
