"""Whole graphs on a mesh of devices: from whole arrays to blocks, through jax.shard_map, and back.

Derivatives are JAX's transformations of the forward program, which carry our rules: the transpose of a ppermute is the
ppermute back, so a gradient moves each halo once more, and what is whole on all devices has the sum of all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from specgrad.graph.ir.interpreter import bind_inputs
from specgrad.graph.ir.tree import leaves
from specgrad.graph.transforms.autodiff import Wrt, real_outputs, selected
from specgrad.partition.spatial_axes import data_positions
from specgrad.partition.spmd_stages import Stages

from ...errors import ParameterError
from ...graph.graph import Graph
from .jit_graph import Compiled, checked, constant
from .shard_local import Array, Local, Values

WHOLE = PartitionSpec()


class Placed:
    """A value outside shard_map: split by JAX itself where parts are equal, else laid out in blocks of one length."""

    def __init__(self, stages: Stages, mesh: Mesh, p: int) -> None:
        shape, axes = stages.graph.nodes[p].shape, stages.axes[p]
        self.mesh = mesh
        self.spec = PartitionSpec(*(axes.get(axis) for axis in range(len(shape))))
        self.uneven: dict[int, tuple[Any, Any]] = {}
        for axis, name in axes.items():
            parts, block, n = stages.parts[name], stages.block(p)[axis], shape[axis]
            cells = np.full((parts.count, block), n)  # n: beyond the end
            for d in range(parts.count):
                first, stop = parts.interval(n, d)
                cells[d, : stop - first] = range(first, stop)
            if not np.array_equal(cells.ravel(), range(n)):
                self.uneven[axis] = cells.ravel(), np.flatnonzero(cells.ravel() < n)

    def _resharded(self, x: Array, spec: PartitionSpec) -> Array:
        """On explicit meshes (jax.make_mesh) types say how values are split, and change by this alone."""
        explicit = AxisType.Explicit in self.mesh.axis_types
        return jax.reshard(x, NamedSharding(self.mesh, spec)) if explicit else x

    def inwards(self, x: Array) -> Array:
        for axis, (cells, _) in self.uneven.items():
            x = jnp.take(self._resharded(x, WHOLE), cells, axis=axis, mode="fill", fill_value=0)
        return self._resharded(x, self.spec)

    def outwards(self, x: Array) -> Array:
        for axis, (_, places) in self.uneven.items():
            x = jnp.take(self._resharded(x, WHOLE), places, axis=axis)
        return x


def compile_sharded(
    graph: Graph, mode: str, wrt: Wrt, derived: Graph, *, mesh: Any, split: Any = None, jit: bool = True
) -> Callable[..., Any]:
    """derived: the graph of the derivative, whose arguments and results are ours."""
    if graph.open is not None:
        raise ParameterError(
            "compile", "sizes are open; give mesh= to a graph of fixed sizes, graph.at(...)", rule="P5"
        )
    return Sharded(ShardedForward(graph, mesh, split), mode, wrt, derived, jit)


class Sharded(Compiled):
    """cells_moved: how many cells devices send each other in one run of the graph, all together."""

    def __init__(self, forward: ShardedForward, mode: str, wrt: Wrt, derived: Graph, jit: bool) -> None:
        super().__init__(partial(MODES[mode], forward, wrt, derived), derived, jit)
        self.cells_moved = forward.stages.cells_moved


class ShardedForward:
    """The graph as a function from inputs to outputs, by position."""

    def __init__(self, graph: Graph, mesh: Any, split: Any) -> None:
        self.graph = graph
        self.stages = Stages(graph, _splits(graph, mesh, split))
        self.inputs, self.outputs = list(graph.input_positions), list(dict.fromkeys(graph.output_positions))
        self.placed = {p: Placed(self.stages, mesh, p) for p in {*self.inputs, *self.outputs}}
        self.constants = {p: constant(c) for p, c in graph.constants.items()}
        specs = [[self.placed[p].spec for p in positions] for positions in (self.inputs, self.outputs)]
        self.mapped = jax.shard_map(self._on_device, mesh=mesh, in_specs=(specs[0],), out_specs=specs[1])

    def _on_device(self, blocks: list[Array]) -> list[Array]:
        local = Local(self.stages, self.constants | dict(zip(self.inputs, blocks, strict=True)))
        for stage in self.stages.stages:
            local.run(stage)
        return [local.values[p] for p in self.outputs]

    def __call__(self, given: Values) -> Values:
        blocks = [self.placed[p].inwards(jnp.asarray(given[p])) for p in self.inputs]
        results = self.mapped(blocks)
        return {p: self.placed[p].outwards(y) for p, y in zip(self.outputs, results, strict=True)}


# --- modes, with the arguments and results of the graphs of specgrad.jvp, vjp and grad --------------------------------


def _bound(graph: Graph, derived: Graph, args: tuple[Any, ...]) -> tuple[Values, list[Array]]:
    """The inputs of the graph by position, and what its derivative takes beside them."""
    values = {p: checked(derived.nodes[p], v) for p, v in bind_inputs(derived, args).items()}
    count = len(graph.inputs)
    pairs = zip(leaves(graph.inputs), leaves(derived.inputs[:count]), strict=True)
    return {p: values[q] for p, q in pairs}, [jnp.asarray(values[q]) for q in leaves(derived.inputs[count:])]


def _of(forward: ShardedForward, wrt: Wrt, given: Values) -> tuple[Any, list[int], list[Array]]:
    """The real outputs as a function of what is differentiated in, all outputs beside; and where, and at what."""
    graph = forward.graph
    where = sorted({p for _, tree in selected(graph, wrt)[0] for p in leaves(tree)})

    def function(chosen: list[Array]) -> tuple[list[Array], list[Array]]:
        values = forward(given | dict(zip(where, chosen, strict=True)))
        real, everything = ([values[p] for p in leaves(tree)] for tree in (real_outputs(graph), graph.outputs))
        return real, everything

    return function, where, [jnp.asarray(given[p]) for p in where]


def _forward(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    values = forward(_bound(forward.graph, derived, args)[0])
    return [values[p] for p in leaves(forward.graph.outputs)]


def _jvp(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    given, tangents = _bound(forward.graph, derived, args)
    function, where, chosen = _of(forward, wrt, given)
    named = [p for _, tree in selected(forward.graph, wrt)[0] for p in leaves(tree)]
    along = dict(zip(named, tangents, strict=True))
    _, d_outputs, outputs = jax.jvp(function, (chosen,), ([along[p] for p in where],), has_aux=True)
    return [*outputs, *d_outputs]


def _vjp(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    given, cotangents = _bound(forward.graph, derived, args)
    function, where, chosen = _of(forward, wrt, given)
    _, pull, outputs = jax.vjp(function, chosen, has_aux=True)
    return [*outputs, *_named(forward.graph, wrt, where, pull(cotangents)[0])]


def _grad(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    given, _ = _bound(forward.graph, derived, args)
    function, where, chosen = _of(forward, wrt, given)
    (y,), pull, _ = jax.vjp(function, chosen, has_aux=True)
    return _named(forward.graph, wrt, where, pull([jnp.ones_like(y)])[0])


def _named(graph: Graph, wrt: Wrt, where: list[int], cotangents: list[Array]) -> list[Array]:
    """In the order in which wrt names them."""
    by_position = dict(zip(where, cotangents, strict=True))
    return [by_position[p] for _, tree in selected(graph, wrt)[0] for p in leaves(tree)]


MODES: dict[str, Callable[..., list[Array]]] = {"forward": _forward, "jvp": _jvp, "vjp": _vjp, "grad": _grad}


def _splits(graph: Graph, mesh: Any, split: Any) -> dict[str, tuple[int, int]]:
    """Axis of the mesh -> (axis of the first data input, devices)."""
    if not isinstance(mesh, Mesh):
        raise ParameterError("compile", f"mesh must be a jax.sharding.Mesh; got {type(mesh).__name__}", rule="P5")
    names = tuple(split) if isinstance(split, PartitionSpec | tuple | list) else ()
    known = [name for name in names if name is not None]
    if not known or any(name not in mesh.shape for name in known) or len(set(known)) != len(known):
        text = (
            'split must name axes of the mesh, each once, as PartitionSpec("data", None, "rows") does for a data input'
        )
        given = f"axes 0 and 2 are to be cut; the mesh has {', '.join(mesh.axis_names)}; got {split!r}"
        raise ParameterError("compile", f"{text} whose {given}", rule="P5")
    rank = next((len(graph.nodes[p].shape) for p in data_positions(graph) if graph.nodes[p].kind == "real"), 0)
    if len(names) > rank:
        text = f"split has {len(names)} places, the first data input {rank} axes"
        raise ParameterError("compile", f"{text}; got {split!r}", rule="P5")
    return {name: (axis, mesh.shape[name]) for axis, name in enumerate(names) if name is not None}
