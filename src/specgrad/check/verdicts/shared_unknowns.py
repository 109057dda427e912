"""Judge a normalisation by what its cells share: is there one mean and one deviation that explain all of a group?

With xi_i = x_i - mean(x), tau = (m - mean(x))*r for the computed m and r = 1/std, and local_i what the roundings of one
cell can cost, a group is explained in a class of kernels if there are r in [low, high] and abs(tau) <= shift*high with

    L_i <= xi_i*r - tau <= U_i,     L_i, U_i = (y_i - b_i -+ local_i)/g_i

for all of its cells. tau is eliminated: f(r) = max_i (xi_i*r - U_i) - min_j (xi_j*r - L_j) must be <= 0 somewhere. f
is convex and piecewise linear, so Newton's steps from either end never pass a root, and each rests on two cells. What
is left of [low, high] is the interval of the unknown; the mean that it leaves is put into the variance once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from specgrad.graph.graph import Graph
from specgrad.rounding.arithmetic import FORMATS, Arithmetic, growth
from specgrad.rounding.ball import Ball
from specgrad.rounding.layers.normalisation import (
    Groups,
    Passes,
    Unknowns,
    groups_of,
    normalisation_of,
    unknowns_in,
)
from specgrad.rounding.slack_constants import SLACK, U
from specgrad.scalar import Array

from .judge import Verdict
from .shared_total import are_float32, judge_total

Form = Literal["centred", "affine"]
FORMS: dict[Form, str] = {"centred": "(x - m)*r*g + b", "affine": "x*(r*g) + (b - m*r*g)"}
ONE_PASS = "one-pass-variance"
ONE_PASS_TEXT = "a variance E[x^2] - E[x]^2 by one pass"
TELLING = 1e-4  # a class that allows 1/std to be off by more explains most faults
STEPS = 60  # of Newton, from either end; fewer cuts are sound
OWN = 16 * U
"""Of our own float64: y - b, a product, a difference and a quotient on each side, relative to their sizes."""
SEEN = 1 + 1e-9  # of the mean that cells show: products, differences and a quotient, each far below
STEP = 1 - 1e-12  # a step stops short of the root by more than its own roundings


@dataclass(frozen=True, eq=False)
class SharedUnknowns:
    """What one class says of the groups of a layer.

    passes, form   the class
    explained      per group, whether one mean and one deviation explain it
    low, high      per group, the interval of 1/std that its cells leave, as a part of the exact one, less 1
    allowed        per group, the interval that the class allows, in the same way
    """

    passes: Passes
    form: Form
    explained: Array
    low: Array
    high: Array
    allowed: tuple[Array, Array]

    @property
    def room(self) -> float:
        """Return the most by which the class allows 1/std of a group to be off; inf where nothing is known of one."""
        return max((float(np.abs(a).max()) for a in self.allowed if a.size), default=0.0)

    def __str__(self) -> str:
        if not self.explained.size:
            return self.passes
        if not np.isfinite(self.room):
            return f"{self.passes}, of which nothing is known here: the variance may cancel"
        k = int(np.argmax(np.abs(self.low + self.high)))
        low, high = float(self.low[k]), float(self.high[k])
        seen = f"1/std is 1 {low:+.1e} to {high:+.1e} of the exact one, +-{self.room:.1e} allowed"
        return f"{self.passes}, as {FORMS[self.form]}: {seen}"


def shared_unknowns(
    graph: Graph, inputs: Sequence[Array], got: Array, passes: Sequence[Passes] = ("two passes",)
) -> list[SharedUnknowns]:
    """Return what each class says of a result `got` of a graph at these inputs, the first that explains it last; [] if
    the graph is no normalisation, or its cells are not in float32's reach.

    >>> import specgrad as sg
    >>> x = np.float32(np.random.default_rng(0).normal(size=(2, 64)) + 3)
    >>> graph = sg.trace(lambda x: sg.layer_norm(x, (64,)), (2, 64))
    >>> y = np.float32(graph(x.astype(float)))
    >>> shared_unknowns(graph, [x], y)[-1].explained
    array([ True,  True])
    >>> shared_unknowns(graph, [x], y * np.float32(1.0001))[-1].explained
    array([False, False])
    """
    layer = normalisation_of(graph)
    if layer is None or not all(np.isfinite(a).all() and are_float32(a) for a in inputs):
        return []
    groups = groups_of(graph, layer, inputs)
    y = np.asarray(got, float).reshape(-1)[groups.places]
    tried: list[SharedUnknowns] = []
    for name in passes:
        if name == "one pass" and not (layer.mean and layer.divisor == groups.x.shape[1]):
            continue
        for form in FORMS:
            with np.errstate(all="ignore"):  # of a deviation that may be 0 nothing is known
                tried.append(_explained(groups, y, name, form))
            if tried[-1].explained.all():
                return tried
    return tried


def _explained(groups: Groups, y: Array, passes: Passes, form: Form) -> SharedUnknowns:
    """Return what the class of these passes and this form says of the results y, a group to a row."""
    first = unknowns_in(groups, passes)
    limits = _limits(groups, y, first, form)
    fine, low, high = cut(*limits, first.low, first.high)
    if passes == "two passes" and groups.layer.mean:  # the mean that the cells show is the one that was squared
        cells, bottom, top = limits
        least = np.minimum(cells * low - top, cells * high - top).max(1, keepdims=True)
        most = np.maximum(cells * low - bottom, cells * high - bottom).min(1, keepdims=True)
        seen = np.maximum(np.abs(least), np.abs(most)) / low * SEEN
        again = unknowns_in(groups, passes, shift=np.fmin(first.shift, np.where(np.isnan(seen), np.inf, seen)))
        fine_again, low, high = cut(*limits, np.maximum(first.low, again.low), np.minimum(first.high, again.high))
        fine = fine & fine_again
    open_ = ~np.isfinite(first.high[:, 0]) | ~np.isfinite(first.r[:, 0])
    fine = (fine & _dead_cells_fit(groups, y, first, form) & np.isfinite(y).all(1)) | open_
    ends = [np.where(open_, np.inf, (a / first.r)[:, 0] - 1) for a in (low, high, first.low, first.high)]
    return SharedUnknowns(passes, form, fine, ends[0], ends[1], (ends[2], ends[3]))


def _local(groups: Groups, y: Array, at: Unknowns, form: Form) -> Array:
    """Return what the roundings of each cell can cost, given where m and r may be; docs/reference/rounding.md."""
    u, tiny = FORMATS["float32"].u, FORMATS["float32"].tiny
    g, b = np.abs(groups.g), np.abs(groups.b)
    near = np.abs(at.centred) + at.shift
    if form == "centred":
        error = growth(3, u) * near * at.high * g + u / (1 - u) * np.abs(y)
    else:
        error = growth(4, u) * (np.abs(groups.x) + np.abs(at.mean) + at.shift) * at.high * g + growth(2, u) * b
    ours = OWN * (np.abs(y) + b + np.abs(at.centred) * at.high * g)
    return np.asarray(error * SLACK + ours + 8 * tiny * (1 + g) * (1 + at.high))


def _limits(groups: Groups, y: Array, at: Unknowns, form: Form) -> tuple[Array, Array, Array]:
    """Return (xi, L, U), a group to a row; the last column bounds tau."""
    error, dead = _local(groups, y, at, form), groups.g == 0
    sign, apart = np.sign(groups.g), y - groups.b
    low, high = (apart - sign * error) / groups.g, (apart + sign * error) / groups.g
    reach = at.shift * at.high * SLACK
    low, high = np.where(dead | np.isnan(low), -np.inf, low), np.where(dead | np.isnan(high), np.inf, high)
    cells = np.concatenate([at.centred, np.zeros_like(reach)], 1)
    return cells, np.concatenate([low, -reach], 1), np.concatenate([high, reach], 1)


def _dead_cells_fit(groups: Groups, y: Array, at: Unknowns, form: Form) -> Array:
    """Return per group whether cells of factor 0 are what is added."""
    return np.asarray(~((groups.g == 0) & (np.abs(y - groups.b) > _local(groups, y, at, form))).any(1))


def cut(cells: Array, low: Array, high: Array, r_low: Array, r_high: Array) -> tuple[Array, Array, Array]:
    """Return (whether there may be an r, the least, the greatest) per row, with low <= cells*r - t <= high for some t.

    r_low, r_high   columns: where r is looked for. What is cut away holds none, however few steps are taken

    >>> rows = np.array([[1.0, -1.0]])
    >>> [a.tolist() for a in cut(rows, rows * 2 - 0.1, rows * 2 + 0.1, np.array([[0.0]]), np.array([[9.0]]))]
    [[True], [[1.9]], [[2.1]]]
    """
    fine, ends = (r_low <= r_high)[:, 0], []
    with np.errstate(all="ignore"):
        for way, start in ((1, r_high), (-1, r_low)):
            r, done = start.copy(), ~fine
            for _ in range(STEPS):
                f, slope = _worst_pair(cells, low, high, r)
                bad = (f > 0)[:, 0] & ~done
                stuck = bad & (way * slope <= 0)[:, 0]
                r = np.where((bad & ~stuck)[:, None], r - f / slope * STEP, r)
                out = bad & ((r < r_low) | (r > r_high))[:, 0]
                fine, done = fine & ~stuck & ~out, done | ~bad | stuck | out
                if done.all():
                    break
            ends.append(np.clip(r, r_low, r_high))
    return fine, ends[1], ends[0]


def _worst_pair(cells: Array, low: Array, high: Array, r: Array) -> tuple[Array, Array]:
    """Return f(r) = max (cells*r - high) - min (cells*r - low) per row, and its slope there, as columns."""
    over, under = cells * r - high, cells * r - low
    i, j = over.argmax(1)[:, None], under.argmin(1)[:, None]
    f = np.take_along_axis(over, i, 1) - np.take_along_axis(under, j, 1)
    return f, np.take_along_axis(cells, i, 1) - np.take_along_axis(cells, j, 1)


# --- verdicts ---------------------------------------------------------------------------------------------------------


def is_plain(arithmetic: Arithmetic) -> bool:
    """Return whether an arithmetic is float32 alone, of which the classes are."""
    short = arithmetic.stores or arithmetic.depth or arithmetic.cores or arithmetic.casts != "stored"
    return arithmetic.dtype == "float32" and arithmetic.rounding == "nearest" and not short


def judge_shared(
    verdict: Verdict, graph: Graph, inputs: Sequence[Array], got: Array, ball: Ball, arithmetic: Arithmetic
) -> tuple[Verdict, str]:
    """Return the verdict on the result `got` of a normalisation or a softmax, and what explains it, in words.

    A result within its ball that no mean and deviation, or no total, explain "differs"; anything else keeps its
    verdict, with "".
    ball   what each cell by itself may be
    """
    if verdict.kind not in ("exact", "rounding") or not is_plain(arithmetic):
        return verdict, ""
    tried = shared_unknowns(graph, inputs, got)
    if not tried:
        return judge_total(verdict, graph, inputs, got, ball, arithmetic)
    if tried[-1].explained.all():
        return verdict, str(tried[-1])
    return _refused(verdict, graph, inputs, got, ball, tried), ""


def _refused(
    verdict: Verdict, graph: Graph, inputs: Sequence[Array], got: Array, ball: Ball, tried: Sequence[SharedUnknowns]
) -> Verdict:
    """Return the verdict "differs" for groups that no class in `tried` explains, at the worst cell of the first."""
    layer = normalisation_of(graph)
    assert layer is not None
    groups = groups_of(graph, layer, inputs)
    k = int(np.argmax(~np.any([f.explained for f in tried], axis=0) | ~tried[-1].explained))
    places = groups.places[k]
    y = np.asarray(got, float).reshape(-1)[places]
    with np.errstate(all="ignore"):
        off = np.abs(y - ball.value.reshape(-1)[places])
    worst = int(places[int(np.argmax(np.where(np.isfinite(off), off, np.inf)))])
    index = tuple(int(i) for i in np.unravel_index(worst, ball.value.shape))
    low, high = (float(a[k]) for a in tried[-1].allowed)
    at = unknowns_in(groups, "two passes")
    gain, shift = _fitted(groups, y, at, k)
    text = f"no one mean and deviation explain group {k} in two passes, in any order: its cells fit 1/std times 1 "
    text += f"{gain:+.1e} (1 {low:+.1e} to 1 {high:+.1e} allowed)"
    reach = float(at.shift[k, 0] * at.high[k, 0])
    text += f" and a shift by {shift:+.1e} (+-{reach:.1e})" if layer.mean else ""
    text += ", each of them up to a few roundings"
    actual, expected, allowed = (float(np.asarray(a).reshape(-1)[worst]) for a in (got, ball.value, ball.radius))
    return replace(
        verdict, kind="differs", ratio=np.inf, fault="value", index=index, detail=text, actual=actual,
        expected=expected, allowed=allowed,
    )  # fmt: skip


def _fitted(groups: Groups, y: Array, at: Unknowns, k: int) -> tuple[float, float]:
    """Return 1/std over the exact one, less 1, and the shift before the factor, as least squares over the cells of
    group k see them; `at` is where they may be.
    """
    g = groups.g[k]
    columns = np.stack([at.centred[k] * at.r[k] * g, g], 1)[:, : 2 if groups.layer.mean else 1]
    fit = np.linalg.lstsq(columns, y - groups.b[k], rcond=None)[0]
    return float(fit[0]) - 1, float(fit[1]) if groups.layer.mean else 0.0


def judge_one_pass(verdict: Verdict, graph: Graph, inputs: Sequence[Array], got: Array, accepted: bool) -> Verdict:
    """Return "differs" as "other arithmetic" if a variance of one pass explains the result, as "rounding" if that is
    accepted; else the verdict.
    """
    if (verdict.kind, verdict.fault) != ("differs", "value"):
        return verdict
    tried = shared_unknowns(graph, inputs, got, ("one pass",))
    if not tried or not tried[-1].explained.all():
        return verdict
    if accepted:
        return replace(
            verdict, kind="rounding", ratio=1.0, fault="", arithmetic=ONE_PASS, detail=f"{tried[-1]}, accepted"
        )
    text = f"explained by {ONE_PASS_TEXT} ({tried[-1]})"
    text += ", as other faults would be" if tried[-1].room > TELLING else ""
    text += f"; --accept {ONE_PASS} would allow it; " + (verdict.detail or "two passes do not explain it")
    return replace(verdict, kind="other arithmetic", arithmetic=ONE_PASS, detail=text)
