"""A record survives whatever stops the run, and is never mixed with another run's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from specgrad.check.models.checkpoint import Checkpoint, RecordError, digest_of, is_record


def test_what_was_torn_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpoint(path, "preserve", "d") as record:
        for k in range(3):
            record.add(k, {"verdict": "proven", "margin": k / 2})
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for stop in range(len(whole) + 1):
        path.write_bytes(whole[:stop])
        with Checkpoint(path, "preserve", "d") as record:
            assert len(record.done) == whole[start:stop].count(b"\n")
            record.add(7, {"verdict": "differs"})
        with Checkpoint(path, "preserve", "d") as record:
            assert record.done[7] == {"verdict": "differs"}
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_other_runs_and_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Checkpoint(path, "preserve", "d").__exit__()
    for kind, digest, text in (("audit", "d", "a run of preserve"), ("preserve", "e", "another run")):
        with pytest.raises(RecordError, match=text):
            Checkpoint(path, kind, digest)
    for foreign in (b"hello\n", b"{}\n", b"no line end"):
        path.write_bytes(foreign)
        with pytest.raises(RecordError, match="no record"):
            Checkpoint(path, "preserve", "d")
        assert path.read_bytes() == foreign
        assert not is_record(foreign)


def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpoint(path, "preserve", "d") as first:
        first.add(0, {"verdict": "proven"})
        with pytest.raises(RecordError, match="another process"):
            Checkpoint(path, "preserve", "d")
        first.add(1, {"verdict": "differs"})
    with Checkpoint(path, "preserve", "d") as again:
        assert again.done == {0: {"verdict": "proven"}, 1: {"verdict": "differs"}}


def test_damage_in_the_middle_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Checkpoint(path, "preserve", "d") as record:
        record.add(0, {})
        record.add(1, {})
        record.add(2, {"verdict": "differs"})
    lines = path.read_bytes().splitlines(keepends=True)
    changed = {
        "a line that is none": ([lines[0], b"{bad}\n", *lines[2:]], 2),
        "another verdict": ([*lines[:3], lines[3].replace(b"differs", b"proven"), b""], 4),
        "another verdict with a digest of its own": ([*lines[:3], lines[3].replace(b'2,"v', b'1,"v')], 4),
        "a line left out": ([lines[0], *lines[2:]], 2),
        "lines in another order": ([lines[0], lines[2], lines[1], lines[3]], 2),
        "a line twice": ([*lines[:3], lines[2], lines[3]], 4),
        "a line without digest": ([*lines, b'{"number":3}\n'], 5),
        "a first line that says more": ([lines[0].replace(b',"chain', b',"seed":1,"chain'), *lines[1:]], 1),
        "a line nested a million times": ([*lines, b"[" * 1_000_000 + b"\n"], 5),
    }
    for what, (text, number) in changed.items():
        path.write_bytes(b"".join(text))
        with pytest.raises(RecordError, match=f"line {number} "):
            Checkpoint(path, "preserve", "d")
        assert path.read_bytes() == b"".join(text), what


def test_digests_tell_arrays_and_texts_apart() -> None:
    parts = ["ab", b"ab", np.zeros(2), np.zeros(2, np.float32), np.zeros((1, 2)), np.ones(2)]
    assert len({digest_of([p]) for p in parts}) == len(parts)
    assert digest_of(["a", "b"]) != digest_of(["ab"])
    assert digest_of([np.arange(6).reshape(2, 3).T]) == digest_of([np.ascontiguousarray(np.arange(6).reshape(2, 3).T)])


WRITER = """import sys, time
from specgrad.check.models.checkpoint import Checkpoint
with Checkpoint(sys.argv[1], "preserve", "d") as record:
    for k in range(100_000):
        if k not in record.done:
            record.add(k, {"text": "x" * 3000})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_kill_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for _ in range(3):
        before = path.stat().st_size if path.exists() else 0
        worker = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], env=os.environ)
        while (path.stat().st_size if path.exists() else 0) < before + 20_000 and worker.poll() is None:
            time.sleep(0.005)
        with pytest.raises(RecordError, match=r"run.jsonl is being written by another process"):
            Checkpoint(path, "preserve", "d")
        worker.kill()
        worker.wait()
        with Checkpoint(path, "preserve", "d") as record:
            assert sorted(record.done) == list(range(len(record.done)))
            assert len(record.done) > 0
