"""Rounding of constants in a call: what the format makes of a Python number, a parameter or a constant.

`Context.stored` says what a number becomes: itself if the format holds it, else rounded once. An operator may be exact
in its cells; the constant that it compares them with, or writes, is rounded all the same.

`run` is the context of an evaluation (specgrad.rounding.context): what rules read besides their arguments, and add to.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..graph.graph import Node, NumberArg
from ..scalar import Array
from .ball import Ball
from .context import Context

WRITTEN = {"clamp": ("low", "high"), "fill": ("value",)}  # parameters that may come out as a result


def constant_radius(run: Context, node: Node, known: Mapping[int, Ball]) -> Array:
    """Return how far the constants of an exact call can move its result: as far as the one that moves most.

    maximum, minimum, clamp, select, fill and layout are 1-Lipschitz in all of them together.
    known    the balls of the operands that are constants
    """
    numbers = [a.value for a in node.args if isinstance(a, NumberArg)]
    numbers += [node.params[k] for k in WRITTEN.get(node.op.name, ()) if node.params[k] is not None]
    balls = [run.stored(n) for n in numbers] + [b for b in known.values() if b.value.dtype.kind == "f"]
    radii = [b.radius if b.shape == node.shape else np.max(b.radius, initial=0.0) for b in balls]
    return np.asarray(np.maximum.reduce([np.zeros(node.shape), *(np.broadcast_to(r, node.shape) for r in radii)]))


def exact_error(run: Context, node: Node, ball: Ball, known: Mapping[int, Ball]) -> Array:
    """Return how far an exact call's result, `ball`, can be from the exact function of the same arguments.

    That is what the format makes of its constants, and a result that is flushed to zero.
    """
    tiny = run.arithmetic.tiny if run.arithmetic.flush else 0.0
    return constant_radius(run, node, known) + np.where(ball.least < tiny, np.minimum(ball.size, tiny), 0.0)
