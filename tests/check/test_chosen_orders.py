"""Executions in chosen orders belong to the class: rounded as the format rounds, no term through too many roundings."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest

import drawn_windows
import specgrad as sg
from slices import slices
from specgrad.rounding import FORMATS, Arithmetic, radius

pytest.importorskip("torch")
from networks import KINDS, network
from specgrad.check.models.emulate import Executor, slopes
from specgrad.check.models.summation_orders import candidate_sums, longest_run, rounding_to, sum_in_runs, sum_terms
from specgrad.graph.ir.tree import leaves
from specgrad.ops.avg_pool import AVG_POOL

F32 = rounding_to(FORMATS["float32"])


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_rounding_is_that_of_the_format(name: str) -> None:
    """Against NumPy and ml_dtypes, on every exponent, halfway cases and subnormal numbers."""
    dtype = np.dtype(name) if name != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16
    rng = np.random.default_rng(0)
    x = rng.normal(size=20_000) * 2.0 ** rng.integers(-150, 128, 20_000)
    with np.errstate(over="ignore"):
        held = x.astype(np.float32).astype(dtype).astype(np.float64)
    near = held * (1 + 2.0 ** -FORMATS[name].digits)  # halfway to the next
    for values in (x.astype(np.float32).astype(np.float64), near.astype(np.float32).astype(np.float64), held):
        with np.errstate(over="ignore"):
            wanted = values.astype(np.float32).astype(dtype).astype(np.float64)
        np.testing.assert_array_equal(rounding_to(FORMATS[name])(values), wanted)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_runs_are_sums_of_float32(count: int) -> None:
    """One after the other, and in pairs, against np.float32 loops; the last way is a correctly rounded sum."""
    terms = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
    one = terms[0]
    for row in terms[1:]:
        one = one + row
    np.testing.assert_array_equal(sum_in_runs(terms.astype(float), count, F32), one)
    pairs = list(terms)
    while len(pairs) > 1:
        joined = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=False)]
        pairs = joined + pairs[2 * len(joined) :]
    np.testing.assert_array_equal(sum_in_runs(terms.astype(float), 1, F32), pairs[0])


def wrong_sums(seeds: range) -> list[int]:
    """Averages over windows of every kind whose terms do not add up to them, on integers, cell by cell."""
    wrong = []
    for seed in seeds:
        lead, window = drawn_windows.under_axes(Random(seed), empty=True)
        x = np.random.default_rng(seed).integers(-9, 10, (*lead, *window.size)).astype(float)
        graph = sg.trace(lambda x, w=window: sg.apply(AVG_POOL, x, window=w, divisor=1), x.shape)
        ((where, terms),) = sum_terms(graph.nodes[-1], [x], lambda v: v)
        total = np.zeros(graph.nodes[-1].shape)
        total[where] = terms.sum(0)
        for at in np.ndindex(total.shape):
            before, place = at[: len(lead)], at[len(lead) :]
            read = [cell for _, cell in window.reads(place) if cell is not None]
            if total[at] != sum(x[(*before, *cell)] for cell in read):
                wrong.append(seed)
                break
    return wrong


def test_terms_of_averages_are_what_windows_read() -> None:
    assert wrong_sums(range(60)) == []


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 9, 40, None])
@pytest.mark.parametrize("count", [1, 2, 5, 17, 64])
def test_no_term_meets_more_roundings_than_the_depth(count: int, depth: int | None) -> None:
    """Counted: every term carries the roundings that it has met, through the same code."""

    class Counted:
        """A number that knows the most roundings of its terms."""

        def __init__(self, met: int) -> None:
            self.met = met

        def __add__(self, other: object) -> Counted:
            return Counted(max(self.met, other.met if isinstance(other, Counted) else 0))

        __radd__ = __add__

    def rounded(x: np.ndarray) -> np.ndarray:
        return np.vectorize(lambda c: Counted(c.met + 1) if isinstance(c, Counted) else c, otypes=[object])(x)

    length = longest_run(count, depth, 1)
    if length == 0:
        assert depth is not None
        assert 1 + math.ceil(math.log2(count)) > depth
        return
    for run in {length, 1}:
        terms = np.array([[Counted(1)] for _ in range(count)], dtype=object)
        assert depth is None or sum_in_runs(terms, run, rounded)[0].met <= depth


def test_orders_differ_and_hold_the_exact_sum() -> None:
    """Every candidate is within N roundings of the exact sum, and they are not all the same."""
    rng = np.random.default_rng(1)
    terms = F32(rng.normal(size=(200, 4)))
    exact = [sum(map(Fraction, terms[:, k].tolist()), Fraction(0)) for k in range(4)]
    size = [sum(abs(Fraction(v)) for v in terms[:, k].tolist()) for k in range(4)]
    sums = list(candidate_sums(terms, F32, 0, None))
    for y in sums:
        for k in range(4):
            assert abs(Fraction(float(y[k])) - exact[k]) <= 200 * Fraction(2) ** -24 * size[k] * 2
    assert len({tuple(y.tolist()) for y in sums}) > 3


@pytest.mark.parametrize("name", ["float32", "tf32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("seeds", slices(1, 8))
def test_executions_keep_to_the_radius_by_node(kind: str, name: str, seeds: range) -> None:
    """Pushed up and down on networks of every kind, against the radius, which shares nothing with them."""
    arithmetic = Arithmetic(operands="tf32", execution="node") if name == "tf32" else Arithmetic(name, execution="node")
    for seed in seeds:
        drawn = network(seed, kind=kind)
        inputs = [np.asarray(x, float) for x in drawn.inputs]
        report = radius(drawn.graph, *inputs, arithmetic=arithmetic)
        outputs = sum(int(np.prod(drawn.graph.nodes[p].shape)) for p in drawn.graph.real_outputs)
        steep = slopes(drawn.graph, inputs, np.ones(outputs))
        for push in (-1, 1):
            run = Executor(drawn.graph, arithmetic).run(inputs, {i: push * s for i, s in steep.items()})
            for ball, y in zip(leaves(report.outputs), run, strict=True):
                assert ball.contains(y).all(), (kind, seed, push)


def test_convolutions_are_those_of_the_specification() -> None:
    """Integers, so that every order is exact: groups, strides, padding, transposed, biases."""
    rng = np.random.default_rng(0)
    w, b = rng.integers(-3, 4, (4, 2, 3, 2)).astype(np.float32), rng.integers(-3, 4, 4).astype(np.float32)
    v = rng.integers(-3, 4, (4, 3, 2, 2)).astype(np.float32)

    def net(x: object) -> object:
        y = sg.conv(w, b, x, stride=(2, 1), padding=((1, 0), (2, 1)), groups=2)
        z = sg.conv_transpose(v, None, y, stride=2, groups=2)
        return sg.avg_pool(z, (2, 2), stride=2) + sg.sum(z, (2, 3), keepdims=True)

    graph = sg.trace(net, (2, 4, 7, 5))
    x = rng.integers(-4, 5, (2, 4, 7, 5)).astype(float)
    outputs = graph.nodes[graph.real_outputs[0]].shape
    for push in (-1.0, 1.0):
        directions = {i: np.full(n.shape, push) for i, n in enumerate(graph.nodes)}
        (y,) = Executor(graph, Arithmetic()).run([x], directions)
        assert y.shape == outputs
        np.testing.assert_array_equal(y, graph(x))
