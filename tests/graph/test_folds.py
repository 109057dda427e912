"""Folds with any function, minima, shapes without arrays: against plain loops and PyTorch."""

from __future__ import annotations

import functools
from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as T

import specgrad as sg
import specgrad.functional as F
from specgrad.ops import sample_inputs

pytestmark = pytest.mark.quick


def horner(so_far, cell):
    return so_far * 2 - cell  # neither commutative nor associative: the order shows


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 1, 3, 2), (0, 3)], ids=str)
def test_fold_is_pythons_reduce(shape) -> None:
    rng = Random(str(shape))
    x = sample_inputs.numbers(rng, shape)
    for rank in range(1, len(shape) + (0 not in shape)):
        lead = shape[: len(shape) - rank]
        found = np.asarray(sg.fold(horner, Fraction(3), x, rank=rank))
        traced = sg.trace(lambda v, r=rank: sg.fold(horner, 3, v, rank=r), shape)(x)
        assert found.shape == traced.shape == lead
        for k in np.ndindex(lead):
            expected = functools.reduce(horner, x[k].ravel().tolist(), Fraction(3))
            assert found[k] == traced[k] == expected


def test_the_derivative_of_a_fold_by_hand() -> None:
    """horner over n cells is 2^n init - sum 2^(n-1-k) x_k; a fold of products gives the products of the others."""
    gradient = sg.grad(lambda x: sg.fold(horner, 1, x, rank=2))(np.ones((2, 2)))
    assert gradient.tolist() == [[-8.0, -4.0], [-2.0, -1.0]]
    product = sg.grad(lambda x: sg.fold(lambda a, c: a * c, 1, x, rank=1))
    assert product(np.array([2.0, 3.0, 5.0])).tolist() == [15.0, 10.0, 6.0]
    graph = sg.trace(lambda a, x: sg.fold(lambda s, c: s * c, a, x, rank=1), (2,), (2, 2))
    assert sg.vjp(graph)(np.array([2.0, 3.0]), np.array([[1.0, 4.0], [5.0, 6.0]]), np.ones(2))[1].tolist() == [
        4.0,
        30.0,
    ]


def spread(image):
    return sg.amax(image) - sg.amin(image) * image[(0,) * len(image.shape)]


@pytest.mark.parametrize(("shape", "rank"), [((3, 4), 1), ((2, 3, 2, 2), 2), ((2, 3), 2), ((0, 2), 1)])
def test_global_pool_maps_any_reduction(shape, rank) -> None:
    x = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape) - 3.0
    lead, graph = shape[: len(shape) - rank], sg.trace(lambda v: sg.global_pool(spread, v, rank=rank), shape)
    found = sg.global_pool(spread, x, rank=rank, keepdims=False)
    expected = np.array([image.max() - image.min() * image.flat[0] for image in x.reshape(-1, *shape[len(lead) :])])
    assert found.tolist() == expected.reshape(lead).tolist()
    assert graph(x).shape == lead + (1,) * rank
    assert graph(x).ravel().tolist() == found.ravel().tolist()


def test_folds_refuse_what_does_not_fit() -> None:
    x = np.ones((2, 3))
    with pytest.raises(sg.ShapeError, match=r"fold: f must give the leading shape \(2,\); got \(\) at cell 0"):
        sg.fold(lambda a, c: sg.sum(c), 0, x, rank=1)
    with pytest.raises(sg.ShapeError, match=r"global_pool: reduce must give one number; got shape \(3,\)"):
        sg.global_pool(lambda image: image * 2, x, rank=1)
    for call in (lambda rank: sg.fold(horner, 0, x, rank=rank), lambda rank: sg.global_pool(sg.sum, x, rank=rank)):
        with pytest.raises(sg.ShapeError, match=r"\[W1\]: rank must lie in 1\.\.2"):
            call(3)


@pytest.mark.parametrize("ties", ["split", "all"])
def test_amin(ties) -> None:
    x = np.array([[3.0, 1.0, 1.0], [np.nan, 0.0, 2.0], [5.0, 4.0, 6.0]])
    graph = sg.trace(lambda v: sg.amin(v, 1, ties=ties), x.shape)
    np.testing.assert_array_equal(graph(x), [1.0, np.nan, 4.0])
    share = 0.5 if ties == "split" else 1.0
    assert sg.vjp(graph)(x, np.ones(3))[1][[0, 2]].tolist() == [[0.0, share, share], [0.0, 1.0, 0.0]]
    assert sg.trace(lambda v: np.min(v, axis=0), (2, 3))(x[[0, 2]]).tolist() == [3.0, 1.0, 1.0]
    assert sg.amin(x[[0, 2]], keepdims=True).shape == (1, 1)


def test_shapes_against_pytorch() -> None:
    x = torch.empty(2, 6, 11, 8, device="meta")
    for seed in range(300):
        rng = Random(seed)
        kernel = (rng.randint(1, 4), rng.randint(1, 4))
        stride, dilation = rng.randint(1, 3), rng.randint(1, 2)
        padding = rng.randint(0, min(kernel) // 2)
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        ceil = rng.random() < 0.5
        expected = T.max_pool2d(x, kernel, stride, padding, dilation, ceil)
        assert sg.shapes.pool(x.shape, kernel, ceil=ceil, **options) == expected.shape
        w = torch.empty(4, 3, *kernel, device="meta")
        assert sg.shapes.conv(w.shape, x.shape, groups=2, **options) == T.conv2d(x, w, groups=2, **options).shape
        more, w = rng.randint(0, max(stride, dilation) - 1), torch.empty(6, 2, *kernel, device="meta")
        expected = T.conv_transpose2d(x, w, groups=3, output_padding=more, **options)
        found = sg.shapes.conv_transpose(w.shape, x.shape, groups=3, output_padding=more, **options)
        assert found == expected.shape


def test_shapes_refuse_by_rule() -> None:
    with pytest.raises(sg.ShapeError, match=r"pool \[W2\]: window of 5 cells does not fit 3 \+ 0 \+ 0"):
        sg.shapes.pool((1, 3), (5,))
    with pytest.raises(sg.ShapeError, match=r"conv \[C1\]: w \(2, 4, 3\) needs 4 input channels"):
        sg.shapes.conv((2, 4, 3), (3, 9))
    with pytest.raises(sg.ShapeError, match=r"conv_transpose \[C2\]: output size would be 0"):
        sg.shapes.conv_transpose((1, 1, 2), (1, 1), padding=1)


def test_smooth_names_by_rank() -> None:
    """log(sum exp(b*x)) / b over the window, by loops."""
    rng = np.random.default_rng(1)
    for rank, name in ((1, "smooth_max_pool1d"), (2, "smooth_max_pool2d"), (3, "smooth_max_pool3d")):
        x = rng.normal(size=(2, *[4] * rank))
        found = getattr(F, name)(x, 2, 1.5, stride=2)
        for k in np.ndindex(found.shape):
            window = x[(k[0], *(slice(2 * i, 2 * i + 2) for i in k[1:]))]
            np.testing.assert_allclose(found[k], np.log(np.exp(1.5 * window).sum()) / 1.5, rtol=1e-12)
        with pytest.raises(sg.ShapeError, match=f"{name}: input must have"):
            getattr(F, name)(x[0, 0], 2, 1.5)
