"""What every rule is given: the arithmetic, and a way to evaluate an operator in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..errors import ParameterError
from ..op import Op, Params, run_spec
from ..scalar import Array
from .arithmetic import REFERENCE, Arithmetic
from .ball import Ball, Expansion, between, exact_ball, hull
from .region import Count, leaf

Evaluate = Callable[[Op, Sequence[Any], Params], Array]


def _by_specification(op: Op, args: Sequence[Any], params: Params) -> Array:
    return run_spec(op, args, params)


def _by_torch() -> Evaluate:
    import torch

    from ..engines.torch import run

    def evaluate(op: Op, args: Sequence[Any], params: Params) -> Array:
        with torch.no_grad():
            tensors = [torch.from_numpy(np.require(a, requirements=("C", "W"))) for a in args]
            found: Array = run(op, tensors, params).numpy()
        return found

    return evaluate


def evaluator(backend: str) -> Evaluate:
    """The float64 reference: the specification, or the PyTorch engine for real sizes."""
    if backend not in ("numpy", "torch"):
        raise ParameterError("rounding", f'backend must be "numpy" or "torch"; got {backend!r}', rule="P5")
    return _by_specification if backend == "numpy" else _by_torch()


Kind = Literal["computed", "input", "constant"]  # what an argument is: a node's result, an input, known when loading
LARGE = 2.0**60  # numbers beyond are followed cell by cell, so that one large cell does not speak for all


@dataclass(frozen=True)
class Call:
    """The node at work: its name and layer, where it stands, and what its arguments are."""

    node: str = ""
    group: str = ""
    position: int = -1
    sources: tuple[int, ...] = ()
    kinds: tuple[Kind, ...] = ()

    def given(self, k: int) -> bool:
        """Whether argument k is no result of another node: an input, or a constant."""
        return not self.kinds or self.kinds[k] != "computed"

    def linear_group(self, op: Op, count: int) -> tuple[int, ...] | None:
        """Arguments in which this call is linear, every other one being given; None for products of computed values."""
        groups = op.linear_groups(count)
        return next((g for g in groups if all(k in g or self.given(k) for k in range(count))), None)


@dataclass(eq=False)
class Context:
    """One evaluation of a graph. `undecided` collects the nodes whose choice rounding may change.

    call          the node at work
    constants     positions of nodes that depend on no input
    stored_nodes  positions of nodes that the runtime is known to round and store: regions end there
    roundings     R: the most roundings that a term of a region may meet
    centred       wide balls (boxes of inputs): a rule that knows the ends of a range moves the value to its middle
    """

    arithmetic: Arithmetic
    evaluate: Evaluate
    undecided: set[str] = field(default_factory=set)
    call: Call = field(default_factory=Call)
    largest: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    stored_nodes: frozenset[int] = frozenset()
    roundings: int = 0
    centred: bool = False

    def spanned(self, value: Array, low: Array, high: Array) -> Ball:
        """The ball from low to high: around the value, or around the middle."""
        return hull(low, high, value) if self.centred else between(value, low, high)

    def stored(self, x: Any, index: bool = False) -> Ball:
        """Numbers as the arithmetic holds them: exact where it can, else rounded once; balls as they are."""
        if isinstance(x, Ball):
            return self.flushed(x)
        given = np.asarray(x)
        if index:
            return exact_ball(given.astype(np.int64))
        value = np.asarray(given.astype(np.float64))
        if given.dtype == object:
            kept = np.array([v == w for v, w in zip(given.flat, value.flat, strict=True)]).reshape(value.shape)
            reference = np.where(kept, 0.0, np.abs(value) * REFERENCE.u + REFERENCE.smallest)
        else:
            reference = np.zeros(value.shape)
        form = self.arithmetic.format
        rounded = np.where(form.holds(value), 0.0, np.abs(value) * form.u + form.smallest)
        rounded = np.where(np.isfinite(value) & (np.abs(value) > form.largest), np.inf, rounded)
        return self.flushed(Ball(value, rounded + reference))

    def flushed(self, ball: Ball) -> Ball:
        """The ball after subnormal numbers may have become zero."""
        if not self.arithmetic.flush or ball.value.dtype.kind == "i":
            return ball
        tiny = self.arithmetic.tiny
        lost = np.where(np.isfinite(ball.value) & (ball.least < tiny), np.minimum(ball.size, tiny), 0.0)
        ends = ball.ends and (
            np.where(lost, np.fmin(ball.low, 0), ball.low),
            np.where(lost, np.fmax(ball.high, 0), ball.high),
        )
        return replace(ball, radius=ball.radius + lost, ends=ends)

    def opened(self, ball: Ball, k: int, region: bool, is_index: bool = False) -> Expansion:
        """Argument k: its expansion if it belongs to the region (or the layer) at work; otherwise an input of it."""
        e = ball.expansion
        key = self.call.sources[k] if self.call.sources else -1 - k
        if e is not None and (region or e.group == self.call.group) and key not in self.stored_nodes:
            return e
        if is_index:
            nothing = np.zeros(ball.shape)
            return Expansion(self.call.group, nothing, ball.value, ball.value, np.array(1.0), Count())
        constant = bool(self.call.kinds) and self.call.kinds[k] == "constant"
        count = Count() if constant else leaf(key, ball.value.size)
        return Expansion(self.call.group, ball.radius, ball.size, np.abs(ball.value), at_least_1(ball.size), count)

    def leave_open(self, where: Array) -> None:
        if where.any():
            self.undecided.add(self.call.node)


def at_least_1(size: Array) -> Array:
    """max(1, size): one number for all cells, or each by itself where some are large."""
    top = float(np.max(size, initial=1.0))
    return np.array(top) if top <= LARGE else np.maximum(size, 1.0)
