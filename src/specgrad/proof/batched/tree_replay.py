"""Proofs by splits: checks that the leaves of a tree cover the box, and replays each leaf.

A file gives the parts of a tree in preorder, each part before its sides, the side below before the one above. Boxes of
the leaves are derived from the splits on the way down and never read, so nothing can be left out: a part is a leaf, or
it has both sides of its split. Sides of a split (specgrad.proof.base.split_tree):

    input    [low, p] and [the next float32 number after p, high], for low <= p < high
    node     its reference is at most p, or at least p
    winner   of a window of a max_pool: it is this tap, or another

What a leaf proves says specgrad.proof.batched.leaves. Roundings are those of the whole box, or of the box of a part
above the leaf on which the network is bounded again: each part is a property of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from specgrad.graph.graph import CONSTANT, INPUT, Graph, Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import ReplayError
from ..base.split_tree import Split, Tree
from ..exact.replay import ExecutionModel
from .leaves import SLOPE_SCALE, Alternative, Root
from .leaves import Leaves as Packed

LEAF = -1  # stands for a node where a part is not cut
NO_TAP = -1
BATCH_LEAVES = 256  # leaves that are replayed at once
MAX_CUTS_IN_TEXT = 12  # cuts on a way that are written out


@dataclass(frozen=True, eq=False)
class TreeProof:
    """The hints of a proof by splits, as its file has them: they exclude some alternatives leaf by leaf.

    nodes         per part in preorder: the node that is split there, or LEAF
    cells, points per split, in the same order
    weights       (leaves, rows of all alternatives), integers >= 0
    tighten       nodes whose ranges are narrowed by backward bounds
    narrow        whether that is done on every leaf again, or on the whole box alone
    multipliers   integers, per leaf, per alternative, per split of a node from the root down
    changed       parts that have slopes of their own, which everything below them has too
    slopes        relu -> (changed parts, alternatives, *shape): of its lower lines
    anew          parts on whose own box of inputs the network is bounded again, for what lies below them
    taps          per split: the tap of a winner, by its place in the kernel, or NO_TAP; empty if all have none
    pulls         integers, per leaf, per alternative, per split whose tap wins there from the root down: multipliers of
                  the other taps that its window reads, in the order of the kernel
    """

    nodes: Array
    cells: Array
    points: Array
    weights: Array
    tighten: tuple[int, ...] = ()
    narrow: bool = True
    multipliers: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    changed: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    slopes: Mapping[int, Array] = field(default_factory=dict)
    anew: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    taps: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    pulls: Array = field(default_factory=lambda: np.zeros(0, np.int32))


Way = tuple[Any, Split, int] | None  # the way to the part above, the cut there, and the side of it


@dataclass(frozen=True, eq=False)
class Leaf:
    """A part of the tree: its number, its box of inputs, and the splits that lead to it.

    way         linked list of the splits above; see Way
    changed     which of the changed slopes it has; -1: none
    root        the nearest part, from here upward, on which the network is bounded again; None: the whole box
    low, high   ends of its box
    """

    part: int
    low: Array
    high: Array
    way: Way = None
    changed: int = -1
    root: Leaf | None = None

    def path(self) -> list[tuple[Split, int]]:
        """Return the splits from the root on, each with its side: 0 below, 1 above."""
        steps, way = [], self.way
        while way is not None:
            way, cut, side = way
            steps.append((cut, side))
        return steps[::-1]

    def sides(self, graph: Graph) -> list[tuple[Split, int]]:
        """Return the splits at points of nodes, with their sides; those of inputs are in the box."""
        cuts = ((cut, side) for cut, side in self.path() if graph.nodes[cut.node].op is not INPUT)
        return [(cut, side) for cut, side in cuts if cut.tap is None]

    def winners(self) -> list[tuple[Split, int]]:
        """Return the splits by winners of windows, with their sides."""
        return [(cut, side) for cut, side in self.path() if cut.tap is not None]

    def losers(self, graph: Graph) -> list[tuple[Split, int]]:
        """Return (split, t) for every other tap t of a window whose winner is fixed here, t in the window's
        relation."""
        won = ((cut, taps_inside(graph.nodes[cut.node], cut.cell)) for cut, side in self.winners() if not side)
        return [(cut, t) for cut, inside in won for tap, t in inside.items() if tap != cut.tap]

    def words(self, graph: Graph) -> str:
        """Return the splits that lead to this leaf as text, at most MAX_CUTS_IN_TEXT of them."""
        said = [_describe_side(graph, cut, side) for cut, side in self.path()]
        shown = (
            said
            if len(said) <= MAX_CUTS_IN_TEXT
            else [*said[: MAX_CUTS_IN_TEXT - 1], f"{len(said) - MAX_CUTS_IN_TEXT + 1} more cuts"]
        )
        return " and ".join(shown) or "the whole box"


def _describe_side(graph: Graph, cut: Split, side: int) -> str:
    """Return side 0 or 1 of the split `cut` as text: which cell lies on which side of the point, or whether the tap
    wins.
    """
    node = graph.nodes[cut.node]
    if cut.tap is not None:
        text = f"node {cut.node} ({node.name}), window {cut.cell}: tap {cut.tap}"
        return f"{text} {'does not win' if side else 'wins'}"
    if node.op is INPUT:
        return f"X_{cut.cell} {'>' if side else '<='} {np.float32(cut.at)}"
    return f"node {cut.node} ({node.name}), cell {cut.cell} {'>=' if side else '<='} {np.float32(cut.at)}"


def arrays_of(tree: Tree) -> tuple[Array, Array, Array]:
    """Return the nodes, cells and points of a tree, as a TreeProof has them.

    >>> tree = Tree()
    >>> _ = tree.divide(0, Split(0, 1, 0.5)), tree.divide(1, Split(3, 7))
    >>> [a.tolist() for a in arrays_of(tree)]
    [[0, 3, -1, -1, -1], [1, 7], [0.5, 0.0]]
    """
    cuts = [cut for _, cut in tree.preorder()]
    made = [cut for cut in cuts if cut is not None]
    nodes = np.array([LEAF if cut is None else cut.node for cut in cuts], np.int32)
    return nodes, np.array([c.cell for c in made], np.int32), np.array([c.at for c in made], np.float32)


def taps_of(tree: Tree) -> Array:
    """Return the taps of a tree, as a TreeProof has them."""
    made = [cut for _, cut in tree.preorder() if cut is not None]
    if all(cut.tap is None for cut in made):
        return np.zeros(0, np.int32)
    return np.array([NO_TAP if cut.tap is None else cut.tap for cut in made], np.int32)


# --- coverage ---------------------------------------------------------------------------------------------------------


def leaves(graph: Graph, low: Array, high: Array, proof: TreeProof) -> Iterator[Leaf]:
    """Yield the leaves of the tree of `proof` over the box low..high in preorder.

    Raise ReplayError if a side is missing or a split is outside its part.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.relu(x), (2,))
    >>> tree = TreeProof(np.int32([0, -1, -1]), np.int32([1]), np.float32([0.5]), np.ones((2, 1), np.int32))
    >>> box = np.float32([0, 0]), np.float32([1, 1])
    >>> for leaf in leaves(graph, *box, tree):
    ...     print(leaf.part, leaf.low.tolist(), leaf.high.tolist())
    1 [0.0, 0.0] [1.0, 0.5]
    2 [0.0, 0.5000000596046448] [1.0, 1.0]
    """
    changed, made = {part: k for k, part in enumerate(proof.changed.tolist())}, 0
    anew = set(proof.anew.tolist())
    cells, points = proof.cells.tolist(), proof.points.tolist()
    taps = [None if t == NO_TAP else t for t in proof.taps.tolist()] or [None] * len(cells)
    todo = [Leaf(0, low, high)]
    for part, node in enumerate(proof.nodes.tolist()):
        if not todo:
            raise ReplayError(f"the tree ends before part {part}, and more parts follow")
        here = todo.pop()
        here = replace(here, part=part, changed=changed.get(part, here.changed))
        if part in anew:
            here = replace(here, root=here)
        if node == LEAF:
            yield here
            continue
        if made == len(cells):
            raise ReplayError(f"the tree has {len(cells)} cuts, and more parts that are cut")
        todo += reversed(_sides(graph, here, Split(node, cells[made], points[made], taps[made])))
        made += 1
    if todo:
        raise ReplayError(f"the tree lacks parts: {len(todo)} sides of cuts are missing")
    if made != len(cells):
        raise ReplayError(f"the tree has {len(cells)} cuts, and only {made} parts that are cut")


def _sides(graph: Graph, here: Leaf, cut: Split) -> tuple[Leaf, Leaf]:
    """Return both sides, below and above, of the part `here` split by `cut`.

    Raise ReplayError if the split is not possible there.
    """
    if not 0 <= cut.node < len(graph.nodes) or graph.nodes[cut.node].op is CONSTANT:
        raise ReplayError(f"part {here.part} is cut at node {cut.node}, which is no input and no computed node")
    node, point = graph.nodes[cut.node], np.float32(cut.at)
    if node.kind != "real" or not 0 <= cut.cell < int(np.prod(node.shape)):
        raise ReplayError(f"part {here.part} is cut at cell {cut.cell} of node {node.name}, which has no such number")
    if not np.isfinite(point):
        raise ReplayError(f"part {here.part} is cut at {cut.at}, which is no number")
    below, above = (replace(here, way=(here.way, cut, side)) for side in (0, 1))
    if cut.tap is not None:
        _check_tap(here, node, cut)
    if node.op is not INPUT:
        return below, above
    first, last = here.low.reshape(-1)[cut.cell], here.high.reshape(-1)[cut.cell]
    if not first <= point < last:
        text = f"part {here.part} is cut at {point} of input {cut.cell}, where it has {first} to {last}"
        raise ReplayError(f"{text}; a cut has numbers on both sides")
    low, high = here.low.copy(), here.high.copy()
    high.reshape(-1)[cut.cell] = point
    low.reshape(-1)[cut.cell] = np.nextafter(point, np.float32(np.inf))
    return replace(below, high=high), replace(above, low=low)


def _check_tap(here: Leaf, node: Node, cut: Split) -> None:
    """Raise ReplayError unless `cut`, a split of the part `here` by the winner of `node`, can be made: the node is a
    max_pool, the point of the cut is 0, and its window reads this tap, and not padding in its place.
    """
    if node.op.name != "max_pool" or cut.at != 0:
        text = f"part {here.part} is cut by the winner of node {node.name}"
        raise ReplayError(f"{text}; a max_pool has winners, and the point of such a cut is 0")
    if cut.tap not in taps_inside(node, cut.cell):
        text = f"part {here.part} is cut by tap {cut.tap} of window {cut.cell} of node {node.name}"
        raise ReplayError(f"{text}, which has no such tap, or padding there")


def taps_inside(node: Node, cell: int) -> dict[int, int]:
    """Return the taps that a window reads: place in the kernel -> place in the window's relation.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(x, (3,), padding=1), (1, 4))
    >>> [taps_inside(graph.nodes[-1], cell) for cell in range(2)]
    [{1: 1, 2: 2}, {0: 0, 1: 1}]
    """
    window: Window = node.params["window"]
    return _taps_inside_cached(window, cell % math.prod(window.out))


@lru_cache(maxsize=1 << 14)
def _taps_inside_cached(window: Window, cell: int) -> dict[int, int]:
    """Return `taps_inside` for cell `cell` of one output plane."""
    here = np.arange(math.prod(window.out)).reshape(window.out)
    taps = enumerate(window.taps())
    return {window.number(tap.position): t for t, tap in taps if (tap.read_outputs(here) == cell).any()}


# --- what leaves prove ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LeafResult:
    """What is proven on one leaf: per alternative a lower bound of weights.(rows.y - limits) per unit of weight.

    margins   None: the leaf holds no execution
    """

    leaf: Leaf
    margins: tuple[Fraction, ...] | None


class Roots:
    """Cache of the bounds of `graph`, as `model` executes it, on the whole `box`, and on the last other box that was
    requested.

    `on_step` is called after every step of the work.
    """

    def __init__(
        self, graph: Graph, box: tuple[Array, Array], model: ExecutionModel, on_step: Callable[[], None]
    ) -> None:
        self.graph, self.box, self.model, self.on_step = graph, box, model, on_step
        self._cache: dict[bytes, Root] = {}

    def of(self, leaf: Leaf, tighten: Collection[int]) -> Root:
        """Return the network's bounds on the box of `leaf.root`; None there: on the whole box.

        tighten   positions whose ranges backward bounds narrow; any set is sound, and a cached box keeps its own.
                  Cached are the whole box and the last other one
        """
        low, high = self.box if leaf.root is None else (leaf.root.low, leaf.root.high)
        key = b"" if leaf.root is None else low.tobytes() + high.tobytes()
        if key not in self._cache:
            self._cache = {k: root for k, root in self._cache.items() if k == b""}
            self._cache[key] = Root(self.graph, low, high, self.model, tighten, self.on_step)
        return self._cache[key]


def replay_tree(
    graph: Graph,
    model: ExecutionModel,
    box: tuple[Array, Array],
    proof: TreeProof,
    rows: Sequence[Alternative],
    on_step: Callable[[], None] = lambda: None,
    only: Collection[int] | None = None,
    roots: Roots | None = None,
) -> Iterator[LeafResult]:
    """Yield every leaf of a tree with its margins, in order; raise ReplayError for a proof of wrong sizes or signs.

    only    parts that a prover asks about; a checker asks about all
    roots   what a prover keeps from one call to the next, of the same graph, box, model and nodes to tighten
    rows    the alternatives, (rows, limits)

    on_step is called now and then; it may raise.
    """
    check_tree(graph, box, proof, rows, on_step)
    roots = roots or Roots(graph, box, model, on_step)
    for some in _batches(_leaf_proofs(graph, box, proof, rows, only)):
        weights = _columns_by_alternative(np.stack([given.weights for given in some]), rows)
        proven = roots.of(some[0].leaf, proof.tighten).margins(
            _pack_leaves(graph, some, proof, weights), rows, proof.narrow
        )
        for n, given in enumerate(some):
            each = (proven.fraction(n, k) / int(w[n].sum()) for k, w in weights.items())
            yield LeafResult(given.leaf, None if proven.empty[n] else tuple(each))


@dataclass(frozen=True, eq=False)
class _LeafProof:
    """One leaf with the hints that the proof has for it.

    multipliers   (alternatives, splits of nodes above it)
    pulls         (alternatives, taps that lose on it)
    weights       (rows of all alternatives,): how they are combined
    """

    leaf: Leaf
    weights: Array
    multipliers: Array
    pulls: Array


def _leaf_proofs(
    graph: Graph, box: tuple[Array, Array], proof: TreeProof, rows: Sequence[Alternative], only: Collection[int] | None
) -> Iterator[_LeafProof]:
    """Yield the leaves of a proof on a box with their hints; `only`: numbers of the parts that are wanted, None for
    all.

    `rows` are the alternatives.
    """
    at = past = 0
    for number, leaf in enumerate(leaves(graph, *box, proof)):
        first, last = at, past
        at, past = at + len(leaf.sides(graph)) * len(rows), past + len(leaf.losers(graph)) * len(rows)
        if only is None or leaf.part in only:
            given = proof.multipliers[first:at], proof.pulls[last:past]
            each = (numbers.astype(np.int64).reshape(len(rows), -1) for numbers in given)
            yield _LeafProof(leaf, proof.weights[number].astype(np.int64), *each)


def check_tree(
    graph: Graph, box: tuple[Array, Array], proof: TreeProof, rows: Sequence[Alternative], on_step: Callable[[], None]
) -> None:
    """Raise ReplayError unless the leaves cover the box, and all hints by leaf have the right sizes and signs.

    `rows` are the alternatives; `on_step` is called for each leaf and may raise.
    """
    if len(proof.points) != len(proof.cells) or len(proof.taps) not in (0, len(proof.cells)):
        raise ReplayError("a tree needs a cell and a point per cut, and a tap where winners are cut")
    count = cut = lost = 0
    for leaf in leaves(graph, *box, proof):
        on_step()
        count, cut, lost = count + 1, cut + len(leaf.sides(graph)), lost + len(leaf.losers(graph))
    columns = sum(len(limits) for _, limits in rows)
    if proof.weights.shape != (count, columns):
        raise ReplayError(f"the weights of a tree must be of shape {(count, columns)}: leaves and rows")
    if proof.multipliers.shape != (cut * len(rows),):
        raise ReplayError("a tree needs a multiplier per leaf, alternative and cut of a node above the leaf")
    if proof.pulls.shape != (lost * len(rows),):
        raise ReplayError("a tree needs a multiplier per leaf, alternative and tap that loses to a winner there")
    _check_signs(proof)
    if not all(w.any(axis=1).all() for w in _columns_by_alternative(proof.weights, rows).values()):
        raise ReplayError("the weights of an alternative are all 0 at a leaf, so nothing excludes it there")
    _check_slopes(graph, proof, len(rows))
    _check_parts(proof.anew, proof, "parts that are bounded again")


def _check_parts(parts: Array, proof: TreeProof, what: str) -> None:
    """Raise ReplayError unless `parts` are numbers of parts of the tree, in order, each once; the error calls them
    `what`.
    """
    numbers = parts.astype(np.int64)
    inside = (numbers >= 0) & (numbers < len(proof.nodes))
    if parts.ndim != 1 or (np.diff(numbers) <= 0).any() or not inside.all():
        raise ReplayError(f"{what} must be parts of the tree, in order, each once")


def _check_signs(proof: TreeProof) -> None:
    """Raise ReplayError if a weight or multiplier is negative."""
    if any((given < 0).any() for given in (proof.weights, proof.multipliers, proof.pulls)):
        raise ReplayError("weights and multipliers must not be negative")


def _check_slopes(graph: Graph, proof: TreeProof, alternatives: int) -> None:
    """Raise ReplayError unless slopes belong to relus, have the right shape for so many alternatives, and lie in
    0..SLOPE_SCALE.
    """
    _check_parts(proof.changed, proof, "parts with slopes of their own")
    for i, slopes in proof.slopes.items():
        node, shape = graph.nodes[i], (len(proof.changed), alternatives, *graph.nodes[i].shape)
        if node.op.name != "relu" or slopes.shape != shape or (slopes < 0).any() or (slopes > SLOPE_SCALE).any():
            raise ReplayError(
                f"slopes of a tree belong to a relu, from 0 to {SLOPE_SCALE}, of shape {shape}: node {node.name}"
            )


def _columns_by_alternative(weights: Array, rows: Sequence[Alternative]) -> dict[int, Array]:
    """Return {alternative: the columns of `weights` (leaves, rows of all) that belong to it}.

    `rows` are the alternatives.
    """
    ends = np.cumsum([len(limits) for _, limits in rows])[:-1]
    return dict(enumerate(np.split(weights, ends, axis=1)))


def _batches(every: Iterator[_LeafProof]) -> Iterator[list[_LeafProof]]:
    """Yield lists of the leaves of `every` that are replayed at once: neighbours of one root, all with slopes of their
    own or all without.
    """
    some: list[_LeafProof] = []
    for given in every:
        if some and (len(some) == BATCH_LEAVES or _batch_key(some[0].leaf) != _batch_key(given.leaf)):
            yield some
            some = []
        some.append(given)
    if some:
        yield some


def _batch_key(leaf: Leaf) -> tuple[bool, int]:
    """Return what leaves of one batch must have in common: whether slopes are their own, and the root's part."""
    return leaf.changed < 0, -1 if leaf.root is None else leaf.root.part


def _pack_leaves(graph: Graph, some: Sequence[_LeafProof], proof: TreeProof, weights: Mapping[int, Array]) -> Packed:
    """Return the leaves `some` with their hints as the arrays that a replay takes; `weights` are of alternatives'
    rows.
    """
    every = [given.leaf.sides(graph) for given in some]
    sizes = {cut.node: int(np.prod(graph.nodes[cut.node].shape)) for sides in every for cut, _ in sides}
    confined = {i: (np.full((len(some), n), -np.inf), np.full((len(some), n), np.inf)) for i, n in sizes.items()}
    pushed = {i: np.zeros((2, len(some), len(weights), n), np.int64) for i, n in sizes.items()}
    for n, sides in enumerate(every):
        for k, (cut, side) in enumerate(sides):
            least, most = (end[n] for end in confined[cut.node])
            if side:
                least[cut.cell] = max(least[cut.cell], cut.at)
            else:
                most[cut.cell] = min(most[cut.cell], cut.at)
            pushed[cut.node][1 - side, n, :, cut.cell] += some[n].multipliers[:, k]  # at the narrower cut they do more

    def shaped(i: int, array: Array) -> Array:
        """Return an array with its last axis in the shape of node `i`."""
        return array.reshape(*array.shape[:-1], *graph.nodes[i].shape)

    records = [given.leaf.changed for given in some]
    return Packed(
        np.stack([given.leaf.low for given in some]),
        np.stack([given.leaf.high for given in some]),
        {i: (shaped(i, least), shaped(i, most)) for i, (least, most) in confined.items()},
        weights,
        {i: slopes[records].astype(np.int64) for i, slopes in proof.slopes.items()} if records[0] >= 0 else {},
        {i: (shaped(i, both[0]), shaped(i, both[1])) for i, both in pushed.items()},
        _winners(graph, [given.leaf for given in some]),
        _tap_multipliers(graph, some, len(weights)),
    )


def _tap_multipliers(graph: Graph, some: Sequence[_LeafProof], alternatives: int) -> dict[int, Array]:
    """Return max_pool -> (taps, leaves, alternatives, *shape) of the leaves `some`: multipliers of taps that lose."""
    every: dict[int, Array] = {}
    for n, given in enumerate(some):
        for k, (cut, t) in enumerate(given.leaf.losers(graph)):
            shape = graph.nodes[cut.node].shape
            taps = sum(1 for _ in graph.nodes[cut.node].params["window"].taps())
            b = every.setdefault(cut.node, np.zeros((taps, len(some), alternatives, *shape), np.int64))
            b.reshape(taps, len(some), alternatives, -1)[t, n, :, cut.cell] += given.pulls[:, k]
    return every


def _winners(graph: Graph, some: Sequence[Leaf]) -> dict[int, Array]:
    """Return max_pool -> (taps, leaves, *shape) of bool: which taps may win under the splits of each leaf of `some`."""
    every = [leaf.winners() for leaf in some]
    may_win: dict[int, Array] = {}
    for n, cuts in enumerate(every):
        for cut, side in cuts:
            node = graph.nodes[cut.node]
            taps = sum(1 for _ in node.params["window"].taps())
            mask = may_win.setdefault(cut.node, np.ones((taps, len(some), *node.shape), dtype=bool))
            is_tap = np.arange(taps) == taps_inside(node, cut.cell)[cut.tap or 0]
            mask.reshape(taps, len(some), -1)[:, n, cut.cell] &= ~is_tap if side else is_tap
    return may_win
