"""One device's share of a graph, inside jax.shard_map: blocks, halos by ppermute, stages.

A stage is straight code, in a lax.switch where kinds of devices differ (the true border of a maximum has padding, the
inside has none). Every device computes just the cells that it owns, never the filling of its block: no NaN can come
from there, and no gradient either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specgrad.graph.graph import NumberArg
from specgrad.partition.halo_exchange import AxisExchange
from specgrad.partition.spmd_stages import At, Stage, Stages, relative_box
from specgrad.window import Shape
from specgrad.window.footprint import Box

from ..base import number
from .lowerings import ENGINE
from .mesh import cast_varying

Array = jax.Array
Values = dict[int, Array]


class Operand(NamedTuple):
    """The array that an argument is read from: its key, and from where on (`start`), in global cells, a device holds
    it.
    """

    key: str
    start: Callable[[At], Shape]


class DeviceRun:
    """One call on one device: blocks of values that are split, and all of those that are not.

    stages   what is computed between exchanges
    values   the results so far, by position
    arrays   what stages read, after their exchanges, by key
    """

    def __init__(self, stages: Stages, values: Values) -> None:
        self.stages, self.nodes = stages, stages.graph.nodes
        self.values = values
        self.arrays: dict[str, Array] = {}

    def run(self, stage: Stage) -> None:
        """Compute the results of a stage from the values in `arrays`, and enter each in `values` at its position."""
        operands = {
            (p, k): self._operand(p, k, a)
            for p in stage.nodes
            for k, a in enumerate(self.nodes[p].args)
            if isinstance(a, int) and a not in stage.nodes
        }
        code = StageCode(self.stages, stage, operands)
        # varying before a switch: the sum over devices that a gradient of whole values ends in must not be in a branch
        given = {operand.key: cast_varying(self.arrays[operand.key], stage.names) for operand in operands.values()}
        examples, kinds = self.stages.kinds(stage, code.key)
        branches = [partial(code.run, at) for at in examples]
        idle = any(not self.stages.computes(p, at) for p in stage.results for at in examples)
        types = {p: t for branch in branches if idle for p, t in jax.eval_shape(branch, given).items()}
        blocks = [partial(self._blocks, stage, branch, types) for branch in branches]
        kind = jnp.asarray(kinds)[self._device_number(stage.names)] if len(blocks) > 1 else 0
        results = lax.switch(kind, blocks, given) if len(blocks) > 1 else blocks[0](given)
        for p, value in zip(stage.results, results, strict=True):
            joined = self.stages.joined(p)
            self.values[p] = lax.psum(value, joined) if joined else value

    def _blocks(self, stage: Stage, branch: Any, types: dict[int, Any], given: dict[str, Array]) -> list[Array]:
        """Return the results of a branch of a stage, padded with zeros to the block shape that every device has.

        `given` are what the branch reads, by name; `types` say the dtype of each result.
        """
        values: Values = branch(given)
        shapes = {p: self.stages.block(p) for p in stage.results}
        blocks = [
            pad_to_block(values[p], shapes[p]) if p in values else jnp.zeros(shapes[p], types[p].dtype)
            for p in stage.results
        ]
        return [cast_varying(block, stage.names) for block in blocks]

    def _device_number(self, names: tuple[str, ...]) -> Any:
        """Return the number of this device among those that differ along the named axes of the mesh."""
        index: Any = 0
        for name, count in zip(self.stages.names, self.stages.counts, strict=True):
            index = index * count + lax.axis_index(name) if name in names else index
        return index

    # --- what a stage reads -------------------------------------------------------------------------------------------

    def _operand(self, p: int, k: int, a: int) -> Operand:
        """Make the array that argument k of node p (the value of node a) is read from; return its key and first cell.

        It is summed over devices, gets its halo or is sliced as needed, and is stored in `arrays`.
        """
        shared = self.stages.shared(p, k)
        key = " ".join((str(a), *shared))
        if key not in self.arrays:  # one cell, for all: those who do not own it hold zeros
            self.arrays[key] = lax.psum(self.values[a], shared) if shared else self.values[a]
        cut = {axis: name for axis, name in self.stages.axes[a].items() if name not in shared}
        return self._block_operand(a, key, cut) if cut else self._replicated_operand(p, k, key)

    def _block_operand(self, a: int, key: str, cut: dict[int, str]) -> Operand:
        """Return value `a`, under `key` in `arrays`, with the halo that this device reads.

        It is exchanged once for all readers, and stored in `arrays`. `cut` says which of its axes are split, and by
        which axis of the mesh.
        """
        stages, x, key = self.stages, self.arrays[key], f"{key} with halo"
        exchanges = {axis: stages.exchange(a, name) for axis, name in cut.items()}
        moves = any(exchanges.values())
        spans = {axis: stages.read_of(a, axis) for axis in range(x.ndim) if axis not in cut and moves}
        if key not in self.arrays:
            x = part_of(x, tuple(spans.get(axis, (0, n)) for axis, n in enumerate(x.shape)))
            for axis, name in sorted(cut.items(), key=lambda item: stages.names.index(item[1])):
                exchange = exchanges[axis]
                x = x if exchange is None else with_halo(x, axis, name, exchange)
            self.arrays[key] = x

        def start(at: At) -> Shape:
            first = [spans.get(axis, (0, 0))[0] for axis in range(x.ndim)]
            for axis, name in cut.items():
                e = exchanges[axis]
                d = at[stages.names.index(name)]
                first[axis] = stages.interval(a, axis, at)[0] if e is None else e.starts[d]
            return tuple(first)

        return Operand(key, start)

    def _replicated_operand(self, p: int, k: int, key: str) -> Operand:
        """Return argument k of node p, the value `key` of `arrays`, which all devices have.

        It is sliced to what this one reads, and stored in `arrays` under a key of its own, if they read different
        parts.
        """
        stages, x = self.stages, self.arrays[key]
        boxes = {at: stages.cut(p, at).args[k] for at in stages.devices if stages.computes(p, at)}
        sizes = [max(box[axis][1] - box[axis][0] for box in boxes.values()) for axis in range(x.ndim)]
        none = (0,) * x.ndim
        starts = {
            at: tuple(min(i, n - m) for (i, _), n, m in zip(box, x.shape, sizes, strict=True))
            for at, box in boxes.items()
        }
        if len(set(starts.values())) == 1:
            return Operand(key, lambda at: none)
        names = stages.along(p)
        rows = {stages.number(at, names): starts.get(at, none) for at in stages.devices}
        first = jnp.asarray([rows[i] for i in range(len(rows))])[self._device_number(names)]
        key = f"{key} of {p} {k}"
        self.arrays[key] = lax.dynamic_slice(cast_varying(x, names), [first[axis] for axis in range(x.ndim)], sizes)
        return Operand(key, lambda at: starts.get(at, none))


class StageCode:
    """The computation of one stage on any device, given the arrays that it reads.

    `operands` are those, by (node, number of the argument); `stages` are all, of which this `stage` is one.
    """

    def __init__(self, stages: Stages, stage: Stage, operands: dict[tuple[int, int], Operand]) -> None:
        self.stages, self.stage, self.operands = stages, stage, operands
        self.nodes = stages.graph.nodes

    def _box_in_operand(self, p: int, k: int, a: int, at: At) -> Box:
        """Return the box that device `at` reads of argument k of node p, value `a`, relative to the array that it is
        read from.
        """
        here = (p, k) not in self.operands
        start = tuple(i for i, _ in self.stages.owned(a, at)) if here else self.operands[p, k].start(at)
        return relative_box(self.stages.cut(p, at).args[k], start)

    def _owned_in_computed(self, p: int, at: At) -> Box:
        """Return the box of the cells of node p that device `at` owns, relative to those that it computes."""
        return relative_box(self.stages.owned(p, at), tuple(i for i, _ in self.stages.cut(p, at).gives))

    def key(self, at: At) -> Hashable:
        """Return a hashable key that is equal for devices, `at` being one's place in the mesh, that run the same
        code.
        """
        return tuple(self._key(p, at) if self.stages.computes(p, at) else None for p in self.stage.nodes)

    def _key(self, p: int, at: At) -> Hashable:
        """Return the key of node p on device `at`: boxes that it reads and gives, and parameters."""
        reads = tuple(self._box_in_operand(p, k, a, at) for k, a in enumerate(self.nodes[p].args) if isinstance(a, int))
        return reads, self._owned_in_computed(p, at), tuple(self.stages.cut(p, at).params.values())

    def run(self, at: At, given: dict[str, Array]) -> Values:
        """Return the results at the place `at` of a device in the mesh, each of just the cells that it owns; empty ones
        are left out.

        `given` are what the stage reads, by name.
        """
        values: Values = {}
        for p in self.stage.nodes:
            if self.stages.computes(p, at):
                args = [self._argument(p, k, at, given, values) for k in range(len(self.nodes[p].args))]
                shapes = [np.shape(v) for v in args]
                compute = ENGINE.kernel_for(self.nodes[p].op, shapes, self.stages.cut(p, at).params)
                values[p] = part_of(compute(*args), self._owned_in_computed(p, at))
        return {p: values[p] for p in self.stage.results if p in values}

    def _argument(self, p: int, k: int, at: At, given: dict[str, Array], values: Values) -> Any:
        """Return argument k of node p on device `at`, cropped to what it reads.

        It is taken from `given`, by key, or from the `values` of this stage.
        """
        a = self.nodes[p].args[k]
        if isinstance(a, NumberArg):
            return number(a.value)
        x = given[self.operands[p, k].key] if (p, k) in self.operands else values[a]
        return part_of(x, self._box_in_operand(p, k, a, at))


# --- arrays -----------------------------------------------------------------------------------------------------------


def part_of(x: Array, box: Box) -> Array:
    """Return the cells of x in this box; x itself if that is everything."""
    if box == tuple((0, n) for n in x.shape):
        return x
    return lax.slice(x, [first for first, _ in box], [stop for _, stop in box])


def pad_to_block(x: Array, shape: Shape) -> Array:
    """Return x padded with zeros behind, to this shape."""
    return x if x.shape == shape else jnp.pad(x, [(0, m - n) for n, m in zip(x.shape, shape, strict=True)])


def with_halo(x: Array, axis: int, name: str, exchange: AxisExchange) -> Array:
    """Return a block x with the cells that its device reads of others, along the mesh axis `name` that cuts `axis`.

    `exchange` says which. Cells that are in no block are 0.
    """
    x, here = cast_varying(x, (name,)), lax.axis_index(name)
    pieces = [x]
    for piece in exchange.pieces:
        starts = [piece.starts.get(d) for d in range(len(exchange.owned))]
        pieces.append(lax.ppermute(_cells_from_start(x, axis, starts, piece.cells, here), name, piece.pairs))
    together = jnp.concatenate(pieces, axis)
    if exchange.runs is not None:
        return jnp.concatenate([lax.slice_in_dim(together, *run, axis=axis) for run in exchange.runs], axis)
    beyond = np.where(exchange.table < 0, together.shape[axis], exchange.table)
    return jnp.take(together, jnp.asarray(beyond)[here], axis=axis, mode="fill", fill_value=0)


def _cells_from_start(x: Array, axis: int, starts: Sequence[int | None], count: int, here: Any) -> Array:
    """Return `count` cells of a block from this device's start, `starts[here]`; a device that sends none (None) may
    take any.
    """
    places = {start for start in starts if start is not None}
    if len(places) == 1:
        (start,) = places
        return lax.slice_in_dim(x, start, start + count, axis=axis)
    return lax.dynamic_slice_in_dim(x, jnp.asarray([s or 0 for s in starts])[here], count, axis)
