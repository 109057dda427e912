"""What `plan.worker_bytes` promises, beside the largest size of real workers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorstore")
pytest.importorskip("zarr")
pytest.importorskip("psutil")
FILE = Path(__file__).parents[2] / "benchmarks" / "tile_memory.py"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="sizes of processes are read from /proc")
@pytest.mark.parametrize(
    ("engine", "name"),
    [
        ("numpy", "constant 4 wide, 1 deep, tile 8, numpy float32"),  # nothing but the worker itself
        ("numpy", "volume 16 wide, 2 deep, tile 48, numpy float32"),  # as much again in values
        ("torch", "unet 8 wide, 3 deep, tile 256, torch float32"),
    ],
)
def test_a_worker_takes_what_was_promised(engine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(engine)
    monkeypatch.syspath_prepend(str(FILE.parent))
    import tile_memory

    (k,) = (k for k, row in enumerate(tile_memory.ROWS) if tile_memory.name_of(row) == name)
    done = subprocess.run([sys.executable, FILE, "--child", str(k)], capture_output=True, text=True, check=True)
    got = json.loads(done.stdout.splitlines()[-1])
    assert got["used"] <= tile_memory.LIMIT * got["promised"]
    assert got["promised"] <= tile_memory.LIMIT * got["used"]
