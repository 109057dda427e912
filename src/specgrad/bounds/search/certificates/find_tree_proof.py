"""Proofs with splits, from a tree that a search found: weights per leaf, the exact margin of each, more cuts if needed.

What the float search called excluded by a hair may be open in exact arithmetic, whose lines are coarser: such a leaf is
cut again across the input that promises most, or, far below the box whose roundings count against it, bounded again on
a box of its own, as the search does. Nothing here needs to be right: the checker's own code says what a leaf
proves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.intermediate.tighten import output_bounds
from specgrad.graph.graph import Graph
from specgrad.proof.base.executions import executions
from specgrad.proof.base.split_tree import Split, Tree
from specgrad.proof.batched.backward import NONLINEAR
from specgrad.proof.batched.leaves import MULTIPLIER_FRAC_BITS, SLOPE_SCALE, inputs_of_nonlinear
from specgrad.proof.batched.tree_replay import Leaf, TreeProof, arrays_of, leaves, taps_inside, taps_of
from specgrad.proof.batched.tree_replay import LeafResult as ProvenLeaf
from specgrad.proof.files.certificate import ExcludedAlternative, OpenLeafError, OutOfTimeError, proven_leaves, roots_of
from specgrad.properties.property import Case
from specgrad.scalar import Array, nearest_float

from ..input_split.search import Boxes, OpenBoxes
from ..neuron_split.subproblems import Bounder, Problems, root_forward
from ..shared.float32_bounds import flat

WEIGHTS = 1 << 10  # weights of several rows are whole numbers that add up to about this
STEPS = 20  # of the search for slopes and multipliers of a leaf
DEEP, NEAR = 24, 16  # cuts below a box from which on an open leaf gets a nearer one; its height above the leaf at most
AGAIN = 4  # cuts of our own, one below the other, after which a leaf that is still open gets a box of its own
SMALL = 1 << 12  # cells of hidden layers up to which all ranges are narrowed at every leaf
NOTHING = np.zeros((0, 0), np.int32)
Step = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class LeafHint:
    """What a certificate gives for a leaf, as integers: multipliers and slopes of the bound that proves it.

    weights       of the rows of each alternative
    multipliers   (alternatives, splits of nodes): of the side that a split leaves
    slopes        node -> lower slopes of relus
    pulls         (alternatives, lost taps): multipliers of taps that a split says do not win
    """

    weights: Array
    multipliers: Array
    slopes: Mapping[int, Array] = field(default_factory=dict)
    pulls: Array = field(default_factory=lambda: NOTHING)


class TreeProver:
    """Finds proofs of some alternatives of a case by one split tree.

    boxes        float bounds of all their rows on boxes of inputs
    numbers      the alternatives
    forward      forward pass over the network on the box of the case
    arithmetic   the executions meant; None: float32, fused
    """

    def __init__(self, forward: ForwardPass, case: Case, numbers: Sequence[int], boxes: Boxes, arithmetic: Any) -> None:
        self.graph, self.boxes, self.numbers, self.arithmetic = forward.graph, boxes, numbers, executions(arithmetic)
        self.forward, self.options = forward, {} if arithmetic is None else {"arithmetic": arithmetic}
        self._bounders: dict[bytes, tuple[Bounder | None, list[int]]] = {}
        shape = self.graph.nodes[self.graph.input_positions[0]].shape
        low, high = (end.reshape(shape).astype(np.float32) for end in case.outer())
        self.box = low, high
        self.rows = [(case.alternatives[k].rows.astype(int), case.alternatives[k].limits) for k in numbers]
        self.tighten = inputs_of_nonlinear(self.graph)
        self.is_small = sum(int(np.prod(self.graph.nodes[i].shape)) for i in self.tighten) <= SMALL

    def proof(
        self, tree: Tree, deadline: Callable[[], None], step: Step | None = None, refine: bool = True
    ) -> tuple[TreeProof, list[ExcludedAlternative]]:
        """Return a proof whose leaves the checker's code accepts, and what it proves of every alternative.

        refine   cut leaves further that the tree leaves open
        step     is told (what, done, total)
        deadline   is called now and then, and raises when the time is over

        An OpenLeafError names the worst leaf of the tree as it was given, where the proof does not come to an end.
        """
        hints: dict[int, LeafHint] = {}
        tree, proven, anew = deepcopy(tree), dict[int, tuple[Fraction, ...] | None](), set[int]()
        worst: OpenLeafError | None = None
        roots, first = roots_of(self.graph, self.box, self.arithmetic, deadline), len(tree.cuts)
        while asked := {part for part in tree.leaves() if part not in proven}:
            short, names = _subtree_of(tree, asked)
            whole = self._tree_proof(short, names, hints, anew, asked)
            order = [names[part] for part, _ in short.preorder()]
            numbers = {n for n, part in enumerate(order) if part in asked}
            open_: list[tuple[int, ProvenLeaf]] = []
            try:
                given = self.graph, self.box, whole, self.rows, self.arithmetic, deadline
                for each in proven_leaves(*given, numbers, roots):
                    if each.margins is None or min(each.margins) > 0:
                        proven[order[each.leaf.part]] = each.margins
                    else:
                        open_.append((order[each.leaf.part], each))
                    if step is not None:
                        step("leaves of the proof", len(proven), len(tree.firsts) + 1)
            except OutOfTimeError as error:
                raise worst or error from None
            if open_:
                worst = worst or self._open_leaf_error(min((e for _, e in open_), key=lambda e: min(e.margins or ())))
                if not refine or not all(_can_be_split(e.leaf) for _, e in open_):
                    raise worst
                far = {part for part, _ in open_ if len(_path_up(tree, anew, part)) > DEEP}
                again = {part for part, _ in open_ if sum(p >= first for p in _path_up(tree, anew, part)[:-1]) >= AGAIN}
                anew |= (fresh := _common_ancestors(tree, far - again) | again)
                proven = {
                    part: margins for part, margins in proven.items() if not fresh & {*_path_up(tree, anew, part)}
                }
                self._split_open_leaves(tree, [(part, e.leaf) for part, e in open_ if part not in far | again])
        whole = self._tree_proof(tree, range(len(tree.cuts)), hints, anew, set(tree.leaves()))
        return whole, self._excluded_alternatives([proven[part] for part, cut in tree.preorder() if cut is None])

    def one_leaf(
        self, deadline: Callable[[], None]
    ) -> Iterator[tuple[list[int], TreeProof, list[ExcludedAlternative]]]:
        """Yield (alternatives, proof, result) on the whole box, by the checker's own slopes, then by optimised ones.

        In whole numbers, which are many times as fast as rationals.
        """
        deep = behind_bends(self.graph)
        if not deep:  # one way back per alternative: rationals are as fast
            return
        (leaf,) = leaves(self.graph, *self.box, TreeProof(*arrays_of(Tree()), NOTHING))
        roots, left = roots_of(self.graph, self.box, self.arithmetic, deadline), list(range(len(self.rows)))
        for optimised in (False, True):
            (hint,) = self._optimised_hints(b"", [leaf]) if optimised else self._leaf_hints([leaf])
            proof = replace(self._tree_proof(Tree(), [0], {0: hint}, (), ()), narrow=False, tighten=deep)
            given = self.graph, self.box, proof, self.rows, self.arithmetic, deadline
            (each,) = proven_leaves(*given, roots=roots)
            margins = each.margins or ()
            good = [k for k in left if margins and margins[k] > 0]
            if good:
                said = self._excluded_alternatives([each.margins])
                yield [self.numbers[k] for k in good], self._restricted_to(proof, good), [said[k] for k in good]
            if not (left := [k for k in left if k not in good]):
                return

    def _restricted_to(self, proof: TreeProof, some: Sequence[int]) -> TreeProof:
        """Return a proof of one leaf with the weights of the alternatives `some` alone."""
        owner = [k for k, (_, limits) in enumerate(self.rows) for _ in limits]
        columns = [n for n, k in enumerate(owner) if k in some]
        slopes = {i: s[:, list(some)] for i, s in proof.slopes.items()}
        return replace(proof, weights=proof.weights[:, columns], slopes=slopes)

    def _open_leaf_error(self, each: ProvenLeaf) -> OpenLeafError:
        """Return the OpenLeafError of the leaf that `each` was computed of, with its alternative of the least
        margin.
        """
        assert each.margins is not None
        least = min(each.margins)
        return OpenLeafError(self.graph, each.leaf, self.numbers[each.margins.index(least)], least)

    def _excluded_alternatives(self, margins: Sequence[tuple[Fraction, ...] | None]) -> list[ExcludedAlternative]:
        """Return per alternative what is proven: rows, limits, least margin of all leaves, number of leaves.

        `margins` are per leaf and alternative; None for a leaf without executions.
        """
        least = [min(some) for some in zip(*(m for m in margins if m is not None), strict=True)]
        return [
            ExcludedAlternative(tuple(map(tuple, rows.tolist())), tuple(limits), margin, len(margins))
            for (rows, limits), margin in zip(self.rows, least, strict=True)
        ]

    def _tree_proof(
        self,
        tree: Tree,
        names: Sequence[int],
        hints: dict[int, LeafHint],
        anew: Collection[int],
        asked: Collection[int],
    ) -> TreeProof:
        """Return the TreeProof of `tree`; leaves without a hint get a blank one.

        names   number in `tree` -> number in the full tree, by which the other arguments go
        hints   what is known of leaves; those of `asked` that are missing are computed and entered here
        anew    parts on whose own box the network is bounded again
        """
        arrays = arrays_of(tree)
        bare = TreeProof(*arrays, NOTHING, taps=taps_of(tree))
        parts = [part for part, cut in tree.preorder() if cut is None]
        every = dict(zip(parts, leaves(self.graph, *self.box, bare), strict=True))
        fresh = [part for part in parts if names[part] in asked and names[part] not in hints]
        for k in range(0, len(fresh), self.boxes.batch):
            some = fresh[k : k + self.boxes.batch]
            hints |= zip((names[p] for p in some), self._leaf_hints([every[p] for p in some]), strict=True)
        mine = [
            (every[p].part, hints[names[p]] if names[p] in hints else self._hint_without_slopes(every[p]))
            for p in parts
        ]
        changed = [(number, hint.slopes) for number, hint in mine if hint.slopes]
        relus = sorted({i for _, slopes in changed for i in slopes})
        nodes = {cut.node for cut in tree.cuts if cut is not None}
        return TreeProof(
            *arrays,
            np.stack([hint.weights for _, hint in mine]).astype(np.int32),
            self.tighten,
            self.is_small or not nodes or bool(nodes & set(self.graph.input_positions)),
            np.concatenate([hint.multipliers.ravel() for _, hint in mine]).astype(np.int32),
            np.array([number for number, _ in changed], np.int32),
            {
                i: np.stack([slopes.get(i, self._zero_slopes(i)) for _, slopes in changed]).astype(np.int16)
                for i in relus
            },
            np.array([number for number, (part, _) in enumerate(tree.preorder()) if names[part] in anew], np.int32),
            taps_of(tree),
            np.concatenate([hint.pulls.ravel() for _, hint in mine]).astype(np.int32),
        )

    def _hint_without_slopes(self, leaf: Leaf, chosen: Sequence[int] | None = None) -> LeafHint:
        """Return a hint for `leaf` with weights alone: 1 for all rows (`chosen` None), or for the chosen row of every
        alternative.
        """
        each = [np.ones(len(limits), np.int64) for _, limits in self.rows]
        weights = np.concatenate(each) if chosen is None else self._weights_of_chosen(chosen)
        none = (
            np.zeros((len(self.rows), n), np.int64) for n in (len(leaf.sides(self.graph)), len(leaf.losers(self.graph)))
        )
        return LeafHint(weights, next(none), pulls=next(none))

    def _zero_slopes(self, relu: int) -> Array:
        """Zero slopes of a relu that is stable on a leaf's box, (alternatives, *shape)."""
        return np.zeros((len(self.rows), *self.graph.nodes[relu].shape), np.int64)

    def _leaf_hints(self, some: Sequence[Leaf]) -> list[LeafHint]:
        """Return for each leaf of `some` what the float bounds suggest: weights of rows, slopes, multipliers of
        cuts.
        """
        sides = [leaf.sides(self.graph) for leaf in some]
        cut = [n for n, leaf in enumerate(some) if sides[n] or leaf.winners()]
        plain = sorted({*range(len(some))} - {*cut})
        hints: dict[int, LeafHint] = {}
        if plain:
            weights = self._row_weights([some[n] for n in plain])
            hints |= {
                n: LeafHint(row, np.zeros((len(self.rows), 0), np.int64)) for n, row in zip(plain, weights, strict=True)
            }
        boxes: dict[bytes, list[int]] = {}
        for n in cut:
            boxes.setdefault(some[n].low.tobytes() + some[n].high.tobytes(), []).append(n)
        for key, mine in boxes.items():
            made = self._optimised_hints(key, [some[n] for n in mine])
            hints |= zip(mine, made, strict=True)
        return [hints[n] for n in range(len(some))]

    def _optimised_hints(self, key: bytes, some: Sequence[Leaf]) -> list[LeafHint]:
        """Return slopes and multipliers for the leaves `some` of one input box, optimised for the row nearest to
        excluding there.

        `key` names the box; its bounder is kept for the next call.
        """
        if key not in self._bounders:
            self._bounders = {key: self._bounder(some[0])}
        bounder, chosen = self._bounders[key]
        if bounder is None:
            return [self._hint_without_slopes(leaf, chosen) for leaf in some]
        each = torch.from_numpy(
            np.stack([rows[n] for (rows, _), n in zip(self.rows, chosen, strict=True)]).astype(float)
        )
        limits = [nearest_float(limits[n]) for (_, limits), n in zip(self.rows, chosen, strict=True)]
        count = len(self.rows)
        problems = bounder.start(each.repeat(len(some), 1))
        points: dict[
            tuple[int, float, int], list[tuple[int, int]]
        ] = {}  # many leaves at once: each cut is a copy of all
        for n, leaf in enumerate(some):
            boxes = torch.arange(n * count, (n + 1) * count)
            for cut, side in leaf.path():
                if cut.tap is not None and cut.node in problems.candidate_taps:
                    lost = torch.arange(problems.candidate_taps[cut.node].shape[1]) == cut.tap
                    cells = torch.full_like(boxes, cut.cell)
                    problems = problems.without(cut.node, boxes, cells, lost if side else ~lost)
                elif cut.tap is None and cut.node in problems.limits:
                    points.setdefault((cut.node, cut.at, side), []).extend((b, cut.cell) for b in boxes.tolist())
        for (node, at, side), where in points.items():
            box, cell = torch.tensor(where).unbind(1)
            problems = problems.cut(node, box, cell, at, side)
        problems, _ = bounder.optimised(problems, STEPS, torch.tensor(limits * len(some), dtype=torch.float64))
        return [self._optimised_hint(problems, n * count, leaf, chosen) for n, leaf in enumerate(some)]

    def _bounder(self, leaf: Leaf) -> tuple[Bounder | None, list[int]]:
        """Return float bounds on a leaf's box (None if the output does not vary), and the best row of every
        alternative.

        There are none where the output does not vary: nothing on the way to it matters.
        """
        forward = self.forward
        if not (np.array_equal(leaf.low, self.box[0]) and np.array_equal(leaf.high, self.box[1])):
            forward = root_forward(self.graph, leaf.low.astype(float), leaf.high.astype(float), **self.options)
        chosen = []
        for rows, limits in self.rows:
            bounds = output_bounds(forward, rows.astype(float))[0]
            margins = [b - nearest_float(limit) for b, limit in zip(bounds.tolist(), limits, strict=True)]
            chosen.append(int(np.argmax(margins)))
        return Bounder(forward) if forward.varies else None, chosen

    def _optimised_hint(self, problems: Problems, at: int, leaf: Leaf, chosen: Sequence[int]) -> LeafHint:
        """Return the hint of one leaf from its optimised subproblems, which start at index `at`.

        `chosen` is the number of the row that excludes each alternative.
        """
        mine, cuts = slice(at, at + len(self.rows)), leaf.sides(self.graph)
        pulls = np.zeros((len(self.rows), len(cuts)), np.int64)
        for k, (cut, side) in enumerate(cuts):
            limits = problems.limits.get(cut.node) if cut.tap is None else None
            later = any(c == cut and s == side for c, s in cuts[k + 1 :])
            if limits is not None and not later and flat(limits[at])[1 - side, cut.cell] == cut.at:
                m = flat(problems.multipliers[cut.node])[mine, cut.cell].double()
                pulls[:, k] = _multiplier_integers(m if side else -m)
        slopes = {
            i: np.rint(s[mine].double().clamp(0, 1).numpy() * SLOPE_SCALE).astype(np.int64)
            for i, s in problems.slopes.items()
            if self.graph.nodes[i].op.name == "relu"
        }
        return LeafHint(
            self._weights_of_chosen(chosen), pulls, slopes, self._lost_tap_multipliers(problems, mine, leaf)
        )

    def _weights_of_chosen(self, chosen: Sequence[int]) -> Array:
        """Return weights that select one row of every alternative, of the number in `chosen`."""
        rows = zip(self.rows, chosen, strict=True)
        return np.concatenate([np.eye(len(limits), dtype=np.int64)[n] for (_, limits), n in rows])

    def _lost_tap_multipliers(self, problems: Problems, mine: slice, leaf: Leaf) -> Array:
        """Return multipliers of taps that lose at a leaf, (alternatives, losers), each at the last split that says so.

        `mine` is the leaf's slice of the problems.
        """
        losers = leaf.losers(self.graph)
        pulls = np.zeros((len(self.rows), len(losers)), np.int64)
        for k, (cut, t) in enumerate(losers):
            if cut.node in problems.tap_multipliers and (cut, t) not in losers[k + 1 :]:
                inside = {place: tap for tap, place in taps_inside(self.graph.nodes[cut.node], cut.cell).items()}
                pulls[:, k] = _multiplier_integers(problems.tap_multipliers[cut.node][mine, inside[t], cut.cell])
        return pulls

    def _row_weights(self, some: Sequence[Leaf]) -> Array:
        """Return whole weights (leaves, rows), int64, of the alternatives' rows on the leaves `some`.

        Where one row excludes its alternative it has the weight 1 and the others 0; elsewhere several have weights,
        which add up to about WEIGHTS.
        """
        if all(len(limits) == 1 for _, limits in self.rows):
            return np.ones((len(some), len(self.rows)), np.int64)
        low, high = _box_tensors(some)
        margins, a, *_ = self.boxes.bounds(low, high)
        mixed = (self.boxes.weights(low, high, margins, a) * WEIGHTS).round().sum(1)
        weights = np.zeros(margins.shape, np.int64)
        for k in range(self.boxes.count):
            mine = torch.nonzero(self.boxes.owner == k)[:, 0]
            best, at = margins[:, mine].max(1)
            alone = torch.nn.functional.one_hot(at, len(mine)).double()
            several = mixed[:, mine]
            chosen = torch.where(((best > 0) | (several.sum(1) == 0))[:, None], alone, several)
            weights[:, mine.numpy()] = chosen.numpy().astype(np.int64)
        return weights

    def _split_open_leaves(self, tree: Tree, open_: Sequence[tuple[int, Leaf]]) -> None:
        """Split every open leaf by an undecided winner, or else at the input that promises most; changes `tree`."""
        for part, leaf in open_:
            if (winner := undecided(self.graph, leaf)) is not None:
                tree.divide(part, winner)
        open_ = [(part, leaf) for part, leaf in open_ if part not in tree.firsts]
        for k in range(0, len(open_), self.boxes.batch):
            some = open_[k : k + self.boxes.batch]
            low, high = _box_tensors([leaf for _, leaf in some])
            best, margins, a, *_, losses = self.boxes.excluded(low, high)
            cut = OpenBoxes(low, high, best, margins, a, self.boxes.owner, losses).cut()
            for (part, _), cell, point in zip(some, cut[2].flatten().tolist(), cut[3].flatten().tolist(), strict=True):
                tree.divide(part, Split(self.boxes.input, cell, point))


def _path_up(tree: Tree, anew: Collection[int], part: int) -> list[int]:
    """Return the parts of a tree from `part` up to the nearest one in `anew`, on whose box roundings are counted, or to
    the root.
    """
    way = [part]
    while way[-1] and way[-1] not in anew:
        way.append(tree.parents[way[-1]])
    return way


def _subtree_of(tree: Tree, parts: Collection[int]) -> tuple[Tree, list[int]]:
    """Return the subtree that these parts need, and the number of each of its parts in the full tree.

    >>> tree = Tree()
    >>> for part in (0, 1, 2):
    ...     _ = tree.divide(part, Split(0, 0, part))
    >>> short, names = _subtree_of(tree, {6})
    >>> [(names[part], cut is None) for part, cut in short.preorder()]
    [(0, False), (1, True), (2, False), (5, True), (6, True)]
    """
    needed: set[int] = set()
    for part in parts:
        while part and (part := tree.parents[part]) not in needed:
            needed.add(part)
    short, names = Tree(), [0]
    todo = [0] if 0 in needed else []
    while todo:
        mine = todo.pop()
        cut = tree.cuts[names[mine]]
        assert cut is not None
        sides = short.divide(mine, cut)
        names += [tree.firsts[names[mine]] + side for side in (0, 1)]
        todo += [side for side in sides if names[side] in needed]
    return short, names


def _common_ancestors(tree: Tree, parts: Collection[int]) -> set[int]:
    """Return common ancestors that cover these parts, each as low as possible, at most NEAR splits above them.

    >>> tree = Tree()
    >>> for part in (0, 2, 4, 6):
    ...     _ = tree.divide(part, Split(0, 0, part))
    >>> _common_ancestors(tree, {7, 8}), _common_ancestors(tree, {5, 8}), _common_ancestors(tree, {8})
    ({6}, {4}, {8})
    """
    ways: dict[int, list[list[int]]] = {}
    for part in parts:
        way = [part]
        while way[-1]:
            way.append(tree.parents[way[-1]])
        ways.setdefault(way[min(NEAR, len(way) - 1)], []).append(way[::-1])
    return {max(set.intersection(*map(set, several)), key=several[0].index) for several in ways.values()}


def undecided(graph: Graph, leaf: Leaf) -> Split | None:
    """Return a split by the first tap that may still win a split window with several candidates; None if there
    is none.
    """
    left: dict[tuple[int, int], set[int]] = {}
    for cut, side in leaf.winners():
        taps = left.setdefault((cut.node, cut.cell), set(taps_inside(graph.nodes[cut.node], cut.cell)))
        taps &= taps - {cut.tap} if side and cut.tap is not None else {cut.tap}
    place = next((place for place, taps in left.items() if len(taps) > 1), None)
    return None if place is None else Split(*place, 0.0, min(left[place]))


def _multiplier_integers(b: torch.Tensor) -> Array:
    """Return multipliers b rounded to the integers of a certificate file: not negative, clamped to int32."""
    most = np.iinfo(np.int32).max
    return np.minimum(np.rint(b.double().clamp(min=0).numpy() * 2.0**MULTIPLIER_FRAC_BITS), most).astype(np.int64)


def behind_bends(graph: Graph) -> tuple[int, ...]:
    """Positions of nodes that nonlinear functions read and that other nonlinear functions feed."""
    behind: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if node.op.name in NONLINEAR or behind & set(node.operands()):
            behind.add(i)
    return tuple(i for i in inputs_of_nonlinear(graph) if i in behind)


def _can_be_split(leaf: Leaf) -> bool:
    """Whether some input of the leaf's box is not a single number."""
    return bool((leaf.low < leaf.high).any())


def _box_tensors(some: Sequence[Leaf]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (low, high) of the boxes of the leaves `some`, each (leaves, inputs), in float64."""
    low, high = (
        np.stack([end.ravel() for end in ends]).astype(np.float64)
        for ends in zip(*((x.low, x.high) for x in some), strict=True)
    )
    return torch.from_numpy(low), torch.from_numpy(high)
