"""Names from a model are data: they meet no keyword of ours, no markup, and no terminal."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from specgrad.check import audit
from specgrad.errors import printable
from specgrad.process import Process

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
cli = pytest.importorskip("specgrad.cli.main")
KEYWORDS = ("model", "program:source", "file", "inputs", "program", "names", "arr_0", "allow_pickle", "self")
BAD_NAMES = ("[/]", "[red]x", "[/nothing]", "\x1b[2J\x1b]0;owned\x07", "a\nb", ":boom:", "\u202egnp", "back\\", "<b>&")


def saved(nodes: list, inputs: list[str], outputs: list[str], path: Path) -> str:
    value = onnx.helper.make_tensor_value_info
    ends = [value(n, 1, [1, 2]) for n in inputs], [value(n, 1, [1, 2]) for n in outputs]
    opset = [onnx.helper.make_opsetid("", 22)]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", *ends), opset_imports=opset, ir_version=10), path
    )
    return str(path)


FIRST = [(names, "onnxruntime") for names in zip(KEYWORDS, reversed(KEYWORDS), strict=True)]
FIRST += [(names, "onnx-reference") for names in permutations(KEYWORDS[:3], 2)]
LATER = [(names, {"onnxruntime": "onnx-reference"}.get(runtime, "onnxruntime")) for names, runtime in FIRST]


@pytest.mark.parametrize(
    ("names", "runtime"), [*FIRST, *(pytest.param(*case, marks=pytest.mark.slow) for case in LATER)]
)
def test_inputs_named_like_our_keywords_are_inputs(names: tuple[str, str], runtime: str, tmp_path) -> None:
    a, b = names if names[0] != names[1] else (names[0], "other")
    path = saved([onnx.helper.make_node("Sub", [a, b], ["y"])], [a, b], ["y"], tmp_path / "m.onnx")
    found = audit(path, runtime, [np.array([[5, 7]], np.float32), np.array([[2, 3]], np.float32)])
    assert found.verdict == "exact", found
    assert len(found.layers) == 1


def test_arrays_are_numbered_whatever_they_are_called() -> None:
    given = {name: np.full(1, i) for i, name in enumerate((*KEYWORDS, "\0", "\ud800", ""))}
    with Process() as process:
        found = process.run("def run(x, /, **named): return [x, *named.values()]", given, [np.array(-1)])
    assert [int(a.ravel()[0]) for a in found.arrays] == [-1, *range(len(given))]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_layer_of_any_name_is_shown_and_not_obeyed(name: str, folder, run) -> None:
    nodes = [
        onnx.helper.make_node("Relu", ["x"], ["h"], name=name),
        onnx.helper.make_node("Neg", ["h"], [name + "y"], name="last"),
    ]
    path = saved(nodes, ["x"], [name + "y"], folder / "named.onnx")
    audited = f"audit {path} --runtime onnx-reference --html page.html"
    for command in (f"show {path}", audited, f"explain {path} --output 0,0"):
        code, out, err = run(command)
        assert (code, err) == (0, ""), (command, out, err)
        assert all(c.isprintable() for c in out.replace("\n", "")), out
        if command.startswith("audit"):
            assert printable(name) in out.replace("\n", "")
    page = Path("page.html").read_text()
    assert all(c.isprintable() for c in page.replace("\n", ""))
    assert "<b>&" not in page


def test_an_error_about_such_a_name_is_one_visible_line(folder, run) -> None:
    path = saved([onnx.helper.make_node("Relu", ["x"], ["h"], name="\x1b[2J[/]")], ["x"], ["h"], folder / "e.onnx")
    code, _, err = run(f"explain {path} --output 0,0 --layer none")
    assert (code, err.count("\n"), "\x1b" in err) == (3, 1, False)


def test_two_nodes_whose_name_and_output_collide_are_two_layers(tmp_path) -> None:
    """The second is named like the first, and its output like a node before it."""
    make = onnx.helper.make_node
    ends = [("Relu", "x", "a", "b"), ("Neg", "a", "c", "n"), ("Abs", "c", "b", "n"), ("Relu", "b", "y", "b")]
    nodes = [make(operator, [x], [y], name=name) for operator, x, y, name in ends]
    found = audit(saved(nodes, ["x"], ["y"], tmp_path / "m.onnx"), "onnx-reference", np.array([[1, -2]], np.float32))
    assert [layer.operator for layer in found.layers] == ["relu", "neg", "abs", "relu"]
    assert len({layer.name for layer in found.layers}) == 4
