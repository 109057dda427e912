"""What a user sees of an error: the own line, not ours; in a script all of it, in a notebook IPython's traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import specgrad as sg
from specgrad.errors import outside

CELL = """
import sys, traceback
import specgrad as sg

def net(x):
    return sg.max_pool(sg.relu(x), (9, 9))

try:
    sg.trace(net, (1, 5, 5))
except sg.ShapeError:
    traceback.print_exc(file=sys.stdout)
    print("everything above")
    raise
"""


def shown(cell: str, folder: Path) -> str:
    """What IPython prints of a cell that fails."""
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", cell]
    clean = {**os.environ, "IPYTHONDIR": str(folder), "HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean, timeout=120).stdout


def test_ipython_shows_the_users_lines_alone(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    everything, text = shown(CELL, tmp_path).split("everything above\n")
    assert "arguments.py" in everything
    assert "return sg.max_pool(sg.relu(x), (9, 9))" in text
    assert "sg.trace(net, (1, 5, 5))" in text
    assert "ShapeError: max_pool [W2]: window of 9 cells does not fit" in text
    assert "lines inside specgrad are hidden" in text
    assert "arguments.py" not in text
    assert "builder.py" not in text


def test_the_users_line_is_the_first_note() -> None:
    def net(x: sg.Var) -> sg.Var:
        return sg.max_pool(sg.relu(x), (9, 9))

    with pytest.raises(sg.ShapeError) as caught:
        sg.trace(net, (1, 5, 5))
    first, *_ = caught.value.__notes__
    assert first.startswith("  at node 2 (max_pool) in net, test_tracebacks.py:")
    assert first.endswith("return sg.max_pool(sg.relu(x), (9, 9))")


def test_a_traceback_outside_has_no_frame_of_ours() -> None:
    with pytest.raises(sg.ShapeError) as caught:
        sg.max_pool([1, 2], (3,))
    trace, hidden = outside(caught.value.__traceback__)
    assert hidden > 3
    assert trace is not None
    assert (trace.tb_frame.f_code.co_name, trace.tb_next) == ("test_a_traceback_outside_has_no_frame_of_ours", None)
    assert outside(None) == (None, 0)
