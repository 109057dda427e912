"""What pages of certify draw: trees, images and charts against counts and pixels by other means."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.bounds.report.image import Pair, as_image, png, shown
from specgrad.bounds.report.layer_widths import LayerBounds, chart, grows_most
from specgrad.bounds.report.split_tree import DRAWN, below, drawing, figures, part_of, unfolded, worst_of
from specgrad.html_page import STYLE, colours
from specgrad.proof.base.split_tree import OpenPart, Split, Tree
from test_picture import contrast

GRAPH = sg.trace(lambda x: sg.max_pool(sg.relu(x), (2,)), (1, 8))
INPUT, RELU, POOL = range(3)


def random_tree(leaves: int, seed: int) -> Tree:
    rng, tree, open_ = random.Random(seed), Tree(), [0]
    while len(open_) < leaves:
        part = open_.pop(rng.randrange(len(open_)))
        node = rng.choice([INPUT, INPUT, RELU, POOL])
        cell, point = rng.randrange(4), rng.choice([-1.0, 0.25])
        open_ += tree.divide(
            part, Split(node, cell, tap=rng.randrange(2)) if node == POOL else Split(node, cell, point)
        )
    return tree


def counted(tree: Tree, part: int) -> tuple[int, int]:
    """Leaves and depth by the definition."""
    if tree.cuts[part] is None:
        return 1, 0
    both = [counted(tree, k) for k in range(len(tree.cuts)) if k and tree.parents[k] == part]
    return sum(n for n, _ in both), 1 + max(d for _, d in both)


@pytest.mark.parametrize("seed", range(20))
def test_figures_of_a_tree_are_those_by_definition(seed: int) -> None:
    tree = random_tree(1 + 3 * seed, seed)
    leaves, depth = below(tree)
    assert [counted(tree, k) for k in range(len(tree.cuts))] == list(zip(leaves, depth, strict=True))
    f = figures(GRAPH, tree)
    assert sum(f.kinds.values()) == f.leaves - 1 == len([c for c in tree.cuts if c])
    assert f.kinds.get("winner", 0) == sum(c is not None and c.tap is not None for c in tree.cuts)
    assert [n for _, n in f.most] == sorted((n for _, n in f.most), reverse=True)
    for part in range(len(tree.cuts)):
        assert part_of(tree, tree.path(part)) == part


@pytest.mark.parametrize("leaves", [1, 2, DRAWN, DRAWN + 1, 400])
def test_a_drawing_shows_or_counts_every_leaf(leaves: int) -> None:
    tree = random_tree(leaves, leaves)
    text = drawing(GRAPH, tree)
    folded = [int(n.replace(",", "")) for n in re.findall(r">([\d,]+) leaves, [\d,]+ deeper", text)]
    single = len(re.findall(">excluded</text>", text))
    assert single + sum(folded) == leaves
    assert single + len(folded) <= DRAWN
    assert folded == [] or leaves > DRAWN or counted(tree, 0)[1] > 6
    assert all(tree.parents[p] in unfolded(tree) for p in unfolded(tree) if p)


def test_the_worst_part_is_marked_once() -> None:
    tree = random_tree(300, 1)
    text = drawing(GRAPH, tree, settled=False, worst=max(tree.leaves()))
    assert len(re.findall(r" \*</text>", text)) == 1
    assert "excluded" not in text


def test_the_box_of_a_part_holds_its_numbers_and_no_others() -> None:
    """By running numbers through the cuts: x <= at, or x from the next float32 number on."""
    rng = random.Random(3)
    tree = random_tree(40, 5)
    ends = (np.full(8, -2.0), np.full(8, 2.0))
    for leaf in tree.leaves():
        path = tree.path(leaf)
        worst = worst_of(GRAPH, path, -0.5, ends)
        boxes = {name: (low, high) for name, low, high, _, _ in worst.box}
        for _ in range(20):
            x = np.float32(
                [rng.choice([-1.0, 0.25, np.nextafter(np.float32(0.25), np.float32(1)), 2.0]) for _ in range(8)]
            )
            inside = all((x[c.cell] <= c.at) == (side == 0) for c, side in path if c.node == INPUT)
            assert inside == all(low <= x[int(name[4:-1])] <= high for name, (low, high) in boxes.items()), (
                path,
                x,
                boxes,
            )
        assert len(worst.cuts) == len({(c, s) for c, s in path if c.node != INPUT})


def unpacked(data: bytes) -> np.ndarray[Any, Any]:
    """A PNG without filters, read by the letters of its specification."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, parts = 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(name + body)
        parts[name], at = body, at + 12 + size
    width, height, bits, kind = struct.unpack(">IIBB", parts[b"IHDR"][:10])
    channels = {0: 1, 2: 3}[kind]
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + width * channels)
    assert bits == 8
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_the_pixels(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, channels)).astype(np.uint8)
    np.testing.assert_array_equal(unpacked(png(pixels)), pixels)


SHAPES = [
    ((1, 1, 28, 28), (28, 28, 1)),
    ((1, 28, 20, 3), (28, 20, 3)),
    ((3, 8, 9), (8, 9, 3)),
    ((8, 9, 1), (8, 9, 1)),
    ((1, 3, 4, 3), None),  # a side is under four either way
    ((1, 1, 1, 5), None),
    ((1, 5), None),
    ((2, 1, 8, 8), None),
    ((1, 4, 8, 8), None),
    ((1, 784), None),
]


@pytest.mark.parametrize(("shape", "image"), SHAPES)
def test_which_shapes_are_images(shape: tuple[int, ...], image: tuple[int, ...] | None) -> None:
    made = as_image(np.zeros(shape))
    assert (None if made is None else made.shape) == image


def images_in(text: str) -> list[np.ndarray[Any, Any]]:
    return [unpacked(base64.b64decode(d)) for d in re.findall(r'src="data:image/png;base64,([^"]+)"', text)]


@pytest.mark.parametrize("last", [False, True])
def test_an_image_stands_beside_the_original_and_their_difference(last: bool) -> None:
    rng = np.random.default_rng(1)
    original = rng.integers(0, 200, (6, 5, 3)).astype(np.float32)
    x = original.copy()
    x[2, 3, 1] += 50
    given = [a[None] if last else np.moveaxis(a, 2, 0)[None] for a in (original, x)]
    text = shown(Pair("the given input", *given, np.float32([1, 2]), np.float32([3, 2.5])))
    first, second, difference = images_in(text)
    np.testing.assert_array_equal(first, original)  # 0 to 255 as it is
    np.testing.assert_array_equal(second, x)
    assert difference[2, 3, 1] == 255
    assert len(np.unique(np.delete(difference.ravel(), (2 * 5 + 3) * 3 + 1))) == 1
    assert "1 of 90 cells were moved, the farthest by 50." in text
    assert len(re.findall(r"<strong>(?:2|3) \(largest\)", text)) == 2


def test_few_numbers_are_written_and_many_outputs_are_not() -> None:
    many = np.arange(1000.0)
    text = shown(Pair("the middle of the box", np.float32([1, 2]), np.float32([1, 2.5]), many, many[::-1]))
    assert "<img" not in text
    assert "2.5" in text
    assert "980 more outputs are smaller" in text
    assert text.count("(largest)") == 2


ROWS = [
    LayerBounds("conv", "conv", (1, 4), 2.0, 1.0, 0, 0, 4.0),
    LayerBounds("<i>relu\x1b", "relu", (1, 4), 1e-3, 1e-3, 4, 1, 0.5),
    LayerBounds("zero", "mul", (1,), 0.0, 0.0, 0, 0, 0.0),
    LayerBounds("div", "div", (1,), float("inf"), float("inf"), 0, 0),
]


def test_bars_are_as_high_as_widths() -> None:
    text = chart(ROWS)
    bars = {t: float(h) for h, t in re.findall(r'height="([\d.]+)" class="fill-\w+"><title>(\d [^<]*)</title>', text)}
    widths = [bars[k] for k in bars if "at most" in k or "unbounded" in k]
    decades = 4  # from 1e-3 to 1e1
    full = next(h for k, h in bars.items() if "unbounded" in k)
    assert widths[0] == pytest.approx(full * (np.log10(2.0) + 3) / decades, abs=0.1)
    assert [h for k, h in bars.items() if "1 of 4 unstable" in k] == [12.5]
    assert "<i>" not in text
    assert "\x1b" not in text
    assert grows_most(ROWS) == "Boxes grow most in <code>conv</code>: 4 times what it reads."
    assert grows_most(ROWS[1:]) == ""
    assert chart([]) == ""
    assert "unbounded" in chart(ROWS[3:])


class Parts(HTMLParser):
    """Pictures without words, and whatever asks another place for something."""

    def __init__(self) -> None:
        super().__init__()
        self.mute: list[str] = []
        self.outside: list[str] = []
        self.pictures = 0
        self.waiting = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if self.waiting and tag != "title":
            self.mute.append("svg")
        self.waiting = tag == "svg"
        if tag in ("img", "svg"):
            self.pictures += 1
        if tag == "img" and not given.get("alt"):
            self.mute.append("img")
        if tag == "svg" and given.get("role") != "img":
            self.mute.append("svg role")
        if tag in ("script", "link", "iframe", "object", "embed"):
            self.outside.append(tag)
        for name in ("src", "href", "xlink:href", "srcset", "data"):
            if given.get(name) and not str(given[name]).startswith(("data:image/png;base64,", "#")):
                self.outside.append(str(given[name]))


def page_of(verdict: str) -> str:
    pytest.importorskip("torch")
    from specgrad.bounds import certify
    from specgrad.bounds.html import certify_page
    from specgrad.bounds.report.figures import figures_of
    from specgrad.bounds.search.certify import graph_and_property

    weights = np.float32(np.random.default_rng(0).normal(size=(3, 25)))
    graph = sg.trace(lambda x: sg.linear(weights[:, :16], None, sg.flatten(sg.relu(x), 1)), (1, 1, 4, 4))
    x = np.linspace(0.1, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)
    label = int(np.argmax(graph(x)))
    asked = (x, label, 3.0 if verdict == "violated" else 1e-3)
    answer = certify(graph, asked, seconds=20)
    tree = Tree()
    tree.divide(tree.divide(0, Split(graph.input_positions[0], 3, 0.25))[1], Split(1, 2))
    if verdict != "violated":
        answer = replace(answer, verdict=verdict, trees=((((0,), tree),),))  # type: ignore[arg-type]
    if verdict == "unknown":
        answer = replace(answer, open_part=OpenPart((), (), tree.path(3), -0.5))
    assert answer.verdict == verdict
    figures = figures_of(answer, *graph_and_property(graph, asked), original=x)
    assert json.loads(json.dumps(figures.to_json()))["layers"]
    return certify_page("net", answer, figures)


@pytest.mark.parametrize("verdict", ["holds", "unknown", "violated"])
def test_a_page_needs_nothing_and_tells_all_in_words(verdict: str) -> None:
    text = page_of(verdict)
    parts = Parts()
    parts.feed(text)
    assert parts.pictures >= (5 if verdict == "violated" else 3)
    assert (parts.mute, parts.outside) == ([], [])
    assert "http" not in text
    assert "url(" not in text
    inside = re.sub(r"<svg[^>]*class=\"sgp\".*?</svg>", "", text, flags=re.S).replace(STYLE, "")
    assert re.findall(r"#[0-9a-f]{6}\b", inside) == []  # every colour is one of the style sheet's
    assert ("How the question was divided" in text) == (verdict != "violated")
    assert ("What is left open" in text) == (verdict == "unknown")
    planted = Parts()
    planted.feed('<svg role="img"><path></path></svg><img src="http://a"><svg><title>x</title></svg>')
    assert (planted.mute, planted.outside) == (["svg", "img", "svg role"], ["http://a"])


@pytest.mark.parametrize("which", [0, 1])
def test_shapes_and_texts_stand_out(which: int) -> None:
    """Texts of charts and trees are ink on paper; bars, branches and marks mean something."""
    c = colours(which)
    assert contrast(c["ink"], c["paper"]) >= 4.5
    for tone in ("link", "open", "bad", "good", "soft"):
        assert contrast(c[tone], c["paper"]) >= 4.5
        assert f".fill-{tone} {{ fill: var(--{tone})" in STYLE
    assert "svg.plot text { fill: var(--ink)" in STYLE


def test_the_command_prints_the_same_figures(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    cli = pytest.importorskip("specgrad.cli.main")
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    graph = sg.trace(lambda x: sg.linear(np.float32([[1, 1], [1, -1]]), None, sg.relu(x)), (1, 2))
    sg.save(graph, "net.json")
    np.save("x.npy", np.array([[1.0, 0.5]], np.float32))
    command = "specgrad certify net.json --input x.npy --label 0 --eps 0.75 --html p.html --json"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    data = json.loads(capsys.readouterr().out)
    report, page = data["report"], Path("p.html").read_text()
    assert report["original"]["x"] == [[1.0, 0.5]]
    assert report["original"]["y"] == [1.5, 0.5]
    apart = np.abs(np.array(data["counterexample"]["x"]) - np.array(report["original"]["x"]))
    assert report["original"]["farthest"] == apart.max()
    assert f"{report['original']['moved']} of 2 cells were moved" in page
    (relu,) = [r for r in report["layers"] if r["operator"] == "relu"]
    assert (relu["bending"], relu["unstable"]) == (2, 1)
    assert "1 of 2" in page


def test_of_positions_it_shows_the_search_of_their_scores() -> None:
    """Nodes of a tree go by the graph that was searched, which ends at the scores."""
    pytest.importorskip("torch")
    from specgrad.bounds import certify
    from specgrad.bounds.report.figures import figures_of
    from specgrad.bounds.search.certify import graph_and_property
    from specgrad.bounds.search.statement.argmax_property import of_scores

    def net(x: Any) -> Any:
        return sg.argmax(sg.linear(np.float32([[1, 1], [1, -1]]), None, x), 1)

    graph, x = sg.trace(net, (1, 2)), np.float32([[1.0, 0.5]])
    asked = (x, 0, 0.75)
    stated = graph_and_property(graph, asked)
    shown_ = figures_of(certify(graph, asked, seconds=20), *stated, original=x)
    assert [n.name for n in shown_.graph.nodes] == [n.name for n in of_scores(*stated)[0].nodes]
    assert shown_.pair is not None
    assert (shown_.pair.before.tolist(), shown_.pair.after.tolist()) == ([0], [1])
