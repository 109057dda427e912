"""Every line of the aten table, alone, against PyTorch's own operator: values, and gradients at kinks and ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import specgrad as sg
from functions import EVERYWHERE
from specgrad.interop.torch import aten

pytestmark = pytest.mark.quick  # of `pytest -m quick`, under a minute in all


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Quarters between -3.5 and 3.5 in float64, each of the kinks at 0, 1 and 3 among them if there is room."""
    x = torch.randint(-14, 15, shape, generator=torch.Generator().manual_seed(seed)).double() / 4
    kinks = torch.tensor([0, -3, 3, 1, -1], dtype=torch.float64)[: x.numel()]
    x.view(-1)[: len(kinks)] = kinks
    return x


def positive(*shape: int) -> Tensor:
    return numbers(*shape).abs() + 0.25


X, Y = numbers(2, 4, 6, 5), numbers(2, 4, 6, 5, seed=1)
C = numbers(4, seed=2)
FLAT, ROW, SQUARE = numbers(6), numbers(1, 6), numbers(2, 6, 6)
VOLUME, LINE = numbers(1, 2, 5, 4, 5), numbers(2, 4, 9)
ROWS, J = torch.tensor([[0, 3, 1], [1, 1, 0]]) % 2, numbers(2, 4, 6, 5, seed=3).abs().long() % 2
DISTINCT = torch.randperm(15, generator=torch.Generator().manual_seed(4)).double().reshape(3, 5)
CLASSES = torch.tensor([[0, 3, 1], [2, 2, 0]])
ROWS_A, ROWS_B, SIGNS = numbers(3, 5, seed=6), numbers(3, 5, seed=7) + 0.125, torch.tensor([1.0, -1.0, 1.0]).double()
BY_RANK = {1: LINE, 2: X, 3: VOLUME}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
CHANNELS = {1: 4, 2: 4, 3: 2}

Case = tuple[Any, ...]
CASES: dict[str, list[Case]] = {
    **{f"{name}.Scalar": [(X, 1)] for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    **{f"{name}.Tensor": [(X, Y)] for name in ("gt", "ge", "lt", "le", "eq", "ne")},
    "conv_transpose1d.default": [(LINE, numbers(4, 3, 3), None, [2], [1], [1], 1, [2])],
    "conv_transpose2d.input": [
        (X, numbers(4, 1, 3, 2), C, [2, 1], [1, 0], [1, 0], 4),
        (X, numbers(4, 3, 2, 2)),
    ],
    "conv_transpose3d.input": [(VOLUME, numbers(2, 2, 2, 1, 2), None, [2, 1, 1])],
    "max_unpool2d.default": [(numbers(1, 1, 2, 2), torch.tensor([[[[5, 0], [3, 2]]]]), [3, 4])],
    "max_unpool3d.default": [
        (numbers(1, 1, 1, 1, 2), torch.tensor([[[[[4, 1]]]]]), [2, 1, 3], [2, 1, 3], [0, 0, 0]),
    ],
    "linear.default": [(X, numbers(3, 5), numbers(3)), (X, numbers(3, 5))],
    "matmul.default": [(SQUARE, SQUARE), (SQUARE, FLAT), (FLAT, SQUARE[0]), (FLAT, FLAT)],
    "mm.default": [(SQUARE[0], SQUARE[1])],
    "bmm.default": [(SQUARE, SQUARE)],
    "addmm.default": [(FLAT, SQUARE[0], SQUARE[1])],
    "baddbmm.default": [(FLAT, SQUARE, SQUARE), ({"beta": 2, "alpha": 0.5}, SQUARE, SQUARE, SQUARE)],
    "einsum.default": [("bij,bkj->bik", [SQUARE, SQUARE]), ("bii->b", [SQUARE]), ("ij,kj->j", [ROW, SQUARE[0]])],
    "scaled_dot_product_attention.default": [
        (X, numbers(2, 4, 3, 5), numbers(2, 4, 3, 2)),
        ({"is_causal": True, "scale": 0.25}, X, X, Y),
        (X, Y, Y, numbers(6, 6, seed=3)),
    ],
    "linalg_vector_norm.default": [
        (positive(3, 4), 2, [1], True), (positive(3, 4),), (X, 1, [1]), (DISTINCT - 7.25, float("inf"), [1]),
    ],
    **{f"{n}_loss.default": [(X, Y), (X, Y, 0), (X, Y, 2)] for n in ("mse", "l1", "smooth_l1", "huber")},
    "kl_div.default": [
        (X, positive(2, 4, 6, 5)), ({"log_target": True}, X, Y, 0),
    ],
    "binary_cross_entropy_with_logits.default": [
        (X, Y.abs() / 4), (X, Y.abs() / 4, positive(5), None, 2), (X, Y.abs() / 4, None, positive(5), 0),
    ],
    "nll_loss_nd.default": [
        (X[:, :, 0, 0], CLASSES[:, 0]), (X[:, :, :3, 0], CLASSES, positive(4), 0),
        (X[:, :, :3, 0], CLASSES, positive(4)), (FLAT, CLASSES[0, 0]),
    ],
    "cross_entropy_loss.default": [
        (X[:, :, 0, 0], CLASSES[:, 0]), (X[:, :, :3, 0], CLASSES, positive(4)), (FLAT, CLASSES[0, 0]),
        (X[:, :, :3, 0], CLASSES, positive(4), 1, -100, 0.25), (X[:, :, :3, 0], CLASSES, None, 2, -100, 0.25),
        (X, Y, None, 1, -100, 0.125), (X, Y, positive(4), 0), (X[:, :, :3, 0], CLASSES, positive(4), 0, -100, 0.5),
    ],
    "hinge_embedding_loss.default": [(X, Y.sign()), (X, Y.sign(), 2.0, 0), (X, torch.ones_like(X), 1.5, 2)],
    "cosine_embedding_loss.default": [(ROWS_A, ROWS_B, SIGNS), (ROWS_A, ROWS_B, -SIGNS, 0.25, 0)],
    "margin_ranking_loss.default": [(FLAT, ROW[0], SIGNS[:1]), (FLAT + 0.125, ROW[0], -SIGNS[1:2], 1.5, 2)],
    "soft_margin_loss.default": [(X, Y.sign())],
    "triplet_margin_loss.default": [
        (ROWS_A, ROWS_B, ROWS_A - 1), ({"swap": True}, ROWS_A, ROWS_B, ROWS_A - 1, 9.0),
        (ROWS_A, ROWS_B, -ROWS_A, 2.0, 1),
    ],
    "pairwise_distance.default": [(ROWS_A, ROWS_B), (ROWS_A, ROWS_B, 1, 1e-6, True)],
    "cosine_similarity.default": [(ROWS_A, ROWS_B), (ROWS_A, ROWS_B[:1], 0)],
    **{f"{n}.default": [(X,), (X, 1), (SQUARE[:, :4], -2)] for n in ("triu", "tril")},
    "diagonal.default": [(X,), (X, 1, 1, 3), (X, -2, -1, 0), (X, 9, 1, 3)],
    "diag_embed.default": [(SQUARE,), (SQUARE, 1), (SQUARE, -2, 0, -2), (FLAT, 0, 1, 0)],
    "diag.default": [(FLAT,), (FLAT, -1), (SQUARE[0], 2)],
    "repeat_interleave.self_int": [(X, 3), (X, 2, 1), (X, 0, -1)],
    "repeat_interleave.self_Tensor": [(X, torch.tensor([0, 2, 1, 3]), 1), (FLAT, torch.tensor([2]))],
    "broadcast_tensors.default": [([X, C[:, None, None], ROW[:, :5]],)],
    **{f"logical_{n}.default": [(X, Y)] for n in ("and", "or", "xor")},
    **{f"bitwise_{n}.Tensor": [(X > 0, Y > 1)] for n in ("and", "or", "xor")},
    **{f"__{n}__.Tensor": [(X > 0, Y > 1)] for n in ("and", "or", "xor")},
    "logical_not.default": [(X,)],
    "bitwise_not.default": [(X > 0,)],
    "selu.default": [(X,)],
    "celu.default": [(X,), (X, 2.0)],
    "logsumexp.default": [(X, [1, -1]), (X, [2], True)],
    "amin.default": [(X, [2, 3]), (X, [-1], True), (X,)],
    "max.default": [(X,)],
    "min.default": [(X,)],
    "max.other": [(X, Y)],
    "min.other": [(X, Y)],
    "masked_fill.Tensor": [(X, X > 0, torch.tensor(2.5, dtype=torch.float64))],
    "where.Scalar": [(X > 0, 2.5, 0.25)],
    "where.ScalarSelf": [(X > 0, 2.5, Y)],
    "where.ScalarOther": [(X > 0, X, 2.5)],
    "add.Tensor": [(X, Y), (X, C[:, None, None]), ({"alpha": 3}, X, Y)],
    "add.Scalar": [(X, 2), (X, 2, 3)],
    "sub.Tensor": [(X, Y), ({"alpha": 3}, X, Y)],
    "sub.Scalar": [(X, 2), (X, 2, 3)],
    "rsub.Tensor": [(X, Y), ({"alpha": 2}, X, Y)],
    "rsub.Scalar": [(X, 2), (X, 2, 3)],
    "mul.Tensor": [(X, Y), (X, C[:, None, None])],
    "mul.Scalar": [(X, 0.5)],
    "div.Tensor": [(X, positive(2, 4, 6, 5))],
    "div.Scalar": [(X, 4)],
    **{f"{n}.default": [(X,)] for n in ("neg", "abs", "exp", "square", "sign", "clone", "contiguous", "alias")},
    **{f"{n}.default": [(positive(7),)] for n in ("log", "sqrt", "rsqrt", "reciprocal")},
    **{f"{n}.default": [(X,)] for n in ("floor", "ceil", "round", "trunc", "frac")},
    **{f"{n}.Tensor": [(X, Y + 0.125), (X, C[:, None, None] - 0.375)] for n in ("fmod", "remainder")},
    **{f"{n}.Scalar": [(X, 1.5), (X, -0.75)] for n in ("fmod", "remainder")},
    "pow.Scalar": [(2, X), (0.3, X), (10000.0, X)],
    "pow.Tensor_Scalar": [(X, 2), (X, 3), (positive(5), 0.5), (positive(5), -1)],
    "maximum.default": [(X, Y)],
    "minimum.default": [(X, Y)],
    "where.self": [(X > 0, X, Y)],
    "masked_fill.Scalar": [(X, X > 0, 2.5), (X, C[:, None, None] > 0, -1)],
    "unbind.int": [(X, 1), (X, -1)],
    "slice_scatter.default": [(X, Y[:, 1:3], 1, 1, 3), (X, Y[..., 4:], -1, -1, 99), (X, Y[:, :0], 1, 2, 2)],
    "zero.default": [(X,)],
    "repeat.default": [(SQUARE, [2, 1, 3]), (FLAT, [2, 3])],
    **{op.names.aten: [(X,)] for op in EVERYWHERE.values() if op.names.aten},
    **{f"{n}.default": [(X,)] for n in ("hardsigmoid", "mish")},
    "leaky_relu.default": [(X,), (X, 0.25)],
    "prelu.default": [(X, numbers(1) + 0.5), (X, C), (numbers(3, 4), C)],
    "elu.default": [(X,), (X, 2.0, 1.5, 0.5)],
    "hardtanh.default": [(X,), (X, 0, 6), (X, -3, 3)],
    "clamp.default": [(X, -1, 3), (X, None, 1), (X, 0)],
    "clamp_min.default": [(X, 1)],
    "clamp_max.default": [(X, 1)],
    "gelu.default": [(X,), ({"approximate": "tanh"}, X)],
    "softplus.default": [(X,), (X * 10, 2, 5)],
    "softmax.int": [(X, 1), (X, -1)],
    "_softmax.default": [(X, 1, False)],
    "log_softmax.int": [(X, 1)],
    "_log_softmax.default": [(X, 1, False)],
    "batch_norm.default": [
        (X, C, C + 1, C, positive(4), False, 0.1, 0.01, False),
        (X, None, None, C, positive(4), False, 0.1, 0.01, True),
    ],
    "_native_batch_norm_legit_no_training.default": [(X, C, C + 1, C, positive(4), 0.1, 0.01)],
    "_native_batch_norm_legit.no_stats": [(X, C, C + 1, True, 0.1, 0.01), (ROWS_A, None, None, True, 0.1, 0.01)],
    "layer_norm.default": [(X, [6, 5], Y[0, 0], X[0, 0]), (X, [5], None, None, 0.01)],
    "group_norm.default": [(X, 2, C, C + 1), (X, 4)],
    "instance_norm.default": [
        (X, C, C + 1, None, None, True, 0.1, 0.01, False),
        (X, C, C + 1, C, positive(4), False, 0.1, 0.01, False),
    ],
    "mean.default": [(X,)],
    "mean.dim": [(X, [2, 3]), (X, [-1], True), (X, []), (X, None)],
    "sum.default": [(X,)],
    "sum.dim_IntList": [(X, [2, 3]), (X, [-1], True), (X, [])],
    "argmax.default": [(X,), (X, 1), (X, -1, True), (X, None, True)],
    "argmin.default": [(X,), (X, 1), (X, -1, True)],
    "max.dim": [(numbers(3, 5), 1), (numbers(3, 5), 0, True)],
    "min.dim": [(numbers(3, 5), -1)],
    "topk.default": [(DISTINCT, 2), (DISTINCT, 3, 0), (DISTINCT, 2, -1, False)],
    "sort.default": [(DISTINCT,), (DISTINCT, 0, True)],
    "cumprod.default": [(X[..., :3], 1), (X[..., :3], -1)],
    "prod.default": [(FLAT,), (numbers(2, 4) + 0.125,)],
    "prod.dim_int": [(X, 1), (X, -2, True)],
    "cumsum.default": [(X, 1), (X, -1)],
    "amax.default": [(X, [2, 3]), (X, [-1], True), (X,)],
    "view.default": [(X, [8, -1])],
    "_unsafe_view.default": [(X, [8, 30])],
    "reshape.default": [(X, [8, -1])],
    "flatten.using_ints": [(X, 1), (X, 1, 2), (X,)],
    "permute.default": [(X, [0, -1, 1, 2])],
    "transpose.int": [(X, 1, -1)],
    "t.default": [(SQUARE[0],), (FLAT,)],
    "squeeze.default": [(numbers(1, 3, 1),)],
    "squeeze.dim": [(numbers(1, 3, 1), -1), (numbers(1, 3, 1), 1)],
    "squeeze.dims": [(numbers(1, 3, 1), [0, -1])],
    "unsqueeze.default": [(X, 0), (X, -1), (X, 2)],
    "expand.default": [(ROW, [3, 6]), (ROW, [2, 3, -1])],
    "slice.Tensor": [(X, 1, 1, 9223372036854775807), (X, -1, -3, -1), (X, 2, 0, 6, 4), (X,)],
    "select.int": [(X, 1, 2), (X, -1, -1)],
    "split.Tensor": [(X, 3, 1), (X, 2)],
    "split_with_sizes.default": [(X, [1, 5], 2)],
    "chunk.default": [(X, 4, 3), (X, 2)],
    "cat.default": [([X, Y], 1), ([X, Y[:, :1]], -3), ([numbers(0), X, Y], 1)],
    "stack.default": [([X, Y], 1), ([X, Y], -1)],
    "pad.default": [
        (X, [1, 2]), (X, [1, 0, 2, 1], "constant", 2.5), (X, [2, 1, 0, 3], "reflect"), (X, [2, 1, 0, 7], "replicate"),
        (X, [2, 1, 6, 3], "circular"),
    ],
    "constant_pad_nd.default": [(X, [1, 2, 0, 1], -1)],
    "embedding.default": [(SQUARE[0], ROWS), (SQUARE[0], ROWS, 1)],
    "index_select.default": [(X, 1, ROWS[0]), (X, -1, ROWS[0])],
    "index.Tensor": [(X, [ROWS]), (X, [None, None, ROWS - 2])],
    "gather.default": [(X, 1, J), (X, 3, J), (X, -2, J[:1, :, :, :2])],
    "roll.default": [(X, [1, -2], [0, 3]), (X, [5]), (X, [7], [2])],
    "flip.default": [(X, [0, -1])],
    "pixel_shuffle.default": [(X, 2), (X[0], 2)],
    "zeros_like.default": [(X,)],
    "ones_like.default": [(X,)],
    "full_like.default": [(X, 2.5)],
    "lift_fresh_copy.default": [(X,)],
    "_to_copy.default": [({"dtype": torch.float64}, X)],
    "to.dtype": [(X, torch.float64)],
    "detach.default": [(X,)],
    "dropout.default": [(X, 0.5, False)],
    "feature_dropout.default": [(X, 0.5, False)],
    "native_dropout.default": [(X, 0.5, False)],
}  # fmt: skip
for rank, x in BY_RANK.items():
    c, ones = CHANNELS[rank], [1] * rank
    three, two = [3] * rank, [2] * rank
    weight = numbers(4, c // 2, *three, seed=rank)
    CASES |= {
        f"conv{rank}d.default": [(x, weight, C, two, ones, ones, 2), (x[0], numbers(3, c, *two))],
        f"conv{rank}d.padding": [(x, weight, None, ones, "same", ones, 2), (x, weight, C, two, "valid", ones, 2)],
        f"max_pool{rank}d.default": [(x, two), (x, three, [], ones, ones, True), (x, two, ones, ones, two)],
        f"max_pool{rank}d_with_indices.default": [(x, two), (x, three, two, ones)],
        f"avg_pool{rank}d.default": [(x, two), (x, three, two, ones, True, False), (x, three, two, ones, True)],
        f"adaptive_avg_pool{rank}d.default": [(x, three)],
        f"adaptive_max_pool{rank}d.default": [(x, three)],
        f"reflection_pad{rank}d.default": [(x, [2, 1, 0, 1, 1, 1][: 2 * rank])],
        f"replication_pad{rank}d.default": [(x, [2, 9, 0, 1, 7, 1][: 2 * rank])],
        f"upsample_nearest{rank}d.vec": [
            (x, None, [2.0] * rank), (x, [3 * n for n in x.shape[2:]], None), (x, [7, 3, 8][:rank], None),
        ],
        f"_upsample_nearest_exact{rank}d.vec": [(x, None, [2.0] * rank), (x, [7, 3, 8][:rank], None)],
        f"upsample_{LINEAR[rank]}{rank}d.vec": [
            (x, [7, 3, 8][:rank], False, None), (x, [7, 3, 8][:rank], True, None),
            (x, None, False, [1.5, 0.7, 2.3][:rank]),
        ],
    }  # fmt: skip
for rank in (2, 3):
    CASES[f"avg_pool{rank}d.default"].append((BY_RANK[rank], [2] * rank, [], [0] * rank, False, True, 1))
NO_VALUE = {"_assert_tensor_metadata.default", "detach_.default"}  # checks; the same as detach, in place


def overload(name: str) -> Any:
    packet, _, kind = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), kind)


def ours(name: str, args: Case) -> Any:
    kwargs, args = (args[0], args[1:]) if isinstance(args[0], dict) else ({}, args)
    return aten.call(name, overload(name)._schema, args, kwargs)


def results(value: Any) -> list[Any]:
    """The results that a network goes on with: not the masks of dropout, nor what batch_norm saves."""
    return list(value) if isinstance(value, tuple | list) else [value]


def replaced(args: Any, f: Any) -> Any:
    """The arguments with f at every tensor."""
    if isinstance(args, tuple | list):
        return type(args)(replaced(a, f) for a in args)
    return f(args) if isinstance(args, Tensor) else args


def tensors(args: Any) -> list[Tensor]:
    found: list[Tensor] = []
    replaced(args, found.append)
    return found


def parameters() -> list[Any]:
    return [pytest.param(name, args, id=f"{name}-{i}") for name in CASES for i, args in enumerate(CASES[name])]


def theirs(name: str, args: Case) -> list[Tensor]:
    kwargs, rest = (args[0], args[1:]) if isinstance(args[0], dict) else ({}, args)
    return results(overload(name)(*rest, **kwargs))


def test_every_line_has_a_case() -> None:
    assert set(CASES) | NO_VALUE == set(aten.TABLE)


@pytest.mark.parametrize(("name", "args"), parameters())
def test_values(name: str, args: Case) -> None:
    found = results(ours(name, replaced(args, lambda t: t.double().numpy() if t.dtype == torch.bool else t.numpy())))
    for mine, other in zip(found, theirs(name, args), strict=False):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "args"),
    [("kl_div.default", (X, Y.clamp_min(0.25) * (Y > 1), 2)), ("cosine_similarity.default", (ROWS_A, ROWS_B, 1, 50.0))],
)
def test_values_where_slopes_differ(name: str, args: Case) -> None:
    """Of 0*log(0), and of a norm below eps: PyTorch's slope is NaN, or that of the norm; ours is 0."""
    test_values(name, args)


STATISTICS = {"batch_norm.default", "_native_batch_norm_legit_no_training.default", "instance_norm.default"}
WEIGHTED = {"nll_loss_nd.default": 2, "cross_entropy_loss.default": 2, "soft_margin_loss.default": 1}
WEIGHTED["binary_cross_entropy_with_logits.default"] = 2
"""PyTorch has no derivative in weights of classes or cells, nor in signs: tensors from this one on."""
TOLERANCE = {"hardsigmoid.default": 3e-8}  # PyTorch's derivative takes 1/6 in float32, even in float64
FLAT_DERIVATIVE = {
    "argmax",
    "argmin",
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "zero",
    "ne",
    "ones_like",
    "full_like",
    "sign",
    "gt",
    "ge",
    "lt",
    "le",
    "eq",
    "detach",
    "where.Scalar",  # of two numbers
    "repeat_interleave",  # with a count per cell, which must be known
    *(f"logical_{n}" for n in ("and", "or", "xor", "not")),
    *(f"bitwise_{n}" for n in ("and", "or", "xor", "not")),
    *(f"__{n}__" for n in ("and", "or", "xor")),
}


@pytest.mark.parametrize(
    ("name", "args"), [p for p in parameters() if not {p.values[0], p.values[0].split(".")[0]} & FLAT_DERIVATIVE]
)
def test_gradients(name: str, args: Case) -> None:
    """Of the weighted sum of the real results, in every real argument."""
    given = tensors(args)
    last = len(given) - 2 if name in STATISTICS else WEIGHTED.get(name, len(given))  # no derivative in mean, variance
    leaves = [t.clone().requires_grad_(t.is_floating_point() and i < last) for i, t in enumerate(given)]
    fresh = iter(leaves)
    outs = [y for y in theirs(name, replaced(args, lambda _: next(fresh))) if y.requires_grad]
    weights = [numbers(*y.shape, seed=i + 5) for i, y in enumerate(outs)]
    real = [t for t in leaves if t.requires_grad]
    expected = torch.autograd.grad(outs, real, weights, allow_unused=True, materialize_grads=True)

    def loss(*values: Any) -> Any:
        fresh = iter(values)
        found = [y for y in results(ours(name, replaced(args, lambda _: next(fresh)))) if y.kind == "real"]
        return sum(sg.sum(y * w.numpy()) for y, w in zip(found, weights, strict=False))

    examples = [t.detach().numpy() if t.dtype != torch.bool else t.double().numpy() for t in leaves]
    wanted = [i for i, t in enumerate(leaves) if t.requires_grad]
    found = sg.grad(sg.trace(loss, *examples), wanted)(*examples)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=TOLERANCE.get(name, 1e-12), atol=1e-12)
