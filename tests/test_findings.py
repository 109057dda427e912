"""Findings: an address per finding that never goes away, scripts that print what their page says."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from specgrad.check.conform.findings_page import EARLIER, with_earlier_rows

FOLDER = Path(__file__).parents[1] / "docs" / "findings"
LISTED = (FOLDER / "anchors.txt").read_text().splitlines()
SCRIPTS = sorted((FOLDER / "others").glob("*.py"))


def anchors() -> list[str]:
    """page#anchor of every finding, as the pages have them."""
    pages = sorted(FOLDER.glob("*.md"))
    return [f"{p.name}#{name}" for p in pages for name in re.findall(r'<a id="([^"]+)"></a>', p.read_text())]


def test_no_address_ever_goes_away() -> None:
    """Who linked to a finding finds it: also when it was mended. New ones are added to anchors.txt, by hand."""
    gone = [address for address in LISTED if address not in anchors()]
    assert gone == []
    assert [address for address in anchors() if address not in LISTED] == []


def test_addresses_are_told_apart() -> None:
    assert len(set(LISTED)) == len(LISTED) == len(anchors())
    assert sorted(LISTED) == LISTED
    assert len(LISTED) >= 75


def test_every_script_has_its_address() -> None:
    stems = {p.stem for folder in ("runtimes", "others") for p in (FOLDER / folder).glob("*.py")}
    assert stems <= {address.partition("#")[2] for address in LISTED}


def row(name: str) -> str:
    return f'| <a id="{name}"></a>relu | [P1](runtimes/{name}.py) NaN propagates | `relu(x)` | differs: 0 |'


def test_a_page_written_anew_keeps_what_was_found_earlier() -> None:
    first, second = row("engine-relu-P1"), row("engine-exp-P1")
    page = with_earlier_rows(f"# old\n{first}\n{second}\n", f"# new\n{second}\n")
    assert page.splitlines()[:2] == ["# new", second]
    assert EARLIER in page
    assert page.count('<a id="engine-relu-P1"></a>') == 1
    assert "runtimes/engine-relu-P1.py" not in page  # its script goes
    assert with_earlier_rows(page, f"# newer\n{second}\n") == page.replace("# new\n", "# newer\n")
    assert with_earlier_rows(page, f"{first}\n{second}\n") == f"{first}\n{second}\n"  # found again


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_scripts_print_what_the_page_says(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    also = ("onnxslim",) if script.name.startswith("onnxslim") else ()
    for package in ("onnx", "onnxruntime", "openvino", "torch", *also):
        pytest.importorskip(package)
    if script == SCRIPTS[0]:
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        printed = done.stdout
    else:  # the packages are loaded here
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            runpy.run_path(str(script), run_name="__main__")
        printed = capfd.readouterr().out
    page = (FOLDER / "others.md").read_text()
    (said,) = re.findall(rf"    \$ python docs/findings/others/{script.name}\n((?:    .*\n)+)", page)
    lines = [line.removeprefix("    ") for line in said.splitlines()]
    versions = set(re.findall(r"(?:onnx|onnxruntime|onnxslim|openvino|torch) [\d.+a-z]*\d[\d.+a-z]*", said))
    if not all(version in printed for version in versions):
        pytest.skip("written with other versions")
    assert printed.splitlines() == lines
