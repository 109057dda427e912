"""The command in this process, in a folder with a small network and files of no format."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from forks import Forks

PROPERTY = """(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= X_1 0.25)) (assert (<= X_1 1)) (assert (>= Y_1 3))"""

SPECS = {
    "c.toml": 'kind = "certify"\nfolder = "c"\nmodels = ["net.onnx"]\nproperties = ["p.vnnlib"]',
    "new.toml": 'kind = "certify"\nfolder = "new"\nmodels = ["net.onnx"]\nproperties = ["p.vnnlib"]',
    "audits.toml": 'kind = "audit"\nfolder = "a"\nmodels = ["*.onnx"]\nruntimes = ["onnxruntime"]',
    "ask.toml": 'kind = "conformance"\nfolder = "q"\nruntime = "onnxruntime"\noperators = ["relu"]\nquestions = 4',
    "bad.toml": "\x00 no format has this",
    "key.toml": 'kind = "certify"\nfolder = "c"\nmodel = ["net.onnx"]\nproperties = ["p.vnnlib"]',
    "kind.toml": 'kind = "prove"\nfolder = "c"',
    "place.toml": 'kind = "certify"\nmodels = ["net.onnx"]\nproperties = ["p.vnnlib"]',
    "value.toml": 'kind = "certify"\nfolder = "c"\nmodels = "net.onnx"\nproperties = ["p.vnnlib"]',
    "file.toml": 'kind = "certify"\nfolder = "c"\nmodels = ["nets/*.onnx"]\nproperties = ["p.vnnlib"]',
    "other.toml": 'kind = "certify"\nfolder = "c"\nmodels = ["net.onnx"]\nproperties = ["hard.vnnlib"]',
}
"""Campaigns; bad.toml and those after it cannot be, other.toml not in the folder that it names."""


def _save_clean(path: Path) -> None:
    """A file in which `profile` finds nothing, with its side file."""
    cases, digests = import_module("profile_cases"), import_module("specgrad.safety.profile.digests")
    data = (model := cases.base()).SerializeToString()
    path.write_bytes(data)
    path.with_name("clean.onnx.digests.json").write_text(json.dumps(digests.digests_of(model, None, data)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """relu(x @ [[1, 1], [1, -1]]), a property that holds, and files of no format."""
    onnx = pytest.importorskip("onnx")
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.array([[1, 1], [1, -1]], np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="h"), helper.make_node("Relu", ["h"], ["y"], name="y")]
    ends = [info("x", 1, [1, 2])], [info("y", 1, [1, 2])]
    file = helper.make_model(
        helper.make_graph(nodes, "g", *ends, [w]), opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    onnx.save(file, tmp_path / "net.onnx")
    _save_clean(tmp_path / "clean.onnx")
    (tmp_path / "p.vnnlib").write_text(PROPERTY)
    (tmp_path / "hard.vnnlib").write_text(PROPERTY.replace("(>= Y_1 3)", "(<= Y_0 Y_1)"))
    for name in ("bad.onnx", "bad.json", "bad.npy", "bad.npz", "bad.vnnlib"):
        (tmp_path / name).write_bytes(b"\xff\x00(no format has this")
    np.save(tmp_path / "x.npy", np.zeros((1, 2), np.float32))
    np.savez(tmp_path / "data.npz", x=np.array([[1, 0.5], [0.25, -1]], np.float32), labels=np.array([0, 1]))
    np.savez(
        tmp_path / "recorded.npz", x=np.float32([[1, 0.5]]), h=np.float32([[1.5, 0.5]]), y=np.float32([[1.5, 0.5]])
    )
    np.savez(tmp_path / "ties.npz", x=np.array([[0.7, 1e-9], [1, 0.5]], np.float32))
    np.savez(tmp_path / "nan.npz", x=np.array([[np.nan, 0]], np.float32))
    np.savez(tmp_path / "empty.npz", x=np.zeros((0, 2), np.float32))
    np.savez(tmp_path / "words.npz", x=np.array([["a", "b"]]))
    sg.save(sg.trace(lambda x: sg.relu(x), (1, 2)), tmp_path / "g.json")
    (tmp_path / "c.json").write_text("{}")
    for name, text in SPECS.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "c.safetensors").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def node_tests(folder: Path) -> None:
    """Two node tests of onnx in the folder "node": a product that is stored wrong, and an operator that is unknown."""
    files, x = import_module("node_test_files"), np.float32([0.1, 0.2])
    files.store(folder / "node", files.make("Mul", [x, x], [x]))
    files.store(folder / "node", files.make("Hardmax", [x], [x]))


@pytest.fixture(scope="session")
def campaign_records(tmp_path_factory) -> dict[str, bytes]:
    """What `campaign run c.toml` leaves in its folder."""
    return {}


@pytest.fixture(autouse=True)
def campaigned(request) -> None:
    """A campaign that is done, for commands that look at one."""
    given = [str(value) for value in getattr(getattr(request.node, "callspec", None), "params", {}).values()]
    if not any(text.startswith("campaign") for text in given):
        return
    folder, records = request.getfixturevalue("folder"), request.getfixturevalue("campaign_records")
    if not records:
        campaign = import_module("specgrad.scale.campaign")
        campaign.run(campaign.read_spec("c.toml"), executor="loop")
        records |= {str(p.relative_to(folder)): p.read_bytes() for p in (folder / "c").rglob("*") if p.is_file()}
    for name, data in records.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.fixture(autouse=True)
def _kept(request: pytest.FixtureRequest) -> None:
    """Commands in this process ask workers that earlier ones have started, unless a file says `NEW_WORKERS = True`."""
    if not getattr(request.module, "NEW_WORKERS", False):
        request.getfixturevalue("kept_workers")


def refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


class Here:
    """As `WorkerProcess`, in this process."""

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *error: object) -> None: ...

    def run(self, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)


@pytest.fixture
def estimated_here(monkeypatch) -> None:
    """Estimates of campaigns without the process that they are otherwise made in."""
    monkeypatch.setattr(import_module("specgrad.scale.campaign.estimate"), "WorkerProcess", Here)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Real processes that need not import NumPy and ONNX again."""
    yield from _forks()


@pytest.fixture(scope="session")
def torch_forks() -> Iterator[Forks]:
    """Nor PyTorch."""
    yield from _forks("torch")


def _forks(*more: str) -> Iterator[Forks]:
    if not hasattr(os, "fork"):
        pytest.skip("needs forks")
    yield (started := Forks(*more))
    started.close()


@pytest.fixture(scope="session")
def built_command() -> Callable[[], Any]:
    """The command line is parsed anew in every run, but not built anew from the annotations of its functions."""
    return cache(import_module("specgrad.cli.main")._command)


@pytest.fixture
def run(capsys, monkeypatch, built_command) -> Callable[[str], tuple[int, str, str]]:
    """run("show net.onnx") -> exit code, stdout, stderr; under --json stdout is one strict object."""

    main = import_module("specgrad.cli.main")
    monkeypatch.setattr(main, "_command", built_command)

    def command(text: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specgrad", *text.split()])
        with pytest.raises(SystemExit) as end:
            main.main()
        out, err = capsys.readouterr()
        if "--json" in text.split():
            assert isinstance(json.loads(out, parse_constant=refuse_constant)["verdict"], str)
        return int(end.value.code or 0), out, err

    return command
