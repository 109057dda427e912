"""Pages of bounds: widths and unstable cells against values of the network itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Bounds, Box, certify, ibp
from specgrad.bounds.html import bounds_page, certify_page, layers_of
from specgrad.bounds.report.figures import figures_of

W = np.array([[1.0, -2.0], [3.0, 0.5], [0.0, 1.0]])


def net(x: Any) -> Any:
    return sg.relu(sg.linear(W, None, x))


def test_widths_and_unstable_cells_are_those_of_the_box() -> None:
    """The corners of the box decide for a linear layer."""
    graph = sg.trace(net, (1, 2))
    low, high = np.array([[0.0, 0.25]]), np.array([[1.0, 1.0]])
    bounds = ibp(graph, Box(low, high), deployed=False)
    corners = np.array([[a, b] for a in (0.0, 1.0) for b in (0.25, 1.0)]) @ W.T
    widths = corners.max(0) - corners.min(0)
    unstable = ((corners.min(0) < 0) & (corners.max(0) > 0)).sum()
    rows = {r.name: r for r in layers_of(graph, bounds)}
    assert rows["linear.contract"].widest == pytest.approx(widths.max())
    assert rows["linear.contract"].mean == pytest.approx(widths.mean())
    assert (rows["relu"].bending, rows["relu"].unstable) == (3, unstable)
    assert unstable == 1
    text = bounds_page(graph, bounds, "net")
    assert "1 of 3 cells that can bend are unstable (33.3 %)" in text
    assert "<svg" in text


def test_a_bend_at_the_end_of_a_box_is_stable() -> None:
    graph = sg.trace(lambda x: sg.relu(x), (2,))
    bounds = ibp(graph, Box([0.0, -1.0], [1.0, 0.0]), deployed=False)
    assert layers_of(graph, bounds)[-1].unstable == 0


def test_what_is_unbounded_says_so() -> None:
    graph = sg.trace(lambda x: sg.div(1.0, x), (1,))
    text = bounds_page(graph, ibp(graph, Box([-1.0], [1.0])))
    assert "nothing is proven about 1" in text
    assert '<span class="bad">unbounded</span>' in text


def test_a_verdict_has_a_page() -> None:
    pytest.importorskip("torch")
    from specgrad.bounds.search.certify import graph_and_property

    graph = sg.trace(net, (1, 2))
    asked = (np.array([[1.0, 0.1]], np.float32), 1, 0.05)
    verdict = certify(graph, asked, seconds=10)
    text = certify_page("net", verdict, figures_of(verdict, *graph_and_property(graph, asked)))
    assert verdict.verdict == "holds"
    assert "Proven for every input" in text
    assert len(re.findall("<tr><td><span[^>]*>proven", text)) == sum(map(len, verdict.margins)) == 2
    assert "Boxes over the whole question" in text


def test_names_are_data() -> None:
    graph = sg.trace(net, (1, 2))
    nodes = tuple(
        n.__class__(n.op, n.args, n.params, n.shape, n.kind, f"<i>{n.name}\x1b", n.group) for n in graph.nodes
    )
    hostile = sg.Graph(nodes, graph.names, graph.inputs, graph.outputs, graph.single, graph.constants)
    bounds = ibp(hostile, Box([[0.0, 0.0]], [[1.0, 1.0]]))
    text = bounds_page(hostile, Bounds(bounds.outputs, bounds.layers, None, ("<u>",)), "<s>")
    assert not re.search("<[ius]>", text)
    assert "\x1b" not in text


def test_the_command_writes_it(tmp_path: Path, monkeypatch, capsys) -> None:
    cli = pytest.importorskip("specgrad.cli.main")
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    sg.save(sg.trace(net, (1, 2)), "net.json")
    np.save("x.npy", np.array([[1.0, 0.1]], np.float32))
    command = "specgrad certify net.json --input x.npy --label 1 --eps 0.05 --html p.html"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    assert "unstable" in Path("p.html").read_text()
