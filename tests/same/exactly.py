"""The judge of the hunt: values of two graphs at random rational points, by the specification, over exact numbers."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from random import Random
from typing import Any

import flint
import numpy as np

import specgrad as sg
from specgrad.graph.graph import Graph
from specgrad.graph.ir.tree import leaves

TRANSCENDENTAL = {"sqrt", "tanh"}


def point(graph: Graph, seed: int) -> tuple[np.ndarray, ...]:
    rng = Random(f"point {seed}")
    numbers = lambda shape: [
        Fraction(rng.randint(-40, 40), rng.choice((1, 3, 7, 8))) for _ in range(int(np.prod(shape)))
    ]
    shapes = [graph.nodes[p].shape for p in graph.input_positions]
    return tuple(np.array([*numbers(s), None], dtype=object)[:-1].reshape(s) for s in shapes)


def value(graph: Graph, given: tuple[np.ndarray, ...], lift: Any) -> list[Any]:
    constants = {p: lift(a) if a.dtype.kind != "i" else a for p, a in graph.constants.items()}
    outputs = dataclasses.replace(graph, constants=constants)(*map(lift, given))
    return [v for y in leaves(outputs) for v in np.asarray(y).flat]


def agree(a: Graph, b: Graph, seed: int, points: int = 2, within: float = 0.0) -> bool:
    """Equal rationals, or balls of 300 bits that overlap; or apart by such a share of the largest value at most."""
    rough = any(n.op.name in TRANSCENDENTAL for g in (a, b) for n in g.nodes)
    before = flint.ctx.prec
    flint.ctx.prec = 300
    try:
        for k in range(points):
            given = point(a, 100 * seed + k)
            first, second = (value(g, given, sg.balls if rough else sg.exact) for g in (a, b))
            if within:
                largest = max(abs(float(v)) for v in (*first, *second))
                return all(abs(float(p - q)) <= within * largest for p, q in zip(first, second, strict=True))
            same = [p.overlaps(q) if rough else p == q for p, q in zip(first, second, strict=True)]
            if not all(same):
                return False
        return True
    except ZeroDivisionError:  # a function that is nowhere defined: nothing to compare
        return True
    finally:
        flint.ctx.prec = before
