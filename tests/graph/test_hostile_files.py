"""Files that others wrote, or that broke: one FileError for any bytes; nothing overwritten, nothing half-written."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg
from pace import slower, stretched
from specgrad.errors import FileError
from specgrad.op import REGISTRY
from specgrad.window import Strided, Window

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


HUNT = Path(__file__).parents[1] / "hostile.py"


def hunt(kind: str, count: int) -> None:
    """In a process of its own: every mutant read and used, or refused by one of our errors in one line."""
    done = subprocess.run([sys.executable, HUNT, kind, "0", str(count)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["bad"] == []
    assert sum(found["verdicts"].values()) == count
    assert found["verdicts"]["used"] > count / 50, "mutants should not all be refused at the door"
    assert found["verdicts"]["refused"] > count / 4
    assert found["seconds"][0] < stretched(10)
    assert found["peak_mb"] < 2000


@linux
@pytest.mark.parametrize(("kind", "count"), [("graphs", 30), ("params", 200)])
def test_mutants_are_used_or_refused_with_one_error(kind: str, count: int) -> None:
    hunt(kind, count)


@linux
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"), [("graphs", 20_000), ("params", 20_000), ("properties", 20_000), ("onnx", 20_000)]
)
def test_many_mutants_are_used_or_refused_with_one_error(kind: str, count: int) -> None:
    hunt(kind, count)


@linux
def test_the_hunt_sees_what_is_wrong() -> None:
    import hostile

    def foreign(rng) -> str:
        raise IndexError

    def two_lines(rng) -> str:
        error = FileError.__mro__[1]("load", "one line, as every error of ours is made")
        error.args = ("two\nlines",)
        raise error

    for case in (foreign, two_lines):
        assert [b["number"] for b in hostile.hunt(case, 3, 2)["bad"]] == [3, 4]


WRONG = {
    "leaky_relu": {"slope": "0.1"},
    "softplus": {"beta": 0},
    "clamp": {"low": True, "high": None},
    "power": {"exponent": 10**9},
    "sum": {"axes": [True]},
    "concat": {"axis": False},
    "fill": {"value": None},
    "reshape": {"shape": [2.0]},
}


@pytest.mark.parametrize("name", WRONG)
def test_parameters_of_another_type_are_refused(name: str, tmp_path: Path) -> None:
    sg.save(sg.trace(lambda x: sg.relu(x), (2,)), tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_text())
    shape = [] if name == "sum" else [2]
    data["nodes"][1] |= {"op": name, "params": WRONG[name], "shape": shape}
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match=f"^load: {next(iter(WRONG[name]))} of node relu must be "):
        sg.load(tmp_path / "a.json")


def test_what_an_error_quotes_of_a_file_is_one_short_line(tmp_path: Path) -> None:
    for name in ("a\nb", "\x1b[2J", "\u202e", "x" * 10**5):
        (tmp_path / "a.json").write_text(json.dumps({"format": name}))
        with pytest.raises(FileError) as caught:
            sg.load(tmp_path / "a.json")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 700


HUGE = {
    "cells": lambda: sg.trace(lambda x: sg.relu(x), (10**9,)),
    "padding": lambda: sg.trace(lambda x: sg.max_pool(x, (3,), padding=10**9), (3,)),
    "dilation": lambda: sg.trace(lambda x: sg.max_pool(x, (2,), dilation=10**9, padding=10**9), (3,)),
    "padding that no window reaches": lambda: sg.trace(
        lambda x: sg.apply(REGISTRY["winner"], x, window=Window((Strided(5, 2, 3, 1, 10**12, 2, 2),))), (5,)
    ),
    "no cells": lambda: sg.trace(lambda x: sg.relu(x), (0, 2**35, 2**35)),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_over_the_budget_are_refused(name: str, tmp_path: Path) -> None:
    graph = HUGE[name]()
    sg.save(graph, tmp_path / "a.json")
    with pytest.raises(FileError, match=r"needs \d+ bytes; byte_budget=2147483648 allows less"):
        sg.load(tmp_path / "a.json")
    assert sg.load(tmp_path / "a.json", byte_budget=2**80).nodes == graph.nodes


@pytest.mark.parametrize("engine", ["numpy", "torch", "jax.numpy"])
def test_large_whole_numbers_are_floats_on_every_engine(engine: str) -> None:
    module = pytest.importorskip(engine)
    x = module.ones(2)
    for n, same in ((2**31, 2.0**31), (-(2**63), -(2.0**63)), (10**30, 1e30), (Fraction(1, 2), 0.5)):
        assert float(sg.mul(x, n)[0]) == float(sg.mul(x, same)[0])
        assert float(sg.clamp(x, low=n)[0]) == float(sg.clamp(x, low=same)[0])
        assert float(sg.apply(REGISTRY["fill"], x, value=n)[0]) == float(module.ones(1)[0] * same)
    with pytest.raises(sg.ScalarError, match="a number of 1329 bits is no float"):
        sg.mul(x, 10**400)


def test_a_negative_eps_is_the_formula_on_torch() -> None:
    """(3 - 1) * (2 / sqrt(1.25 - 0.25)) + 4; PyTorch's own batch_norm refuses it."""
    torch = pytest.importorskip("torch")
    given = [np.full((3, 2, 1), 3.0), *(np.full(2, v) for v in (1.0, 1.25, 2.0, 4.0))]
    graph = sg.trace(lambda x, *parts: sg.batch_norm(x, *parts, eps=-0.25), *(a.shape for a in given))
    assert (graph(*given) == 8).all()
    assert (sg.compile(graph, "torch")(*map(torch.from_numpy, given)) == 8).all()


def test_a_gap_between_no_cells_costs_nothing_on_torch() -> None:
    torch = pytest.importorskip("torch")
    pad = REGISTRY["pad"]
    assert sg.apply(pad, torch.ones(1), widths=((1, 1, 2**40),)).tolist() == [0, 1, 0]


def test_strides_of_a_billion_are_shown_at_once() -> None:
    """Read backwards, a stride is as many cases as it is long: no table of them is made."""
    window = Window((Strided(3, 1, 10**9, 1, 0, 0, 1),))
    graph = sg.trace(lambda x: sg.apply(REGISTRY["avg_spread"], x, window=window, divisor="padded"), (1,))
    pace, began = slower(), time.process_time()
    assert str(graph)
    assert time.process_time() - began < stretched(2, pace)


def test_a_step_that_is_never_taken_costs_nothing_on_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    pace, began = slower(), time.process_time()
    y = sg.smooth_max_pool(jnp.ones((1, 2, 3)), (2, 2), stride=(1, 10**5), beta=1)
    np.testing.assert_allclose(y, np.full((1, 1, 1), 1 + np.log(4)), rtol=1e-6)
    assert time.process_time() - began < stretched(10, pace)


def pair(folder: Path) -> None:
    for name, w in (("a", np.ones(2)), ("b", np.full(2, 5.0))):
        sg.save(sg.trace(lambda x, w=w: x * w, (2,)), folder / f"{name}.json")


def test_weights_of_another_graph_are_refused(tmp_path: Path) -> None:
    pair(tmp_path)
    (tmp_path / "b.safetensors").replace(tmp_path / "a.safetensors")
    with pytest.raises(FileError, match=r"the arrays beside a\.json are not those it was saved with"):
        sg.load(tmp_path / "a.json")


def test_files_of_version_1_still_load(tmp_path: Path) -> None:
    pair(tmp_path)
    data = json.loads((tmp_path / "a.json").read_text())
    assert (data["version"], len(data.pop("arrays"))) == (2, 64)
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="arrays"):
        sg.load(tmp_path / "a.json")  # a digest taken away is not an older file
    (tmp_path / "a.json").write_text(json.dumps({**data, "version": 1}))
    assert sg.load(tmp_path / "a.json")(np.ones(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("where", [(), ("nodes", 0), ("nodes", 2, "args", 0), ("inputs", 0)])
def test_unknown_keys_are_refused(where: tuple, tmp_path: Path) -> None:
    sg.save(sg.trace(lambda p: 2 * (p["x"] + 1), {"x": (2,)}), tmp_path / "a.json")
    data = json.loads((tmp_path / "a.json").read_text())
    inside = data
    for key in where:
        inside = inside[key]
    inside["surprise"] = 1
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(FileError, match="unknown key 'surprise'"):
        sg.load(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.json", "a.safetensors"])
@pytest.mark.parametrize("content", [b"my notes", b'{"format": "mine"}', struct.pack("<Q", 2) + b"{}"])
def test_foreign_files_are_kept(name: str, content: bytes, tmp_path: Path) -> None:
    graph = sg.trace(lambda x: x * np.ones(2), (2,))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match="exists and was not written by this function"):
        sg.save(graph, tmp_path / "a.json")
    with pytest.raises(FileError, match="exists and was not written by this function"):
        sg.save_params({"w": np.ones(2)}, tmp_path / name)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, content)]
    sg.save(graph, tmp_path / "a.json", force=True)
    sg.save(graph, tmp_path / "a.json")
    assert sg.load(tmp_path / "a.json")(np.ones(2)).tolist() == [1.0, 1.0]


def test_a_graph_does_not_overwrite_parameters(tmp_path: Path) -> None:
    sg.save_params({"w": np.ones(2)}, tmp_path / "net.safetensors")
    with pytest.raises(FileError, match=r"net\.safetensors exists"):
        sg.save(sg.trace(lambda x: x * np.ones(2), (2,)), tmp_path / "net.json")
    assert sg.load_params(tmp_path / "net.safetensors")["w"].tolist() == [1.0, 1.0]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sg.save(sg.trace(lambda x: x * np.zeros(2), (2,)), tmp_path / "a.json")
    with pytest.raises(OSError, match="No space left"):
        sg.save_params({"w": np.ones(2)}, tmp_path / "p.safetensors")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
