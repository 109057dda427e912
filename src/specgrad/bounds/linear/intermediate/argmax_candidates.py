"""Rule out cells that cannot win a maximum, by the gaps between its taps rather than by their intervals alone.

Tap t of a window never wins where another tap s is larger on the whole box: high(x_t - x_r) < low(x_s - x_r), r being
any tap. Behind a relu that is so only where x_s > 0 as well: else both may be 0, and the first one wins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from specgrad.rounding.ball import Ball, Candidates
from specgrad.scalar import Array

from ..propagation.backward import SUMS
from ..propagation.tap_gaps import find_gaps
from ..relaxation.bound_layers import BoundMaxPool, tensor
from .forward_pass import ForwardPass


def narrow_winner(forward: ForwardPass, i: int) -> None:
    """Drop candidates of the winner at node i that cannot win; a single remaining candidate becomes exact."""
    ball, node = forward.balls[i], forward.graph.nodes[i]
    source = forward.graph.nodes[node.operands()[0]]
    behind_relu = source.op.name == "relu"
    taps = BoundMaxPool(
        i, node, source.operands()[0] if behind_relu else node.operands()[0], node.params["window"], behind_relu
    )
    if ball.candidates is None or taps.sources[0] not in forward.layers:
        return
    possible = _possible_taps(forward, taps)
    if possible is not None:
        forward.balls[i] = _keep_candidates(ball, ball.candidates, _is_possible(taps, ball.candidates, possible))


def _possible_taps(forward: ForwardPass, taps: BoundMaxPool) -> Array | None:
    """Return a bool array (taps, *shape): which taps of the max pool `taps` may win in an execution; None without
    gaps.
    """
    gaps = find_gaps(forward.state, taps)
    if gaps is None:
        return None
    apart = taps.read(tensor(forward.deviation[taps.sources[0]])[None]) * SUMS
    low = taps.read(forward.state.intervals[taps.sources[0]][0]) - apart
    inside = taps.inside(low)
    beats = inside & (low > 0) if taps.with_zero else inside
    both = apart + apart.gather(0, gaps.reference)  # gaps are those of references, and values may be apart from them
    floor = torch.where(beats, gaps.low - both, -torch.inf).amax(0)
    return np.asarray((inside & (gaps.high + both >= floor))[:, 0].numpy())


def _is_possible(taps: BoundMaxPool, candidates: Candidates, possible: Array) -> Array:
    """Return a bool per entry of `candidates`: whether it is a tap of its window that `possible` (taps, *shape) allows
    to win.
    """
    every: Any = slice(None)
    outs = candidates.outs
    is_tap = taps.index.numpy()[(every, *outs[len(outs) - taps.window.rank :])] == candidates.cells
    return np.asarray((is_tap & possible[(every, *outs)]).any(0))


def _keep_candidates(ball: Ball, candidates: Candidates, kept: Array) -> Ball:
    """Return the ball with only the candidates `kept`; one that is left alone is decided. All stay if none is kept."""
    outs, cells = candidates.outs, candidates.cells
    left = np.zeros(ball.shape, dtype=np.int64)
    np.add.at(left, outs, kept)
    kept = kept | (left[outs] == 0)  # no execution at all: nothing to say
    decided = kept & (left[outs] == 1)
    value, radius = ball.value.copy(), ball.radius.copy()
    at = tuple(o[decided] for o in outs)
    value[at], radius[at] = cells[decided], 0.0
    still = kept & ~decided
    return Ball(value, radius, Candidates(tuple(o[still] for o in outs), cells[still]) if still.any() else None)
