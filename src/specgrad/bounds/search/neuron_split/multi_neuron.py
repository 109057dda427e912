"""Relus of a convolution that read the same few cells, bounded together: their common box is cut into pieces.

At one position of a convolution all channels read the same n cells x, so what an objective A sees of it is one function

    g(x) = sum_c A_c * relu(w_c.x + b_c)        of n variables, on their box.

A line for every relu by itself gives away most of it. For any vector m, however, g(x) >= m.x + min_x (g(x) - m.x), and
where n is small that minimum is found nearly exactly: the box is halved along every variable, and on each of the 2**n
pieces most relus have one sign, the others their two lines. The m of all positions are looked for by gradient steps,
each of which gives a rigorous bound; m.x goes on down to the inputs like any objective.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.propagation.adam import Adam
from specgrad.bounds.linear.propagation.backward import State, backward
from specgrad.bounds.linear.relaxation import formulas as relax
from specgrad.bounds.linear.relaxation.bound_layers import (
    BackwardBound,
    BoundContext,
    BoundJoint,
    BoundLinear,
    BoundMaxPool,
    positive_negative,
    rows_dot,
)
from specgrad.rounding import slack_constants

MAX_CELLS_READ = 6  # that one position reads: 64 pieces
MAX_TERMS = 1 << 23  # rows * positions * pieces * channels at once
STEPS = 100
RATE, DECAY = 0.097, 0.97  # of the steps on m, times its root mean square


class BoundMultiNeuron(BoundJoint):
    """relu(conv(x)) as one layer that reads x, bounded with one free vector m per row; `moved` is m's optimised change.

    relu is the node at that position of the network that `state` bounds; `rows` counts the rows.
    """

    def __init__(self, state: State, relu: int, rows: int) -> None:
        conv = state.layers[state.layers[relu].sources[0]]
        assert isinstance(conv, BoundLinear)
        super().__init__(relu, state.layers[relu].node, conv.sources)
        self.window, self.charge = conv.node.params["window"], state.rounding_cost(conv.position)
        self.taps = BoundMaxPool(0, conv.node, 0, self.window, False)
        self.weight = conv.args[1].flatten(1)  # (channels, cells read)
        self.bias = conv.args[2] if len(conv.args) > 2 else self.weight.new_zeros(len(self.weight))
        self._make_pieces(*(self.read(end)[0] for end in state.intervals[conv.sources[0]]))
        self.vector = torch.zeros(())  # the last m, (rows, positions, cells read)
        self.moved = torch.zeros(rows, *self.size.shape, dtype=torch.float64, requires_grad=True)

    # --- cells ------------------------------------------------------------------------------------------------------

    def read(self, x: Tensor) -> Tensor:
        """Return (boxes, batch, channels, *size) gathered into (boxes, positions, cells read)."""
        patches = self.taps.read(x).movedim(0, 3)  # (boxes, batch, channels, taps, *out)
        return patches.flatten(2, 3).movedim(2, -1).flatten(1, -2)

    def spread(self, m: Tensor, shape: torch.Size) -> Tensor:
        """Scatter-add m (rows, positions, cells read) to an array of `shape`: the transpose of `read`."""
        batch, channels, cells = shape[0], shape[1], shape[2:].numel()
        each = m.reshape(len(m), batch, -1, channels, self.window.taps_count).movedim(2, -1)
        index = self.taps.index.flatten()
        total = m.new_zeros(len(m), batch, channels, cells + 1).index_add(-1, index, each.flatten(-2))
        return total[..., :-1].reshape(1, len(m), *shape)

    def _make_pieces(self, low: Tensor, high: Tensor) -> None:
        """Cut the boxes low..high of the cells read into pieces; set their middles and radii, (positions, pieces, cells
        read), and the relaxations of all relus on them.
        """
        self.size = torch.maximum(low.abs(), high.abs())
        halves = torch.tensor(list(itertools.product((0.25, 0.75), repeat=low.shape[1])), dtype=low.dtype)
        self.middle = low[:, None] + halves * (high - low)[:, None]
        self.reach = ((high - low) / 4 * slack_constants.MIDDLE + slack_constants.LINE * self.size)[:, None]
        self.lines = self._relu_lines(self.middle, self.reach)
        self.whole = self._relu_lines((low / 2 + high / 2)[:, None], ((high - low) / 2)[:, None])

    def _relu_lines(self, middle: Tensor, reach: Tensor) -> relax.LinearRelaxation:
        """Relaxations of the relus on boxes from middle - reach to middle + reach."""
        z, r = middle @ self.weight.T + self.bias, reach @ self.weight.abs().T
        slack = self._own_rounding * (self.size @ self.weight.abs().T + self.bias.abs())[:, None]
        return relax.relu(z - r - slack, z + r + slack)

    @property
    def _own_rounding(self) -> float:
        """Upper bound of the relative rounding error of one of our terms."""
        return slack_constants.PIECES * (len(self.size) + len(self.weight) + int(self.weight.shape[1]) + 32)

    # --- bounds -----------------------------------------------------------------------------------------------------

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.y for coefficients `a` (1, rows, *shape): slopes m over the cells read, and the least
        rest over all pieces.

        m is stored in `vector`.
        """
        rows = a[0].movedim(2, -1).flatten(1, -2)  # (rows, positions, channels)
        start = self._slopes_on_pieces(rows, self.whole)[0][:, :, 0]
        m = start + start.square().mean((1, 2), keepdim=True).sqrt() * self.moved
        self.vector = m.detach()
        slope, constant = self._slopes_on_pieces(rows, self.lines)
        rest = slope - m.unsqueeze(2)
        least = (rest * self.middle).sum(-1) - (rest.abs() * self.reach).sum(-1) + constant
        lost = self._own_rounding * self._term_sizes(rows, m) + rows_dot(a.abs(), self.charge)[0]
        pulled = self.spread(m, context.interval(self.sources[0])[0].shape[1:])
        return BackwardBound([pulled], (least.amin(2).sum(1) - lost)[None])

    def _slopes_on_pieces(self, rows: Tensor, lines: relax.LinearRelaxation) -> tuple[Tensor, Tensor]:
        """Slope and constant with sum_c A_c*relu_c >= slope.x + constant on every piece: (rows, positions, pieces[,
        cells]).

        `rows` are the coefficients A, `lines` the relus' relaxations on the pieces.
        """
        positive, negative = positive_negative(rows.unsqueeze(2))
        s = positive * lines.lower_slope + negative * lines.upper_slope
        return s @ self.weight, s @ self.bias + (negative * lines.upper).sum(-1) + (positive * lines.lower).sum(-1)

    def _term_sizes(self, rows: Tensor, m: Tensor) -> Tensor:
        """Sum of the absolute values of a row's terms: coefficients times relus, slopes m times cells read."""
        each = self.size @ self.weight.abs().T + self.bias.abs()
        sizes: Tensor = 4 * (rows.abs() * each).sum((1, 2)) + 4 * (m.abs() * self.size).sum((1, 2))
        return sizes


def fits(state: State, relu: int, rows: int) -> bool:
    """Whether a relu reads a convolution of one group with so few cells per position that pieces can be enumerated.

    `rows` is the number of objectives for which they are.
    """
    layer = state.layers[relu]
    if layer.node.op.name != "relu" or not layer.sources:  # what does not vary reads nothing
        return False
    conv = state.layers.get(layer.sources[0])
    if not isinstance(conv, BoundLinear) or conv.node.op.name != "conv" or conv.varying != [0]:
        return False
    if len(conv.node.shape) != 2 + len(conv.node.params["window"].out):
        return False
    cells = int(conv.args[1][0].numel())
    terms = rows * math.prod(conv.node.shape) * 2**cells
    return conv.node.params["groups"] == 1 and cells <= MAX_CELLS_READ and terms <= MAX_TERMS


def piecewise(
    forward: ForwardPass, rows: Tensor, targets: Tensor, deadline: float, kept: dict[int, Tensor] | None = None
) -> Tensor:
    """Rigorous lower bounds of rows (rows, outputs) by multi-neuron relaxation; -inf where no relu fits.

    `targets` are what each row's bound must exceed: steps end there.

    kept   gets the best m of every row, by the position of a relu
    """
    state, best = forward.state, torch.full((len(rows),), -torch.inf, dtype=torch.float64)
    read = {s for layer in state.layers.values() for s in layer.sources}  # other relus stand in a max_pool's lines
    cut = [i for i in state.layers if i in read and fits(state, i, len(rows))]
    (output,) = forward.graph.output_positions
    if not cut or output not in state.layers:  # an output that does not vary is known, and nothing of it is gained
        return best
    layers = [BoundMultiNeuron(state, i, len(rows)) for i in cut]
    changed = replace(state, layers={**state.layers, **dict(zip(cut, layers, strict=True))})
    seeds = {output: rows.reshape(1, len(rows), *forward.graph.nodes[output].shape)}
    slack = forward.slack(output, rows[None])[0]
    adam = Adam([layer.moved for layer in layers], RATE, DECAY)
    for _ in range(STEPS):
        lower = backward(changed, seeds)[0] - slack
        if kept is not None:
            _store_vectors(kept, layers, lower.detach() > best)
        best = torch.maximum(best, lower.detach())
        if bool((best >= targets).all()) or time.monotonic() > deadline or not lower.requires_grad:
            break
        adam.step(torch.autograd.grad(lower.sum(), adam.parameters))
    return best


def _store_vectors(kept: dict[int, Tensor], layers: Sequence[BoundMultiNeuron], better: Tensor) -> None:
    """Store the layers' vectors m in `kept`, by the position of a relu, for the rows where `better` (a bool per row) is
    true; other rows keep theirs.
    """
    for layer in layers:
        old = kept.get(layer.position, layer.vector)
        kept[layer.position] = torch.where(better[:, None, None], layer.vector, old)
