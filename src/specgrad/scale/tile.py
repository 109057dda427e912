"""One tile of a plan: its boxes, and the cropped graph that all tiles of its kind share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..engines import PACKAGES, compile
from ..errors import ShapeError, UnsupportedError
from ..graph.graph import CONSTANT, Graph
from ..graph.ir.tree import Tree, leaves, match, transform
from ..graph.transforms.autodiff import vjp
from ..op import Op, apply, shape_of
from ..ops.elementwise import ADD, MAXIMUM
from ..partition.cropped_graph import CroppedGraph
from ..partition.spatial_axes import data_positions
from ..window import Shape
from ..window.footprint import Box, lengths, slices, whole

Values = dict[int, Any]  # by position in the graph
COMBINE = {"sum": ADD, "amax": MAXIMUM}
"""How two parts of what was read become one."""


def combine_parts(op: Op, parts: Iterable[Any]) -> Any:
    """Return the sum or maximum (`op`) over everything, from `parts`, the partial results of tiles, combined in their
    order.
    """
    return reduce(lambda total, part: apply(COMBINE[op.name], total, part), parts)


class Programs:
    """What all tiles of a plan share: a compiled graph per kind of tile and engine, and constants as tensors.

    known   values of nodes that were computed in passes before
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.compiled: dict[Any, Callable[..., Any]] = {}
        self.known: Values = {}
        self._constants: dict[Any, Any] = {}

    def with_known(self, values: Values) -> Programs:
        """Return a copy that shares the compiled programs and has `values` (by position) from earlier passes."""
        other = copy(self)
        other.known = values
        return other

    def program(self, cut: CroppedGraph, engine: str | None, wrt: tuple[str, ...] | None) -> Callable[..., Any]:
        """Return the compiled graph of a tile, or its vjp in the inputs `wrt`; with engine None, the graph itself.

        Cached.
        """
        key = cut.key, engine, wrt
        if key not in self.compiled:
            graph = cut.graph() if wrt is None else vjp(cut.graph(), wrt)
            self.compiled[key] = graph if engine is None else compile(graph, engine)
        return self.compiled[key]

    def constant(self, p: int, box: Box, engine: str | None, like: Any) -> Any:
        """Return constant `p`, or a value known from a pass, on `box`.

        Constants needed whole are converted once and cached. For an engine it has the type and device of `like`, an
        array of that engine; UnsupportedError if the pass was not made.
        """
        node = self.graph.nodes[p]
        if node.op is not CONSTANT:
            if p not in self.known:
                raise UnsupportedError(node.group, "reads everything: call plan.measure with the same arguments first")
            return self.known[p][slices(box)]
        array = self.graph.constants[p][slices(box)]
        if engine is None or box != whole(self.graph.nodes[p].shape):
            return array if engine is None else _to_engine(array, engine, like)
        key = p, engine, str(getattr(like, "device", ""))
        if key not in self._constants:
            self._constants[key] = _to_engine(array, engine, like)
        return self._constants[key]


@dataclass(frozen=True, eq=False)
class Tile:
    """One tile of the outputs and the graph that computes it: `out[t.box] = t(x[t.reads])`.

    It is called as the whole graph is, with the data cut to what it reads and parameters whole. Its results, and `box`,
    are in the structure of the graph's results; `reads` is one index, or a tuple of them where there are several data
    inputs. The type of the data decides who computes: NumPy the specification, torch and JAX their engines. Plans make
    tiles.

    Parameters
    ----------
    boxes : dict of int to box
        The cells of every output that the tile gives, by its position.
    cut : CroppedGraph
        The graph, cropped to what the tile needs.
    needs : dict of int to box
        The cells that it reads of every input and constant, by its position.
    programs : Programs
        Compiled graphs by engine, which all tiles of a plan share.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(x, (3,), stride=1, padding=1), (1, 10))
    >>> tile, x = sg.scale.tiles(graph, 4)[1], np.arange(10.0).reshape(1, 10)
    >>> tile(x[tile.reads]), tile.box[1]
    (array([[5., 6., 7., 8.]]), slice(4, 8, None))
    """

    boxes: dict[int, Box]
    cut: CroppedGraph  # of the tile that stands for all of this kind
    needs: dict[int, Box]  # of this one, for every input and constant
    programs: Programs

    @property
    def graph(self) -> Graph:
        """The tile's graph: (data, parameters, constants) -> the outputs that this tile has."""
        return self.cut.graph()

    @property
    def box(self) -> Any:
        """Index of this tile's results in the whole outputs, in the structure of the graph's results."""
        source = self.cut.source
        indices = transform(lambda _, p: slices(self.boxes[p]), source.outputs)
        return indices[0] if source.single else indices

    @property
    def reads(self) -> Any:
        """Index of the data that this tile needs; a tuple of indices if there are several data inputs."""
        indices = tuple(slices(self.needed(p)) for p in data_positions(self.cut.source))
        return indices[0] if len(indices) == 1 else indices

    def needed(self, p: int) -> Box:
        """Return the box of input p that this tile needs; an empty one if none."""
        return self.needs.get(p) or tuple((0, 0) for _ in self.cut.source.nodes[p].shape)

    def __call__(self, *args: Any) -> Any:
        """Return this tile's outputs in the structure of the graph's, from data cut to `reads` and whole parameters."""
        source, values = self.cut.source, self._bind_args(args)
        by_position, like = self.run(values), next(iter(values.values()))

        def result(_: str, p: int) -> Any:
            return by_position[p] if p in by_position else _zeros_of(lengths(self.boxes[p]), like)

        tree = transform(result, source.outputs)
        return tree[0] if source.single else tree

    def run(self, values: Values) -> Values:
        """Return this tile's outputs by position, from values by position: data cut to `reads`, parameters whole."""
        engine = engine_of(list(values.values()))
        results = self.programs.program(self.cut, engine, None)(*self._graph_args(values, engine))
        return dict(zip(self.cut.boxes, results, strict=True))

    def partial_reduction(self, p: int, values: Values) -> list[Any]:
        """Return [this tile's part of the sum or maximum p over everything], or [] if it has no cells of it."""
        node = self.cut.source.nodes[p]
        (argument,) = node.operands()
        return [apply(node.op, self.run(values)[argument], **node.params)] if argument in self.cut.boxes else []

    def vjp(self, *args: Any) -> tuple[Tree, ...]:
        """Return the cotangents of the real arguments: of data on `reads`, of parameters whole.

        Summed over all tiles they are those of the whole graph. Integer arguments have none. ShapeError for values of
        another shape, or another number of cotangents.
        """
        source, count = self.cut.source, len(self.cut.source.inputs)
        values = self._bind_args(args[:count])
        local = self.cotangents(values, seeds_of(source, args[count:], {p: lengths(b) for p, b in self.boxes.items()}))
        data = set(data_positions(source))

        def cotangent(_: str, p: int) -> Any:
            if p in data and p in local:
                return local[p]
            total = zeros_like(values[p])
            return add_at(total, self.needs[p], local[p]) if p in local else total

        return tuple(transform(cotangent, tree) for tree in real_arguments(source))

    def cotangents(self, values: Values, seeds: Values) -> Values:
        """Return cotangents of all needed real inputs, by position, on the boxes that this tile needs of them.

        `values` are the tile's inputs, `seeds` cotangents of its outputs, by position.
        """
        source, engine = self.cut.source, engine_of(list(values.values()))
        data, parameters, _ = self.cut.inputs
        groups = (("data", data), ("parameters", parameters))
        named = {f"{name}.{k}": p for name, group in groups for k, p in enumerate(group) if _is_real(source, p)}
        with _no_autograd(engine):
            program = self.programs.program(self.cut, engine, tuple(named))
            results = program(
                *self._graph_args(values, engine), *(seeds[p] for p in self.cut.boxes if _is_real(source, p))
            )
        return dict(zip(named.values(), results[len(self.cut.boxes) :], strict=True))

    def _bind_args(self, args: Sequence[Any]) -> Values:
        """Return the arguments of a call by position; ShapeError if one has another shape than this tile needs."""
        source, values = self.cut.source, {}
        if len(args) != len(source.inputs):
            text = f"takes {len(source.inputs)} arguments ({', '.join(source.names)}); got {len(args)}"
            raise ShapeError("tile", text)
        data = set(data_positions(source))
        for path, p, value in bind_args(source, args):
            _check_shape(path, value, lengths(self.needed(p)) if p in data else source.nodes[p].shape)
            values[p] = value
        return values

    def _graph_args(self, values: Values, engine: str | None) -> tuple[Any, ...]:
        """Return the arguments (data, parameters, constants) of the tile's own graph on an engine, from `values` by
        position.
        """
        data, parameters, constants = self.cut.inputs
        like, needs, nodes = next(iter(values.values())), self.needs, self.cut.source.nodes

        def part(p: int) -> Any:
            return values[p] if needs[p] == whole(nodes[p].shape) else values[p][slices(needs[p])]

        fixed = tuple(self.programs.constant(p, needs[p], engine, like) for p in constants)
        return tuple(values[p] for p in data), tuple(map(part, parameters)), fixed


def bind_args(graph: Graph, args: Sequence[Any]) -> Iterator[tuple[str, int, Any]]:
    """Yield (path, position, value) for every input of a graph.

    ShapeError for arguments of another structure.
    """
    for name, pattern, arg in zip(graph.names, graph.inputs, args, strict=True):
        yield from match(pattern, arg, name)


def seeds_of(graph: Graph, cotangents: Sequence[Any], shapes: dict[int, Shape]) -> Values:
    """Return the cotangents of a graph's outputs by position; they are summed if a node is returned twice.

    ShapeError for another number of them. `shapes` are what they must have, by position.
    """
    trees = [tree for tree in graph.outputs if all(_is_real(graph, p) for p in leaves(tree))]
    if len(cotangents) != len(trees):
        text = f"takes {len(graph.inputs)} arguments, then {len(trees)} cotangents; got {len(cotangents)} of those"
        raise ShapeError("vjp", text)
    seeds: Values = {}
    for k, (tree, given) in enumerate(zip(trees, cotangents, strict=True)):
        for path, p, g in match(tree, given, f"g{k}"):
            _check_shape(path, g, shapes[p])
            seeds[p] = g if p not in seeds else seeds[p] + g
    return seeds


def real_arguments(graph: Graph) -> list[Tree]:
    """Return the arguments (trees) that have cotangents: those made of real numbers only."""
    return [tree for tree in graph.inputs if all(_is_real(graph, p) for p in leaves(tree))]


def _is_real(graph: Graph, p: int) -> bool:
    """Return whether node p holds real numbers, not indices."""
    return graph.nodes[p].kind == "real"


def _check_shape(path: str, value: Any, shape: Shape) -> None:
    """Raise ShapeError, which names the argument `path`, if a value has another shape."""
    if shape_of(value) != shape:
        raise ShapeError("tile", f"{path} must have shape {shape}; got {shape_of(value)}")


# --- three kinds of arrays --------------------------------------------------------------------------------------------


def engine_of(values: Sequence[Any]) -> str | None:
    """Return the engine whose tensors are among these values; None for NumPy arrays, which are interpreted."""
    packages = (base.__module__.partition(".")[0] for v in values for base in type(v).__mro__)
    return next((PACKAGES[p] for p in packages if p in PACKAGES), None)


def _to_engine(array: Any, engine: str, like: Any) -> Any:
    """Return an array as a tensor of the engine, "torch" on the device of `like`, else JAX on its default one."""
    array = np.array(array, dtype=np.float64 if array.dtype == object else None)
    if engine == "torch":
        import torch

        return torch.from_numpy(array).to(like.device)
    import jax.numpy as jnp

    return jnp.asarray(array)


def _no_autograd(engine: str | None) -> Any:
    """Return, for the engine "torch", a context without autograd, which would keep every tile's values alive; an empty
    one for others.
    """
    if engine != "torch":
        return nullcontext()
    import torch

    return torch.no_grad()


def zeros_like(value: Any) -> Any:
    """Return zeros of the shape, type and device of `value`."""
    return _zeros_of(shape_of(value), value)


def _zeros_of(shape: Shape, like: Any) -> Any:
    """Return zeros of `shape` with the type and device of `like`."""
    engine = engine_of([like])
    if engine == "torch":
        return like.new_zeros(shape)
    if engine == "jax":
        import jax.numpy as jnp

        return jnp.zeros(shape, like.dtype)
    return np.full(shape, 0, dtype=np.asarray(like).dtype)


def add_at(total: Any, box: Box, value: Any) -> Any:
    """Return `total` with `value` added on `box`; in place, except for JAX arrays."""
    if hasattr(total, "at"):
        return total.at[slices(box)].add(value)
    total[slices(box)] += value
    return total
