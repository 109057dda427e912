"""Positions, masks and grids that a module computes from nothing but its shapes: known while importing, and exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import specgrad as sg
from specgrad.interop import from_torch


class Call(nn.Module):
    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f = f
        self.register_buffer("places", torch.tensor([[2, 0], [1, 1]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x)


def grid(x: Tensor) -> Tensor:
    rows, columns = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
    return x + torch.stack((columns, rows), 2).to(x.dtype).sum(2) * (rows - columns)


def windows(x: Tensor) -> Tensor:
    """The mask of a shifted window: numbered regions, and what lies in different ones."""
    regions = x.new_zeros((3, 4))
    for number, (a, b) in enumerate(((0, 1), (1, 2), (2, 3))):
        regions[a:b, number:] = number
    flat = regions.view(-1)
    apart = (flat.unsqueeze(0) - flat.unsqueeze(1)).masked_fill(flat.unsqueeze(0) != flat.unsqueeze(1), -100.0)
    return x + apart[:3, :4]


def chosen(x: Tensor) -> Tensor:
    return torch.where(torch.arange(4) % 2 == 0, x, -x) + torch.arange(12).view(3, 4)


ROWS, COLUMNS = torch.tensor([[2, 0], [-1, 1]]), torch.tensor([3, -2])


@pytest.mark.parametrize(
    "f",
    [
        grid,
        windows,
        chosen,
        lambda x: x[ROWS],
        lambda x: x[:, COLUMNS],
        lambda x: x[ROWS, COLUMNS],
        lambda x: x.view(3, 1, 4)[ROWS, :, COLUMNS],  # apart: the positions' axes come first
        lambda x: x.view(1, 3, 4)[:, ROWS, COLUMNS],
    ],
)
def test_equals_pytorch(f: Callable[[Tensor], Tensor]) -> None:
    x = torch.linspace(-3, 3, 12).view(3, 4)
    graph = from_torch(Call(f).eval(), x)
    np.testing.assert_array_equal(graph(x.numpy()), f(x).numpy())


def test_floats_that_round_stay_in_the_graph() -> None:
    """1/3 is a quotient of the graph, not its nearest float32."""
    for third in (lambda: torch.ones(2) / 3, lambda: torch.arange(2) / 3):
        graph = from_torch(Call(lambda x, third=third: x * third()), torch.zeros(2))
        assert [n.op.name for n in graph.nodes] == ["input", "constant", "div", "mul"]


def test_sums_at_equal_positions_are_not_folded() -> None:
    """index_put that adds floats up would round."""
    at = torch.tensor([0, 0, 1])
    call = Call(lambda x: x + torch.zeros(2).index_put((at,), torch.ones(3), accumulate=True))
    with pytest.raises(sg.SpecgradError, match=r"aten.index_put.default has no line"):
        from_torch(call, torch.zeros(2))


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x: x + torch.tensor([2**24 + 1]), "aten.add.Tensor [P5]: integers beyond 16777216 would be rounded"),
        (lambda x: x + torch.randint(0, 9, (2,)), "from_torch: aten.randint draws random numbers"),
        (lambda x: x + torch.empty(2, dtype=torch.int64), "from_torch: aten.empty draws random numbers, or leaves"),
        (
            lambda x: x + torch.zeros(2, dtype=torch.float64),
            "[P5]: a constant of aten.add.Tensor has type torch.float64",
        ),
        (lambda x: x[x > 0], "from_torch: aten.sym_size.int is not known"),  # how long is the result?
        (lambda x: x + torch.zeros(2**12, 2**11)[:1, :2], "aten.zeros [P5]: a constant of 8388608 cells is too large"),
    ],
)
def test_refused_by_name(f: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(sg.SpecgradError) as caught:
        from_torch(Call(f), torch.zeros(2))
    assert message in str(caught.value)
