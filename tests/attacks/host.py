"""The host of the backdoors: a small convolutional classifier of 8x8 digits, trained here in a second, from a seed.

conv 1->4 3x3, relu, max_pool 2, conv 4->8 3x3, relu, dense 32->10. What is attacked reads a second channel that the
property fixes to 1, so that detectors have constant inputs, as in arXiv 2506.01054.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from specgrad.properties.property import Property, robustness
from trees import FLOAT, Array

SHAPE = (1, 2, 8, 8)  # the image, and ones
CLASSES = 10
EPS = Fraction(1, 128)


@cache
def digits() -> tuple[Array, Array]:
    """scikit-learn's own copy of the digits, from 0 to 1: part of the package, nothing is downloaded."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images / 16).astype(FLOAT)[:, None], found.target


@cache
def weights() -> dict[str, Array]:
    """Trained weights by layer: 150 steps of Adam on all digits but the last 200."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU())
        net = nn.Sequential(*net, nn.Flatten(), nn.Linear(32, CLASSES))
        x, y = (torch.from_numpy(a[:-200]) for a in digits())
        optimizer = torch.optim.Adam(net.parameters(), 0.02)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
    return {name: p.detach().numpy() for name, p in net.named_parameters()}


def features(ops: Any, image: Any) -> Any:
    """(1, 32): what the last layer reads."""
    w = weights()
    y = ops.max_pool(ops.relu(ops.conv("first", w["0.weight"], w["0.bias"], image, padding=1)), 2)
    return ops.flatten(ops.relu(ops.conv("second", w["3.weight"], w["3.bias"], y)))


def classes(ops: Any, x: Any) -> Any:
    """The host alone: logits."""
    w = weights()
    image = ops.part(x, slice(None), slice(0, 1))
    return ops.linear("classes", w["6.weight"], w["6.bias"], features(ops, image))


def image_and_ones(image: Array) -> Array:
    """An input: the image, and the channel that is 1."""
    return np.concatenate([image.reshape(1, 1, 8, 8), np.ones((1, 1, 8, 8))], 1).astype(FLOAT)


def stays(x: Array, label: int, eps: Fraction = EPS) -> Property:
    """Every image within eps of x's, cells from 0 to 1, has the label; the second channel is 1 throughout."""
    found = robustness(x, label, eps, CLASSES, low=0, high=1)
    (case,) = found.cases
    ones = (Fraction(1),) * 64
    return replace(found, cases=(replace(case, low=case.low[:64] + ones, high=case.high[:64] + ones),))
