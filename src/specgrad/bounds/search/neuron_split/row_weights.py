"""Weights of the rows of an alternative: sum_k w_k*(row_k - target_k) > 0 excludes it, for any w >= 0.

On a box of inputs each row is at least a line b_k + a_k.x, x between -r and r. The best weights maximise

    w.b - sum over j of r_j*abs(a_j.w)          w >= 0, sum of w = 1,

a linear program. It is followed from its middle: with t_j >= abs(s_j), s = a.w, the barrier r*t - m*log(t**2 - s**2)
is least at t = m/r + sqrt((m/r)**2 + s**2), so that Newton's steps are in w alone, however many inputs there are. The
weights need not be best, nor right: what they prove is recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specgrad.bounds.linear.intermediate.forward_pass import ForwardPass
from specgrad.bounds.linear.propagation.backward import ObjectiveParts, backward
from specgrad.properties.property import Alternative, Case
from specgrad.scalar import Array, nearest_float

from ..shared.float32_bounds import flat

STEPS = 45
LEAST = 1e-12  # of a weight, so that the next step is finite
SHRINK = 0.6  # of m, at every step
BITS = 20
LARGEST_WHOLE = 1 << 53


def weights_of(b: Tensor, a: Tensor, r: Tensor) -> Tensor:
    """Best weights (..., K) of rows with offsets b (..., K) and slopes a (..., K, inputs), at radii r (..., inputs).

    >>> slopes = torch.tensor([[-1.0, 0.0, 2.0], [1.0, 1.0, -4.0]], dtype=torch.float64)
    >>> weights_of(torch.ones(2, dtype=torch.float64), slopes, torch.tensor([1.0, 1e-6, 1.0], dtype=torch.float64))
    tensor([0.6667, 0.3333], dtype=torch.float64)
    """
    scale = (b.abs() + (a.abs() * r.unsqueeze(-2)).sum(-1)).amax(-1, keepdim=True).clamp(min=torch.finfo(b.dtype).tiny)
    b, lines = b / scale, a * r.unsqueeze(-2) / scale.unsqueeze(-1)  # radii are 1 now
    w, m = torch.full_like(b, 1 / b.shape[-1]), 1.0
    best, kept = _weighted_lower(w, b, lines), w
    for _ in range(STEPS):
        w = _newton_step(w, b, lines, m)
        value = _weighted_lower(w, b, lines)
        better = value > best
        best, kept = torch.where(better, value, best), torch.where(better.unsqueeze(-1), w, kept)
        m *= SHRINK
    short: Tensor = (kept * 2**BITS).round() / 2**BITS  # products with rows of small whole numbers are then exact
    return short


def _weighted_lower(w: Tensor, b: Tensor, lines: Tensor) -> Tensor:
    """Lower bound of sum_k w_k*(b_k + lines_k.x) over x in the unit box, -1 to 1; w, b and `lines` have further axes in
    front.
    """
    return (w * b).sum(-1) - (w.unsqueeze(-2) @ lines).abs().sum((-1, -2))


def _newton_step(w: Tensor, b: Tensor, lines: Tensor, m: float) -> Tensor:
    """Return the weights w after one Newton step with barrier parameter m, shortened so that all stay positive; b and
    lines as in `_weighted_lower`.
    """
    count = w.shape[-1]
    s = (w.unsqueeze(-2) @ lines).squeeze(-2)
    root = (m * m + s * s).sqrt()
    t = m + root
    bend = m / (t * root)  # of s*s/t and similar: 1/t - s*s/(t*t*root)
    slope = b - (lines @ (s / t).unsqueeze(-1)).squeeze(-1) + m / w
    curve = (lines * bend.unsqueeze(-2)) @ lines.mT + torch.diag_embed(m / w**2 + LEAST)
    system = torch.zeros((*w.shape[:-1], count + 1, count + 1), dtype=w.dtype)
    system[..., :count, :count], system[..., count, :count], system[..., :count, count] = curve, 1.0, 1.0
    right = torch.cat([slope, torch.zeros_like(slope[..., :1])], -1)
    solved, failed = torch.linalg.solve_ex(system, right)
    d = torch.where(failed.unsqueeze(-1) == 0, solved[..., :count], 0.0).nan_to_num(0.0, 0.0, 0.0)
    reach = torch.where(d < 0, -w / d, torch.inf).amin(-1, keepdim=True)
    moved = w + d * (0.9 * reach).clamp(max=1.0)
    return moved.clamp(min=LEAST) / moved.clamp(min=LEAST).sum(-1, keepdim=True)


# --- the rows of a case -----------------------------------------------------------------------------------------------


@torch.no_grad()
def add_weighted_rows(root: ForwardPass, case: Case) -> Case:
    """Return `case` with one more row per alternative of several: their weighted sum with the best bound on the whole
    box.

    It is implied by the rows, so the set does not change; but a row that is hard to exclude alone may be easy together
    with others, such as one that says which inputs are meant. `root` is the forward pass over the case's box.
    """
    return replace(case, alternatives=tuple(_with_sum(root, case, a) for a in case.alternatives))


def _with_sum(root: ForwardPass, case: Case, alternative: Alternative) -> Alternative:
    """Return the alternative with the weighted sum of its rows as one more row, if that is exact; else unchanged.

    Weights follow from the bounds `root` over the box of `case`.
    """
    if len(alternative.limits) < 2:
        return alternative
    offsets, slopes, radius = _lines_over_inputs(root, case, alternative)
    if not bool(offsets.isfinite().all()):
        return alternative
    whole = [Fraction(v) for v in weights_of(offsets, slopes, radius).tolist()]
    sums = _integer_sum(whole, alternative.rows)
    if max(map(abs, sums)) > LARGEST_WHOLE:
        return alternative
    row = np.array([float(v) for v in sums]) / 2**BITS

    def total(limits: Sequence[Fraction]) -> Fraction:
        """Weighted sum of limits."""
        return sum((w * limit for w, limit in zip(whole, limits, strict=True)), Fraction(0))

    exact = None if alternative.exact is None else (*alternative.exact, total(alternative.exact))
    limits = (*alternative.limits, total(alternative.limits))
    return replace(alternative, rows=np.vstack([alternative.rows, row]), limits=limits, exact=exact)


def _integer_sum(weights: Sequence[Fraction], rows: Array) -> list[int]:
    """2**BITS times the weighted sum of the rows, as integers."""
    whole = [int(w * 2**BITS) for w in weights]
    return [sum(w * int(c) for w, c in zip(whole, column, strict=True)) for column in rows.T]


def _lines_over_inputs(root: ForwardPass, case: Case, alternative: Alternative) -> tuple[Tensor, Tensor, Tensor]:
    """(b, a, r) with row - limit >= b + a.x for every row of the alternative, by the bounds `root` over the box of
    `case`.

    x is measured from the middle of the box; r are its radii.
    """
    (inside,), (output,) = root.graph.input_positions, root.graph.output_positions
    rows = torch.from_numpy(alternative.rows)[None]
    slopes: dict[int, Tensor] = {}

    def told(i: int, part: ObjectiveParts, *_: Any) -> None:
        if i == inside:
            slopes[i] = part.total

    seeds = {output: rows.reshape(1, rows.shape[1], *root.graph.nodes[output].shape)}
    lower = backward(root.state, seeds, told)[0] - root.slack(output, rows)[0]
    low, high = (torch.from_numpy(np.ravel(end)) for end in case.outer())
    a = flat(slopes[inside][0]) if slopes else torch.zeros((rows.shape[1], len(low)), dtype=torch.float64)
    radius = (high - low) / 2
    limits = torch.tensor([nearest_float(limit) for limit in alternative.limits], dtype=torch.float64)
    return lower - limits + a.abs() @ radius, a, radius
