"""Graphs on a mesh of devices: from global arrays to blocks, through jax.shard_map, and back.

Derivatives are JAX's transformations of the forward program, which carry our rules: the transpose of a ppermute is the
ppermute back, so a gradient moves each halo once more, and what is replicated on all devices gets the sum of all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from specgrad.graph.ir.node import bind_inputs
from specgrad.graph.ir.tree import leaves
from specgrad.graph.transforms.autodiff import Wrt, real_outputs, selected
from specgrad.partition.spatial_axes import data_positions
from specgrad.partition.spmd_stages import Stages

from ...errors import ParameterError
from ...graph.graph import Graph
from .jit_graph import Compiled, checked, constant
from .shard_local import Array, DeviceRun, Values

REPLICATED = PartitionSpec()


class Placement:
    """Layout on `mesh` of node p, an input or output, outside shard_map, as `stages` cut it: split by JAX if parts are
    equal, else padded blocks.
    """

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
        """Return x with this sharding on explicit meshes (jax.make_mesh), whose types say how values are split."""
        explicit = AxisType.Explicit in self.mesh.axis_types
        return jax.reshard(x, NamedSharding(self.mesh, spec)) if explicit else x

    def to_blocks(self, x: Array) -> Array:
        """Return a global array in the layout that shard_map takes: equal blocks, filled with zeros."""
        for axis, (cells, _) in self.uneven.items():
            x = jnp.take(self._resharded(x, REPLICATED), cells, axis=axis, mode="fill", fill_value=0)
        return self._resharded(x, self.spec)

    def from_blocks(self, x: Array) -> Array:
        """Return the global array from equal blocks, without their filling."""
        for axis, (_, places) in self.uneven.items():
            x = jnp.take(self._resharded(x, REPLICATED), places, axis=axis)
        return x


def compile_sharded(
    graph: Graph, mode: str, wrt: Wrt, derived: Graph, *, mesh: Any, split: Any = None, jit: bool = True
) -> Callable[..., Any]:
    """Return the graph, or its derivative, as one function on a mesh.

    `derived` is the graph of the derivative by `mode` (a key of MODES) in the arguments `wrt`; it defines arguments and
    results. `split` is a PartitionSpec: the mesh axis that cuts each axis of the data. ParameterError if sizes are
    open. `jit` compiles it.
    """
    if graph.open is not None:
        raise ParameterError(
            "compile", "sizes are open; give mesh= to a graph of fixed sizes, graph.at(...)", rule="P5"
        )
    return Sharded(ShardedForward(graph, mesh, split), mode, wrt, derived, jit)


class Sharded(Compiled):
    """Compiled graph on a mesh; `cells_moved` counts the cells that devices send each other in one forward run.

    It computes `derived`, which is the graph of `forward` or its derivative in the inputs `wrt`, as `mode` says, a key
    of MODES; `jit` compiles it.
    """

    def __init__(self, forward: ShardedForward, mode: str, wrt: Wrt, derived: Graph, jit: bool) -> None:
        super().__init__(partial(MODES[mode], forward, wrt, derived), derived, jit)
        self.cells_moved = forward.stages.cells_moved


class ShardedForward:
    """The graph on a mesh as a function from input values to output values, both by position.

    `split` has, per axis of the first data input, the name of the axis of the mesh that cuts it, or None;
    ParameterError for one that does not fit.
    """

    def __init__(self, graph: Graph, mesh: Any, split: Any) -> None:
        self.graph = graph
        self.stages = Stages(graph, _checked_splits(graph, mesh, split))
        self.inputs, self.outputs = list(graph.input_positions), list(dict.fromkeys(graph.output_positions))
        self.placed = {p: Placement(self.stages, mesh, p) for p in {*self.inputs, *self.outputs}}
        self.constants = {p: constant(c) for p, c in graph.constants.items()}
        specs = [[self.placed[p].spec for p in positions] for positions in (self.inputs, self.outputs)]
        self.mapped = jax.shard_map(self._on_device, mesh=mesh, in_specs=(specs[0],), out_specs=specs[1])

    def _on_device(self, blocks: list[Array]) -> list[Array]:
        """Return the output blocks of one device from its input blocks."""
        local = DeviceRun(self.stages, self.constants | dict(zip(self.inputs, blocks, strict=True)))
        for stage in self.stages.stages:
            local.run(stage)
        return [local.values[p] for p in self.outputs]

    def __call__(self, given: Values) -> Values:
        blocks = [self.placed[p].to_blocks(jnp.asarray(given[p])) for p in self.inputs]
        results = self.mapped(blocks)
        return {p: self.placed[p].from_blocks(y) for p, y in zip(self.outputs, results, strict=True)}


# --- modes, with the arguments and results of the graphs of specgrad.jvp, vjp and grad --------------------------------


def _split_arguments(graph: Graph, derived: Graph, args: tuple[Any, ...]) -> tuple[Values, list[Array]]:
    """Return the inputs of the graph by position, and the further arguments of its derivative, `derived`.

    ShapeError or ScalarError for arguments that do not fit the graph.
    """
    values = {p: checked(derived.nodes[p], v) for p, v in bind_inputs(derived, args).items()}
    count = len(graph.inputs)
    pairs = zip(leaves(graph.inputs), leaves(derived.inputs[:count]), strict=True)
    return {p: values[q] for p, q in pairs}, [jnp.asarray(values[q]) for q in leaves(derived.inputs[count:])]


def _function_of_wrt(forward: ShardedForward, wrt: Wrt, given: Values) -> tuple[Any, list[int], list[Array]]:
    """Return the real outputs as a function of the inputs in `wrt`, their positions, and their values in `given`.

    The function returns all outputs as auxiliary values. ShapeError for a name in `wrt` that no input has, or one of
    integers.
    """
    graph = forward.graph
    where = sorted({p for _, tree in selected(graph, wrt)[0] for p in leaves(tree)})

    def function(chosen: list[Array]) -> tuple[list[Array], list[Array]]:
        values = forward(given | dict(zip(where, chosen, strict=True)))
        real, everything = ([values[p] for p in leaves(tree)] for tree in (real_outputs(graph), graph.outputs))
        return real, everything

    return function, where, [jnp.asarray(given[p]) for p in where]


def _forward(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    """Return the outputs of the sharded graph for these arguments, flat; `wrt` and further arguments of `derived` are
    not read.
    """
    values = forward(_split_arguments(forward.graph, derived, args)[0])
    return [values[p] for p in leaves(forward.graph.outputs)]


def _jvp(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    """Return outputs and tangents along the inputs `wrt`, flat, for arguments of specgrad.jvp.

    The graph `derived` says how they are structured.
    """
    given, tangents = _split_arguments(forward.graph, derived, args)
    function, where, chosen = _function_of_wrt(forward, wrt, given)
    named = [p for _, tree in selected(forward.graph, wrt)[0] for p in leaves(tree)]
    along = dict(zip(named, tangents, strict=True))
    _, d_outputs, outputs = jax.jvp(function, (chosen,), ([along[p] for p in where],), has_aux=True)
    return [*outputs, *d_outputs]


def _vjp(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    """Return outputs and cotangents of the inputs `wrt`, flat, for arguments of specgrad.vjp.

    The graph `derived` says how they are structured.
    """
    given, cotangents = _split_arguments(forward.graph, derived, args)
    function, where, chosen = _function_of_wrt(forward, wrt, given)
    _, pull, outputs = jax.vjp(function, chosen, has_aux=True)
    return [*outputs, *_in_wrt_order(forward.graph, wrt, where, pull(cotangents)[0])]


def _grad(forward: ShardedForward, wrt: Wrt, derived: Graph, *args: Any) -> list[Array]:
    """Return the gradients in the inputs `wrt`, flat, for arguments of specgrad.grad.

    The graph `derived` says how they are structured.
    """
    given, _ = _split_arguments(forward.graph, derived, args)
    function, where, chosen = _function_of_wrt(forward, wrt, given)
    (y,), pull, _ = jax.vjp(function, chosen, has_aux=True)
    return _in_wrt_order(forward.graph, wrt, where, pull([jnp.ones_like(y)])[0])


def _in_wrt_order(graph: Graph, wrt: Wrt, where: list[int], cotangents: list[Array]) -> list[Array]:
    """Return the cotangents of inputs at positions `where` in the order in which `wrt` names the inputs."""
    by_position = dict(zip(where, cotangents, strict=True))
    return [by_position[p] for _, tree in selected(graph, wrt)[0] for p in leaves(tree)]


MODES: dict[str, Callable[..., list[Array]]] = {"forward": _forward, "jvp": _jvp, "vjp": _vjp, "grad": _grad}


def _checked_splits(graph: Graph, mesh: Any, split: Any) -> dict[str, tuple[int, int]]:
    """Return, for each mesh axis in `split`, the axis of the first data input that it splits and the device count.

    ParameterError unless the mesh is one of JAX and `split` names axes of it, each once.
    """
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
