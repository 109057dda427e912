"""The tree of splits as a picture: large branches are folded, with how deep they are and how many leaves they have."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.graph import INPUT, Graph
from specgrad.html_page import escape, named, plot, wide
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.scalar import Array
from specgrad.svg import shortened

DRAWN, COLUMNS = 20, 6  # leaves of a picture, folded branches too; columns of cuts
STEP, ROW, NAME = 152.0, 26.0, 19  # pixels, pixels, letters
MOST_CUT = 10
SIDES = {"input": ("≤", "&gt;"), "node": ("≤", "≥"), "winner": ("wins", "not")}


def kind_of_cut(graph: Graph, cut: Split) -> str:
    """Kind of a split: "winner", "input" or "node"."""
    return "winner" if cut.tap is not None else "input" if graph.nodes[cut.node].op is INPUT else "node"


def cell_of(graph: Graph, cut: Split) -> str:
    """Return the split cell as text: its node's name and index.

    >>> import specgrad as sg
    >>> cell_of(sg.trace(lambda x: sg.relu(x), (2, 3)), Split(0, 4, 0.5))
    'x[1,1]'
    """
    node = graph.nodes[cut.node]
    place = ",".join(str(int(k)) for k in np.unravel_index(cut.cell, node.shape)) if node.shape else ""
    return f"{node.name}[{place}]"


def condition(graph: Graph, cut: Split, side: int) -> str:
    """Return in words what holds on side 0 or 1 of the split `cut`."""
    if cut.tap is not None:
        return f"{cell_of(graph, cut)}: tap {cut.tap} {'wins' if side == 0 else 'does not win'}"
    sign = "<=" if side == 0 else ">" if kind_of_cut(graph, cut) == "input" else ">="
    return f"{cell_of(graph, cut)} {sign} {cut.at:.9g}"


@dataclass(frozen=True)
class TreeFigures:
    """Statistics of a split tree.

    leaves, depth   of the whole; `below` has both for every part
    kinds           cuts by kind: input, node (a kink), winner (of a max_pool)
    most            the cells that were cut most, and how often
    """

    leaves: int
    depth: int
    kinds: dict[str, int]
    most: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `leaves`, `depth`, `cuts` (how many, by kind), and `most_cut`, the cells with most, each
        with its number.
        """
        return {
            "leaves": self.leaves,
            "depth": self.depth,
            "cuts": self.kinds,
            "most_cut": [{"cell": cell, "cuts": count} for cell, count in self.most],
        }


def below(tree: Tree) -> tuple[Array, Array]:
    """Return (leaves, depth) under every part; parts stand after their parents.

    >>> tree = Tree()
    >>> _ = tree.divide(0, Split(0, 1, 0.5)), tree.divide(2, Split(3, 7))
    >>> [x.tolist() for x in below(tree)]
    [[3, 1, 2, 1, 1], [2, 0, 1, 0, 0]]
    """
    leaves, depth = np.array([cut is None for cut in tree.cuts], int), np.zeros(len(tree.cuts), int)
    for part in range(len(tree.cuts) - 1, 0, -1):
        parent = tree.parents[part]
        leaves[parent] += leaves[part]
        depth[parent] = max(depth[parent], depth[part] + 1)
    return leaves, depth


def figures(graph: Graph, tree: Tree) -> TreeFigures:
    """Return the statistics of a split tree: leaves, depth, splits by kind, and the cells of the graph split most
    often.
    """
    leaves, depth = below(tree)
    cuts = [cut for cut in tree.cuts if cut is not None]
    kinds = Counter(kind_of_cut(graph, cut) for cut in cuts)
    cells = Counter((cut.node, cut.cell) for cut in cuts).most_common(MOST_CUT)
    most = tuple((cell_of(graph, Split(*cell)), count) for cell, count in cells)
    return TreeFigures(int(leaves[0]), int(depth[0]), dict(sorted(kinds.items())), most)


def unfolded(tree: Tree) -> set[int]:
    """Parts that are drawn with both of their sides: the largest branches first, until the picture is full."""
    leaves, _ = below(tree)
    queue, opened, drawn = [(-int(leaves[0]), 0, 0)], set(), 1
    children = _children(tree)
    while queue and drawn < DRAWN:
        _, part, column = heapq.heappop(queue)
        if tree.cuts[part] is not None and column < COLUMNS:
            opened.add(part)
            drawn += 1
            for child in children[part]:
                heapq.heappush(queue, (-int(leaves[child]), child, column + 1))
    return opened


def _children(tree: Tree) -> dict[int, list[int]]:
    """Return both children of every split part, in order."""
    children: dict[int, list[int]] = {}
    for part in range(1, len(tree.cuts)):
        children.setdefault(tree.parents[part], [0, 0])[tree.sides[part]] = part
    return children


def drawing(graph: Graph, tree: Tree, *, settled: bool = True, worst: int | None = None) -> str:
    """Return an SVG of the tree, splits from left to right. settled: every leaf is excluded; worst: a leaf that
    is not.
    """
    mark = "" if worst is None else "<p>* is, or holds, the part that is farthest from proven.</p>"
    return plot(*_Drawing(graph, tree, settled, worst).whole()) + mark


class _Drawing:
    """Lays out and draws one split tree; the path to the part `worst` is marked. `settled` says whether every leaf is
    excluded.

    Splits are named by the nodes of `graph`.
    """

    def __init__(self, graph: Graph, tree: Tree, settled: bool, worst: int | None) -> None:
        self.graph, self.tree, self.settled = graph, tree, settled
        self.leaves, self.depth = below(tree)
        self.worst = set() if worst is None else {worst, *_ancestors(tree, worst)}
        self.children, self.opened = _children(tree), unfolded(tree)
        self.parts: list[str] = []
        self.row, self.right = 0, 0.0

    def whole(self) -> tuple[float, float, str, list[str]]:
        """Return width, height, alternative text and SVG elements of the drawing."""
        self._place(0, 0)
        said = (
            f"A tree of cuts with {self.leaves[0]:,} leaves, {self.depth[0]:,} deep. The text beside it has its figures"
        )
        return self.right + 8, ROW * self.row + 12, said, self.parts

    def _place(self, part: int, column: int) -> float:
        """Draw a part and what is opened below it, from `column` to the right; return its y coordinate.

        Ends take the next free rows.
        """
        x, cut = 8 + STEP * column, self.tree.cuts[part]
        if cut is None or part not in self.opened:
            y = ROW * self.row + 18
            self.row += 1
            self._end(part, x, y)
            return y
        first, second = (self._place(child, column + 1) for child in self.children[part])
        y = (first + second) / 2
        joint = x + STEP - 32
        for end, word in zip((first, second), SIDES[kind_of_cut(self.graph, cut)], strict=True):
            path = f"M{x + 4:.0f} {y:.1f}H{joint:.0f}V{end:.1f}H{x + STEP - 6:.0f}"
            self.parts.append(f'<path class="branch" d="{path}"/>')
            self._add_text(joint + 3, end - 4, word, 10)
        self._add_text(x, y - 5, escape(self._split_label(cut)), 11)
        self.parts.append(f'<circle class="fill-link" cx="{x + 2:.0f}" cy="{y:.1f}" r="3"/>')
        return y

    def _split_label(self, cut: Split) -> str:
        """Short text of a split: cell, and point or tap."""
        point = f"tap {cut.tap}" if cut.tap is not None else f"at {cut.at:.3g}"
        return f"{shortened(cell_of(self.graph, cut), NAME - len(point) - 1)} {point}"

    def _end(self, part: int, x: float, y: float) -> None:
        """Draw a leaf or a folded branch, `part` of the tree, at (x, y)."""
        leaf, worst = self.tree.cuts[part] is None, part in self.worst
        tone = "good" if self.settled else "open" if worst else "soft"
        if leaf:
            text = "excluded" if self.settled else "open *" if worst else ""
            self.parts.append(f'<circle class="fill-{tone}" cx="{x + 2:.0f}" cy="{y:.1f}" r="3.5"/>')
        else:
            text = f"{self.leaves[part]:,} leaves, {self.depth[part]:,} deeper" + " *" * worst
            self.parts.append(f'<path class="fill-{tone}" d="M{x - 2:.0f} {y:.1f}l10 -6v12z"/>')
        self._add_text(x + 12, y + 4, text, 11)
        self.right = max(self.right, x + 16 + 6.2 * len(text))

    def _add_text(self, x: float, y: float, text: str, size: int) -> None:
        """Append SVG text of a font size at (x, y); `text` is escaped already."""
        self.parts.append(f'<text x="{x:.0f}" y="{y:.1f}" font-size="{size}">{text}</text>')


def _ancestors(tree: Tree, part: int) -> Iterator[int]:
    """Yield all ancestors of a part, the nearest first."""
    while part:
        part = tree.parents[part]
        yield part


def part_of(tree: Tree, cuts: Sequence[tuple[Split, int]]) -> int | None:
    """Return the part that lies on these sides of these splits, `cuts` (split, side) from the root; None if the tree
    was not split so.

    >>> tree = Tree()
    >>> _ = tree.divide(0, Split(0, 1, 0.5)), tree.divide(2, Split(3, 7))
    >>> part_of(tree, tree.path(3)), part_of(tree, [(Split(0, 0), 1)])
    (3, None)
    """
    children, part = _children(tree), 0
    for cut, side in cuts:
        if tree.cuts[part] != cut:
            return None
        part = children[part][side]
    return part


def said(graph: Graph, tree: Tree, where: str, drawn: str) -> str:
    """Return HTML of a tree: its statistics behind the words `where`, the SVG `drawn`, and a table of the cells split
    most.
    """
    f = figures(graph, tree)
    names = {"input": "of inputs", "node": "at kinks of layers", "winner": "by the winner of a window"}
    kinds = ", ".join(f"{count:,} {names[kind]}" for kind, count in f.kinds.items())
    text = f"<p>{where}{f.leaves:,} leaves, at most {f.depth:,} cuts deep; cuts: {kinds or 'none'}.</p>"
    if not f.most or f.most[0][1] < 2:
        return text + drawn
    rows = "".join(f'<tr><td>{named(cell)}</td><td class="number">{count:,}</td></tr>' for cell, count in f.most)
    head = '<tr><th>cut most<th class="number">cuts</tr>'
    return text + drawn + wide(f'<table class="slim">{head}{rows}</table>')


@dataclass(frozen=True)
class Worst:
    """The subproblem farthest from being excluded: its margin, splits and box.

    cuts   of layers, in words
    box    inputs that were cut: a cell, its ends in this part, and in the whole question
    """

    margin: float
    cuts: tuple[str, ...]
    box: tuple[tuple[str, float, float, float, float], ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON data: `margin`, `cuts` in words, and `box`, an object per cell: cell, low, high, and whole_low,
        whole_high of the box that was split.
        """
        names = ("cell", "low", "high", "whole_low", "whole_high")
        box = [dict(zip(names, row, strict=True)) for row in self.box]
        return {"margin": self.margin, "cuts": list(self.cuts), "box": box}


def worst_of(graph: Graph, cuts: Sequence[tuple[Split, int]], margin: float, ends: tuple[Array, Array]) -> Worst:
    """Return the Worst of a part of the box `ends` (low, high), of this margin.

    `cuts` are its splits and their sides (0, 1).

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x), (2,))
    >>> splits = [(Split(0, 1, 0.5), 0), (Split(0, 1, 0.25), 0), (Split(1, 0), 1)]
    >>> worst_of(graph, splits, -1.0, (np.zeros(2), np.ones(2)))
    Worst(margin=-1.0, cuts=('relu[0] >= 0',), box=(('x[1]', 0.0, 0.25, 0.0, 1.0),))
    """
    low, high = (np.ravel(end).astype(float) for end in ends)
    now: dict[int, tuple[str, float, float]] = {}
    others = []
    for cut, side in cuts:
        if kind_of_cut(graph, cut) != "input":
            others.append(condition(graph, cut, side))
            continue
        name, least, most = now.get(cut.cell, (cell_of(graph, cut), float(low[cut.cell]), float(high[cut.cell])))
        beyond = float(np.nextafter(np.float32(cut.at), np.float32(np.inf)))
        now[cut.cell] = (name, least, min(most, cut.at)) if side == 0 else (name, max(least, beyond), most)
    box = tuple((*now[c], float(low[c]), float(high[c])) for c in sorted(now))
    return Worst(margin, tuple(dict.fromkeys(others)), box)


def worst_said(worst: Worst, inputs: int) -> str:
    """Return HTML of the open part `worst`: its margin, and box and splits, of the question's `inputs` cells."""
    text = f"<p>The part that is farthest from proven lacks {-worst.margin:.4g}"
    text += f"; {len(worst.box):,} of {inputs:,} inputs and {len(worst.cuts):,} cells of layers are cut.</p>"
    if worst.box:
        head = '<tr><th>input<th class="number">from<th class="number">to<th>of the whole question</tr>'
        rows = "".join(
            f'<tr><td>{named(name)}</td><td class="number">{low:.9g}</td><td class="number">{high:.9g}</td>'
            f"<td>{_span_html(low, high, first, last)} {first:.6g} to {last:.6g}</td></tr>"
            for name, low, high, first, last in worst.box[:MOST_CUT]
        )
        text += wide(f'<table class="slim">{head}{rows}</table>') + _more_html(worst.box)
    if worst.cuts:
        items = "".join(f"<li><code>{escape(shortened(c, 80))}</code></li>" for c in worst.cuts[:MOST_CUT])
        text += f"<ul>{items}</ul>{_more_html(worst.cuts)}"
    return text


def _span_html(low: float, high: float, first: float, last: float) -> str:
    """Return an HTML bar that shows where low..high lies in first..last."""
    size = last - first
    start, share = ((low - first) / size, (high - low) / size) if size > 0 else (0.0, 1.0)
    share = max(share, 0.02)
    style = f"margin-left:{100 * min(start, 1 - share):.0f}%;width:{100 * share:.0f}%"
    return f'<span class="track"><i class="open" style="{style}"></i></span>'


def _more_html(rows: Sequence[object]) -> str:
    """Return HTML "And n more." if `rows` are more than what is shown; else ""."""
    return f"<p>And {len(rows) - MOST_CUT:,} more.</p>" if len(rows) > MOST_CUT else ""
