"""A layer of a model as a test case of its own: the same operator, by its public function, on the values it got."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import specgrad as sg
from specgrad.check.auditing.reproduce import case_of
from specgrad.check.cases.op_case import OPERATORS
from specgrad.op import REGISTRY

X = np.random.default_rng(0).integers(-4, 5, (1, 2, 6, 5)).astype(np.float32)
W = np.random.default_rng(1).integers(-2, 3, (2, 2, 3, 2)).astype(np.float32)
B = np.float32([1, -2])
BARE = [name for name, op in REGISTRY.items() if name in OPERATORS and not op.param_names]
LAYERS: dict[str, Any] = {
    "conv": lambda x: sg.conv(W, B, x, stride=2, padding=1),
    "conv without bias": lambda x: sg.conv(W[:, :1], None, x, groups=2, dilation=(1, 2)),
    "conv_transpose": lambda x: sg.conv_transpose(W, B, x, stride=2, padding=1, output_padding=1),
    "max_pool": lambda x: sg.max_pool(x, (3, 2), stride=2, padding=1, ceil=True),
    "avg_pool": lambda x: sg.avg_pool(x, (2, 2), padding=1),
    "avg_pool inside": lambda x: sg.avg_pool(x, (2, 2), padding=1, count_include_pad=False),
    "avg_pool by 3": lambda x: sg.avg_pool(x, (2, 2), divisor=3),
}
LAYERS |= {n: lambda x, n=n: getattr(sg, n)(x) for n in BARE if n not in ("add", "mul")}
LAYERS |= {n: lambda x, n=n: getattr(sg, n)(x, X[0, 0]) for n in ("add", "mul")}


def last_layer(layer: Any) -> tuple[Any, Any]:
    """The case of a network's last layer, and the layer's value."""
    graph = sg.trace(layer, X.shape)
    return case_of(SimpleNamespace(graph=graph, known={0: X}), len(graph.nodes) - 1), graph(X)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_a_case_of_its_own(name: str) -> None:
    case, value = last_layer(LAYERS[name])
    assert case.operator == name.split(" ")[0]
    np.testing.assert_allclose(case.meaning()(*case.arguments()), value, rtol=3e-7, atol=1e-30)


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: x * 2,
        lambda x: sg.leaky_relu(x, 0.1),
        lambda x: sg.smooth_max_pool(x, (2, 2), beta=1),
        lambda x: sg.adaptive_avg_pool(x, (4, 3)),
        lambda x: sg.median_pool(x, (2, 2)),
    ],
)
def test_what_no_case_says_is_none(layer: Any) -> None:
    """A number beside the data, parameters that no window has, cells of different lengths, what nobody asks."""
    assert last_layer(layer)[0] is None
