"""Every recipe of docs/howto is run: commands in order, what they print, and the Python beside them."""

from __future__ import annotations

import doctest
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

FOLDER = Path(__file__).parents[1] / "docs" / "howto"
PAGES = sorted(p.name for p in FOLDER.glob("*.md") if p.name != "index.md")
FLAGS = doctest.IGNORE_EXCEPTION_DETAIL | doctest.ELLIPSIS
FEWER = {
    "inputs = 1000 ": "inputs = 6 ",
    "each = 20 ": "each = 2 ",
    "50 shards": "3 shards",
}  # a thousand takes minutes


def saved(path: Path, nodes: list, stored: dict[str, np.ndarray], shape: list) -> None:
    helper, info = onnx.helper, onnx.helper.make_tensor_value_info
    ends = [info("x", 1, shape)], [info("y", 1, None)]
    arrays = [onnx.numpy_helper.from_array(a, name) for name, a in stored.items()]
    graph = helper.make_graph(nodes, "net", *ends, arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def classifier(path: Path, extra: bool = False) -> None:
    """A convolution, a relu, a maximum, three classes; class 2 is far ahead. `extra`: a node that does nothing."""
    node, rng = onnx.helper.make_node, np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], name="relu"),
        node("MaxPool", ["r"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["m"], ["f"], name="flat"),
        node("Gemm", ["f", "v", "b"], ["y"], name="head"),
    ]
    if extra:
        nodes[1:2] = [node("Identity", ["c"], ["i"], name="same"), node("Relu", ["i"], ["r"], name="relu")]
    stored = {"w": rng.normal(size=(2, 1, 3, 3)) / 3, "v": rng.normal(size=(32, 3)) / 6, "b": np.array([0, 0, 9])}
    saved(path, nodes, {k: a.astype(np.float32) for k, a in stored.items()}, [1, 1, 8, 8])


def robust(x: np.ndarray) -> str:
    """No input within 0.001 of x has another output as large as the third."""
    names = [f"X_{i}" for i in range(len(x))] + ["Y_0", "Y_1", "Y_2"]
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert (>= X_{i} {v - 1e-3:.6f})) (assert (<= X_{i} {v + 1e-3:.6f}))" for i, v in enumerate(x)]
    return "\n".join([*lines, "(assert (or (and (>= Y_0 Y_2)) (and (>= Y_1 Y_2))))"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that recipes name."""
    import onnxruntime

    monkeypatch.chdir(tmp_path)
    classifier(tmp_path / "model.onnx")
    classifier(tmp_path / "optimised.onnx", extra=True)
    w = np.float32([[[[0, 1, 0], [1, -4, 1], [0, 1, 0]]]])
    conv = onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="edges", pads=[1, 1, 1, 1])
    saved(tmp_path / "edges.onnx", [conv], {"w": w}, [1, 1, "H", "W"])
    rng = np.random.default_rng(1)
    images = rng.uniform(size=(6, 1, 8, 8)).astype(np.float32)
    np.save("images.npy", images)
    np.save("x.npy", images[:1])
    (tmp_path / "robust.vnnlib").write_text(robust(images[0].ravel()))
    shown, names = onnx.load("model.onnx"), ["c", "r", "m", "f", "y"]
    del shown.graph.output[:]
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = onnxruntime.InferenceSession(shown.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(zip(names, session.run(None, {"x": images[:1]}), strict=True), x=images[:1])
    np.savez("desktop.npz", **values)
    np.savez("phone.npz", **{**values, "m": values["m"] + np.float32(0.1)})
    return tmp_path


def blocks(text: str) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def asked(text: str) -> list[tuple[str, int, str]]:
    """Every command of a page, the exit code that it says, and what it prints."""
    found = []
    for block in blocks(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                command, _, note = line[2:].partition(" #")
                code = re.search(r"exits with (\d)", note)
                found.append((command.strip(), int(code[1]) if code else 0, ""))
            else:
                found[-1] = (*found[-1][:2], found[-1][2] + line + "\n")
    return found


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    name, *arguments = shlex.split(command)
    assert name == "specgrad"
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        import_module("specgrad.cli.main").main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.mark.usefixtures("kept_workers")
@pytest.mark.parametrize("page", PAGES)
def test_recipe(page: str, folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (FOLDER / page).read_text()
    for long, short in FEWER.items():
        text = text.replace(long, short)
    for spec in re.findall(r"^```toml\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
        (folder / "audits.toml").write_text(spec)
    if page == "certificate.md":  # somebody wrote it
        robust = asked((FOLDER / "robust.md").read_text())[0][0]
        assert run(robust, capsys, monkeypatch)[0] == 0
    commands = asked(text)
    for command, code, printed in commands:
        got, out, err = run(command, capsys, monkeypatch)
        assert got == code, (command, out[-2000:], err[-2000:])
        check = doctest.OutputChecker().check_output
        assert check(printed.rstrip("\n") + "...\n", out, doctest.ELLIPSIS), (command, out)
    examples = doctest.DocTestParser().get_doctest(text, {}, page, str(FOLDER / page), 0)
    done = doctest.DocTestRunner(optionflags=FLAGS).run(examples)
    assert done.failed == 0, capsys.readouterr().out
    assert len(commands) + done.attempted >= 1


@pytest.mark.parametrize("page", PAGES)
def test_a_recipe_is_short_and_has_a_question(page: str) -> None:
    lines = (FOLDER / page).read_text().splitlines()
    assert re.fullmatch(r"# .*\?", lines[0])
    assert "More: [" in " ".join(lines[-3:])
    assert sum(1 for line in lines[1:] if line and not line.startswith(("```", ">>>", "..."))) <= 15
    assert f"[{lines[0][2:]}]({page})" in (FOLDER / "index.md").read_text()


def test_commands_are_read_with_what_they_print() -> None:
    page = "```console\n$ specgrad a b    # exits with 1\nx\ny\n$ specgrad c\n```\n"
    assert asked(page) == [("specgrad a b", 1, "x\ny\n"), ("specgrad c", 0, "")]
