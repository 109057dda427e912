"""Find discontinuities of a network: undecided comparisons, signs and indices that an output depends on.

There its derivative is 0 on both sides and says nothing of the step between them. What switches without a step is no
jump: select(c, a, b) whose condition is made of comparisons u > k of one value u with constants, where a and b are
functions of the cell u alone and equal at every such k (leaky relus, elu, hard tanh as imported models write them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ScalarError
from ..graph.graph import Arg, Graph, NumberArg, section
from ..graph.ir.node import bind_inputs
from ..graph.ir.tree import Tree, transform
from ..ops.elementwise import EQUAL, GREATER, GREATER_EQUAL, LESS, cellwise
from ..rounding.ball import Ball
from ..scalar import Array, balls, exact
from .box import balls_of
from .interval_bounds import box_context, propagate


def through_stops(graph: Graph) -> Graph:
    """Return the graph without its stop_gradient nodes, so that its derivative is that of the function."""
    place = list(range(len(graph.nodes)))
    for i, node in enumerate(graph.nodes):
        if node.op.name == "stop_gradient":
            place[i] = place[node.operands()[0]]
    nodes = (replace(n, args=tuple(a if isinstance(a, NumberArg) else place[a] for a in n.args)) for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes), outputs=transform(lambda _, p: place[p], graph.outputs))


def jumps(graph: Graph, args: tuple[Tree, ...]) -> list[str]:
    """Return the names of nodes that may jump inside the boxes and that an output depends on.

    ShapeError for arguments that do not fit the graph.

    args   one per argument of the graph: a Box, an array for what is fixed, or a structure of these
    """
    if not any(n.op.jumps or n.op.name == "select" for n in graph.nodes):
        return []
    run = box_context(graph, False, None, "numpy")
    given = bind_inputs(graph, balls_of(args, run.arithmetic))
    ranges, _ = propagate(graph, given, run)
    return _DiscontinuityFinder(graph, given, ranges).jumps()


class _DiscontinuityFinder:
    """Searches one graph, on given input balls, for nodes that may jump.

    given    value of each input node by position: a ball where it varies, else an array
    ranges   the ball of every node, in order
    """

    def __init__(self, graph: Graph, given: dict[int, Any], ranges: list[Ball]) -> None:
        self.graph, self.given, self.ranges = graph, given, ranges
        self.varying = {i for i, value in given.items() if isinstance(value, Ball)}
        for i, node in enumerate(graph.nodes):
            if self.varying.intersection(node.operands()):
                self.varying.add(i)

    def jumps(self) -> list[str]:
        """Return the names of nodes that may jump, from the outputs down, past selections that switch without
        a step.
        """
        waiting, seen, names = list(self.graph.output_positions), set[int](), []
        while waiting:
            i = waiting.pop()
            if i in seen or i not in self.varying:
                continue
            seen.add(i)
            node, steps = self.graph.nodes[i], list(self.graph.nodes[i].operands())
            if node.op.jumps and not self.ranges[i].is_exact:
                names.append(node.name)
            if node.op.name == "select" and self._is_open(node.args[0]):
                if self._branches_agree(i):
                    steps = [a for a in node.args[1:] if isinstance(a, int)]
                else:
                    names.append(node.name)
            waiting += steps
        return sorted(names)

    def _is_open(self, condition: Any) -> bool:
        """Whether a condition may be true and false in the box."""
        if condition not in self.varying:
            return False
        c = self.ranges[condition]
        return bool(((c.low <= 0) & (c.high >= 0) & (c.radius > 0)).any())

    # --- a switch without a step --------------------------------------------------------------------------------------

    def _compares(self, p: int) -> bool:
        """Whether node p compares two values."""
        return self.graph.nodes[p].op in (GREATER, GREATER_EQUAL, LESS, EQUAL)  # a remainder jumps elsewhere too

    def _branches_agree(self, i: int) -> bool:
        """Whether both branches of selection i are functions of one cell u, equal wherever the condition may change."""
        condition, *branches = self.graph.nodes[i].args
        masks = self._leaves_below(condition, self._compares)
        switches = [self._comparison_with_constant(m) for m in masks or ()]
        us = {None if switch is None else switch[0] for switch in switches}
        if len(us) != 1 or any(self._leaves_below(b, us.__contains__) is None for b in branches):
            return False
        return all(switch is not None and self._are_equal_at(branches, *switch) for switch in switches)

    def _leaves_below(self, top: Arg, is_leaf: Callable[[int], bool]) -> set[int] | None:
        """Return the varying nodes with `is_leaf(position)` that node `top` is an elementwise function of; None if it
        reads anything else.
        """
        leaves, seen, waiting = set[int](), set[int](), [top]
        while waiting:
            p = waiting.pop()
            if not isinstance(p, int) or p not in self.varying or p in seen:
                continue
            seen.add(p)
            if is_leaf(p):
                leaves.add(p)
            elif self.graph.nodes[p].op.receptive_field is not cellwise:
                return None
            else:
                waiting += self.graph.nodes[p].operands()
        return leaves if len({self.graph.nodes[p].shape for p in seen}) <= 1 else None

    def _comparison_with_constant(self, mask: int) -> tuple[int, Array] | None:
        """Return (u, k) if node `mask` compares node u with a known constant k, either way round; else None."""
        for u, k in (self.graph.nodes[mask].args, self.graph.nodes[mask].args[::-1]):
            if isinstance(u, int) and u in self.varying and k not in self.varying:
                known = np.asarray(k.value, dtype=object) if isinstance(k, NumberArg) else self.ranges[k].value
                if isinstance(k, NumberArg) or self.ranges[k].is_exact:
                    return u, np.broadcast_to(known, self.graph.nodes[u].shape)
        return None

    def _are_equal_at(self, branches: Sequence[Arg], u: int, k: Array) -> bool:
        """Return whether both branches of a select are surely equal, cell by cell, where node u has the values k.

        They are computed over rationals or, where exp is needed, over balls; two balls are equal only if both have
        radius 0. False where neither can say.
        """
        for lift in (exact, balls):
            try:
                a, b = (self._branch_value(branch, u, lift(k), lift) for branch in branches)
            except (ScalarError, ImportError):
                continue
            return all(bool(p == q) for p, q in np.broadcast(a, b))
        return False

    def _branch_value(self, branch: Arg, u: int, value: Array, lift: Callable[[Any], Array]) -> Array:
        """Return the value of a select's `branch` where node u has this value; `lift` makes the graph's constants
        numbers of the kind of `value`.
        """
        if isinstance(branch, NumberArg):
            return np.broadcast_to(lift(branch.value), value.shape)
        if branch == u or branch in self.given:
            return value if branch == u else lift(self.given[branch])
        part, inputs = section(self.graph, branch, {u})
        part = replace(part, constants={p: a if a.dtype.kind == "i" else lift(a) for p, a in part.constants.items()})
        given = [value if p == u else lift(self.given[p]) for p in inputs]
        return np.asarray(part(*given))
