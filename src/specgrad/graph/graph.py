"""The graph: a program that can be called, printed, drawn and instantiated at other sizes; and parts of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import ShapeError
from ..op import Op, shape_of
from ..window import Shape, SymbolicSize
from .ir import symbolic as opening
from .ir.node import CONSTANT, INPUT, Arg, Kind, Node, NumberArg, Program, bind, call, distinct
from .ir.symbolic import SymbolicProgram

if TYPE_CHECKING:
    from ..svg import Picture


__all__ = ["CONSTANT", "INPUT", "Arg", "Graph", "Kind", "Node", "NumberArg", "bind", "distinct"]


@dataclass(frozen=True, eq=False)
class Graph(Program):
    """A network as one object: call it, print it, differentiate it, save it.

    `trace` makes graphs, and so do `GraphBuilder` and `specgrad.interop`.

    Parameters
    ----------
    nodes : tuple of Node
        All nodes; a node refers to earlier ones by position.
    names : tuple of str
        Names of the arguments.
    inputs : tuple of structures of int
        Per argument, the positions of its input nodes.
    outputs : tuple of structures of int
        Per result, the positions of its nodes.
    single : bool
        Whether the traced function returned one bare value.
    constants : mapping of int to array
        Captured arrays, by the position of their node.
    trainable : frozenset of str, optional
        Names of the constants that training may change: an imported model's parameters, not its buffers.
    open : SymbolicProgram, optional
        Where sizes were left open: the graph over their names. The nodes are those at the default sizes.

    Examples
    --------
    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: sg.max_pool(sg.relu(x), (2,)), (1, 4))
    >>> graph, graph(np.array([[1.0, -2.0, 3.0, 4.0]]))
    (Graph(x; 3 nodes), array([[1., 4.]]))
    """

    open: SymbolicProgram | None = None

    def __call__(self, *args: Any) -> Any:
        """Run on NumPy arrays (floats or exact), or record into another trace when given its variables."""
        return call(self.fitted(args), args)

    def __str__(self) -> str:
        from .drawing.summary import table

        return table(self)

    def __repr__(self) -> str:
        return f"Graph({', '.join(self.names)}; {len(self.nodes)} nodes)"

    def draw(self, report: Any = None, *, detail: bool = False, columns: int | None = None) -> Picture:
        """Return a picture: layers as boxes, shapes on the arrows; notebooks show it, `.save("net.svg")` writes it.

        report   an audit, bounds (ibp, crown) or radii (keep=True) of this network: verdicts or widths as colours
        detail   a box per operator, not per layer
        columns  how many; by default as many as make it largest on a page

        Layers that go cell by cell (activations, batch norm) stand in the box of the layer before them.

        >>> import specgrad as sg
        >>> graph = sg.trace(lambda x: sg.max_pool(sg.relu(x), (2,)), (1, 6))
        >>> "max_pool" in graph.draw().svg
        True
        """
        from .drawing.draw import draw

        return draw(self, report, detail=detail, columns=columns)

    def _repr_html_(self) -> str:
        """Return the drawing of the graph as HTML, for notebooks."""
        from .drawing.draw import html

        return html(self)

    def at(self, **given: Any) -> Self:
        """Return the network at other sizes: `at(N=8)`, or `at(x=(8, 3, 64, 64))` by the shape of an input.

        What is not given has its default. The result is an ordinary graph, the one that a trace at these sizes gives.
        A size is refused where a rule of some operator refuses it, or where the traced function may go another way.

        >>> import specgrad as sg
        >>> graph = sg.trace(lambda x: sg.flatten(x, 1), ("N", 3, 4))
        >>> graph.at(N=5).nodes[-1].shape, graph.at(x=(7, 3, 4)).nodes[-1].shape
        ((5, 12), (7, 12))
        >>> graph.at(x=(7, 2, 4))
        Traceback (most recent call last):
        specgrad.errors.ShapeError: graph: input x has size 3 in axis 1; got 2
        """
        if self.open is None:
            return self._check_fixed_sizes(given) if given else self
        shapes = {name: value for name, value in given.items() if name not in self.open.defaults}
        sizes = {name: value for name, value in given.items() if name in self.open.defaults}
        by_shape = opening.sizes_of(self.open, shapes)
        for name in by_shape.keys() & sizes.keys():
            if by_shape[name] != sizes[name]:
                text = f"size {name} is {sizes[name]} and, by the shape of an input, {by_shape[name]}"
                raise ShapeError("graph", text)
        return self._at(by_shape | sizes)

    def _check_fixed_sizes(self, given: dict[str, Any]) -> Self:
        """Return self; raise ShapeError if the sizes `given` by input name are other ones, since none is symbolic."""
        shapes = opening.shapes_of(self, tuple(self.inputs), lambda p: self.nodes[p].shape)
        for name, value in given.items():
            if shapes.get(name) != tuple(value if hasattr(value, "__iter__") else (value,)):
                text = (
                    f'no size is open, so {name} cannot be {value}; leave it open when tracing: ("N", 3, "H=224", ...)'
                )
                raise ShapeError("graph", text)
        return self

    def _at(self, given: dict[str, int]) -> Self:
        """Return the graph at the sizes `given` by name, defaults for others, from a cache; a full one is emptied.

        ShapeError for unknown names or sizes at which a guard fails.
        """
        assert self.open is not None
        sizes = opening.checked_sizes(self.open, given)
        key = tuple(sizes.values())
        if any(isinstance(n, SymbolicSize) for n in key):
            own: Self = self._instantiated(sizes)
            return own  # called inside another trace, whose guards are its own
        if key not in self.open.known:
            if len(self.open.known) >= opening.MAX_GRAPHS_PER_SIZES:
                self.open.known.clear()
            self.open.known[key] = self._instantiated(sizes)
        graph: Self = self.open.known[key]
        return graph

    def _instantiated(self, sizes: dict[str, int]) -> Any:
        """Return the graph at these sizes, with the derivatives that were taken of it.

        ShapeError if a guard does not hold there.
        """
        assert self.open is not None
        program = opening.instantiate(self.open, sizes)
        graph: Any = program if isinstance(program, Graph) else closed(program)
        for name, wrt, options in self.open.steps:
            graph = opening.DERIVATIVES[name](graph, wrt, **dict(options))
        return graph

    def fitted(self, args: tuple[Any, ...], shape: Callable[[Any], Shape] = shape_of, *, first: int = 0) -> Self:
        """Return the graph at the sizes of these arguments (from number `first` on); self if no size is symbolic.

        `shape` gives an argument's shape. ShapeError for a misfit.
        """
        if self.open is None:
            return self
        return self.fitted_to(opening.shapes_of(self.open.program, args, shape, first))

    def fitted_to(self, shapes: Mapping[str, Shape]) -> Self:
        """Return the graph at the sizes that inputs of these shapes have; shapes by the paths of the inputs.

        ShapeError for shapes that do not fit.
        """
        return self if self.open is None else self._at(opening.sizes_of(self.open, shapes))


def closed(program: Program) -> Graph:
    """Return a program without symbolic sizes as a graph."""
    return Graph(**{name: getattr(program, name) for name in Program.__dataclass_fields__})


def opened(graph: Graph, guards: Any = ()) -> Graph:
    """Return a graph over named sizes as the graph at their defaults, which can be instantiated at others where the
    `guards` hold.
    """
    opened = SymbolicProgram(graph, tuple({g.key: g for g in guards}.values()))
    at_defaults = closed(opening.instantiate(opened, opened.defaults))
    return replace(at_defaults, open=opened)


# --- parts of a graph -------------------------------------------------------------------------------------------------


def needed(graph: Graph, position: int, known: Collection[int]) -> list[int]:
    """Return the positions of the nodes that lead from `known` ones to `position`, both included, in order."""
    positions, stack = {position}, [position]
    while stack:
        at = stack.pop()
        if at != position and at in known:
            continue
        for a in graph.nodes[at].operands():
            if a not in positions:
                positions.add(a)
                stack.append(a)
    return sorted(positions)


def section(graph: Graph, position: int, known: Collection[int]) -> tuple[Graph, list[int]]:
    """Return the graph that computes one node from the nearest known nodes, and the positions of those, its inputs.

    >>> import specgrad as sg
    >>> g = sg.trace(lambda x: sg.relu(sg.neg(sg.exp(x))), (2,))
    >>> part, inputs = section(g, 3, {0, 1})
    >>> inputs, [n.op.name for n in part.nodes]
    ([1], ['input', 'neg', 'relu'])
    """
    positions = needed(graph, position, known)
    place = {old: new for new, old in enumerate(positions)}
    inputs = [p for p in positions if graph.nodes[p].op is INPUT or (p in known and p != position)]
    nodes = tuple(_renumbered(graph.nodes[p], place, p in inputs) for p in positions)
    constants = {place[p]: graph.constants[p] for p in positions if p not in inputs and graph.nodes[p].op is CONSTANT}
    names = tuple(nodes[place[p]].name for p in inputs)
    where = tuple(place[p] for p in inputs)
    return Graph(nodes, names, where, (place[position],), True, constants), inputs


def _renumbered(node: Node, place: dict[int, int], is_input: bool) -> Node:
    """Return a node with arguments at their new positions (`place`), or as an input of the subgraph."""
    if is_input:
        return Node(INPUT, (), {}, node.shape, node.kind, node.name, node.name)
    return replace(node, args=tuple(a if isinstance(a, NumberArg) else place[a] for a in node.args))


def order_of_use(graph: Graph) -> list[int]:
    """Return the positions of all nodes, each behind what it reads, and a constant right before its first reader.

    Who holds a value per node, as long as somebody reads it, then holds few constants at a time.

    >>> import specgrad as sg
    >>> graph = sg.trace(lambda x: (lambda w: sg.relu(x) * w)(x.builder.constant(np.ones(2))), (2,))
    >>> [graph.nodes[i].op.name for i in range(4)], [graph.nodes[i].op.name for i in order_of_use(graph)]
    (['input', 'constant', 'relu', 'mul'], ['input', 'relu', 'constant', 'mul'])
    """
    order: dict[int, None] = {}
    for i, node in enumerate(graph.nodes):
        if node.op is not CONSTANT:
            order.update(dict.fromkeys((*(a for a in node.operands() if graph.nodes[a].op is CONSTANT), i)))
    order.update(dict.fromkeys(range(len(graph.nodes))))  # constants that nobody reads
    return list(order)


def broadcast_back(graph: Graph, end: int, op: Op, source: int, layout: Collection[Op]) -> tuple[int, ...] | None:
    """Return the nodes from a reduction `op` of `source` to `end`, if they broadcast it along the reduced axes.
    `layout` are the operators allowed between.

    None if they do not. It is tried: distinct numbers in the place of the results must stand where they were reduced.
    """
    chain = [end]
    while graph.nodes[chain[-1]].op in layout:
        chain += graph.nodes[chain[-1]].operands()
    at = graph.nodes[chain[-1]]
    if at.op is not op or at.operands() != (source,):
        return None
    shape = graph.nodes[source].shape
    number = np.arange(float(np.prod(at.shape))).reshape(at.shape)
    laid = number if len(chain) == 1 else np.asarray(section(graph, end, {chain[-1]})[0](number))
    kept = tuple(1 if a in at.params["axes"] else n for a, n in enumerate(shape))
    same = laid.shape == shape and (laid == np.broadcast_to(number.reshape(kept), shape)).all()
    return tuple(reversed(chain)) if same else None
