"""The table of rounding rules: an operator follows its own entry, or the rule that its traits ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UnsupportedError
from ..op import Op, Params
from ..ops.elementwise import cellwise
from . import elementwise, linear, logsumexp, quantised, resize, running_product, selection
from .ball import Ball
from .context import Context
from .layers import masks

Rule = Callable[[Context, Op, Sequence[Ball], Params], Ball]

RULES: dict[str, Rule] = {
    "add": masks.sum_rule,
    "sub": masks.sum_rule,
    "exp": masks.exp_rule,
    "div": elementwise.div_rule,
    "mul": quantised.mul_rule,
    "quantize": quantised.quantize_rule,
    "cast": quantised.cast_rule,
    "abs": elementwise.abs_rule,
    "fill": elementwise.fill_rule,
    "clamp": elementwise.clamp_rule,
    "power": elementwise.power_rule,
    "root": elementwise.power_rule,
    "leaky_relu": elementwise.leaky_rule,
    "select": selection.select_rule,
    "fmod": selection.fmod_rule,
    "winner": selection.winner_rule,
    "take": selection.take_rule,
    "put": selection.put_rule,
    "gather": selection.gather_rule,
    "scatter": selection.scatter_rule,
    "resize": resize.resize_rule,
    "resize_spread": resize.resize_rule,
    "top": selection.top_value_rule,
    "top_index": selection.top_rule,
    "cumprod": running_product.running_product_rule,
    "smooth_max_pool": logsumexp.smooth_rule,
    "smooth_pull": logsumexp.weighted_rule,
    "smooth_push": logsumexp.weighted_rule,
}
RULES |= dict.fromkeys(("greater", "greater_equal", "less", "equal"), selection.mask_rule)


def rule_of(op: Op, args: Sequence[Ball]) -> Rule:
    """Return the rule that makes the ball of a call of `op` on the balls `args`.

    Raise UnsupportedError for an operator that declares too little.
    """
    if op.name in RULES:
        return RULES[op.name]
    if op.curve is not None and not op.exact:
        return elementwise.function_rule
    if op.kind == "index" or (op.kind == "same" and args[0].value.dtype.kind == "i"):
        return selection.position_rule
    real = {i for i in range(len(args)) if i not in op.index_args}
    if (op.exact or op.roundings is not None) and real <= {i for g in op.linear_groups(len(args)) for i in g}:
        return masks.moved_rule if op.exact else linear.linear_rule
    if op.exact and op.jumps and real <= set(op.monotone):
        return selection.step_rule
    if op.exact and real <= set(op.monotone):
        return elementwise.monotone_rule if op.largest or op.receptive_field is cellwise else selection.rank_rule
    text = "has no rounding rule; declare it linear with `roundings`, or monotone and exact"
    raise UnsupportedError(op.name, text)


def apply_rule(context: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    """Return the ball of one operator call on the balls `args`, by the rule of the operator; overflows become infinite
    radii.

    UnsupportedError where an operator has no rule.
    """
    rule = rule_of(op, args)
    if context.call.integers is not None and not op.exact:
        rule = (
            quantised.integer_rule
            if rule in (linear.linear_rule, masks.sum_rule, quantised.mul_rule)
            else quantised.no_rule
        )
    with np.errstate(all="ignore"):  # an overflow of ours ends as a radius of inf
        ball = rule(context, op, args, params)
        kept = context.call.integers
        return ball if kept is None or not op.exact else quantised.kept_in_integers(op, args, ball, *kept)
