"""The 100 operations of KernelBench, level 1, by its names and at small sizes: functions, and arguments that they take.

What a module holds is an argument here, so that every operation is a function of tensors and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Kernel = tuple[Callable[..., Tensor] | nn.Module, tuple[Any, ...]]


def numbers(*shape: int) -> Tensor:
    """Random normal numbers, the same on every call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _shares(*shape: int) -> Tensor:
    """Positive numbers whose rows add up to 1."""
    return numbers(*shape).softmax(-1)


class _FrobeniusNorm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / torch.norm(x, p="fro")


def _products() -> dict[str, Kernel]:
    square, tall, a, b = numbers(6, 6), numbers(7, 3), numbers(4, 5), numbers(5, 6)
    return {
        "square_matrices": (torch.matmul, (square, square)),
        "matrices": (torch.matmul, (a, b)),
        "batched_matrices": (torch.bmm, (numbers(2, 4, 5), numbers(2, 5, 3))),
        "matrix_vector": (torch.matmul, (a, numbers(5, 1))),
        "matrix_scalar": (lambda x, s: x * s, (a, 3.14)),
        "long_inner_axis": (torch.matmul, (numbers(3, 64), numbers(64, 3))),
        "short_inner_axis": (torch.matmul, (numbers(9, 2), numbers(2, 9))),
        "irregular_matrices": (torch.matmul, (numbers(7, 5), numbers(5, 11))),
        "tall_skinny": (torch.matmul, (tall, tall.T.contiguous())),
        "three_axes": (torch.matmul, (numbers(2, 4, 5), b)),
        "four_axes": (lambda x, w: torch.einsum("bijl,lk->bijk", x, w), (numbers(2, 2, 3, 5), b)),
        "diagonal": (lambda d, x: torch.diag(d) @ x, (numbers(5), b)),
        "symmetric": (torch.matmul, (square + square.T, square)),
        "upper_triangular": (lambda x, y: torch.triu(torch.matmul(x, y)), (square.triu(), square.triu())),
        "lower_triangular": (lambda x, y: torch.tril(torch.matmul(x, y)), (square.tril(), square.tril())),
        "first_transposed": (lambda x, y: torch.matmul(x.T, y), (numbers(5, 4), b)),
        "second_transposed": (lambda x, y: torch.matmul(x, y.T), (a, numbers(6, 5))),
        "both_transposed": (lambda x, y: torch.matmul(x.T, y.T), (numbers(5, 4), numbers(6, 5))),
    }


def _activations() -> dict[str, Kernel]:
    x = 3 * numbers(4, 9)
    named = {
        "relu": torch.relu, "leaky_relu": lambda v: F.leaky_relu(v, 0.01), "sigmoid": torch.sigmoid, "tanh": torch.tanh,
        "softmax": lambda v: torch.softmax(v, 1), "log_softmax": lambda v: torch.log_softmax(v, 1),
        "swish": lambda v: v * torch.sigmoid(v), "gelu": F.gelu, "selu": torch.selu, "hardsigmoid": F.hardsigmoid,
        "softplus": F.softplus, "softsign": F.softsign, "elu": lambda v: F.elu(v, 1.0),
        "hardtanh": lambda v: F.hardtanh(v, -1.0, 1.0),
        "new_gelu": lambda v: 0.5 * v * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (v + 0.044715 * torch.pow(v, 3)))),
    }  # fmt: skip
    return {name: (f, (x,)) for name, f in named.items()}


def _norms() -> dict[str, Kernel]:
    x = numbers(2, 4, 5, 6)
    return {
        "batch_norm": (nn.BatchNorm2d(4).eval(), (x,)),
        "instance_norm": (nn.InstanceNorm2d(4), (x,)),
        "group_norm": (nn.GroupNorm(2, 4), (x,)),
        "rms_norm": (lambda v: v / torch.sqrt(torch.mean(v**2, dim=1, keepdim=True) + 1e-5), (x,)),
        "frobenius_norm": (_FrobeniusNorm(), (x,)),
        "l1_norm": (lambda v: v / torch.mean(torch.abs(v), dim=1, keepdim=True), (numbers(3, 7),)),
        "l2_norm": (lambda v: v / torch.norm(v, p=2, dim=1, keepdim=True), (numbers(3, 7),)),
        "layer_norm": (nn.LayerNorm((4, 5, 6)), (x,)),
    }


def _reductions() -> dict[str, Kernel]:
    line, plane, volume = numbers(2, 3, 16), numbers(1, 2, 9, 10), numbers(1, 2, 6, 7, 8)
    x = numbers(2, 5, 6)
    return {
        "max_pool_1d": (nn.MaxPool1d(4, 1, 2, 3), (line,)),
        "max_pool_2d": (nn.MaxPool2d(4, 1, 1, 1), (plane,)),
        "max_pool_3d": (nn.MaxPool3d(3, 2, 1, 1), (volume,)),
        "avg_pool_1d": (nn.AvgPool1d(8, 1, 4), (line,)),
        "avg_pool_2d": (nn.AvgPool2d(3), (plane,)),
        "avg_pool_3d": (nn.AvgPool3d(3, 2, 1), (volume,)),
        "sum": (lambda v: torch.sum(v, dim=1, keepdim=True), (x,)),
        "mean": (lambda v: torch.mean(v, dim=1), (x,)),
        "max": (lambda v: torch.max(v, dim=1)[0], (x,)),
        "argmax": (lambda v: torch.argmax(v, dim=1), (x,)),
        "argmin": (lambda v: torch.argmin(v, dim=1), (x,)),
        "min": (lambda v: torch.min(v, dim=1)[0], (x,)),
    }


def _convolutions() -> dict[str, Kernel]:
    line, plane, volume = numbers(1, 4, 20), numbers(1, 4, 11, 20), numbers(1, 4, 6, 7, 9)
    made = {
        "conv_1": (nn.Conv2d(4, 3, 11, 4, 2), plane), "conv_2": (nn.Conv3d(4, 2, 3), volume),
        "conv_3": (nn.Conv2d(4, 2, 3), plane), "conv_4": (nn.Conv2d(4, 2, (5, 7)), plane),
        "conv_5": (nn.Conv3d(4, 2, 3, bias=False), volume), "conv_6": (nn.Conv3d(4, 2, (3, 5, 7)), volume),
        "conv_7": (nn.Conv2d(4, 2, (5, 9)), plane), "conv_8": (nn.Conv2d(4, 3, 3, bias=False), plane),
        "conv_9": (nn.Conv3d(4, 3, (3, 5, 7), bias=False), volume), "conv_10": (nn.Conv1d(4, 3, 3), line),
        "conv_11": (nn.Conv1d(4, 3, 3, 3, 0, 4), line),
        "conv_12": (nn.Conv2d(4, 2, (5, 9), 1, (2, 4), (2, 3)), plane),
        "depthwise_1": (nn.Conv2d(4, 4, 3, groups=4), plane),
        "depthwise_2": (nn.Conv2d(4, 4, (3, 1), groups=4), plane),
        "depthwise_3": (nn.Conv2d(4, 4, 3, 1, 0, groups=4), plane),
        "depthwise_4": (nn.Conv2d(4, 4, (3, 7), 1, 0, 1, 4), plane),
        "separable": (nn.Sequential(nn.Conv2d(4, 4, 3, 1, 1, groups=4), nn.Conv2d(4, 3, 1)), plane),
        "pointwise": (nn.Conv2d(4, 3, 1), plane),
        "transposed_1": (nn.ConvTranspose2d(4, 2, 3), plane),
        "transposed_2": (nn.ConvTranspose3d(4, 2, (3, 5, 7)), volume),
        "transposed_3": (nn.ConvTranspose3d(4, 4, 3), volume), "transposed_4": (nn.ConvTranspose1d(4, 3, 3), line),
        "transposed_5": (nn.ConvTranspose2d(4, 4, (3, 7)), plane),
        "transposed_6": (nn.ConvTranspose3d(4, 2, (3, 5, 5)), volume),
        "transposed_7": (nn.ConvTranspose2d(4, 3, (3, 5)), plane),
        "transposed_8": (nn.ConvTranspose3d(4, 2, 3), volume),
        "transposed_9": (nn.ConvTranspose2d(4, 4, 3, bias=False), plane),
        "transposed_10": (nn.ConvTranspose3d(4, 4, (3, 5, 7), (2, 2, 2), (1, 2, 3), (1, 1, 1), 4), volume),
        "transposed_11": (nn.ConvTranspose3d(4, 4, 3, 2, 1, 1, 4), volume),
        "transposed_12": (nn.ConvTranspose1d(4, 3, 5, 1, 0, dilation=3), line),
        "transposed_13": (nn.ConvTranspose2d(4, 4, (3, 5), (2, 3), (1, 2), 0, 4, dilation=(2, 1)), plane),
        "transposed_14": (nn.ConvTranspose3d(4, 2, 3, 2, 1, dilation=2), volume),
        "transposed_15": (nn.ConvTranspose2d(4, 4, (3, 7), (1, 1), (1, 3)), plane),
        "transposed_16": (nn.ConvTranspose1d(4, 3, 3, 2, 1, dilation=2), line),
        "transposed_17": (nn.ConvTranspose2d(4, 3, 3, 5, 1, dilation=2), plane),
    }  # fmt: skip
    return {name: (module, (x,)) for name, (module, x) in made.items()}


def _scans() -> dict[str, Kernel]:
    x = numbers(3, 8)
    return {
        "cumsum": (lambda v: torch.cumsum(v, dim=1), (x,)),
        "cumprod": (lambda v: torch.cumprod(v, dim=1), (x,)),
        "cumsum_reverse": (lambda v: torch.cumsum(v.flip(1), dim=1).flip(1), (x,)),
        "cumsum_exclusive": (
            lambda v: torch.cumsum(torch.cat((torch.zeros_like(v.select(1, 0).unsqueeze(1)), v), dim=1)[:, :-1], dim=1),
            (x,),
        ),
        "masked_cumsum": (lambda v, mask: torch.cumsum(v * mask, dim=1), (x, numbers(3, 8) * numbers(3, 1) > 0)),
    }


def _losses() -> dict[str, Kernel]:
    x, y, z = numbers(4, 6), numbers(6, 4).T.contiguous(), numbers(4, 3, 2).reshape(4, 6)
    heads = numbers(2, 2, 5, 4)
    return {
        "mse": (lambda p, t: torch.mean((p - t) ** 2), (x, y)),
        "cross_entropy": (F.cross_entropy, (x, torch.tensor([0, 5, 2, 2]))),
        "huber": (F.smooth_l1_loss, (x, y)),
        "attention": (F.scaled_dot_product_attention, (heads, heads + 1, heads - 1)),
        "kl_div": (lambda p, t: F.kl_div(torch.log(p), t, reduction="batchmean"), (_shares(4, 6), _shares(5, 6)[:4])),
        "triplet": (nn.TripletMarginLoss(1.0), (x, y, z)),
        "hinge": (lambda p, t: torch.mean(torch.clamp(1 - p * t, min=0)), (x, numbers(6).sign())),
    }


def kernels() -> dict[str, Kernel]:
    """Every operation by name."""
    return _products() | _activations() | _norms() | _reductions() | _convolutions() | _scans() | _losses()
