"""Linear relaxations: for x in a box, lower line <= f(x) <= upper line, in float64 and rigorous as computed.

A slope may be any float64 number; the intercept is then the extreme of f(x) - slope*x over the box, moved outward by
more than its own rounding. Among several slopes the one whose line is best at the middle of the box is taken: that
leaves the least area between the line and f.

    cells    functions of one cell: relu and other piecewise linear ones exactly, smooth ones on a grid of points with
             the second-order bound curvature*step**2/8 between them
    taps     the largest of several cells: lower = the tap with the largest middle; upper = slope only on the tap
             with the largest upper end u1, (u1 - theta)/(u1 - l1) with theta = max(second largest upper end, largest
             lower end), and the tightest intercept max_i [max((1-L_i)u_i, (1-L_i)l_i) - sum_{j != i} L_j l_j].
             Where the gaps x_t - x_r to one tap r are bounded too, max x = x_r + max gap, and the gaps take these lines
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specgrad.rounding import slack_constants

U = slack_constants.U
GRID_STEPS = (1, 8, 64)  # steps of the grid for smooth functions: the fewest that leave no bulge between them
MAX_BULGE_SHARE = 2.0**-12  # times the width of the box: no bulge


class LinearRelaxation(NamedTuple):
    """lower_slope*x + lower <= f(x) <= upper_slope*x + upper; slopes may have an axis of taps in front of the cells."""

    lower_slope: Tensor
    lower: Tensor
    upper_slope: Tensor
    upper: Tensor


# --- one cell -----------------------------------------------------------------------------------------------------


def relu(low: Tensor, high: Tensor) -> LinearRelaxation:
    """Relaxation of relu on low..high: below 0 or x, whichever leaves less area; above the chord."""
    unstable = (low < 0) & (high > 0)
    passes = (low >= 0).to(low)
    width = torch.where(unstable, high - low, 1.0)
    slope = torch.where(unstable, high / width, passes)
    above = torch.where(unstable, torch.maximum(high - slope * high, -slope * low), 0.0)
    above = above + slack_constants.LINE * (above.abs() + torch.where(unstable, high, 0.0))
    return LinearRelaxation(torch.where(unstable, (high > -low).to(low), passes), torch.zeros_like(low), slope, above)


def gate(low: Tensor, high: Tensor) -> LinearRelaxation:
    """Return the relaxation of anything between 0 and x, x in low..high: from the lower line of min(x, 0) to the upper
    line of max(x, 0).
    """
    upper, mirrored = relu(low, high), relu(-high, -low)
    return LinearRelaxation(mirrored.upper_slope, -mirrored.upper, upper.upper_slope, upper.upper)


def parallel(lines: LinearRelaxation, low: Tensor, high: Tensor) -> LinearRelaxation:
    """Return two lines of one slope around `lines` on low..high: the mean slope, or for taps the lower slopes.

    lower_slope*x + lower >= slope*x + lower + min over the box of (lower_slope - slope)*x, tap by tap.
    """
    taps = lines.lower_slope.ndim > lines.lower.ndim
    slope = lines.lower_slope if taps else lines.lower_slope / 2 + lines.upper_slope / 2
    down, up = lines.lower_slope - slope, lines.upper_slope - slope
    below, above = torch.minimum(down * low, down * high), torch.maximum(up * low, up * high)
    size = (lines.lower_slope.abs() + lines.upper_slope.abs()) * torch.maximum(low.abs(), high.abs())
    count = len(slope) if taps else 1
    below, above, size = (t.sum(0) if taps else t for t in (below, above, size))
    slack = slack_constants.LINE * count * (size + lines.lower.abs() + lines.upper.abs())
    return LinearRelaxation(slope, lines.lower + below - slack, slope, lines.upper + above + slack)


def hull(
    f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, kinks: Sequence[Any], curvature: Any
) -> LinearRelaxation:
    """Return the relaxation of a unary function f on low..high: piecewise linear between `kinks` (curvature None), or
    with abs(f'') <= `curvature`.
    """
    bend = 0.0 if curvature is None else float((curvature * (high - low)).amax()) / 8 if low.numel() else 0.0
    steps = next((n for n in GRID_STEPS if bend <= MAX_BULGE_SHARE * n**2), GRID_STEPS[-1])
    share = torch.linspace(0, 1, steps + 1, dtype=low.dtype, device=low.device).view(-1, *(1,) * low.ndim)
    grid = torch.minimum(low + share * (high - low), high)
    grid[-1] = high
    points = torch.cat([grid, *(torch.full_like(low, float(k)).clamp(low, high)[None] for k in kinks)])
    values = f(points)
    size = torch.maximum(low.abs(), high.abs())
    gap = (
        high - low
    ) / steps * slack_constants.GRID_GAP + 4 * U * size  # between two points of the grid, as they were rounded
    bulge = 0.0 if curvature is None else curvature * gap**2 / 8
    slack = slack_constants.LINE * (values.abs().amax(0) + size + 1)
    slopes = _candidate_slopes(points, values, steps)
    lower, upper = (best_line(points, values, slopes, side, bulge, slack) for side in (-1, 1))
    return LinearRelaxation(*lower, *upper)


def within_unit(lines: LinearRelaxation, low: Tensor, high: Tensor) -> LinearRelaxation:
    """Return `lines` tightened on low..high, those of a function with values in -1..1: flat lines -1 and 1 where those
    are nearer at the middle.

    >>> wide = torch.tensor([-50.0]), torch.tensor([50.0])
    >>> lines = hull(torch.sin, *wide, (), torch.ones(1))
    >>> bool(lines.upper > 1), [float(t) for t in within_unit(lines, *wide)]
    (True, [0.0, -1.0, 0.0, 1.0])
    """
    middle, sides = low / 2 + high / 2, []
    for side, slope, offset in ((-1, *lines[:2]), (1, *lines[2:])):
        near = side * (slope * middle + offset) <= 1
        sides += [torch.where(near, slope, 0.0), torch.where(near, offset, float(side))]
    return LinearRelaxation(*sides)


def _candidate_slopes(points: Tensor, values: Tensor, last: int) -> Tensor:
    """Candidate slopes, (candidates, ...): chord, middle secant, extreme secants from both ends, and 0.

    `values` are those of the function at `points`; 0 and `last` are the numbers of both ends.
    """
    chord = _safe_ratio(values[last] - values[0], points[last] - points[0])
    if len(points) == 2:
        return torch.stack([chord, 0 * chord]).nan_to_num(0.0, 0.0, 0.0)
    secants = [_safe_ratio(values - values[at], points - points[at]) for at in (0, last)]
    a, b = (last - 1) // 2, (last + 2) // 2
    middle = _safe_ratio(values[b] - values[a], points[b] - points[a])
    ends = [s for each in secants for s in (each.amin(0), each.amax(0))]
    return torch.stack([chord, middle, *ends, 0 * chord]).nan_to_num(0.0, 0.0, 0.0)


def _safe_ratio(rise: Tensor, run: Tensor) -> Tensor:
    """Return rise/run, and 0 where run is 0, cell by cell."""
    return torch.where(run == 0, 0.0, rise / torch.where(run == 0, 1.0, run))


def best_line(
    points: Tensor, values: Tensor, slopes: Tensor, side: int, bulge: Any, slack: Tensor
) -> tuple[Tensor, Tensor]:
    """Slope and intercept of the line above (side 1) or below (side -1) all points that is nearest at the middle.

    values   (points, ...): the function there
    slopes   (candidates, ...): one of them is taken
    bulge    by how much the function may leave the line between two points
    slack    what rounding may do, relative to 1 + abs(slope)
    """
    middle = points.amin(0) / 2 + points.amax(0) / 2
    reach = torch.stack([(side * (values - s * points)).amax(0) for s in slopes])
    offsets = reach + bulge + slack * (1 + slopes.abs())
    at = (offsets + side * slopes * middle).nan_to_num(nan=math.inf).argmin(0, keepdim=True)
    return slopes.gather(0, at)[0], side * offsets.gather(0, at)[0]


# --- the largest of several cells -----------------------------------------------------------------------------------


def largest(low: Tensor, high: Tensor, inside: Tensor) -> LinearRelaxation:
    """Return the relaxation of the maximum over the first axis (taps) of x in low..high; taps not `inside` are ignored,
    a window without any gives 0.
    """
    nothing = torch.finfo(low.dtype).min
    lows, highs = torch.where(inside, low, nothing), torch.where(inside, high, nothing)
    middle = torch.where(inside, low / 2 + high / 2, nothing)
    top_low, at_low = lows.max(0, keepdim=True)
    order = highs.topk(min(2, len(highs)), 0)
    u1, at = order.values[:1], order.indices[:1]
    theta = torch.maximum(order.values[1:2], top_low) if len(highs) > 1 else top_low
    l1 = lows.gather(0, at)
    s1 = torch.where(u1 > theta, (u1 - theta) / torch.where(u1 > l1, u1 - l1, 1.0), 0.0).clamp(0, 1)
    alone = highs.scatter(0, at_low, nothing).amax(0, keepdim=True) <= top_low
    only = torch.zeros_like(lows).scatter(0, at_low, 1.0)
    below = torch.where(alone, only, torch.zeros_like(lows).scatter(0, middle.argmax(0, keepdim=True), 1.0))
    slope = torch.where(alone, only, torch.zeros_like(lows).scatter(0, at, s1))
    above = torch.where(
        alone[0], 0.0, intercept(torch.where(inside, low, 0.0), torch.where(inside, high, 0.0), inside, slope)
    )
    some = inside.any(0)
    return LinearRelaxation(below * some, torch.zeros_like(above), slope * some, torch.where(some, above, 0.0))


class Gaps(NamedTuple):
    """Bounds of x_t - x_r for every tap t and one reference tap r of each window, (taps, ...); r itself has the gap 0.

    reference is the number of r in its window, low and high are the bounds.
    """

    reference: Tensor
    low: Tensor
    high: Tensor

    def with_zero(self, low: Tensor, high: Tensor) -> Gaps:
        """Return the gaps with 0 as one more tap, whose gap is -x_r; low and high are the bounds of x_r."""
        least, most = (-end.gather(0, self.reference) for end in (high, low))
        return Gaps(self.reference, torch.cat([self.low, least]), torch.cat([self.high, most]))


def largest_by_gaps(low: Tensor, high: Tensor, inside: Tensor, gaps: Gaps) -> LinearRelaxation:
    """Return the relaxation of a maximum of taps in low..high with known gaps: max x = x_r + max gap; the better upper
    line of this and of `largest`.

    r may be a tap that is not `inside` here, and is read all the same.
    """
    plain, by_gaps = largest(low, high, inside), largest(gaps.low, gaps.high, inside)
    bent = by_gaps.upper_slope.scatter(0, gaps.reference, 0.0)
    slope = bent.scatter(0, gaps.reference, 1 - bent.sum(0, keepdim=True))
    counted = inside.scatter(0, gaps.reference, True)
    middle = torch.where(counted, low / 2 + high / 2, 0.0)
    size = torch.where(counted, torch.maximum(low.abs(), high.abs()), 0.0).amax(0)
    offset = by_gaps.upper + slack_constants.LINE * (1 + len(low)) * size
    better = (slope * middle).sum(0) + offset < (plain.upper_slope * middle).sum(0) + plain.upper
    better &= inside.any(0)
    return plain._replace(
        upper_slope=torch.where(better, slope, plain.upper_slope), upper=torch.where(better, offset, plain.upper)
    )


def intercept(low: Tensor, high: Tensor, inside: Tensor, slope: Tensor) -> Tensor:
    """Return the least c with max(x) <= slope.x + c for x in low..high, for any slopes >= 0; rounded up.

    Taps come first, (taps, ...); `inside` marks those that take part in the maximum.
    """
    part = slope * low
    rest = part.sum(0, keepdim=True) - part
    least = torch.maximum((1 - slope) * high, (1 - slope) * low) - rest
    least = torch.where(inside, least, torch.finfo(low.dtype).min).amax(0)
    size = torch.maximum(low.abs(), high.abs()).amax(0)
    return least + slack_constants.LINE * size * (1 + low.shape[0])


# --- smooth maxima ----------------------------------------------------------------------------------------------------


def smooth_largest(low: Tensor, high: Tensor, inside: Tensor, zeros: Tensor, beta: float) -> LinearRelaxation:
    """Return the relaxation of f(x) = log(zeros + sum exp(beta*x)) / beta over the taps inside, x in low..high; `zeros`
    counts padded taps at 0.

    Convex and submodular for beta > 0; beta < 0 is the mirror image.
    Below: for weights p of the taps and q of the zeros, all >= 0 with p + q = 1 in total, Jensen's inequality gives
        f(x) >= sum p_t*x_t + H/beta,   H = -sum p_t*log(p_t) - q*log(q/zeros),
    the tangent plane where p are the shares exp(beta*x_t)/total. Computed shares add up to 1 + d, and H is theirs:
    divided by 1 + d they are weights, which moves the sum by at most abs(d)*max(abs(x)) and H by at most
    2*abs(d)*(H + 1). No step is larger than the box and log(taps)/beta, however large beta*x is.
    Above: the plane through the upper corner (or the lower one) that drops one tap at a time; its slopes lie in 0..1.
    """
    if beta < 0:
        up = smooth_largest(-high, -low, inside, zeros, -beta)
        return LinearRelaxation(up.upper_slope, -up.upper, up.lower_slope, -up.lower)

    def f(x: Tensor) -> Tensor:
        return _log_sum(x, inside, zeros, beta)

    low, high = torch.where(inside, low, 0.0), torch.where(inside, high, 0.0)
    size, taps = torch.maximum(low.abs(), high.abs()).amax(0), low.shape[0]
    weights, entropy, defect = shares(low / 2 + high / 2, inside, zeros, beta)
    below = (entropy - 2 * defect * (entropy + 1)) / beta - defect * size
    slope, above = _plane_through_corner(f, low, high, inside)
    slack = slack_constants.SMOOTH_LINE * (1 + taps) ** 2 * (size + f(high).abs() + f(low).abs() + 1 / beta)
    some = inside.any(0)
    alone = slack_constants.LINE * f(low).abs()  # no tap inside: log(zeros)/beta, or 0
    return LinearRelaxation(
        weights, torch.where(some, below, f(low) - alone), slope, torch.where(some, above + slack, f(low) + alone)
    )


def shares(x: Tensor, inside: Tensor, zeros: Tensor, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax shares p of the taps at x, a lower bound of their entropy H, an upper bound of abs(1 - their sum).

    p are whatever numbers come out: nothing here rests on how well exp is computed, only on sums, products and log.
    Taps come first, (taps, ...); `inside` marks those in the array, `zeros` counts padded zeros of each window, and p
    is proportional to exp(beta*x).
    """
    padded = torch.where(zeros > 0, torch.log(zeros.clamp(min=1).to(x)), -math.inf)
    z = torch.cat([torch.where(inside, beta * x, -math.inf), padded.expand(x.shape[1:])[None]])
    shares = torch.softmax(z, 0).nan_to_num(0.0)
    each = torch.cat([torch.ones_like(x), zeros.clamp(min=1).to(x).expand(x.shape[1:])[None]])
    terms = torch.where(shares > 0, -shares * torch.log(shares / each), 0.0)
    rounding = slack_constants.SHARES * (len(z) + 8)
    entropy = terms.sum(0) - rounding * (terms.abs().sum(0) + 1)
    return shares[:-1], entropy, (1 - shares.sum(0)).abs() + rounding


def _log_sum(x: Tensor, inside: Tensor, zeros: Tensor, beta: float) -> Tensor:
    """The smooth maximum log(zeros + sum exp(beta*x)) / beta; 0 for a window without taps and zeros.

    Taps come first, (taps, ...); `inside` marks those that take part, `zeros` counts padded ones.
    """
    z = torch.where(inside, beta * x, -math.inf)
    padded = torch.where(zeros > 0, torch.log(zeros.clamp(min=1).to(x)), -math.inf)
    total = torch.logsumexp(torch.cat([z, padded.expand(z.shape[1:])[None]]), 0)
    return torch.where(total.isfinite(), total / beta, 0.0)


def _plane_through_corner(
    f: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, inside: Tensor
) -> tuple[Tensor, Tensor]:
    """Return slopes and intercept of a plane above a smooth maximum f, but for rounding: the caller adds its slack.

    Of two planes, through the upper and the lower corner of the box, the one that is lower at its middle. `low`,
    `high`, `inside` (False: padding) and the slopes have the taps on axis 0; results of f and the intercept lack it.
    """
    planes, middle = [], low / 2 + high / 2
    for start, other in ((high, low), (low, high)):
        base, slopes = f(start), []
        for t in range(len(low)):
            moved = start.clone()
            moved[t] = other[t]
            slopes.append(_safe_ratio(base - f(moved), start[t] - other[t]).clamp(0, 1))
        slope = torch.where(inside, torch.stack(slopes), 0.0)
        planes.append((slope, base - (slope * start).sum(0)))
    heights = [(s * middle).sum(0) + c for s, c in planes]
    first = heights[0] <= heights[1]
    return torch.where(first, planes[0][0], planes[1][0]), torch.where(first, planes[0][1], planes[1][1])
