"""Pictures of graphs: every value arrives, nothing runs through a box, texts are data, a page holds them."""

from __future__ import annotations

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds import Box, ibp
from specgrad.graph.drawing import blocks
from specgrad.graph.drawing.blocks import blocks_of
from specgrad.graph.drawing.placement import PAGE, WIDE, Layout, arranged
from specgrad.rounding import radius

EXAMPLES = Path(__file__).parents[2] / "examples"
SVG = "{http://www.w3.org/2000/svg}"


def example(name: str, shape: tuple[int, ...]) -> sg.Graph:
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return sg.trace(module.net, module.shapes(), shape)


# --- the layout -------------------------------------------------------------------------------------------------------


def dag(rng: Random) -> tuple[list[float], list[tuple[int, tuple[int, ...]]]]:
    """Boxes of two heights, mostly in chains, and up to two values from each."""
    count = rng.randint(1, 40)
    edges = []
    for source in range(count - 1):
        for _ in range(rng.choice((1, 1, 2))):
            near = [source + 1] if rng.random() < 0.8 else []
            far = rng.sample(range(source + 1, count), min(count - source - 1, rng.choice((0, 0, 1, 2))))
            if targets := tuple(sorted({*near, *far})):
                edges.append((source, targets))
    return [rng.choice((31.0, 42.0)) for _ in range(count)], edges


def problems(layout: Layout, heights: list[float], edges: list[tuple[int, tuple[int, ...]]]) -> list[str]:
    """What a reader would stumble over."""
    wrong = []
    boxes = [(x, y, x + WIDE, y + h) for (x, y), h in zip(layout.corners, heights, strict=True)]
    for i, a in enumerate(boxes):
        wrong += [f"{i} over {j}" for j, b in enumerate(boxes[:i]) if meets(a, b)]
        wrong += [f"{i} outside"] * (not (a[0] >= 0 and a[2] <= layout.width and a[1] >= 0 and a[3] <= layout.height))
    pieces = [[*line.trunk, *line.ends] for line in layout.lines]
    for k, (_, targets) in enumerate(edges):
        reached = {t for piece in layout.lines[k].ends for t in range(len(boxes)) if on_edge(piece[-1], boxes[t])}
        wrong += [f"value {k} misses {set(targets) - reached}"] * (not set(targets) <= reached)
        starts = [q for piece in pieces[k] for q in piece]
        wrong += [f"value {k} leaves nowhere"] * (not any(on_edge(q, boxes[edges[k][0]]) for q in starts))
        for piece in pieces[k]:
            hull = (*map(min, zip(*piece, strict=True)), *map(max, zip(*piece, strict=True)))
            wrong += [f"value {k} through {i}" for i, box in enumerate(boxes) if meets(hull, box)]
            for j in range(k):
                wrong += [f"values {j} and {k} on one line" for other in pieces[j] if together(piece, other)]
    return wrong


def meets(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] - 0.01 and b[0] < a[2] - 0.01 and a[1] < b[3] - 0.01 and b[1] < a[3] - 0.01


def on_edge(p: tuple[float, float], box: tuple[float, ...]) -> bool:
    inside = box[0] - 0.01 <= p[0] <= box[2] + 0.01 and box[1] - 0.01 <= p[1] <= box[3] + 0.01
    return inside and min(abs(p[0] - box[0]), abs(p[0] - box[2]), abs(p[1] - box[1]), abs(p[1] - box[3])) < 0.01


def together(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> bool:
    """Whether two vertical pieces lie on each other; values that go straight from one box to the next share that."""
    (ax, al), (bx, bl) = ((p[0][0], sorted(q[1] for q in p)) for p in (a, b))
    upright = abs(a[0][0] - a[1][0]) < 0.01 and abs(b[0][0] - b[1][0]) < 0.01
    straight = al == bl
    return upright and not straight and abs(ax - bx) < 1 and al[0] < bl[1] and bl[0] < al[1]


@pytest.mark.parametrize("seed", range(60))
def test_lines_reach_their_boxes_and_cross_none(seed: int) -> None:
    heights, edges = dag(Random(seed))
    for columns in (None, 1, 2, 3, 5):
        layout = arranged(heights, edges, columns=columns)
        assert problems(layout, heights, edges) == []


def test_a_line_through_a_box_is_seen() -> None:
    heights, edges = [31.0, 31.0, 31.0], [(0, (1, 2)), (1, (2,))]
    layout = arranged(heights, edges, columns=1)
    assert problems(layout, heights, edges) == []
    lane = layout.lines[0].trunk[1]
    layout.lines[0].trunk[1] = [(x - 60, y) for x, y in lane]
    assert any("through" in p for p in problems(layout, heights, edges))
    layout.lines[1].ends.clear()
    assert any("misses" in p for p in problems(layout, heights, edges))


def test_two_values_on_one_lane_are_seen() -> None:
    heights, edges = [31.0] * 5, [(0, (2, 4)), (1, (3,))]
    layout = arranged(heights, edges, columns=1)
    assert problems(layout, heights, edges) == []
    x = layout.lines[0].trunk[1][0][0]
    layout.lines[1].trunk[1] = [(x, y) for _, y in layout.lines[1].trunk[1]]
    assert any("on one line" in p for p in problems(layout, heights, edges))


# --- networks ---------------------------------------------------------------------------------------------------------

NETWORKS = {
    "resnet18": lambda: example("resnet18", (1, 3, 224, 224)),
    "unet": lambda: example("unet", (1, 1, 64, 64)),
    "lenet, vjp": lambda: sg.vjp(example("lenet", (1, 1, 28, 28))),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_page_holds_it(name: str) -> None:
    """At the size of A4, no text is smaller than 6 points; and every layer of the table stands in some box."""
    graph = NETWORKS[name]()
    root = ET.fromstring(graph.draw().svg)
    width, height = (float(root.get(k)) for k in ("width", "height"))
    sizes = [float(e.get("font-size")) for e in root.iter(f"{SVG}text")]
    assert min(sizes) * min(1, PAGE[0] / width, PAGE[1] / height) >= 6
    boxes, _ = blocks_of(graph)
    layers = {graph.nodes[i].group for b in boxes for i in b.members}
    assert {row[0] for row in sg.graph.drawing.summary.rows(graph)[0]} <= layers
    assert len(graph.draw().svg) < 60_000


def test_activations_stand_with_what_they_follow() -> None:
    def net(w: Any, x: Any) -> Any:
        y = sg.relu(sg.conv(w["a"], None, x, padding=1))
        z = sg.conv(w["b"], None, y, padding=1)
        return sg.relu(z + y), z

    graph = sg.trace(net, {"a": (4, 3, 3), "b": (4, 4, 3)}, (1, 3, 8))
    boxes, nets = blocks_of(graph)
    assert [(b.name, b.texts) for b in boxes] == [
        ("x", ["input"]),
        ("conv", ["conv k3 p1", "relu"]),
        ("conv_2", ["conv k3 p1"]),
        ("add", ["add", "relu"]),
    ]
    assert [(n.source, n.targets) for n in nets] == [(0, (1,)), (1, (2, 3)), (2, (3,))]


def test_an_output_is_not_folded_away() -> None:
    graph = sg.trace(lambda x: ((y := sg.max_pool(x, (2,))), sg.relu(y)), (1, 6))
    assert [b.name for b in blocks_of(graph)[0]] == ["x", "max_pool", "relu"]


def test_layers_that_read_each_other_are_cut() -> None:
    """One name for two places of a network: no box waits for itself."""

    def net(x: Any) -> Any:
        with sg.scope("a"):
            return sg.max_pool(x, (2,))

    graph = sg.trace(lambda x: net(sg.exp(net(x))), (1, 8))
    nodes = tuple(
        n.__class__(n.op, n.args, n.params, n.shape, n.kind, n.name, "a" if "max" in n.op.name else n.group)
        for n in graph.nodes
    )
    again = sg.Graph(nodes, graph.names, graph.inputs, graph.outputs, graph.single, graph.constants)
    boxes, nets = blocks_of(again)
    assert all(n.source < min(n.targets) for n in nets)
    assert [b.name for b in boxes] == ["x", "a", "a"]
    again.draw()


@pytest.mark.parametrize("name", ["<script>x</script>", "\x1b[2J", "\u202egnp", "a" * 300, "]]>", '"onload="x'])
def test_names_are_data(name: str) -> None:
    graph = sg.trace(lambda x: sg.relu(sg.max_pool(x, (2,))), (1, 4))
    nodes = tuple(n.__class__(n.op, n.args, n.params, n.shape, n.kind, name + n.name, name) for n in graph.nodes)
    hostile = sg.Graph(nodes, (name,), graph.inputs, graph.outputs, graph.single, graph.constants)
    for svg in (hostile.draw().svg, hostile.draw(detail=True).svg, hostile._repr_html_()):
        assert "<script" not in svg
        assert all(c.isprintable() or c == "\n" for c in svg)
    ET.fromstring(hostile.draw().svg)


def test_open_sizes_are_named() -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (2,)), ("N", 3, 8))
    assert "N\N{MULTIPLICATION SIGN}3\N{MULTIPLICATION SIGN}8" in graph.draw().svg


def test_a_large_graph_is_refused_at_once_or_drawn() -> None:
    def chain(x: Any, count: int) -> Any:
        for _ in range(count):
            x = sg.max_pool(x, (1,))
        return x

    assert "max_pool_400" in sg.trace(lambda x: chain(x, 400), (1, 4)).draw().svg
    with pytest.raises(sg.UnsupportedError, match="draws up to 1500 boxes"):
        sg.trace(lambda x: chain(x, 2000), (1, 4)).draw()


def test_a_notebook_gets_a_picture_and_a_table(monkeypatch) -> None:
    graph = sg.trace(lambda x: sg.max_pool(x, (2,)), (1, 6))
    page = graph._repr_html_()
    assert page.startswith("<svg")
    assert "receptive field" in page
    monkeypatch.setattr(blocks, "MAX_BLOCKS", 1)
    assert graph._repr_html_().startswith("<pre>")
    with pytest.raises(sg.UnsupportedError, match="draws up to 1 boxes, and this graph has more"):
        graph.draw()


# --- reports ----------------------------------------------------------------------------------------------------------


def tones(svg: str) -> dict[str, str]:
    """The tone of the box that a name stands in."""
    pairs = re.findall(r'<rect class="area (\w+)"[^>]*><title>([^;<]*)', svg)
    return {name: tone for tone, name in pairs}


def test_verdicts_are_colours() -> None:
    graph = sg.trace(lambda x: sg.exp(sg.max_pool(sg.relu(x), (2,))), (1, 6))
    kinds = {"relu": ("exact", 0.0), "max_pool": ("differs", 3.0), "exp": ("cannot tell", 0.0)}
    layers = [SimpleNamespace(name=n, verdict=SimpleNamespace(kind=k, ratio=r)) for n, (k, r) in kinds.items()]
    svg = graph.draw(SimpleNamespace(layers=layers), detail=True).svg
    assert tones(svg) == {"x": "read", "relu": "good", "max_pool": "bad", "exp": "open"}
    folded = tones(graph.draw(SimpleNamespace(layers=layers)).svg)
    assert folded["max_pool"] == "bad"  # exp stands in its box: the worse of both
    assert "not explained by rounding" in svg


def test_widths_and_radii_are_colours() -> None:
    graph = sg.trace(lambda x: sg.mul(sg.max_pool(x, (2,)), 1000), (1, 4))
    bounds = ibp(graph, Box(np.zeros((1, 4)), np.ones((1, 4))), deployed=False)
    svg = graph.draw(bounds, detail=True).svg
    assert tones(svg) == {"x": "width0", "max_pool": "width0", "mul": "width3"}
    assert re.search("width 10[01]0", svg)  # rounded up
    said = graph.draw(radius(graph, np.ones((1, 4), np.float32) / 3, keep=True), detail=True).svg
    assert "radius" in said
    unbounded = SimpleNamespace(layers={"mul": Box([0.0], [np.inf])})
    assert tones(graph.draw(unbounded, detail=True).svg)["mul"] == "bad"


def test_what_is_no_report_is_refused() -> None:
    graph = sg.trace(lambda x: sg.relu(x), (1, 6))
    with pytest.raises(sg.ParameterError, match=r"report must be a report with layers .* got int"):
        graph.draw(3)
