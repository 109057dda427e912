"""A convolution and its adjoint on many rows: how objectives go back through `conv` and `conv_transpose`.

PyTorch computes float64 convolutions at 1 to 2 GF/s where channels are few, and a float64 matrix product at 50. So:

    matrix    the weights of each group scattered along the window relation: one product, for windows over few cells
    points    kernels of one cell: a product of the weights with every row
    stripes   such a matrix along the last axis for each tap of the others: one product per tap
    plain     the engine's own operator
    single    the engine's own operator in float32, at 15 to 90 GF/s; the caller counts its roundings

Which one is taken follows from counting products and bytes (`seconds`). Each sums the same products in some order, some
with zeros among them, so no way meets more roundings than the layer has cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from specgrad.op import apply
from specgrad.ops.conv import CONV, CONV_TRANSPOSE
from specgrad.window import Strided, Window

MATMUL_FLOPS = 4.5e10  # products and sums per second of a float64 matrix product
SMALL_MATMUL_FLOPS = 2e10  # the same of many small ones
BYTES_PER_SECOND = 6e9  # moved per second
MAX_MATRIX_ENTRIES = 1 << 23  # entries of a matrix: 64 MB
MIN_FLOAT32_SPEEDUP = 1.5  # how much faster float32 must be


@dataclass(eq=False)
class Convolution:
    """A convolution by its weights (outputs, inputs per group, *kernel) and window, and its adjoint; matrices are
    cached.

    singles    the weights in float32, once asked for
    ways       whether float32 is asked for -> the fastest algorithm, as it was measured
    groups     groups of channels that are convolved separately
    matrices   the operator written out, by kind of matrix
    """

    weights: Tensor
    window: Window
    groups: int
    matrices: dict[str, Tensor] = field(default_factory=dict)
    singles: list[Tensor] = field(default_factory=list)
    ways: dict[bool, str] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Number of output channels, of all groups together."""
        return int(self.weights.shape[0])

    @property
    def inputs(self) -> int:
        """Number of input channels, of all groups together."""
        return int(self.weights.shape[1]) * self.groups

    @property
    def terms(self) -> int:
        """Largest number of products that a cell is a sum of, in either direction."""
        return max(self.outputs, self.inputs) // self.groups * self.window.taps_count

    def adjoint(self, a: Tensor, single: bool) -> Tensor:
        """Return the transposed convolution of `a` (rows, outputs, *out): (rows, inputs, *size).

        In float32 if `single`, else float64.
        """
        return self._apply_fastest(a, single, back=True)

    def forward(self, x: Tensor, single: bool) -> Tensor:
        """Return the convolution of x, (rows, inputs, *size): (rows, outputs, *out).

        In float32 if `single`, else float64.
        """
        return self._apply_fastest(x, single, back=False)

    def _apply_fastest(self, a: Tensor, single: bool, back: bool) -> Tensor:
        """Return the convolution, or its adjoint if `back`, of `a` by the method that `way` chooses.

        The result is float64. `single` allows float32 on the way.
        """
        way = self.way(single)
        if way == "matrix":
            shape = (self.inputs, *self.window.size) if back else (self.outputs, *self.window.out)
            blocks = self.blocks if back else self.blocks.mT
            moved = a.reshape(len(a), self.groups, -1).transpose(0, 1) @ blocks
            return moved.transpose(0, 1).reshape(len(a), *shape)
        if way == "points":
            weights = self.weights.reshape(self.groups, -1, self.weights.shape[1])
            cells = a.reshape(len(a), self.groups, -1, math.prod(self.window.out))
            return ((weights.mT if back else weights) @ cells).reshape(len(a), -1, *self.window.out)
        if way == "stripes":
            return self._apply_stripes(a, back)
        op = CONV_TRANSPOSE if back else CONV
        weights = self._single_weights if way == "single" else self.weights
        through: Tensor = apply(op, a.to(weights.dtype), weights, window=self.window, groups=self.groups)
        return through.double()

    # --- which way --------------------------------------------------------------------------------------------------

    def way(self, single: bool) -> str:
        """Name of the fastest method in float64; "single" if float32 is allowed and much faster."""
        if single not in self.ways:
            best = min(("points", "matrix", "stripes", "plain"), key=self.seconds)
            fast = single and self.seconds("single") * MIN_FLOAT32_SPEEDUP < self.seconds(best)
            self.ways[single] = "single" if fast else best
        return self.ways[single]

    def seconds(self, way: str) -> float:
        """Return the estimated seconds for one row by method `way`, from counts of products and bytes.

        Inf if it does not apply. `way` is "matrix", "stripes", "points", "plain" or "single" (plain, in float32).
        """
        w, out, size = self.window, math.prod(self.window.out), math.prod(self.window.size)
        read, written = self.outputs * out, self.inputs * size
        narrow = min(self.outputs, self.inputs) // self.groups
        if way == "matrix":
            entries = read * written // self.groups
            copies = 8 * (read + written) / BYTES_PER_SECOND if self.groups > 1 else 0.0
            return math.inf if entries > MAX_MATRIX_ENTRIES else 2 * entries / MATMUL_FLOPS + copies
        if way == "stripes":
            if w.rank < 2 or self.groups > 1 or not all(isinstance(a, Strided) for a in w.axes):
                return math.inf
            taps = math.prod(w.kernel[:-1])
            products = taps * read * self.inputs * w.size[-1]
            return 2 * products / MATMUL_FLOPS + 8 * (2 * read + (2 + 2 * taps) * written) / BYTES_PER_SECOND
        products = read * self.inputs // self.groups * w.taps_count
        if way == "points":
            each = all(isinstance(a, Strided) and a == Strided(a.size, 1, 1, a.dilation, 0, 0, a.size) for a in w.axes)
            return 2 * products / SMALL_MATMUL_FLOPS + 8 * (read + written) / BYTES_PER_SECOND if each else math.inf
        if way == "plain":
            return 2 * products / (2e8 * max(1, narrow)) + 8 * (read + written) / BYTES_PER_SECOND
        return 2 * products / min(9e10, 1.5e9 * max(2, narrow)) + 12 * (read + written) / BYTES_PER_SECOND

    # --- matrices ---------------------------------------------------------------------------------------------------

    @property
    def blocks(self) -> Tensor:
        """The matrix of each group, (groups, outputs*out, inputs*size)."""
        if "blocks" not in self.matrices:
            self.matrices["blocks"] = scattered_weights(self.weights, self.window, self.groups)
        return self.matrices["blocks"]

    @property
    def matrix(self) -> Tensor:
        """The convolution as one matrix, (outputs*out, inputs*size)."""
        if "matrix" not in self.matrices:
            self.matrices["matrix"] = torch.block_diag(*self.blocks) if self.groups > 1 else self.blocks[0]
        return self.matrices["matrix"]

    @property
    def _single_weights(self) -> Tensor:
        """Return the weights in float32, converted once and cached."""
        if not self.singles:
            self.singles.append(self.weights.float())
        return self.singles[0]

    @property
    def _stripe_matrices(self) -> Tensor:
        """Matrices along the last axis, one per tap of the leading axes: (taps, outputs*out, inputs*size)."""
        if "stripes" not in self.matrices:
            taps = math.prod(self.window.kernel[:-1])
            each = self.weights.reshape(*self.weights.shape[:2], taps, -1).movedim(2, 0).flatten(0, 1)
            self.matrices["stripes"] = scattered_weights(each, Window(self.window.axes[-1:]), taps)
        return self.matrices["stripes"]

    def _apply_stripes(self, a: Tensor, back: bool) -> Tensor:
        """Return the convolution of `a`, or its adjoint if `back`, by one matrix product per tap of the leading
        axes.
        """
        lead, matrices = Window(self.window.axes[:-1]), self._stripe_matrices
        planes, channels = (lead.size, self.inputs) if back else (lead.out, self.outputs)
        width = (self.window.size if back else self.window.out)[-1]
        rows = a.movedim(1, -2).flatten(-2)  # (rows, *lead, channels*width)
        total: Tensor = a.new_zeros((len(a), *planes, channels * width))
        for tap in lead.taps():
            matrix = matrices[lead.number(tap.position)]
            outs, ins = tap.slices()
            source, target = (outs, ins) if back else (ins, outs)
            total[(slice(None), *target)] += rows[(slice(None), *source)] @ (matrix if back else matrix.T)
        by_channel: Tensor = total.unflatten(-1, (channels, width))
        return by_channel.movedim(-2, 1)


def scattered_weights(weights: Tensor, window: Window, groups: int) -> Tensor:
    """Return the matrix of each group, float64 (groups, outputs*out, inputs*size), with weights where the window reads.

    `weights` are (groups*outputs, inputs, *kernel).

    >>> from specgrad.window import strided
    >>> window = strided("conv", (3,), (2,), stride=(1,), padding=((0, 0),))
    >>> scattered_weights(torch.tensor([[[2.0, 3.0]]]), window, 1).tolist()
    [[[2.0, 3.0, 0.0], [0.0, 2.0, 3.0]]]
    """
    per_group, inputs = weights.shape[0] // groups, weights.shape[1]
    taps = weights.double().reshape(groups, per_group, inputs, -1)
    outs, ins = math.prod(window.out), math.prod(window.size)
    number_out, number_in = np.arange(outs).reshape(window.out), np.arange(ins).reshape(window.size)
    matrix = torch.zeros((outs, ins, groups, per_group, inputs), dtype=torch.float64)
    for tap in window.taps():
        pairs = tap.read_outputs(number_out), tap.read_inputs(number_in)
        o, i = (torch.from_numpy(numbers.ravel()) for numbers in pairs)
        matrix[o, i] += taps[..., window.number(tap.position)]
    return matrix.permute(2, 3, 0, 4, 1).reshape(groups, per_group * outs, inputs * ins)
