"""Smooth maxima as programs compute them: shifted by the maximum of the window or a larger one of its plane, or tap by
tap; functions as far off as is declared, every sum in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from floats import Machine
from specgrad.graph.graph import Node
from specgrad.window import Adaptive

DEEPEST = 65.0  # a shift that lies further above a window loses its digits
Function = Callable[[str, float], float]


def smooth_maximum(node: Node, x: np.ndarray, unit: Machine, rng: Random, beta: float, f: Function) -> list[float]:
    """Every window of a node, each by a program of its own.

    f   exp or log of a number, with an error
    """
    window, padded = node.params["window"], node.params["padded"] == "zero"
    lead = node.shape[: len(node.shape) - window.rank]
    planes, found = x.reshape(math.prod(lead), *window.size), []
    for plane in planes:
        scaled = [unit.mul(float(v), beta) for v in plane.flat] + [0.0] * (padded and window.pads_anything)
        for position in np.ndindex(*window.out):
            taps = _taps(plane, window, position, padded)
            if not taps:
                found.append(0.0)
                continue
            z = [unit.mul(v, beta) for v in taps]
            way = rng.choice((_shifted, _shifted, _tap_by_tap))
            found.append(_over(way(z, max(scaled), unit, rng, f), beta, unit, rng))
    return found


def _taps(plane: np.ndarray, window: Any, position: tuple[int, ...], padded: bool) -> list[float]:
    """By the definition of a window, one axis after the other; padded taps are 0, or are left out."""
    each = []
    for tap in np.ndindex(*window.kernel):
        cell = [_cell(a, p, t) for a, p, t in zip(window.axes, position, tap, strict=True)]
        inside = all(0 <= c < n for c, n in zip(cell, window.size, strict=True))
        if inside or padded:
            each.append(float(plane[tuple(cell)]) if inside else 0.0)
    return each


def _cell(axis: Any, p: int, t: int) -> int:
    """Where tap t of output p reads; -1 where an adaptive cell is shorter than the longest."""
    if isinstance(axis, Adaptive):
        first, stop = p * axis.size // axis.out, -(-(p + 1) * axis.size // axis.out)
        return first + t if first + t < stop else -1
    return axis.stride * p + axis.dilation * t - axis.lo


def _sum(terms: list[float], unit: Machine, rng: Random) -> float:
    terms = list(terms)
    while len(terms) > 1:
        a, b = (terms.pop(rng.randrange(len(terms))) for _ in range(2))
        terms.append(unit.add(a, b))
    return terms[0]


def _shifted(z: list[float], top: float, unit: Machine, rng: Random, f: Function) -> float:
    """m + log(sum exp(z - m))."""
    m = max(z)
    if top - m < DEEPEST and rng.random() < 0.5:
        m = rng.choice((top, float(unit.store(m + rng.random() * (top - m)))))
    terms = [unit.store(f("exp", unit.add(v, -m))) for v in z]
    return unit.add(m, unit.store(f("log", _sum(terms, unit, rng))))


def _tap_by_tap(z: list[float], top: float, unit: Machine, rng: Random, f: Function) -> float:
    """max + log(1 + exp(-difference)), one tap after the other."""
    total, *rest = rng.sample(z, len(z))
    for v in rest:
        m, difference = max(total, v), unit.add(min(total, v), -max(total, v))
        total = unit.add(m, unit.store(f("log", unit.add(1.0, unit.store(f("exp", difference))))))
    return total


def _over(y: float, beta: float, unit: Machine, rng: Random) -> float:
    return unit.div(y, beta) if rng.random() < 0.5 else unit.mul(y, unit.div(1.0, beta))


def exact_value(taps: list[Fraction], beta: Fraction) -> Any:
    """A ball of python-flint that holds log(sum exp(beta*x))/beta."""
    from flint import arb

    z = [arb((beta * v).numerator) / (beta * v).denominator for v in taps]
    top = z[max(range(len(taps)), key=lambda t: beta * taps[t])]
    return (top + sum(((v - top).exp() for v in z), arb(0)).log()) * beta.denominator / beta.numerator
