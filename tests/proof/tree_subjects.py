"""Small networks with properties that need splits, their certificates, and the networks again as plain loops."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

import specgrad as sg
from specgrad.bounds import certify
from specgrad.bounds.search.certificates.prove import prove
from specgrad.proof.api import Certificate
from specgrad.properties.property import Alternative, Case, Property

LAYERS = 2, 6, 6, 2  # cells


def weights(seed: int) -> list[tuple[Any, Any]]:
    """Multiples of 1/16, which are exact in everything."""
    rng = np.random.default_rng(seed)
    pairs = itertools.pairwise(LAYERS)
    return [(np.float32(rng.integers(-16, 17, (n, m)) / 16), np.float32(rng.integers(-8, 9, n) / 16)) for m, n in pairs]


def network(seed: int) -> sg.Graph:
    layers = weights(seed)

    def run(x: Any) -> Any:
        for k, (w, b) in enumerate(layers):
            x = sg.linear(w, b, sg.relu(x) if k else x)
        return x

    return sg.trace(run, (LAYERS[0],))


def executed(seed: int, x: list[Any], lift: Any) -> list[Any]:
    """The same over any numbers, term by term."""
    for k, (w, b) in enumerate(weights(seed)):
        x = [v if v > 0 else lift(0) for v in x] if k else x
        x = [
            sum((lift(float(c)) * v for c, v in zip(row, x, strict=True)), lift(float(d)))
            for row, d in zip(w, b, strict=True)
        ]
    return x


def stated(seed: int, slack: Fraction, several: bool = False) -> Property:
    """On the box from -1 to 1: y0 - y1 stays above its least value on a grid less a slack, and so does y0."""
    points = [[Fraction(i, 8), Fraction(j, 8)] for i in range(-8, 9) for j in range(-8, 9)]
    outputs = [executed(seed, x, Fraction) for x in points]
    rows = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    limits = [min(sum(int(c) * v for c, v in zip(r[0], y, strict=True)) for y in outputs) - slack for r in rows]
    if several:  # both at once: no y has both
        together = Alternative(np.concatenate(rows), (limits[0] + 1, limits[1] + slack / 2))
        alternatives: tuple[Alternative, ...] = (together,)
    else:
        alternatives = tuple(Alternative(r, (limit,)) for r, limit in zip(rows, limits, strict=True))
    return Property(2, 2, (Case((Fraction(-1),) * 2, (Fraction(1),) * 2, alternatives),))


@cache
def proven(seed: int, slack: Fraction = Fraction(1, 8)) -> tuple[sg.Graph, Property, Certificate]:
    graph, statement = network(seed), stated(seed, slack)
    verdict = certify(graph, statement, seconds=1e9)
    assert verdict.verdict == "holds"
    assert any(tree for case in verdict.trees for _, tree in case)
    return graph, statement, prove(graph, statement, trees=verdict.trees, seconds=1e9)
