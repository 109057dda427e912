"""Encodes a certificate as the input text of the checker that is proven in verified/ (programs/check/main.ml reads it).

What is proven is what is written here: the network's cells, the box and the alternatives. Splits, weights, slopes and
multipliers are only hints; whatever they are, the checker is sound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.scalar import Array

from ..base.executions import Executions
from ..base.rationals import ReplayError
from ..batched.tree_replay import LEAF, NO_TAP, TreeProof, check_tree, leaves, taps_inside
from ..exact import multi_neuron
from ..exact.node_ranges import CURVED
from ..files.certificate import SCALE, CaseProof, Proof
from .graph_text import GraphText, NotDescribedError
from .piecewise_linear import PIECEWISE_LINEAR
from .scalar_network import DYADIC_EXPONENT, CellNumbers, Dyadic, Neuron, ScalarNetwork, dyadic

MULTIPLIER_SCALE = 1 << 20
MAX_HALVINGS = 2  # how often a leaf is halved that is not proven, where inputs alone are cut
Hints = Mapping[int, tuple[Sequence[Fraction], Sequence[Fraction]]]  # cell -> slopes below and above
Alternative = tuple[Array, Sequence[Fraction]]


class CheckerInput:
    """One case of a certificate as input of the extracted checker: `text` is a line of integers.

    ReplayError for what that checker has no words for. `case` is about `graph` and the executions `arithmetic`.

    compiled   the text has the graph itself, whose cells the program compiles; else it has the cells, multiplied out
               here. None: the graph, if the program has words for all its nodes
    """

    def __init__(self, graph: Graph, case: CaseProof, arithmetic: Executions, compiled: bool | None = None) -> None:
        self.graph, self.case, self.arithmetic = graph, case, arithmetic
        self.unit = -24 if arithmetic.rounding == "nearest" else -23
        self._numbers: dict[Dyadic, int] = {}
        self._tables: list[list[Any]] = [[0]]  # the first is empty
        self._vectors: list[list[Any]] = [[0]]
        self._sets: list[list[Any]] = [[0]]
        for number, tree in enumerate(case.trees):
            mine = [case.alternatives[k][:2] for k in case.alternatives_of_tree(number)]
            check_tree(graph, (case.low, case.high), tree, mine, lambda: None)
        proofs = [p for _, _, p in case.alternatives if isinstance(p, Proof)]
        extra_nodes = {i for p in proofs for i in p.tighten} | {i for t in case.trees for i in t.tighten}
        extra_nodes |= {int(i) for t in case.trees for i in t.nodes if i != LEAF}
        extra_nodes -= set(graph.input_positions)
        self.net: CellNumbers
        try:
            if compiled is False:
                raise NotDescribedError("asked for cells")
            self.net, self.compiled = CellNumbers(graph, extra_nodes), True
            cells = self._encode_graph()
        except NotDescribedError:
            if compiled:
                raise
            self.net, self.compiled = ScalarNetwork(graph, case.low, case.high, extra_nodes, self.unit), False
            self._numbers.clear()
            cells = self._encode_cells(self.net.cells)
        self.text = self._encode(cells)

    def multiplied_out(self) -> CheckerInput:
        """Return the same question with the network's cells, multiplied out here, in place of the graph."""
        return CheckerInput(self.graph, self.case, self.arithmetic, compiled=False)

    def _encode(self, cells: Sequence[Any]) -> str:
        """Return the whole text: unit, numbers, `cells`, tables, vectors, sets, groups of alternatives."""
        groups = [*self._encode_whole_box_proofs(), *self._encode_trees()]
        numbers = [part for number in self._numbers for part in number]
        words: list[Any] = [self.unit, len(self._numbers), *numbers, *cells]
        for lists in (self._tables, self._vectors, self._sets):
            words += [len(lists), *_concatenated(lists)]
        return " ".join(map(str, [*words, len(groups), *_concatenated(groups)])) + "\n"

    def _encode_graph(self) -> list[Any]:
        """Return the graph as integers in the format of the extracted checker; NotDescribedError if it has no words."""
        ends, unit = (self.case.low, self.case.high), Fraction(2) ** self.unit
        return [-1, *GraphText(self.graph, self.net.celled, ends, self._number_index, unit).words]

    def _encode_cells(self, cells: Sequence[Neuron]) -> list[Any]:
        """Return all cells as integers in the format of the extracted checker."""
        return [len(cells), *_concatenated([self._encode_neuron(cell) for cell in cells])]

    def _number_index(self, x: Fraction | Dyadic) -> int:
        """Return the place of a number in the list of numbers, adding it if it is new."""
        return self._numbers.setdefault(x if isinstance(x, tuple) else dyadic(x), len(self._numbers))

    def _encode_neuron(self, cell: Neuron) -> list[Any]:
        """Return one cell of the network as integers in the format of the extracted checker; numbers go into its
        list.
        """
        if cell.ends is not None:
            return [0, *map(self._number_index, cell.ends)]
        if cell.kind == "relu":
            return [2, *cell.sources]
        if cell.kind == "max":
            return [3, len(cell.sources), *cell.sources]
        if cell.function is not None:
            f = cell.function
            head = [4, *cell.sources, *map(self._number_index, (f.start, f.rise, f.relative, f.absolute)), len(f.turns)]
            return [*head, *(self._number_index(x) for turn in f.turns for x in turn)]
        each = [(self._number_index(w), source or 0, int(shared)) for w, source, shared in cell.products]
        blur = self._number_index((1, DYADIC_EXPONENT) if cell.blurred else (0, 0))
        head = [1, blur, cell.roundings, self._number_index((1, cell.spread)), int(cell.once), len(each)]
        return [*head, *(part for product in each for part in product)]

    def _encode_rows(self, alternatives: Sequence[Alternative]) -> list[Any]:
        """Return alternatives as integers, rows and limits times a common denominator of the limits."""
        words: list[Any] = [len(alternatives)]
        outputs = list(range(self.net.output.size)) if self.compiled else self.net.output.ravel().tolist()
        for rows, limits in alternatives:
            scale = _common_denominator(limits)
            words.append(len(limits))
            for row, limit in zip(rows, limits, strict=True):
                some = [(cell, int(c) * scale) for cell, c in zip(outputs, row, strict=True) if c]
                words += [len(some), *(w for cell, c in some for w in (cell, self._number_index(Fraction(c))))]
                words.append(self._number_index(limit * scale))
        return words

    def _add_table(self, hints: Hints) -> int:
        """Add a table of slopes, `hints` by cell, to the input and return its place."""
        words: list[Any] = [len(hints)]
        for cell, sides in hints.items():
            words.append(cell)
            for side in sides:
                words += [len(side), *map(self._number_index, side)]
        self._tables.append(words)
        return len(self._tables) - 1

    def _add_set(self, tighten: Iterable[int]) -> int:
        """Add the cells of nodes to tighten, each with whether to narrow it whatever its signs, and return the set's
        place."""
        words: list[Any] = []
        for i in tighten:
            cells = self.net.cells_of(i).ravel().tolist()
            words += [part for cell in cells for part in (cell, int(self._narrow_any_sign(i)))]
        self._sets.append([len(words) // 2, *words])
        return len(self._sets) - 1

    def _narrow_any_sign(self, i: int) -> bool:
        """Return whether a maximum or activation reads node `i`, directly or through relus; then its cells are narrowed
        whatever their sign.
        """
        readers = [k for k, n in enumerate(self.graph.nodes) if i in n.operands()]
        return any(
            self.graph.nodes[k].op.name in ("max_pool", *CURVED)
            or (self.graph.nodes[k].op.name == "relu" and self._narrow_any_sign(k))
            for k in readers
        )

    # --- proofs on the whole box ------------------------------------------------------------------------------------

    def _encode_whole_box_proofs(self) -> list[list[Any]]:
        """Return one group of integers per set of slopes, for the case's alternatives that are proven on the whole
        box.
        """
        by_key: dict[Any, list[Any]] = {}
        for rows, limits, proof in self.case.alternatives:
            if isinstance(proof, Proof):
                slopes = tuple(sorted((i, s.lower.tobytes(), s.upper.tobytes()) for i, s in proof.slopes.items()))
                by_key.setdefault((proof.tighten, slopes), []).append((rows, limits, proof))
        groups = []
        for some in by_key.values():
            first: Proof = some[0][2]
            lines = self._add_table(self._slope_hints(first))
            words = [
                *self._encode_rows([(rows, limits) for rows, limits, _ in some]),
                2,
                self._add_set(first.tighten),
                lines,
                0,
            ]
            for _, limits, proof in some:
                words += [len(proof.weights), *(self._number_index(Fraction(w)) for w in proof.weights)]
                words += [lines, 0, 0, self._multi_neuron_groups(proof, _common_denominator(limits))]
            groups.append(words)
        return groups

    def _slope_hints(self, proof: Proof) -> Hints:
        """Return the slopes of a proof by cell: fractions below and above, one per tap inside the input.

        ReplayError for nodes that have none, and for slopes that do not fit.
        """
        hints: dict[int, tuple[Sequence[Fraction], Sequence[Fraction]]] = {}
        for i, slopes in proof.slopes.items():
            node, name = self.graph.nodes[i], self.graph.nodes[i].op.name
            taps = len(self.net.taps[i]) if i in self.net.taps else 1
            if name not in ("relu", "max_pool") and name not in PIECEWISE_LINEAR:
                raise ReplayError(f"the proven checker has no slopes of node {node.name} ({name})")
            inside = (
                self.net.taps[i].reshape(taps, -1) if i in self.net.taps else np.ones((1, math.prod(node.shape)), bool)
            )
            sides = []
            for side in (slopes.lower, slopes.upper):
                if side.size != inside.size or ((side < 0).any() and name not in PIECEWISE_LINEAR):
                    raise ReplayError(
                        f"the slopes of node {node.name} must be whole, not negative, one per cell and tap"
                    )
                sides.append(side.reshape(taps, -1))
            for cell, below, above, read in zip(
                self.net.numbers[i].ravel().tolist(), *(s.T for s in sides), inside.T, strict=True
            ):
                pair = (tuple(Fraction(int(v), SCALE) for v in s[read]) for s in (below, above))
                hints[cell] = tuple(pair)  # type: ignore[assignment]
        return hints

    def _multi_neuron_groups(self, proof: Proof, scale: int) -> int:
        """Add the relus that are bounded together, with what they read and their vectors times `scale`, and return the
        list's place; 0: none.
        """
        if not proof.pieces:
            return 0
        groups: list[list[Any]] = []
        for i, given in proof.pieces.items():
            node = self.graph.nodes[i]
            conv, source = multi_neuron.conv_behind_relu(self.graph, node)
            reads = multi_neuron.input_patches(self.net.cells_of(source), self.graph.nodes[conv])
            vectors = multi_neuron.checked_vectors(given, node.name, reads.shape) * scale  # rows are scaled
            relus = multi_neuron.by_position(self.net.numbers[i]).tolist()
            for some, cells, m in zip(relus, reads.tolist(), vectors.tolist(), strict=True):
                inside = [
                    (c, self._number_index(Fraction(int(v.p), int(v.q)))) for c, v in zip(cells, m, strict=True) if c
                ]
                groups.append([max(some), len(some), *some, len(inside), *(w for pair in inside for w in pair)])
        self._vectors.append([len(groups), *_concatenated(groups)])
        return len(self._vectors) - 1

    # --- proofs by cuts ---------------------------------------------------------------------------------------------

    def _encode_trees(self) -> list[list[Any]]:
        """Return one group of integers per tree of splits."""
        groups = []
        for number, tree in enumerate(self.case.trees):
            mine = [self.case.alternatives[k][:2] for k in self.case.alternatives_of_tree(number)]
            groups.append([*self._encode_rows(mine), *self._encode_tree(tree, mine)])
        return groups

    def _encode_tree(self, tree: TreeProof, alternatives: Sequence[Alternative]) -> list[Any]:
        """Return the parts of a tree, with hints for these alternatives, as integers for the checker, in the file's
        preorder.
        """
        again = self._add_set(tree.tighten)
        tables: dict[tuple[int, int], int] = {}
        anew, words = set(tree.anew.tolist()), [2, again, 0]
        given, made, at, past, leaf_number = leaves(self.graph, self.case.low, self.case.high, tree), 0, 0, 0, 0
        for part, i in enumerate(tree.nodes.tolist()):
            if part in anew:
                words += [2, again, 0]
            if i != LEAF:
                cell, tap = int(tree.cells[made]), int(tree.taps[made]) if len(tree.taps) else NO_TAP
                if tap == NO_TAP:
                    words += [1, self._cell_number(i, cell), self._number_index(Fraction(float(tree.points[made])))]
                else:
                    words += [
                        3,
                        self._cell_number(i, cell),
                        self._tap_cell(i, cell, taps_inside(self.graph.nodes[i], cell)[tap]),
                    ]
                made += 1
                continue
            leaf, reasons = next(given), [0]
            sides, losers, first = leaf.sides(self.graph), leaf.losers(self.graph), 0
            for k, (rows, limits) in enumerate(alternatives):
                unit = Fraction(_common_denominator(limits), MULTIPLIER_SCALE)  # of multipliers: rows are scaled
                weights = tree.weights[leaf_number, first : first + len(rows)].tolist()
                first += len(rows)
                reasons += [len(weights), *(self._number_index(Fraction(w)) for w in weights)]
                if (leaf.changed, k) not in tables:
                    tables[leaf.changed, k] = self._slope_table(tree, leaf.changed, k) if leaf.changed >= 0 else 0
                reasons.append(tables[leaf.changed, k])
                some = tree.multipliers[at : at + len(sides)].tolist()
                at += len(sides)
                pulls = [(cut, b if side else -b) for (cut, side), b in zip(sides, some, strict=True) if b]
                reasons.append(len(pulls))
                for cut, b in pulls:
                    reasons += [self._cell_number(cut.node, cut.cell), self._number_index(b * unit)]
                lost = [
                    (*o, b) for o, b in zip(losers, tree.pulls[past : past + len(losers)].tolist(), strict=True) if b
                ]
                past += len(losers)
                reasons.append(len(lost))
                for cut, t, b in lost:
                    pair = self._cell_number(cut.node, cut.cell), self._tap_cell(cut.node, cut.cell, t)
                    reasons += [*pair, self._number_index(b * unit)]
                reasons.append(0)  # no vectors
            if tree.narrow and tree.tighten:
                depth = 0 if sides or losers else MAX_HALVINGS
                words += self._leaf_or_halves(tree, again, reasons, leaf.low, leaf.high, depth)
            else:
                words += reasons
            leaf_number += 1
        return words

    def _leaf_or_halves(
        self, tree: TreeProof, again: int, reasons: list[Any], low: Array, high: Array, depth: int
    ) -> list[Any]:
        """Return a leaf as integers, with both halves of its box low..high as a second try, `depth` times.

        The case's widest input, in proportion to the whole box, is halved. `again` is the number of the set of nodes
        that are bounded again; `reasons` are the encoded weights, slopes and multipliers, which halves share. The
        checker's bounds are not Python's: each picks lines by its own ranges.
        """
        leaf, widths = [2, again, 0, *reasons], (high.astype(np.float64) - low).ravel() * self._cut_inputs(tree)
        if not depth or not widths.any():
            return leaf
        whole = (self.case.high.astype(np.float64) - self.case.low).ravel()
        cell = int(np.argmax(widths / np.where(whole > 0, whole, 1)))
        point = np.float32((float(low.ravel()[cell]) + float(high.ravel()[cell])) / 2)
        below, above = high.copy(), low.copy()
        below.flat[cell] = above.flat[cell] = point
        cut = [1, self._cell_number(self.graph.input_positions[0], cell), self._number_index(Fraction(float(point)))]
        halves = (self._leaf_or_halves(tree, again, reasons, *box, depth - 1) for box in ((low, below), (above, high)))
        return [4, *leaf, *cut, *_concatenated(halves)]

    def _cut_inputs(self, tree: TreeProof) -> Array:
        """Return 1 for every input cell that the tree splits and 0 for others; 1 for all if it splits none."""
        cut = np.zeros(self.case.low.size)
        cut[tree.cells[tree.nodes[tree.nodes != LEAF] == self.graph.input_positions[0]].astype(np.int64)] = 1
        return cut if cut.any() else np.ones(self.case.low.size)

    def _cell_number(self, i: int, cell: int) -> int:
        """Return the number of a cell of node `i`, given its flat index."""
        return int(self.net.cells_of(i).ravel()[cell])

    def _tap_cell(self, i: int, cell: int, t: int) -> int:
        """Return the number of the cell that window `cell` of max_pool `i` reads at tap t of the window's relation."""
        inside = sorted(taps_inside(self.graph.nodes[i], cell).values())
        return self.net.windows[self._cell_number(i, cell)][inside.index(t)]

    def _slope_table(self, tree: TreeProof, changed: int, alternative: int) -> int:
        """Add the lower slopes of relus that a changed part of a tree has for an alternative; return the
        table's place."""
        hints: dict[int, tuple[Sequence[Fraction], Sequence[Fraction]]] = {}
        for i, slopes in tree.slopes.items():
            cells, lower = self.net.numbers[i].ravel().tolist(), slopes[changed, alternative].ravel().tolist()
            hints |= {cell: ((Fraction(s, SCALE),), ()) for cell, s in zip(cells, lower, strict=True)}
        return self._add_table(hints)


def _common_denominator(limits: Sequence[Fraction]) -> int:
    """Return the least common denominator of the limits."""
    return math.lcm(*(limit.denominator for limit in limits))


def _concatenated(lists: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the words of all lists in one list."""
    return [word for words in lists for word in words]
