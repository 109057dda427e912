"""The house keeps its promises: light import, one-way dependencies, documents that match the code."""

from __future__ import annotations

import ast
import doctest
import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import specgrad as sg
import specgrad.functional as F
from pace import slower, stretched

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "specgrad"


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


class Worker:
    """What xdist's scheduler knows of a process: which tests it was sent."""

    shutting_down = False

    def __init__(self, number: int) -> None:
        self.gateway, self.done = SimpleNamespace(id=number), 0
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None: ...


NAMES = [f"tests/{room}/test_{k}.py::test[{i}]" for room in "abc" for k in range(3) for i in range(4)]
NAMES += [f"src/specgrad/{room}/x.py::x{i}" for room in "de" for i in range(3)]


def scheduled(count: int) -> tuple[Any, list[Worker]]:
    """xdist's own scheduler, which asks its hook for ours, and the workers that it has given tests to."""
    newhooks, rooms = pytest.importorskip("xdist.newhooks"), pytest.importorskip("rooms")
    assert newhooks.pytest_xdist_make_scheduler
    config = SimpleNamespace(getvalue=lambda _: [f"{count}*popen"], option=SimpleNamespace(loadscopereorder=True))
    scheduler = rooms.RoomScheduling(config, SimpleNamespace(loadscopesched=lambda *_: None))
    workers = [Worker(k) for k in range(count)]
    for worker in workers:
        scheduler.add_node(worker)
        scheduler.add_node_collection(worker, NAMES)
    scheduler.schedule()
    return scheduler, workers


def finish(scheduler: Any, workers: list[Worker]) -> None:
    while left := [w for w in workers if w.done < len(w.sent)]:
        for worker in left:
            scheduler.mark_test_complete(worker, worker.sent[worker.done])
            worker.done += 1


def test_a_worker_takes_a_whole_room() -> None:
    scheduler, workers = scheduled(2)
    finish(scheduler, workers)
    assert sorted(workers[0].sent + workers[1].sent) == list(range(len(NAMES)))
    group_of = pytest.importorskip("rooms").group_of
    groups = [{group_of(NAMES[i]) for i in worker.sent} for worker in workers]
    assert min(map(len, groups)) > 0
    assert not groups[0] & groups[1]


@pytest.mark.parametrize("before", [0, 3])
def test_a_test_that_ends_its_worker_is_run_once(before: int) -> None:
    """xdist alone would have it end worker after worker; a test that hangs costs its time limit each time."""
    scheduler, (lost, other) = scheduled(2)
    for i in lost.sent[:before]:
        scheduler.mark_test_complete(lost, i)
    assert scheduler.remove_node(lost) == NAMES[lost.sent[before]]
    finish(scheduler, [other])
    assert sorted(lost.sent[: before + 1] + other.sent) == list(range(len(NAMES)))


def test_import_needs_numpy_alone() -> None:
    code = """
import sys, numpy
before = set(sys.modules)
import specgrad, specgrad.functional
print(sorted({m.partition('.')[0] for m in set(sys.modules) - before}))
"""
    loaded = set(ast.literal_eval(python(code)))
    assert loaded <= {"specgrad", "numpy", *sys.stdlib_module_names}, loaded - set(sys.stdlib_module_names)


def test_import_is_fast() -> None:
    """In CPU seconds, which a busy machine does not stretch as much as the clock."""
    code = "import numpy, time; s = time.process_time(); import specgrad; print(time.process_time() - s)"
    pace = slower()
    assert any(float(python(code)) < stretched(0.5, pace) for _ in range(5))  # the fastest, and no more than it takes


@pytest.mark.usefixtures("kept_workers")
def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=flags)
    assert found.attempted > 15
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120
    assert found.failed == 0


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("start/kernel.md", 3),
        ("start/build.md", 3),
        ("guide/library.md", 55),
        ("guide/checking.md", 11),
        ("guide/recording.md", 12),
        ("guide/evidence.md", 12),
        ("guide/compare.md", 10),
        ("guide/bounds.md", 11),
        ("guide/tolerance.md", 25),
        ("guide/decisions.md", 18),
        ("guide/accuracy.md", 8),
        ("guide/sizes.md", 12),
        ("guide/pictures.md", 16),
        ("guide/tiles.md", 44),
        ("guide/sharding.md", 22),
        ("guide/vectors.md", 10),
        ("reference/executions.md", 3),
        ("reference/contract.md", 20),
    ],
)
@pytest.mark.usefixtures("kept_workers")
def test_pages_with_examples(name: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS
    page = str(ROOT / "docs" / name)
    found = doctest.testfile(page, module_relative=False, optionflags=flags)
    assert found.attempted >= least
    assert found.failed == 0


@pytest.mark.parametrize("page", ["operators", "api"])
def test_generated_pages_are_current(page: str) -> None:
    document = runpy.run_path(str(ROOT / "tools" / f"make_{page}.py"))["document"]()
    assert (ROOT / "docs" / "reference" / f"{page}.md").read_text() == document


def test_the_tests_named_in_differences_exist() -> None:
    text = "".join(p.read_text() for p in (ROOT / "tests").rglob("*.py"))
    page = (ROOT / "docs" / "reference" / "differences.md").read_text()
    names = {word.rpartition("::")[2] for word in page.split("`") if "test_" in word.rpartition("::")[2]}
    names = {n for n in names if not n.endswith(".py")}
    assert len(names) > 8
    assert all(f"def {n}(" in text for n in names), [n for n in names if f"def {n}(" not in text]


def test_convolution_specification_is_quick() -> None:
    """Loops over taps, never over cells. The demand is one second; see benchmarks/core.txt."""
    draw = np.random.default_rng(0).normal
    x, w = draw(size=(64, 56, 56)), draw(size=(64, 64, 3, 3))
    pace, start = slower(), time.process_time()
    sg.conv(w, None, x, padding=1)
    assert time.process_time() - start < stretched(1, pace)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.relu(x, inplace=True), "relu [P5]: inplace=True is not supported; only False"),
        (lambda x: F.batch_norm(x, x, x, training=True), "batch_norm [P5]: training=True is not supported; only False"),
        (lambda x: F.cross_entropy(x, x, label_smoothing=0.1), "cross_entropy [P5]: label_smoothing=0.1 is not"),
        (lambda x: F.cross_entropy(x, x, ignore_index=0), "cross_entropy [P5]: ignore_index=0 is not supported"),
        (lambda x: F.cross_entropy(x, np.array([-100, 0])), "take: indices must lie in 0..1; got -100..0"),
        (lambda x: F.pad(x, (1, 1), mode="mirror"), "pad [P5]: mode must be one of constant, reflect, replicate, circ"),
        (lambda x: F.interpolate(x[None], scale_factor=2, mode="bilinear"), "interpolate [P5]: mode='bilinear' of 1"),
        (lambda x: F.conv2d(x, x), "conv2d: input must have 3 or 4 axes; got shape (2, 2)"),
        (lambda x: F.conv1d(x, x[None], padding="full"), 'conv1d [P5]: padding must be numbers, "valid" or'),
        (lambda x: sg.smooth_max_pool(x, (2,), beta=0), "smooth_max_pool [P5]: beta must be a finite number"),
        (lambda x: sg.global_max_pool(x, rank=1, ties="last"), "global_max_pool [P5]: ties must be \"all\", \"split\""),
        (lambda x: sg.avg_pool(x, (2,), divisor=0), "avg_pool [P5]: divisor must be a number other than 0; got 0"),
        (lambda x: sg.conv(x[None], None, x, groups=3), "conv [C1]: groups must divide the channels; got groups=3, w"),
        (lambda x: sg.conv(x[None], None, x[:1]), "conv [C1]: w (1, 2, 2) needs 2 input channels; got 1 in x (1, 2)"),
        (lambda x: sg.conv(x[None], x, x), "conv [C1]: b must have shape (1,); got (2, 2)"),
        (lambda x: sg.unpad(x, 1, rank=2), "unpad [W1]: removing 1 + 1 of 2 cells leaves none on axis 0; got input"),
        (lambda x: sg.add(x, np.ones(3)), "add: shapes (2, 2) and (3,) do not broadcast"),
        (lambda x: sg.exp(sg.exact(x)), "exp: exact rationals have no exp; use floats or balls (specgrad.balls)"),
        (lambda x: sg.relu(x.astype(complex)), "relu: cannot compute with dtype complex128; give floats"),
    ],
)  # fmt: skip
def test_refused_by_name(call, message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        call(np.ones((2, 2)))
    assert message in str(caught.value)


# --- .ci/slow ---------------------------------------------------------------------------------------------------------


def schedule_class():
    return runpy.run_path(str(ROOT / ".ci" / "slow"))["Schedule"]


def test_the_schedule_takes_first_what_has_waited_longest(tmp_path: Path) -> None:
    tests = [f"t.py::{name}[{i}]" for name in ("a", "b") for i in range(3)]
    items = [SimpleNamespace(nodeid=test) for test in tests]
    record = tmp_path / "slow.json"
    times = {"t.py::a[0]": 20, "t.py::a[1]": 10}
    known = {test: {"when": when, "seconds": 2.0, "outcome": "passed"} for test, when in times.items()}
    record.write_text(json.dumps(known))
    schedule = schedule_class()(0, (1, 1), record, 7)
    schedule.pytest_collection_modifyitems(items)
    assert [i.nodeid for i in items] == [f"t.py::{n}" for n in ("b[0]", "b[1]", "a[2]", "b[2]", "a[1]", "a[0]")]
    assert "t.py::a" in schedule.table()
    assert schedule.table().splitlines()[1].split() == ["t.py::a", "2/3", "4", "6"]  # 2 of 3 took 4 s: 3 take 6
    with pytest.raises(pytest.skip.Exception, match="the time is over"):
        schedule.pytest_runtest_setup(items[0])
    failed = SimpleNamespace(nodeid="t.py::b[0]", when="call", failed=True, duration=3.0, outcome="failed")
    schedule.pytest_runtest_logreport(failed)
    assert json.loads(record.read_text())["t.py::b[0]"].items() >= {"outcome": "failed", "seed": 7}.items()
    assert "--seed 7" in schedule.table()
    assert schedule.table().splitlines()[2].split() == ["t.py::b", "1/3", "1", "3", "9"]


def test_only_the_schedule_draws_afresh() -> None:
    """A run of the default suite is the same suite every time."""
    assert settings.get_profile("fixed").derandomize
    assert settings.get_profile("fixed").database is None
    assert not settings.get_profile("fresh").derandomize
    assert settings().derandomize == (os.environ.get("SPECGRAD_DRAWS", "fixed") == "fixed")


def test_parts_of_the_schedule_are_all_of_it() -> None:
    found = []
    for k in (1, 2, 3):
        items = [SimpleNamespace(nodeid=f"t.py::a[{i}]") for i in range(10)]
        schedule_class()(0, (k, 3), Path("none.json"), 7).pytest_collection_modifyitems(items)
        found += [i.nodeid for i in items]
    assert sorted(found) == [f"t.py::a[{i}]" for i in range(10)]
