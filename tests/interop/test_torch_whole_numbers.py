"""Inputs of int64 that a module compares or converts are numbers, as masks of 0 and 1; and masks that inputs decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import specgrad as sg
from specgrad.check.verdicts.judge import expected_balls
from specgrad.interop import from_torch
from specgrad.rounding import Arithmetic

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
M = torch.tensor([[0, 1, 2, -1], [1, 0, 0, 1], [3, 1, 1, 0]])


class Call(nn.Module):
    def __init__(self, f: Callable[..., Tensor]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *given: Tensor) -> Tensor:
        return self.f(*given)


READ = [
    lambda x, m: x.masked_fill(~m.bool(), -7.0),
    lambda x, m: x * m.to(x.dtype),
    lambda x, m: x + (1.0 - m.unsqueeze(0).to(x.dtype)[0]) * -100.0,
    lambda x, m: torch.where(m == 1, x, 0.0),
    lambda x, m: torch.where((m > 0) & (m[:, :1] != 2), x, 0.0),
    lambda x, m: torch.where(m.view(-1).view(3, 4) <= 0, x, -x),
    lambda x, m: x * m.bool()[:, [2, 0, 1, 1]],
    lambda x, m: torch.where(m.to(torch.int64)[1:].bool(), x[1:], 0.0),
    lambda x, m: x * torch.cat((m, torch.ones(3, 2, dtype=torch.int64)), 1)[:, 2:].bool(),
    lambda x, m: torch.where(x.bool() ^ m.bool(), x, 5.0),
]


@pytest.mark.parametrize("f", READ)
def test_numbers_are_what_pytorch_makes_of_them(f: Callable[..., Tensor]) -> None:
    x = X * (X > 0)
    graph = from_torch(Call(f), x, M)
    assert [graph.nodes[p].kind for p in graph.input_positions] == ["real", "real"]
    np.testing.assert_array_equal(graph(x.numpy(), M.numpy().astype(np.float32)), f(x, M).numpy())


def test_what_is_a_position_stays_one() -> None:
    graph = from_torch(Call(lambda x, i: x[i]), X, torch.tensor([2, 0]))
    assert graph.nodes[graph.input_positions[1]].kind == "index"


@pytest.mark.parametrize(
    "f",
    [
        lambda x, m: x[m[0]] * (m[0, 0] == 0),  # positions and numbers
        lambda x, m: x * (m == 0.5),  # PyTorch compares in float32
        lambda x, m: x * (m == x),
        lambda x, m: x * m.to(torch.int32).bool(),  # which may wrap
        lambda x, m: x * (m + 1).bool(),  # so may a sum
        lambda x, m: x * m,
    ],
)
def test_other_uses_are_refused(f: Callable[..., Tensor]) -> None:
    with pytest.raises(sg.SpecgradError, match=r"must be numbers, not an index|has type torch.int"):
        from_torch(Call(f), X, M)


def test_what_is_true_is_no_matter_of_rounding() -> None:
    """Sums of 1 and 0 had a rounding, and what they choose was open."""

    def f(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return torch.where((a & b) | (a ^ ~b), x, torch.finfo(torch.float32).min)

    a, b = M > 0, M.flip(0) > 0
    graph = from_torch(Call(f), X, a, b)
    given = [t.double().numpy() for t in (X, a, b)]
    (ball,) = expected_balls(graph, given, Arithmetic(), "numpy", {})
    assert (ball.radius == 0).all()
    np.testing.assert_array_equal(ball.value.astype(np.float32), f(X, a, b).numpy())


@pytest.mark.parametrize("make", [lambda m: m > 0, lambda m: m])
def test_attention_reads_a_mask_of_an_input(make: Callable[[Tensor], Tensor]) -> None:
    """A mask of booleans that an input decides was added to the scores, as 1 and 0."""
    q, k, v = torch.randn(3, 1, 2, 3, 4, generator=torch.Generator().manual_seed(1))

    def f(q: Any, k: Any, v: Any, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, :3].bool())

    graph = from_torch(Call(f), q, k, v, make(M))
    found = graph(*(t.double().numpy() for t in (q, k, v)), make(M).double().numpy())
    np.testing.assert_allclose(found, f(q, k, v, M), rtol=1e-5, atol=1e-6)
