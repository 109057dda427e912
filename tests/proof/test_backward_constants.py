"""Coefficients of three linear nodes in a row, formed from the output back: executions that were once outside of R.

A runtime that folds the last two nodes first, and then what stands before them, adds up as many products as there are
cells between. As long as R followed the nodes from the input on, that left the radius, and contradicted a certificate
that both checkers accepted (ERRATA.md). Every order: tests/rounding/test_region_orders.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flint")
pytest.importorskip("safetensors")

import specgrad as sg
from proven_program import needed
from specgrad.errors import SpecgradError
from specgrad.proof.extracted import run_checker
from specgrad.proof.files.certificate import CaseProof, Proof, check, encode
from specgrad.rounding import radius

f32 = np.float32
U = 2.0**-24


def added_up(terms: Any) -> Any:
    """The sum in float32, largest first: what is below half a digit is lost each time."""
    total = f32(0)
    for term in sorted(terms, reverse=True):
        total = f32(total + term)
    return total


def test_a_convolution_folded_last_is_within_the_radius() -> None:
    """A convolution, a global average and a matrix product: the last two are folded first."""
    channels, kinds, side, kernel = 8, 4, 9, 7
    w = np.full((kinds, channels, kernel, kernel), U, f32)
    w[0, :, kernel // 2, kernel // 2] = 1
    c = np.full((1, kinds), side * side, f32)
    x = np.full((1, channels, side, side), U, f32)
    x[0, 0, side // 2, side // 2] = 1

    def net(v: Any) -> Any:
        averages = sg.avg_pool(sg.conv(w, None, v, padding=kernel // 2), (side, side))
        return sg.linear(c, None, sg.reshape(averages, (kinds,)))

    found = radius(sg.trace(net, x.shape), x)
    shares = f32(c[0] / f32(side * side))
    assert set(shares) == {1}
    inside = range(side)
    terms = []
    for channel in range(channels):
        for i in inside:
            for j in inside:
                taps = [
                    f32(shares[kind] * w[kind, channel, p, q])
                    for kind in range(kinds)
                    for p in range(kernel)
                    for q in range(kernel)
                    if i + kernel // 2 - p in inside and j + kernel // 2 - q in inside
                ]
                terms.append(f32(added_up(taps) * x[0, channel, i, j]))
    off = abs(float(added_up(terms)) - float(np.ravel(found.outputs.value)[0]))
    allowed = float(np.ravel(found.outputs.radius)[0])
    assert 0.7 * allowed < off <= allowed


@pytest.mark.parametrize("checker", [check, pytest.param(run_checker.check_proven, marks=needed)])
def test_what_a_matrix_folded_into_averages_contradicts_is_refused(checker: Any) -> None:
    """y = c . avg_pool(x_0 + rest): one coefficient of x_0 has as many products as there are cells."""
    cells, pool = 256, 16
    c = np.full((1, cells // pool), pool * pool * U, f32)
    c[0, 0] = pool

    def net(v: Any) -> Any:
        sums = sg.broadcast(v[:1], (cells,)) + v[1:]
        averages = sg.avg_pool(sg.reshape(sums, (1, 1, cells)), (pool,), stride=(pool,))
        return sg.linear(c, None, sg.reshape(averages, (cells // pool,)))

    shares = np.repeat(f32(c[0] / f32(pool)), pool)
    x = np.r_[f32(1), np.where(shares == 1, f32(pool * U), f32(1))].astype(f32)
    y = added_up([f32(added_up(shares) * x[0]), *(f32(a * b) for a, b in zip(shares, x[1:], strict=True))])
    limit = 16 * (1 + 200 * Fraction(1, 2**24))
    assert y == 16 < limit
    graph = sg.trace(net, (cells + 1,))
    rows = np.ones((1, 1), dtype=object)
    never = CaseProof(x, x, ((rows, (limit,), Proof((1,), {})),))  # y <= limit
    with pytest.raises(SpecgradError, match=r"not excluded|does not accept"):
        checker(*encode(graph, [never]), graph)
