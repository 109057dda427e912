"""Which rule an operator follows: its own line, or the one its traits ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UnsupportedError
from ..op import Op, Params
from . import choice, function, integers, linear, resize, smooth
from .ball import Ball
from .context import Context

Rule = Callable[[Context, Op, Sequence[Ball], Params], Ball]

RULES: dict[str, Rule] = {
    "div": function.div_rule,
    "mul": integers.mul_rule,
    "quantize": integers.quantize_rule,
    "cast": integers.cast_rule,
    "abs": function.abs_rule,
    "fill": function.fill_rule,
    "clamp": function.clamp_rule,
    "power": function.power_rule,
    "root": function.power_rule,
    "leaky_relu": function.leaky_rule,
    "select": choice.select_rule,
    "fmod": choice.fmod_rule,
    "winner": choice.winner_rule,
    "take": choice.take_rule,
    "put": choice.put_rule,
    "gather": choice.gather_rule,
    "scatter": choice.scatter_rule,
    "resize": resize.resize_rule,
    "resize_spread": resize.resize_rule,
    "top": choice.ordered_rule,
    "top_index": choice.top_rule,
    "smooth_max_pool": smooth.smooth_rule,
    "smooth_pull": smooth.weighted_rule,
    "smooth_push": smooth.weighted_rule,
}
RULES |= dict.fromkeys(("greater", "greater_equal", "less", "equal"), choice.mask_rule)


def rule_of(op: Op, args: Sequence[Ball]) -> Rule:
    """The rule for a call; an operator that declares too little is refused."""
    if op.name in RULES:
        return RULES[op.name]
    if op.curve is not None and not op.exact:
        return function.function_rule
    if op.kind == "index" or (op.kind == "same" and args[0].value.dtype.kind == "i"):
        return choice.position_rule
    real = {i for i in range(len(args)) if i not in op.index_args}
    if (op.exact or op.roundings is not None) and real <= {i for g in op.linear_groups(len(args)) for i in g}:
        return linear.linear_rule
    if op.exact and op.jumps and real <= set(op.monotone):
        return choice.step_rule
    if op.exact and real <= set(op.monotone):
        return function.monotone_rule
    text = "has no rounding rule; declare it linear with `roundings`, or monotone and exact"
    raise UnsupportedError(op.name, text)


def apply_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    rule = rule_of(op, args)
    if run.call.in_integers and not op.exact:
        rule = integers.integer_rule if rule in (linear.linear_rule, integers.mul_rule) else integers.no_rule
    with np.errstate(all="ignore"):  # an overflow of ours ends as a radius of inf
        return rule(run, op, args, params)
