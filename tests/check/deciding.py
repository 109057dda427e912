"""Small trained classifiers, inputs next to their boundaries, and decisions over exact numbers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
import torch

import specgrad as sg
from executor import Setting, execute
from program import Program


def blobs(seed: int, classes: int = 3, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Images of 6x6 around one pattern per class."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, 1, 6, 6))
    labels = rng.integers(0, classes, count)
    return (centres[labels] + 0.5 * rng.normal(size=(count, 1, 6, 6))).astype(np.float32), labels


@cache
def trained(seed: int, classes: int = 3) -> tuple[sg.Graph, np.ndarray]:
    """A convolution, a maximum and a linear layer, trained for a moment; and its data."""
    x, y = blobs(seed, classes)
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(16, classes))
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(40):
        loss = torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    w, b, v, c = (p.detach().numpy() for p in net.parameters())

    def network(x: Any) -> Any:
        return sg.linear(v, c, sg.flatten(sg.max_pool(sg.relu(sg.conv(w, b, x)), (2, 2), stride=2), 1))

    return sg.trace(network, (1, 1, 6, 6)), x


def exact_outputs(graph: sg.Graph, x: np.ndarray) -> list[Fraction]:
    """Over rationals: no rounding anywhere."""
    return [Fraction(v) for v in _exact(graph)(sg.exact(x.astype(float))).ravel()]


@cache
def _exact(graph: sg.Graph) -> sg.Graph:
    return replace(graph, constants={i: sg.exact(np.asarray(a, float)) for i, a in graph.constants.items()})


def exact_argmax(graph: sg.Graph, x: np.ndarray) -> int:
    y = exact_outputs(graph, x)
    return max(range(len(y)), key=lambda k: (y[k], -k))


def clear_argmax(graph: sg.Graph, x: np.ndarray) -> int:
    """The same, from float64 where its rounding cannot matter."""
    y = np.ravel(graph(x.astype(float)))
    least, most = np.sort(y)[-2:]
    return int(np.argmax(y)) if most - least > 1e-9 * (1 + np.abs(y).max()) else exact_argmax(graph, x)


def boundary(graph: sg.Graph, first: np.ndarray, second: np.ndarray, steps: int = 40) -> np.ndarray:
    """A float32 input next to where the exact decision turns, between two inputs that are decided differently."""
    start = exact_argmax(graph, first)
    assert exact_argmax(graph, second) != start
    low, high = 0.0, 1.0
    point = lambda t: (first + np.float32(t) * (second - first)).astype(np.float32)
    for _ in range(steps):
        middle = (low + high) / 2
        if clear_argmax(graph, point(middle)) == start:
            low = middle
        else:
            high = middle
    return point(low)


def executed(graph: sg.Graph, x: np.ndarray, seed: str, setting: Setting | None = None) -> np.ndarray:
    """The outputs of one random execution by the independent executor (tests/hunt)."""
    run = execute(Program(graph), [x.astype(float)], setting or Setting(), Random(seed))
    (p,) = graph.output_positions
    return run.array(p)
