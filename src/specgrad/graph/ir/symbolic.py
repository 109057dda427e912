"""Graphs with symbolic sizes: one list of nodes over named sizes, instantiated at any sizes.

Nothing is guessed. Every parameter that depends on a size was computed from that size while tracing
(`window.SymbolicSize`), and is computed again from the new one; every shape rule and every window is checked again; and
whatever else the traced function decided by a size must be decided the same way, or the new size is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from specgrad.errors import ShapeError, SpecgradError
from specgrad.op import shape_of
from specgrad.scalar import Array
from specgrad.window import Guard, OpenWindow, Shape, SymbolicSize, size_at, symbols_in, window_at, without_guards

from .node import CONSTANT, INPUT, Node, NumberArg, Program
from .tree import Tree, at_path, match, paths, transform, walk

Step = tuple[str, Any, tuple[tuple[str, Any], ...]]  # a derivative by name, its wrt, its options
DERIVATIVES: dict[str, Callable[..., Any]] = {}
"""jvp, vjp and grad; they enter themselves, for they are made of graphs."""
MAX_GRAPHS_PER_SIZES = 16  # graphs of one open graph that are kept


Made = TypeVar("Made")


class PerGraph(Generic[Made]):
    """Cache of what `make` gives for each graph; it is emptied when MAX_GRAPHS_PER_SIZES graphs are in it."""

    def __init__(self, make: Callable[[Any], Made]) -> None:
        self.make = make
        self.known: dict[Any, Made] = {}

    def __call__(self, graph: Any) -> Made:
        """Return what was made of this graph, from the cache, or newly made and cached; a full cache is emptied."""
        if graph not in self.known:
            if len(self.known) >= MAX_GRAPHS_PER_SIZES:
                self.known.clear()
            self.known[graph] = self.make(graph)
        return self.known[graph]


class PerSize(Generic[Made]):
    """Cache of what `make` gives for the graph at each size, keyed by the symbolic sizes of the arguments alone.

    The caller must check the arguments: nothing else of them is looked at where their sizes are known. Arguments from
    number `first` on are given.
    """

    def __init__(self, graph: Any, make: Callable[[Any], Made], *, first: int = 0) -> None:
        self.fitted: Callable[[tuple[Any, ...]], Any] = partial(graph.fitted, first=first)
        self.made = PerGraph(make)
        self.known: dict[tuple[int, ...], Made] = {}
        program = graph.open.program
        self.axes = [
            (number, keys, axis)
            for number, tree in enumerate(program.inputs[first:])
            for keys, position in paths(tree)
            for axis, n in enumerate(program.nodes[position].shape)
            if isinstance(n, SymbolicSize)
        ]

    def __call__(self, args: tuple[Any, ...]) -> Made:
        """Return what was made of the graph at the sizes of `args`, from the cache, or newly made and cached.

        A full cache is emptied. Nothing is cached for arguments that lack the axes.
        """
        try:
            key = tuple(at_path(args[number], keys).shape[axis] for number, keys, axis in self.axes)
        except (AttributeError, IndexError, KeyError, TypeError):
            return self.made(self.fitted(args))
        if key not in self.known:
            if len(self.known) >= MAX_GRAPHS_PER_SIZES:
                self.known.clear()
            self.known[key] = self.made(self.fitted(args))
        return self.known[key]


@dataclass(frozen=True, eq=False)
class SymbolicProgram:
    """What a graph is at other sizes: its program over named sizes, and the derivatives that were taken of it.

    guards    what was decided by an open size
    reimport  where the graph was read from a file: reads it again at given sizes. Then `program` has the inputs alone
    steps     the derivatives that were taken, in order
    known     sizes -> the graph there: a cache
    """

    program: Program
    guards: tuple[Guard, ...] = ()
    steps: tuple[Step, ...] = ()
    reimport: Callable[[Mapping[str, int]], Any] | None = None
    known: dict[tuple[int, ...], Any] = field(default_factory=dict, repr=False)

    @property
    def defaults(self) -> dict[str, int]:
        """Return the names of the symbolic sizes and their default values."""
        shapes = (self.program.nodes[p].shape for p in self.program.input_positions)
        return {s.name: s.default for shape in shapes for n in shape for s in symbols_in(n)}

    def with_derivative(self, name: str, wrt: Any, options: Mapping[str, Any]) -> SymbolicProgram:
        """Return the symbolic program of a derivative of this one: by `name` (jvp, vjp, grad), in `wrt`, with these
        options.
        """
        wrt = tuple(wrt) if isinstance(wrt, list) else wrt
        return replace(self, steps=(*self.steps, (name, wrt, tuple(options.items()))), known={})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}


def instantiate(opened: SymbolicProgram, sizes: Mapping[str, int]) -> Any:
    """Return the program at these sizes, by name, before derivatives; raise ShapeError if a guard does not hold
    there.
    """
    if opened.reimport is not None:
        return opened.reimport(sizes)
    for guard in opened.guards:
        if not guard.holds(sizes):
            said = ", ".join(f"{name}={n}" for name, n in sizes.items())
            text = f"at {said} the traced function may be another one: it was traced where {guard}; trace it at {said}"
            raise ShapeError("graph", text)
    return at_sizes(opened.program, sizes)


def at_sizes(program: Program, sizes: Mapping[str, int]) -> Program:
    """Return the program with parameters and shapes at these sizes, by name.

    Nodes that then change nothing are left out. ShapeError if a shape rule disagrees with the trace there.
    """
    nodes: list[Node] = []
    new: list[int] = []
    for node in program.nodes:
        made = _node_at(node, new, nodes, sizes)
        if node.op.idle is not None and node.op.idle(nodes[made.operands()[0]].shape, **made.params):
            new.append(made.operands()[0])
        else:
            new.append(len(nodes))
            nodes.append(made)
    place = lambda _, p: new[p]
    return Program(
        tuple(nodes),
        program.names,
        transform(place, program.inputs),
        transform(place, program.outputs),
        program.single,
        {new[p]: _repeated(a, nodes[new[p]].shape) for p, a in program.constants.items()},
        program.trainable,
    )


def _repeated(array: Array, shape: Shape) -> Array:
    """Return a captured array broadcast to its node's shape; unchanged while that shape is symbolic."""
    return (
        array
        if array.shape == shape or any(isinstance(n, SymbolicSize) for n in shape)
        else np.broadcast_to(array, shape)
    )


def _node_at(node: Node, new: list[int], nodes: list[Node], sizes: Mapping[str, int]) -> Node:
    """Return a node at these sizes; raise ShapeError if its shape rule disagrees with the trace.

    `new` are the new positions of nodes, `nodes` those made so far.
    """
    shape = tuple(size_at(n, sizes) for n in node.shape)
    if node.op in (INPUT, CONSTANT):
        return replace(node, shape=shape)
    args = tuple(NumberArg(size_at(a.value, sizes)) if isinstance(a, NumberArg) else new[a] for a in node.args)
    try:
        params = {name: param_at(value, sizes) for name, value in node.params.items()}
        with without_guards():
            computed = node.op.shape(*(() if isinstance(a, NumberArg) else nodes[a].shape for a in args), **params)
    except SpecgradError as error:
        error.add_note(f"  in layer {node.name} at {', '.join(f'{name}={n}' for name, n in sizes.items())}")
        raise
    if computed != shape:  # the expressions of the trace must agree with the rule
        raise ShapeError("graph", f"layer {node.name} has shape {computed} where its trace says {node.shape}")
    return replace(node, args=args, params=params, shape=shape)


def param_at(value: Any, sizes: Mapping[str, int]) -> Any:
    """Return a parameter's value at these sizes: symbolic sizes and windows in it become numbers."""
    if isinstance(value, tuple):
        return tuple(param_at(v, sizes) for v in value)
    return window_at(value, sizes) if isinstance(value, OpenWindow) else size_at(value, sizes)


# --- which sizes are meant ----------------------------------------------------------------------------------------


def sizes_of(opened: SymbolicProgram, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Return the symbolic sizes that inputs of these shapes have, by name; raise ShapeError for a misfit.

    Shapes are keyed by argument names, or dotted paths into arguments.
    """
    seen: dict[str, tuple[int, str]] = {}
    for path, given in shapes.items():
        declared = _declared(opened.program, path)
        if len(given) != len(declared):
            raise ShapeError(
                "graph", f"input {path} has {len(declared)} axes {_shape_text(declared)}; got {tuple(given)}"
            )
        for axis, (wanted, n) in enumerate(zip(declared, given, strict=True)):
            symbol = wanted.symbol if isinstance(wanted, SymbolicSize) else None
            if symbol is None:
                if wanted != n:
                    raise ShapeError("graph", f"input {path} has size {wanted} in axis {axis}; got {n}")
            elif seen.setdefault(symbol.name, (n, path))[0] != n:
                first, other = seen[symbol.name]
                raise ShapeError("graph", f"size {symbol.name} is {first} for {other} and {n} for {path}")
    return {name: n for name, (n, _) in seen.items()}


def _declared(program: Program, path: str) -> Shape:
    """Return the declared shape, with symbolic sizes, of the input at this path; ShapeError if there is none."""
    for name, tree in zip(program.names, program.inputs, strict=True):
        for leaf, position in walk(tree, name):
            if leaf == path:
                node: Node = program.nodes[position]
                return node.shape
    raise ShapeError("graph", f"there is no input {path!r}; the graph takes {', '.join(program.names)}")


def _shape_text(shape: Shape) -> str:
    """Return a shape as text, sizes by their names."""
    return f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"


def shapes_of(
    program: Program, args: tuple[Tree, ...], shape: Callable[[Any], Shape] = shape_of, first: int = 0
) -> dict[str, Shape]:
    """Return the shapes of arguments, from number `first` on, by the path of each leaf.

    ShapeError for arguments of another structure.
    """
    pairs = zip(program.names[first:], program.inputs[first:], args, strict=False)
    return {path: shape(value) for name, tree, arg in pairs for path, _, value in match(tree, arg, name)}


def sizes_of_cells(opened: SymbolicProgram, cells: int) -> dict[str, int]:
    """Return the symbolic size at which the only input has that many cells; {} if the defaults give them.

    With several symbolic sizes, or if no size gives that number, {} too: the caller's check of the number then refuses.
    """
    shape = opened.program.nodes[opened.program.input_positions[0]].shape
    defaults = opened.defaults

    def count(sizes: Mapping[str, int]) -> int:
        return math.prod(size_at(n, sizes) for n in shape)

    if count(defaults) == cells or len(defaults) != 1:
        return {}
    (name,) = defaults
    each = count({name: 1})
    sizes = {name: cells // each} if each else defaults
    return sizes if count(sizes) == cells else {}


def checked_sizes(opened: SymbolicProgram, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return all sizes of a symbolic program, with defaults for the missing ones; raise ShapeError for unknown names or
    bad values.
    """
    defaults = opened.defaults
    for name, n in sizes.items():
        if name not in defaults:
            raise ShapeError("graph", f"there is no open size {name}; open are {', '.join(defaults) or 'none'}")
        if isinstance(n, bool) or not isinstance(n, int | SymbolicSize) or n < 0:
            raise ShapeError("graph", f"size {name} must be a whole number; got {n!r}")
    return defaults | dict(sizes)
