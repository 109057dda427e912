"""A graph of one sample as the graph of many, computed beside each other: every sample is a box of every node.

An input has the samples along its first axis. A node with `size` cells along its axis of samples has those of sample k
at k*size ... (k + 1)*size - 1; which axis that is, its box rule says. Nothing is assumed of an operator: of each node,
on the box of each sample, the rule must say what it says of the node of the one sample: the same parameters, on the
same boxes of the arguments. Executions of the single samples, beside each other, are then one of the stacked graph:
what is proven of all its executions holds for every execution of the one graph, sample by sample.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import ShapeError, UnsupportedError
from ..graph.builder import GraphBuilder, Var
from ..graph.graph import CONSTANT, INPUT, Graph, Node, NumberArg
from ..graph.ir.tree import transform
from ..op import Params, shape_of
from ..ops.layout import BROADCAST, CONCAT
from ..window import Shape
from ..window.footprint import Box, whole


class SampleAxis(NamedTuple):
    """The `axis` along which a node has the samples, and how many cells each sample has there: `size`."""

    axis: int
    size: int

    def moved(self, box: Box, number: int) -> Box:
        """Return a box of the node of one sample where the stacked node has it of sample `number`."""
        first = number * self.size
        return tuple((first + o, first + p) if a == self.axis else (o, p) for a, (o, p) in enumerate(box))

    def stacked(self, shape: Shape, count: int) -> Shape:
        """Return the shape of `count` samples, each of which has this one."""
        return tuple(n * count if a == self.axis else n for a, n in enumerate(shape))


@dataclass(frozen=True, eq=False)
class StackedGraph:
    """The `graph` of `count` samples, and where each of its `outputs` has them, in the order of `output_positions`."""

    graph: Graph
    count: int
    outputs: tuple[SampleAxis, ...]

    def of_sample(self, array: Any, output: int, number: int) -> Any:
        """Return what sample `number` has of the array of an output."""
        axis, size = self.outputs[output]
        return array[(slice(None),) * axis + (slice(number * size, (number + 1) * size),)]


def stack_samples(graph: Graph, count: int) -> StackedGraph:
    """Return `graph`, whose inputs have one cell along their first axes, as the graph of `count` samples.

    Names of nodes are kept, and repeated constants get others. UnsupportedError for inputs without such an axis, where
    samples do not stay apart (an operator mixes them, or has no box rule to show that it does not), and for a graph
    with nodes of one name, or that no output needs.

    >>> import numpy as np
    >>> import specgrad as sg
    >>> one = sg.trace(lambda x: sg.flatten(sg.conv(np.ones((2, 1, 3), np.float32), None, x), 1), (1, 1, 5))
    >>> many = stack_samples(one, 4)
    >>> one.nodes[-1].shape, many.graph.nodes[-1].shape, many.outputs
    ((1, 6), (4, 6), (SampleAxis(axis=0, size=1),))
    >>> stack_samples(sg.trace(lambda x: sg.softmax(x, axis=0), (1, 3)), 4)
    Traceback (most recent call last):
    specgrad.errors.UnsupportedError: amax: mixes samples, or has no box rule that shows it does not
    """
    return _Stacking(graph, count).result()


class _Stacking:
    """Records a graph again, node by node, at `count` samples."""

    def __init__(self, graph: Graph, count: int) -> None:
        self.source, self.count = graph, count
        self.builder = GraphBuilder()
        self.values: dict[int, Var] = {}
        self.places: dict[int, SampleAxis] = {}  # of nodes that depend on an input
        self.tiled: dict[tuple[int, SampleAxis], Var] = {}  # constants, repeated for every sample
        self.spare = free_prefix({name for n in graph.nodes for name in (n.name, n.group)})

    def result(self) -> StackedGraph:
        """Return the graph of all samples; UnsupportedError if an output has none, or a node lost its name."""
        g = self.source
        for p, node in enumerate(g.nodes):
            self.values[p] = self._recorded(p, node)
        for p in g.output_positions:
            if p not in self.places:
                raise UnsupportedError(g.nodes[p].op.name, "gives an output that depends on no sample")
        outputs, inputs = (transform(lambda _, p: self.values[p], t) for t in (g.outputs, g.inputs))
        made = self.builder.freeze(g.names, inputs, outputs, g.single)
        if [n.name for n in made.nodes if not n.name.startswith(self.spare)] != [n.name for n in g.nodes]:
            raise UnsupportedError("stack_samples", "a node shares its name with another, or no output needs it")
        places = tuple(self.places[p] for p in g.output_positions)
        return StackedGraph(replace(made, trainable=g.trainable), self.count, places)

    def _recorded(self, p: int, node: Node) -> Var:
        """Return node p in the new graph; of an input or a constant its leaf.

        UnsupportedError for an input without an axis of samples, and for a node that does not keep them apart.
        """
        if node.op is CONSTANT:
            array = self.source.constants[p].view()  # a node of its own
            return self.builder.constant(array, node.name, real=node.kind == "real", owned=True)
        if node.op is INPUT:
            if node.shape[:1] != (1,):
                raise UnsupportedError("input", f"has no axis of samples: {node.name} is of shape {node.shape}")
            self.places[p] = SampleAxis(0, 1)
            return self.builder.leaf(node.name, self.places[p].stacked(node.shape, self.count), node.kind)
        if not any(a in self.places for a in node.operands()):
            return self._call(node, [self._argument(a, None) for a in node.args], node.params)
        for params, args, place in self._candidates(node):
            if self._keeps_apart(node, params, args, place):
                self.places[p] = place
                return self._call(node, [self._argument(a, at) for a, at in zip(node.args, args, strict=True)], params)
        raise UnsupportedError(node.op.name, "mixes samples, or has no box rule that shows it does not")

    def _call(self, node: Node, args: Sequence[Any], params: Params) -> Var:
        """Return the node recorded on these arguments, under its own name."""
        return self.builder.record(node.op, args, params, name=node.name, group=node.group)

    def _argument(self, a: int | NumberArg, place: SampleAxis | None) -> Any:
        """Return an argument with the samples at `place`: a constant is repeated there, None: for all samples one."""
        if isinstance(a, NumberArg):
            return a.value
        if place is None or a in self.places:
            return self.values[a]
        if (a, place) not in self.tiled:
            self.tiled[a, place] = self._repeat(self.values[a], place)
        return self.tiled[a, place]

    def _repeat(self, v: Var, place: SampleAxis) -> Var:
        """Return a constant, repeated for every sample along the axis of `place`."""
        shape = place.stacked(shape_of(v), self.count)
        if place.size == 1:
            return self.builder.record(BROADCAST, [v], {"shape": shape}, name=self.spare)
        return self.builder.record(CONCAT, [v] * self.count, {"axis": place.axis}, name=self.spare)

    def _candidates(self, node: Node) -> Iterator[tuple[Params, list[SampleAxis | None], SampleAxis]]:
        """Yield what the node may be of all samples: its parameters, where arguments have the samples, where it does.

        Constants are those of all samples first, then repeated for each.
        """
        own = [self.places.get(a) if isinstance(a, int) else None for a in node.args]
        first = next(place for place in own if place is not None)
        nodes = self.source.nodes
        shapes = [() if isinstance(a, NumberArg) else nodes[a].shape for a in node.args]
        fits = [len(s) > first.axis and s[first.axis] == first.size for s in shapes]
        repeated = [place or (first if fit else None) for place, fit in zip(own, fits, strict=True)]
        for args in (own, repeated) if repeated != own else (own,):
            for axis, n in enumerate(node.shape):
                place = SampleAxis(axis, n)
                yield self._stacked_params(node, place), args, place

    def _stacked_params(self, node: Node, place: SampleAxis) -> Params:
        """Return the parameters of the node with all samples at `place`: those that name a shape are changed."""
        if "shape" in node.params:
            return {**node.params, "shape": place.stacked(node.shape, self.count)}
        if "ranges" in node.params and node.params["ranges"][place.axis] == (0, place.size, 1):
            ranges = list(node.params["ranges"])
            ranges[place.axis] = (0, place.size * self.count, 1)
            return {**node.params, "ranges": tuple(ranges)}
        return node.params

    def _keeps_apart(self, node: Node, params: Params, args: Sequence[SampleAxis | None], place: SampleAxis) -> bool:
        """Return whether the node with these parameters is, on the box of every sample, the node of one sample.

        That is what its box rule says of both: the same parameters, on the same boxes of the sample.
        """
        nodes = self.source.nodes
        ones = [() if isinstance(a, NumberArg) else nodes[a].shape for a in node.args]
        pairs = zip(ones, args, strict=True)
        shapes = [s if at is None else at.stacked(s, self.count) for s, at in pairs]
        try:
            if node.op.shape(*shapes, **params) != place.stacked(node.shape, self.count):
                return False
            one, many = node.op.boxes(ones, node.params), node.op.boxes(shapes, params)
        except (ShapeError, ValueError, IndexError):
            return False
        single = one.on(whole(node.shape))
        for k in range(self.count):
            cut = many.on(place.moved(whole(node.shape), k))
            reads = tuple(b if at is None else at.moved(b, k) for b, at in zip(single.args, args, strict=True))
            if (cut.gives, cut.args, cut.params) != (place.moved(single.gives, k), reads, single.params):
                return False
        return True


def free_prefix(names: Collection[str]) -> str:
    """Return a word with which none of the names begins.

    >>> free_prefix({"conv", "repeated", "repeated_2"})
    'repeated__'
    """
    word = "repeated"
    while any(name.startswith(word) for name in names):
        word += "_"
    return word
