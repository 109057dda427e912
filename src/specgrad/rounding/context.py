"""The context of rounding rules: the arithmetic, the current node, and a way to evaluate an operator in float64.

`Context.stored` says what a number becomes: itself if the format holds it, else rounded once. An operator may be exact
in its cells; the constant that it compares them with, or writes, is rounded all the same (`constant_radius`). There,
`context` is the context of an evaluation: what rules read besides their arguments, and add to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from ..errors import ParameterError, need
from ..graph.graph import Graph, Node, NumberArg
from ..op import Op, Params, run_spec
from ..scalar import Array
from ..window.sizes import Shape
from .arithmetic import REFERENCE, Arithmetic
from .ball import Ball, Expansion, between, exact_ball, hull
from .fusion_region import RoundingCount, region_input

Evaluate = Callable[[Op, Sequence[Any], Params], Array]


def _by_specification(op: Op, args: Sequence[Any], params: Params) -> Array:
    """Return the operator's value by its specification, in float64."""
    return run_spec(op, args, params)


def _by_torch() -> Evaluate:
    """Return an evaluator that runs operators on PyTorch in float64.

    MissingPackageError without PyTorch.
    """
    need("torch", 'backend="torch" needs')
    import torch

    from ..engines.torch.lowerings import run

    def evaluate(op: Op, args: Sequence[Any], params: Params) -> Array:
        """Return the operator's value by PyTorch."""
        with torch.no_grad():
            tensors = [torch.from_numpy(np.require(a, requirements=("C", "W"))) for a in args]
            value: Array = run(op, tensors, params).numpy()
        return value

    return evaluate


def evaluator(backend: str) -> Evaluate:
    """Return the float64 evaluator of a backend: "numpy" (the specification) or "torch" (fast for real sizes).

    ParameterError for another.
    """
    if backend not in ("numpy", "torch"):
        raise ParameterError("rounding", f'backend must be "numpy" or "torch"; got {backend!r}', rule="P5")
    return _by_specification if backend == "numpy" else _by_torch()


@dataclass(frozen=True)
class WholeCall:
    """A call of which the arrays at hand are blocks: what its roundings are counted by.

    shapes   of its arguments; () of a number
    params   its parameters
    cells    of its result
    """

    shapes: tuple[Shape, ...]
    params: Params
    cells: int


Kind = Literal["computed", "input", "constant"]  # what an argument is: a node's result, an input, known when loading
CELLWISE_MAGNITUDE = 2.0**60  # numbers beyond are followed cell by cell, so that one large cell does not speak for all


@dataclass(frozen=True)
class NodeContext:
    """The current node: its name and layer, its position, and the positions and kinds of its arguments.

    sources       positions of the arguments; -1 - k for a number as argument k
    roots         per argument, the nodes whose cells it copies: itself, or what stands before layout; () if nobody asks
    integers      the least and the largest number of the integer type that the runtime computes it in; None: of floats
    group         name of its layer
    whole         the call of which this one is a block; None: this one is whole
    """

    node: str = ""
    group: str = ""
    position: int = -1
    sources: tuple[int, ...] = ()
    kinds: tuple[Kind, ...] = ()
    integers: tuple[int, int] | None = None
    roots: tuple[frozenset[int], ...] = ()
    whole: WholeCall | None = None

    def is_given(self, k: int) -> bool:
        """Return whether argument k is an input or a constant, and not the result of another node."""
        return not self.kinds or self.kinds[k] != "computed"

    def is_constant(self, k: int) -> bool:
        """Return whether argument k is known to depend on no input."""
        return bool(self.kinds) and self.kinds[k] == "constant"

    def counted(self, args: Sequence[Ball], params: Params) -> tuple[list[Shape], Params]:
        """Return shapes of the arguments, and parameters, by which roundings are counted."""
        return ([a.shape for a in args], params) if self.whole is None else (list(self.whole.shapes), self.whole.params)

    def cells(self, result: Array) -> int:
        """Return how many cells the result has, of which `result` may be a block."""
        return result.size if self.whole is None else self.whole.cells

    def cells_read(self, k: int, ball: Ball) -> int:
        """Return how many cells argument k has, of which `ball` may be a block."""
        return ball.value.size if self.whole is None else math.prod(self.whole.shapes[k])

    def linear_group(self, op: Op, count: int) -> tuple[int, ...] | None:
        """Return which of `count` arguments this call is linear in, all others being constants, or else given; None for
        products of computed values.

        A constant is no argument that it is linear in where another one varies: parts of a region begin at what varies.
        """
        groups = op.linear_groups(count)
        others = [[k for k in range(count) if k not in g] for g in groups]
        constant = [g for g, rest in zip(groups, others, strict=True) if all(self.is_constant(k) for k in rest)]
        given = [g for g, rest in zip(groups, others, strict=True) if all(self.is_given(k) for k in rest)]
        return next(iter(constant + given), None)


class ArithmeticVariant(Protocol):
    """Protocol of a class of executions that departs from direct sums of stored factors."""

    def product(self, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        """Return the ball of a convolution, a matrix product or an average in this arithmetic."""

    def stored(self, ball: Ball, last: bool) -> Ball:
        """Return the ball of a layer's result after it was stored; `last`: it is the observed result."""


class GroupRule(Protocol):
    """Protocol of a rule of several nodes together, which narrows what the rules of single nodes say."""

    def arguments(self, context: Context, i: int, node: Node, args: list[Ball]) -> list[Ball]:
        """Return the balls `args` of node i as its own rule shall read them."""

    def result(self, context: Context, graph: Graph, i: int, node: Node, args: Sequence[Ball], ball: Ball) -> Ball:
        """Return the ball of node i of a graph, narrowed; `args` are those that its own rule read.

        `node` is it as the arrays at hand have it: on a block, with other sizes than the graph's.
        """


@dataclass(eq=False)
class Context:
    """The state of one evaluation of a graph, which every rule gets.

    undecided     names of nodes whose choice rounding may change; rules add to it
    call          the current node
    largest       nodes x == amax(x): their position -> (position of x, axes)
    constants     positions of nodes that depend on no input
    stored_nodes  positions of nodes that the runtime is known to round and store: regions end there
    roundings     R: the most roundings that a term of a region may meet
    way           a variant of the arithmetic (specgrad.rounding.arithmetic_variants); None: direct sums of stored
                  factors
    centred       wide balls (boxes of inputs): a rule that knows the ends of a range moves the value to its middle
    formats       positions of nodes that are computed in another format than the rest; see `in_format`
    evaluate      computes an operator on arrays, in float64
    blocks        whether arrays are blocks of nodes: roundings are counted by the shapes that the graph says
    reach         the largest absolute values of the current node, where its arguments' balls stand for their own
                  errors alone; None: its value and what is carried in say it
    groups        rules of several nodes together: means and sums of squares (specgrad.rounding.layers.statistics), and
                  shares of a softmax (specgrad.rounding.layers.shares)
    """

    arithmetic: Arithmetic
    evaluate: Evaluate
    undecided: set[str] = field(default_factory=set)
    call: NodeContext = field(default_factory=NodeContext)
    largest: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    stored_nodes: frozenset[int] = frozenset()
    roundings: int = 0
    centred: bool = False
    formats: Mapping[int, str] = field(default_factory=dict)
    way: ArithmeticVariant | None = None
    reach: Array | None = None
    groups: tuple[GroupRule, ...] = ()
    blocks: bool = False

    def spanned(self, value: Array, low: Array, high: Array) -> Ball:
        """Return the ball from low to high: around `value`, or around the middle if `centred`."""
        return hull(low, high, value) if self.centred else between(value, low, high)

    def stored(self, x: Any, index: bool = False) -> Ball:
        """Return numbers as balls of the arithmetic: exact if it holds them, else rounded once. Balls stay, but for
        flushing.

        `index`: they are positions, and stay integers.
        """
        if isinstance(x, Ball):
            return self.flushed(x)
        given = np.asarray(x)
        if index:
            return exact_ball(given.astype(np.int64))
        value = np.asarray(given.astype(np.float64))
        if given.dtype.name == self.arithmetic.format.name:  # millions of weights: all of them are its numbers
            return self.flushed(exact_ball(value))
        form = self.arithmetic.format
        if given.dtype.kind == "f" and given.dtype.itemsize <= 8 and form.holds(value).all():
            return self.flushed(exact_ball(value))
        kept = _held_by_float64(given, value)
        reference = np.where(kept, 0.0, np.abs(value) * REFERENCE.u + REFERENCE.smallest)
        same = form.holds(value) & (kept | (not form.directed))  # to nearest, what is next to a number becomes it
        rounded = np.where(same, 0.0, np.abs(np.where(same, 0.0, value)) * form.u + form.smallest)
        rounded = np.where(np.isfinite(value) & (np.abs(value) > form.largest), np.inf, rounded)
        return self.flushed(Ball(value, rounded + reference))

    def normal(self, number: Any) -> bool:
        """Return whether the format has a normal number for this one, so that a rounding of it is a factor 1 + d."""
        ball = self.stored(number)
        return bool(np.isfinite(ball.radius) & (ball.least >= self.arithmetic.tiny))

    def divides(self, number: Any) -> bool:
        """Return whether the number and its reciprocal are normal: a quotient may be a product with the reciprocal."""
        return self.normal(number) and bool(self.stored(number).size * self.arithmetic.tiny <= 1)

    def flushed(self, ball: Ball) -> Ball:
        """Return the ball after subnormal numbers may have become zero."""
        if not self.arithmetic.flush or ball.value.dtype.kind == "i":
            return ball
        return ball.flushed(self.arithmetic.tiny)

    def expansion_of(self, ball: Ball, k: int, region: bool, is_index: bool = False) -> Expansion:
        """Return the expansion of argument k if it belongs to the current region or layer; else one of a region's
        input.

        A constant that one node gives to what varies is one term; one that constants alone are computed from is an
        input, since a runtime may take its terms into the sum that reads the result. `is_index`: it holds positions.
        """
        e = ball.expansion
        key = self.call.sources[k] if self.call.sources else -1 - k
        same = not self.formats or self.formats.get(key) == self.formats.get(self.call.position)
        if e is not None and same and (region or e.group == self.call.group) and key not in self.stored_nodes:
            return e
        if is_index:
            nothing = np.zeros(ball.shape)
            one = np.array(1.0)
            return Expansion(self.call.group, nothing, ball.value, ball.value, one, RoundingCount(), divided=one)
        given = self.call.is_constant(k) and any(kind != "constant" for kind in self.call.kinds)
        count = RoundingCount() if given else region_input(key, self.call.cells_read(k, ball))
        exact = ball.is_exact and ball.ends is None  # of large constants one array, not two
        least = ball.size if exact else np.abs(ball.value)
        most = at_least_1(ball.size, self.arithmetic.format.largest)
        return Expansion(self.call.group, ball.radius, ball.size, least, most, count, divided=np.array(1.0))

    def mark_undecided(self, where: Array) -> None:
        """Record the current node as undecided if any cell of `where` is true."""
        if where.any():
            self.undecided.add(self.call.node)


def _held_by_float64(given: Array, value: Array) -> Array:
    """Return, elementwise, whether float64 holds the `given` numbers, of which `value` is the float64 array: not all
    rationals, nor integers above 2**53.
    """
    if given.dtype.kind in "iu" and np.abs(value).max(initial=0.0) >= 2.0**53:
        given = given.astype(object)  # NumPy would compare as float64
    return np.asarray(given == value, dtype=bool) | np.isnan(value)


def at_least_1(size: Array, largest: float = np.inf) -> Array:
    """Return max(1, size): one number for all cells, or one per cell if some are above CELLWISE_MAGNITUDE, or the
    `largest` number of the format is.
    """
    top = float(np.max(size, initial=1.0))
    return np.array(top) if top <= CELLWISE_MAGNITUDE <= largest else np.maximum(size, 1.0)  # NaN: one per cell


# --- constants of a call ----------------------------------------------------------------------------------------------

WRITTEN = {"clamp": ("low", "high"), "fill": ("value",)}  # parameters that may come out as a result


def constant_radius(context: Context, node: Node, known: Mapping[int, Ball]) -> Array:
    """Return how far the constants of an exact call can move its result: as far as the one that moves most.

    maximum, minimum, clamp, select, fill and layout are 1-Lipschitz in all of them together.
    known    the balls of the operands that are constants
    """
    numbers = [a.value for a in node.args if isinstance(a, NumberArg)]
    numbers += [node.params[k] for k in WRITTEN.get(node.op.name, ()) if node.params[k] is not None]
    balls = [context.stored(n) for n in numbers] + [b for b in known.values() if b.value.dtype.kind == "f"]
    radii = [b.radius if b.shape == node.shape else np.max(b.radius, initial=0.0) for b in balls]
    return np.asarray(np.maximum.reduce([np.zeros(node.shape), *(np.broadcast_to(r, node.shape) for r in radii)]))


def exact_error(context: Context, node: Node, ball: Ball, known: Mapping[int, Ball]) -> Array:
    """Return how far an exact call's result, `ball`, can be from the exact function of the same arguments.

    That is what the format makes of its constants, and a result that is flushed to zero. `known` are the balls of the
    operands that are constants.
    """
    tiny = context.arithmetic.tiny if context.arithmetic.flush else 0.0
    return constant_radius(context, node, known) + np.where(ball.least < tiny, np.minimum(ball.size, tiny), 0.0)
