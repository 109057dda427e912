"""Converters of PyTorch's losses and distances; aten counts reductions: 0 none, 1 mean, 2 sum. They refuse what they do
not honour, and raise ShapeError where shapes do not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...errors import ParameterError
from ...op import Value, shape_of
from ...ops.activation import clamp, softplus
from ...ops.composites import log_softmax
from ...ops.elementwise import (
    abs_,
    add,
    div,
    equal,
    exp,
    greater,
    log,
    mean,
    minimum,
    mul,
    neg,
    power,
    select,
    sqrt,
    sub,
)
from ...ops.gather import gather, take_along
from ...ops.layout import broadcast, reshape, sum_
from ...ops.max_pool import amax


def _reduce_loss(loss: Value, reduction: int) -> Value:
    """Return the loss of every cell (reduction 0), its mean (1), or its sum (2)."""
    return {0: lambda x: x, 1: mean, 2: sum_}[reduction](loss)


def _mse(self: Value, target: Value, reduction: int) -> Value:
    """Convert aten.mse_loss: (x - target)**2, reduced as `reduction` says."""
    return _reduce_loss(power(sub(self, target), 2), reduction)


def _l1(self: Value, target: Value, reduction: int) -> Value:
    """Convert aten.l1_loss: abs(x - target), reduced as `reduction` says."""
    return _reduce_loss(abs_(sub(self, target)), reduction)


def _smooth_l1(self: Value, target: Value, reduction: int, beta: Any) -> Value:
    """Convert aten.smooth_l1_loss: d*d/(2*beta) for d = abs(x - target) < beta, else d - beta/2; reduced as `reduction`
    says.
    """
    if beta == 0:
        return _l1(self, target, reduction)
    d = abs_(sub(self, target))
    near = div(mul(mul(d, d), 0.5), beta)
    return _reduce_loss(select(greater(beta, d), near, sub(d, 0.5 * beta)), reduction)


def _huber(self: Value, target: Value, reduction: int, delta: Any) -> Value:
    """Convert aten.huber_loss: d*d/2 for d = abs(x - target) <= delta, else delta*(d - delta/2); reduced as `reduction`
    says.
    """
    d = abs_(sub(self, target))
    far = mul(sub(d, 0.5 * delta), delta)
    return _reduce_loss(select(greater(d, delta), far, mul(mul(d, d), 0.5)), reduction)


def _kl_div(self: Value, target: Value, reduction: int, log_target: bool) -> Value:
    """Convert aten.kl_div: target*(log(target) - x), 0*log(0) being 0, with slope 0 (PyTorch has NaN).

    Reduced as `reduction` says; with `log_target`, the target is given by its logarithm.
    """
    if log_target:
        return _reduce_loss(mul(exp(target), sub(target, self)), reduction)
    empty = equal(target, 0)
    entropy = select(empty, 0, mul(target, log(select(empty, 1, target))))
    return _reduce_loss(sub(entropy, mul(target, self)), reduction)


def _bce_with_logits(self: Value, target: Value, weight: Any, pos_weight: Any, reduction: int) -> Value:
    """Convert aten.binary_cross_entropy_with_logits: (1 - t)*x + (1 + (p - 1)*t)*log(1 + exp(-x)), t being the target.

    p is `pos_weight`, 1 if None; it is times `weight` unless that is None, and reduced as `reduction` says.
    """
    rest = softplus(neg(self))
    if pos_weight is not None:
        rest = mul(rest, add(mul(sub(pos_weight, 1), target), 1))
    loss = add(mul(sub(1, target), self), rest)
    return _reduce_loss(loss if weight is None else mul(loss, weight), reduction)


# --- classes --------------------------------------------------------------------------------------------------------


def _at_target_class(values: Value, target: Value, axis: int) -> Value:
    """Return the cell of `values` at the target's class along an axis, without that axis."""
    shape = shape_of(target)
    index = reshape(target, (*shape[:axis], 1, *shape[axis:]))
    return reshape(take_along(values, index, axis=axis), shape)


def _class_axis(x: Value) -> int:
    """Return the axis of the classes: 1, or 0 of a single sample."""
    return min(1, len(shape_of(x)) - 1)


def _refuse_ignored(name: str, ignore_index: int) -> None:
    """Raise ParameterError in the name of the operator `name` unless ignore_index is -100: a label that is no class is
    refused where it is read.
    """
    if ignore_index != -100:
        raise ParameterError(name, f"ignore_index={ignore_index} is not supported; only -100", rule="P5")


def _nll(self: Value, target: Value, weight: Any, reduction: int, ignore_index: int) -> Value:
    """Convert aten.nll_loss_nd: -weight[t]*x[t] for the classes t in `target`; the mean is one by weights.

    Reduced as `reduction` says; `ignore_index` must be -100.
    """
    _refuse_ignored("nll_loss", ignore_index)
    loss = neg(_at_target_class(self, target, _class_axis(self)))
    if weight is None:
        return _reduce_loss(loss, reduction)
    weights = gather(weight, target, axis=0)
    loss = mul(loss, weights)
    return div(sum_(loss), sum_(weights)) if reduction == 1 else _reduce_loss(loss, reduction)


def _along_classes(weight: Value, x: Value) -> Value:
    """Return `weight`, one number per class, with axes of length 1 after the class axis of x."""
    return reshape(weight, (*shape_of(weight), *(1,) * (len(shape_of(x)) - _class_axis(x) - 1)))


def _cross_entropy(
    self: Value, target: Value, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Value:
    """Convert aten.cross_entropy_loss; `target` holds class numbers, or a share per class in the shape of the scores.

    `weight` is per class or None, `label_smoothing` the share that all classes get, `ignore_index` must be -100;
    reduced as `reduction` says.
    """
    axis = _class_axis(self)
    scores = log_softmax(self, axis)
    classes = shape_of(self)[axis]
    if shape_of(target) == shape_of(self):
        share = target
        if label_smoothing:
            share = add(mul(target, 1 - label_smoothing), label_smoothing / classes)
        weighted = scores if weight is None else mul(scores, _along_classes(weight, self))
        loss = neg(sum_(mul(share, weighted), axis))
        return div(sum_(loss), math.prod(shape_of(loss))) if reduction == 1 else _reduce_loss(loss, reduction)
    hard = _nll(scores, target, weight, reduction, ignore_index)
    if not label_smoothing:
        return hard
    weighted = scores if weight is None else mul(scores, _along_classes(weight, self))
    smooth = neg(sum_(weighted, axis))
    if reduction == 1 and weight is not None:
        even = div(sum_(smooth), sum_(gather(weight, target, axis=0)))
    else:
        even = _reduce_loss(smooth, reduction)
    return add(mul(hard, 1 - label_smoothing), mul(even, label_smoothing / classes))


# --- margins and distances ------------------------------------------------------------------------------------------


def _not_below_0(x: Value) -> Value:
    """Return the larger of x and 0, with slope 1 at 0, as aten.clamp_min has."""
    return clamp(x, 0, None)


def _hinge_embedding(self: Value, target: Value, margin: Any, reduction: int) -> Value:
    """Convert aten.hinge_embedding_loss: x where the target is 1, max(0, margin - x) where it is -1, else both.

    Reduced as `reduction` says.
    """
    apart = select(equal(target, 1), 0, _not_below_0(sub(margin, self)))
    alike = select(equal(target, -1), 0, self)
    return _reduce_loss(add(apart, alike), reduction)


def _cosine_embedding(input1: Value, input2: Value, target: Value, margin: Any, reduction: int) -> Value:
    """Convert aten.cosine_embedding_loss: 1 - cos where the target is 1, max(0, cos - margin) where it is -1.

    cos is that of input1 and input2 along the last axis; reduced as `reduction` says.
    """
    squares = [add(sum_(mul(x, x), -1), 1e-12) for x in (input1, input2)]
    cosine = div(sum_(mul(input1, input2), -1), sqrt(mul(*squares)))
    alike = select(equal(target, 1), sub(1, cosine), 0)
    apart = select(equal(target, -1), _not_below_0(sub(cosine, margin)), 0)
    return _reduce_loss(add(alike, apart), reduction)


def _margin_ranking(input1: Value, input2: Value, target: Value, margin: Any, reduction: int) -> Value:
    """Convert aten.margin_ranking_loss: max(0, margin - target*(input1 - input2)), reduced as `reduction` says."""
    return _reduce_loss(_not_below_0(add(mul(neg(target), sub(input1, input2)), margin)), reduction)


def _soft_margin(self: Value, target: Value, reduction: int) -> Value:
    """Convert aten.soft_margin_loss: log(1 + exp(-target*x)), reduced as `reduction` says."""
    return _reduce_loss(softplus(mul(neg(target), self)), reduction)


def vector_norm(self: Value, ord: Any, dim: Any, keepdim: bool) -> Value:
    """Convert aten.linalg_vector_norm of order `ord`, 1, 2 or infinity, over the axes `dim` (None: all), kept if
    `keepdim`; ParameterError for others.
    """
    axes = None if dim is None or dim == [] else dim
    if ord == 1:
        return sum_(abs_(self), axes, keepdims=keepdim)
    if ord == math.inf:
        return amax(abs_(self), axes, keepdims=keepdim)
    if ord != 2:
        raise ParameterError("linalg_vector_norm", f"ord={ord} is not supported; only 1, 2, inf", rule="P5")
    return sqrt(sum_(power(self, 2), axes, keepdims=keepdim))


def _pairwise_distance(x1: Value, x2: Value, p: Any, eps: Any, keepdim: bool) -> Value:
    """Convert aten.pairwise_distance: the p-norm of x1 - x2 + eps along the last axis, which stays if `keepdim`."""
    return vector_norm(add(sub(x1, x2), eps), p, -1, keepdim)


def _triplet(
    anchor: Value, positive: Value, negative: Value, margin: Any, p: Any, eps: Any, swap: bool, reduction: int
) -> Value:
    """Convert aten.triplet_margin_loss: max(0, margin + d(a, p) - d(a, n)); swap: the smaller of d(a, n), d(p, n).

    a, p and n are `anchor`, `positive` and `negative`, d is their distance of order p with eps; reduced as `reduction`
    says.
    """
    near = _pairwise_distance(anchor, positive, p, eps, False)
    far = _pairwise_distance(anchor, negative, p, eps, False)
    if swap:
        far = minimum(far, _pairwise_distance(positive, negative, p, eps, False))
    return _reduce_loss(_not_below_0(sub(add(near, margin), far)), reduction)


def _cosine_similarity(x1: Value, x2: Value, dim: int, eps: Any) -> Value:
    """Convert aten.cosine_similarity: the product of x1 and x2 along the axis `dim`, each over its norm, which counts
    at least eps.

    Below eps the slope of that is 0; PyTorch takes the norm's.
    """
    shape = tuple(max(a, b) for a, b in zip(shape_of(x1), shape_of(x2), strict=True))
    vectors = [broadcast(x, shape) for x in (x1, x2)]
    units = [div(x, clamp(vector_norm(x, 2, [dim], True), eps, None)) for x in vectors]
    return sum_(mul(*units), dim)


CONVERTERS: dict[str, Callable[..., Value]] = {
    "mse_loss.default": _mse,
    "l1_loss.default": _l1,
    "smooth_l1_loss.default": _smooth_l1,
    "huber_loss.default": _huber,
    "kl_div.default": _kl_div,
    "binary_cross_entropy_with_logits.default": _bce_with_logits,
    "nll_loss_nd.default": _nll,
    "cross_entropy_loss.default": _cross_entropy,
    "hinge_embedding_loss.default": _hinge_embedding,
    "cosine_embedding_loss.default": _cosine_embedding,
    "margin_ranking_loss.default": _margin_ranking,
    "soft_margin_loss.default": _soft_margin,
    "triplet_margin_loss.default": _triplet,
    "linalg_vector_norm.default": vector_norm,
    "pairwise_distance.default": _pairwise_distance,
    "cosine_similarity.default": _cosine_similarity,
}
