"""Classes of executions that do something else than direct sums of stored factors, as precisely as it can be known.

Arithmetic(operands="tf32") says how far such an execution can be from the exact value. A `Way` says where it is: the
factors that enter a convolution or a matrix product are known, so their shorter form is known too, and what is left is
float32's own rounding. An answer that stays within that is explained; one within the wide ball might be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..op import Op, Params
from ..scalar import Array
from .arithmetic import Format
from .ball import Ball, hull
from .context import Context
from .rules import apply_rule
from .winograd import WinogradTiles, fits, winograd_rule

Toward = Literal["nearest", "zero"]


def shortened(x: Array, form: Format, toward: Toward, ties: int = 1) -> Array:
    """x (float64) as a number of the format: the nearest, ties up (1) or down (-1), or the next one toward zero.

    >>> from specgrad.rounding import FORMATS
    >>> shortened(np.array([257.0, -257.0, 258.5, 1e39]), FORMATS["bfloat16"], "nearest")
    array([ 258., -256.,  258.,   inf])
    >>> shortened(np.array([257.9, -257.9]), FORMATS["bfloat16"], "zero")
    array([ 256., -256.])
    """
    with np.errstate(all="ignore"):
        last = np.maximum(np.frexp(x)[1] - 1, form.lowest) - (form.digits - 1)
        steps = np.ldexp(x, -last)
        whole = np.trunc(steps) if toward == "zero" else ties * np.floor(ties * steps + 0.5)
        y = np.ldexp(whole, last)
        beyond = np.copysign(form.largest if toward == "zero" else np.inf, x)
    y = np.where(np.abs(y) > form.largest, beyond, y)
    return np.asarray(np.where(np.isfinite(x), y, x))


def short_ball(ball: Ball, form: Format, toward: Toward) -> Ball:
    """Where a value of the ball lies once it is rounded to the format; rounding is monotone, so the ends say it."""
    with np.errstate(all="ignore"):  # of an infinite radius nothing is known
        low, high = shortened(ball.low, form, toward, -1), shortened(ball.high, form, toward, 1)
        same, wide = low == high, hull(low, high)
        return Ball(np.where(same, low, wide.value), np.where(same, 0.0, wide.radius))


@dataclass(frozen=True)
class ReducedOperands:
    """Factors of convolutions and matrix products, the data and the weights, are rounded to a shorter format first."""

    form: Format
    data: Toward = "nearest"
    weights: Toward = "nearest"

    def product(self, run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        if not op.kernel:
            return apply_rule(run, op, args, params)
        x, w, *rest = args
        short = [short_ball(x, self.form, self.data), short_ball(w, self.form, self.weights), *rest]
        return _infinite(apply_rule(run, op, short, params))

    def stored(self, ball: Ball, last: bool) -> Ball:
        return ball


@dataclass(frozen=True)
class ReducedResults:
    """Factors are rounded, sums are float32's, and the result of a layer is rounded to the format.

    A result between two layers that nobody has seen may have been rounded or not.
    """

    form: Format
    toward: Toward = "nearest"

    def product(self, run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        return ReducedOperands(self.form, self.toward, self.toward).product(run, op, args, params)

    def stored(self, ball: Ball, last: bool) -> Ball:
        if ball.value.dtype.kind != "f":
            return ball
        short = short_ball(ball, self.form, self.toward)
        if last:
            return short
        with np.errstate(all="ignore"):
            return hull(np.fmin(ball.low, short.low), np.fmax(ball.high, short.high), ball.value)


@dataclass(frozen=True)
class ReducedSums:
    """Partial sums of products and of averages are rounded to the format, in any order; factors are or are not."""

    form: Format
    factors: bool

    def product(self, run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        if self.factors and op.kernel:
            args = [*(short_ball(a, self.form, "nearest") for a in args[:2]), *args[2:]]
        half = replace(run.arithmetic, dtype=self.form.name, accumulate=None, operands=None, flush=True)
        ball = apply_rule(replace(run, arithmetic=half), op, args, params)
        return replace(ball, expansion=None)  # what follows is another arithmetic

    def stored(self, ball: Ball, last: bool) -> Ball:
        return ball


@dataclass(frozen=True)
class Winograd:
    """Convolutions of 3 x 3 taps, steps of 1, by tiles; everything else directly."""

    tiles: WinogradTiles

    def product(self, run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        if not fits(op, params.get("window"), [a.shape for a in args]):
            return apply_rule(run, op, args, params)
        with np.errstate(all="ignore"):
            return winograd_rule(self.tiles, run, op, args, params)

    def stored(self, ball: Ball, last: bool) -> Ball:
        return ball


def _infinite(ball: Ball) -> Ball:
    """A factor that became infinite makes its sums infinite or NaN, whatever the order."""
    return Ball(ball.value, np.where(np.isfinite(ball.value), ball.radius, 0.0), expansion=ball.expansion)
