"""What every rule is given: the arithmetic, and a way to evaluate an operator in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..op import Op, Params, run_spec
from ..scalar import Array
from .arithmetic import REFERENCE, Arithmetic
from .ball import Ball, Expansion, between, exact_ball, hull

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


@dataclass(eq=False)
class Context:
    """One evaluation of a graph. `undecided` collects the nodes whose choice rounding may change.

    centred    wide balls (boxes of inputs): a rule that knows the ends of a range moves the value to its middle
    """

    arithmetic: Arithmetic
    evaluate: Evaluate
    undecided: set[str] = field(default_factory=set)
    node: str = ""
    group: str = ""
    largest: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
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
        e = ball.expansion
        ends = ball.ends and (
            np.where(lost, np.fmin(ball.low, 0), ball.low),
            np.where(lost, np.fmax(ball.high, 0), ball.high),
        )
        return replace(ball, radius=ball.radius + lost, ends=ends, expansion=e and replace(e, carried=e.carried + lost))

    def opened(self, ball: Ball, is_index: bool = False) -> Expansion:
        """The ball's expansion if it belongs to the layer at work; otherwise an input of it."""
        if ball.expansion is not None and ball.expansion.group == self.group:
            return ball.expansion
        if is_index:
            return Expansion(self.group, np.zeros(ball.shape), ball.value, ball.value, 0, 0)
        return Expansion(self.group, ball.radius, ball.size, np.abs(ball.value), 0, 0)

    def leave_open(self, where: Array) -> None:
        if where.any():
            self.undecided.add(self.node)
