"""Arithmetic(depth=D): every sum is a tree in which no term meets more than D roundings.

The executions here are trees of our own, over NumPy's float32; exact values are Fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.rounding import Arithmetic, Ball, radius

U = 2.0**-24
NODE = "node"


def tree_sum(terms: np.ndarray, depth: int, rng: np.random.Generator) -> np.ndarray:
    """The sum over the first axis by a random tree, each of whose leaves is at most `depth` deep; often lopsided."""
    count, half = len(terms), 2 ** (depth - 1) if depth else 0
    if count == 1:
        return terms[0]
    low, high = max(1, count - half), min(count - 1, half)
    cut = int(rng.choice([low, high, rng.integers(low, high + 1)]))
    return tree_sum(terms[:cut], depth - 1, rng) + tree_sum(terms[cut:], depth - 1, rng)


def in_lanes(terms: np.ndarray, lanes: int) -> np.ndarray:
    """As kernels sum: lane by lane one after the other, then the lanes by halves."""
    parts = [terms[k::lanes] for k in range(lanes)]
    sums = []
    for part in parts:
        total = part[0]
        for term in part[1:]:
            total = total + term
        sums.append(total)
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]


def outside(ball: Ball, value: Any) -> bool:
    """Decided over Fractions."""
    cells = zip(np.ravel(value).tolist(), ball.value.ravel().tolist(), ball.radius.ravel().tolist(), strict=True)
    return any(abs(Fraction(got) - Fraction(middle)) > Fraction(reach) for got, middle, reach in cells)


def adversarial_lanes(count: int, lanes: int) -> np.ndarray:
    """Every lane begins with 1; each further term is just over half a unit, so that all roundings go up."""
    terms = np.full(count, U * (1 + 2.0**-20), np.float32)
    terms[:lanes] = 1.0
    return terms


def sum_graph(count: int) -> Any:
    return sg.trace(lambda x: sg.sum(x), (count,))


# --- executions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", ["node", "fused"])
def test_no_tree_leaves_the_radius(execution: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        count = int(rng.integers(2, 200))
        depth = int(rng.integers(math.ceil(math.log2(count)), count))
        x = (rng.choice([1.0, -1.0], count) * 2.0 ** rng.uniform(-6, 6, count)).astype(np.float32)
        ball = radius(sum_graph(count), x, arithmetic=Arithmetic(execution=execution, depth=depth)).outputs
        assert not outside(ball, float(sum(map(Fraction, x.tolist()))))
        for _ in range(5):
            assert not outside(ball, tree_sum(x, depth, rng))


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_lanes_use_almost_all_of_it_and_a_smaller_depth_is_caught(lanes: int) -> None:
    count = 288 * lanes
    depth = 287 + int(math.log2(lanes))
    x = adversarial_lanes(count, lanes)
    got = in_lanes(x, lanes)
    assert got.dtype == np.float32

    def ball_of(deep: int) -> Ball:
        return radius(sum_graph(count), x, arithmetic=Arithmetic(depth=deep)).outputs

    ball = ball_of(depth)
    assert not outside(ball, got)
    assert abs(float(got) - float(ball.value)) > 0.9 * float(ball.radius)
    assert outside(ball_of(depth * 4 // 5), got)  # planted


def product_lanes(w: np.ndarray, x: np.ndarray, lanes: int) -> np.ndarray:
    """A matrix product: each product rounded, then lanes."""
    return np.stack([in_lanes(row * x, lanes) for row in w])


def test_two_products_in_lanes_keep_the_tolerance() -> None:
    """Through crown: adversarial lanes in both layers; of a depth that is too small something escapes."""
    pytest.importorskip("torch")
    from specgrad.check import tolerance

    lanes, n = 4, 256
    first = np.tile(adversarial_lanes(n, lanes), (n, 1))
    second = np.stack([adversarial_lanes(n, lanes), np.ones(n, np.float32)])
    graph = sg.trace(lambda x: sg.linear(second, None, sg.relu(sg.linear(first, None, x))), (n,))
    x = np.ones(n, np.float32)
    hidden = product_lanes(first, x, lanes)
    got = product_lanes(second, np.maximum(hidden, np.float32(0)), lanes)
    depth = n // lanes + int(math.log2(lanes))

    def escapes(deep: int) -> bool:
        proven = tolerance(graph, x, arithmetic=Arithmetic(depth=deep))
        return any(
            abs(Fraction(float(y)) - Fraction(v)) > Fraction(d)
            for y, v, d in zip(got, proven.exact[0].tolist(), proven.tolerances[0].tolist(), strict=True)
        )

    assert not escapes(depth)
    assert escapes(depth // 3)  # planted


# --- what the depth of a runtime's sums says nothing of ---------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_our_own_run_is_not_blocked(backend: str) -> None:
    """The exact value lies in the ball though our float64 sums are deeper than what is stated of the runtime's."""
    if backend == "torch":
        pytest.importorskip("torch")
    count, u = 4096, 2.0**-53
    w = np.full((1, 1, count), u * (1 + 2.0**-20))
    w[0, 0, 0] = 1.0
    graph = sg.trace(lambda x: sg.conv(w, None, x), (1, 1, count))
    arithmetic = Arithmetic("float64", depth=12, execution=NODE)
    ball = radius(graph, np.ones((1, 1, count)), arithmetic=arithmetic, backend=backend).outputs
    exact = 1 + (count - 1) * Fraction(float(w[0, 0, 1]))
    assert abs(exact - Fraction(float(ball.value[0, 0, 0]))) <= Fraction(float(ball.radius[0, 0, 0]))


def test_every_product_of_a_shallow_sum_may_vanish() -> None:
    """4,096 products just below the normal numbers, each flushed to 0, in a tree of depth 13."""
    count, tiny = 4096, 2.0**-126
    w, x = np.full((1, count), 0.99, np.float32), np.full(count, tiny, np.float32)
    graph = sg.trace(lambda x: sg.linear(w, None, x), (count,))
    for execution in ("node", "fused"):
        ball = radius(graph, x, arithmetic=Arithmetic(depth=13, execution=execution)).outputs
        assert not outside(ball, 0.0)


def test_a_quotient_is_no_sum() -> None:
    """x * (1/c) meets two roundings, and an average one or two more than its sum, however shallow sums are."""
    rng = np.random.default_rng(1)
    x = rng.uniform(1, 2, 20000).astype(np.float32)
    c = np.float32(3.0)
    got = x * (np.float32(1) / c)
    exact = [Fraction(float(v)) / 3 for v in x]
    errors = [abs(Fraction(float(y)) - e) / e for y, e in zip(got, exact, strict=True)]
    assert max(errors) > Fraction(U)
    for execution in ("node", "fused"):
        arithmetic = Arithmetic(depth=1, execution=execution)
        assert not outside(radius(sg.trace(lambda x: x / 3.0, (20000,)), x, arithmetic=arithmetic).outputs, got)
    pairs = x.reshape(1, 1, -1)[..., :9999].reshape(1, 3333, 3)
    sums = (pairs[..., 0] + pairs[..., 1]) + pairs[..., 2]  # no term meets more than two roundings
    graph = sg.trace(lambda x: sg.avg_pool(x, (3,)), (1, 3333, 3))
    ball = radius(graph, pairs, arithmetic=Arithmetic(depth=2, execution=NODE)).outputs
    assert not outside(ball, sums * (np.float32(1) / c))


# --- merged sums ------------------------------------------------------------------------------------------------------


def rounded(x: Fraction) -> Fraction:
    """To the nearest float32; all numbers here are normal."""
    return Fraction(float(np.float32(float(x)))) if Fraction(float(x)) == x else _by_halves(x)


def _by_halves(x: Fraction) -> Fraction:
    """Where float64 does not hold x, the nearer of the two float32 numbers around it."""
    near = np.float32(float(x))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min((Fraction(float(a)) for a in around), key=lambda a: abs(a - x))


def fraction_tree(terms: list[Fraction], depth: int, rng: np.random.Generator) -> Fraction:
    """As tree_sum, each addition rounded."""
    if len(terms) == 1:
        return terms[0]
    half = 2 ** (depth - 1)
    low, high = max(1, len(terms) - half), min(len(terms) - 1, half)
    cut = int(rng.choice([low, high]))
    return rounded(fraction_tree(terms[:cut], depth - 1, rng) + fraction_tree(terms[cut:], depth - 1, rng))


@pytest.mark.parametrize("seed", range(6))
def test_merged_sums_of_a_stated_depth_keep_the_fused_radius(seed: int) -> None:
    """W1 x + W2 x + (x0 + c): node by node, as one sum of all products, with folded coefficients; depth D each."""
    rng = np.random.default_rng(seed)
    n, depth = 24, 7  # a product, and at most 6 additions
    first, second = (rng.uniform(0.5, 1, (1, n)).astype(np.float32) for _ in range(2))
    c, x = np.float32([0.7]), rng.uniform(0.5, 1, n).astype(np.float32)
    graph = sg.trace(lambda x: sg.linear(first, None, x) + sg.linear(second, None, x) + (x[:1] + c), (n,))
    ball = radius(graph, x, arithmetic=Arithmetic(depth=depth)).outputs
    w1, w2, v = ([Fraction(float(t)) for t in a.ravel()] for a in (first, second, x))
    rest = [v[0], Fraction(float(c[0]))]

    def products(w: list[Fraction]) -> list[Fraction]:
        return [rounded(a * b) for a, b in zip(w, v, strict=True)]

    folded = [rounded(a + b) for a, b in zip(w1, w2, strict=True)]
    for _ in range(20):
        by_node = [fraction_tree(products(w), depth - 1, rng) for w in (w1, w2)]
        one_by_one = rounded(rounded(by_node[0] + by_node[1]) + rounded(rest[0] + rest[1]))
        flat = fraction_tree([*products(w1), *products(w2), *rest], depth - 1, rng)
        merged = fraction_tree([*products(folded), *rest], depth - 1, rng)
        for value in (one_by_one, flat, merged):
            assert abs(value - Fraction(float(ball.value[0]))) <= Fraction(float(ball.radius[0]))
