"""docs/guide/kernels.md: its kernels are compiled and run as they stand there."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "kernels.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


def run_test(folder: Path, text: str, name: str, **environment: str) -> str:
    (folder / "kernel.py").write_text(f"{text}\n\n{name}()\n")
    command = [sys.executable, "kernel.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


BOTH = """import runpy, sys, traceback
for path in ("right.py", "wrong.py"):
    try:
        runpy.run_path(path)[sys.argv[1]]()
    except AssertionError:
        traceback.print_exc()
"""


def run_both(folder: Path, text: str, wrong: str, name: str) -> tuple[str, str]:
    """What a test prints, and its error with a fault: one process, in which the compiler is loaded once."""
    assert wrong != text
    for file, program in (("right.py", text), ("wrong.py", wrong), ("both.py", BOTH)):
        (folder / file).write_text(program)
    command = [sys.executable, "both.py", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_the_numpy_kernel() -> None:
    flags = doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert (found.attempted >= 5, found.failed) == (True, 0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("fault", ["", "conv.so with a fault"])
def test_the_cpp_kernel(tmp_path: Path, fault: str) -> None:
    (source,) = blocks("cpp")
    assert source.startswith("// g++ -O3 -shared -fPIC conv.cpp -o conv.so\n")
    if fault:
        source = source.replace("r >= h ||", "r > h ||")  # reads a row behind the input
    (tmp_path / "conv.cpp").write_text(source)
    command = source.partition("\n")[0].removeprefix("// ").split()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    test = blocks("py")[0]
    if not fault:
        assert run_test(tmp_path, test, "test_conv") in PAGE.read_text().replace("`", "\n")
    else:
        with pytest.raises(AssertionError, match="ConformanceError: conv: differs"):
            run_test(tmp_path, test, "test_conv")


def test_the_triton_kernel_in_its_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    out = run_test(tmp_path, blocks("py")[1], "test_linear", TRITON_INTERPRET="1")
    assert out.startswith("linear: 100 of 100 questions answered")


def test_the_pallas_kernel_interpreted(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    test = blocks("py")[2]
    too_far = test.replace("lambda i, j: (i, 0)", "lambda i, j: (i + 1, 0)")
    out, error = run_both(tmp_path, test, too_far, "test_matmul")
    assert out.strip()
    assert out in PAGE.read_text().replace("`", "\n")
    assert error.count("ConformanceError: ") == 1
    assert "ConformanceError: the kernel and matmul differ" in error


def test_the_numba_kernel(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    test = blocks("py")[3]
    one_term_lost = test.replace("total += y[i, j]", "total += y[i, j] if j else 0")
    out, error = run_both(tmp_path, test, one_term_lost, "test_softmax")
    assert out.strip()
    assert out in PAGE.read_text().replace("`", "\n").replace(": one asks", "\n")
    assert error.count("ConformanceError: ") == 1
    assert "ConformanceError: the kernel and the reference differ" in error
