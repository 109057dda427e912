"""Names from a file are data: what PyTorch writes as a program never contains them as code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import specgrad as sg

torch = pytest.importorskip("torch")
from specgrad.interop import to_torch  # noqa: E402

INPUTS = ["x", "0", "if", "self", "", "_", "a b", "\u00b2", "\ufb01", "None", "x=print('run')", "*args", 'x"""', "a\nb"]
RUN = 'forward") and open("ran", "w") and getattr(self, "forward'
WEIGHTS = ["w", "0", "a-b", "/conv/W:0", "a'b", "gr\u00f6\u00dfe", "\u00b2", "a.0.b"]
REFUSED = [RUN, 'a"b', "a\\", "a\nb", "if", "a.None", "\ufb01", "\ud800", "\x1b[2J"]


def graph(path: Path, *, inputs: tuple[str, str] = ("x", "y"), weight: str = "w"):
    """x * weight + y of a file in which these names stand."""
    w = np.arange(1.0, 3.0)
    sg.save(sg.trace(lambda x, y: x * w + y, (2,), (2,)), path / "net.json")
    text = json.loads((path / "net.json").read_text())
    for node, name in zip((n for n in text["nodes"] if n["op"] == "input"), inputs, strict=True):
        node["name"] = node["group"] = name
    (path / "net.json").write_text(json.dumps({**text, "names": list(inputs)}))
    again = sg.load(path / "net.json")
    (position,) = again.constants
    nodes = tuple(replace(n, name=weight, group=weight) if i == position else n for i, n in enumerate(again.nodes))
    return replace(again, nodes=nodes)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("make", [to_torch, lambda g: sg.compile(g, "torch")])
def test_any_name_of_an_input_runs(name: str, make, tmp_path: Path) -> None:
    for second in ("y", f"{name}.", f"{name}_"):
        module = make(graph(tmp_path, inputs=(name, second)))
        x, y = torch.tensor([1.0, 1.0], dtype=torch.float64), torch.tensor([5.0, 7.0], dtype=torch.float64)
        assert module(x, y).tolist() == [6.0, 9.0]


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_keeps_its_name(name: str, tmp_path: Path) -> None:
    module = to_torch(graph(tmp_path, weight=name))
    assert list(module.state_dict()) == [name]
    x = torch.ones(2, dtype=torch.float64)
    assert module(x, x).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("name", REFUSED)
def test_a_weight_whose_name_would_be_code_is_refused(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(sg.ParameterError, match="cannot name a tensor of a module"):
        to_torch(graph(tmp_path, weight=name))(*[torch.ones(2, dtype=torch.float64)] * 2)
    assert not Path("ran").exists()
