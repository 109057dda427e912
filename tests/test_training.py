"""examples/train.py: it learns, it resumes to the last bit, and its command line keeps its promises."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import specgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import common
import train

STEPS = 80
STOP, WHOLE = 23, 31  # STOP divides neither the epochs of 179 steps nor the 20 steps between two looks at the test set
NEEDS = {"torch": ("torch",), "jax": ("jax", "optax")}


def need(*packages: str) -> None:
    missing = [p for p in (*packages, "sklearn", "tqdm", "matplotlib", "safetensors") if find_spec(p) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def script(*options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", train.__file__, *map(str, options)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    return run


class Finished(NamedTuple):
    engine: str
    run: subprocess.CompletedProcess[str]
    checkpoint: Path
    curve: Path


@pytest.fixture(scope="module", params=["torch", pytest.param("jax", marks=pytest.mark.slow)])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run on digits that nobody interrupted."""
    need(*NEEDS[request.param])
    folder = tmp_path_factory.mktemp(request.param)
    files = folder / "digits.safetensors", folder / "digits.png"
    options = "--engine", request.param, "--steps", STEPS, "--checkpoint", files[0], "--curve", files[1], "--json"
    return Finished(request.param, script(*options), *files)


def test_lenet_learns_digits(finished: Finished) -> None:
    result = json.loads(finished.run.stdout)
    assert result["accuracy"] > 0.95
    assert 0 < result["loss"] < 0.5
    assert result["seconds"] > 0
    assert (result["net"], result["engine"], result["steps"]) == ("lenet", finished.engine, STEPS)


def test_progress_goes_to_stderr(finished: Finished) -> None:
    assert f"{STEPS}/{STEPS}" in finished.run.stderr
    assert len(finished.run.stdout.splitlines()) == 1


def test_curve_is_a_picture(finished: Finished) -> None:
    data = finished.curve.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (1050, 780)


@pytest.fixture
def compiled_once(tmp_path: Path) -> Iterator[None]:
    """Three runs of one program: XLA compiles it for the first."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    settings: dict[str, Any] = {
        "jax_compilation_cache_dir": str(tmp_path / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.parametrize("engine", NEEDS)
def test_resumed_run_ends_with_the_same_bits(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    need(*NEEDS[engine])
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)  # this process has other tests to run
    if engine == "jax":
        request.getfixturevalue("compiled_once")
    files = [tmp_path / "whole.safetensors", tmp_path / "stopped.safetensors"]
    options = [["--engine", engine, "--batch", "8", "--checkpoint", str(file)] for file in files]
    train.main([*options[0], "--steps", str(WHOLE)])
    train.main([*options[1], "--steps", str(STOP)])
    assert sg.load_params(files[1])["step"] == [STOP]
    train.main([*options[1], "--steps", str(WHOLE), "--resume"])
    whole, resumed = map(sg.load_params, files)
    for part in ("params", "momentum", "losses", "step"):
        wanted, found = common.flat({part: whole[part]}), common.flat({part: resumed[part]})
        assert wanted.keys() == found.keys()
        assert all(found[path].tobytes() == wanted[path].tobytes() for path in wanted), part


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "32"], "was made with batch 64, lr 0.05, seed 0, threads 1; these are batch 32, lr 0.05, seed 0"),
        (["--steps", "5"], "has made 80 steps already; --steps is 5"),
    ],
)
def test_resume_refuses_what_it_cannot_continue(finished: Finished, options: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        train.main(["--checkpoint", str(finished.checkpoint), "--resume", *options])


def test_resnet18_trains_and_leaves_its_statistics_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("torch")
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)  # this process has other tests to run
    file = tmp_path / "resnet18.safetensors"
    train.main(["--net", "resnet18", "--engine", "torch", "--steps", "3", "--checkpoint", str(file), "--json"])
    assert np.isfinite(json.loads(capsys.readouterr().out)["loss"])
    before = common.flat(train.fresh(train.TASKS["resnet18"], seed=0).params)
    after = common.flat(sg.load_params(file)["params"])
    moved = {path: not np.array_equal(before[path], after[path]) for path in before}
    assert moved == {path: common.learnable(path) for path in before}


@pytest.mark.parametrize("engine", NEEDS)
def test_parameters_keep_their_names_in_whatever_order_they_come(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX sorts dicts, so a checkpoint of one engine has another order than the network."""
    need(*NEEDS[engine])
    task = train.TASKS["lenet"]
    run = train.fresh(task, seed=0)
    mixed = [{key: tree[key] for key in reversed(tree)} for tree in (run.params, run.momentum)]
    if engine == "torch":
        monkeypatch.setattr("torch.set_num_threads", lambda _: None)  # this process has other tests to run
    found, _ = train.TRAINERS[engine](task, *mixed, train.parse([])).state()
    wanted = common.flat(run.params)
    assert all(np.array_equal(a, wanted[path]) for path, a in common.flat(found).items())


def test_an_epoch_shows_every_image_once() -> None:
    data = train.Data(np.arange(12), np.arange(12) + 100, np.arange(0), np.arange(0))
    first, second = ([data.batch(step, 4, seed=0) for step in steps] for steps in (range(3), range(3, 6)))
    for epoch in (first, second):
        assert sorted(np.concatenate([x for x, _ in epoch])) == list(range(12))
        assert all(np.array_equal(labels, x + 100) for x, labels in epoch)
    assert not np.array_equal(first[0][0], second[0][0])


def test_smoothing_keeps_a_geometric_sequence() -> None:
    losses = [2.0**-k for k in range(9)]
    np.testing.assert_allclose(train.smoothed(losses, 3), losses, rtol=1e-12)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(SystemExit, match="--batch must be at most 512, the images there are; got 513"):
        train.main(["--net", "resnet18", "--batch", "513"])


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        train.main(["--help"])
    assert "example:" in (text := capsys.readouterr().out)
    assert "python examples/train.py --net lenet --engine torch" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--resume"], "--resume needs --checkpoint"), (["--steps", "0"], "--steps must be positive")],
)
def test_bad_options_are_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        train.main(options)
    assert message in capsys.readouterr().err
