"""Averages of half types: PyTorch's avg_pool3d has no kernel for them on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import specgrad as sg
import specgrad.functional as F


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("how", [{}, {"stride": 1, "padding": 1}, {"count_include_pad": False, "padding": 1}])
def test_averages_of_half_types(dtype: torch.dtype, rank: int, how: dict[str, Any]) -> None:
    """Small integers in windows of 2^rank cells: sums and quotients are exact in every format."""
    x = torch.randint(-4, 5, (2, 2, *(4,) * rank)).to(dtype).requires_grad_()
    y = sg.avg_pool(x, (2,) * rank, **how)
    assert y.dtype == dtype
    ours = y.detach().double().numpy()
    assert np.array_equal(ours, sg.avg_pool(x.detach().double().numpy(), (2,) * rank, **how))
    (gx,) = torch.autograd.grad(y.sum(), x)
    (exact,) = torch.autograd.grad(sg.avg_pool(d := x.detach().double().requires_grad_(), (2,) * rank, **how).sum(), d)
    assert torch.equal(gx.double(), exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_built_on_averages_of_half_types(dtype: torch.dtype) -> None:
    x = torch.randint(0, 5, (1, 2, 4, 4, 4)).to(dtype)
    for f in (lambda t: F.adaptive_avg_pool3d(t, 2), lambda t: F.lp_pool3d(t, 1, 2)):
        assert torch.equal(f(x).double(), f(x.double()))
