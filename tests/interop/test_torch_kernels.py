"""The operations of KernelBench, level 1, are read from PyTorch, and mean what PyTorch computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import specgrad as sg
from specgrad.interop import from_torch
from specgrad.rounding import radius

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from kernel_operations import operations


class Module(nn.Module):
    """A function as a module."""

    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


QUICK = ("matrix and number", "cumsum, masked", "cross entropy", "batch norm")
NAMES = {op.number: op.name for op in operations(reduced=True)}


def test_there_are_a_hundred() -> None:
    full, reduced = operations(), operations(reduced=True)
    assert [op.number for op in full] == [op.number for op in reduced] == list(range(1, 101))
    assert [op.name for op in full] == [op.name for op in reduced]
    assert full[0].result().shape == (4096, 4096)


@pytest.mark.parametrize("number", [n if NAMES[n] in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_pytorch_lies_in_the_radius(number: int) -> None:
    op = operations(reduced=True)[number - 1]
    args, module = op.draw(0), Module(op.function)
    graph = from_torch(module, *args)
    given = [a.float().numpy() if a.dtype == torch.bool else a.numpy() for a in args]
    expected = module(*args).detach().numpy()
    found = np.asarray(graph(*given))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    if expected.dtype == np.float32:
        assert radius(graph, *given).outputs.contains(expected.astype(np.float64)).all()


def test_what_is_no_tensor() -> None:
    """A number is a constant; what is neither is refused, and so are open shapes beside it."""
    x = torch.ones(2)
    graph = from_torch(Module(lambda v, s, flag: v * s if flag else v), x, 2.5, True)
    assert [graph.nodes[p].shape for p in graph.input_positions] == [(2,)]
    np.testing.assert_array_equal(graph(np.float32([1, 2])), [2.5, 5])
    with pytest.raises(sg.ParameterError, match="example 1 must be a tensor or a number; got str"):
        from_torch(Module(lambda v, s: v), x, "text")
    with pytest.raises(sg.ParameterError, match="only where every example is a tensor"):
        from_torch(Module(lambda v, s: v * s), x, 2.0, shapes=[("N",)])


def test_booleans_are_zeros_and_ones() -> None:
    x, mask = torch.tensor([-1.0, 2.0, 3.0]), torch.tensor([True, False, True])
    module = Module(lambda v, m: torch.where(~m.unsqueeze(0) | (v > 2) & m, v, 0.5))
    graph = from_torch(module, x, mask)
    np.testing.assert_array_equal(graph(x.numpy(), mask.float().numpy()), module(x, mask).numpy())
    with pytest.raises(sg.ParameterError, match=r"torch\.int64"):  # a sum of booleans counts in integers
        from_torch(Module(lambda v, m: v * m.sum()), x, mask)
