"""`import specgrad` loads nothing; whoever asks for a name, an operator or an engine finds all of them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

import specgrad as sg
from specgrad.graph.graph import INPUT

BEYOND_NUMPY = 0.15


def python(text: str) -> str:
    """What a program prints, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    ours = "[m for m in sys.modules if m.startswith('specgrad.')]"
    assert python(f"import sys, specgrad; print('numpy' in sys.modules, {ours})") == "False ['specgrad.late_tables']\n"


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs what a process has used")
def test_the_import_costs_little_beyond_numpy() -> None:
    """Seconds of the processor, of the cheapest of three each."""

    def seconds(text: str) -> float:
        spent = []
        for _ in range(3):
            with subprocess.Popen([sys.executable, "-c", text]) as process:
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            spent.append(used.ru_utime + used.ru_stime)
        return min(spent)

    assert seconds("import numpy, specgrad") - seconds("import numpy") <= BEYOND_NUMPY


def test_every_public_name_is_there() -> None:
    assert set(sg.__all__) <= set(dir(sg))
    names = python("from specgrad import *; print(*dir())").split()
    assert set(sg.__all__) <= set(names)
    assert all(getattr(sg, name) is getattr(sg, name) for name in sg.__all__)
    with pytest.raises(AttributeError, match="module 'specgrad' has no attribute 'convolution'"):
        _ = sg.convolution


def test_rooms_are_found_by_name() -> None:
    assert python("import specgrad as sg; print(sg.window.Window.__name__, sg.bounds.__name__)") == (
        "Window specgrad.bounds\n"
    )


@pytest.mark.parametrize("module", ["op", "ops.conv", "graph.ir.node", "graph.files.save", "public_names"])
def test_the_registry_is_complete_whoever_asks(module: str) -> None:
    text = f"import specgrad.{module}; from specgrad.op import REGISTRY; print(*REGISTRY)"
    assert python(text).split() == list(sg.REGISTRY)  # in one order


def test_threads_that_ask_at_once_find_all_operators() -> None:
    text = """
import sys, threading
sys.setswitchinterval(1e-6)
counts = []
def ask(k):
    start.wait()
    if k % 2:
        import specgrad.ops.conv
    from specgrad.op import REGISTRY
    counts.append(len(REGISTRY))
start = threading.Barrier(8)
threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
for t in threads: t.start()
for t in threads: t.join()
print(*counts)
"""
    assert python(text).split() == [str(len(sg.REGISTRY))] * 8


@pytest.mark.parametrize("op", [sg.REGISTRY["conv"], INPUT], ids=repr)
def test_a_pickled_operator_is_read_where_nothing_is_loaded(op: sg.Op) -> None:
    assert python(f"import pickle; print(pickle.loads({pickle.dumps(op)!r}))") == f"{op!r}\n"


def test_an_engine_is_found_by_whoever_imports_an_operator_alone() -> None:
    pytest.importorskip("torch")
    text = "import torch; from specgrad.ops.activation import relu; print(type(relu(torch.ones(2))).__name__)"
    assert python(text) == "Tensor\n"
