"""The steps of action.yml and the hook for pre-commit, run as they stand; only what they install is here already."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("typer")
from campaigns import save_net, save_pool  # noqa: E402

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


@pytest.fixture
def models(tmp_path: Path) -> Path:
    save_net(tmp_path / "good.onnx", [[1, 2], [3, -1]])
    save_net(tmp_path / "other.onnx", [[1, 2], [3, -2]])
    save_pool(tmp_path / "wrong.onnx", 5)  # ONNX Runtime pads without the dilation
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    paths = {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "PATH": path}
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **paths}


def run_step(name: str, folder: Path, **given: str) -> tuple[int, list[str], str]:
    """Exit code, lines and the run's summary of a step, with the inputs of the action as its `env` says."""
    inputs = {key: given.get(key, about.get("default", "")) for key, about in ACTION["inputs"].items()}
    env = environment(folder)
    for key, text in STEPS[name]["env"].items():
        env[key] = inputs[text.removeprefix("${{ inputs.").removesuffix(" }}")]
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]]  # as GitHub starts it
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    summary = folder / "summary.md"
    return done.returncode, done.stdout.splitlines(), summary.read_text() if summary.exists() else ""


def test_every_input_reaches_a_step() -> None:
    used = {v for step in STEPS.values() for v in step.get("env", {}).values()} | {str(STEPS["compare"]["if"])}
    assert all(any(f"inputs.{key}" in text for text in used) for key in ACTION["inputs"])
    assert all("${{" not in step["run"] for step in STEPS.values())  # a name of a file is no code


def test_a_right_model_passes_and_a_wrong_layer_is_an_error(models: Path) -> None:
    code, lines, summary = run_step("audit", models, model="good.onnx")
    assert (code, [line for line in lines if line.startswith("::")]) == (0, [])
    assert summary.startswith(("### exact: good.onnx", "### rounding: good.onnx"))
    code, lines, summary = run_step("audit", models, model="wrong.onnx")
    assert code == 1
    (line,) = (line for line in lines if line.startswith("::"))
    assert line.startswith("::error file=wrong.onnx,title=pool (max_pool k2 d2 p1)::differs")
    assert "| pool | max_pool k2 d2 p1 | differs |" in summary


def test_arguments_are_words_and_what_cannot_run_is_an_error(models: Path) -> None:
    code, lines, _ = run_step("audit", models, model="good.onnx", arguments="--shape x=1,2 --unusual note")
    assert code == 0
    code, lines, _ = run_step("audit", models, model="missing.onnx")
    assert code != 0
    assert any(line.startswith("::error file=missing.onnx") for line in lines)


def test_the_last_release_is_compared(models: Path) -> None:
    assert run_step("compare", models, model="good.onnx", previous="good.onnx")[0] == 0
    code, lines, _ = run_step("compare", models, model="good.onnx", previous="other.onnx")
    assert code == 1
    assert any(line.startswith("::error file=good.onnx,title=differs::") for line in lines)


@pytest.mark.parametrize(
    ("names", "right"), [(["good.onnx", "other.onnx"], True), (["wrong.onnx", "good.onnx"], False)]
)
def test_the_hook_audits_each_file(names: list[str], right: bool, models: Path) -> None:
    done = subprocess.run(
        [*shlex.split(HOOK["entry"]), *names], cwd=models, env=environment(models), capture_output=True, text=True
    )
    assert (done.returncode == 0) == right, done.stdout + done.stderr


def test_texts_cannot_end_an_annotation() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import annotate

    said: dict[str, Any] = {"verdict": "differs", "layers": [], "notes": ["100 %\n::error::forged"]}
    (line,) = annotate.annotations(said, "a,b:c.onnx")
    assert line == "::error file=a%2Cb%3Ac.onnx,title=differs::100 %25%0A::error::forged"
