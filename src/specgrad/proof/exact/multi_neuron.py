"""Multi-neuron relaxation over rationals: relus that read the same few cells are bounded together.

At one position of a convolution an objective a sees g(x) = sum_c a_c*relu(w_c.x + b_c) of n cells x, and

    g(x) >= m.x + min over the 2**n pieces of the box of min_x (line of g on the piece - m.x)      for any vector m.

On a piece lo <= w_c.x + b_c <= hi, and a*relu(z) >= s*z + k with s = a or 0 and k = 0 where a >= 0 or the sign is
settled, else with any s and k = min(-s*lo, (a - s)*hi). Everything is a whole number over a power of two.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from specgrad.graph.graph import Graph, Node
from specgrad.scalar import Array
from specgrad.window import Window

from ..base.rationals import ReplayError, objects, rational, rationals, zeros
from .node_ranges import NodeRange

MAX_CELLS = 6  # read by one position: 64 pieces
VECTOR_FRAC_BITS = 20  # of m
OBJECTIVE_FRAC_BITS = 64  # of a, which is rounded; what that may cost is lost


def frac_bits_of(x: Array) -> int:
    """Return how many binary places the rationals need; raise ReplayError if one is not dyadic."""
    most = max((int(v.q) for v in x.flat), default=1)
    if any(most % int(v.q) for v in x.flat) or most & (most - 1):
        raise ReplayError("pieces need numbers with finitely many binary places")
    return most.bit_length() - 1


def round_scaled(x: Array, frac_bits: int) -> Array:
    """Return rationals times 2**frac_bits, rounded to the nearest integer."""
    return objects([((int(v.p) << frac_bits) * 2 + int(v.q)) // (2 * int(v.q)) for v in x.flat], x.shape)


@dataclass(frozen=True, eq=False)
class SplitConv:
    """A convolution whose input boxes are cut into 2**n pieces; integers over 2**frac_bits (weights over
    2**weight_frac_bits).

    middle, reach   (positions, pieces, cells) and (positions, 1, cells) of x
    low, high       (positions, pieces, channels) of the convolution
    window, shape   the convolution's window, and the shape of what it reads
    weight, bias    as integers: one row per output channel, and what is added to it
    """

    window: Window
    shape: tuple[int, ...]
    weight: Array
    bias: Array
    weight_frac_bits: int
    frac_bits: int
    middle: Array
    reach: Array
    low: Array
    high: Array

    def through(self, a: Array, m: Array) -> tuple[Array, Any]:
        """Return (coefficients of x, constant): a lower bound of an objective a (positions, channels) of the relus.

        m   (positions, cells): the vectors, which become the coefficients
        """
        up = OBJECTIVE_FRAC_BITS
        slope, offset = self._lines(round_scaled(a, up)[:, None])
        vector = round_scaled(m, up + self.weight_frac_bits)[:, None]
        rest = _product(slope, self.weight) - vector
        shift = self.frac_bits - self.weight_frac_bits
        constant = (slope * (self.bias << shift) + offset).sum(-1)
        least = (rest * self.middle - np.abs(rest) * self.reach).sum(-1) + constant
        smallest = rational(int(least.min(1).sum()), 1 << (up + self.frac_bits))
        largest = int(np.maximum(np.abs(self.low), np.abs(self.high)).max(1).sum())
        return self._spread(m), smallest - rational(largest, 1 << (up + self.frac_bits))

    def _lines(self, a: Array) -> tuple[Array, Array]:
        """Return slopes s and offsets k, each (positions, pieces, channels), with a*relu(z) >= s*z + k on every piece,
        for coefficients `a` of the relus over 2**OBJECTIVE_FRAC_BITS.
        """
        low, high, zero = self.low, self.high, np.array(0, dtype=object)
        settled = (low >= 0) | (high <= 0)
        plain = np.where((low >= 0) | (~settled & (high > -low)), a, zero)
        bent = ~settled & (a < 0)
        width = np.where(bent, high - low, 1)
        slope = np.where(bent, a * high // width, plain)
        offset = np.where(bent, np.minimum(-slope * low, (a - slope) * high), zero)
        return slope, offset

    def _spread(self, m: Array) -> Array:
        """Return vectors m (positions, cells) as coefficients in the shape of the convolution's input, summed where
        they meet.
        """
        batch, channels = self.shape[:2]
        coefficients = zeros(self.shape)
        each = m.reshape(batch, *self.window.out, channels, -1)
        for tap in self.window.taps():
            part = np.moveaxis(each[..., self.window.number(tap.position)], -1, 1)
            tap.add_to_inputs(coefficients, tap.read_outputs(part))
        return coefficients


def split_conv(conv: Node, weight: Array, bias: Array | None, x: NodeRange) -> SplitConv:
    """Return the convolution node `conv`, of few cells in one group, with its input range `x` cut into pieces.

    `weight` and `bias` (None: 0) are exact. ReplayError for a convolution in another form.
    """
    bias = zeros(weight.shape[:1]) if bias is None else bias
    kx, kw = frac_bits_of(np.concatenate([x.low.ravel(), x.high.ravel()])), frac_bits_of(np.append(weight, bias))
    low, high = (input_patches(round_scaled(end, kx), conv) for end in (x.low, x.high))
    cells = low.shape[1]
    quarters = np.array(list(itertools.product((1, 3), repeat=cells)), dtype=object)
    middle, reach = 4 * low[:, None] + quarters * (high - low)[:, None], (high - low)[:, None]  # over 2**(kx + 2)
    rows = round_scaled(weight.reshape(len(weight), cells), kw)
    offset = round_scaled(bias, kw)
    z = _product(middle, rows.T) + (offset << (kx + 2))
    r = _product(reach, np.abs(rows).T)
    return SplitConv(conv.params["window"], x.low.shape, rows, offset, kw, kx + 2 + kw, middle, reach, z - r, z + r)


def checked_vectors(given: Array, name: str, shape: tuple[int, ...]) -> Array:
    """Return `given`, the vectors m of a file for node `name`, as rationals; raise ReplayError unless they are integers
    of `shape` (positions, cells).
    """
    if given.shape != shape or given.dtype.kind != "i":
        raise ReplayError(f"the vectors of node {name} must be whole, of {shape}")
    return np.asarray(rationals(given) * rational(1, 1 << VECTOR_FRAC_BITS))


def by_position(a: Array) -> Array:
    """Return an array `a` (batch, channels, *out) as (positions, channels)."""
    return np.moveaxis(a, 1, -1).reshape(-1, a.shape[1])


def conv_behind_relu(graph: Graph, relu: Node) -> tuple[int, int]:
    """Return the positions of the convolution that a relu reads, and of what that reads; else raise ReplayError."""
    if relu.op.name == "relu":
        (position,) = relu.operands()
        conv = graph.nodes[position]
        if conv.op.name == "conv" and isinstance(conv.args[0], int):
            return position, conv.args[0]
    raise ReplayError(f"node {relu.name} is no relu of a convolution by itself")


def input_patches(x: Array, conv: Node) -> Array:
    """Return the input x of `conv`, (batch, channels, *size), as (positions, cells that one position reads), 0 in the
    padding.

    ReplayError for over MAX_CELLS cells, several groups, or not one batch axis.
    """
    window: Window = conv.params["window"]
    if x.ndim != 2 + len(window.out):
        raise ReplayError(f"pieces need one batch axis; what node {conv.name} reads has the shape {x.shape}")
    if conv.params["groups"] != 1 or x.shape[1] * math.prod(window.kernel) > MAX_CELLS:
        raise ReplayError(f"node {conv.name} is no convolution of at most {MAX_CELLS} cells in one group")
    batch, channels = x.shape[:2]
    patches = np.full((batch, channels, *window.out, math.prod(window.kernel)), 0, dtype=object)
    for tap in window.taps():
        tap.write_outputs(patches[..., window.number(tap.position)], tap.read_inputs(x))
    return np.moveaxis(patches, 1, -2).reshape(batch * math.prod(window.out), -1)


def _product(x: Array, matrix: Array) -> Array:
    """Return x @ matrix for object arrays, over the last axis of x."""
    return np.asarray(np.dot(x.reshape(-1, x.shape[-1]), matrix)).reshape(*x.shape[:-1], matrix.shape[1])
