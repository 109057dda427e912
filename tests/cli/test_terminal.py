"""Windows of 80 columns: numbers with their units, bars that say what is at work, operators and no names of nodes."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import numpy as np
import pytest

from forks import Forks
from test_tables import in_window

pytest.importorskip("rich")
onnx = pytest.importorskip("onnx")
from rich.console import Console  # noqa: E402

from specgrad.cli.shared import console as screen  # noqa: E402
from specgrad.deadline import time_limit  # noqa: E402

node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info


def window(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


@pytest.mark.parametrize("width", range(12, 80, 3))
def test_no_line_ends_between_a_number_and_its_unit(width: int) -> None:
    console = window(width)
    screen.line(console, "first order: ", ("Conv@0", "bold"), " -194 %, MatMul@0 187 %, in 3.25 s, 12 GB; all 114 %")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert max(map(len, lines)) <= width
    for words in ("-194 %", "187 %", "3.25 s", "12 GB", "114 %"):
        assert any(words in line for line in lines), lines
    assert screen.JOINER not in shown


def shown_bar(*steps: tuple[str, int, int]) -> str:
    """What the bar shows after these steps, with a limit of 40 s."""
    with screen.steps_bar(window(80)) as (bar, step), time_limit(40):
        for one in steps:
            step(*one)
        plain = window(80)
        plain.print(bar.get_renderable())
    return str(plain.file.getvalue())  # type: ignore[attr-defined]


def test_the_bar_counts_layers_and_then_says_what_is_at_work() -> None:
    counted = shown_bar(("conv1", 3, 17))
    assert "conv1" in counted
    assert "3/17" in counted
    last = shown_bar(("fc", 16, 17), ("whole model", 17, 17))
    assert re.search(r"whole model .* at most (39|40) s", last)
    assert "17/17" not in last  # a full bar would say that it is done
    assert "0/1" not in shown_bar(("tolerance", 0, 1))
    assert max(map(len, counted.splitlines() + last.splitlines())) <= 80


def test_without_a_limit_the_bar_names_none() -> None:
    with screen.steps_bar(window(80)) as (bar, step):
        step("whole model", 5, 5)
        plain = window(80)
        plain.print(bar.get_renderable())
    assert "at most" not in plain.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An addition, an LSTM with a name of its own, and a Cast to the type that its input has."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    nodes = [
        node("Add", ["x", "b"], ["sum"], name="stage/plus"),
        node("LSTM", ["sum", "w", "r"], ["y"], name="decoder/memory", hidden_size=2),
        node("Cast", ["y"], ["out"], name="linear", to=onnx.TensorProto.FLOAT),
    ]
    stored = {"b": rng.normal(size=3), "w": rng.normal(size=(1, 8, 3)), "r": rng.normal(size=(1, 8, 2))}
    arrays = [onnx.numpy_helper.from_array(a.astype(np.float32), name) for name, a in stored.items()]
    ends = [info("x", 1, [4, 1, 3])], [info("out", 1, [4, 1, 1, 2])]
    graph = onnx.helper.make_graph(nodes, "net", *ends, arrays)
    opsets = [onnx.helper.make_opsetid("", 21)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "net.onnx")
    return tmp_path


@pytest.mark.usefixtures("model")
def test_operators_are_shown_and_one_rounding_has_no_bar(forks: Forks) -> None:
    pytest.importorskip("onnxruntime")
    out = in_window(forks, 80, "audit", "net.onnx", "--runtime", "onnxruntime")
    rows = {line.split()[0]: line for line in out.splitlines() if line and not line.startswith(" ")}
    assert rows["linear"].split()[1] == "Cast"
    assert rows["stage/plus"].split()[1] == "add"
    assert not re.search("[█·]", rows["stage/plus"])  # its share of one rounding is near 1, and is no alarm
    (memory,) = (row for name, row in rows.items() if name.startswith("decoder"))
    assert re.search("[█·]", memory)
    assert memory.split()[1] == "contract,"
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines())


@pytest.mark.usefixtures("model")
def test_show_names_operators_too(forks: Forks) -> None:
    done = forks.specgrad("show", "net.onnx", environment={**os.environ, "COLUMNS": "200"})
    row = next(line for line in done.stdout.splitlines() if line.startswith("decoder/memory"))
    assert row.split()[1:3] == ["contract,", "add,"]


def test_an_error_goes_on_between_words(model: Path, forks: Forks) -> None:
    text = "no such file: " + "a word, 1234.5678 of them, " * 6
    from specgrad.cli.shared.exit_codes import _for_window

    class Window(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = _for_window(text, Window())
    assert " ".join(shown.split()) == " ".join(text.split())
    assert shown.count("\n") >= 1
    assert all("1234.5678" in line for line in shown.splitlines() if "1234" in line)
    assert _for_window(text, io.StringIO()) == text
