"""The plugin of pytest, run by pytest in processes of its own: fixture, marker, options, section, xdist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import specgrad

SOURCE = Path(specgrad.__file__).parents[1]
KERNELS = """
import numpy as np
import pytest
import specgrad as sg

def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""
PASSES = f"""{KERNELS}
@pytest.mark.conforms(shapes=[{{"x": ("N", 8)}}, {{"x": (3, 17)}}], formats=["float32", "float16"])
def test_softmax(conforms):
    assert conforms(lambda x: softmax(x.astype(np.float32)).astype(x.dtype), sg.softmax, count=9).asked == 9

def test_unmarked(conforms):
    conforms(lambda x: x * 2, lambda x: x + x, inputs={{"x": (3,)}})
"""
FAILS = f"""{KERNELS}
def test_wrong(conforms):
    conforms(lambda x: softmax(x) * np.float32(1.001), sg.softmax, inputs={{"x": (3, 8)}})
"""


def run(folder: Path, test: str, *options: str, plugin: bool = True) -> tuple[int, str]:
    """The exit code and what pytest prints of one file of tests, with no plugin but ours and those that are named."""
    (folder / "test_it.py").write_text(test)
    named = ["-p", "specgrad.pytest_plugin"] if plugin else []
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", ".", *named, *options, "test_it.py"]
    clean = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=clean)
    return done.returncode, done.stdout + done.stderr


def test_a_test_per_shape_and_format_and_a_section(tmp_path: Path) -> None:
    code, text = run(tmp_path, PASSES, "-rA", "--strict-markers")
    assert (code, "5 passed" in text) == (0, True), text
    for name in ("Nx8-float32", "Nx8-float16", "3x17-float32", "3x17-float16"):
        assert f"test_softmax[{name}]" in text
    section = text[text.index("conforms: seen against allowed") :]
    assert section.count("softmax: 9 of 9 questions answered") == 4
    ratios = [
        float(line.split("(")[1].split(")")[0]) for line in section.splitlines() if " of " in line and "test_" in line
    ]
    assert len(ratios) == 5
    assert ratios == sorted(ratios, reverse=True)
    assert 0 < ratios[0] < 1


def test_a_failure_is_told_and_listed(tmp_path: Path) -> None:
    code, text = run(tmp_path, FAILS)
    assert code == 1
    assert "Mismatched cells of y:" in text
    assert "To repeat it:" in text
    section = text[text.index("conforms: seen against allowed") :]
    assert "FAILED" in section
    assert "the kernel and softmax differ" in section


def test_workers_of_xdist_report_too(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    code, text = run(tmp_path, PASSES, "-p", "xdist", "-n", "2")
    assert (code, "5 passed" in text) == (0, True), text
    assert text.count("softmax: 9 of 9 questions answered") == 4


def test_another_seed_from_the_command_line(tmp_path: Path) -> None:
    sums = f"""{KERNELS}
def test_it(conforms):
    sums = []
    conforms(lambda x: (sums.append(float(x.sum())), x * 2)[1], lambda x: x * 2, inputs={{"x": (9,)}}, count=1, seed=1)
    print("sum", sums)
"""
    said = [
        run(tmp_path, sums, "-s", *options)[1].partition("sum")[2] for options in ([], [], ["--conforms-seed", "7"])
    ]
    assert said[0].splitlines()[0] == said[1].splitlines()[0] != said[2].splitlines()[0]


def test_nothing_is_loaded_before_it_is_used(tmp_path: Path) -> None:
    light = """
def test_it():
    import sys
    heavy = [m for m in sys.modules if m.partition(".")[0] in ("numpy", "torch", "jax", "onnx")]
    ours = [m for m in sys.modules if m.partition(".")[0] == "specgrad"]
    assert (heavy, set(ours)) == ([], {"specgrad", "specgrad.late_tables", "specgrad.pytest_plugin"})
"""
    code, text = run(tmp_path, light)
    assert code == 0, text
    assert "conforms" not in text


def test_it_works_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    code, text = run(tmp_path, PASSES)
    assert (code, "5 passed" in text) == (0, True), text


def test_without_the_plugin_the_fixture_is_missing(tmp_path: Path) -> None:
    code, text = run(tmp_path, PASSES, plugin=False)
    assert code == 1
    assert "fixture 'conforms' not found" in text


RAISES = """
import numpy as np
import specgrad as sg

def test_pool():
    sg.max_pool(np.zeros(3), (5,))  # the user's own line
"""


def test_frames_of_ours_are_hidden(tmp_path: Path) -> None:
    code, text = run(tmp_path, RAISES)
    assert code == 1
    assert "sg.max_pool(np.zeros(3), (5,))  # the user's own line" in text
    assert "max_pool [W2]: window of 5 cells does not fit" in text
    assert "arguments.py" not in text
    assert "arguments.py" in run(tmp_path, RAISES, "--full-trace")[1]


def test_frames_of_another_error_stay(tmp_path: Path) -> None:
    assert "layout.py" in run(tmp_path, "import specgrad as sg\ndef test_slice():\n    sg.slice([1, 2], 3)\n")[1]
