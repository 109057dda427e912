"""PyTorch modules with open sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import specgrad as sg
from specgrad.errors import SpecgradError
from specgrad.interop import from_torch, to_torch

pytestmark = pytest.mark.usefixtures("little_optimised")


class Branching(nn.Module):
    """Its Python looks at the batch: a graph of one branch would be wrong for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(2 * 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.adaptive_avg_pool2d(self.conv(x).relu(), 2)
        y = self.head(y.view(y.shape[0], -1))
        return y if x.shape[0] == 1 else 2 * y


def test_a_module_with_open_sizes_is_the_module_at_every_size() -> None:
    torch.manual_seed(0)
    net = Branching().eval().double()
    graph = from_torch(net, torch.zeros(2, 1, 6, 6, dtype=torch.float64), shapes=[("N", 1, "H", "W")])
    assert graph.open.defaults == {"N": 2, "H": 6, "W": 6}
    assert graph.nodes[graph.input_positions[0]].shape == (2, 1, 6, 6)
    module, jitted = to_torch(graph), sg.compile(graph, "jax", jit=False)
    for shape in ((1, 1, 6, 6), (2, 1, 6, 6), (3, 1, 9, 7), (5, 1, 4, 4)):
        x = torch.randn(*shape, dtype=torch.float64)
        right = net(x).detach().numpy()
        np.testing.assert_allclose(graph(x.numpy()), right, rtol=1e-12)
        np.testing.assert_allclose(module(x).detach().numpy(), right, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(jitted(x.numpy())), right, rtol=1e-4)  # JAX computes in float32 here
        assert graph.at(x=shape).nodes == from_torch(net, torch.zeros(*shape, dtype=torch.float64)).nodes
    assert sorted(module.state_dict()) == sorted(net.state_dict())


def test_weights_stay_what_they_were() -> None:
    net = nn.Linear(2, 2).eval()
    graph = from_torch(net, torch.zeros(1, 2), shapes=[("N", 2)])
    before = net(torch.ones(3, 2)).detach().numpy()
    with torch.no_grad():
        net.weight += 1
    np.testing.assert_allclose(graph(np.ones((3, 2), np.float32)), before, rtol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([("N", 3)], "the example has size 2 where shapes says 3"),
        ([("N",)], r"shapes must have one shape per example \[\(1, 2\)\]; got"),
        ([("N", 2), (2,)], r"shapes must have one shape per example \[\(1, 2\)\]; got"),
        ([("3", 2)], "an open size is a name"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: list, message: str) -> None:
    with pytest.raises((SpecgradError, RuntimeError), match=message):
        from_torch(nn.Linear(2, 2).eval(), torch.zeros(1, 2), shapes=shapes)
