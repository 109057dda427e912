"""The box of inputs that a statement is about: around an input, between two numbers, or given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specgrad.bounds import Box
from specgrad.errors import ParameterError
from specgrad.scalar import Array, Number, float_above, float_below

COMMAND = "compare"


def box_of(box: Any, *others: Any) -> tuple[Any, ...]:
    """Return a box, or a structure of them, as one entry per input; raise ParameterError if `others` are given too."""
    if any(other is not None for other in others):
        raise ParameterError(COMMAND, "give a box, or eps, low and high; got both", rule="P5")
    boxes = box if isinstance(box, tuple) else (box,)
    if not any(isinstance(each, Box) for each in boxes):
        raise ParameterError(COMMAND, f"box must be a Box, or a tuple with one; got {type(box).__name__}", rule="P5")
    return boxes


def box_around(
    given: tuple[Array, ...], eps: Number | None, low: Number | None, high: Number | None
) -> tuple[Any, ...] | None:
    """Return floating-point inputs as boxes, others unchanged; None if neither eps, low nor high is given.

    ParameterError for a negative eps, for low above high or without eps or high, and if no input holds floats.

    >>> (box,) = box_around((np.float32([0.5, 1]),), 0.25, None, 1)
    >>> box.low, box.high
    (array([0.25, 0.75]), array([0.75, 1.  ]))
    """
    if eps is None and low is None and high is None:
        return None
    if eps is not None and not 0 <= eps < math.inf:
        raise ParameterError(COMMAND, f"eps must be a number that is not negative; got {eps}", rule="P5")
    if eps is None and (low is None or high is None):
        raise ParameterError(COMMAND, "give eps, or both low and high", rule="P5")
    if low is not None and high is not None and not -math.inf < low <= high < math.inf:
        raise ParameterError(COMMAND, f"low must not exceed high; got {low} and {high}", rule="P5")
    if not any(x.dtype.kind == "f" for x in given):
        raise ParameterError(COMMAND, "no input holds floats, so nothing moves", rule="P5")
    far = None if eps is None else float_above(eps)
    least, most = None if low is None else float_below(low), None if high is None else float_above(high)
    return tuple(_box_of_input(x, far, least, most) if x.dtype.kind == "f" else x for x in given)


def _box_of_input(x: Array, eps: float | None, low: float | None, high: float | None) -> Box:
    """Return the box of one input x: within eps of it and in low..high (None: no limit); without eps low..high
    alone.
    """
    if eps is None:
        assert low is not None
        assert high is not None  # what is asked for
        return Box(np.full(x.shape, low), np.full(x.shape, high))
    return Box.around(x.astype(float), eps, low, high)
