"""Input splits: boxes by the hundred, bounded in batches, each layer narrowed again on every box.

A box is cut across the axis that promises most: of the alternative that is nearest to happening, the best of

    margin_r + gain_rj          over rows r and axes j (specgrad.bounds.search.input_split.axis_scores)

is what is cut. Errors and sizes are those of the whole box, which hold on every part of it; what is left far below it
is started again, group by group, on the group's own box: smaller values are rounded by less. What is known of the
layers of a box holds on its parts too: there only the cells that it leaves open are bounded again. Every bound is
rigorous for the deployed network: it is crown's own backward pass, on several boxes at once. A search in float32 with
a rigorous pass over its leaves, which are half of all boxes, is no faster (benchmarks/splits.txt).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.intermediate.tighten import open_cells, range_readers
from specgrad.bounds.linear.propagation.backward import ObjectiveParts, State, backward
from specgrad.bounds.linear.propagation.duplicate_relus import irrelevant_cells
from specgrad.bounds.linear.relaxation.bound_layers import BoundJoint, BoundOpaque, Interval
from specgrad.graph.drawing.summary import multiply_adds
from specgrad.graph.graph import Node
from specgrad.proof.base.split_tree import OpenPart, Split, Tree
from specgrad.properties.property import Case
from specgrad.rounding.slack_constants import LINE, UNDERFLOW, WEIGHTED

from ..network.pgd_attack import Counterexample, DeployedNetwork, confirmed_of
from ..shared.float32_bounds import flat
from ..shared.open_report import at_work, share_of
from .axis_scores import Losses
from .interval_cache import IntervalCache

Progress = Callable[[str, int, int], None]
BATCH, CELLS = 512, 1 << 24  # boxes at once; cells of a node, all boxes together
CHUNK = 1 << 19  # cells of the objectives of one backward pass
WORK = 1 << 33  # multiply-adds of a batch: a second or two. By work, not by a clock: the tree depends on batches
MAX_INPUTS_FOR_LOSSES = 16  # inputs, up to which slopes of hidden cells are asked for
DEEP, NEAR = 32, 16  # cuts below a box until a smaller one is begun with; its height above them
TRIED = 64  # boxes of a batch whose middles and corners are run
FLAT = 0.3  # where nothing is known of losses, slopes count as this share of the steepest one at least
SHARE = 1e-3  # of a row's offset in its size, to begin that search
STEPS = 25  # of the search for weights of several rows


@dataclass(frozen=True)
class InputSplitResult:
    """How a search over input splits ended, how many boxes it bounded, and its split tree.

    worst            the open part whose margin is least
    share            of the box that is settled, each cut halving it
    stuck            every open part holds one input alone, so that only rounding is left to decide
    counterexample   the one that ended the search; None: none was met
    settled          whether no part is open
    problems         how many boxes were bounded
    tree             how the box was divided
    """

    counterexample: Counterexample | None
    settled: bool
    problems: int
    tree: Tree
    worst: OpenPart | None = None
    share: float = 0.0
    stuck: bool = False


class Narrowed(NamedTuple):
    """A node whose interval others (`readers`) use: its cells that the whole box leaves open, and their columns among
    all such cells.
    """

    node: int
    readers: list[Node]
    cells: Tensor
    columns: slice


class Boxes:
    """Batched bounds of all rows of a case on parts of the box of one forward pass, `root`.

    rows, targets   a row excludes its alternative where row.y reaches the target
    owner           the alternative of every row
    """

    def __init__(self, root: ForwardPass, rows: Tensor, targets: Tensor, owner: Sequence[int]) -> None:
        self.root, self.rows, self.targets, self.owner = root, rows.double(), targets, torch.tensor(owner)
        self.count = max(owner) + 1
        self.several = torch.bincount(self.owner) > 1
        graph = root.graph
        (self.input,), (self.output,) = graph.input_positions, graph.output_positions
        self.shapes = {i: graph.nodes[i].shape for i in (self.input, self.output)}
        self.slack = root.slack(self.output, rows[None])[0]
        self.joint = any(isinstance(layer, BoundJoint) for layer in root.layers.values())  # these ask for whole batches
        self.narrowed = list(self._narrowed())
        self.lays_losses = math.prod(self.shapes[self.input]) <= MAX_INPUTS_FOR_LOSSES and not any(
            map(root.state.duplicate_fold, root.layers)
        )
        self.widest = max(math.prod(layer.node.shape) for layer in root.layers.values())
        work = sum(multiply_adds(n, graph.nodes) for n in graph.nodes) * self.objectives
        self.batch = max(1, min(BATCH, CELLS // (max(len(rows), 8) * self.widest), WORK // max(work, 1)))

    @property
    def objectives(self) -> int:
        """Return how many numbers are bounded on every box: the rows, and both ends of the tightened cells."""
        return len(self.rows) + 2 * sum(len(n.cells) for n in self.narrowed)

    def whole(self) -> Interval:
        """(lower, upper) of all tightened cells on the whole box, each (1, columns)."""
        ends = [
            [flat(e)[:, n.cells] for n in self.narrowed for e in (self.root.state.intervals[n.node][k],)]
            for k in (0, 1)
        ]
        low, high = (torch.cat(e, 1) if e else torch.zeros((1, 0), dtype=torch.float64) for e in ends)
        return low, high

    def _narrowed(self) -> Iterator[Narrowed]:
        """Yield the nodes whose intervals others use, with the cells that the whole box leaves open."""
        start = 0
        for i, readers in sorted(range_readers(self.root.graph).items()):
            layer = self.root.layers.get(i)
            if layer is None or isinstance(layer, BoundOpaque):
                continue
            open_ = open_cells(readers, *self.root.interval(i)).flatten()
            if self.root.state.readers.get(i) == 1:  # its only reader may do without some of them
                (reader,) = (j for j, n in enumerate(self.root.graph.nodes) if i in n.operands())
                open_[irrelevant_cells(self.root.state, reader, self.root.state.duplicate_fold(reader)).numpy()] = False
            cells = np.flatnonzero(open_)
            if len(cells):
                yield Narrowed(i, readers, torch.from_numpy(cells), slice(start, start + len(cells)))
                start += len(cells)

    @torch.no_grad()
    def bounds(
        self, low: Tensor, high: Tensor, kept: Interval | None = None
    ) -> tuple[Tensor, Tensor, Tensor, State, Interval, Tensor]:
        """Bound all rows on boxes low..high (N, inputs).

        Returns margins (N, rows), slopes over the inputs (N, rows, inputs), a mask of boxes that hold an execution, the
        backward state, the intervals of tightened cells, and what rows lose to relaxations, (N, rows, inputs).

        kept   intervals of the tightened cells, (N, columns), known before; None: those of the whole box
        """
        ends: dict[int, Interval] = {self.input: tuple(e.reshape(-1, *self.shapes[self.input]) for e in (low, high))}  # type: ignore[dict-item]
        first, last = (k.expand(len(low), -1).clone() for k in kept or self.whole())
        alive, kept = torch.ones(len(low), dtype=torch.bool), (first, last)
        losses = Losses(low, high, len(self.rows), self.lays_losses)
        for layer in self.narrowed:
            ends[layer.node], fits = self._narrow_layer(layer, ends, kept, losses)
            alive &= fits
        state, slopes = self.root.state.with_intervals(ends), dict[int, Tensor]()

        def told(i: int, part: ObjectiveParts, *_: Any) -> None:
            _store_coefficients(slopes, self.input, i, part)
            losses.lose(i, part, state)

        lower = self._lower_of_computed(
            backward(state, self._seeds(self.output, self.rows[None], len(low)), told), self.slack
        )
        if self.input in slopes:
            a = flat(slopes[self.input], 2).expand(len(low), len(self.rows), -1)
        else:
            a = torch.zeros((len(low), len(self.rows), low.shape[1]), dtype=low.dtype)
        return (lower - self.targets).expand(len(low), -1), a, alive, state, kept, losses.by_input

    def _lower_of_computed(self, reference: Tensor, slack: Tensor) -> Tensor:
        """Return a lower bound of computed values, from one of their `reference` and its distance `slack` from them;
        our rounding included.
        """
        return reference - slack - LINE * reference.abs()

    def _seeds(self, i: int, rows: Tensor, boxes: int) -> dict[int, Tensor]:
        """Return {i: rows}, objectives of node i for `backward`, reshaped from (boxes or 1, rows, cells).

        Rows for all boxes alike, (1, ...), are expanded to one copy per box if a layer has several sources.
        """
        seeds = rows.reshape(len(rows), rows.shape[1], *self.root.graph.nodes[i].shape)
        return {i: seeds.expand(boxes, *seeds.shape[1:]) if self.joint and len(seeds) == 1 else seeds}

    def _narrow_layer(
        self, layer: Narrowed, ends: Mapping[int, Interval], kept: Interval, losses: Losses
    ) -> tuple[Interval, Tensor]:
        """Interval of the node `layer` on every input box, stored in `kept` too; and a mask of boxes where it is not
        empty.

        `ends` are intervals of nodes below by position, `kept` all open cells (boxes, columns), `losses` gets what
        rounding takes.
        """
        i, cells, shape = layer.node, layer.cells, self.root.graph.nodes[layer.node].shape
        low, high = (flat(end).expand(len(kept[0]), -1).clone() for end in self.root.state.intervals[i])
        low[:, cells], high[:, cells] = (k[:, layer.columns] for k in kept)
        open_ = open_cells(layer.readers, *(e.reshape(-1, *shape).numpy() for e in (low, high)))
        mask = flat(torch.from_numpy(open_))[:, cells]
        for some, count in self._chunks(mask.sum(1)):
            where = cells[mask[some].byte().topk(count, 1).indices]
            one = torch.zeros((len(some), count, low.shape[1]), dtype=torch.float64).scatter_(2, where[..., None], 1.0)
            part = {j: (a[some], b[some]) for j, (a, b) in ends.items()}
            slopes: dict[int, Tensor] = {}
            told = partial(_store_coefficients, slopes, self.input) if losses.is_kept else None
            both = backward(
                self.root.state.with_intervals(part), self._seeds(i, torch.cat([one, -one], 1), len(some)), told
            )
            losses.enter(i, low.shape[1], some, where, slopes.get(self.input))
            at = some[:, None], where  # fmax and fmin: a NaN says nothing
            low[at], high[at] = torch.fmax(low[at], both[:, :count]), torch.fmin(high[at], -both[:, count:])
        fits = ~(low > high).any(1)
        low, high = torch.minimum(low, high), torch.maximum(low, high)
        for known, new in zip(kept, (low, high), strict=True):
            known[:, layer.columns] = new[:, cells]
        return (low.reshape(-1, *shape), high.reshape(-1, *shape)), fits

    def _chunks(self, counts: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Yield groups of boxes with similar `counts` of open cells, and the largest count; boxes without any are left
        out.
        """
        order, start = counts.argsort(descending=True), 0
        while start < len(order) and (most := int(counts[order[start]])):
            stop = start + max(1, CHUNK // (2 * most * self.widest))
            yield order[start:stop], most
            start = stop

    def excluded(
        self, low: Tensor, high: Tensor, kept: Interval | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Interval, Tensor]:
        """Margins (N, alternatives) of boxes low..high, rows combined where that helps; then what `bounds` returns
        beside margins.

        `kept` are intervals of open cells on a larger box; None: those of the whole one.
        """
        margins, a, alive, state, kept, losses = self.bounds(low, high, kept)
        best = margins.new_full((len(low), self.count), -torch.inf)
        best.scatter_reduce_(1, self.owner.expand(len(low), -1), margins, "amax")
        if bool((~(best > 0) & self.several & alive[:, None]).any()):
            weighted = self._weighted_margins(low, high, margins, a, state)
            best = torch.where(weighted > best, weighted, best)  # a NaN is no margin
        return best, margins, a, alive, kept, losses

    @torch.no_grad()
    def _weighted_margins(self, low: Tensor, high: Tensor, margins: Tensor, a: Tensor, state: State) -> Tensor:
        """Margins (N, alternatives) of weighted sums of rows: sum_r w_r (row_r.y - target_r) > 0 excludes for any w >=
        0.

        Weights are found on the lines over the inputs; one more backward pass proves what they give. `a` are the rows'
        lines over the inputs, `margins` the bounds of single rows, as `bounds` returns them. Boxes are low..high (N,
        inputs), `state` has the layers' relaxations on them.
        """
        weights = self.weights(low, high, margins, a)
        weights = (weights * 2**20).round() / 2**20  # few digits: products with rows of small whole numbers are exact
        rows, limits = torch.einsum("nkr,ro->nko", weights, self.rows), torch.einsum("nkr,r->nk", weights, self.targets)
        terms = torch.einsum("nkr,ro->nko", weights, self.rows.abs())
        seeds = rows.reshape(*rows.shape[:2], *self.shapes[self.output])
        lower = self._lower_of_computed(backward(state, {self.output: seeds}), self.root.slack(self.output, rows))
        return lower - limits - self._own_rounding(terms, limits)

    @torch.no_grad()
    def weights(self, low: Tensor, high: Tensor, margins: Tensor, a: Tensor) -> Tensor:
        """Weights (N, alternatives, rows), each with the sum 1, that make the lines over the inputs exclude most.

        Boxes are low..high (N, inputs); `a` are the rows' lines (N, rows, inputs), `margins` their bounds.
        """
        middle, radius = ((low + high) / 2)[:, None], ((high - low) / 2)[:, None]
        offset = margins - (a * middle).sum(2) + (a.abs() * radius).sum(2)
        mine = self.owner == torch.arange(self.count)[:, None]
        size = (a.abs() * radius).sum(2) + offset.abs() * SHARE + 1e-30
        start = torch.where(mine, 1.0, 0.0) / size[:, None]
        pull, best, weights = torch.zeros_like(start), margins.new_full((len(low), self.count), -torch.inf), start
        for step in range(STEPS):
            top = torch.where(mine, pull, -torch.inf).amax(2, keepdim=True)
            w = torch.where(mine, start * torch.exp(pull - top), 0.0)
            w = w / w.sum(2, keepdim=True)
            least = middle - torch.einsum("nkr,nrj->nkj", w, a).sign() * radius
            at = offset[:, None] + torch.einsum("nrj,nkj->nkr", a, least)
            value = (w * at).sum(2)
            better = value > best
            best, weights = torch.where(better, value, best), torch.where(better[..., None], w, weights)
            pull = pull + 2 / math.sqrt(1 + step) * at / (at.abs().amax(2, keepdim=True) + 1e-30)
        return weights

    def _own_rounding(self, terms: Tensor, limits: Tensor) -> Tensor:
        """Bound of our own rounding in weighted rows and their limits, (N, alternatives); `terms` are sums of absolute
        terms (N, alternatives, outputs).
        """
        ball = self.root.balls[self.output]
        outputs = torch.from_numpy(np.asarray(ball.size, dtype=float)).reshape(1, 1, -1)
        own = (len(self.rows) + 4) * WEIGHTED
        return own * ((terms * outputs).sum(2) + limits.abs() + self.targets.abs().max()) + UNDERFLOW


def split_inputs(
    network: DeployedNetwork,
    case: Case,
    boxes: Boxes,
    deadline: float,
    progress: Progress | None = None,
    rooted: Callable[[Tensor, Tensor], Boxes | None] | None = None,
) -> InputSplitResult:
    """Split the box of a case until every part is excluded, a counterexample is found, or the deadline
    (time.monotonic).

    boxes    bounds many boxes of inputs at once

    rooted   bounds of the parts of another box, whose rounding is that of its own, smaller values; None: not there
    progress   is told (what, done, total)
    """
    low, high = (torch.from_numpy(np.ravel(end))[None].clone() for end in case.outer())
    order, part, slot, depth = torch.zeros(1, dtype=torch.float64), *torch.zeros((3, 1), dtype=torch.int64)
    whole, late, alone, count, turn, tree = boxes, DeferredBoxes(), DeferredBoxes(), 0, 0, Tree()
    kept, begun = IntervalCache(boxes.whole()), time.monotonic()
    while len(low) or len(late):
        if time.monotonic() > deadline:
            waiting = DeferredBoxes(low, high, order, part)
            waiting.add(*late.all())
            waiting.add(*alone.all())
            return InputSplitResult(None, False, count, tree, *waiting.said(tree))
        if not len(low):  # rounding may be what is left: start again on a smaller box
            low, high, order, part = late.group(tree)
            slot, depth = torch.zeros((2, len(low)), dtype=torch.int64)
            boxes = (rooted(low.amin(0), high.amax(0)) if rooted else None) or whole
            kept = IntervalCache(boxes.whole())
        turn += 1
        first = order.argsort(descending=turn % 2 == 0)  # the nearest to done and the farthest, in turn
        taken, rest = first[: boxes.batch], first[boxes.batch :]
        some, parts, deep, known = (low[taken], high[taken]), part[taken], depth[taken], kept.read(slot[taken])
        low, high, order, part, slot, depth = (t[rest] for t in (low, high, order, part, slot, depth))
        best, margins, a, alive, known, losses = boxes.excluded(*some, known)
        count += len(taken)
        open_ = ~(best > 0).all(1) & alive  # a NaN would exclude nothing
        if bool(open_.any()):
            least, most, best, margins, a, losses = (t[open_] for t in (*some, best, margins, a, losses))
            batch = OpenBoxes(least, most, best, margins, a, boxes.owner, losses)
            counterexample = batch.run_candidates(network, case)
            if counterexample is not None:
                return InputSplitResult(counterexample, False, count, tree)
            parts, deep, known = parts[open_], deep[open_], (known[0][open_], known[1][open_])
            one = batch.is_one_input()
            for there, mine in ((late, one & (deep > 0)), (alone, one & (deep == 0))):  # first by rounding of its own
                there.add(batch.low[mine], batch.high[mine], batch.worst[mine], parts[mine])
            batch, parts, deep, known = batch.chosen(~one), parts[~one], deep[~one], (known[0][~one], known[1][~one])
            cut = batch.cut()
            lows, highs = (torch.cat(new) for new in cut[:2])
            numbers, worst = torch.cat(add_splits(tree, parts, boxes.input, *cut[2:])), batch.worst.repeat(2)
            deeper = deep.repeat(2) + 1
            slots = kept.store(*known).repeat(2)
            stay = deeper < (DEEP if rooted else math.inf)
            if not bool(stay.all()):
                kept.read(slots[~stay])
                late.add(lows[~stay], highs[~stay], worst[~stay], numbers[~stay])
            new = lows[stay], highs[stay], worst[stay], numbers[stay], slots[stay], deeper[stay]
            queue = (low, high, order, part, slot, depth)
            low, high, order, part, slot, depth = (torch.cat(pair) for pair in zip(queue, new, strict=True))
        if progress is not None:
            left = len(low) + len(late) + len(alone)
            said = at_work("input splits", float(order.min()) if len(order) else None, count, begun)
            progress(said, len(tree.cuts) + 1 - left, len(tree.cuts) + 1)
    if len(alone):
        return InputSplitResult(None, False, count, tree, *alone.said(tree), stuck=True)
    return InputSplitResult(None, True, count, tree, None, 1.0)


def _store_coefficients(slopes: dict[int, Tensor], node: int, i: int, part: ObjectiveParts, *_: Any) -> None:
    """Callback of `backward` at node `i`: if it is `node`, store the coefficients of the objective `part` in
    `slopes`.
    """
    if i == node:
        slopes[i] = part.total


class DeferredBoxes:
    """Boxes that wait: far below the box whose rounding they are charged with, or a single input."""

    def __init__(self, *boxes: Tensor) -> None:
        """low, high, order and part."""
        nothing = torch.zeros((0, 0), dtype=torch.float64)
        self.low, self.high, self.order, self.part = boxes or (nothing, nothing, nothing, nothing.flatten().long())

    def __len__(self) -> int:
        return len(self.part)

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (low, high, order, part) of all boxes that are deferred."""
        return self.low, self.high, self.order, self.part

    def add(self, *boxes: Tensor) -> None:
        """Append boxes: low, high, order, part."""
        if not len(boxes[-1]):
            return
        kept = self.all() if len(self) else tuple(t[:0] for t in boxes)
        self.low, self.high, self.order, self.part = (torch.cat(pair) for pair in zip(kept, boxes, strict=True))

    def group(self, tree: Tree) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Remove the last box and all boxes that share its ancestor in the split tree, and return their (low, high,
        order, part).
        """
        above = torch.tensor([_ancestor(tree, part) for part in self.part.tolist()])
        mine = above == above[-1]
        taken, rest = ([t[m] for t in self.all()] for m in (mine, ~mine))
        self.low, self.high, self.order, self.part = rest
        low, high, order, part = taken
        return low, high, order, part

    def said(self, tree: Tree) -> tuple[OpenPart | None, float]:
        """Return the open part with the least margin (None: there is none), and the share of the whole box that is
        settled.
        """
        if not len(self):
            return None, 1.0
        k = int(self.order.argmin())
        cuts = tree.path(int(self.part[k]))
        worst = OpenPart(self.low[k].tolist(), self.high[k].tolist(), cuts, float(self.order[k]))
        return worst, 1.0 - share_of(tree, self.part.tolist())


def _ancestor(tree: Tree, part: int) -> int:
    """Ancestor of a part in the split tree, a fixed number of splits above it."""
    for _ in range(NEAR):
        part = max(tree.parents[part], 0)
    return part


def add_splits(tree: Tree, parts: Tensor, node: int, cells: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """Enter one split per part in the tree, at a cell of `node` and a point; return the numbers of the parts below and
    above.
    """
    cuts = zip(parts.tolist(), cells.flatten().tolist(), points.flatten().tolist(), strict=True)
    numbers = [tree.divide(part, Split(node, cell, at)) for part, cell, at in cuts]
    below, above = torch.tensor(numbers, dtype=torch.int64).reshape(-1, 2).unbind(1)
    return below, above


class OpenBoxes:
    """Boxes that no bound excludes: where they may violate the property, and where they are split.

    best        the margin of every alternative; margins and a, of every row: its margin and its slopes over the inputs
    losses      of every row: what it loses to the lines of hidden cells, by the inputs that make those wide
    low, high   their ends, (N, inputs)
    owner       the alternative of every row
    """

    def __init__(
        self, low: Tensor, high: Tensor, best: Tensor, margins: Tensor, a: Tensor, owner: Tensor, losses: Tensor
    ) -> None:
        self.low, self.high, self.a, self.losses = low, high, a, losses
        self.worst, alternative = best.min(1)
        self.near = torch.where(owner == alternative[:, None], margins, -torch.inf)

    def chosen(self, some: Tensor) -> OpenBoxes:
        """Return the boxes that the index or mask `some` selects."""
        batch = copy(self)
        for name in ("low", "high", "a", "losses", "worst", "near"):
            setattr(batch, name, getattr(self, name)[some])
        return batch

    def is_one_input(self) -> Tensor:
        """Bool mask of boxes that hold one float32 number per input, so that nothing can be split."""
        return (self.low.float() >= self.high.float()).all(1)

    def cut(self) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
        """Return every box split in two: lows and highs of both parts, the inputs that were split, and where."""
        at = self._input_to_split()[:, None]
        first, last = (end.gather(1, at).numpy().astype(np.float32) for end in (self.low, self.high))
        if (first >= last).any():  # no `assert`: parts that miss a number would be a false proof under python -O
            raise AssertionError("a box that is one input alone is not cut")
        middle = np.minimum(np.maximum(first / 2 + last / 2, first), np.nextafter(last, np.float32(-np.inf)))
        beyond = np.nextafter(middle, np.float32(np.inf))
        ends, starts = (torch.from_numpy(m.astype(np.float64)) for m in (middle, beyond))
        lows, highs = [self.low, self.low.scatter(1, at, starts)], [self.high.scatter(1, at, ends), self.high]
        return lows, highs, at, ends

    def _input_to_split(self) -> Tensor:
        """Input to split, per box; never a single number unless all inputs are."""
        width, steep = self.high - self.low, self.a.abs()
        if not bool(self.losses.any()):
            steep = torch.maximum(steep, FLAT * steep.amax(2, keepdim=True))
        score = (self.near[:, :, None] + steep * width[:, None] / 2 + self.losses).amax(1)
        score = torch.where(score.isfinite().all(1, keepdim=True), score, width)  # where nothing is known of the rows
        return torch.where(self.low.float() < self.high.float(), score, -torch.inf).argmax(1)

    def run_candidates(self, network: DeployedNetwork, case: Case) -> Counterexample | None:
        """Run the network at middles and worst corners of the worst boxes; return a counterexample or None."""
        chosen = self.worst.argsort()[:TRIED]
        slopes = self.a[chosen, self.near[chosen].argmax(1)]
        low, high = self.low[chosen], self.high[chosen]
        points = torch.cat([(low + high) / 2, torch.where(slopes > 0, low, high)]).float()
        first, last = (torch.from_numpy(np.ravel(end)).float() for end in case.nearest)
        return confirmed_of(network, case, torch.minimum(torch.maximum(points, first), last))
