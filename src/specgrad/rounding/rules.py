"""Which rule an operator follows: its own line, or the one its traits ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import UnsupportedError
from ..op import Op, Params
from . import choice, function, linear, smooth
from .ball import Ball
from .context import Context

Rule = Callable[[Context, Op, Sequence[Ball], Params], Ball]

RULES: dict[str, Rule] = {
    "div": function.div_rule,
    "abs": function.abs_rule,
    "fill": function.fill_rule,
    "clamp": function.clamp_rule,
    "power": function.power_rule,
    "leaky_relu": function.leaky_rule,
    "select": choice.select_rule,
    "sign": choice.sign_rule,
    "winner": choice.winner_rule,
    "take": choice.take_rule,
    "put": choice.put_rule,
    "smooth_max_pool": smooth.smooth_rule,
    "smooth_pull": smooth.weighted_rule,
    "smooth_push": smooth.weighted_rule,
}
RULES |= dict.fromkeys(("greater", "greater_equal", "less", "equal"), choice.mask_rule)
RULES |= dict.fromkeys(
    ("exp", "log", "sqrt", "tanh", "sigmoid", "silu", "softplus", "normal_pdf", "normal_cdf", "gelu", "hardswish"),
    function.function_rule,
)


def rule_of(op: Op, args: Sequence[Ball]) -> Rule:
    """The rule for a call; an operator that declares too little is refused."""
    if op.name in RULES:
        return RULES[op.name]
    if op.kind == "index" or (op.kind == "same" and args[0].value.dtype.kind == "i"):
        return choice.position_rule
    real = {i for i in range(len(args)) if i not in op.index_args}
    if (op.exact or op.roundings is not None) and real <= {i for g in op.linear_groups(len(args)) for i in g}:
        return linear.linear_rule
    if op.exact and real <= set(op.monotone):
        return function.monotone_rule
    text = "has no rounding rule; declare it linear with `roundings`, or monotone and exact"
    raise UnsupportedError(op.name, text)


def apply_rule(run: Context, op: Op, args: Sequence[Ball], params: Params) -> Ball:
    with np.errstate(all="ignore"):  # an overflow of ours ends as a radius of inf
        return rule_of(op, args)(run, op, args, params)
