"""Trees of cuts that another tool found, read from a JSON text: `specgrad certify --splits FILE`.

    {"format": "specgrad-splits", "version": 1,
     "cases": [[{"alternatives": [0], "tree": TREE}]]}

    TREE is null, a leaf, or a cut with its two sides, "below" and "above":
    {"input": 3, "at": 0.25, "below": TREE, "above": TREE}               x[3] <= 0.25, and above it
    {"relu": 0, "cell": 7, "below": TREE, "above": TREE}                 what the first relu reads, cell 7: <= 0, >= 0
    {"node": "hidden", "cell": 7, "at": 1, "below": TREE, "above": TREE}
    {"max_pool": "pooled", "cell": 2, "tap": 0, "below": TREE, "above": TREE}   tap 0 wins in window 2, or another

Cells are flat positions, points are rounded to float32. Nothing of the text is believed: a tree says where to cut, and
both sides of every cut are proven.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from specgrad.bounded_files import MAX_TEXT_BYTES, parse_json, read_bytes
from specgrad.errors import SpecgradError
from specgrad.graph.graph import CONSTANT, Graph
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.batched.tree_replay import taps_inside
from specgrad.properties.property import Property

Splits = tuple[tuple[tuple[tuple[int, ...], Tree], ...], ...]
FORMAT, VERSION = "specgrad-splits", 1
MAX_TREE_DEPTH = 900  # of cuts below each other, more than Python's reader follows
SIDES = {"below", "above"}
KINDS = {
    "input": {"input", "at"},
    "relu": {"relu", "cell", "at"},
    "node": {"node", "cell", "at"},
    "max_pool": {"max_pool", "cell", "tap"},
}


class SplitsError(SpecgradError, ValueError):
    """Raised if a text is not a split tree for this network and property."""

    def __init__(self, text: str) -> None:
        super().__init__("splits", text)


def read_splits(path: str | Path, graph: Graph, question: Property) -> Splits:
    """Return what a split file says: per case, numbers of alternatives and the tree that is to exclude them.

    FileError if it is no JSON within limits, SplitsError if it is not of that form. `question` is the property whose
    cases and alternatives the file numbers.
    """
    return parse_splits(read_bytes(path, MAX_TEXT_BYTES), graph, question)


def parse_splits(text: bytes | bytearray | str, graph: Graph, question: Property) -> Splits:
    """Return what the text of a split file says: per case, numbers of alternatives and the tree that is to exclude
    them.

    FileError if it is no JSON within limits, SplitsError if it is not of that form, or does not fit the graph and the
    property.

    >>> import specgrad as sg
    >>> from specgrad.properties.property import robustness
    >>> graph = sg.trace(lambda x: sg.relu(sg.mul(x, 2)), (2,))
    >>> tree = '{"input": 1, "at": 0.5, "below": null, "above": {"relu": 0, "cell": 0, "below": null, "above": null}}'
    >>> text = '{"format": "specgrad-splits", "version": 1, "cases": [[{"alternatives": [0], "tree": %s}]]}'
    >>> (((numbers, tree),),) = parse_splits(text % tree, graph, robustness([1.0, 0.0], 0, 0.25, 2))
    >>> numbers, tree.cuts[:3]
    ((0,), [Split(node=0, cell=1, at=0.5, tap=None), None, Split(node=1, cell=0, at=0.0, tap=None)])
    """
    data = parse_json(text, "a text of splits", MAX_TREE_DEPTH)
    if not isinstance(data, dict) or data.keys() != {"format", "version", "cases"}:
        raise SplitsError("the text must be an object with format, version and cases")
    if data["format"] != FORMAT or data["version"] != VERSION:
        raise SplitsError(f"format and version must be {FORMAT} {VERSION}")
    cases = data["cases"]
    if not isinstance(cases, list) or len(cases) != len(question.cases):
        raise SplitsError(f"cases must be a list of {len(question.cases)}, as many as the property has")
    reader = _SplitReader(graph)
    return tuple(_case_trees(case, k, len(question.cases[k].alternatives), reader) for k, case in enumerate(cases))


def _case_trees(data: Any, k: int, count: int, reader: _SplitReader) -> tuple[tuple[tuple[int, ...], Tree], ...]:
    """Return (alternatives, tree) pairs of case k from its JSON `data`; SplitsError if it is none.

    `count` is the number of its alternatives; `reader` reads the trees.
    """
    if not isinstance(data, list):
        raise SplitsError(f"case {k} must be a list of trees with their alternatives")
    trees, seen = [], set[int]()
    for entry in data:
        if not isinstance(entry, dict) or entry.keys() != {"alternatives", "tree"}:
            raise SplitsError(f"case {k}: an entry must have alternatives and tree")
        numbers = entry["alternatives"]
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and 0 <= n < count for n in numbers):
            raise SplitsError(f"case {k}: alternatives must be a list of numbers from 0 to {count - 1}")
        if len(set(numbers)) != len(numbers) or seen & set(numbers):
            raise SplitsError(f"case {k}: an alternative stands there twice")
        seen |= set(numbers)
        trees.append((tuple(numbers), reader.tree(entry["tree"])))
    return tuple(trees)


class _SplitReader:
    """Reads splits by the node names of one network, `graph`; SplitsError for what does not fit it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.relus = [n.operands()[0] for n in graph.nodes if n.op.name == "relu"]
        self.names: dict[str, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            if node.op is not CONSTANT:
                self.names.setdefault(node.name, []).append(i)
        self.places: dict[str, Callable[[Any], int]] = {
            "relu": self._relu_input,
            "node": self._node_position,
            "max_pool": self._node_position,
        }

    def tree(self, data: Any) -> Tree:
        """Return the split tree that parsed JSON data describe: null for a leaf, else a split with "below" and "above".

        SplitsError for what is neither.
        """
        tree, todo = Tree(), [(0, data)]
        while todo:
            part, entry = todo.pop()
            if entry is not None:
                below, above = tree.divide(part, self._split_of(entry))
                todo += [(above, entry["above"]), (below, entry["below"])]
        return tree

    def _split_of(self, entry: Any) -> Split:
        """Return the split that a JSON object `entry` states; SplitsError if it states none."""
        kind = next((k for k in KINDS if isinstance(entry, dict) and k in entry), None)
        if kind is None or not entry.keys() >= SIDES or not entry.keys() <= KINDS[kind] | SIDES:
            raise SplitsError(
                f"a tree is null, or has below, above and one of {', '.join(KINDS)} (with cell and at or tap)"
            )
        if kind == "input":
            (node,) = self.graph.input_positions
            return Split(node, self._checked_cell(node, entry["input"], "input"), self._split_point(entry.get("at")))
        node = self.places[kind](entry[kind])
        if kind == "max_pool":
            return self._winner_split(node, self._checked_cell(node, entry.get("cell"), "cell"), entry.get("tap"))
        return Split(node, self._checked_cell(node, entry.get("cell"), "cell"), self._split_point(entry.get("at", 0)))

    def _winner_split(self, node: int, cell: int, tap: Any) -> Split:
        """Return the split of the window `cell` of a max pool by a tap; SplitsError if it is no max pool, or does not
        read the tap.
        """
        if self.graph.nodes[node].op.name != "max_pool":
            raise SplitsError(f"node {self.graph.nodes[node].name} is no max_pool, which has winners")
        inside = taps_inside(self.graph.nodes[node], cell)
        if type(tap) is not int or tap not in inside:
            raise SplitsError(
                f"tap must be one of {', '.join(map(str, inside))}, which window {cell} reads; got {tap!r:.40}"
            )
        return Split(node, cell, 0.0, tap)

    def _relu_input(self, given: Any) -> int:
        """Position of the node that relu number `given` reads, relus counted in the network's order; SplitsError if
        there is none.
        """
        if type(given) is not int or not 0 <= given < len(self.relus):
            raise SplitsError(
                f"relu must be a number from 0 to {len(self.relus) - 1}, in the order of the network; got {given!r:.40}"
            )
        return self.relus[given]

    def _node_position(self, given: Any) -> int:
        """Position of a node, given by its unique name or its position; SplitsError unless that is one node."""
        if type(given) is int and 0 <= given < len(self.graph.nodes):
            return given
        places = self.names.get(given, []) if isinstance(given, str) else []
        if len(places) != 1:
            raise SplitsError(f"node must be the name of one node, or its position; {len(places)} are {given!r:.40}")
        return places[0]

    def _checked_cell(self, node: int, given: Any, what: str) -> int:
        """Return the flat cell `given` of a node; SplitsError, with `what` as its name, if the node has none such."""
        size = int(np.prod(self.graph.nodes[node].shape))
        if type(given) is not int or not 0 <= given < size:
            raise SplitsError(f"{what} must be a number from 0 to {size - 1}; got {given!r:.40}")
        return given

    def _split_point(self, given: Any) -> float:
        """Return the split point `given`, an int or a float, as the nearest float32 number; SplitsError for other
        types and above 2**127 in size.
        """
        if type(given) not in (int, float) or abs(given) > 1 << 127:
            raise SplitsError(f"at must be a number that float32 holds; got {given!r:.40}")
        return float(np.float32(float(given)))
