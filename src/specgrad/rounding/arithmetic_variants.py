"""Arithmetics other than direct sums of stored factors: reduced operands, results or sums, and Winograd convolutions.

Arithmetic(operands="tf32") bounds how far such an execution can be from the exact value. An ArithmeticVariant says
more:
the factors that enter a convolution or a matrix product are known, so their shorter form is known too, and what is left
is float32's own rounding. An answer that stays within that is explained; one within the wide ball might be anything.

`context` (specgrad.rounding.context) is what rules read besides their arguments, and add to.
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


def round_to_format(x: Array, form: Format, toward: Toward, ties: int = 1) -> Array:
    """Return x (float64) rounded to the format: to nearest, ties up (1) or down (-1), or toward zero.

    >>> from specgrad.rounding import FORMATS
    >>> round_to_format(np.array([257.0, -257.0, 258.5, 1e39]), FORMATS["bfloat16"], "nearest")
    array([ 258., -256.,  258.,   inf])
    >>> round_to_format(np.array([257.9, -257.9]), FORMATS["bfloat16"], "zero")
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


def ball_in_format(ball: Ball, form: Format, toward: Toward) -> Ball:
    """Return the ball of all values of `ball` rounded to the format, `toward` saying in which direction.

    Rounding is monotone, so its ends suffice.
    """
    with np.errstate(all="ignore"):  # of an infinite radius nothing is known
        low, high = round_to_format(ball.low, form, toward, -1), round_to_format(ball.high, form, toward, 1)
        same, wide = low == high, hull(low, high)
        return Ball(np.where(same, low, wide.value), np.where(same, 0.0, wide.radius))


@dataclass(frozen=True)
class ReducedOperands:
    """Variant: factors of convolutions and matrix products, data and weights, are rounded to a shorter format, `form`,
    first.
    """

    form: Format
    data: Toward = "nearest"
    weights: Toward = "nearest"

    def product(self, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        """Return the ball of a linear operator on factors rounded to the format; others by their usual rule."""
        if not op.kernel:
            return apply_rule(context, op, args, params)
        x, w, *rest = args
        short = [ball_in_format(x, self.form, self.data), ball_in_format(w, self.form, self.weights), *rest]
        return _exact_where_infinite(apply_rule(context, op, short, params))

    def stored(self, ball: Ball, last: bool) -> Ball:
        """Return the ball of a stored result unchanged, whether it is the `last` of its layer or not."""
        return ball


@dataclass(frozen=True)
class ReducedResults:
    """Variant: factors are rounded, sums are float32's, and the result of a layer is rounded to the format.

    A result between two layers that was not observed may have been rounded or not. `form` is the format, `toward` how
    results are rounded to it.
    """

    form: Format
    toward: Toward = "nearest"

    def product(self, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        """Return the ball of a linear operator whose factors were rounded to the shorter format before."""
        return ReducedOperands(self.form, self.toward, self.toward).product(context, op, args, params)

    def stored(self, ball: Ball, last: bool) -> Ball:
        """Return the ball of a stored result: rounded for certain if `last`, else rounded or not."""
        if ball.value.dtype.kind != "f":
            return ball
        short = ball_in_format(ball, self.form, self.toward)
        if last:
            return short
        with np.errstate(all="ignore"):
            return hull(np.fmin(ball.low, short.low), np.fmax(ball.high, short.high), ball.value)


@dataclass(frozen=True)
class ReducedSums:
    """Variant: partial sums of products and averages are rounded to the format `form`, in any order; factors too if
    `factors`.
    """

    form: Format
    factors: bool

    def product(self, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        """Return the ball of a linear operator on the balls `args`, its sums being made in this variant's format."""
        if self.factors and op.kernel:
            args = [*(ball_in_format(a, self.form, "nearest") for a in args[:2]), *args[2:]]
        half = replace(context.arithmetic, dtype=self.form.name, accumulate=None, operands=None, flush=True)
        ball = apply_rule(replace(context, arithmetic=half), op, args, params)
        return replace(ball, expansion=None)  # what follows is another arithmetic

    def stored(self, ball: Ball, last: bool) -> Ball:
        """Return the ball of a stored result unchanged, whether it is the `last` of its layer or not."""
        return ball


@dataclass(frozen=True)
class Winograd:
    """Variant: convolutions of 3 x 3 taps with stride 1 are computed by Winograd tiles; everything else directly."""

    tiles: WinogradTiles

    def product(self, context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
        """Return the ball of a convolution on the balls `args` by tiles; of what tiles do not fit by its own rule."""
        if not fits(op, params.get("window"), [a.shape for a in args]):
            return apply_rule(context, op, args, params)
        with np.errstate(all="ignore"):
            return winograd_rule(self.tiles, context, op, args, params)

    def stored(self, ball: Ball, last: bool) -> Ball:
        """Return the ball of a stored result unchanged, whether it is the `last` of its layer or not."""
        return ball


def _exact_where_infinite(ball: Ball) -> Ball:
    """Return the ball with radius 0 in cells whose value is infinite: as a factor, it makes its sums infinite or NaN in
    any order.
    """
    return Ball(ball.value, np.where(np.isfinite(ball.value), ball.radius, 0.0), expansion=ball.expansion)
