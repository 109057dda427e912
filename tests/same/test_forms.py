"""Normal forms of what moves cells: chains of reshapes and permutations, and large constants that only move."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import specgrad as sg
from cuts import network
from evaluated import is_kept
from exactly import agree
from false_sames import same, verdict
from specgrad.equivalence import constants
from specgrad.equivalence.layout_chain import CellMove
from spellings import mutated

SHAPES = ((4, 6), (2, 2, 6), (24,), (1, 3, 8), (2, 3, 2, 2), (8, 1, 3), (1, 24, 1), (3, 4, 2), (12, 2))


def chain(rng: Random, x: np.ndarray, move: CellMove) -> tuple[np.ndarray, CellMove | None]:
    """An array and its move after some reshapes and permutations; no move where an axis cuts a factor."""
    for _ in range(rng.randint(1, 5)):
        if rng.random() < 0.5:
            shape = rng.choice(SHAPES)
            x, move = x.reshape(shape), move.reshaped(shape)
        else:
            order = tuple(rng.sample(range(x.ndim), x.ndim))
            turned = move.permuted(order)
            if turned is None:
                return x, None
            x, move = x.transpose(order), turned
    return x, move


@pytest.mark.quick
def test_a_move_is_its_chain() -> None:
    """Against NumPy, cell by cell; moves are equal where cells are, and only there."""
    rng, found = Random(0), dict[tuple[tuple[int, ...], bytes], CellMove]()
    for _ in range(3000):
        start = rng.choice(SHAPES)
        x, move = chain(rng, np.arange(24).reshape(start), CellMove.none(start))
        if move is None:
            continue
        joined = move.joined()
        made = np.arange(24).reshape(joined.sizes).transpose(joined.order).reshape(joined.shape)
        assert np.array_equal(made, x)
        assert found.setdefault((x.shape, x.tobytes()), joined) == joined
        axes = joined.axes_order(start)
        if axes is not None:
            assert np.array_equal(np.arange(24).reshape(start).transpose(axes).reshape(x.shape), x)
    assert len(found) > 200


def turned(rng: Random, x: object, how: Random) -> object:
    """A chain with a function of one cell somewhere inside it."""
    bent = how.randrange(4)
    for k in range(4):
        x = sg.tanh(x) if k == bent else x
        shape = rng.choice(SHAPES)
        x = sg.permute(sg.reshape(x, shape), tuple(rng.sample(range(len(shape)), len(shape))))
    return x


@pytest.mark.quick
def test_a_function_of_one_cell_may_stand_anywhere_in_a_chain() -> None:
    seen = 0
    for seed in range(60):
        shape = Random(seed).choice(SHAPES)
        a, b = (sg.trace(lambda x, s=s, seed=seed: turned(Random(seed), x, Random(s)), shape) for s in (1, 5))
        c = sg.trace(lambda x, seed=seed: turned(Random(seed + 1000), x, Random(1)), shape)
        seen += same(a, b)
        x = np.arange(24.0).reshape(shape)
        if c.nodes[c.output_positions[0]].shape == a.nodes[a.output_positions[0]].shape:
            assert same(a, c) <= np.array_equal(np.asarray(a(x)), np.asarray(c(x)))
    assert seen == 60


# --- constants --------------------------------------------------------------------------------------------------------

BIG = np.random.default_rng(0).normal(size=(6, 5, 4)).astype(np.float32)


def moved(v: object, fault: int = 0) -> object:
    """A table that is cut, joined, turned, compared, chosen from and subtracted, as files compute masks."""
    table = v.builder.constant(BIG)
    rows = sg.concat([sg.slice(table, slice(3, 6)), sg.slice(table, slice(0, 3 - (fault == 1)))], 0)
    rows = sg.concat([rows, sg.slice(table, slice(0, 1))], 0) if fault == 1 else rows
    rows = sg.permute(sg.reshape(rows, (6, 20)), (1, 0))
    whole = np.round(4 * BIG).reshape(6, 20).T.copy()
    apart = sg.sub(v.builder.constant(whole), v.builder.constant(np.float32(3) * whole + 2 * (fault == 2)))
    near = sg.greater(apart, -2.0 if fault != 3 else -2.5) if fault != 4 else sg.greater(-2.0, apart)
    return sg.select(near, rows, v.builder.constant(np.full((20, 6), -100, np.float32)))


@pytest.mark.quick
@pytest.mark.parametrize("cells", [2**14, 7])
def test_constants_that_only_move_are_folded_at_any_size(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MAX_EXACT_CELLS", cells)
    monkeypatch.setattr("specgrad.equivalence.normal_form.MAX_EXACT_CELLS", cells)
    whole = np.asarray(sg.trace(moved, (20, 6))(np.zeros((20, 6)))).astype(np.float32)
    folded = sg.trace(lambda x: sg.tanh(x) * whole, (20, 6))
    for fault in range(5):
        computed = sg.trace(lambda x, k=fault: sg.tanh(x) * moved(x, k), (20, 6))
        differs = not np.array_equal(np.asarray(computed(np.ones((20, 6)))), np.asarray(folded(np.ones((20, 6)))))
        assert differs == (fault > 0)
        assert verdict(computed, folded) == ("cannot tell" if differs else "same")


@pytest.mark.quick
def test_what_float32_rounds_is_not_folded_as_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 + 2**-30 is not 1, whatever a float32 program says."""
    for name in ("constants", "normal_form"):
        monkeypatch.setattr(f"specgrad.equivalence.{name}.MAX_EXACT_CELLS", 3)
    one, small = np.full(8, 1, np.float32) + np.arange(8, dtype=np.float32), np.float32(2.0**-30) * np.arange(1, 9)

    def first(x: object) -> object:
        held = x.builder.constant
        return sg.greater(x, sg.add(held(one), held(small.astype(np.float32))))

    rounded = sg.trace(lambda x: sg.greater(x, one), (8,))
    assert not same(sg.trace(first, (8,)), rounded)
    exact = sg.trace(lambda x: sg.greater(x, x.builder.constant(one) + x.builder.constant(one)), (8,))
    assert same(exact, sg.trace(lambda x: sg.greater(x, 2 * one), (8,)))


# --- slices -----------------------------------------------------------------------------------------------------------


def wrong_cuts(seeds: range) -> list[str]:
    """Networks with slices whose normal forms have other values, and false sames of mutated ones."""
    wrong = []
    for seed in seeds:
        a = network(seed)
        if not is_kept([a], seed):
            wrong.append(f"network {seed}")
        for k in range(3):
            b = mutated(a, 1000 * seed + k)
            if b is not None and verdict(a, b) == "same" and not agree(a, b, seed):
                wrong.append(f"mutant {k} of network {seed}")
    return wrong


@pytest.mark.quick
def test_slices_keep_the_values() -> None:
    assert wrong_cuts(range(60)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_slices_keep_the_values_at_length(part: int) -> None:
    assert wrong_cuts(range(60 + 200 * part, 260 + 200 * part)) == []


@pytest.mark.quick
def test_channels_that_fill_up_a_block_are_no_part_of_a_function() -> None:
    """8 channels of a block of which 5 are real: behind a convolution, a depthwise one, a gate and a residual."""
    draw = np.random.default_rng(0)
    w1, w2, w3, b = (draw.normal(size=s).astype(np.float32) for s in ((5, 3, 3, 3), (5, 1, 3, 3), (4, 5, 1, 1), 5))

    def filled(a: np.ndarray, *sizes: int) -> np.ndarray:
        return np.pad(a, [(0, n - m) for n, m in zip(sizes, a.shape, strict=True)])

    def net(x: object, n: int, fault: bool = False) -> object:
        first, second, last, bias = filled(w1, n, 3, 3, 3), filled(w2, n, 1, 3, 3), filled(w3, 4, n, 1, 1), filled(b, n)
        if fault:
            last[2, 5] = 1e-30
        x = sg.conv(first, bias, x, padding=1)
        x = x + sg.sigmoid(sg.conv(second, None, x, padding=1, groups=n))
        return sg.conv(last, None, x * sg.sigmoid(sg.mean(x, (2, 3), keepdims=True)))

    plain, wide, other = (sg.trace(lambda x, a=a: net(x, *a), (1, 3, 6, 6)) for a in ((5,), (8,), (8, True)))
    assert same(plain, wide)
    assert not same(plain, other)


@pytest.mark.quick
def test_a_channel_before_one_that_is_read_stays() -> None:
    w = np.arange(1, 17, dtype=np.float32).reshape(4, 4, 1, 1) * np.float32([0, 1, 1, 0]).reshape(4, 1, 1)
    a, b = (
        sg.trace(f, (1, 4, 2, 2)) for f in (lambda x: sg.conv(w, None, x), lambda x: sg.conv(w[:, :3], None, x[:, :3]))
    )
    assert same(a, b)
    assert is_kept([a, b], 0)


@pytest.mark.quick
def test_queries_may_be_cut_before_or_behind_the_turn() -> None:
    """Of (batch, token, 3 * head * size), as files write attention: cut, then turned; or turned, then cut."""
    w = np.random.default_rng(1).normal(size=(24, 8)).astype(np.float32)

    def first(x: object, k: int) -> object:
        whole = sg.permute(sg.reshape(sg.linear(w, None, x), (2, 5, 3, 2, 4)), (2, 0, 3, 1, 4))
        return sg.reshape(whole[k : k + 1], (2, 2, 5, 4))

    def second(x: object, k: int) -> object:
        return sg.permute(sg.reshape(sg.linear(w[8 * k : 8 * k + 8], None, x), (2, 5, 2, 4)), (0, 2, 1, 3))

    for k in range(3):
        a, b = (sg.trace(lambda x, f=f, k=k: f(x, k), (2, 5, 8)) for f in (first, second))
        assert same(a, b)
        assert not same(a, sg.trace(lambda x, k=k: second(x, (k + 1) % 3), (2, 5, 8)))


@pytest.mark.quick
def test_squares_and_nearest_enlargements_have_one_spelling() -> None:
    def spread(x: object, first: tuple[int, ...]) -> object:
        wide = tuple(2 * n if n == 1 and k in (len(first) - 1, len(first) - 3) else n for k, n in enumerate(first))
        return sg.reshape(sg.broadcast(sg.reshape(x, first), wide), (1, 2, 6, 8))

    a, b = (sg.trace(lambda x, s=s: spread(x, s), (1, 2, 3, 4)) for s in ((1, 1, 2, 1, 3, 1, 4, 1), (1, 2, 3, 1, 4, 1)))
    assert same(a, b)
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    assert np.array_equal(np.asarray(a(x)), x.repeat(2, 2).repeat(2, 3))
    first, second, third = (sg.trace(f, (3,)) for f in (lambda x: x**2, lambda x: x * x, lambda x: x**3))
    assert same(first, second)
    assert not same(third, second)


@pytest.mark.quick
def test_scales_stand_outside_of_products_and_gates_are_written_out() -> None:
    """As files write the exact gelu and silu; a gate of another argument is another function."""
    scale = np.float32([3, 5, 7])
    pairs = [
        (lambda x: (x * scale) * sg.tanh(x), lambda x: x * sg.tanh(x) * scale, lambda x: x * sg.tanh(x * scale)),
        (lambda x: (2 * x) * (3 * x), lambda x: x**2 * 6, lambda x: x**2 * 5),
        (lambda x: sg.reshape(sg.sum(sg.reshape(x, (2, 1, 3)), 1), (3, 2)), lambda x: sg.reshape(x, (3, 2)), sg.relu),
        (sg.gelu, lambda x: 2 * (x * sg.normal_cdf(x)) / 2, lambda x: x * sg.normal_cdf(x * scale)),
        (sg.silu, lambda x: x * sg.sigmoid(x), lambda x: 1.5 * x * sg.sigmoid(x)),
        (lambda x: sg.gelu(x + 1), lambda x: (x + 1) * sg.normal_cdf(1 + x), lambda x: (x + 1) * sg.normal_cdf(x)),
    ]
    for each in pairs:
        a, b, other = (sg.trace(f, (2, 3)) for f in each)
        assert same(a, b)
        assert not same(a, other)
        assert is_kept([a, b, other], 0)


@pytest.mark.quick
def test_slices_move_through_an_enlargement() -> None:
    def enlarged(x: object) -> object:
        return sg.resize(x, (5, 7), axes=(2, 3))

    w = np.random.default_rng(2).normal(size=(8, 3, 1, 1)).astype(np.float32)
    a, b, c = (
        sg.trace(f, (1, 3, 3, 4))
        for f in (
            lambda x: sg.slice(enlarged(sg.conv(w, None, x)), None, slice(2, 5)),
            lambda x: enlarged(sg.conv(w[2:5], None, x)),
            lambda x: enlarged(sg.conv(w[1:4], None, x)),
        )
    )
    assert same(a, b)
    assert not same(a, c)


# --- weights that a file multiplies -----------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize("size", [5, 40])  # multiplied out, and not
def test_weights_may_be_multiplied_in_the_file(size: int) -> None:
    """W * s and W / s as nodes before the map, turned and reshaped, or s behind it; another s is another function."""
    rng = np.random.default_rng(size)
    w, s = rng.normal(size=(size, 8)).astype(np.float32), rng.uniform(1, 2, size).astype(np.float32)

    def inside(x: object, divided: bool, factor: np.ndarray) -> object:
        held, column = x.builder.constant(w), x.builder.constant(factor[:, None])
        whole = held / sg.sqrt(column) if divided else held * sg.sqrt(column)
        turned = sg.reshape(sg.permute(sg.reshape(whole, (size, 2, 4)), (1, 2, 0)), (8, size))
        return sg.matmul(x, turned)

    def behind(x: object, divided: bool) -> object:
        y, root = sg.linear(w, None, x), sg.sqrt(x.builder.constant(s))
        return y / root if divided else y * root

    other = s.copy()
    other[size // 2] = np.nextafter(other[size // 2], np.float32(9))
    for divided in (False, True):
        a, b, c, d = (
            sg.trace(f, (1, 8))
            for f in (
                lambda x, k=divided: inside(x, k, s),
                lambda x, k=divided: behind(x, k),
                lambda x, k=divided: inside(x, not k, s),
                lambda x, k=divided: inside(x, k, other),
            )
        )
        assert same(a, b)
        assert not same(a, c)
        assert not same(a, d)
        assert is_kept([a, b, c, d], 0)


@pytest.mark.quick
def test_weights_times_0_are_0() -> None:
    w = np.arange(1, 321, dtype=np.float32).reshape(40, 8)
    product = lambda x, s: sg.linear(x.builder.constant(w) * x.builder.constant(s), None, x)
    zeros, some = np.zeros((40, 1), np.float32), np.float32([[0], [1]] * 20)
    nothing, none, half, cut = (
        sg.trace(f, (1, 8))
        for f in (
            lambda x: product(x, zeros),
            lambda x: sg.linear(0 * w, None, x),
            lambda x: product(x, some),
            lambda x: sg.linear(w * some, None, x),
        )
    )
    assert verdict(nothing, none) == verdict(half, cut) == "same"
    assert not same(nothing, half)


# --- sums in several layouts ------------------------------------------------------------------------------------------

Moves = list[tuple[str, tuple[int, ...]]]


def drawn_moves(rng: Random, shape: tuple[int, ...]) -> tuple[Moves, Moves]:
    """Some reshapes and permutations of an array of 24 cells, and what undoes them."""
    there, back = Moves(), Moves()
    for _ in range(rng.randint(0, 3)):
        if rng.random() < 0.4:
            back.insert(0, ("reshape", shape))
            shape = rng.choice([s for s in SHAPES if len(s) > 1])
            there.append(("reshape", shape))
        else:
            order = tuple(rng.sample(range(len(shape)), len(shape)))
            back.insert(0, ("permute", tuple(np.argsort(order).tolist())))
            there.append(("permute", order))
            shape = tuple(shape[a] for a in order)
    return there, back


def after(x: object, moves: Moves) -> object:
    for kind, to in moves:
        x = sg.reshape(x, to) if kind == "reshape" else sg.permute(x, to)
    return x


def residual(x: object, seed: int, spelling: int, fault: int = 0) -> object:
    """A function of a sum of four scaled terms, some shifted: softmaxes, each of which is taken in another layout.

    Every partial sum stands in a layout of its own.
    """
    rng, numbers, fixed = Random(f"{seed}, {spelling}"), np.random.default_rng(seed), Random(seed)
    terms = [x]
    for _ in range(3):
        there, back = drawn_moves(fixed, (4, 6))
        terms.insert(0, after(sg.softmax(after(x, there)), back))
    for k in range(3):
        scale = numbers.integers(2, 9, size=(1, 6) if k else (4, 1)).astype(np.float32)
        scale[0, -1] += np.float32(fault == 1 and k == 1)
        there, back = drawn_moves(rng, (4, 6))
        terms[k] = after(after(terms[k] * scale - (2.0 if k < 2 else 0.0), there) * 2.0, back)
    if fault == 2:
        terms[2] = sg.reshape(sg.permute(terms[2], (1, 0)), (4, 6))
    rng.shuffle(terms)
    while len(terms) > 1:
        there, back = drawn_moves(rng, (4, 6))
        one, two = (after(terms.pop(), there) for _ in range(2))
        terms.insert(0, after(one - two if fault == 3 and len(terms) == 0 else one + two, back))
    return sg.abs(terms[0])


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(12))
def test_a_sum_may_be_computed_in_any_layout(seed: int) -> None:
    graphs = [sg.trace(lambda x, k=k: residual(x, seed, k), (4, 6)) for k in range(5)]
    assert all(same(graphs[0], other) for other in graphs[1:])
    others = [sg.trace(lambda x, f=fault: residual(x, seed, 7, f), (4, 6)) for fault in (1, 2, 3)]
    assert not any(same(graphs[0], other) for other in others)
    assert is_kept([*graphs, *others], seed)


@pytest.mark.quick
def test_a_sum_of_a_value_and_of_its_turn_keeps_its_values() -> None:
    turn = lambda v: sg.permute(v, (2, 0, 1))
    graphs = [
        sg.trace(f, (3, 3, 3))
        for f in (
            lambda x: turn(sg.tanh(x)) + sg.tanh(x),
            lambda x: turn(sg.tanh(x) + sg.permute(sg.tanh(x), (1, 2, 0))),
            lambda x: sg.tanh(x) + sg.permute(sg.tanh(x), (1, 2, 0)),
        )
    ]
    assert not same(graphs[0], graphs[2])
    assert is_kept(graphs, 1)


def test_a_large_constant_is_added_below_a_reshape() -> None:
    """More cells than are computed with exactly: they move with what they are added to, in their order."""
    count = constants.MAX_EXACT_CELLS + 2
    numbers = np.random.default_rng(0)
    w, b = numbers.normal(size=(count, 2)).astype(np.float32), numbers.normal(size=count).astype(np.float32)
    half = count // 2
    blocks = lambda y: sg.reshape(y, (3, 2, half))

    def graph(bias: np.ndarray, first: bool, move: object = blocks) -> sg.Graph:
        added = sg.reshape(bias, (2, half)) if not first and bias.ndim == 1 else bias
        product = lambda x: sg.linear(w, None, x)
        return sg.trace(
            lambda x: sg.tanh(move(product(x) + bias) if first else move(product(x)) + added),  # type: ignore[operator]
            (3, 2),
        )

    turned = lambda y: sg.permute(blocks(y), (0, 2, 1))
    assert same(graph(b, True), graph(b, False))
    assert same(graph(b, True, turned), graph(b.reshape(2, half).T.copy(), False, turned))
    assert not same(graph(b, True), graph(b[::-1].copy(), False))
    assert not same(graph(b, True, turned), graph(b.reshape(half, 2), False, turned))


def normalised(x: object, seed: int, spelling: int, fault: int = 0) -> object:
    """A layer normalisation of 2x3x4 cells over some axes, with softmax before it: each spelling in its own layout.

    The layouts are the random choices of a `spelling`, what is computed those of the `seed`; one `fault` changes that.
    """
    fixed, rng = Random(seed), Random(spelling)
    axes = fixed.choice([(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
    axes = axes if fault != 1 else tuple(a for a in range(3) if a not in axes)
    scale = np.random.default_rng(seed).integers(2, 9, 3).astype(np.float32).reshape(3, 1)
    y = sg.softmax(x, 2)
    order = tuple(rng.sample(range(3), 3))
    y, scale = sg.permute(y, order), np.broadcast_to(scale, (2, 3, 4)).transpose(order)
    axes = tuple(order.index(a) for a in axes)
    flat = all(a + 1 in axes for a in axes[:-1]) and rng.random() < 0.5
    if flat:  # one axis for those that are summed
        shape = y.shape
        y = sg.reshape(y, (*shape[: axes[0]], -1, *shape[axes[-1] + 1 :]))
        scale, axes, whole = scale.reshape(y.shape), (axes[0],), shape
    mean = lambda v: sg.mean(v, axes, keepdims=True)
    wide = lambda v: sg.broadcast(v, y.shape) if len(v.shape) == len(y.shape) and rng.random() < 0.5 else v
    apart = y - wide(mean(y) if fault != 2 else sg.amax(y, axes, keepdims=True))
    y = apart / wide(sg.sqrt(mean(apart * apart) + 1)) * scale + y
    y = sg.reshape(y, whole) if flat else y
    return sg.tanh(sg.permute(y, tuple(np.argsort(order).tolist())))


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(6))
def test_a_normalisation_may_be_computed_in_any_layout(seed: int) -> None:
    """Sums go below reshapes and permutations, and these below broadcasts."""
    graphs = [sg.trace(lambda x, k=k: normalised(x, seed, k), (2, 3, 4)) for k in range(5)]
    assert [same(graphs[0], other) for other in graphs[1:]] == [True] * 4
    others = [sg.trace(lambda x, f=fault: normalised(x, seed, 7, f), (2, 3, 4)) for fault in (1, 2)]
    assert not any(same(graphs[0], other) for other in others)
    assert is_kept([*graphs, *others], seed)


@pytest.mark.quick
def test_broadcasts_and_sums_that_moves_cut_keep_their_values() -> None:
    """Every reshape and permutation of a broadcast of a broadcast, summed over every axis; sums that differ are not
    merged.
    """
    rng = Random(3)
    for old in ((2, 1, 3), (1, 4), (2, 1, 1), (1, 2, 1, 3), (4, 1)):
        graphs = []
        for _ in range(8):
            there, _ = drawn_moves(rng, (4, 6))

            def f(x: object, there: Moves = there, old: tuple[int, ...] = old) -> object:
                wide = {3: (2, 4, 3), 2: (6, 4), 4: (2, 2, 2, 3)}[len(old)] if old != (4, 1) else (4, 6)
                y = after(sg.reshape(sg.broadcast(sg.exp(x), wide), (4, 6)), there)
                y = sg.reshape(sg.broadcast(y, (3, *y.shape)), (-1, 6))
                turned = sg.permute(sg.reshape(y, (3, 24)), (1, 0))
                return sg.sum(turned, rng.randint(0, 1)), sg.permute(y, (1, 0))

            graphs.append(sg.trace(f, old))
        assert is_kept(graphs, 5)
