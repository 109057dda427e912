"""Modules that mix formats, as transformers do: halves at the nodes, float32 inside a norm, masks of a half's ends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from specgrad import ParameterError
from specgrad.check import audit, audit_recorded, open_recording, record
from specgrad.interop.torch.deployed import as_deployed

X = np.random.default_rng(5).normal(size=(64, 24)).astype(np.float32)
HALVES = torch.bfloat16, torch.float16


class Norm(nn.Module):
    """An RMSNorm that computes in float32, or in the type of x, and stores in the type of x."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.wide = nn.Parameter(torch.linspace(0.5, 1.5, 24)), True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x.float() if self.wide else x
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * h.to(x.dtype)


class Block(nn.Module):
    """A norm and a linear layer; a table of another type, as rotary frequencies are; a mask of the half's end."""

    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.norm, self.linear = Norm(), nn.Linear(24, 24)
        self.to(half)
        self.register_buffer("table", torch.linspace(0.1, 2, 24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(self.norm(x))
        y = y * self.table.cos().to(y.dtype)
        return y.masked_fill(torch.arange(24) > 20, torch.finfo(y.dtype).min)


@pytest.mark.parametrize("half", HALVES)
def test_every_node_has_its_own_format(half: torch.dtype) -> None:
    graph = as_deployed(Block(half).eval(), torch.zeros(64, 24, dtype=half))
    name = str(half).removeprefix("torch.")
    inside = {n.op.name: graph.formats.get(n.name, "float32") for n in graph.nodes if n.group.startswith("norm")}
    assert inside["sum"] == "float32"
    assert inside["cast"] == name
    assert {graph.formats.get(n.name) for n in graph.nodes if n.group == "linear"} == {name}
    assert str(torch.finfo(half).min) in str([n.args for n in graph.nodes if n.op.name == "select"])


@pytest.mark.parametrize("half", HALVES)
def test_pytorch_is_explained(half: torch.dtype) -> None:
    found = audit(Block(half).eval(), "torch", X)
    assert found.verdict == "rounding", str(found)
    assert found.coverage.is_whole
    name = str(half).removeprefix("torch.")
    assert f"{name} and float32, each where the graph has it, in any order" in found.whole.detail


def test_a_norm_that_computes_in_the_half_is_not(tmp_path: Path) -> None:
    block = Block(torch.bfloat16).eval()
    block.norm.wide = False
    record(block, "torch", [[X]], tmp_path)
    block.norm.wide = True
    found = audit_recorded(block, open_recording(tmp_path))
    assert found.verdict in ("differs", "other arithmetic")
    assert found.first_divergent is not None
    assert found.first_divergent.name == "norm"


def test_a_hidden_rounding_is_refused() -> None:
    module = nn.Linear(2, 2).bfloat16()
    module.register_buffer("scale", torch.tensor(1.1))
    module.forward = lambda x: nn.functional.linear(x, module.weight) * module.scale
    with pytest.raises(ParameterError, match="mul rounds b_scale, which is float32, to bfloat16 unseen"):
        as_deployed(module, torch.zeros(1, 2, dtype=torch.bfloat16))
