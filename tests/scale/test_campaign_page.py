"""docs/guide/campaigns.md: its specs run, its tables are the kinds' own keys, its commands are commands."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
pytest.importorskip("zarr")
pytest.importorskip("tensorstore")
from campaigns import proving_spec, save_net, save_pool, written  # noqa: E402
from specgrad.cli.shared.exit_codes import USAGE  # noqa: E402
from specgrad.scale.campaign import KINDS, collect, read_spec, run  # noqa: E402
from specgrad.scale.campaign.keys import REQUIRED  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "campaigns.md").read_text()
SPECS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
VERDICTS = {
    "run-conformance": "findings",
    "run-audit": "findings",
    "run-audit-data": "ok",
    "run-properties": "findings",
    "run-samples": "ok",
    "run-instances": "ok",
    "run-tiles": "ok",
    "run-preserve": "ok",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """What the specs of the page name."""
    for name in ("models", "nets", "properties"):
        (tmp_path / name).mkdir()
    save_pool(tmp_path / "models" / "pool.onnx", "n")
    proving_spec(tmp_path / "nets")
    for name in ("p.vnnlib", "q.vnnlib"):
        (tmp_path / "nets" / name).rename(tmp_path / "properties" / name)
    (tmp_path / "images").mkdir()
    np.save(tmp_path / "images" / "first.npy", np.array([[1, 0.5], [0.25, 0.75], [0.5, 0.5]], np.float32))
    save_net(tmp_path / "net.onnx", [[1, 2], [3, -1]])
    (tmp_path / "instances.csv").write_text("nets/a.onnx,properties/p.vnnlib,20\n")
    np.savez(tmp_path / "data.npz", x=np.array([[1, 0.5], [0.5, 0.5]], np.float32), label=np.array([0, 0]))
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    w = onnx.numpy_helper.from_array(np.array([[[[0, 1, 0], [1, -4, 1], [0, 1, 0]]]], np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="edges", pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "g", [info("x", 1, [1, 1, "h", "w"])], [info("y", 1, [1, 1, "h", "w"])], [w])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), tmp_path / "edges.onnx"
    )
    from store_networks import stored

    stored(tmp_path / "scene.zarr", np.arange(40 * 40, dtype=np.uint8).reshape(1, 1, 40, 40), (1, 1, 8, 8))
    return tmp_path


@pytest.mark.parametrize("text", SPECS, ids=[re.search('folder = "(.*?)"', t)[1] for t in SPECS])
def test_every_spec_runs(text: str, place: Path) -> None:
    spec = read_spec(written(place, text))
    state = run(spec, executor="loop")
    assert (state.run, state.crashed) == (state.count, 0)
    result = collect(spec)
    assert result.verdict == VERDICTS[Path(spec.folder).name], result.to_json()


def test_every_kind_has_a_spec() -> None:
    assert {re.search('kind = "(.*?)"', t)[1] for t in SPECS} == set(KINDS)
    assert len(SPECS) == len(VERDICTS)


def table(kind: str) -> str:
    rows = []
    for name, key in KINDS[kind].KEYS.items():
        plain = key.default in (None, [], {})
        default = "needed" if key.default is REQUIRED else "" if plain else f"`{json.dumps(key.default)}`"
        rows.append(f"| `{name}` | {default} | {key.about} |".replace("|  |", "| |"))
    return "\n".join(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_are_the_keys(kind: str) -> None:
    assert table(kind) in PAGE


def test_its_commands_are_commands(monkeypatch) -> None:
    main = pytest.importorskip("specgrad.cli.main")
    lines = re.findall(r"specgrad (campaign (?:estimate|run|status|collect) spec\.toml[^#'\n`]*)", PAGE)
    assert len(lines) > 6
    for line in lines:
        command = main._command()
        _, group, rest = command.resolve_command(
            command.make_context("specgrad", ["--help"], resilient_parsing=True), shlex.split(line)
        )
        name, one, words = group.resolve_command(None, rest)
        one.make_context(name, words)


def test_the_job_of_kubernetes_is_one() -> None:
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    job = yaml.safe_load(text)
    assert (job["kind"], job["spec"]["completionMode"]) == ("Job", "Indexed")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-1] == str(job["spec"]["completions"])
    ignore, fail = job["spec"]["podFailurePolicy"]["rules"]
    assert (ignore["action"], ignore["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailJob", [USAGE])  # all others: another attempt
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    checker = pytest.importorskip("kubernetes_validate")
    for version in ("1.31", checker.latest_version()):
        checker.validate(job, version, strict=True)
        with pytest.raises(checker.ValidationError):
            checker.validate({**job, "spec": {**job["spec"], "completionMod": "Indexed"}}, version, strict=True)
