"""Sums in chosen orders: the terms of a node's cells, and the results of different summation trees.

A term is rounded to the format of the accumulators, and so is every partial sum; float64 holds both, and rounding a
float64 result to 24 digits or fewer is rounding the exact one (Figueroa: 53 >= 2 * 24 + 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from specgrad.graph.graph import Node
from specgrad.rounding import Format
from specgrad.scalar import Array

Rounding = Callable[[Array], Array]
Block = tuple[Any, Array]  # where in the node's cells (channels second), and terms (count, *cells there)
MAX_TERMS = 1 << 23  # of the terms of one block


def rounding_to(form: Format) -> Rounding:
    """Return a function that rounds to the nearest number of a format, ties to even; infinity beyond the largest.

    >>> from specgrad.rounding import FORMATS
    >>> rounding_to(FORMATS["bfloat16"])(np.array([1.00390625, 1.01171875, 1e39]))
    array([1.      , 1.015625,      inf])
    """
    if form.digits >= 53:
        return lambda x: x
    if form.name in ("float32", "float16"):
        return lambda x: _round_to_type(x, form.name)

    def rounded(x: Array) -> Array:
        power = np.maximum(np.frexp(x)[1] - 1, form.lowest) - (form.digits - 1)
        near = np.ldexp(np.rint(np.ldexp(x, -power)), power)
        return np.where(np.abs(near) > form.largest, np.copysign(np.inf, x), near)

    return rounded


def _round_to_type(x: Array, name: str) -> Array:
    """Return x rounded to the NumPy type `name`, in float64; too large numbers become infinite."""
    with np.errstate(over="ignore"):  # what is too large is infinite, as the format has it
        return x.astype(name).astype(np.float64)


# --- orders -----------------------------------------------------------------------------------------------------------


def candidate_sums(terms: Array, rounded: Rounding, extra_roundings: int, depth: int | None) -> Iterator[Array]:
    """Yield the sum over the first axis by different trees, none with more than `depth` roundings of a term.

    rounded           rounds an array to the format
    extra_roundings   roundings of a term before or after the sum: its product, or the division of an average
    """
    yield rounded(terms.sum(0))  # accumulators of float64
    count = len(terms)
    length = longest_run(count, depth, extra_roundings)
    if count < 2 or length == 0:
        return
    for ordered in (terms, terms[::-1], *_sorted_orders(terms)):
        yield sum_in_runs(ordered, length, rounded)
    if length > 1:
        yield sum_in_runs(terms, 1, rounded)


def _sorted_orders(terms: Array) -> Iterator[Array]:
    """Yield the terms sorted cell by cell: rising, falling, by magnitude rising and falling."""
    rising = np.sort(terms, axis=0)
    yield rising
    yield rising[::-1]
    by_size = np.take_along_axis(terms, np.argsort(np.abs(terms), axis=0), 0)
    yield by_size
    yield by_size[::-1]


def longest_run(count: int, depth: int | None, extra_roundings: int) -> int:
    """Return how many terms may be added one by one before runs are added in pairs; 0 if no tree is flat enough.

    A term meets `extra_roundings`, one per addition in its run, and one per joining. There are `count` terms; no term
    may meet more than `depth` roundings, None: any number.

    >>> longest_run(4608, None, 1), longest_run(4608, 293, 1), longest_run(8, 3, 1)
    (4608, 289, 0)
    """
    if depth is None:
        return count
    for length in range(min(count, depth), 0, -1):
        if extra_roundings + length - 1 + math.ceil(math.log2(math.ceil(count / length))) <= depth:
            return length
    return 0


def sum_in_runs(terms: Array, length: int, rounded: Rounding) -> Array:
    """Return the sum over the first axis, `rounded` after each addition: runs of `length` terms added one by one, then
    all runs in pairs; added zeros change nothing.
    """
    runs = math.ceil(len(terms) / length)
    short = runs * length - len(terms)
    filled = np.concatenate([terms, np.zeros((short, *terms.shape[1:]))]) if short else terms
    by_run = filled.reshape(runs, length, *terms.shape[1:])
    total = by_run[:, 0]
    for k in range(1, length):
        total = rounded(total + by_run[:, k])
    while len(total) > 1:
        pairs = rounded(total[: len(total) // 2 * 2 : 2] + total[1::2])
        total = np.concatenate([pairs, total[-1:]]) if len(total) % 2 else pairs
    return np.asarray(total[0])


# --- terms ------------------------------------------------------------------------------------------------------------


def sum_terms(node: Node, args: list[Array], rounded: Rounding) -> Iterator[Block] | None:
    """Yield (cells, terms) of a node that sums, block by block: cells index its result, terms are stacked before them.

    None if it is no sum, or too large to be taken apart.
    """
    if node.op.name in ("conv", "conv_transpose"):
        return _convolution_terms(node, args, rounded)
    if node.op.name == "contract":
        return _contraction_terms(node.params["spec"], args[0], args[1], rounded)
    if node.op.name == "sum":
        axes = node.params["axes"]
        return iter([(..., np.moveaxis(args[0], axes, range(len(axes))).reshape(-1, *node.shape))])
    if node.op.name == "avg_pool":
        return iter([(..., _window_terms(args[0], node))])
    return None


def _window_terms(x: Array, node: Node) -> Array:
    """Return what the taps of a window read, (taps, *cells); 0 outside."""
    taps = list(node.params["window"].taps())
    terms = np.zeros((len(taps), *node.shape))
    for k, tap in enumerate(taps):
        tap.write_outputs(terms[k], tap.read_inputs(x))
    return terms


def _contraction_terms(spec: str, x: Array, z: Array, rounded: Rounding) -> Iterator[Block] | None:
    """Return the products of a contraction of x and z by the einsum text `spec`, rounded, as one block; None above
    MAX_TERMS.
    """
    ins, _, out = spec.partition("->")
    first, _, second = ins.partition(",")
    summed = "".join(sorted(set(first + second) - set(out)))
    sizes = dict(zip(first + second, x.shape + z.shape, strict=True))
    cells = math.prod(sizes[c] for c in out)
    if math.prod(sizes[c] for c in summed) * cells > MAX_TERMS:
        return None
    terms = np.einsum(f"{ins}->{summed}{out}", x, z)
    return iter([(..., rounded(terms.reshape(-1, *(sizes[c] for c in out))))])


def _convolution_terms(node: Node, args: list[Array], rounded: Rounding) -> Iterator[Block]:
    """Yield (cells, terms) of a convolution: group by group, as many output channels at once as fit.

    Terms are products, `rounded`, and the bias, stacked before the cells.
    """
    (x, w, *b), groups, window = args, node.params["groups"], node.params["window"]
    transposed = node.op.name == "conv_transpose"
    rank = window.rank
    spatial = node.shape[len(node.shape) - rank :]
    x = x.reshape(math.prod(x.shape[: x.ndim - rank - 1]), *x.shape[x.ndim - rank - 1 :])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    w = w if transposed else np.swapaxes(w, 1, 2)  # (groups, in, out, *kernel)
    ins, outs = w.shape[1:3]
    taps = [t.transposed() if transposed else t for t in window.taps()]
    count = len(taps) * ins + len(b)
    some = max(1, MAX_TERMS // max(1, count * len(x) * math.prod(spatial)))
    for g in range(groups):
        for first in range(0, outs, some):
            here = slice(first, min(first + some, outs))
            size = here.stop - first
            terms = np.zeros((count, len(x), size, *spatial))
            for k, tap in enumerate(taps):
                for i in range(ins):
                    weights = w[(g, i, here, *tap.position)].reshape(size, *(1,) * rank)
                    tap.write_outputs(terms[k * ins + i], weights * tap.read_inputs(x[:, g * ins + i, None]))
            channels = slice(g * outs + first, g * outs + here.stop)
            terms = rounded(terms)
            if b:
                terms[-1] = b[0][channels].reshape(size, *(1,) * rank)
            yield (slice(None), channels), terms
