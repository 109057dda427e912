"""Detect a known fault of 8-bit kernels: pairs of products are added in 16 bits, and saturate.

Processors without VNNI have one instruction (vpmaddubsw) that multiplies unsigned by signed bytes and adds neighbours
in int16: 255*127 + 255*127 does not fit. A layer whose every cell is explained by that is named so; it stays a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specgrad.graph.graph import Graph, section
from specgrad.rounding import Arithmetic, Ball, radius
from specgrad.rounding.arithmetic import growth
from specgrad.scalar import Array
from specgrad.window import Window

from .judge import Verdict, in_float64, judge_array

MAX_PRODUCTS = 2**31  # products that are emulated for one layer
SCALE_ROUNDINGS = 8  # of the scale arithmetic: more than any order of it meets
EXPLANATION = "16-bit saturation of pairwise products (unsigned times signed bytes, vpmaddubsw) explains every cell"


def explain_by_saturation(
    verdict: Verdict, part: Graph, given: Sequence[Array], got: Array, formats: Mapping[str, str]
) -> Verdict:
    """Return the verdict with an explanation if 16-bit saturation explains every cell; else unchanged.

    `part` is the layer as a graph, `given` its inputs, `got` the result that is judged. `formats` are those of nodes in
    other formats.
    """
    if (verdict.kind, verdict.fault) != ("differs", "value"):
        return verdict
    sums = [i for i, n in enumerate(part.nodes) if n.op.name in ("conv", "contract")]
    if len(sums) == 1 and any(_explanations(part, given, got, sums[0], formats)):
        return replace(verdict, detail=f"{str(verdict).partition(': ')[2]}; {EXPLANATION}")
    return verdict


def _explanations(
    part: Graph, given: Sequence[Array], got: Array, at: int, formats: Mapping[str, str]
) -> Iterator[bool]:
    """Yield, per order of the sum, whether saturated sums at position `at` explain the result `got`.

    `part` is the layer as a graph, `given` its inputs. `formats` are those of nodes in other formats.
    """
    value = _node_value(part, given, at)
    for sums in sums_in_16_bits(part, given, at):
        yield bool((sums != value).any()) and _follows_from_sums(part, given, got, at, sums, formats)


def sums_in_16_bits(part: Graph, given: Sequence[Array], at: int) -> Iterator[Array]:
    """Yield the convolution or product at position `at` with 16-bit saturation, for both orders of its terms.

    `given` are the inputs of the layer `part`. Nothing is yielded for unsigned weights, no terms, or very many.
    """
    raw = [_bytes_and_zero_point(part, a) for a in part.nodes[at].operands()[:2]]
    (x, x_zero), (w, _) = ([_node_value(part, given, p) for p in pair] for pair in raw)
    if w.min(initial=0) >= 0 or x.size * w.size == 0 or _count_products(part, at) > MAX_PRODUCTS:
        return  # unsigned weights are multiplied in 16 bits
    x, x_zero = (x + 128, x_zero + 128) if x.min() < 0 else (x, x_zero)
    value, unit = _node_value(part, given, at), _unit_of_sum(part, given, at)
    for columns, rows in _operand_orders(part, at, x, x_zero, w):
        yield value + _saturation_error(columns, rows).reshape(value.shape) * unit


def _count_products(part: Graph, at: int) -> int:
    """Return the number of multiply-adds of node `at` of the layer `part`."""
    node = part.nodes[at]
    return node.op.multiply_adds(*(part.nodes[a].shape for a in node.operands()), **node.params)


def _bytes_and_zero_point(part: Graph, position: int) -> tuple[int, int | None]:
    """Return the positions of the bytes behind a factor (q - zero)*scale at `position` of the graph, and of its zero
    point (or None).
    """
    node = part.nodes[position]
    while node.op.name in ("mul", "reshape", "permute", "broadcast"):
        position = node.operands()[0]
        node = part.nodes[position]
    if node.op.name == "sub":
        q, zero = node.operands()
        return q, zero
    return position, None


def _node_value(part: Graph, given: Sequence[Array], position: int | None) -> Array:
    """Return the value of the node at `position` in the layer `part`, given its inputs, in float64; 0 for None."""
    if position is None:
        return np.zeros(())
    known = dict(zip(part.input_positions, given, strict=True))
    if position in known:
        return np.asarray(known[position])
    if position in part.constants:
        return part.constants[position].astype(np.float64)
    graph, inputs = section(part, position, known)
    return np.asarray(in_float64(graph)(*(known[p] for p in inputs)))


def _scale_of_factor(part: Graph, given: Sequence[Array], position: int) -> Array:
    """Return the scale that the bytes of the factor at `position` are multiplied by, per cell; 1 in integer layers.

    `given` are the inputs of the layer `part`.
    """
    node = part.nodes[position]
    if node.op.name != "mul":
        return np.ones(node.shape)
    return np.broadcast_to(_node_value(part, given, node.operands()[1]), node.shape)


def _unit_of_sum(part: Graph, given: Sequence[Array], at: int) -> Array:
    """Return what one unit of the integer sum of node `at` is worth per cell: scale of x times scale of the weights,
    per channel.

    `given` are the inputs of the layer `part`, in which the scales may stand.
    """
    node = part.nodes[at]
    sx, sw = (_scale_of_factor(part, given, a) for a in node.operands()[:2])
    if node.op.name == "conv":
        per_channel = sw.reshape(len(sw), -1)[:, 0]
        return np.asarray(sx.flat[0] * per_channel).reshape((-1,) + (1,) * node.params["window"].rank)
    letters = node.params["spec"].partition(",")[2].partition("->")[0]
    summed = tuple(i for i, c in enumerate(letters) if c not in node.params["spec"].partition("->")[2])
    return np.asarray(sx.flat[0] * sw.max(axis=summed))


def _operand_orders(part: Graph, at: int, x: Array, zero: Array, w: Array) -> Iterator[tuple[Array, Array]]:
    """Yield bytes that are read (..., groups, K, cells) and weights (groups, channels, K), per order of terms of node
    `at`.

    x, its zero point and w are given as bytes; nothing is yielded for contractions that are no product of matrices. The
    layer is the graph `part`.
    """
    node = part.nodes[at]
    if node.op.name == "contract":
        if node.params["spec"] in ("ab,bc->ac", "ab,cb->ac"):
            rows = w if node.params["spec"] == "ab,cb->ac" else w.T
            yield x[:, None, :, None], rows[None]
        return
    window, groups = node.params["window"], node.params["groups"]
    columns, rows = (
        _im2col(x, float(np.ravel(zero)[0]), window, groups),
        w.reshape(groups, len(w) // groups, w.shape[1], -1),
    )
    for order in ((0, 1), (1, 0)):
        yield _merge_axes(columns, -3, order), _merge_axes(rows, -2, order)


def _merge_axes(a: Array, first: int, order: tuple[int, int]) -> Array:
    """Return `a` with its axes of channels and taps, `first` (from the end) and the next, merged into one, in the given
    order.
    """
    a = a if order == (0, 1) else a.swapaxes(first, first + 1)
    i = a.ndim + first
    return a.reshape((*a.shape[:i], a.shape[i] * a.shape[i + 1], *a.shape[i + 2 :]))


def _im2col(x: Array, zero: float, window: Window, groups: int) -> Array:
    """Return what every output cell reads, (..., groups, channels, taps, cells); padding holds the zero point."""
    lead = x.shape[: x.ndim - window.rank]
    read = np.full((window.taps_count, *lead, *window.out), zero)
    for tap in window.taps():
        tap.write_outputs(read[window.number(tap.position)], tap.read_inputs(x))
    read = np.moveaxis(read, 0, len(lead))
    return read.reshape((*lead[:-1], groups, lead[-1] // groups, window.taps_count, -1))


def _saturation_error(columns: Array, rows: Array) -> Array:
    """Return what saturating each sum of two neighbouring products changes: (..., groups, channels, cells).

    `columns` (..., groups, K, cells) are the data, `rows` (groups, channels, K) the weights.
    """
    total = np.zeros((*columns.shape[:-2], rows.shape[1], columns.shape[-1]))
    for k in range(0, columns.shape[-2] - 1, 2):
        pair = sum(rows[:, :, j, None] * columns[..., None, j, :] for j in (k, k + 1))
        total += np.clip(pair, -(2.0**15), 2.0**15 - 1) - pair
    return total


def _follows_from_sums(
    part: Graph, given: Sequence[Array], got: Array, at: int, sums: Array, formats: Mapping[str, str]
) -> bool:
    """Return whether the result `got` of a layer `part` follows from these sums of node `at`, of its inputs `given`.

    `formats` are those of nodes in other formats.
    """
    known: dict[int, Any] = dict(zip(part.input_positions, given, strict=True))
    known[at] = Ball(sums, np.abs(sums) * growth(SCALE_ROUNDINGS, Arithmetic().u))
    if at in part.output_positions:
        return bool((got == sums).all())
    rest, inputs = section(part, part.output_positions[0], known)
    ball = radius(rest, *(known[p] for p in inputs), arithmetic=Arithmetic(execution="node"), formats=formats).outputs
    return judge_array("", got, ball).kind in ("exact", "rounding")
