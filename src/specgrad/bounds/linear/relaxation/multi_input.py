"""Layers with several sources: products, the larger of two, and values put at positions that are open.

bilinear    f(x, y) = f(x, my) + f(mx, y) - f(mx, my) + f(x - mx, y - my): linear but for the last term, which is at
            most f on the radii. Its slopes are the operator's own cotangents at the middle (mx, my)
quotient    x/y = mx/my + (x - mx)/my - mx*(y - my)/my**2 + (y - my)/(my*y)*(mx*(y - my)/my - (x - mx)): the plane that
            touches it at the middle, and a last term of second order. Without it a norm, which divides by the
            deviation of its own cells, would pass on an interval
larger      max(x, y), min(x, y): the lines of a maximum with two taps
routed      put(g, i) where i may be one of several positions: A.put(g, i) = sum_p A[i_p]*g_p, so what counts is the
            least and the greatest A of a value's candidates
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specgrad.graph.graph import Node
from specgrad.op import apply
from specgrad.rounding import slack_constants
from specgrad.rounding.ball import Ball
from specgrad.scalar import Array

from . import formulas as relax
from .bound_layers import BackwardBound, BoundContext, BoundJoint, Interval, positive_negative, rows_dot, tensor


def middle_and_radius(ends: Interval) -> tuple[Tensor, Tensor]:
    """Middle and radius of an interval `ends` (low, high), the radius rounded up."""
    low, high = ends
    middle = low / 2 + high / 2
    return middle, torch.maximum(high - middle, middle - low) * slack_constants.MIDDLE


# --- products -------------------------------------------------------------------------------------------------------


class BoundBilinear(BoundJoint):
    """A product: linear in each of two sources, which may be the same node.

    `args`: a shape per argument that varies, a tensor or a number for a constant one; position, node and sources as in
    `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], args: Sequence[Any]) -> None:
        super().__init__(position, node, sources)
        self.args = args
        self.varying = [k for k, a in enumerate(args) if isinstance(a, tuple)]

    def _arguments_at(self, x: Tensor, y: Tensor) -> list[Any]:
        """Return the operator's arguments with tensors x and y in place of the two that vary, constants unchanged."""
        given = list(self.args)
        given[self.varying[0]], given[self.varying[1]] = x, y
        return given

    def _value_at(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the value of the operator with x and y for its two varying arguments."""
        value: Tensor = apply(self.node.op, *self._arguments_at(x, y), **self.node.params)
        return value

    def _cotangents(self, gy: Tensor, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        """Return the cotangents of both varying arguments at x and y, from `gy`, that of the result."""
        cotangents = self.node.op.cotangents(gy, None, self._arguments_at(x, y), self.node.params)
        return tuple(cotangents[k] for k in self.varying)

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.f(x, y) for coefficients `a` (boxes, rows, *shape): f linearised at the middles, the
        product of radii as loss.
        """
        (mx, rx), (my, ry) = (middle_and_radius(context.interval(s)) for s in self.sources)
        mx, my, rx, ry = (t.expand(len(a), *t.shape[1:]) for t in (mx, my, rx, ry))
        pulled = torch.func.vmap(torch.func.vmap(self._cotangents, (0, None, None)))(a, mx, my)
        value = torch.func.vmap(self._value_at)
        fixed = value(0 * mx, 0 * my)  # a bias that does not vary
        rest = (value(rx, ry) - fixed).abs() * slack_constants.CORNER
        constant = rows_dot(a, 2 * fixed - value(mx, my)) - rows_dot(a.abs(), rest)
        if self.node.op.name == "mul" and self.sources[0] == self.sources[1]:  # the last term is a square
            constant = constant + (rows_dot(a, rest) + rows_dot(a.abs(), rest)) / 2
        return BackwardBound(list(pulled), constant)


def _float64(x: Any) -> Tensor:
    """Return a constant argument as a float64 tensor; PyTorch would take a Python number for float32."""
    return x.double() if isinstance(x, Tensor) else torch.tensor(float(x), dtype=torch.float64)


# --- quotients ------------------------------------------------------------------------------------------------------


class BoundQuotient(BoundJoint):
    """A quotient x/y whose divisor varies: its tangent plane, or the node's own interval in cells where that is nearer.

    `args`: a shape per argument that varies, a tensor or a number for a constant numerator; position, node and sources
    as in `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], args: Sequence[Any]) -> None:
        super().__init__(position, node, sources)
        self.args = args

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.(x/y) for coefficients `a` (boxes, rows, *shape): the plane, and what it lacks as
        loss.
        """
        low, high = context.interval(self.position)
        ends = iter([context.interval(s) for s in self.sources])
        (mx, rx), (my, ry) = (
            middle_and_radius(next(ends)) if isinstance(arg, tuple) else (_float64(arg), torch.zeros(()))
            for arg in self.args
        )
        ratio, rest = mx / my, quotient_remainder(mx, rx, my, ry)
        fixed = ratio if isinstance(self.args[0], tuple) else 2 * ratio
        value, half = low / 2 + high / 2, (high / 2 - low / 2) * slack_constants.MIDDLE
        bent = rest < half
        slopes = [torch.where(bent, s, 0.0) for s in (1 / my, -ratio / my)]
        constant = rows_dot(a, torch.where(bent, fixed, value)) - rows_dot(a.abs(), torch.where(bent, rest, half))
        pulled = [a * s.unsqueeze(1) for s, arg in zip(slopes, self.args, strict=True) if isinstance(arg, tuple)]
        return BackwardBound(pulled, constant)


def quotient_remainder(mx: Tensor, rx: Tensor, my: Tensor, ry: Tensor) -> Tensor:
    """Return a bound of abs(x/y - plane) for x within rx of mx and y within ry of my, the plane touching x/y there.

    With p = x - mx and q = y - my it is q/(my*y)*(mx*q/my - p) exactly, and abs(y) >= abs(my) - ry; infinite where y
    may be 0. What is small is divided first: a product of two radii may be below all numbers, and the quotient not.

    >>> one, some = torch.tensor([1.0, 0.125], dtype=torch.float64)
    >>> round(float(quotient_remainder(one, 0 * one, one, some)), 9)  # 1/0.875 - (1 + 0.125)
    0.017857143
    """
    least = (my.abs() - ry) / slack_constants.CORNER
    rest = ry / my.abs() * ((rx + (mx / my).abs() * ry) / least) * slack_constants.CORNER
    return torch.where(least > 0, rest, torch.inf)


# --- the larger of two ------------------------------------------------------------------------------------------------


class BoundMaximum(BoundJoint):
    """Elementwise maximum or minimum of two arguments, of which one may be constant.

    `args`: a shape per argument that varies, a tensor or a number for a constant one; position, node and sources as in
    `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], args: Sequence[Any]) -> None:
        super().__init__(position, node, sources)
        self.args = args
        self.sign = 1 if node.op.name == "maximum" else -1

    def _argument_intervals(self, ends: Sequence[Interval]) -> list[Interval]:
        """Intervals of both arguments, negated for a minimum; `ends` are those of the arguments that vary."""
        rest, like, mirrored = iter(ends), ends[0][0], []
        for arg in self.args:
            low, high = next(rest) if isinstance(arg, tuple) else (_float64(arg),) * 2
            low, high = (t.expand(like.shape) for t in (low, high))
            mirrored.append((low, high) if self.sign > 0 else (-high, -low))
        return mirrored

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.max(x, y), or min, for coefficients `a` (boxes, rows, *shape), by planes around the
        larger of both.
        """
        both = self._argument_intervals([context.interval(s) for s in self.sources])
        low, high = (torch.stack(t) for t in zip(*both, strict=True))
        left = context.candidate_taps.get(self.position, torch.ones_like(low) > 0)
        lines = relax.largest(low.expand(left.shape), high.expand(left.shape), left)
        positive, negative = positive_negative(self.sign * a)
        constant = rows_dot(positive, lines.lower) + rows_dot(negative, lines.upper)
        pulled = []
        for k, arg in enumerate(self.args):
            part = positive * lines.lower_slope[k].unsqueeze(1) + negative * lines.upper_slope[k].unsqueeze(1)
            if isinstance(arg, tuple):
                pulled.append(self.sign * part)
            else:
                constant = constant + rows_dot(part, both[k][0])
        return BackwardBound(pulled, constant)


# --- open positions ---------------------------------------------------------------------------------------------------


class BoundScatter(BoundJoint):
    """put(g, i), a scatter-add, whose indices i are undecided; g varies or is constant.

    `gy` is the ball of g, `index` that of i; position, node and sources as in `BoundLayer`.
    """

    def __init__(self, position: int, node: Node, sources: tuple[int, ...], gy: Ball, index: Ball) -> None:
        super().__init__(position, node, sources)
        self.value = tensor(gy.value)[None]
        self.lead = math.prod(gy.shape[: len(gy.shape) - len(node.params["size"])])
        cells, possible = candidates(index, math.prod(node.params["size"]))
        self.cells, self.impossible = torch.from_numpy(cells), torch.from_numpy(~possible)

    def bound_backward(self, a: Tensor, context: BoundContext) -> BackwardBound:
        """Return the bound of a.put(g) for coefficients `a` (boxes, rows, *shape): each value goes where its
        coefficient is least or greatest.
        """
        least, most = self._extreme_coefficients(a)
        if not self.sources:
            return BackwardBound([], rows_dot(least, self.value.clamp(min=0)) + rows_dot(most, self.value.clamp(max=0)))
        low, high = (e.unsqueeze(1) for e in context.interval(self.sources[0]))
        chord = (least * high - most * low) / torch.where(high > low, high - low, 1.0)
        slope = torch.where(low >= 0, least, torch.where(high <= 0, most, chord))
        offset = torch.minimum((most - slope) * low, (least - slope) * high)
        offset = offset - slack_constants.LINE * (most.abs() + least.abs()) * torch.maximum(low.abs(), high.abs())
        return BackwardBound([slope], torch.where((low >= 0) | (high <= 0), 0.0, offset).flatten(2).sum(2))

    def _extreme_coefficients(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Least and greatest coefficient of `a` over every value's candidate cells, each (boxes, rows, *shape of g)."""
        flat = torch.nn.functional.pad(a.reshape(*a.shape[:2], self.lead, -1), (0, 1))
        index = self.cells.reshape(1, 1, self.lead, -1)
        with_external_data = flat.gather(3, index.expand(*a.shape[:2], *index.shape[2:])).reshape(
            a.shape[:2] + self.cells.shape
        )
        least, most = (with_external_data.masked_fill(self.impossible, end) for end in (math.inf, -math.inf))
        return least.amin(-1), most.amax(-1)


def candidates(index: Ball, size: int) -> tuple[Array, Array]:
    """Return the table (*shape, most) of cells that each value may go to, and the mask of valid entries.

    `index` is the ball of positions; the cell `size`, one past the last, means dropped. An exact position is its only
    candidate.
    """
    exact = index.radius.reshape(-1) == 0
    cells, owners = index.value.reshape(-1)[exact], np.flatnonzero(exact)
    if index.candidates is not None:
        cells = np.concatenate([cells, index.candidates.cells])
        owners = np.concatenate([owners, np.ravel_multi_index(index.candidates.outs, index.shape)])
    order = np.argsort(owners, kind="stable")
    cells, owners = cells[order], owners[order]
    number = np.arange(len(owners)) - np.searchsorted(owners, owners)
    table = np.full((index.value.size, int(number.max(initial=0)) + 1), size, dtype=np.int64)
    possible = np.zeros(table.shape, dtype=bool)
    table[owners, number], possible[owners, number] = np.where(cells < 0, size, cells), True
    return table.reshape(*index.shape, -1), possible.reshape(*index.shape, -1)
