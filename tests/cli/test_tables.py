"""Tables in pipes and in windows of 40, 80 and 200 columns: every number whole, no line longer than the window."""

from __future__ import annotations

import io
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from forks import COMMAND, Forks

pytest.importorskip("rich")
fcntl = pytest.importorskip("fcntl")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402

from specgrad.cli.shared.console import Column, print_table  # noqa: E402

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def read_all(number: int) -> bytes:
    written = b""
    try:
        while chunk := os.read(number, 65536):
            written += chunk
    except OSError:  # so Linux says that nobody writes any more
        pass
    return written


def in_window(forks: Forks, columns: int, *command: str) -> str:
    """What the command writes into a terminal of that many columns, its colours taken out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(read_all, ours)
        out = os.ttyname(theirs)
        done = forks.specgrad(*command, out=out, environment={**environment, "TERM": "xterm-256color"})
        os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    return ESCAPES.sub("", written.result().decode())


@pytest.fixture
def big(tmp_path: Path, monkeypatch) -> Path:
    """Layers with long names and large numbers."""
    monkeypatch.chdir(tmp_path)

    def net(params, x):
        with sg.scope("backbone.stage_one.block_zero"):
            x = sg.relu(sg.conv(params["w"], None, x, stride=2, padding=1))
        return sg.linear(params["fc"], None, sg.flatten(sg.max_pool(x, (3, 3), stride=2, padding=1), 1))

    shapes = {"w": (1237, 3, 7, 7), "fc": (13, 1237 * 27 * 27)}
    sg.save(sg.trace(net, shapes, (1, 3, 112, 112)), tmp_path / "big.json")
    return tmp_path


NUMBERS = ("1x1237x54x54", "181,839", "530,242,524", "1x1237x27x27", "1x901773", "11,723,049")


def test_the_numbers_are_right() -> None:
    products = 1237 * 3 * 49, 1237 * 54 * 54 * 147, 13 * 1237 * 27 * 27
    assert [f"{n:,}" for n in products] == [*NUMBERS[1:3], NUMBERS[5]]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_window_shows_every_number_whole(big: Path, columns: int, forks: Forks) -> None:
    shown = in_window(forks, columns, "show", "big.json")
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= columns
    for number in NUMBERS:
        assert any(number in line for line in lines), (number, shown)


def test_a_pipe_gets_one_line_per_row(big: Path, forks: Forks) -> None:
    done = forks.specgrad("show", "big.json", environment={**os.environ, "COLUMNS": "40"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 8  # a header, the input, five layers, totals
    assert any(all(n in line for n in ("backbone.stage_one.block_zero.conv", *NUMBERS[:3])) for line in lines)
    assert "\x1b" not in "".join(lines)
    assert "…" not in "".join(lines)


@pytest.mark.parametrize("columns", range(10, 90, 7))
def test_no_table_cuts_or_folds_a_number(columns: int) -> None:
    """Any table in any window that is as wide as its longest number."""
    rng = np.random.default_rng(columns)
    for _ in range(20):
        numbers = [[f"{n:,}" for n in rng.integers(1, 10**8, 3)] for _ in range(3)]
        details = [f"{rng.normal():.3g} must be {rng.normal():.3g} within {rng.random():.2g}" for _ in range(3)]
        rows = [[Text("layer" * 4), *map(Text, n), Text(d)] for n, d in zip(numbers, details, strict=True)]
        heads = [Column("layer", folds=True), *(Column(n, right=True) for n in "abc"), Column("used", folds=True)]
        out = io.StringIO()
        print_table(Console(file=out, force_terminal=True, width=columns, color_system=None), heads, rows)
        shown = out.getvalue()
        assert all(len(line.rstrip()) <= columns for line in shown.splitlines())
        words = re.findall(r"[-\d,.e+]+", shown)
        wanted = [n for row in numbers for n in row] + [w for d in details for w in d.split() if w[-1].isdigit()]
        assert [n for n in wanted if n not in words] == [], shown


UNREAD = f"""import os, sys
read, write = os.pipe()
os.dup2(write, 1)
os.close(read), os.close(write)
{COMMAND}
"""


@pytest.mark.parametrize(
    "command", ["explain", "explain --json", "explain W2", "--help", "show big.json", "conformance runtimes"]
)
def test_a_reader_who_closes_the_pipe_is_no_event(command: str, big: Path, forks: Forks) -> None:
    done = forks.python(UNREAD, *command.split())
    assert (done.returncode, done.stderr) == (0, "")


def test_files_are_written_though_nobody_reads(big: Path, torch_forks: Forks) -> None:
    """1, since nothing wrong becomes right by closing a pipe."""
    pytest.importorskip("torch")
    sg.save(sg.trace(lambda x: sg.relu(x), (1, 2)), "g.json")
    np.save("x.npy", np.array([[1, 0.5]], np.float32))
    command = "certify g.json --input x.npy --label 0 --eps 1 --vnncomp out.txt"
    done = torch_forks.python(UNREAD, *command.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert Path("out.txt").read_text().startswith("sat\n")
