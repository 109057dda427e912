"""The device of `plan.run`: cpu, and meta as a witness that nothing stays behind. No CUDA device has run this."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.errors import ParameterError, UnsupportedError
from specgrad.scale import jobs, plan_file, tiles, torch_devices
from specgrad.scale.plan_file import Blueprint, blueprint_of
from specgrad.scale.tile_job import TileRunner
from store_networks import given, plan_at, read, stored

torch = pytest.importorskip("torch")
pytest.importorskip("tensorstore")
pytest.importorskip("zarr")
SIZE = 40


def arguments(plan: Any, params: dict[str, Any]) -> dict[int, Any]:
    return {p: params[plan.graph.nodes[p].name.rpartition(".")[2]] for p in plan.graph.input_positions[:-1]}


def test_all_of_a_tile_is_on_the_device() -> None:
    """Of two devices PyTorch computes nothing: weights, constants, data, and what passes have computed."""
    shift = np.arange(2.0 * SIZE * SIZE).reshape(1, 2, SIZE, SIZE)

    def net(p: Any, x: Any) -> Any:
        y = sg.conv(p["w"], None, x, padding=1) + shift
        return y - sg.global_avg_pool(y, rank=2), sg.argmax(y, axis=1)

    graph = sg.trace(net, {"w": (2, 1, 3, 3)}, (1, 1, SIZE, SIZE))
    plan = tiles(graph, 16, passes=True)
    weight, x = np.ones((2, 1, 3, 3), np.float32), np.ones((1, 1, SIZE, SIZE), np.float32)
    (w, data), known = graph.input_positions, {p: np.zeros(graph.nodes[p].shape, np.float32) for p in plan.statistics}
    here = blueprint_of(plan, {w: weight}, "torch", np.dtype(np.float32))
    runner = TileRunner(plan, Blueprint({**here.about, "device": "meta"}, here.arrays))
    runner.known |= known
    for tile in plan:
        values = runner.run(tile, {data: x[tile.reads]})
        assert {v.device.type for v in values.values()} == {"meta"}
        assert {p: tuple(v.shape) for p, v in values.items()} == {
            p: tuple(b - a for a, b in tile.boxes[p]) for p in values
        }
        partial = replace(plan.passes[0][0], programs=runner.programs)
        assert partial.partial_reduction(plan.statistics[0], runner._input_values(partial, {data: x[partial.reads]}))


def test_the_device_is_part_of_the_job(tmp_path: Path) -> None:
    params, x = given(SIZE)
    plan, source = plan_at(SIZE, (16, 24)), stored(tmp_path / "x.zarr", x, (1, 1, 8, 8))
    for name, options in (("default", {}), ("cpu", {"device": "cpu"})):
        targets = [str(tmp_path / f"{name}-{k}.zarr") for k in range(3)]
        plan.run(params, source, *targets, executor="loop", **options)
        for path, whole in zip(targets, plan.graph(params, x.astype(np.float32)), strict=True):
            assert np.array_equal(read(path), whole)
        assert jobs.status(f"{targets[0]}.job").about["identity"]["plan"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("device", "engine", "kind", "words"),
    [
        ("meta", "torch", ParameterError, "'meta' has shapes and no numbers: there would be nothing to write"),
        ("tpu", "torch", ParameterError, "device must be one of cpu, cuda; got 'tpu'"),
        ("cuda:1", "torch", ParameterError, "device must be one of cpu, cuda; got 'cuda:1'"),
        ("cuda", "numpy", ParameterError, "device='cuda' goes with engine='torch'; got engine='numpy'"),
        ("cuda", "torch", UnsupportedError, "needs CUDA devices of one kind in this machine, and PyTorch sees none"),
    ],
)
def test_devices_are_refused_by_name(
    device: str, engine: str, kind: type[Exception], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_devices, "cuda_names", list)
    params, x = given(SIZE)
    source = stored(tmp_path / "x.zarr", x, (1, 1, 8, 8))
    with pytest.raises(kind, match=words):
        plan_at(SIZE, 16).run(
            params, source, *(tmp_path / n for n in "yzc"), device=device, engine=engine, executor="loop"
        )
    assert not (tmp_path / "y").exists()


def test_devices_of_two_kinds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums may differ, and nobody could say which tile was computed by which."""
    monkeypatch.setattr(torch_devices, "cuda_names", lambda: ["B", "A", "B"])
    with pytest.raises(UnsupportedError, match="it has several kinds: A, B"):
        torch_devices.check_device("cuda", "torch")
    monkeypatch.setattr(torch_devices, "cuda_names", lambda: ["A", "A"])
    torch_devices.check_device("cuda", "torch")
    monkeypatch.setattr(plan_file, "cuda_names", lambda: ["A", "A"])
    assert plan_file.versions("torch", "cuda")["processor"] == "A" != plan_file.versions("torch")["processor"]


CLAIM = """
import sys
from pathlib import Path
from specgrad.scale.torch_devices import claimed
print(claimed(["a", "b"], Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_a_process_takes_a_device_that_no_other_has(tmp_path: Path) -> None:
    started = []

    def start() -> Any:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", CLAIM, str(tmp_path)], **pipes)
        started.append(process)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    try:
        assert (start(), start()) == ("0", "1")
        with pytest.raises(jobs.JobError, match=r"all 2 devices are held by other workers: .* give fewer workers="):
            torch_devices.claimed(["a", "b"], tmp_path)
        started[0].kill()
        started[0].wait()
        assert start() == "0"
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_float32_is_float32_on_cuda() -> None:
    cudnn = torch.backends.cudnn
    before = cudnn.allow_tf32, cudnn.deterministic
    with torch_devices.same_bits("cuda"):
        assert (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark) == (False, True, False)
    with torch_devices.same_bits("cpu"):
        assert (cudnn.allow_tf32, cudnn.deterministic) == before
