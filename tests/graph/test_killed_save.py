"""Whoever is killed while saving leaves the old pair of files or the new one, and litter that one recognises."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

CELLS = 1 << 18
LITTER = re.compile(r"\.+net\..*specgrad-[0-9a-f]+\.(tmp|new)")
STOP_AT_STEPS = """import os, signal, sys
from pathlib import Path
import numpy as np, specgrad as sg
from specgrad.proof.files.certificate import store
kind, folder, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
done = 0
def counted(real, step):
    def call(*args):
        global done
        for moment in ("before", "after"):
            done += 1
            if done == step:
                os.kill(os.getpid(), signal.SIGKILL)
            if moment == "before":
                result = real(*args)
        return result
    return call
def saved(step):
    path = folder / str(step) / "net.json"
    os.fsync, os.replace = counted(os.fsync, step), counted(os.replace, step)
    if kind == "graph":
        w = np.full(4, 2.0)
        sg.save(sg.trace(lambda x: x * w, (4,)), path)
    else:
        store(path, b"text 2", b"data 2")
for step in range(1, steps + 1):
    child = os.fork()  # a process per step, that loads nothing again
    if child == 0:
        saved(step)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
SAVE_FOR_EVER = """import sys, numpy as np, specgrad as sg
from itertools import count
for n in count(1):
    w = np.full(int(sys.argv[2]), float(n))
    sg.save(sg.trace(lambda x: x * w + n, w.shape), sys.argv[1])
    print(n, flush=True)
"""


def save(path: Path, value: float, cells: int = 4) -> None:
    w = np.full(cells, value)
    sg.save(sg.trace(lambda x: x * w, w.shape), path)


def certificate(path: Path) -> tuple[bytes, bytes]:
    """As check_file reads one."""
    from specgrad.atomic_files import partner

    text = path.read_bytes()
    return text, partner(text, path.with_suffix(".safetensors")).read_bytes()


def litter(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} - {"net.json", "net.safetensors"}


@pytest.mark.skipif(not hasattr(signal, "SIGKILL") or not hasattr(os, "fork"), reason="needs SIGKILL and fork")
@pytest.mark.parametrize("kind", ["graph", "certificate"])
def test_killed_at_any_step_the_old_or_the_new_pair_is_there(kind: str, tmp_path: Path) -> None:
    """Before and after every flush and every renaming; the last round is not killed."""
    steps = 1 + 2 * 5  # two files flushed and renamed, one renamed again: ten moments, and the one without
    paths = [tmp_path / str(step) / "net.json" for step in range(1, steps + 1)]
    for path in paths:
        path.parent.mkdir()
        if kind == "graph":
            save(path, 1.0)
        else:
            path.write_bytes(b"text 1")
            path.with_suffix(".safetensors").write_bytes(b"data 1")
    command = [sys.executable, "-c", STOP_AT_STEPS, kind, str(tmp_path), str(steps)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert ended == [str(int(-signal.SIGKILL))] * (steps - 1) + ["0"]
    found = set()
    for path in paths:
        if kind == "graph":
            found.add(int(sg.load(path)(np.ones(4))[0]))
        else:
            text, data = certificate(path)
            assert text[-1:] == data[-1:]
            found.add(int(text[-1:]))
        assert all(map(LITTER.fullmatch, litter(path.parent))), litter(path.parent)
        if kind == "graph":
            save(path, 3.0)  # what was left does not disturb it
            assert sg.load(path)(np.ones(4)).tolist() == [3.0] * 4
    assert found == {1, 2}
    assert litter(paths[-1].parent) == set()


def kill_saves(folder: Path, number: signal.Signals, times: int, seed: int) -> set[int]:
    """What was found after each kill; every time, a pair that belongs together."""
    rng, path, found = random.Random(seed), folder / "net.json", set()
    for _ in range(times):
        command = [sys.executable, "-c", SAVE_FOR_EVER, str(path), str(CELLS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as saver:
            saver.stdout.readline()  # a first pair is there
            time.sleep(rng.uniform(0, 0.2))
            saver.send_signal(number)
        value = sg.load(path)(np.zeros(CELLS))[0]
        (w,) = (a for a in sg.load(path).constants.values() if a.size == CELLS)
        assert (w == value).all()
        found.add(int(value))
        assert all(map(LITTER.fullmatch, litter(folder))), litter(folder)
    save(path, 7.0, CELLS)
    assert (sg.load(path)(np.ones(CELLS)) == 7).all()
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, *([signal.SIGKILL] if hasattr(signal, "SIGKILL") else [])])
def test_killed_at_random_the_old_or_the_new_pair_is_there(number: signal.Signals, tmp_path: Path) -> None:
    assert kill_saves(tmp_path, number, 2, seed=1)


@pytest.mark.slow
def test_killed_often_the_old_or_the_new_pair_is_there(tmp_path: Path) -> None:
    assert len(kill_saves(tmp_path, signal.SIGKILL, 300, seed=2)) > 5
