"""What TRUST.md and the page of hunters name is there: theorems, tests, sections."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

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


# --- what is loaded ---------------------------------------------------------------------------------------------------

COUNT = """
for module in sys.modules.copy():
    if module.partition(".")[0] == "specgrad":
        print("loaded", sys.modules[module].__file__)
"""
QUESTION = "specgrad.proof.extracted.run_checker"
FILES = f"{QUESTION}, specgrad.interop.onnx, specgrad.properties.vnnlib2, specgrad.interop.model"
NOT_LOADED = re.compile(r"specgrad/(bounds|check|rounding|engines/(torch|jax)|safety|scale)/")
MOST_EXECUTED, MOST_LOADED = 42, 108
"""Files whose functions run, as tools/walk.py counts them, and modules; of one relu, with one leaf."""
COMMAND = """
import sys
from specgrad.cli.main import main
sys.argv = ["specgrad", "check-certificate", "c.json", "net.onnx", "p.vnnlib"]
try:
    main()
except SystemExit as end:
    assert not end.code
import specgrad.proof.extracted.run_checker
"""
WALK = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
from walk import walked
executed = walked(["check-certificate", "c.json", "net.onnx", "p.vnnlib"]).files
assert len(executed) <= {MOST_EXECUTED}, (len(executed), executed.keys())
"""


def loaded(program: str, folder: Path = ROOT) -> list[Path]:
    """The modules of ours that a program has loaded when it ends."""
    done = subprocess.run([sys.executable, "-c", program + COUNT], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [Path(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loaded ")]


def counted(page: str) -> list[tuple[str, int, int]]:
    """What, how many modules, how many lines."""
    section = page.split("## What is loaded")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.*) \| ([\d,]+) \| ([\d,]+) \|$", section, re.MULTILINE)
    return [(what, *(int(n.replace(",", "")) for n in figures)) for what, *figures in rows]


def is_near(row: tuple[str, int, int], paths: Iterable[Path]) -> bool:
    lines = [len(p.read_text().splitlines()) for p in paths]
    return all(abs(said - true) <= 0.02 * true for said, true in zip(row[1:], (len(lines), sum(lines)), strict=True))


def test_what_is_loaded_is_counted(tmp_path: Path) -> None:
    """proof/ by itself is a small part of what the command loads: TRUST.md says both."""
    for package in ("onnx", "torch", "flint", "safetensors", "typer"):
        pytest.importorskip(package)
    _certificate(tmp_path)
    rows, paths = counted(TRUST), what_is_loaded(tmp_path)
    assert [row for row, each in zip(rows, paths, strict=True) if not is_near(row, each)] == []
    assert not is_near(("proof/", 27, 5200), paths[0])


def what_is_loaded(folder: Path) -> list[list[Path]]:
    """The files of every row, in the page's order."""
    return [
        list((ROOT / "src" / "specgrad" / "proof").rglob("*.py")),
        *(loaded(f"import sys, {names}") for names in ("specgrad.proof.files.certificate", QUESTION, FILES)),
        loaded(COMMAND, folder),
        [ROOT / "verified" / "programs" / "check" / "main.ml"],
    ]


def test_the_command_that_checks_loads_no_code_that_proves(tmp_path: Path) -> None:
    """No bounds, no runtimes, no rounding, no algorithms of engines: a fault there makes no certificate valid."""
    for package in ("onnx", "torch", "flint", "safetensors", "typer"):
        pytest.importorskip(package)
    _certificate(tmp_path)
    paths = loaded(WALK, tmp_path)
    assert [p for p in paths if NOT_LOADED.search(p.as_posix())] == []
    assert len(paths) <= MOST_LOADED


def _certificate(folder: Path) -> None:
    """relu(x) as an ONNX file, a property and its certificate."""
    import numpy as np

    import specgrad as sg
    from specgrad.bounds.search.certificates.prove import prove
    from specgrad.interop import from_onnx, to_onnx
    from specgrad.proof.base.deployed_graph import deployed_graph
    from specgrad.properties.vnnlib import read

    bounds = "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 3))"
    (folder / "p.vnnlib").write_text(f"(declare-const X_0 Real) (declare-const Y_0 Real) {bounds}")
    w = np.ones((1, 1), np.float32)
    (folder / "net.onnx").write_bytes(to_onnx(sg.trace(lambda x: sg.relu(sg.matmul(x, w)), (1, 1))).SerializeToString())
    graph = deployed_graph(from_onnx(folder / "net.onnx").at())
    proof = prove(graph, read(folder / "p.vnnlib"))
    (folder / "c.json").write_bytes(proof.text)
    (folder / "c.safetensors").write_bytes(proof.packed)
