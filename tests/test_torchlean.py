"""Every declaration of the TorchLean pages has a counterpart here (docs/guide/torchlean.md), and these tests pin it.

Expected values are computed by hand, or by loops written from the formulas of the contract:

    tap t of output position o reads input position  i = s*o + t - lo ; i outside [0, n) is a padded tap
    out = floor((n + lo + hi - k) / s) + 1

Rational operators are compared to the last digit, smooth ones in balls.
"""

from __future__ import annotations

import doctest
import importlib
import itertools
import math
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import specgrad as sg
import specgrad.functional as F
from specgrad.window import Adaptive, strided, transposed

ROOT = Path(__file__).parent.parent
Shape = tuple[int, ...]
Taps = list[Shape | None]  # what the taps of one window read, None for a padded one
Relation = dict[Shape, Taps]  # the taps of every output position
Weights = dict[Shape, Any]  # one row of a Jacobian: input position -> weight


# --- the table --------------------------------------------------------------------------------------------------

PAGES = {
    "GraphM.Pooling": 8,
    "Spec Pooling": 52,  # of 60: eight stand on PaddedTwoD too
    "Spec Pooling PaddedTwoD": 9,
    "GraphM.Convolution": 4,
    "Spec GlobalPooling": 19,
}


def doc_rows() -> dict[str, list[list[str]]]:
    """The cells of every table row of docs/guide/torchlean.md, by heading."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in (ROOT / "docs" / "guide" / "torchlean.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:].strip()
        elif re.match(r"\| \d+ \|", line):
            found.setdefault(heading, []).append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def resolves(dotted: str) -> bool:
    parts = dotted.split(".")
    value: Any = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        if not hasattr(value, part):
            try:
                importlib.import_module(".".join(parts[:depth]))
            except ImportError:
                return False
        value = getattr(value, part)
    return True


def test_doc_has_a_row_for_every_declaration() -> None:
    rows = doc_rows()
    assert {page: len(rows[page]) for page in PAGES} == PAGES
    every = [row for page in rows.values() for row in page]
    assert len(every) >= 99
    assert [row[0] for row in every] == [str(k) for k in range(1, len(every) + 1)]
    assert all(len(row) == 4 and all(row) for row in every)


def test_doc_runs() -> None:
    """The block prints what the page says."""
    page = str(ROOT / "docs" / "guide" / "torchlean.md")
    found = doctest.testfile(page, module_relative=False, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert (found.attempted, found.failed) == (15, 0)


def test_doc_names_calls_that_exist() -> None:
    text = (ROOT / "docs" / "guide" / "torchlean.md").read_text(encoding="utf-8")
    spans = re.findall(r"`([^`]*)`", text)
    calls = {name for span in spans for name in re.findall(r"\bspecgrad(?:\.[A-Za-z_]\w*)+", span)}
    assert len(calls) > 20
    assert sorted(name for name in calls if not resolves(name)) == []


def test_doc_names_tests_that_exist() -> None:
    cells = " ".join(row[3] for page in doc_rows().values() for row in page)
    named = set(re.findall(r"([\w/]+\.py)::(\w+)", cells))
    assert len(named) > 20
    assert sorted(p for p in named if f"def {p[1]}(" not in (ROOT / p[0]).read_text(encoding="utf-8")) == []


# --- the formulas of the contract, as loops ---------------------------------------------------------------------


class Case(NamedTuple):
    """A pooling call: the last len(kernel) axes of shape are spatial."""

    shape: Shape
    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> Shape:
        return self.shape[len(self.shape) - len(self.kernel) :]


def reads(n: int, k: int, s: int, lo: int, hi: int) -> list[list[int]]:
    """For every output position of one axis: the input positions of its taps, padded ones included."""
    return [[s * o + t - lo for t in range(k)] for o in range((n + lo + hi - k) // s + 1)]


def product_of(axes: list[list[list[int]]], sizes: Shape) -> Relation:
    table: Relation = {}
    for position in itertools.product(*(range(len(a)) for a in axes)):
        taps = itertools.product(*(axis[o] for axis, o in zip(axes, position, strict=True)))
        table[position] = [i if all(0 <= c < n for c, n in zip(i, sizes, strict=True)) else None for i in taps]
    return table


def relation(case: Case) -> Relation:
    per_axis = zip(case.sizes, case.kernel, case.stride, case.padding, strict=True)
    return product_of([reads(n, k, s, lo, hi) for n, k, s, (lo, hi) in per_axis], case.sizes)


def cells(sizes: Shape, output: Shape) -> Relation:
    """Adaptive: cell o reads [floor(o*n/out), ceil((o+1)*n/out))."""
    axes = [
        [list(range(math.floor(Fraction(o * n, m)), math.ceil(Fraction((o + 1) * n, m)))) for o in range(m)]
        for n, m in zip(sizes, output, strict=True)
    ]
    return product_of(axes, sizes)


def visit(rel: Relation, x: Any) -> Iterator[tuple[Shape, Shape, Taps]]:
    """Every position of the leading, mapped axes with every output position and its taps."""
    for lead in np.ndindex(x.shape[: x.ndim - len(next(iter(rel)))]):
        for position, taps in rel.items():
            yield lead, position, taps


def empty_result(rel: Relation, x: Any) -> Any:
    out = tuple(n + 1 for n in max(rel))
    return np.full(x.shape[: x.ndim - len(out)] + out, 0, dtype=object)


def values_of(rel: Relation, x: Any, value: Callable[[Any, Taps], Any]) -> Any:
    y = empty_result(rel, x)
    for lead, p, taps in visit(rel, x):
        y[lead + p] = value(x[lead], taps)
    return y


def tangent_of(rel: Relation, x: Any, dx: Any, weights: Callable[[Any, Taps], Weights]) -> Any:
    """dy[p] = sum of weight * dx over the window of p."""
    dy = empty_result(rel, x)
    for lead, p, taps in visit(rel, x):
        for i, w in weights(x[lead], taps).items():
            dy[lead + p] += w * dx[lead + i]
    return dy


def cotangent_of(rel: Relation, x: Any, gy: Any, weights: Callable[[Any, Taps], Weights]) -> Any:
    """The same weights the other way: every cell collects weight * gy from the windows that read it."""
    gx = np.full(x.shape, 0, dtype=object)
    for lead, p, taps in visit(rel, x):
        for i, w in weights(x[lead], taps).items():
            gx[lead + i] += w * gy[lead + p]
    return gx


def numbers(seed: str, shape: Shape) -> Any:
    """Small exact numbers, so that ties are frequent."""
    rng = Random(seed)
    found = [Fraction(rng.randint(-3, 3), rng.choice((1, 1, 2))) for _ in range(math.prod(shape))]
    return sg.exact(found).reshape(shape)


def jvp(fn: Callable[..., Any], x: Any, dx: Any) -> Any:
    return sg.jvp(sg.trace(fn, x.shape))(x, dx)[1]


def vjp(fn: Callable[..., Any], x: Any, gy: Any) -> Any:
    return sg.vjp(sg.trace(fn, x.shape))(x, gy)[1]


def same(got: Any, expected: Any) -> None:
    """Equal to the last digit."""
    expected = np.asarray(expected, dtype=object)
    assert got.shape == expected.shape
    assert all(type(v) is Fraction for v in got.flat)
    assert got.tolist() == expected.tolist()


def overlap(got: Any, expected: Any) -> None:
    """Two narrow enclosures of one number, cell by cell."""
    assert got.shape == expected.shape
    for p, q in zip(got.flat, expected.flat, strict=True):
        assert p.overlaps(q + p * 0), (p, q)
        assert p.rad() < 1e-9


def output_shape(fn: Callable[..., Any], *shapes: Shape) -> Shape:
    """The shape a graph gives its result, before there is any data."""
    graph = sg.trace(fn, *shapes)
    return graph.nodes[graph.output_positions[0]].shape


# --- max_pool and avg_pool --------------------------------------------------------------------------------------

PLAIN = [
    Case((7,), (3,), (2,), ((0, 0),)),  # one axis, no channel
    Case((5, 6), (2, 3), (2, 2), ((0, 0), (0, 0))),  # one image
    Case((2, 5, 4), (3, 2), (1, 1), ((0, 0), (0, 0))),  # channels
    Case((2, 3, 4, 3), (2, 2, 2), (1, 2, 1), ((0, 0), (0, 0), (0, 0))),  # three axes
    Case((2, 2, 3, 2, 3), (1, 2, 2, 2), (1, 1, 1, 1), ((0, 0),) * 4),  # four axes
]
PADDED = [
    Case((6,), (2,), (3,), ((1, 1),)),
    Case((2, 4, 5), (3, 3), (2, 2), ((1, 1), (1, 1))),
    Case((2, 3, 2), (2, 2), (3, 3), ((3, 3), (3, 3))),  # windows that hold no input cell
    Case((2, 1, 5), (3,), (1,), ((0, 2),)),  # a batch, padding on one side
    Case((2, 3, 2, 3), (2, 1, 3), (2, 1, 2), ((1, 1), (0, 0), (2, 2))),
]
CASES = PLAIN + PADDED


def max_pool(case: Case) -> Callable[[Any], Any]:
    return lambda x: sg.max_pool(x, case.kernel, stride=case.stride, padding=case.padding)


def avg_pool(case: Case) -> Callable[[Any], Any]:
    return lambda x: sg.avg_pool(x, case.kernel, stride=case.stride, padding=case.padding)


def maximum(x: Any, taps: Taps) -> Any:
    return max((x[i] for i in taps if i is not None), default=0)


def first_winner(x: Any, taps: Taps) -> Weights:
    inside = [i for i in taps if i is not None]
    return {next(i for i in inside if x[i] == maximum(x, taps)): 1} if inside else {}


def mean(x: Any, taps: Taps) -> Any:
    """A padded tap counts 0 in the sum and 1 in the divisor."""
    return sum(x[i] for i in taps if i is not None) * Fraction(1, len(taps))


def even(x: Any, taps: Taps) -> Weights:
    return {i: Fraction(1, len(taps)) for i in taps if i is not None}


@pytest.mark.parametrize("case", CASES)
def test_max_pool_forward(case: Case) -> None:
    x = numbers("x", case.shape)
    same(max_pool(case)(x), values_of(relation(case), x, maximum))


@pytest.mark.parametrize("case", CASES)
def test_max_pool_jvp(case: Case) -> None:
    x, dx = numbers("x", case.shape), numbers("dx", case.shape)
    same(jvp(max_pool(case), x, dx), tangent_of(relation(case), x, dx, first_winner))


@pytest.mark.parametrize("case", CASES)
def test_max_pool_vjp(case: Case) -> None:
    x = numbers("x", case.shape)
    gy = numbers("gy", max_pool(case)(x).shape)
    same(vjp(max_pool(case), x, gy), cotangent_of(relation(case), x, gy, first_winner))


@pytest.mark.parametrize("case", CASES)
def test_avg_pool_forward(case: Case) -> None:
    x = numbers("x", case.shape)
    same(avg_pool(case)(x), values_of(relation(case), x, mean))


@pytest.mark.parametrize("case", CASES)
def test_avg_pool_jvp(case: Case) -> None:
    """Linear: the tangent is the average of the tangents."""
    x, dx = numbers("x", case.shape), numbers("dx", case.shape)
    same(jvp(avg_pool(case), x, dx), values_of(relation(case), dx, mean))


@pytest.mark.parametrize("case", CASES)
def test_avg_pool_vjp(case: Case) -> None:
    x = numbers("x", case.shape)
    gy = numbers("gy", avg_pool(case)(x).shape)
    same(vjp(avg_pool(case), x, gy), cotangent_of(relation(case), x, gy, even))


def test_pooling_by_hand() -> None:
    x = sg.exact([[1, 2, 0, -1], [9, 3, -4, -3]])
    dx = sg.exact([[1, 10, 100, 1000], [2, 20, 200, 2000]])
    gy = sg.exact([[8, 4]])
    pool_max, pool_avg = (lambda x: sg.max_pool(x, (2, 2))), (lambda x: sg.avg_pool(x, (2, 2)))
    same(pool_max(x), [[9, 0]])
    same(jvp(pool_max, x, dx), [[2, 100]])
    same(vjp(pool_max, x, gy), [[0, 0, 4, 0], [8, 0, 0, 0]])
    same(pool_avg(x), [[Fraction(15, 4), -2]])
    same(jvp(pool_avg, x, dx), [[Fraction(33, 4), 825]])
    same(vjp(pool_avg, x, gy), [[2, 2, 1, 1], [2, 2, 1, 1]])


def test_first_winner() -> None:
    """Row-major: (0, 1) comes before (1, 0); forward and reverse mode agree on it."""
    x = sg.exact([[1, 7, 7], [7, 7, 0]])
    pool = lambda x: sg.max_pool(x, (2, 3))
    same(jvp(pool, x, sg.exact([[1, 2, 3], [4, 5, 6]])), [[2]])
    same(vjp(pool, x, sg.exact([[5]])), [[0, 5, 0], [0, 0, 0]])
    assert sg.max_pool(x, (2, 3), return_indices=True)[1].tolist() == [[1]]


def test_padding_ignored_or_counted() -> None:
    x = sg.exact([[-4]])
    same(sg.max_pool(x, (3, 3), padding=1), [[-4]])
    same(sg.avg_pool(x, (3, 3), padding=1), [[Fraction(-4, 9)]])
    same(sg.avg_pool(x, (3, 3), padding=1, count_include_pad=False), [[-4]])


def test_empty_window_is_zero() -> None:
    """Padding 2 around one cell: windows 0 and 2 see no input cell."""
    x, dx, gy = sg.exact([-4]), sg.exact([3]), sg.exact([5, 7, 11])
    pool = lambda x: sg.max_pool(x, (1,), stride=2, padding=2)
    same(pool(x), [0, -4, 0])
    same(jvp(pool, x, dx), [0, 3, 0])
    same(vjp(pool, x, gy), [7])


def test_padded_average_by_hand() -> None:
    """2x2 windows with stride 2 around [[4, 8], [12, 16]]: a window for every cell, with three padded taps."""
    x, gy = sg.exact([[[4, 8], [12, 16]]]), sg.exact([[[4, 8], [12, 20]]])
    pool = lambda x: sg.avg_pool(x, (2, 2), padding=1)
    same(pool(x), [[[1, 2], [3, 4]]])
    same(jvp(pool, x, x), [[[1, 2], [3, 4]]])
    same(vjp(pool, x, gy), [[[1, 2], [3, 5]]])


# --- output shapes and proof obligations ------------------------------------------------------------------------

POOLS = [sg.max_pool, sg.avg_pool, lambda x, kernel, **kw: sg.smooth_max_pool(x, kernel, beta=1, **kw)]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "expected"),
    [
        ((5, 5), (2, 2), 2, (2, 2)),
        ((3, 7, 6), (3, 2), 2, (3, 3, 3)),
        ((9,), (4,), 3, (2,)),
        ((2, 5, 6, 7), (2, 3, 1), (1, 2, 3), (2, 4, 2, 3)),
    ],
)
def test_output_shape_without_padding(pool: Any, shape: Shape, kernel: Shape, stride: Any, expected: Shape) -> None:
    assert output_shape(lambda x: pool(x, kernel, stride=stride), shape) == expected


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "expected"),
    [
        ((5, 5), (3, 3), 2, 1, (3, 3)),
        ((3, 4, 6), (2, 2), 3, 1, (3, 2, 3)),
        ((9,), (4,), 3, 2, (4,)),
        ((2, 5, 6, 7), (2, 3, 1), (1, 2, 3), (0, 1, 2), (2, 4, 3, 4)),
    ],
)
def test_output_shape_with_padding(
    pool: Any, shape: Shape, kernel: Shape, stride: Any, padding: Any, expected: Shape
) -> None:
    assert output_shape(lambda x: pool(x, kernel, stride=stride, padding=padding), shape) == expected


IMAGE = (1, 4, 4)
OBLIGATIONS: list[tuple[str, Callable[..., Any], tuple[Shape, ...]]] = [
    ("W1", lambda x: sg.max_pool(x, (0, 2)), (IMAGE,)),
    ("W1", lambda x: sg.avg_pool(x, (2, 0)), (IMAGE,)),
    ("W1", lambda x: sg.smooth_max_pool(x, (0, 0), beta=1), (IMAGE,)),
    ("W1", lambda x: sg.max_pool(x, (2, 2), stride=0), (IMAGE,)),
    ("W1", lambda x: sg.avg_pool(x, (2, 2), stride=(1, 0)), (IMAGE,)),
    ("W1", lambda x: sg.max_pool(x, ()), (IMAGE,)),
    ("W1", lambda x: sg.global_avg_pool(x, rank=2), ((3, 0, 4),)),
    ("W1", lambda x: sg.global_max_pool(x, rank=2), ((3, 4, 0),)),
    ("W1", lambda x: sg.adaptive_avg_pool(x, (0, 1)), (IMAGE,)),
    ("W1", lambda x: sg.adaptive_max_pool(x, (1, 1)), ((1, 0, 4),)),
    ("W1", lambda w, x: sg.conv(w, None, x), ((2, 1, 0, 2), IMAGE)),
    ("C1", lambda w, x: sg.conv(w, None, x), ((2, 0, 2, 2), (0, 4, 4))),
    ("C1", lambda w, x: sg.conv_transpose(w, None, x), ((0, 2, 2, 2), (0, 4, 4))),
    ("C1", lambda w, b, x: sg.conv(w, b, x), ((2, 1, 2, 2), (3,), IMAGE)),
    ("P5", lambda x: sg.smooth_max_pool(x, (2, 2), beta=0), (IMAGE,)),
]


@pytest.mark.parametrize(("rule", "build", "shapes"), OBLIGATIONS)
def test_obligations_raise(rule: str, build: Any, shapes: tuple[Shape, ...]) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        sg.trace(build, *shapes)
    assert caught.value.rule == rule


def test_window_must_fit() -> None:
    """Natural-number subtraction would give (2 - 3) / 1 + 1 = 1 window, and 0 - 2 + 3 = 3 cells of conv_transpose."""
    for pool in POOLS:
        with pytest.raises(sg.ShapeError, match=r"\[W2\]"):
            sg.trace(lambda x, pool=pool: pool(x, (3,), stride=1), (1, 2))
    with pytest.raises(sg.ShapeError, match=r"\[W2\]"):
        sg.trace(lambda w, x: sg.conv(w, None, x), (1, 1, 3), (1, 2))
    transpose = lambda w, x: sg.conv_transpose(w, None, x, padding=1)
    assert output_shape(transpose, (1, 1, 3), (1, 1)) == (1, 1)
    with pytest.raises(sg.ShapeError, match=r"\[C2\]"):
        sg.trace(transpose, (1, 1, 2), (1, 1))


@pytest.mark.parametrize(
    ("n", "k", "s", "p", "out"),
    [
        (5, 2, 2, 0, 2),
        (7, 3, 2, 0, 3),
        (9, 4, 3, 0, 2),
        (5, 3, 2, 1, 3),
        (4, 2, 3, 1, 2),
        (9, 4, 3, 2, 4),
        (1, 1, 1, 0, 1),
    ],
)
def test_sizes_of_windows(n: int, k: int, s: int, p: int, out: int) -> None:
    """floor((n + 2p - k)/s) + 1, worked out by hand; a product over axes."""
    assert strided("conv", (3, n), (k,), stride=s, padding=p).out == (out,)
    assert strided("max_pool", (n, 6), (k, 2), stride=(s, 4), padding=((p, p), (0, 0))).out == (out, 2)


@pytest.mark.parametrize(
    ("n", "k", "s", "p", "size"), [(1, 3, 1, 1, 1), (3, 2, 2, 0, 6), (4, 3, 2, 1, 7), (2, 1, 5, 0, 6), (3, 4, 3, 2, 6)]
)
def test_sizes_of_transposed_windows(n: int, k: int, s: int, p: int, size: int) -> None:
    """(n - 1)*s - 2p + k, worked out by hand: its output is what the window reads."""
    found = transposed("conv_transpose", (n,), (k,), stride=s, padding=p, output_padding=0, dilation=1)
    assert (found.out, found.size) == ((n,), (size,))


def test_taps_by_hand() -> None:
    """Two outputs over three cells, kernel 2, stride 2, one padded cell in front: o reads 2o - 1 and 2o."""
    axis = strided("avg_pool", (3,), (2,), stride=2, padding=((1, 0),))
    assert axis.out == (2,)
    first, second = (axis.axes[0].tap(t) for t in (0, 1))
    assert [range(2)[s] for s in (first[0], second[0])] == [range(1, 2), range(2)]  # tap 0 of output 0 is padding
    assert [range(3)[s] for s in (first[1], second[1])] == [range(1, 2), range(0, 3, 2)]
    assert axis.inside().tolist() == [1, 2]
    assert axis.counted().tolist() == [2, 2]
    plane = strided("max_pool", (2, 3), (2, 3))
    read = [tap.read_inputs(np.arange(6).reshape(2, 3)).item() for tap in plane.taps()]
    assert read == [0, 1, 2, 3, 4, 5]  # row-major


# --- TorchLean's own formulas, then and now: ports, and what we say of the same sizes ------------------------------


def natural(n: int) -> int:
    """Subtraction of natural numbers ends at 0."""
    return max(n, 0)


def size_or_rule(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except sg.ShapeError as error:
        return error.rule


SIZES = [(n, k, s, p) for n in range(1, 6) for k in range(1, 7) for s in (1, 2, 3) for p in (0, 1, 2)]


def test_later_sizes() -> None:
    """Where the pages and the later versions differ, we refuse or follow the later ones; never the pages."""
    phantoms, wide = 0, 0
    for n, k, s, p in SIZES:
        old, new = natural(n + 2 * p - k) // s + 1, 0 if n + 2 * p < k else (n + 2 * p - k) // s + 1
        ours = size_or_rule(lambda a=(n, k, s, p): strided("pool", (a[0],), (a[1],), stride=a[2], padding=a[3]).out[0])
        assert ours == (new or "W2")
        phantoms += old != new
        old, new = natural((n - 1) * s - 2 * p) + k, natural((n - 1) * s + k - 2 * p)
        options = {"stride": s, "padding": p, "output_padding": 0, "dilation": 1}
        ours = size_or_rule(lambda a=(n, k), o=options: transposed("t", (a[0],), (a[1],), **o).size[0])
        assert ours == (new or "C2")
        wide += old != new
    assert (phantoms, wide) == (
        3 * (15 + 6 + 1),
        6 * (4 + 8),
    )  # k > n + 2p, for 3 strides; (n - 1)*s < 2p, for 6 kernels
    with pytest.raises(sg.ParameterError, match="beta must be a finite number other than 0"):
        sg.smooth_max_pool(np.ones(3), (2,), beta=0)


def older_winner(window: Any) -> Shape:
    """The fold of the older 2-D rules: every cell of a row is compared with the best of the rows before."""
    best = (0, 0)
    for i in range(window.shape[0]):
        inner = best
        for j in range(window.shape[1]):
            if window[i, j] > window[best]:
                inner = (i, j)
        best = inner
    return best


def test_older_fold_misses_the_maximum() -> None:
    """Its text says: the first row-major maximiser. Of [[1, 3, 2]] the fold finds 2; we send the gradient to 3."""
    window = sg.exact([[1, 3, 2]])
    assert window[older_winner(window)] == 2
    same(vjp(lambda x: sg.max_pool(x, (1, 3)), window, sg.exact([[5]])), [[0, 5, 0]])
    same(jvp(lambda x: sg.max_pool(x, (1, 3)), window, sg.exact([[10, 20, 30]])), [[20]])
    missed = {}
    for shape in ((2, 2), (1, 4), (4, 1)):
        windows = [np.array(order).reshape(shape) for order in itertools.permutations(range(4))]
        missed[shape] = sum(int(w[older_winner(w)] != 3) for w in windows)
        pool = lambda x, shape=shape: sg.max_pool(x, shape)
        for w in windows:
            same(vjp(pool, sg.exact(w), sg.exact([[1]])), (w == 3).astype(int))
    assert missed == {(2, 2): 2, (1, 4): 7, (4, 1): 0}


# --- smooth_max_pool --------------------------------------------------------------------------------------------

SMOOTH = [
    pytest.param(case, beta, padded, id=f"{k}-{beta}-{padded}")
    for k, case in enumerate(CASES)
    for beta, padded in ((Fraction(3, 2), "zero"), (-2, "ignore"))
]


def smooth_pool(case: Case, beta: Any, padded: Any) -> Callable[[Any], Any]:
    options: dict[str, Any] = {"stride": case.stride, "padding": case.padding, "beta": beta, "padded": padded}
    return lambda x: sg.smooth_max_pool(x, case.kernel, **options)


def powers(beta: Any, padded: str, x: Any, taps: Taps) -> list[tuple[Shape | None, Any]]:
    """exp(beta * x_t) of every tap that counts; a padded tap is x = 0 or left out."""
    ball = sg.balls(beta).item()
    one = ball * 0 + 1
    counted = [i for i in taps if i is not None or padded == "zero"]
    return [(i, one if i is None else (ball * x[i]).exp()) for i in counted]


def log_sum(beta: Any, padded: str) -> Callable[[Any, Taps], Any]:
    def value(x: Any, taps: Taps) -> Any:
        total = sum(e for _, e in powers(beta, padded, x, taps))
        return 0 if isinstance(total, int) else total.log() / sg.balls(beta).item()

    return value


def softmax(beta: Any, padded: str) -> Callable[[Any, Taps], Weights]:
    def weights(x: Any, taps: Taps) -> Weights:
        found = powers(beta, padded, x, taps)
        return {i: e / sum(e for _, e in found) for i, e in found if i is not None}

    return weights


@pytest.mark.parametrize(("case", "beta", "padded"), SMOOTH)
def test_smooth_max_pool_forward(case: Case, beta: Any, padded: str) -> None:
    x = sg.balls(numbers("x", case.shape))
    overlap(smooth_pool(case, beta, padded)(x), values_of(relation(case), x, log_sum(beta, padded)))


@pytest.mark.parametrize(("case", "beta", "padded"), SMOOTH)
def test_smooth_max_pool_jvp(case: Case, beta: Any, padded: str) -> None:
    x, dx = sg.balls(numbers("x", case.shape)), sg.balls(numbers("dx", case.shape))
    expected = tangent_of(relation(case), x, dx, softmax(beta, padded))
    overlap(jvp(smooth_pool(case, beta, padded), x, dx), expected)


@pytest.mark.parametrize(("case", "beta", "padded"), SMOOTH)
def test_smooth_max_pool_vjp(case: Case, beta: Any, padded: str) -> None:
    x, pool = sg.balls(numbers("x", case.shape)), smooth_pool(case, beta, padded)
    gy = sg.balls(numbers("gy", pool(x).shape))
    overlap(vjp(pool, x, gy), cotangent_of(relation(case), x, gy, softmax(beta, padded)))


def test_smooth_max_pool_by_hand() -> None:
    """log(e^0 + e^0) = log 2, weights 1/2; a padded cell is a zero that counts, unless it is ignored."""
    x, two = sg.balls([0, 0]), sg.balls(2).item()
    pool = lambda x: sg.smooth_max_pool(x, (2,), beta=1)
    overlap(pool(x), np.array([two.log()], dtype=object))
    overlap(jvp(pool, x, sg.balls([3, 5])), sg.balls([4]))
    overlap(vjp(pool, x, sg.balls([6])), sg.balls([3, 3]))
    overlap(sg.smooth_max_pool(x[:1], (2,), beta=1, padding=((0, 1),)), np.array([two.log()], dtype=object))
    overlap(sg.smooth_max_pool(x[:1], (2,), beta=1, padding=((0, 1),), padded="ignore"), sg.balls([0]))


# --- adaptive pooling and unpad ---------------------------------------------------------------------------------

ADAPTIVE = [
    ((7,), (3,)),
    ((5, 4), (3, 2)),
    ((2, 6, 4), (3, 2)),  # sizes that divide
    ((1, 2, 3), (3, 5)),  # more cells than inputs
    ((2, 3, 2, 5), (2, 2, 3)),
]


def test_adaptive_start_and_end_by_hand() -> None:
    """Five inputs in three cells: [0, 2), [1, 4), [3, 5)."""
    axis = Adaptive(5, 3)
    assert [axis.start(o) for o in range(3)] == [0, 1, 3]
    assert [axis.end(o) for o in range(3)] == [2, 4, 5]
    gx = vjp(lambda x: sg.adaptive_avg_pool(x, (3,)), numbers("x", (3, 5)), sg.exact(np.eye(3)))
    assert [[i for i, g in enumerate(row) if g] for row in gx] == [[0, 1], [1, 2, 3], [3, 4]]


@pytest.mark.parametrize("n", range(1, 10))
def test_adaptive_start_and_end(n: int) -> None:
    for m in range(1, 12):
        axis = Adaptive(n, m)
        assert [axis.start(o) for o in range(m)] == [math.floor(Fraction(o * n, m)) for o in range(m)]
        assert [axis.end(o) for o in range(m)] == [math.ceil(Fraction((o + 1) * n, m)) for o in range(m)]


@pytest.mark.parametrize(("shape", "output"), ADAPTIVE)
def test_adaptive_avg_pool(shape: Shape, output: Shape) -> None:
    x, dx = numbers("x", shape), numbers("dx", shape)
    rel = cells(shape[len(shape) - len(output) :], output)
    pool = lambda x: sg.adaptive_avg_pool(x, output)
    gy = numbers("gy", pool(x).shape)
    same(pool(x), values_of(rel, x, mean))
    same(jvp(pool, x, dx), tangent_of(rel, x, dx, even))
    same(vjp(pool, x, gy), cotangent_of(rel, x, gy, even))


@pytest.mark.parametrize(("shape", "output"), ADAPTIVE)
def test_adaptive_max_pool(shape: Shape, output: Shape) -> None:
    x, dx = numbers("x", shape), numbers("dx", shape)
    rel = cells(shape[len(shape) - len(output) :], output)
    pool = lambda x: sg.adaptive_max_pool(x, output)
    gy = numbers("gy", pool(x).shape)
    same(pool(x), values_of(rel, x, maximum))
    same(jvp(pool, x, dx), tangent_of(rel, x, dx, first_winner))
    same(vjp(pool, x, gy), cotangent_of(rel, x, gy, first_winner))


def test_no_sentinel() -> None:
    """No sentinel: values below every float are still the maximum."""
    low = -(10**400)
    x = sg.exact([[low, low - 1], [low - 2, low - 3]])
    same(sg.adaptive_max_pool(x, (1, 2)), [[low, low - 1]])
    same(sg.global_max_pool(x, rank=2), [[low]])
    same(sg.max_pool(x, (2, 2), padding=1), [[low, low - 1], [low - 2, low - 3]])


def test_unpad_removes_cells() -> None:
    image = sg.exact(np.arange(20).reshape(4, 5))
    same(sg.unpad(image, 1, rank=2), [[6, 7, 8], [11, 12, 13]])
    same(sg.unpad(np.stack([image, -image]), 1, rank=2), [[[6, 7, 8], [11, 12, 13]], [[-6, -7, -8], [-11, -12, -13]]])
    same(sg.unpad(image, ((0, 3), (2, 1))), [[2, 3]])


def test_unpad_transpose() -> None:
    x, dx = numbers("x", (3, 4)), numbers("dx", (3, 4))
    crop = lambda x: sg.unpad(x, 1, rank=2)
    same(jvp(crop, x, dx), [[dx[1, 1], dx[1, 2]]])
    same(vjp(crop, x, sg.exact([[5, 7]])), [[0, 0, 0, 0], [0, 5, 7, 0], [0, 0, 0, 0]])


# --- convolution ------------------------------------------------------------------------------------------------


class Conv(NamedTuple):
    """A convolution of one sample: x is (Cin, *sizes), w the layout of its operator."""

    x: Shape
    w: Shape
    stride: Shape
    padding: Shape


CONVS = [
    Conv((2, 6), (3, 2, 3), (2,), (1,)),
    Conv((2, 4, 5), (2, 2, 2, 3), (1, 2), (0, 1)),
    Conv((1, 3, 3), (2, 1, 1, 1), (2, 2), (2, 2)),
    Conv((2, 3, 2, 4), (1, 2, 2, 1, 3), (1, 1, 2), (1, 0, 1)),
    Conv((1, 2, 3, 2, 2), (2, 1, 1, 2, 2, 1), (1, 2, 1, 1), (0, 1, 0, 0)),
]
TRANSPOSES = [
    Conv((2, 4), (2, 3, 3), (2,), (1,)),
    Conv((2, 3, 2), (2, 2, 2, 3), (1, 2), (0, 1)),
    Conv((1, 2, 2), (1, 2, 1, 1), (3, 2), (0, 0)),
    Conv((2, 2, 2, 3), (2, 1, 2, 1, 3), (2, 1, 1), (1, 0, 1)),
    Conv((1, 2, 1, 2, 2), (1, 2, 1, 2, 2, 1), (1, 2, 1, 1), (0, 0, 1, 0)),
]
Terms = tuple[Shape, list[tuple[Shape, Shape, Shape]]]  # output shape; (y, w, x) positions: y += w * x


def triples(cells: Shape, positions: Shape, case: Conv) -> Iterator[tuple[Shape, Shape, Shape]]:
    """(p, t, i) with i = s*p + t - lo inside the cells."""
    for p, t in itertools.product(np.ndindex(positions), np.ndindex(case.w[2:])):
        i = tuple(s * o + k - lo for s, o, k, lo in zip(case.stride, p, t, case.padding, strict=True))
        if all(0 <= c < n for c, n in zip(i, cells, strict=True)):
            yield p, t, i


def conv_terms(case: Conv) -> Terms:
    """y[o, p] += w[o, c, t] * x[c, i], out = floor((n + 2*lo - k) / s) + 1."""
    sizes = zip(case.x[1:], case.padding, case.w[2:], case.stride, strict=True)
    out = tuple((n + 2 * lo - k) // s + 1 for n, lo, k, s in sizes)
    pairs = list(np.ndindex(case.w[:2]))
    found = [((o, *p), (o, c, *t), (c, *i)) for p, t, i in triples(case.x[1:], out, case) for o, c in pairs]
    return (case.w[0], *out), found


def transpose_terms(case: Conv) -> Terms:
    """y[o, i] += w[c, o, t] * x[c, p], out = (n - 1)*s - 2*lo + k."""
    sizes = zip(case.x[1:], case.padding, case.w[2:], case.stride, strict=True)
    out = tuple((n - 1) * s - 2 * lo + k for n, lo, k, s in sizes)
    pairs = list(np.ndindex(case.w[:2]))
    found = [((o, *i), (c, o, *t), (c, *p)) for p, t, i in triples(out, case.x[1:], case) for c, o in pairs]
    return (case.w[1], *out), found


def evaluate(terms: Terms, w: Any, b: Any, x: Any) -> Any:
    y = np.zeros(terms[0], dtype=object) + b.reshape(b.shape + (1,) * (x.ndim - 1))
    for to, weight, source in terms[1]:
        y[to] += w[weight] * x[source]
    return y


BILINEAR = [pytest.param(sg.conv, c, conv_terms(c), id=f"conv{len(c.x) - 1}-{k}") for k, c in enumerate(CONVS)] + [
    pytest.param(sg.conv_transpose, c, transpose_terms(c), id=f"conv_transpose{len(c.x) - 1}-{k}")
    for k, c in enumerate(TRANSPOSES)
]


def operands(seed: str, case: Conv, terms: Terms) -> list[Any]:
    return [numbers(f"{seed}{k}", shape) for k, shape in enumerate((case.w, terms[0][:1], case.x))]


def conv_graph(call: Any, case: Conv, terms: Terms) -> Any:
    fn = lambda w, b, x: call(w, b, x, stride=case.stride, padding=case.padding)
    return sg.trace(fn, case.w, terms[0][:1], case.x)


@pytest.mark.parametrize(("call", "case", "terms"), BILINEAR)
def test_conv_forward(call: Any, case: Conv, terms: Terms) -> None:
    w, b, x = operands("value", case, terms)
    same(conv_graph(call, case, terms)(w, b, x), evaluate(terms, w, b, x))


@pytest.mark.parametrize(("call", "case", "terms"), BILINEAR)
def test_conv_jvp(call: Any, case: Conv, terms: Terms) -> None:
    """d f(w, b, x) = f(w, 0, dx) + f(dw, db, x)."""
    (w, b, x), (dw, db, dx) = operands("value", case, terms), operands("tangent", case, terms)
    _, dy = sg.jvp(conv_graph(call, case, terms))(w, b, x, dw, db, dx)
    same(dy, evaluate(terms, w, b * 0, dx) + evaluate(terms, dw, db, x))


@pytest.mark.parametrize(("call", "case", "terms"), BILINEAR)
def test_conv_vjp(call: Any, case: Conv, terms: Terms) -> None:
    (w, b, x), gy = operands("value", case, terms), numbers("gy", terms[0])
    gw, gx = w * 0, x * 0
    for to, weight, source in terms[1]:
        gw[weight] += gy[to] * x[source]
        gx[source] += gy[to] * w[weight]
    got = sg.vjp(conv_graph(call, case, terms))(w, b, x, gy)[1:]
    for g, expected in zip(got, (gw, gy.reshape(len(b), -1).sum(axis=1), gx), strict=True):
        same(g, expected)


def test_conv_by_hand() -> None:
    w, b, x = sg.exact([[[1, 2]]]), sg.exact([5]), sg.exact([[1, 10, 100]])
    same(sg.conv(w, b, x), [[26, 215]])
    same(sg.conv(w, b, x, stride=2, padding=1), [[7, 215]])
    same(sg.conv_transpose(w, b, x, stride=2), [[6, 7, 15, 25, 105, 205]])
    same(sg.conv_transpose(w, b, x, stride=2, padding=1), [[7, 15, 25, 105]])


# --- the two-dimensional names ----------------------------------------------------------------------------------


IMAGES = (2, 5, 5)
NAMED_CONV = Conv(IMAGES, (2, 2, 3, 2), (2, 2), (1, 1))
PLAIN_IMAGE, PADDED_IMAGE = (relation(Case(IMAGES, (3, 2), (2, 2), ((p, p), (p, p)))) for p in (0, 1))
NAMED_POOLS: dict[str, tuple[Callable[[Any], Any], Relation, Any, Any]] = {
    "max": (lambda x: F.max_pool2d(x, (3, 2), 2), PLAIN_IMAGE, maximum, first_winner),
    "max padded": (lambda x: F.max_pool2d(x, (3, 2), 2, 1), PADDED_IMAGE, maximum, first_winner),
    "avg": (lambda x: F.avg_pool2d(x, (3, 2), 2), PLAIN_IMAGE, mean, even),
    "avg padded": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1), PADDED_IMAGE, mean, even),
    "adaptive avg": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), cells((5, 5), (2, 3)), mean, even),
    "adaptive max": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), cells((5, 5), (2, 3)), maximum, first_winner),
}


@pytest.mark.parametrize("name", NAMED_POOLS)
def test_two_d_names(name: str) -> None:
    """Value, tangent and cotangent of PyTorch's names, by the loops above."""
    pool, rel, value, weights = NAMED_POOLS[name]
    x, dx = numbers("x", IMAGES), numbers("dx", IMAGES)
    expected = values_of(rel, x, value)
    gy = numbers("gy", expected.shape)
    same(pool(x), expected)
    same(jvp(pool, x, dx), tangent_of(rel, x, dx, weights))
    same(vjp(pool, x, gy), cotangent_of(rel, x, gy, weights))


def test_a_wrong_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = F.max_pool2d
    monkeypatch.setattr(F, "max_pool2d", lambda x, kernel, stride, padding=0: right(x, kernel, stride))
    test_two_d_names("max")
    with pytest.raises(AssertionError):
        test_two_d_names("max padded")


@pytest.mark.parametrize(
    ("named", "terms"),
    [
        (lambda w, b, x: F.conv2d(x, w, b, 2, 1), conv_terms(NAMED_CONV)),
        (lambda w, b, x: F.conv_transpose2d(x, w, b, 2, 1), transpose_terms(NAMED_CONV)),
    ],
    ids=["conv2d", "conv_transpose2d"],
)
def test_two_d_convolutions(named: Any, terms: Terms) -> None:
    (w, b, x), (dw, db, dx) = operands("value", NAMED_CONV, terms), operands("tangent", NAMED_CONV, terms)
    graph, gy = sg.trace(named, w.shape, b.shape, x.shape), numbers("gy", terms[0])
    same(named(w, b, x), evaluate(terms, w, b, x))
    same(sg.jvp(graph)(w, b, x, dw, db, dx)[1], evaluate(terms, w, b * 0, dx) + evaluate(terms, dw, db, x))
    gw, gx = w * 0, x * 0
    for to, weight, source in terms[1]:
        gw[weight] += gy[to] * x[source]
        gx[source] += gy[to] * w[weight]
    for g, expected in zip(sg.vjp(graph)(w, b, x, gy)[1:], (gw, gy.reshape(2, -1).sum(axis=1), gx), strict=True):
        same(g, expected)


# --- global pooling ---------------------------------------------------------------------------------------------

PLANES = sg.exact([[[1, 5, 5], [0, 5, 2]], [[-1, -2, -3], [-4, -1, -6]]])
D_PLANES = sg.exact(np.arange(1, 13).reshape(2, 2, 3))
SHAPES = [pytest.param(True, (2, 1, 1), id="C11"), pytest.param(False, (2,), id="C")]


@pytest.mark.parametrize(("keepdims", "shape"), SHAPES)
def test_global_output_shapes(keepdims: bool, shape: Shape) -> None:
    assert output_shape(lambda x: sg.global_avg_pool(x, rank=2, keepdims=keepdims), (2, 4, 3)) == shape
    assert output_shape(lambda x: sg.global_max_pool(x, rank=2, keepdims=keepdims), (2, 4, 3)) == shape


@pytest.mark.parametrize(("keepdims", "shape"), SHAPES)
def test_global_avg_pool(keepdims: bool, shape: Shape) -> None:
    pool = lambda x: sg.global_avg_pool(x, rank=2, keepdims=keepdims)
    same(pool(PLANES), sg.exact([3, Fraction(-17, 6)]).reshape(shape))
    same(jvp(pool, PLANES, D_PLANES), sg.exact([Fraction(7, 2), Fraction(19, 2)]).reshape(shape))
    gx = vjp(pool, PLANES, sg.exact([6, 4]).reshape(shape))
    same(gx, [[[1] * 3] * 2, [[Fraction(2, 3)] * 3] * 2])


@pytest.mark.parametrize("ties", ["all", "split", "first"])
@pytest.mark.parametrize(("keepdims", "shape"), SHAPES)
def test_global_max_pool_forward(keepdims: bool, shape: Shape, ties: Any) -> None:
    same(sg.global_max_pool(PLANES, rank=2, keepdims=keepdims, ties=ties), sg.exact([5, -1]).reshape(shape))


TIES = {  # three maximisers in the first channel, two in the second
    "all": ([10, 18], [[[0, 6, 6], [0, 6, 0]], [[4, 0, 0], [0, 4, 0]]]),
    "split": ([Fraction(10, 3), 9], [[[0, 2, 2], [0, 2, 0]], [[2, 0, 0], [0, 2, 0]]]),
    "first": ([2, 7], [[[0, 6, 0], [0, 0, 0]], [[4, 0, 0], [0, 0, 0]]]),
}


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(("keepdims", "shape"), SHAPES)
def test_global_max_pool_ties(keepdims: bool, shape: Shape, ties: Any) -> None:
    pool = lambda x: sg.global_max_pool(x, rank=2, keepdims=keepdims, ties=ties)
    tangent, cotangent = TIES[ties]
    same(jvp(pool, PLANES, D_PLANES), sg.exact(tangent).reshape(shape))
    same(vjp(pool, PLANES, sg.exact([6, 4]).reshape(shape)), cotangent)


def test_global_max_pool_default_ties() -> None:
    gx = vjp(lambda x: sg.global_max_pool(x, rank=2), PLANES, sg.exact([[[6]], [[4]]]))
    same(gx, TIES["all"][1])  # every maximiser receives all of it


def test_sum_and_amax() -> None:
    same(sg.sum(PLANES, (1, 2)), [18, -17])
    same(sg.amax(PLANES, (1, 2)), [5, -1])
    same(sg.neg(sg.amax(sg.neg(PLANES), (1, 2))), [0, -6])
    same(sg.amax(PLANES[0]), 5)


def fold(f: Callable[[Any, Any], Any], init: int, x: Any) -> Any:
    """f over the cells of a 2-D value in row-major order: an ordinary Python loop, traced."""
    one = lambda i, j: sg.reshape(sg.slice(x, slice(i, i + 1), slice(j, j + 1)), ())
    return reduce(f, [one(i, j) for i, j in np.ndindex(x.shape)], init)


FOLDS: dict[str, tuple[Callable[[Any, Any], Any], int, Any]] = {
    "sum": (sg.add, 0, 18),
    "max": (sg.maximum, 0, 5),
    "horner": (lambda a, v: a * 2 + v, 7, 7 * 64 + 1 * 32 + 5 * 16 + 5 * 8 + 0 * 4 + 5 * 2 + 2),
}


@pytest.mark.parametrize("name", FOLDS)
def test_spatial_fold(name: str) -> None:
    f, init, expected = FOLDS[name]
    same(np.asarray(sg.trace(lambda x: fold(f, init, x), (2, 3))(PLANES[0])), expected)


def test_spatial_fold_derivatives() -> None:
    """Horner's weights 32, 16, .., 1, read off in both modes."""
    f = lambda x: fold(lambda a, v: a * 2 + v, 7, x)
    same(vjp(f, PLANES[0], sg.exact(3)), [[96, 48, 24], [12, 6, 3]])
    same(np.asarray(jvp(f, PLANES[0], D_PLANES[0])), 32 + 2 * 16 + 3 * 8 + 4 * 4 + 5 * 2 + 6)


def test_scalar_as_image() -> None:
    same(sg.broadcast(sg.exact(3), (1, 1)), [[3]])
    same(sg.reshape(sg.amax(PLANES, (1, 2)), (2, 1, 1)), [[[5]], [[-1]]])
    same(sg.amax(PLANES, (1, 2), keepdims=True), [[[5]], [[-1]]])
